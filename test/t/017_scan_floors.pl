# Scan floors: claims and repairs begin where the first live entry of their index lies.
#
# Proves: with an old snapshot that keeps thousands of finished rows, a claim and a repair
# read a few index entries, not thousands; and whatever becomes claimable below a floor that
# was raised is found at once: messages of late commits, savepoints and prepared
# transactions, of the past, of every priority, rows that were claimed and given back by an
# abort, retries, repaired and released leases, rows that SQL, COPY and replication wrote.
# What nothing tells of (a row written with the trigger disabled) maintain and the worker's
# sweep find.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.worker = off\nmax_prepared_transactions = 5\nautovacuum = off");
my ($one, $two) = (session($node), session($node));

$node->safe_psql('postgres', q{
	SELECT outbox.create_queue(q, repair_delay => '0') FROM unnest(ARRAY['a', 'other', 'sql']) q;
	-- How many entries of an index were read since the last call.
	CREATE TABLE was (index text PRIMARY KEY, entries bigint);
	CREATE FUNCTION entries(name text) RETURNS bigint LANGUAGE plpgsql AS $$
	DECLARE
		now bigint := pg_stat_get_tuples_returned(('outbox.' || name)::regclass);
		before bigint := (SELECT entries FROM was WHERE index = name);
	BEGIN
		INSERT INTO was VALUES (name, now) ON CONFLICT (index) DO UPDATE SET entries = now;
		RETURN now - before;
	END $$});

sub entries
{
	my ($index) = @_;

	$one->query_safe('SELECT pg_stat_force_next_flush()');
	$one->query_safe('SELECT 1');
	return $node->safe_psql('postgres', "SELECT entries('$index')");
}

