# What the documentation takes from the program.
#
# Proves: docs/relay-codes.md is what outbox-relay --codes prints, so each code of each sink is there with its class; the
# configurations in docs/relay.md, the README, the demo and relay/outbox-relay.toml are ones that the relay reads.
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

is_read($_, slurp("$root/$_")) foreach qw(relay/outbox-relay.toml demo/relay.toml);
foreach my $page (qw(README.md docs/relay.md))
{
	my @examples = slurp("$root/$page") =~ /^```toml\n(.+?)^```$/msg;

	cmp_ok(scalar(@examples), '>', 0, "$page has examples");
	is_read("$page, example $_", $examples[ $_ - 1 ]) foreach 1 .. @examples;
}

done_testing();
