# Who is told what on channel outbox_pending, and by whom, with a live background worker.
#
# Proves: a commit that enqueued is followed by one notification per queue, sent by the
# worker, and no more than one per queue and outbox.notify_gather, the first at once; what
# was rolled back, to a savepoint too, is not told; a producer neither has a NOTIFY of its
# own nor waits for those who have; prepared transactions, rows without a place in shared
# memory and queues that come and go are told of all the same; without a live worker the
# transaction notifies itself.
#
# The safety poll is kept out (an hour), but where it is what is tested. How a listener
# hears that nothing came is said in OutboxTest.pm.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes 'time';

my $node = new_node('main', preload => 1, streaming => 1,
	conf => "outbox.notify_gather = 0\nsynchronous_standby_names = 'nobody'\nsynchronous_commit = local");
my $listener = listener($node);
my $long = 'q' x 63;

$node->safe_psql('postgres', q{
	SELECT outbox.create_queue(q) FROM unnest(ARRAY['end', 'a', 'b', 'A', 'it''s "q"', E'tab\tand \\\\', 'ключ 鍵', repeat('q', 63)]) q;
	SELECT outbox.create_queue('numbered', ordering => 'numbered');
});
my $worker = wait_for_worker($node);

heard($listener);

# What a script in a session of its own tells: each queue once, by the worker.
sub told
{
	my ($expected, $name, $sql, $errors) = @_;
	my ($ret, $out, $err) = $node->psql('postgres', $sql, on_error_stop => 0,
		extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);
	my @heard = heard($listener);

	is(join(' ', $err =~ /ERROR:\s+(\S+)/g), $errors // '', "$name: errors");
	is(join(' ', sort map { $_->[0] } @heard), $expected, $name);
	return is(join(' ', grep { $_ ne $worker } map { $_->[1] } @heard), '', "$name: sent by the worker");
}

# ---------------------------------------------------------------- once per queue, at commit

told('default', 'one message', q{SELECT outbox.enqueue('e', '1')});
told('A a b', 'many in one transaction', q{
	BEGIN; SELECT outbox.enqueue('e', '1', q) FROM unnest(ARRAY['a', 'b', 'a', 'A', 'b']) q; SELECT outbox.enqueue('e', '1', 'a'); COMMIT});
told($_->[0], "the name $_->[0]", "SELECT outbox.enqueue('e', '1', $_->[1])")
	foreach [ 'it\'s "q"', q{'it''s "q"'} ], [ "tab\tand \\", q{E'tab\tand \\\\'} ], [ $long, q{repeat('q', 63)} ];
told('numbered', 'a numbered queue', q{SELECT outbox.enqueue('e', '1', 'numbered', partition_key => 'p')});
told('default', '10,000 messages by batch', q{
	SELECT count(*) FROM outbox.enqueue_batch('default',
		(SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', g)) FROM generate_series(1, 10000) g))});
told('a', $_, "BEGIN ISOLATION LEVEL $_; SELECT outbox.enqueue('e', '1', 'a'); COMMIT")
	foreach 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE';
told('a', 'asynchronous commit', q{SET synchronous_commit = off; SELECT outbox.enqueue('e', '1', 'a')});
{
	# A name that psql's output would need decoding for.
	$node->safe_psql('postgres', q{SELECT outbox.enqueue('e', '1', 'ключ 鍵')});
	my @heard = heard($listener);

	utf8::decode(my $name = $heard[0][0]);
	is(scalar(@heard), 1, 'a name that is not ASCII: once');
	like($heard[0][0] . $name, qr/ключ 鍵/, '... and the same name');
}

my $producer = session($node);

$producer->query_safe("BEGIN; SELECT outbox.enqueue('e', '1', 'a')");
is(heard($listener), '', 'nothing while the transaction is open');
$producer->query_safe('COMMIT');
is(heard($listener), 'a', '... and one at its commit');
$producer->query_safe('BEGIN; SELECT 1; COMMIT');
is(heard($listener), '', 'the next transaction of that session starts anew');

# ---------------------------------------------------------------- what was rolled back

told(@$_) foreach @undone;
told('b', 'rollback, and another queue after it', q{BEGIN; SELECT outbox.enqueue('e', '1', 'a'); ROLLBACK; SELECT outbox.enqueue('e', '1', 'b')});
told('', 'a deferred constraint that fails at commit', q{
	CREATE TABLE parent (id int PRIMARY KEY);
	CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
	BEGIN; INSERT INTO child VALUES (1); SELECT outbox.enqueue('e', '1'); COMMIT}, '23503');
told('a b', 'rolled-back and released siblings', q{
	BEGIN; SAVEPOINT s; SELECT outbox.enqueue('e', '1', 'a'); RELEASE s;
	SAVEPOINT s; SELECT outbox.enqueue('e', '1', 'A'); ROLLBACK TO s;
	SAVEPOINT s; SELECT outbox.enqueue('e', '1', 'b'); RELEASE s; COMMIT});
told('a', 'deep savepoints, rolled back to one in the middle', q{
	BEGIN; SAVEPOINT s1; SELECT outbox.enqueue('e', '1', 'a'); SAVEPOINT s2; SAVEPOINT s3;
	SELECT outbox.enqueue('e', '1', 'b'); RELEASE s3; SAVEPOINT s4; SELECT outbox.enqueue('e', '1', 'A'); ROLLBACK TO s2; COMMIT});

# Blocks with a handler, 10,000 in one transaction: in each the handler is reached, or
# only in those that enqueued into `b`, or in none.
my $blocks = q{
	DO $$ BEGIN
		FOR i IN 1 .. 10000 LOOP
			BEGIN
				PERFORM outbox.enqueue('block', to_jsonb(i), (ARRAY['a', 'b'])[1 + i % 2]);
				IF %s THEN RAISE 'undone'; END IF;
			EXCEPTION WHEN raise_exception THEN NULL;
			END;
		END LOOP;
	END $$};

foreach my $case ([ '', 'true', 0 ], [ 'a', 'i % 2 = 1', 5000 ], [ 'a b', 'false', 10000 ])
{
	my ($expected, $condition, $kept) = @$case;
	my $before = $node->safe_psql('postgres', q{SELECT count(*) FROM outbox.messages WHERE event_type = 'block'});

	told($expected, "10,000 blocks with a handler, undone where $condition", $blocks =~ s/%s/$condition/r);
	is($node->safe_psql('postgres', qq{SELECT count(*) - $before FROM outbox.messages WHERE event_type = 'block'}),
		$kept, "... $kept messages");
}
told('a', 'a procedure that commits between its blocks', q{
	DO $$ BEGIN
		BEGIN PERFORM outbox.enqueue('e', '1', 'b'); RAISE 'undone'; EXCEPTION WHEN raise_exception THEN NULL; END;
		COMMIT;
		PERFORM outbox.enqueue('e', '1', 'a');
	END $$});

# ---------------------------------------------------------------- what else tells

# One message of queue `one`, leased by w.
my $lease = q{CREATE TEMP TABLE l AS SELECT * FROM outbox.claim('w', 1, queues => ARRAY['one']);};

$node->safe_psql('postgres', q{SELECT outbox.create_queue('one')});
told('one', 'a key for the first time', q{SELECT outbox.enqueue('e', '1', 'one', idempotency_key => 'k')});
told('', 'a duplicate', q{SELECT outbox.enqueue('e', '1', 'one', idempotency_key => 'k')});
told('', 'a scheduled message', q{SELECT outbox.enqueue('e', '1', 'a', deliver_at => clock_timestamp() + interval '1 h')});
told('', 'a message born leased', q{SELECT outbox.enqueue_and_claim('w', 'e', '1', 'a', lease => '1 h')});
told('', 'claim and renewal', qq{$lease SELECT outbox.renew('w', ARRAY[outbox_id], ARRAY[lease_token], '1 h') FROM l});
told('one', 'a retry without delay', q{
	SELECT outbox.complete(outbox_id, lease_token, 'w', 'RETRYABLE', retry_delay => '0') FROM outbox.pending WHERE queue = 'one'});
told('', 'a retry with delay', qq{$lease SELECT outbox.complete(outbox_id, lease_token, 'w', 'RETRYABLE', retry_delay => '1 h') FROM l});
$node->safe_psql('postgres', q{UPDATE outbox.pending SET next_attempt_at = clock_timestamp() WHERE queue = 'one'});
told('one', 'a release', qq{$lease SELECT outbox.release('w', ARRAY[outbox_id], ARRAY[lease_token]) FROM l});
told('', 'a release with delay', qq{$lease SELECT outbox.release('w', ARRAY[outbox_id], ARRAY[lease_token], '1 h') FROM l});
$node->safe_psql('postgres', q{UPDATE outbox.pending SET next_attempt_at = clock_timestamp() WHERE queue = 'one'});
told('', 'a completion', qq{$lease SELECT outbox.complete(outbox_id, lease_token, 'w', 'FAILED') FROM l});
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.pending WHERE queue = 'one'}), '0', '... which ended it');
told('', 'a replay that is rolled back', q{BEGIN; SELECT outbox.replay(outbox_id) FROM outbox.dead_letters WHERE queue = 'one'; ROLLBACK});
told('', 'a replay for later', q{BEGIN; SELECT outbox.replay(outbox_id, clock_timestamp() + interval '1 h') FROM outbox.dead_letters WHERE queue = 'one'; ROLLBACK});
told('one', 'a replay', q{SELECT outbox.replay(outbox_id) FROM outbox.dead_letters WHERE queue = 'one'});
told('', 'pausing', q{SELECT outbox.pause('one')});
told('one', 'resuming', q{SELECT outbox.resume('one')});
told('', 'resuming that is rolled back', q{SELECT outbox.pause('one'); BEGIN; SELECT outbox.resume('one'); ROLLBACK});
$node->safe_psql('postgres', q{SELECT outbox.resume('one')});
heard($listener);
is(worker_says($node, 'pid'), $worker, 'all by one worker, which never ended');

# ---------------------------------------------------------------- gathering

# Sends of one queue are at least gather apart, so n of them cannot fall into a shorter
# time than n - 1 of it. Measured from before the first commit to after the last was heard.
sub burst
{
	my ($commits, $gather_s, $name) = @_;
	my $before = $node->safe_psql('postgres', q{SELECT coalesce(sum(notified), 0) FROM outbox.stats WHERE queue = 'a'});
	my $start = time;

	$node->safe_psql('postgres', "DO \$\$ BEGIN FOR i IN 1 .. $commits LOOP PERFORM outbox.enqueue('e', '1', 'a'); COMMIT; END LOOP; END \$\$");
	hear($listener, 'a');
	heard($listener);
	my $most = 1 + int((time - $start) / $gather_s);
	my $sent = $node->safe_psql('postgres', qq{SELECT notified - $before FROM outbox.stats WHERE queue = 'a'});

	cmp_ok($sent, '<=', $most, "$name: no closer than the time to gather ($sent of at most $most)");
	return $sent;
}

configure($node, 'outbox.notify_gather' => '1s');
heard($listener);

my $sent = burst(1000, 1, '1000 commits');

# Whatever was told before, its time to gather is over.
sub gathered
{
	my $now = $node->safe_psql('postgres', 'SELECT clock_timestamp()');

	return $node->poll_query_until('postgres', "SELECT clock_timestamp() > '$now'::timestamptz + interval '1 s'");
}

# The first of a burst is not held back: of some bursts at least one is told well before
# the time to gather is over. A worker that gathers first cannot do that once.
my $delay;
for (1 .. 30)
{
	gathered();
	$listener->{heard} = [];
	my $start = time;
	$producer->query_safe(q{SELECT outbox.enqueue('e', '1', 'a')});
	hear($listener, 'a');
	$delay = time - $start;
	last if $delay < 0.7;
}
cmp_ok($delay, '<', 0.7, 'the first notification of a burst is sent at once');
$listener->{heard} = [];
$producer->query_safe(q{SELECT outbox.enqueue('e', '1', 'a')});
hear($listener, 'a');
pass('... and what is committed while the worker gathers is told when it has');

# Two bursts: the first alone, the second while the first is gathered, of several commits.
heard($listener);
gathered();
{
	my $before = $node->safe_psql('postgres', q{SELECT notified FROM outbox.stats WHERE queue = 'b'});
	my $start = time;

	$producer->query_safe(q{SELECT outbox.enqueue('e', '1', 'b')});
	hear($listener, 'b');
	$listener->{heard} = [];
	$producer->query_safe(q{DO $$ BEGIN FOR i IN 1 .. 10 LOOP PERFORM outbox.enqueue('e', '1', 'b'); COMMIT; END LOOP; END $$});
	my $second = time - $start;
	heard($listener);
	my $sent = $node->safe_psql('postgres', qq{SELECT notified - $before FROM outbox.stats WHERE queue = 'b'});

	# On a machine that took longer than the time to gather, more would be right.
	cmp_ok($sent, '<=', 2 + int($second), 'two bursts of eleven commits: two notifications');
	cmp_ok($sent, '>=', 2, '... and not one alone');
}
configure($node, 'outbox.notify_gather' => undef);
heard($listener);

# ---------------------------------------------------------------- the producer's side

# A session whose NOTIFY waits in its commit (for a standby that there is not) holds the
# lock of the notification queue, as every NOTIFY does until its commit is over.
{
	my $notifier = session($node);
	my $second = session($node);

	$notifier->query_safe('SET synchronous_commit = on');
	start_query($notifier, q{BEGIN; NOTIFY elsewhere; SELECT pg_logical_emit_message(true, 'written', 'something'); COMMIT});
	ok($node->poll_query_until('postgres', q{
		SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'object' AND classid = 'pg_database'::regclass AND objid = 0 AND granted}),
		'a NOTIFY stands in its commit, with the lock of the notification queue');
	start_query($second, 'NOTIFY elsewhere');
	wait_until_blocked($node, $second, 'another NOTIFY');
	$producer->query_safe(q{SELECT outbox.enqueue('e', '1', 'a')});
	is($producer->query('SELECT outbox.enqueue_batch(\'a\', \'[{"event_type": "e", "payload": 1}]\') IS NULL'), 'f',
		'a producer\'s commit does not wait for the lock of the notification queue');
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($notifier->{outbox_pid})");
	like((result_of($notifier))[1], qr/canceling wait for synchronous replication/, '... while the notifier still stood there');
	result_of($second);
	hear($listener, 'a');
	pass('... and the worker tells it once the lock is free');
	$notifier->quit;
	$second->quit;
	heard($listener);
}

$producer->query_safe(q{BEGIN; SELECT outbox.enqueue('prepared', '1', 'a'); SELECT outbox.enqueue('prepared', '1', 'A');
	SAVEPOINT s; SELECT outbox.enqueue('prepared', '1', 'b'); ROLLBACK TO s; PREPARE TRANSACTION 'p'});
is($node->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts'), 'p', 'PREPARE TRANSACTION after enqueue works');
is(heard($listener), '', '... and tells nobody');
$producer->query_safe('BEGIN; SELECT 1; COMMIT');
is(heard($listener), '', '... and leaves nothing behind in its session');
$producer->query_safe(q{SELECT outbox.enqueue('e', '1', 'b')});
is(heard($listener), 'b', '... whose next enqueue tells its own queue only');

# ---------------------------------------------------------------- the safety poll

# Only `prepared` messages are claimable, so that only they can be told of.
$node->safe_psql('postgres', q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
hear($listener, 'a');
hear($listener, 'A');
pass('COMMIT PREPARED has all queues looked through');
heard($listener);
configure($node, 'outbox.poll_interval' => '100ms');
hear($listener, 'a');
hear($listener, 'A');
pass('... and so does the safety poll, after a reload of its interval');
is_deeply([ grep { $_->[0] eq 'b' } @{ $listener->{heard} } ], [], '... and nothing that was rolled back');
$node->safe_psql('postgres', q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});

# A listener that is gone with what it was told (B19).
{
	my $gone = listener($node);
	my $pid = $gone->{session}->query('SELECT pg_backend_pid()');

	$node->safe_psql('postgres', q{SELECT outbox.enqueue('e', '1', 'b')});
	hear($gone, 'b');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	# psql finds out that its server is gone.
	eval { $gone->{session}->quit };
	my $next = listener($node);
	foreach my $time ('the next listener is told', '... again and again')
	{
		$next->{heard} = [];
		hear($next, 'b');
		pass($time);
	}
	$node->safe_psql('postgres', q{SELECT c.attempt_no FROM outbox.claim('w', queues => '{b}') h, outbox.complete(h.outbox_id, h.lease_token, 'w', 'DISPATCHED') c});
	heard($next);
	is(heard($next), '', '... until somebody claims it');
	$next->{session}->quit;
}
$producer->query_safe(q{BEGIN; SELECT outbox.enqueue('prepared', '1', 'b'); PREPARE TRANSACTION 'p'; ROLLBACK PREPARED 'p'});
configure($node, 'outbox.poll_interval' => undef);
$worker = wait_for_worker($node);
heard($listener);
is(heard($listener), '', 'ROLLBACK PREPARED: nothing');

# ---------------------------------------------------------------- several databases

{
	my @databases = ('one', 'two', 'Three');
	my %listeners;
	my %workers;

	foreach my $database (@databases)
	{
		$node->safe_psql('postgres', qq{CREATE DATABASE "$database"});
		$node->safe_psql($database, q{CREATE EXTENSION outbox; SELECT outbox.create_queue('end'); SELECT outbox.create_queue('same')});
		$workers{$database} = wait_for_worker($node, database => $database);
		$listeners{$database} = listener($node, database => $database);
		heard($listeners{$database});
	}
	is(scalar(keys %{ { map { $_ => 1 } values %workers, $worker } }), 4, 'each database has a worker of its own');
	$node->safe_psql($_, q{SELECT outbox.enqueue('e', '1', 'same')}) foreach 'one', 'Three';
	foreach my $database (@databases)
	{
		my @heard = heard($listeners{$database});

		is_deeply(\@heard, $database eq 'two' ? [] : [ [ 'same', $workers{$database} ] ],
			"database $database: its own worker tells of its own queue");
	}
	is(heard($listener), '', '... and nobody hears of another database');
	$_->{session}->quit foreach values %listeners;
}

# ---------------------------------------------------------------- without a live worker

configure($node, 'outbox.worker' => 'off');
$node->poll_query_until('postgres', q{SELECT count(pid) = 0 FROM outbox.workers WHERE kind = 'worker'});
$listener->{heard} = [];
$producer->query_safe(q{BEGIN; SELECT outbox.enqueue('e', '1', q) FROM unnest(ARRAY['a', 'b', 'a']) q; SAVEPOINT s;
	SELECT outbox.enqueue('e', '1', 'A'); ROLLBACK TO s; 
	SELECT outbox.enqueue('e', '1', 'one', deliver_at => clock_timestamp() + interval '1 h'); COMMIT});
$producer->query_safe(q{NOTIFY outbox_pending, 'mark'});
hear($listener, 'mark');
{
	my $pid = $producer->query('SELECT pg_backend_pid()');

	is_deeply([ sort { $a->[0] cmp $b->[0] } @{ $listener->{heard} } ], [ map { [ $_, $pid ] } 'a', 'b', 'mark' ],
		'with outbox.worker off the transaction notifies for itself, once per queue that has something due');
}
$listener->{heard} = [];
configure($node, 'outbox.worker' => undef);
$worker = wait_for_worker($node);
ok((grep { $_->[0] eq 'a' && $_->[1] == $worker } hear($listener, 'a')), 'switched on again, the worker tells what there is');
heard($listener);
told('a', 'and what comes', q{SELECT outbox.enqueue('e', '1', 'a')});

consistent($node, 'nothing lost, nothing twice');
$producer->quit;
$listener->{session}->quit;
$node->stop('fast');

# ---------------------------------------------------------------- more queues than have a place

$node = new_node('crowded', preload => 1, conf => "outbox.notify_gather = 0\noutbox.max_queues = 16");
$node->safe_psql('postgres', q{SELECT outbox.create_queue('end')});
$listener = listener($node);
$worker = wait_for_worker($node);
heard($listener);

# Queues that come and go, many more than there are places.
$node->safe_psql('postgres', q{
	DO $$ BEGIN
		FOR i IN 1 .. 300 LOOP
			PERFORM outbox.create_queue('q' || i);
			PERFORM outbox.enqueue('e', '1', 'q' || i);
			COMMIT;
			PERFORM outbox.complete(outbox_id, lease_token, 'w', 'DISPATCHED') FROM outbox.claim('w', 10, queues => ARRAY['q' || i]);
			PERFORM outbox.drop_queue('q' || i);
			COMMIT;
		END LOOP;
	END $$});
heard($listener);
$node->safe_psql('postgres', q{SELECT outbox.create_queue('q' || i) FROM generate_series(291, 300) i});
$node->safe_psql('postgres', "SELECT outbox.enqueue('e', '1', 'q$_')") foreach 291 .. 300;
is(heard($listener), join(' ', map { "q$_" } 291 .. 300), 'queues dropped and made again, hundreds of them: places are used again');
is($node->safe_psql('postgres', q{SELECT count(*), sum(enqueued) FROM outbox.stats WHERE stats_reset IS NOT NULL AND queue LIKE 'q%'}), '10|10',
	'... and counts are of the queue that is there now');

# Together more than there are places: told, though not as sparingly.
$node->safe_psql('postgres', q{SELECT outbox.create_queue('r' || i) FROM generate_series(1, 40) i});
foreach my $i (1 .. 40)
{
	$node->safe_psql('postgres', "SELECT outbox.enqueue('e', '1', 'r$i')");
	hear($listener, "r$i");
	$listener->{heard} = [];
}
pass('40 queues of which most have no place are told of');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.stats WHERE stats_reset IS NOT NULL}), '<=', 16,
	'... for there were 16');

# Their timers, too: nothing else is left that could wake anybody.
$node->safe_psql('postgres', q{
	SELECT count(outbox.cancel(outbox_id, 'done')) FROM outbox.pending WHERE queue <> 'end';
	SELECT outbox.enqueue('e', '1', 'r' || i, deliver_at => clock_timestamp() + interval '500 ms' + i * interval '10 ms') FROM generate_series(1, 40) i});
hear($listener, "r$_") foreach 1 .. 40;
pass('... and when something of them falls due');
consistent($node, 'nothing lost, nothing twice, with few places');
$listener->{session}->quit;
$node->stop('fast');
done_testing();
