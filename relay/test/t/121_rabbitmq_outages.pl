# The relay with a real RabbitMQ whose disk is full, or that dies under load; and a relay that dies thirty times.
#
# Proves: while the disk is full nothing is handed over, and no message is lost by it; after kill -9 of the broker and an outage
# of more than every lease, and after kill -9 of the relay at random moments, all messages are there, each as often as the ledger says, and none
# of them is a dead letter; no consumer of an ordered queue sees k after k + 1 for the first time.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use RabbitmqLoad;
use RelayLoad;
use RelayTest;
use Test::More;

my ($node, $rabbitmq, $proxy, $relay) = start_rabbitmq_load(qw(full kill lives));

seed();

# ---------------------------------------------------------------- a full disk

sql(q{SELECT outbox.enqueue('full', to_jsonb(n)) FROM generate_series(1, 200) n});
wait_until_done($node);
$rabbitmq->alarm(1);
sql(q{SELECT outbox.enqueue('full', to_jsonb(n)) FROM generate_series(1, 200) n});
$relay->wait_log(qr/the sink accepts nothing for now/);
sql(q{SELECT outbox.enqueue('full.later', to_jsonb(n)) FROM generate_series(1, 200) n});
wait_leases($node);
is(sql(q{SELECT count(*) FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = 'full.later'}), '0', 'a full disk: nothing more is handed over');
$rabbitmq->alarm(0);
delivered('full', 'a full disk');

# ---------------------------------------------------------------- the broker dies

start_load($node, 'kill');
wait_progress($node, 'kill', 50);
my $died = server_time($node);

$rabbitmq->kill9;
wait_sql(q{SELECT EXISTS (SELECT FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = 'kill' AND state = 'RETRYABLE')}, 'the loss to be recorded');
$proxy->refuse; # until it has been away for long enough
$rabbitmq->start;
wait_leases($node, $died);
$proxy->resume;
wait_progress($node, 'kill', 50);
stop_load($node);
in_order($node, 'kill -9 of the broker', 'kill', delivered('kill', 'kill -9 of the broker'));

# ---------------------------------------------------------------- the relay dies, at any moment

start_load($node, 'lives');
kill_often($relay, 30);
wait_progress($node, 'lives', 50);
stop_load($node);
in_order($node, 'thirty lives of the relay', 'lives', delivered('lives', 'thirty lives of the relay'));
cmp_ok(sql(q{SELECT count(*) FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = 'lives' AND state = 'ZOMBIE_REQUEUE'}), '>', 0, '... leases were lost by it');

# ---------------------------------------------------------------- in the end

cmp_ok(sql(q{SELECT max(attempt_no) FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type <> 'lives'}), '<', 10, 'nothing of this costs many attempts');
$relay->signal('TERM');
is($relay->wait_end, 0, 'TERM: exit status 0');
is(sql(q{SELECT count(*) FROM outbox.dead}), '0', 'no dead letters');
consistent($node, 'consistent');
$node->stop('fast');
done_testing();
