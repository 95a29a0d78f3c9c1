# Standard output, when it is a pipe.
#
# Proves: lines of several sinks of a relay stay whole, also those that are longer than what a pipe takes at once. If a reader
# does not read, so that a line is cut short, the next line begins on a line of its own, and is whole.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use RelayTest;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $folder = new_folder('stdout');

$node->safe_psql('postgres', q{SELECT outbox.alter_queue('default', backoff_base => '10ms', backoff_cap => '10ms')});
my $config = write_file("$folder/relay.toml", relay_config($node, join '', map { qq{
[sink.s$_]
type = "stdout"
timeout = "1s"
[[route]]
event_type = "e$_"
sink = "s$_"
} } 1 .. 3));

# Its number, and how long its body is: of lines that are whole.
sub whole
{
	my ($line) = @_;
	my $message = eval { from_json($line) } or return ();

	return ([ $message->{headers}{outbox_id}, length $message->{body} ]);
}

my $program = $ENV{OUTBOX_RELAY} // "$BrokerTest::Base::here/../outbox-relay";
my $pid = open(my $out, '-|', $program, '--config', $config) or die "$program: $!";

# Nobody reads.
my $cut = $node->safe_psql('postgres', q{SELECT outbox_id FROM outbox.enqueue('e1', to_jsonb(repeat('x', 1000000)))});
wait_for(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM outbox.attempts WHERE state = 'RETRYABLE'}) > 0 }, 'the line to be given up');
$node->safe_psql('postgres', q{SELECT outbox.enqueue('e' || 1 + n % 3, to_jsonb(repeat('x', 50000))) FROM generate_series(1, 30) n});

my %lines;
my $bad = 0;
local $SIG{ALRM} = sub { kill KILL => $pid; die 'waited in vain for whole lines: ' . keys(%lines) . " of 31, and $bad others" };
alarm($ENV{PG_TEST_TIMEOUT_DEFAULT} || 180);
while (keys %lines < 31)
{
	my ($message) = whole(scalar <$out>);

	$message ? $lines{ $message->[0] } = $message->[1] : $bad++;
}
alarm 0;
is($lines{$cut}, 1000000, 'what was cut short is written again');
cmp_ok($bad, '>', 0, '... and what there was of it stays alone on its line');
is(scalar(grep { $_ == 50000 } values %lines), 30, 'the lines of all sinks are whole');
kill TERM => $pid;
close $out;
is($?, 0, 'exit status 0');

done_testing();
