# Cancels and errors in the middle of a batch.
#
# Proves: a cancel between two items of a batch is served before the next one (keys and numbers are
# written some at a time); the worker repairs all leases but those whose repair fails, whatever the class of
# the error is; in a client's call an error of classes 40, 53 and 57 ends the call, and others cost their
# row alone.
#
# Needs a library made with STOP_POINTS=1. test/sql/cancelled.sql has cancels before the first item.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', preload => 1, conf => "autovacuum = off\noutbox.worker = off");
my $one = session($node);
my $pid = $one->query_safe('SELECT pg_backend_pid()');

make_stop_points($node);

# ---------------------------------------------------------------- cancels

# Each row that is written counts, also where it is undone.
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('n', ordering => 'numbered');
	CREATE SCHEMA t;
	CREATE SEQUENCE t.written;
	GRANT USAGE ON SCHEMA t TO outbox_owner;
	GRANT USAGE ON SEQUENCE t.written TO outbox_owner;
	CREATE FUNCTION t.batch(item text) RETURNS jsonb LANGUAGE sql AS $$
		SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', g) || replace(item, '%', g::text)::jsonb) FROM generate_series(1, 100) g $$;
	SELECT count(*) FROM outbox.enqueue_batch('default', t.batch('{}'));
	CREATE TABLE t.held AS SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens, array_agg('RETRYABLE'::text) AS states
	FROM outbox.claim('w', 100, '1 h');
	SELECT count(*) FROM outbox.enqueue_batch('default', t.batch('{}'))});

# Cancelled once the first row is written, of 100. at_once: so many are written in one piece.
sub cancelled_after
{
	my ($at_once, $table, $name, $sql) = @_;

	$node->safe_psql('postgres', "ALTER TABLE outbox.$table ADD CONSTRAINT counts CHECK (nextval('t.written') > 0) NOT VALID; ALTER SEQUENCE t.written RESTART");
	# The session surveys the table before.
	$one->query('BEGIN; ' . $sql . '; ROLLBACK');
	$node->safe_psql('postgres', 'ALTER SEQUENCE t.written RESTART');
	act_at($node, 'row_written', 'cancel', $pid);
	$one->{stderr} = '';
	$one->query($sql);
	like($one->{stderr}, qr/canceling statement due to user request/, "$name: is cancelled");
	my $written = $node->safe_psql('postgres', 'SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM t.written');
	cmp_ok($written, '>', 0, '... after the first row');
	cmp_ok($written, '<=', $at_once, '... and before the next');
	release($node, 'row_written');
	$node->safe_psql('postgres', "ALTER TABLE outbox.$table DROP CONSTRAINT counts");
	return;
}

my $keys = q('{"idempotency_key": "k%"}');

cancelled_after(16, 'idempotency_keys', 'keys', "SELECT count(*) FROM outbox.enqueue_batch('default', t.batch($keys))");
cancelled_after(32, 'idempotency_keys', 'keys and event ids',
	q{SELECT count(*) FROM outbox.enqueue_batch('default', (SELECT jsonb_agg(i || jsonb_build_object('event_id', gen_random_uuid())) FROM jsonb_array_elements(t.batch('{"idempotency_key": "k%"}')) i))});
cancelled_after(16, 'key_numbers', 'numbers', q{SELECT count(*) FROM outbox.enqueue_batch('n', t.batch('{"partition_key": "p%"}'))});
cancelled_after(1, 'pending', 'renew', q{SELECT count(*) FROM t.held, outbox.renew('w', ids, tokens, '2 h')});
cancelled_after(1, 'pending', 'release', q{SELECT count(*) FROM t.held, outbox.release('w', ids, tokens)});
cancelled_after(1, 'pending', 'complete_batch', q{SELECT count(*) FROM t.held, outbox.complete_batch('w', ids, tokens, states)});
cancelled_after(1, 'pending', 'claim', q{SELECT count(*) FROM outbox.claim('v', 100)});
$node->safe_psql('postgres', q{UPDATE outbox.pending SET lease_expires_at = '2001-01-01' WHERE claimed_by = 'w'});
cancelled_after(1, 'pending', 'repair_expired_leases', 'SELECT count(*) FROM outbox.repair_expired_leases()');
$node->safe_psql('postgres', q{UPDATE outbox.pending SET lease_expires_at = '2100-01-01' WHERE claimed_by = 'w'});
is($node->safe_psql('postgres', q{SELECT count(*) FILTER (WHERE claimed_by = 'w'), count(*) FROM outbox.pending}), '100|200', 'nothing of all that was done');
is($node->safe_psql('postgres', q{SELECT count(*) FROM t.held, outbox.complete_batch('w', ids, tokens, states) WHERE error IS NULL}), '100', 'the batch is completed in the end');

