# The relay with a real RabbitMQ behind a network that cuts connections, or lets nothing through.
#
# Proves: after connections that end in the middle of a frame, confirms that are lost, and a broker that accepts connections and never answers, all
# messages are there, each as often as the ledger says, and none of them is a dead letter; no consumer of an ordered queue sees k after
# k + 1 for the first time.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use RelayLoad;
use RelayTest;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $rabbitmq = start_rabbitmq();
my $proxy = start_proxy(port => $rabbitmq->port);

sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql); }
sub wait_sql { my ($sql, $what) = @_; return wait_for(sub { sql($sql) eq 't' }, $what // $sql); }

load_queues($node);
$rabbitmq->exchange('events', type => 'topic');
foreach my $queue (qw(cut hang))
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

sub delivered
{
	my ($type, $test) = @_;

	wait_until_done($node);
	my @headers = map { $_->{properties}{headers} } $rabbitmq->messages($type);

	proven($node, $test, [ map { $_->{outbox_id} } @headers ], where => "event_type LIKE '$type%'");
	return @headers;
}

# ---------------------------------------------------------------- connections are cut

seed();
start_load($node, 'cut');
foreach my $round (1 .. 4)
{
	wait_progress($node, 'cut', 20);
	$proxy->cut_after(1 + int(rand(3000)), $round % 2 ? 'up' : 'down');
	$proxy->wait_stats(sub { $_[0]{cuts} == $round });
}
wait_progress($node, 'cut', 20);
stop_load($node);
in_order($node, 'connections are cut', 'cut', delivered('cut', 'connections are cut'));

# ---------------------------------------------------------------- a broker that does not answer

start_load($node, 'hang');
wait_progress($node, 'hang', 20);
my $silent = server_time($node);

# First the broker gets what is sent to it, but its answers do not come back; then it gets nothing either.
$proxy->hole('down');
wait_sql(q{SELECT EXISTS (SELECT FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = 'hang' AND state = 'RETRYABLE')},
	'what has no confirm to be recorded');
$proxy->hole;
$relay->wait_log(qr/cannot connect to RabbitMQ.*AMQP_STATUS_TIMEOUT/);
wait_leases($node, $silent);
$proxy->resume;
wait_progress($node, 'hang', 20);
stop_load($node);
my @headers = delivered('hang', 'a broker that does not answer');

in_order($node, 'a broker that does not answer', 'hang', @headers);
cmp_ok(scalar(@headers), '>', sql(q{SELECT count(*) FROM outbox.messages WHERE event_type = 'hang'}), '... some of them came twice');

# ---------------------------------------------------------------- in the end

cmp_ok(sql(q{SELECT max(attempt_no) FROM outbox.attempts}), '<', 10, 'nothing of this costs many attempts');
$relay->signal('TERM');
is($relay->wait_end, 0, 'TERM: exit status 0');
is(sql(q{SELECT count(*) FROM outbox.dead}), '0', 'no dead letters');
consistent($node, 'consistent');
$node->stop('fast');
done_testing();
