# A relay, a real Kafka, and what happens between them, under load.
#
# Proves, after each fault, that every committed message was accepted as often as the ledger says, and at least once: the broker is killed
# and away for longer than every lease; the network cuts connections in the middle of frames; the broker accepts connections and never
# answers, since the network is silent or since it is stopped (SIGSTOP); the relay is killed at thirty random moments. None of it makes a dead letter, and attempts do not add up while the broker is away.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use RelayLoad;
use RelayTest;
use Test::More;

skip_without_kafka();
seed();

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $kafka = start_kafka(proxy => 1);
my $proxy = $kafka->node(1)->proxy;
my $brokers = $kafka->bootstrap;

$kafka->create_topic('all', partitions => 3);
$node->safe_psql('postgres', q{SELECT outbox.alter_queue('default', backoff_base => '100 ms', backoff_cap => '1 s', payload_kind => 'any',
	repair_delay => '0', max_attempts => 1000)});
make_producer($node);
my $relay = start_relay(relay_config($node, qq{
[sink.kafka]
type = "kafka"
brokers = "$brokers"
timeout = "4s"
[[route]]
topic = "all"
}, lease => '"2s"'));

sub times_in_log
{
	my ($regex) = @_;

	return scalar(() = $relay->log =~ /$regex/g);
}

# Waits for one more of these lines than there were.
sub once_more
{
	my ($regex, $times) = @_;
	my $before = times_in_log($regex);

	return sub { wait_for(sub { times_in_log($regex) >= $before + ($times // 1) }, "$regex") };
}

# The fault comes while messages are made and delivered, and is over when the sub returns. It consists of so many.
sub survives
{
	my ($name, $fault, $faults) = @_;
	my $producer = start_producing($node, $name);

	wait_until_delivered($node, $name, 200);
	$fault->();
	wait_until_delivered($node, $name, 200);
	stop_producing($node, $producer);
	wait_until_done($node);
	proven($node, $name, [ map { $_->{outbox_id} } grep { $_->{key} eq $name } $kafka->deliveries('all') ], where => "event_type = '$name'");
	my $attempts = $node->safe_psql('postgres', "SELECT max(attempt_no) FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = '$name'");

	# One that was in the sink's hands, one to try with, and one that a lost lease may cost on a slow machine.
	return cmp_ok($attempts, '<=', 3 + ($faults // 1), "$name: attempts of one message");
}

# Probes come after a second, two, four: longer than the lease of 2 s.
survives('killed', sub {
	my $away = once_more(qr/the sink is still away/, 3);

	$kafka->kill9;
	$away->();
	$kafka->start;
});

survives('cut', sub {
	foreach my $cut (1 .. 10)
	{
		my $before = $proxy->stats->{cuts};

		$proxy->cut_after(rand() < 0.7 ? (1 + int(rand(20000)), 'up') : (1 + int(rand(500)), 'down'));
		$proxy->wait_stats(sub { $_[0]{cuts} > $before });
	}
}, 10);

survives('mute', sub {
	my $away = once_more(qr/the sink is away/);
	my $still = once_more(qr/the sink is still away/);

	$proxy->hole;
	$away->();
	$still->();
	$proxy->resume;
});

survives('deaf', sub {
	my $away = once_more(qr/the sink is away/);

	$proxy->hole('down');
	$away->();
	$proxy->resume;
});

survives('stopped', sub {
	my $away = once_more(qr/the sink is away/);
	my $still = once_more(qr/the sink is still away/);

	$kafka->node(1)->pause;
	$away->();
	$still->();
	$kafka->node(1)->resume;
});

# Each of them may lose the lease of a message.
survives('lives', sub { kill_often($relay, 30) }, 30);

$relay->signal('TERM');
is($relay->wait_end, 0, 'the relay ends');
consistent($node, 'consistent');
$node->stop('fast');
done_testing;