# ---------------------------------------------------------------- classes of errors

$node->safe_psql('postgres', q{
	SELECT outbox.alter_queue('default', repair_delay => '0');
	SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});

# Leases that have expired, of two workers, the bad one's first.
sub lose_leases
{
	$node->safe_psql('postgres', q{
		SELECT count(*) FROM generate_series(1, 6) i, outbox.enqueue('e', to_jsonb(i));
		SELECT count(*) FROM outbox.claim('bad', 3); SELECT count(*) FROM outbox.claim('good', 3);
		UPDATE outbox.pending SET lease_expires_at = CASE claimed_by WHEN 'bad' THEN '2001-01-01' ELSE '2002-01-01' END::timestamptz});
	return;
}

sub leases
{
	return $node->safe_psql('postgres', q{SELECT string_agg(claimed_by, ' ' ORDER BY claimed_by) FROM outbox.pending WHERE claimed_by IS NOT NULL});
}

foreach my $sqlstate ('40001', '53100', '57014')
{
	lose_leases();
	act_at($node, 'repair_of_bad', $sqlstate);
	is(sqlstate($node, 'SELECT outbox.repair_expired_leases()'), $sqlstate, "a client meets $sqlstate in one row: the call ends");
	is(leases(), 'bad bad bad good good good', '... and has done nothing');
	release($node, 'repair_of_bad');
	$node->safe_psql('postgres', q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
}
foreach my $sqlstate ('58030', '22012', '23514')
{
	lose_leases();
	act_at($node, 'repair_of_bad', $sqlstate);
	is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.repair_expired_leases()}), '3', "a client meets $sqlstate in three rows: the others are repaired");
	is(leases(), 'bad bad bad', '... and these are left');
	release($node, 'repair_of_bad');
	$node->safe_psql('postgres', q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
}

# The worker has no client: each row stands alone.
configure($node, 'outbox.worker' => 'on', 'outbox.poll_interval' => '100ms');
wait_for_worker($node);
foreach my $sqlstate ('40001', '53100', '57014', '58030', '23514')
{
	my $from = log_size($node);

	act_at($node, 'repair_of_bad', $sqlstate);
	lose_leases();
	ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM outbox.pending WHERE claimed_by = 'good'}), "the worker meets $sqlstate in three rows: the others are repaired");
	ok($node->poll_query_until('postgres', q{SELECT unrepaired = 3 FROM outbox.workers WHERE kind = 'worker'}), '... outbox.workers tells how many are not');
	like(worker_says($node, 'last_error'), qr/^could not repair the lease of message [0-9a-f-]{36}: stop point "repair_of_bad" fails$/, '... and why');
	is(leases(), 'bad bad bad', '... they are left as they were');
	is(scalar(log_lines($node, $from, qr/could not repair the lease/)), 1, '... the log says so once');
	release($node, 'repair_of_bad');
	ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM outbox.pending WHERE claimed_by = 'bad'}), '... when they can be repaired, they are');
	ok($node->poll_query_until('postgres', q{SELECT unrepaired = 0 AND state = 'running' FROM outbox.workers WHERE kind = 'worker'}), '... and none is reported');
	$node->safe_psql('postgres', q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
}

consistent($node, 'nothing lost, nothing twice');
$one->quit;
$node->stop('fast');
done_testing();
