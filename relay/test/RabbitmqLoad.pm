# What the tests of the relay with a RabbitMQ in trouble share.
#
#   my ($node, $rabbitmq, $proxy, $relay) = start_rabbitmq_load(@queues)   a database, a broker behind a proxy, and a relay
#                                    between them; what is of event type QUEUE or QUEUE.* ends in the queue of that name
#   sql($sql), wait_sql($sql, $what) of that database; until it is true
#   delivered($queue, $test)         when everything is done: the headers of what the queue got, which must be what the ledger says
package RabbitmqLoad;

use strict;
use warnings;

use BrokerTest;
use Exporter 'import';
use OutboxTest;
use RelayLoad;
use RelayTest;

our @EXPORT = qw(start_rabbitmq_load sql wait_sql delivered);
my ($node, $rabbitmq);

sub start_rabbitmq_load
{
	my (@queues) = @_;

	$node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
	$rabbitmq = start_rabbitmq();
	my $proxy = start_proxy(port => $rabbitmq->port);

	load_queues($node);
	$rabbitmq->exchange('events', type => 'topic');
	foreach my $queue (@queues)
	{
		$rabbitmq->queue($queue);
		$rabbitmq->bind($queue, 'events', "events.$queue.#");
	}

	my $relay = start_relay(relay_config($node, <<"END", queues => '["default", "ordered"]', poll_interval => '"100ms"'), env => { PASSWORD => $rabbitmq->password });
[sink.rabbitmq]
type = "rabbitmq"
hosts = ["127.0.0.1:${\ $proxy->port}"]
user = "relay"
password = { env = "PASSWORD" }
exchange = "events"
timeout = "2s"
connect_timeout = "2s"
heartbeat = "2s"
END
	return ($node, $rabbitmq, $proxy, $relay);
}

sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql); }
sub wait_sql { my ($sql, $what) = @_; return wait_for(sub { sql($sql) eq 't' }, $what // $sql); }

sub delivered
{
	my ($queue, $test) = @_;

	wait_until_done($node);
	my @headers = map { $_->{properties}{headers} } $rabbitmq->messages($queue);

	proven($node, $test, [ map { $_->{outbox_id} } @headers ], where => "event_type LIKE '$queue%'");
	return @headers;
}

1;
