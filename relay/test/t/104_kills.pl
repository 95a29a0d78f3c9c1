# The relay is killed by kill -9 at any moment, a hundred times, while messages come.
#
# Proves: every committed message is accepted, and as often as the ledger tells; in an ordered queue, whose messages
# behind a lost one are given back without a trace, at least once, and each key in order but for repeats; in the end
# nothing is pending. One seed chooses the moments.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use RelayTest;
use Test::More;

seed();

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $receiver = start_receiver();
my $file = new_folder('lines') . '/lines';

# However often its holder is killed, a message is tried again soon.
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('plain', max_attempts => 1000, repair_delay => '0');
	SELECT outbox.create_queue('ordered', ordering => 'fifo', max_attempts => 1000, repair_delay => '0')});

my $config = relay_config($node, qq{
[sink.lines]
type = "file"
path = "$file"
[sink.receiver]
type = "http"
allow_private = true
[[route]]
event_type = "line"
sink = "lines"
[[route]]
sink = "receiver"
topic = "} . $receiver->url('/hook') . qq{"
}, queues => '["plain", "ordered"]', lease => '"1s"');

# A line that a kill cut short was not accepted.
sub lines
{
	return map { eval { from_json($_) } // () } -e $file ? split /\n/, slurp($file) : ();
}

sub seen
{
	return (-s $file // 0) + (-s "$receiver->{folder}/requests" // 0);
}

# ---------------------------------------------------------------- a hundred lives

foreach my $round (1 .. 100)
{
	my $messages = int rand 60;
	my $bytes = int rand 20_000;

	$node->safe_psql('postgres', qq{
		SELECT outbox.enqueue((ARRAY['line', 'request'])[1 + n % 2], to_jsonb(n), (ARRAY['plain', 'ordered'])[1 + n / 2 % 2],
			partition_key => CASE WHEN n / 2 % 2 = 1 THEN (ARRAY['line', 'request'])[1 + n % 2] || n % 7 END)
		FROM generate_series(1, $messages) n});
	my $before = seen();
	my $relay = start_relay($config);

	# At once, when it listens, or in the middle of its work.
	my $when = int rand 5;
	if ($when == 1)
	{
		$relay->wait_log(qr/connected; listening/);
	}
	elsif ($when > 1)
	{
		wait_for(sub {
			seen() - $before >= $bytes || $relay->log =~ /connected; listening/
				&& $node->safe_psql('postgres', 'SELECT count(*) FROM outbox.pending WHERE claimed_by IS NULL') == 0;
		}, 'some work');
	}
	$relay->kill9;
}

# ---------------------------------------------------------------- and one that lives on

my $relay = start_relay($config);

wait_until_done($node);
$relay->signal('TERM');
is($relay->wait_end, 0, 'the last one ends by TERM');
my %key = map { split /\|/ } split /\n/, $node->safe_psql('postgres', q{
	SELECT outbox_id, partition_key FROM outbox.messages WHERE queue = 'ordered'});

foreach my $sink ([ line => lines() ], [ request => $receiver->requests('/hook') ])
{
	my ($event_type, @arrived) = @$sink;
	my @plain = grep { !$key{$_} } map { $_->{headers}{outbox_id} } @arrived;
	my (%last, $disorder);

	proven($node, $event_type, \@plain, where => "event_type = '$event_type' AND queue = 'plain'");
	foreach my $headers (grep { $key{ $_->{outbox_id} } } map { $_->{headers} } @arrived)
	{
		my $last = \$last{ $key{ $headers->{outbox_id} } };

		$disorder .= " $headers->{outbox_id}" if $headers->{sequence_id} > ($$last // 0) + 1;
		$$last = $headers->{sequence_id} if $headers->{sequence_id} > ($$last // 0);
	}
	is($disorder, undef, "$event_type: keys in order");
	is_deeply(\%last, { map { split /\|/ } split /\n/, $node->safe_psql('postgres', qq{
		SELECT partition_key, max(sequence_id) FROM outbox.messages WHERE queue = 'ordered' AND event_type = '$event_type' GROUP BY 1}) },
		'... and whole');
}
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.attempts WHERE state = 'ZOMBIE_REQUEUE'}), '>', 0, 'leases were lost by kills');
consistent($node, 'consistent');

$node->stop('fast');
done_testing();
