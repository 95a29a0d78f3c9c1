# What the documentation takes from the program.
#
# Proves: docs/relay-codes.md is what outbox-relay --codes prints, so each code of each sink is there with its class; the
# configurations in docs/relay.md, the README and the demo are ones that the relay reads; it does not start on
# relay/outbox-relay.toml as that is, says what to edit, and reads what is commented out there.
use strict;
use warnings;

use BrokerTest;
use BrokerTest::Base '$here';
use Test::More;

my $root = "$here/../..";
my $program = $ENV{OUTBOX_RELAY} // "$here/../outbox-relay";
my $printed = tool([ $program, '--codes' ]);

is($printed, slurp("$root/docs/relay-codes.md"), 'docs/relay-codes.md is what outbox-relay --codes prints');
like($printed, qr/^## \Q$_\E$/m, "... with the codes of $_") foreach qw(postgres http kafka rabbitmq nats);

# A part of a configuration is made whole. No server is there: status 1. A wrong configuration: 2.
my $file = new_folder('examples') . '/relay.toml';
my $credentials = new_folder('credentials');
my %value = (WEBHOOK_SECRET => 'whsec_' . 'MDEy' x 8, RABBIT_URL => 'amqp://a:b@127.0.0.1', RABBIT => 'amqp://a:b@127.0.0.1');

sub is_read
{
	my ($test, $text) = @_;
	write_file("$credentials/$_", 'dbname=none') foreach $text =~ /credential = "(\w+)"/g;
	local %ENV = (%ENV, PGHOST => '/nowhere', CREDENTIALS_DIRECTORY => $credentials, map { $_ => $value{$_} // 'dbname=none' } $text =~ /env = "(\w+)"/g);

	$text .= qq{\n[[source]]\ndsn = ""\n} unless $text =~ /^\[\[source\]\]/m;
	$text .= qq{\n[sink.any]\ntype = "discard"\n} unless $text =~ /^\[sink\./m;
	write_file($file, $text);
	my (undef, $errors, $status) = tool([ $program, '--dry-run', '--config', $file ], may_fail => 1);

	return is($status, 1, "$test is a configuration") || diag($errors, $text);
}

is_read('demo/relay.toml', slurp("$root/demo/relay.toml"));

# The sample: untouched, with a database, with all that it shows but what is for CloudEvents.
my $sample = slurp("$root/relay/outbox-relay.toml");
my $with_database = $sample =~ s/^# dsn/dsn/mr;
my $whole = $sample =~ s/^# (?=\[|[\w."]+ = )//mgr =~ s/^source = .*//mr;

foreach my $missing ([ 'dsn', $sample ], [ '[sink.NAME]', $with_database ])
{
	my ($what, $text) = @$missing;
	my (undef, $errors, $status) = tool([ $program, '--config', write_file($file, $text) ], may_fail => 1);

	is($status, 2, "the sample without $what is refused");
	like($errors, qr/^outbox-relay: \Q$file\E: .*\Q$what\E/, '... and the file and what to edit are named');
}
is_read('the whole sample', $whole);
foreach my $page (qw(README.md docs/relay.md))
{
	my @examples = slurp("$root/$page") =~ /^```toml\n(.+?)^```$/msg;

	cmp_ok(scalar(@examples), '>', 0, "$page has examples");
	is_read("$page, example $_", $examples[ $_ - 1 ]) foreach 1 .. @examples;
}

done_testing();
