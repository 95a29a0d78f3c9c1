# Waiting inside the server: claim with wait, and wait_for_work.
#
# Proves, with a background worker and without: a commit ends the wait, also of a
# transaction that was open before it began; so do a message that falls due, a resumed
# queue and a retry; one of several that wait gets each message, none is lost; who waits in
# wait_for_work holds neither snapshot nor lock; a cancel ends it, and the session goes on.
use strict;
use warnings;

use OutboxTest;
use Test::More;

my %nodes = (
	'with a worker' => new_node('worker', conf => "shared_preload_libraries = 'outbox'"),
	'without' => new_node('none'));

# Starts a statement, and returns when it waits.
sub start_waiting
{
	my ($node, $session, $sql) = @_;

	start_query($session, $sql);
	$node->poll_query_until('postgres',
		"SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $session->{outbox_pid}")
		or die 'it does not wait';
	return;
}

foreach my $name (sort keys %nodes)
{
	my $node = $nodes{$name};
	my ($waiter, $other) = (session($node), session($node));
	my $do = sub { $node->safe_psql('postgres', shift) };

	if ($name eq 'with a worker')
	{
		$node->poll_query_until('postgres',
			"SELECT count(*) = 1 FROM outbox.workers WHERE kind = 'worker' AND pid IS NOT NULL") or die 'no worker';
	}

	# What was claimed does not come back meanwhile.
	$do->(q{SELECT outbox.alter_queue('default', lease => '1 day')});
	start_waiting($node, $waiter, "SELECT event_type FROM outbox.claim('w', wait => '1 day')");
	$do->(q{SELECT outbox.enqueue('commit', '1')});
	is(scalar(result_of($waiter)), 'commit', "$name: a commit ends the wait of claim");

	$other->query_safe(q{BEGIN; SELECT outbox.enqueue('open', '1')});
	start_waiting($node, $waiter, "SELECT event_type FROM outbox.claim('w', wait => '1 day')");
	$other->query_safe('COMMIT');
	is(scalar(result_of($waiter)), 'open', "$name: ... of a transaction that was open before");

	start_waiting($node, $waiter, "CALL outbox.wait_for_work('1 day')");
	# It looks now and then, with a snapshot: what counts is how it waits.
	ok($node->poll_query_until('postgres',
		"SELECT wait_event_type = 'Extension' AND backend_xmin IS NULL AND backend_xid IS NULL FROM pg_stat_activity WHERE pid = $waiter->{outbox_pid}"),
		"$name: wait_for_work holds no snapshot");
	ok($node->poll_query_until('postgres', qq{
		SELECT wait_event_type = 'Extension' AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND locktype <> 'virtualxid')
		FROM pg_stat_activity a WHERE pid = $waiter->{outbox_pid}}),
		"$name: ... and no lock");
	$do->(q{SELECT outbox.enqueue('work', '1')});
	is((result_of($waiter))[1], '', "$name: a commit ends it");
	is($do->(q{SELECT event_type FROM outbox.claim('w')}), 'work', "$name: ... and there is work");

	start_waiting($node, $waiter, "SELECT event_type FROM outbox.claim('w', wait => '1 day')");
	$do->(q{SELECT outbox.enqueue('scheduled', '1', deliver_at => clock_timestamp() + interval '100 ms')});
	is(scalar(result_of($waiter)), 'scheduled', "$name: a message that falls due ends the wait");

	start_waiting($node, $waiter, "SELECT event_type FROM outbox.claim('w2', wait => '1 day')");
	$do->(q{SELECT outbox.complete(outbox_id, lease_token, 'w', 'RETRYABLE', retry_delay => '0') FROM outbox.pending
		WHERE claimed_by = 'w' AND outbox_id = (SELECT outbox_id FROM outbox.messages WHERE event_type = 'scheduled')});
	is(scalar(result_of($waiter)), 'scheduled', "$name: so does a retry");

	$do->(q{SELECT outbox.pause('default'); SELECT outbox.enqueue('paused', '1')});
	start_waiting($node, $waiter, "SELECT event_type FROM outbox.claim('w', wait => '1 day')");
	$do->(q{SELECT outbox.resume('default')});
	is(scalar(result_of($waiter)), 'paused', "$name: so does a resumed queue");

	# Several wait: each message goes to one of them, and nobody is forgotten.
	my @waiters = map { session($node) } 1 .. 4;

	start_waiting($node, $_, "SELECT event_type FROM outbox.claim('w', 1, wait => '1 day')") foreach @waiters;
	$do->("SELECT outbox.enqueue('several $_', '1')") foreach 1 .. 4;
	is(join(' ', sort map { scalar result_of($_) } @waiters), join(' ', map { "several $_" } 1 .. 4),
		"$name: four that wait get one of four messages each");
	$_->quit foreach @waiters;

	start_waiting($node, $waiter, "CALL outbox.wait_for_work('1 day')");
	$do->("SELECT pg_cancel_backend($waiter->{outbox_pid})");
	like((result_of($waiter))[1], qr/canceling statement due to user request/, "$name: a cancel ends it");
	is($waiter->query('SELECT 1'), '1', "$name: ... and the session goes on");

	# An ordered key whose order is not settled yet is no work: its head ends, or a message behind it has ended.
	$do->(q{SELECT outbox.create_queue('f', ordering => 'fifo');
		SELECT outbox.enqueue('m' || i, '1', 'f', partition_key => 'k') FROM generate_series(1, 2) i;
		SELECT outbox.cancel(outbox_id, 'no longer') FROM outbox.pending WHERE queue = 'f' AND held_back});
	$other->query_safe(q{SELECT count(*) FROM outbox.claim('w', queues => '{f}');
		BEGIN; SELECT recorded FROM outbox.pending p, outbox.complete(outbox_id, lease_token, 'w', 'DISPATCHED') WHERE p.queue = 'f' AND NOT held_back});
	$do->(q{SELECT outbox.enqueue('m3', '1', 'f', partition_key => 'k')});
	start_waiting($node, $waiter, "CALL outbox.wait_for_work('1 day', '{f}')");
	$other->query_safe('COMMIT');
	is((result_of($waiter))[1], '', "$name: one that goes on ends the wait of wait_for_work");
	is($do->(q{SELECT event_type FROM outbox.claim('w', queues => '{f}')}), 'm3', "$name: ... and there is work");

	$waiter->quit;
	$other->quit;
	consistent($node, "$name: nothing lost, nothing twice");
	$node->stop('fast');
}

done_testing();
