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
use RabbitmqLoad;
use RelayLoad;
use RelayTest;
use Test::More;

my ($node, $rabbitmq, $proxy, $relay) = start_rabbitmq_load(qw(cut hang));

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
