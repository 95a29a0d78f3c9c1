# Who is told what on channel outbox_pending, without a background worker.
#
# Proves: a transaction that enqueued notifies each of its queues once, at its commit,
# however many messages it wrote; one that rolled back, or whose enqueues were all rolled
# back to a savepoint or were duplicates, sends no notification; a prepared one enqueues and
# leaves nothing behind in its session.
#
# A marker, notified by another session, ends each collection: what was sent before it
# has arrived when the marker has, so that "nothing came" needs no waiting.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my $listener = session($node);
my $markers = 0;

$listener->query_safe('LISTEN outbox_pending');

# What was notified since the last call, sorted.
sub notified
{
	my $marker = 'marker ' . ++$markers;
	my $output = '';

	$node->safe_psql('postgres', "NOTIFY outbox_pending, '$marker'");
	for (1 .. 1800)
	{
		$output .= $listener->query('SELECT') . "\n";
		last if $output =~ /"$marker"/;
		select(undef, undef, undef, 0.1);
	}
	die "the marker did not arrive" unless $output =~ /"$marker"/;
	return join ' ', sort grep { $_ ne $marker }
		$output =~ /Asynchronous notification "outbox_pending" with payload "(.*)" received/g;
}

# What a script in a session of its own tells; its errors, if it is to have some.
sub told
{
	my ($expected, $name, $sql, $errors) = @_;
	my ($ret, $out, $err) = $node->psql('postgres', $sql, on_error_stop => 0,
		extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);

	is(join(' ', $err =~ /ERROR:\s+(\S+)/g), $errors // '', "$name: errors");
	return is(notified(), $expected, $name);
}

$node->safe_psql('postgres', q{
	SELECT outbox.create_queue(q) FROM unnest(ARRAY['a', 'b', 'A', 'it''s "q"', repeat('q', 63)]) q;
	SELECT outbox.create_queue('numbered', ordering => 'numbered');
});
is(notified(), '', 'creating queues tells nobody');

# ---------------------------------------------------------------- once per queue

told('default', 'one message', q{SELECT outbox.enqueue('e', '1')});
told('default', 'many in one transaction', q{
	BEGIN; SELECT outbox.enqueue('e', '1') FROM generate_series(1, 100); SELECT outbox.enqueue('e', '1'); COMMIT});
told('A a b', 'each queue once; names that differ in case are two', q{
	BEGIN;
	SELECT outbox.enqueue('e', '1', q) FROM unnest(ARRAY['a', 'b', 'a', 'A', 'b']) q;
	COMMIT});
told('a a', 'two transactions are two', q{SELECT outbox.enqueue('e', '1', 'a'); SELECT outbox.enqueue('e', '1', 'a')});
told('it\'s "q"', 'any name', q{SELECT outbox.enqueue('e', '1', 'it''s "q"')});
told('q' x 63, 'the longest name, and a message that is longer than a notification', q{
	SELECT outbox.enqueue('e', jsonb_build_object('x', repeat('a', 5000000)), repeat('q', 63), partition_key => repeat('k', 2000))});
told('default', '10,000 messages by batch', q{
	SELECT count(*) FROM outbox.enqueue_batch('default',
		(SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', g)) FROM generate_series(1, 10000) g))});
told('default', '10,000 messages one by one in one transaction', q{
	SELECT count(*) FROM generate_series(1, 10000) g, LATERAL outbox.enqueue('e', to_jsonb(g))});
told('numbered', 'a numbered queue', q{SELECT outbox.enqueue('e', '1', 'numbered', partition_key => 'p')});
foreach my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	told('a', $level, "BEGIN ISOLATION LEVEL $level; SELECT outbox.enqueue('e', '1', 'a'); COMMIT");
}
told('a a', 'a procedure that commits twice', q{
	DO $$ BEGIN PERFORM outbox.enqueue('e', '1', 'a'); COMMIT; PERFORM outbox.enqueue('e', '1', 'a'); END $$});
told('a', 'a deferred trigger, which enqueues during the commit', q{
	CREATE TABLE orders (id int);
	CREATE FUNCTION on_order() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM outbox.enqueue('deferred', to_jsonb(new), 'a'); RETURN NULL; END $$;
	CREATE CONSTRAINT TRIGGER on_order AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION on_order();
	BEGIN; INSERT INTO orders VALUES (1), (2); COMMIT});
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.messages WHERE event_type = 'deferred'}), '2', '... for each row');
told('a', 'together with the application\'s own NOTIFY of the same channel and payload', q{
	BEGIN; NOTIFY outbox_pending, 'a'; SELECT outbox.enqueue('e', '1', 'a'); COMMIT});

# ---------------------------------------------------------------- at commit, or never

my $producer = session($node);

$producer->query_safe("BEGIN; SELECT outbox.enqueue('e', '1', 'a')");
is(notified(), '', 'nothing while the transaction is open');
$producer->query_safe('COMMIT');
is(notified(), 'a', '... and one at its commit');
$producer->query_safe('BEGIN; SELECT 1; COMMIT');
is(notified(), '', 'the next transaction of that session starts anew');

told(@$_) foreach @undone;
told('', 'an error in the same statement', q{SELECT outbox.enqueue('e', '1'), 1 / (g - 3) FROM generate_series(1, 5) g}, '22012');
told('', 'a deferred constraint that fails at commit', q{
	CREATE TABLE parent (id int PRIMARY KEY);
	CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
	BEGIN; INSERT INTO child VALUES (1); SELECT outbox.enqueue('e', '1'); COMMIT; SELECT 1}, '23503');
is($node->safe_psql('postgres', 'SELECT count(*) FROM child'), '0', '... did fail');
told('a', 'a released savepoint and a rolled-back sibling', q{
	BEGIN; SAVEPOINT s; SELECT outbox.enqueue('e', '1', 'a'); RELEASE s;
	SAVEPOINT s; SELECT outbox.enqueue('e', '1', 'b'); ROLLBACK TO s; COMMIT});
told('b', 'the other way round', q{
	BEGIN; SAVEPOINT s; SELECT outbox.enqueue('e', '1', 'a'); ROLLBACK TO s;
	SAVEPOINT s; SELECT outbox.enqueue('e', '1', 'b'); RELEASE s; COMMIT});
told('a', 'the same queue again after a rolled-back savepoint', q{
	BEGIN; SAVEPOINT s; SELECT outbox.enqueue('e', '1', 'a'); ROLLBACK TO s; SELECT outbox.enqueue('e', '1', 'a'); COMMIT});
told('a', 'deep savepoints, rolled back down to the one above', q{
	BEGIN; SAVEPOINT s1; SELECT outbox.enqueue('e', '1', 'a'); SAVEPOINT s2; SAVEPOINT s3;
	SELECT outbox.enqueue('e', '1', 'b'); RELEASE s3; SAVEPOINT s4; SELECT outbox.enqueue('e', '1', 'A'); ROLLBACK TO s2; COMMIT});
told('', 'a block with an exception handler', q{
	DO $$ BEGIN PERFORM outbox.enqueue('e', '1'); RAISE 'no'; EXCEPTION WHEN OTHERS THEN NULL; END $$});
told('default', 'a block with an exception handler that is not reached', q{
	DO $$ BEGIN PERFORM outbox.enqueue('e', '1'); EXCEPTION WHEN OTHERS THEN NULL; END $$});

# ---------------------------------------------------------------- duplicates, other calls

told('default', 'a key for the first time', q{SELECT outbox.enqueue('e', '1', idempotency_key => 'k')});
told('', 'a duplicate', q{SELECT outbox.enqueue('e', '1', idempotency_key => 'k')});
told('', 'a batch of duplicates', q{
	SELECT outbox.enqueue_batch('default', '[{"event_type": "e", "payload": 1, "idempotency_key": "k"}, {"event_type": "e", "payload": 1, "idempotency_key": "k"}]')});
told('', 'an empty batch', q{SELECT outbox.enqueue_batch('default', '[]')});
told('', 'a refused batch', q{SELECT outbox.enqueue_batch('default', '[{"event_type": "e", "payload": 1}, {"event_type": ""}]')}, '22023');
told('default', 'a batch with one that is new', q{
	SELECT outbox.enqueue_batch('default', '[{"event_type": "e", "payload": 1, "idempotency_key": "k"}, {"event_type": "e", "payload": 1}]')});
told('', 'claim and completion', q{
	WITH held AS MATERIALIZED (SELECT * FROM outbox.claim('w', 2, queues => ARRAY['a']))
	SELECT outbox.complete(outbox_id, lease_token, 'w', 'FAILED') FROM held});
is($node->safe_psql('postgres', 'SELECT count(*) FROM outbox.dead_letters'), '2', '... which did something');
told('', 'a cancellation', q{SELECT outbox.cancel(outbox_id, 'no longer') FROM outbox.pending WHERE claimed_by IS NULL LIMIT 1});
told('a', 'a replay', q{SELECT outbox.replay(outbox_id) FROM outbox.dead_letters WHERE error_code IS DISTINCT FROM 'CANCELLED' LIMIT 1});
told('', 'a replay that is rolled back', q{BEGIN; SELECT outbox.replay(outbox_id) FROM outbox.dead_letters LIMIT 1; ROLLBACK});

# maintain() tells the queues that have something to claim, and only those.
$node->safe_psql('postgres', q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
notified();
told('', 'maintain() with nothing to claim', q{SELECT * FROM outbox.maintain()});
$node->safe_psql('postgres', q{
	SELECT outbox.enqueue('e', '1', 'a');
	SELECT outbox.enqueue('e', '1', 'b', deliver_at => clock_timestamp() + interval '1 hour');
	SELECT outbox.enqueue_and_claim('w', 'e', '1', 'numbered');
});
notified();
told('a', 'maintain() with a due, a scheduled and a leased message', q{SELECT * FROM outbox.maintain()});

# ---------------------------------------------------------------- prepared transactions

$producer->query_safe(q{BEGIN; SELECT outbox.enqueue('prepared', '1', 'a', idempotency_key => 'prepared'); PREPARE TRANSACTION 'p'});
is(notified(), '', 'PREPARE TRANSACTION works and tells nobody');
$producer->query_safe('BEGIN; SELECT 1; COMMIT');
is(notified(), '', '... and leaves nothing behind in its session');
$producer->query_safe(q{SELECT outbox.enqueue('e', '1', 'b')});
is(notified(), 'b', '... whose next enqueue tells its own queue only');
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
is($node->safe_psql('postgres', q{SELECT event_type FROM outbox.claim('w', 100, queues => ARRAY['a']) WHERE event_type = 'prepared'}),
	'prepared', '... and after COMMIT PREPARED the message is there');
is($node->safe_psql('postgres', q{SELECT created FROM outbox.enqueue('e', '1', 'a', idempotency_key => 'prepared')}), 'f', '... and its key');
notified();
$producer->query_safe(q{BEGIN; SELECT outbox.enqueue('gone', '1', 'a'); PREPARE TRANSACTION 'p'; ROLLBACK PREPARED 'p'});
is(notified(), '', 'ROLLBACK PREPARED tells nobody');
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.messages WHERE event_type = 'gone'}), '0', '... and leaves nothing');

# Another session waits for a prepared enqueue of the same key, and goes on at its end.
foreach my $end ('COMMIT', 'ROLLBACK')
{
	my $other = session($node);

	$producer->query_safe("BEGIN; SELECT outbox.enqueue('first', '1', idempotency_key => 'w $end'); PREPARE TRANSACTION 'p'");
	start_query($other, "SELECT created FROM outbox.enqueue('second', '1', idempotency_key => 'w $end')");
	wait_until_blocked($node, $other, "a key of a prepared transaction, $end PREPARED");
	$node->safe_psql('postgres', "$end PREPARED 'p'");
	is(scalar(result_of($other)), $end eq 'COMMIT' ? 'f' : 't', "... then knows");
	is(notified(), $end eq 'COMMIT' ? '' : 'default', '... and tells, or not');
	$other->quit;
}

$producer->quit;
$listener->quit;
consistent($node, 'nothing lost, nothing twice');
$node->stop('fast');
done_testing();
