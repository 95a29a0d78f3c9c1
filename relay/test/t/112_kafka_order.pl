# A relay and three nodes of Kafka: one of them dies, two die, all of them die, and order holds.
#
# Proves, after each fault under load, that every committed message was accepted as often as the ledger says, and at least once, and that
# for each key of an ordered queue no consumer sees k + 1 before k for the first time: the leader of a partition is killed and comes back; two
# nodes are, without which nothing is accepted (min.insync.replicas is 2); all nodes are killed and come back; the relay itself is killed.
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
my $kafka = start_kafka(nodes => 3);
my $brokers = $kafka->bootstrap;

$kafka->create_topic('all', partitions => 4, replication => 3);
$node->safe_psql('postgres', q{SELECT outbox.create_queue('ordered', ordering => 'fifo', backoff_base => '100 ms', backoff_cap => '1 s', payload_kind => 'any',
	repair_delay => '0', max_attempts => 1000)});
make_producer($node);
my $config = relay_config($node, qq{
[sink.kafka]
type = "kafka"
brokers = "$brokers"
timeout = "6s"
[[route]]
topic = "all"
}, queues => '["ordered"]', lease => '"3s"');
my $relay = start_relay($config);

# What a consumer that reads the partitions one after the other sees for the first time: of each key 1, 2, 3 and so on.
sub out_of_order
{
	my (@deliveries) = @_;
	my (%seen, %last, @wrong);

	foreach my $one (sort { $a->{partition} <=> $b->{partition} || $a->{offset} <=> $b->{offset} } @deliveries)
	{
		next if $seen{ $one->{outbox_id} }++;
		push @wrong, "$one->{key}: $one->{sequence_id}" if $one->{sequence_id} != ++$last{ $one->{key} };
	}
	return @wrong;
}

# The fault comes while messages are made and delivered, and is over when the sub returns.
sub survives
{
	my ($name, $fault) = @_;
	my $producer = start_producing($node, $name, queue => 'ordered', keys => 10);

	wait_until_delivered($node, $name, 100);
	$fault->();
	wait_until_delivered($node, $name, 100);
	stop_producing($node, $producer);
	wait_until_done($node);
	my @deliveries = grep { $_->{key} =~ /^\Q$name\E\d$/ } $kafka->deliveries('all');

	proven($node, $name, [ map { $_->{outbox_id} } @deliveries ], where => "event_type = '$name'");
	is(join("\n", splice @{ [ out_of_order(@deliveries) ] }, 0, 5), '', "$name: each key in order");
	isnt(join(' ', out_of_order(reverse_numbers(@deliveries))), '', '... which could be seen');
	return;
}

sub reverse_numbers
{
	my (@deliveries) = @_;

	return map { { %$_, sequence_id => @deliveries - $_->{sequence_id} } } @deliveries;
}

survives('one', sub {
	my $leader = $kafka->leader('all', 0);

	$kafka->node($leader)->kill9;
	wait_for(sub { my $other = $kafka->leader('all', 0); $other && $other != $leader }, 'another leader');
	wait_until_delivered($node, 'one', 100);
	$kafka->node($leader)->start;
});

# How many attempts that were claimed since then ended so.
sub attempts_since
{
	my ($since, $name, $state) = @_;

	return $node->safe_psql('postgres', qq{SELECT count(*) FROM outbox.attempts a JOIN outbox.messages USING (outbox_id)
		WHERE event_type = '$name' AND state = '$state' AND claimed_at > '$since'});
}

survives('two', sub {
	my $leader = $kafka->leader('all', 0);

	$kafka->node($_)->kill9 foreach $leader, $leader % 3 + 1;
	my $died = server_time($node);
	wait_for(sub { attempts_since($died, 'two', 'RETRYABLE') >= 20 }, 'two tries of each key');
	is(attempts_since($died, 'two', 'DISPATCHED'), 0, 'two nodes of three are dead: nothing is accepted');
	note($node->safe_psql('postgres', "SELECT error_code, count(*), max(attempt_no) FROM outbox.attempts WHERE claimed_at > '$died' GROUP BY 1"));
	$kafka->start;
});

reload($relay, $config =~ s/"3s"/"1s"/r);
survives('relay', sub { kill_often($relay, 10) });

survives('every', sub {
	my $before = () = $relay->log =~ /the sink is away/g;

	$kafka->kill9;
	wait_for(sub { (() = $relay->log =~ /the sink is away/g) > $before }, 'the sink to be away');
	$kafka->start;
});

is($node->safe_psql('postgres', q{SELECT count(DISTINCT key) FROM (SELECT split_part(reference, '/', 2) FROM outbox.attempts WHERE state = 'DISPATCHED') p (key)}),
	'4', 'all partitions have some');
$relay->signal('TERM');
is($relay->wait_end, 0, 'the relay ends');
consistent($node, 'consistent');
$node->stop('fast');
done_testing;