sub claimed
{
	my ($session, $queue, $most) = @_;

	return $session->query_safe("SELECT coalesce(string_agg(event_type, ' ' ORDER BY event_type), 'nothing') FROM outbox.claim('w', "
			. ($most // 100) . ", queues => ARRAY['$queue'])");
}

# The queue's floors lie where nothing below them is live: a claim of another transaction has
# looked twice.
sub raise
{
	my ($queue) = @_;

	claimed($two, $queue) for 1 .. 2;
	return;
}

# What the SQL leaves behind in queue a is claimed by another session, at once.
sub found
{
	my ($name, $expected, @sql) = @_;

	raise('a');
	$one->query_safe($_) foreach @sql;
	is(claimed($two, 'a'), $expected, $name);
	$two->query_safe(q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending WHERE queue = 'a'});
	return;
}

# ---------------------------------------------------------------- what a walk reads

{
	my $holder = session($node);

	$holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
	$one->query_safe(q{DO $$
		BEGIN
			FOR i IN 1 .. 30 LOOP
				PERFORM outbox.enqueue('done', to_jsonb(n), 'a') FROM generate_series(1, 100) n;
				PERFORM outbox.complete(outbox_id, lease_token, 'w', 'DISPATCHED') FROM outbox.claim('w', 100, '1 min', queues => ARRAY['a']);
				COMMIT;
			END LOOP;
		END $$});
	raise('a');
	entries($_) foreach qw(pending_due pending_lease);
	is(claimed($one, 'a'), 'nothing', '3,000 messages are finished, and an old snapshot keeps them');
	cmp_ok(entries('pending_due'), '<', 200, '... a claim does not walk over them');
	$one->query_safe(q{SELECT outbox.enqueue('more', '1', 'a')});
	is(claimed($one, 'a'), 'more', '... nor one that finds something');
	cmp_ok(entries('pending_due'), '<', 200, '... a few entries, no more');

	# Their leases, now that they would have expired.
	$one->query_safe(q{DO $$
		BEGIN
			FOR i IN 1 .. 30 LOOP
				PERFORM outbox.complete(outbox_id, lease_token, 'w', 'DISPATCHED')
				FROM generate_series(1, 100) n, outbox.enqueue_and_claim('w', 'done', to_jsonb(n), 'a', lease => '5 s');
				COMMIT;
			END LOOP;
		END $$});
	$node->poll_query_until('postgres', q{SELECT clock_timestamp() > (SELECT max(created_at) FROM outbox.messages) + interval '5 s'}) or die;
	$one->query_safe('SELECT outbox.repair_expired_leases()') for 1 .. 2;
	entries('pending_lease');
	is($one->query_safe('SELECT count(*) FROM outbox.repair_expired_leases()'), '0', '3,000 leases would have expired, had they not been completed');
	cmp_ok(entries('pending_lease'), '<', 200, '... a repair does not walk over them');
	$one->query_safe(q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
	$holder->query_safe('COMMIT');
	$holder->quit;
}

# ---------------------------------------------------------------- what becomes claimable below a floor

found('a message', 'x', q{SELECT outbox.enqueue('x', '1', 'a')});
found('a message of long ago', 'x', q{SELECT outbox.enqueue('x', '1', 'a', deliver_at => '2001-01-01')});
found('a batch of messages, one of them of long ago', 'x y',
	q{SELECT count(*) FROM outbox.enqueue_batch('a', '[{"event_type": "x", "payload": 1}, {"event_type": "y", "payload": 1, "deliver_at": "2001-01-01T00:00:00Z"}]')});
found("priority $_", 'x', qq{SELECT outbox.enqueue('x', '1', 'a', priority => $_)}) foreach 0, 1, 7, 14, 15;
found('all priorities', join(' ', sort map { "p$_" } 0 .. 15),
	q{SELECT count(*) FROM generate_series(0, 15) p, outbox.enqueue('p' || p, '1', 'a', priority => p)});
found('a message that is due in a moment is not', 'nothing', q{SELECT outbox.enqueue('x', '1', 'a', deliver_at => clock_timestamp() + interval '1 h')});
found('a replay', 'x', q{SELECT outbox.replay(outbox_id) FROM (
	SELECT e.outbox_id, outbox.complete(e.outbox_id, e.lease_token, 'w', 'FAILED') FROM outbox.enqueue_and_claim('w', 'x', '1', 'a') e OFFSET 0) d});

# Commits that come late.
foreach my $how ([ 'a transaction', 'BEGIN', 'COMMIT' ], [ 'a released savepoint', 'BEGIN; SAVEPOINT s', 'RELEASE s; COMMIT' ],
	[ 'a savepoint that is left alone', 'BEGIN; SAVEPOINT s', 'COMMIT' ],
	[ 'a prepared transaction', 'BEGIN', q{PREPARE TRANSACTION 'p'}, q{COMMIT PREPARED 'p'} ],
	[ 'a prepared transaction with a savepoint', 'BEGIN; SAVEPOINT s', q{RELEASE s; PREPARE TRANSACTION 'p'}, q{COMMIT PREPARED 'p'} ])
{
	my ($name, $begin, @end) = @$how;

	raise('a');
	$one->query_safe("$begin; SELECT outbox.enqueue('x', '1', 'a')");
	is(claimed($two, 'a'), 'nothing', "$name is open: nothing is there yet");
	is(claimed($one, 'a', 0 + 1), 'x', '... but for the transaction itself') if $name eq 'a released savepoint';
	$one->query_safe('ROLLBACK TO s; SELECT outbox.enqueue(\'x\', \'1\', \'a\')') if $name eq 'a released savepoint';
	raise('a');
	foreach my $end (@end)
	{
		$one->query_safe($end);
		raise('a') if $end =~ /PREPARE TRANSACTION/;
	}
	is(claimed($two, 'a'), 'x', '... and is found once it has committed');
	$two->query_safe(q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending WHERE queue = 'a'});
}

# Rows that live again because the transaction that claimed or ended them fails.
foreach my $change ([ 'a claim', q{SELECT count(*) FROM outbox.claim('w', 1, queues => ARRAY['a'])} ],
	[ 'two claims', q{SELECT count(*) FROM outbox.claim('w', 1, queues => ARRAY['a']); SELECT count(*) FROM outbox.claim('w', 1, queues => ARRAY['a'])} ],
	[ 'a claim of all and a look for more', q{SELECT count(*) FROM outbox.claim('w', 9, queues => ARRAY['a']); SELECT count(*) FROM outbox.claim('w', 9, queues => ARRAY['a'])} ],
	[ 'a cancellation and a look for more', q{SELECT count(outbox.cancel(outbox_id, 'r')) FROM outbox.pending WHERE queue = 'a'; SELECT count(*) FROM outbox.claim('w', 9, queues => ARRAY['a'])} ],
	[ 'an UPDATE and a look for more', q{UPDATE outbox.pending SET next_attempt_at = '9999-01-01' WHERE queue = 'a'; SELECT count(*) FROM outbox.claim('w', 9, queues => ARRAY['a'])} ])
{
	my ($name, $sql) = @$change;

	foreach my $end ([ 'BEGIN', 'ROLLBACK' ], [ 'BEGIN; SAVEPOINT s', 'ROLLBACK TO s; COMMIT' ], [ 'BEGIN', q{PREPARE TRANSACTION 'p'}, q{ROLLBACK PREPARED 'p'} ])
	{
		my ($begin, @steps) = @$end;

		raise('a');
		$one->query_safe(q{SELECT outbox.enqueue(e, '1', 'a') FROM unnest(ARRAY['x', 'y']) e});
		$one->query_safe("$begin; $sql");
		claimed($two, 'other');
		$two->query_safe(q{SELECT count(*) FROM outbox.repair_expired_leases()});
		$one->query_safe($_) foreach @steps;
		is(claimed($two, 'a'), 'x y', "$name, undone by $steps[-1]: both are found");
		$two->query_safe(q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending WHERE queue = 'a'});
	}
}

