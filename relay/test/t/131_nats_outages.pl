# The relay with a real NATS server that dies, is away, hangs, or has its connections cut, under load; and a relay that dies thirty times.
#
# Proves: after kill -9 of the server, ten times, and an outage of more than every lease, connections that end in the middle of a frame, acknowledgements that
# are lost, a server that accepts connections and never answers, or never the handshake of TLS, and kill -9 of the relay at random moments, all messages are there, each as often as
# the ledger says, and none of them is a dead letter; no consumer of an ordered queue sees k after k + 1 for the first time; what the relay
# sends again under the same Nats-Msg-Id is stored once, and with a shorter memory of the stream as often as it arrives.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use RelayLoad;
use RelayTest;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $nats = start_nats();
my $proxy = start_proxy(port => $nats->port);

sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql); }
sub wait_sql { my ($sql, $what) = @_; return wait_for(sub { sql($sql) eq 't' }, $what // $sql); }

seed();
load_queues($node);
$nats->stream($_, subjects => ["events.$_"]) foreach qw(kill deaths cut hang lives);
# It remembers nothing, so that one sees what came twice.
$nats->stream('mute', subjects => ['events.mute'], duplicate_window => 100_000_000);

my $relay = start_relay(relay_config($node, <<"END", queues => '["default", "ordered"]', poll_interval => '"100ms"'));
[sink.nats]
type = "nats"
url = "nats://127.0.0.1:${\ $proxy->port}"
timeout = "2s"
connect_timeout = "2s"
END

# Enqueued at once, or under load: delivered, and in order. The headers of what is there.
sub delivered
{
	my ($type, $test) = @_;

	wait_until_done($node);
	my @headers = map { $_->{headers} } $nats->messages($type);

	proven($node, $test, [ map { $_->{outbox_id} } @headers ], where => "event_type = '$type'");
	in_order($node, $test, $type, @headers);
	return @headers;
}

# Those of this type that have failed once and will be tried again.
sub wait_failure
{
	my ($type) = @_;

	return wait_sql(qq{SELECT EXISTS (SELECT FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = '$type' AND state = 'RETRYABLE')},
		"a failed attempt of $type");
}

sub stored_once
{
	my ($type, @headers) = @_;

	return is(scalar(@headers), sql(qq{SELECT count(*) FROM outbox.messages WHERE event_type = '$type'}), '... each of them is stored once');
}

# ---------------------------------------------------------------- the server dies

start_load($node, 'kill');
wait_progress($node, 'kill', 50);
my $died = server_time($node);

$nats->kill9;
wait_failure('kill');
wait_leases($node, $died);
$nats->start;
wait_progress($node, 'kill', 50);
stop_load($node);
delivered('kill', 'kill -9 of the server');

# Ten times at a random moment, and back at once.
start_load($node, 'deaths');
foreach (1 .. 10)
{
	my $much = length($relay->log) + int rand 20_000;

	wait_for(sub { length $relay->log >= $much }, 'some work');
	$nats->kill9;
	$nats->start;
	wait_progress($node, 'deaths', 1);
}
stop_load($node);
stored_once('deaths', delivered('deaths', 'ten deaths of the server'));

# ---------------------------------------------------------------- connections are cut

start_load($node, 'cut');
foreach my $round (1 .. 4)
{
	wait_progress($node, 'cut', 20);
	$proxy->cut_after(1 + int(rand(3000)), $round % 2 ? 'up' : 'down');
	$proxy->wait_stats(sub { $_[0]{cuts} == $round });
}
wait_progress($node, 'cut', 20);
stop_load($node);
stored_once('cut', delivered('cut', 'connections are cut'));

# ---------------------------------------------------------------- a server that does not answer

foreach my $type (qw(hang mute))
{
	my $test = $type eq 'hang' ? 'a server that does not answer' : 'a server that does not answer, and remembers nothing';

	start_load($node, $type);
	wait_progress($node, $type, 20);
	my $silent = server_time($node);

	# First the server gets what is sent to it, but its answers do not come back; then it gets nothing either.
	$proxy->hole('down');
	wait_failure($type);
	$proxy->hole;
	wait_leases($node, $silent);
	$proxy->cut;
	$proxy->resume;
	wait_progress($node, $type, 20);
	stop_load($node);
	my @headers = delivered($type, $test);

	stored_once($type, @headers) if $type eq 'hang';
	cmp_ok(scalar(@headers), '>', sql(q{SELECT count(*) FROM outbox.messages WHERE event_type = 'mute'}), '... some of them came twice') if $type eq 'mute';
}
cmp_ok(sql(q{SELECT count(*) FROM outbox.attempts WHERE reference LIKE 'hang/% duplicate'}), '>', 0, '... the ledger says of which a stream had them already');

# ---------------------------------------------------------------- the relay dies, at any moment

start_load($node, 'lives');
kill_often($relay, 30);
wait_progress($node, 'lives', 50);
stop_load($node);
stored_once('lives', delivered('lives', 'thirty lives of the relay'));
cmp_ok(sql(q{SELECT count(*) FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = 'lives' AND state = 'ZOMBIE_REQUEUE'}), '>', 0, '... leases were lost by it');

# ---------------------------------------------------------------- in the end

cmp_ok(sql(q{SELECT max(attempt_no) FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type <> 'lives'}), '<', 10, 'nothing of this costs many attempts');
$relay->signal('TERM');
is($relay->wait_end, 0, 'TERM: exit status 0');

# ---------------------------------------------------------------- a handshake of TLS that is not answered

my $secured = start_nats(tls => 1);
my $before = start_proxy(port => $secured->port);
my $config = relay_config($node, <<"END", poll_interval => '"100ms"');
[sink.nats]
type = "nats"
url = "tls://localhost:${\ $before->port}"
ca = "${\ test_ca()->{ca}}"
timeout = "2s"
connect_timeout = "500ms"
END

$secured->stream('secured', subjects => ['events.secured']);
$before->swallow_after(0, 'up');
check_names($config, {}, nats => 'NATS_TIMEOUT');
$relay = start_relay($config);
sql(q{SELECT outbox.enqueue('secured', to_jsonb(n)) FROM generate_series(1, 20) n});
wait_failure('secured');
$before->resume;
wait_until_done($node);
# The next one is not the first connection.
$before->swallow_after(100, 'up');
$before->cut;
sql(q{SELECT outbox.enqueue('secured', to_jsonb(n)) FROM generate_series(21, 40) n});
$relay->wait_log(qr/cannot connect.*code=NATS_TIMEOUT(?s:.*lost.*)cannot connect.*code=NATS_TIMEOUT/);
$before->resume;
wait_until_done($node);
proven($node, 'a handshake that is not answered', [ map { $_->{headers}{outbox_id} } $secured->messages('secured') ], where => "event_type = 'secured'");
$before->swallow_after(0, 'up');
$before->cut;
$relay->wait_log(qr/lost(?s:.*)lost/);
$relay->signal('TERM');
is($relay->wait_end, 0, '... TERM: exit status 0');
is(sql(q{SELECT count(*) FROM outbox.dead}), '0', 'no dead letters');
consistent($node, 'consistent');
$node->stop('fast');
done_testing();
