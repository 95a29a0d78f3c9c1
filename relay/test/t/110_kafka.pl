# A relay and a real Kafka.
#
# Proves: what was committed is in the topic as often as the ledger says, and a test that asks this can fail.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use RelayTest;
use Test::More;

skip_without_kafka();

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $kafka = start_kafka();
$kafka->create_topic('events.first', partitions => 3);
my $brokers = $kafka->bootstrap;
my $relay = start_relay(relay_config($node, qq{
[sink.kafka]
type = "kafka"
brokers = "$brokers"
}));
$node->safe_psql('postgres', q{SELECT outbox.enqueue('first', to_jsonb(n), aggregate_id => 'a' || n % 7) FROM generate_series(1, 1000) n});
wait_until_done($node);
my @ids = map { $_->{headers}{outbox_id} } $kafka->records('events.first', count => 1000);
proven($node, 'plain', \@ids);

# The question is one that has other answers.
my $ledger = RelayTest::ledger($node, 'true');
foreach my $wrong ([ missing => @ids[ 1 .. $#ids ] ], [ 'too many' => @ids, $ids[0] ], [ unknown => @ids, 'x' ], [ 'no id' => @ids, undef ])
{
	my ($name, @wrong) = @$wrong;

	is(scalar(my @problems = RelayTest::unproven($ledger, \@wrong)), 1, "a record: $name");
}
done_testing;