# ... by a statement that looks for more itself, before it has ended.
{
	my $looks = q{(SELECT count(*) FROM outbox.claim('w', 9, queues => ARRAY['a']))};

	foreach my $change (qq{UPDATE outbox.pending SET next_attempt_at = '9999-01-01' WHERE queue = 'a' RETURNING $looks},
		qq{INSERT INTO outbox.pending SELECT * FROM outbox.pending WHERE queue = 'a'
			ON CONFLICT (outbox_id) DO UPDATE SET next_attempt_at = '9999-01-01' RETURNING $looks})
	{
		my $name = (split / /, $change)[0];

		found("$name that claims, undone by ROLLBACK", 'x', q{SELECT outbox.enqueue('x', '1', 'a')}, "BEGIN; $change; ROLLBACK");
		found("$name that claims, undone by ROLLBACK TO", 'x', q{SELECT outbox.enqueue('x', '1', 'a')}, "BEGIN; SAVEPOINT s; $change; ROLLBACK TO s; COMMIT");
		found("$name that claims, and fails", 'x', q{SELECT outbox.enqueue('x', '1', 'a')},
			"DO \$\$ BEGIN EXECUTE '" . ($change =~ s/'/''/gr) . ", 1 / 0'; EXCEPTION WHEN division_by_zero THEN END \$\$");
		$one->query_safe($_) foreach q{SELECT outbox.enqueue('x', '1', 'a')}, "BEGIN; SAVEPOINT s; $change; ROLLBACK TO s";
		is(claimed($one, 'a'), 'x', '... and is found by its own transaction');
		$one->query_safe('ROLLBACK');
		$two->query_safe(q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
	}
}

# Leases.
my $leased = q{SELECT 1 FROM outbox.enqueue_and_claim('w', 'x', '1', 'a', lease => '1 ms')};
my $expired = q{DO $$ BEGIN WHILE EXISTS (SELECT FROM outbox.pending WHERE lease_expires_at > clock_timestamp()) LOOP END LOOP; END $$};

found('a lease that expired', 'x', $leased, $expired);
found('a lease that was repaired, whose message keeps its place', 'x', $leased, $expired, 'SELECT outbox.repair_expired_leases()');
found('a lease that was released', 'x', q{SELECT outbox.release('w', ARRAY[outbox_id], ARRAY[lease_token]) FROM outbox.enqueue_and_claim('w', 'x', '1', 'a')});
found('a retry at once', 'x', q{SELECT outbox.complete(outbox_id, lease_token, 'w', 'RETRYABLE', retry_delay => '0') FROM outbox.enqueue_and_claim('w', 'x', '1', 'a')});
found('a lease that was made to expire by hand', 'x', q{SELECT outbox.enqueue_and_claim('w', 'x', '1', 'a')},
	q{UPDATE outbox.pending SET lease_expires_at = '2001-01-01', next_attempt_at = '2001-01-01' WHERE queue = 'a'});
{
	$one->query_safe('SELECT outbox.repair_expired_leases()');
	$one->query_safe(q{SELECT outbox.enqueue_and_claim('w', 'x', '1', 'a'); UPDATE outbox.pending SET lease_expires_at = '2001-01-01' WHERE queue = 'a'});
	is($two->query_safe('SELECT count(*) FROM outbox.repair_expired_leases()'), '1', '... and a repair finds it at once');
	$one->query_safe(q{BEGIN; SELECT outbox.enqueue_and_claim('w', 'y', '1', 'a', lease => '1 ms')});
	# It sees its own row.
	$one->query_safe(q{DO $$ BEGIN WHILE EXISTS (SELECT FROM outbox.pending WHERE lease_expires_at >= clock_timestamp()) LOOP END LOOP; END $$});
	$two->query_safe('SELECT outbox.repair_expired_leases()') for 1 .. 2;
	$one->query_safe('COMMIT');
	is($two->query_safe('SELECT count(*) FROM outbox.repair_expired_leases()'), '1', '... and one whose message was committed after it had expired');
	$two->query_safe(q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
}
# Expired leases whose change is undone, with a later one that is repaired meanwhile.
foreach my $change (q{SELECT outbox.cancel(outbox_id, 'r', force => true) FROM outbox.pending WHERE lease_expires_at < '2002-01-01'},
	q{SELECT outbox.repair_expired_leases(1)}, q{UPDATE outbox.pending SET lease_expires_at = '9999-01-01' WHERE lease_expires_at < '2002-01-01'})
{
	$one->query_safe(q{SELECT outbox.enqueue_and_claim('w', e, '1', 'a') FROM unnest(ARRAY['x', 'y']) e});
	$one->query_safe(q{UPDATE outbox.pending SET lease_expires_at = CASE WHEN outbox_id = (SELECT min(outbox_id::text)::uuid FROM outbox.pending)
		THEN '2001-01-01' ELSE '2002-01-01' END::timestamptz});
	$one->query_safe("BEGIN; $change");
	is($two->query_safe('SELECT count(*) FROM outbox.repair_expired_leases()'), '1', "$change is open: the other lease is repaired");
	$two->query_safe('SELECT outbox.repair_expired_leases()');
	$one->query_safe('ROLLBACK');
	is($two->query_safe('SELECT count(*) FROM outbox.repair_expired_leases()'), '1', '... and this one once it is undone');
	$two->query_safe(q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
}
# ... by a statement that repairs itself, before it has ended.
foreach my $end ('ROLLBACK', 'ROLLBACK TO s; COMMIT')
{
	$one->query_safe($_) foreach $leased, $expired,
		qq{BEGIN; SAVEPOINT s; UPDATE outbox.pending SET lease_expires_at = '9999-01-01' WHERE queue = 'a'
			RETURNING (SELECT count(*) FROM outbox.repair_expired_leases()); $end};
	is($two->query_safe('SELECT count(*) FROM outbox.repair_expired_leases()'), '1', "an UPDATE that repairs is undone by $end: the expired lease is found");
	$two->query_safe(q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
}
# A completion that is undone after its lease has expired, by a transaction that has looked on.
$one->query_safe(q{BEGIN; SELECT outbox.enqueue_and_claim('w', 'x', '1', 'a', lease => '5 s'); COMMIT; BEGIN;
	SELECT outbox.complete(outbox_id, lease_token, 'w', 'DISPATCHED') FROM outbox.pending WHERE queue = 'a'});
$node->poll_query_until('postgres', q{SELECT clock_timestamp() > lease_expires_at FROM outbox.pending WHERE queue = 'a'}) or die;
is(claimed($one, 'a'), 'nothing', 'a completion stays open until its lease has expired');
$one->query_safe('SELECT outbox.repair_expired_leases(); ROLLBACK');
is($two->query_safe('SELECT count(*) FROM outbox.repair_expired_leases()'), '1', '... and is undone: the lease is found, and lost');
is(claimed($two, 'a'), 'x', '... and the message');

# Rows that others wrote.
my $row = q{'a', clock_timestamp() - interval '1 year', clock_timestamp()};
my $message = q{INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, payload, headers, priority, created_at)
	SELECT gen_random_uuid(), 'a', gen_random_uuid(), 'x', '1', '{}', 0, clock_timestamp()};
my $pending = qq{WITH m AS ($message RETURNING outbox_id) INSERT INTO outbox.pending (outbox_id, queue, next_attempt_at, created_at) SELECT outbox_id, $row FROM m};
$two->query_safe(q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
found('INSERT', 'x', $pending);
found('INSERT with triggers for replication alone', 'x', "SET session_replication_role = replica; $pending; RESET session_replication_role");
found('UPDATE of its time', 'x', q{SELECT outbox.enqueue('x', '1', 'a', deliver_at => 'tomorrow')},
	q{UPDATE outbox.pending SET next_attempt_at = '2001-01-01' WHERE queue = 'a'});
found('UPDATE of its queue', 'x', q{SELECT outbox.enqueue('x', '1', 'sql')}, q{UPDATE outbox.pending SET queue = 'a' WHERE queue = 'sql'});
found('UPDATE of its priority', 'x', q{SELECT outbox.enqueue('x', '1', 'a', deliver_at => 'tomorrow')},
	q{UPDATE outbox.pending SET priority = 9, next_attempt_at = '2001-01-01' WHERE queue = 'a'});
{
	my $file = PostgreSQL::Test::Utils::tempdir() . '/row';

	chmod 0777, PostgreSQL::Test::Utils::tempdir();
	found('COPY', 'x', q{SELECT outbox.enqueue('x', '1', 'a')}, "COPY outbox.pending TO '$file'", q{ALTER TABLE outbox.pending DISABLE TRIGGER pending_changed; DELETE FROM outbox.pending WHERE queue = 'a';
			ALTER TABLE outbox.pending ENABLE ALWAYS TRIGGER pending_changed},
		q{SELECT count(*) FROM outbox.claim('w', 9, queues => ARRAY['a'])}, "COPY outbox.pending FROM '$file'");
}

# A queue that takes over the slot of another.
$one->query_safe(q{SELECT outbox.create_queue('gone')});
raise('gone');
$one->query_safe(q{SELECT outbox.drop_queue('gone'); SELECT outbox.create_queue('gone'); SELECT outbox.enqueue('x', '1', 'gone', deliver_at => '2001-01-01')});
is(claimed($two, 'gone'), 'x', 'a queue that was made anew');

# The extension, made anew by a transaction that fails.
$two->query_safe(q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
$one->query_safe(q{SELECT outbox.enqueue('x', '1'); SELECT outbox.enqueue_and_claim('w', 'y', '1', lease => '1 ms')});
$one->query_safe($expired);
$one->query_safe(q{BEGIN; DROP EXTENSION outbox; CREATE EXTENSION outbox;
	SELECT count(*) FROM outbox.claim('w', 9); SELECT count(*) FROM outbox.repair_expired_leases(); ROLLBACK});
is($two->query_safe('SELECT count(*) FROM outbox.repair_expired_leases()'), '1', 'the extension is dropped and made anew, and is not: a lease that had expired is found');
is(claimed($two, 'default'), 'x', '... and a message');
$two->query_safe(q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});

# A queue whose own transaction is open for so long that the worker has given its slot up.
configure($node, 'outbox.worker' => 'on');
wait_for_worker($node);
$one->query_safe(q{BEGIN; SELECT outbox.create_queue('long'); SELECT outbox.enqueue('x', '1', 'long')});
for (1 .. 1800)
{
	last if $node->safe_psql('postgres', q{SELECT count(*) FROM outbox.queue_stats() WHERE queue = 'long'}) eq '0';
	# The worker looks at all queues.
	$two->query_safe(q{BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'look'});
	$two->query_safe(q{COMMIT PREPARED 'look'});
	select(undef, undef, undef, 0.1);
}
$one->query_safe(q{SELECT outbox.resume('long'); SELECT outbox.enqueue('y', '1', 'long', priority => 5); COMMIT});
is(claimed($two, 'long'), 'x y', 'a queue that was long in the making, and looked at before its last message');
$two->query_safe(q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
configure($node, 'outbox.worker' => undef);
wait_for_no_worker($node, 'postgres');

# A priority that no claim looks for, let in by hand: it harms nobody.
$one->query_safe(q{ALTER TABLE outbox.pending DROP CONSTRAINT pending_priority});
$one->query_safe($_) foreach q{SELECT outbox.enqueue('x', '1', 'a')}, q{UPDATE outbox.pending SET priority = 30000 WHERE queue = 'a'};
$one->query_safe(q{SELECT outbox.enqueue_and_claim('w', 'y', '1', 'a')});
$one->query_safe(q{UPDATE outbox.pending SET priority = -30000 WHERE claimed_by IS NOT NULL AND queue = 'a'});
is($one->query_safe(q{SELECT recorded FROM outbox.pending, outbox.complete(outbox_id, lease_token, 'w', 'RETRYABLE') WHERE claimed_by IS NOT NULL AND queue = 'a'}), 'RETRYABLE',
	'a row of a priority beyond all bounds is completed');
is($one->query_safe(q{SELECT sum(outbox.cancel(outbox_id, 'done')) > 0 FROM outbox.pending WHERE queue = 'a'}), 't', '... and cancelled');
$one->query_safe(q{ALTER TABLE outbox.pending ADD CONSTRAINT pending_priority CHECK (priority BETWEEN 0 AND 15)});

# ---------------------------------------------------------------- after a crash, and the sweep

$one->query_safe(q{SELECT outbox.enqueue('before', '1', 'a')});
raise('other');
$_->quit foreach $one, $two;
$node->stop('immediate');
$node->start;
($one, $two) = (session($node), session($node));
is(claimed($two, 'a'), 'before', 'after a crash nothing is known, and everything found');
$two->query_safe(q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});

# Nothing tells of this row.
my $unnoticed = "ALTER TABLE outbox.pending DISABLE TRIGGER pending_changed; $pending; ALTER TABLE outbox.pending ENABLE ALWAYS TRIGGER pending_changed";
raise('a');
$one->query_safe($unnoticed);
is(claimed($two, 'a'), 'nothing', 'a row that was written with the trigger disabled lies below the floor');
$one->query_safe('SELECT outbox.maintain()');
isnt(claimed($two, 'a'), 'nothing', '... maintain finds it');
$two->query_safe(q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
raise('a');
$one->query_safe($unnoticed);
is(claimed($two, 'a'), 'nothing', 'a row that was written with the trigger disabled lies below the floor');
is($one->query_safe(q{SELECT count(*) FROM outbox.check() WHERE object = 'outbox.pending'}), '0', '... the trigger is back');
configure($node, 'outbox.poll_interval' => '100ms', 'outbox.worker' => 'on');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM outbox.claim('w', 9, queues => ARRAY['a'])}), "... the worker's sweep finds it");

consistent($node, 'nothing lost, nothing twice');
$_->quit foreach $one, $two;
$node->stop('fast');
done_testing();
