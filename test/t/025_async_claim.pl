# outbox.async_claim: a transaction that did nothing but lease commits asynchronously.
#
# Proves: such a commit flushes no WAL, and every other one does: with anything else in its
# transaction, before or after the claim, a ledger row of the claim's own included. And what
# a crash makes of a commit that was not flushed: the lease is gone as if it had never been,
# its message is claimed again, its token is refused, and nothing is lost or stuck.
#
# How it is seen: no other process flushes here. The WAL writer is stopped by a signal, nothing is
# checkpointed, vacuumed or evicted; so the position up to which WAL is flushed moves if and
# only if the statements in question move it.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => join "\n", 'autovacuum = off', "checkpoint_timeout = '1 d'", 'bgwriter_lru_maxpages = 0');

$node->safe_psql('postgres', q{
	SELECT outbox.create_queue(q) FROM unnest(ARRAY['lost', 'lowered', 'crash']) q;
	SELECT outbox.enqueue('e', '1') FROM generate_series(1, 200);
	CREATE TABLE other (n int);
	INSERT INTO other VALUES (0);
	CREATE SEQUENCE before_claim;
	CREATE SEQUENCE after_claim;
	CREATE TABLE held AS SELECT outbox_id, lease_token FROM outbox.claim('w', 20, '1 day');
	-- No lost lease yet; its lease ends when a test says so.
	SELECT outbox.enqueue_and_claim('gone', 'e', '1', 'lost');
	SELECT outbox.complete(outbox_id, lease_token, 'w', 'RETRYABLE', retry_delay => '0')
	FROM outbox.enqueue_and_claim('w', 'e', '1', 'lowered');
	UPDATE outbox.pending SET lease_expires_at = claimed_at WHERE queue = 'lost';
	SELECT outbox.alter_queue('lowered', max_attempts => 1)});
# So that nobody who reads a page has reason to tidy it up, which is WAL too.
$node->safe_psql('postgres', 'VACUUM FREEZE');
$node->safe_psql('postgres', 'CHECKPOINT');

sub wal_writer
{
	return $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'});
}

my $session = session($node);
my $stopped = wal_writer();

kill 'STOP', $stopped or die "cannot stop the WAL writer: $!";

END
{
	kill 'CONT', $stopped if $stopped;
}

sub ask
{
	return $session->query_safe($_[0]);
}

# Runs the statements; tells whether WAL was flushed by them.
sub effect
{
	my ($sql) = @_;

	ask(q{SELECT pg_logical_emit_message(true, 'test', 'all before this is flushed')});
	my $flushed = ask('SELECT pg_current_wal_flush_lsn()');
	my $written = ask('SELECT pg_current_wal_insert_lsn()');

	ask($sql);
	return 'nothing written' if ask('SELECT pg_current_wal_insert_lsn()') eq $written;
	return ask('SELECT pg_current_wal_flush_lsn()') eq $flushed ? 'not flushed' : 'flushed';
}

my $claim = q{SELECT count(*) FROM outbox.claim('w', 2)};
my $item = sub { "FROM (SELECT * FROM held OFFSET $_[0] LIMIT 1) h" };

# ---------------------------------------------------------------- the instrument

is(effect('SELECT 1'), 'nothing written', 'a statement that only reads');
is(effect('INSERT INTO other VALUES (1)'), 'flushed', 'an INSERT');
is(effect(q{BEGIN; SET LOCAL synchronous_commit = off; INSERT INTO other VALUES (1); COMMIT}), 'not flushed', 'an INSERT that asks for it');
is(effect($claim), 'flushed', 'off, as it is from the start: a claim');

# ---------------------------------------------------------------- which commits are flushed

ask('SET outbox.async_claim = on');
my @not_flushed = (
	[ 'a claim', $claim ],
	[ 'of several queues', q{SELECT count(*) FROM outbox.claim('w', 2, queues => '{crash, default}')} ],
	[ 'with wait', q{SELECT count(*) FROM outbox.claim('w', 2, wait => '1 hour')} ],
	[ 'in a transaction block', "BEGIN; $claim; COMMIT" ],
	[ 'two claims', "BEGIN; $claim; $claim; COMMIT" ],
	[ 'two in one statement', q{SELECT (SELECT count(*) FROM outbox.claim('w', 1)), (SELECT count(*) FROM outbox.claim('v', 1))} ],
	[ 'with one that finds nothing', qq{BEGIN; SELECT count(*) FROM outbox.claim('w', queues => '{crash}'); $claim; COMMIT} ],
	[ 'in a savepoint', "BEGIN; SAVEPOINT s; $claim; RELEASE s; COMMIT" ],
	[ 'before and in a savepoint', "BEGIN; $claim; SAVEPOINT s; $claim; RELEASE s; COMMIT" ],
	[ 'beside reading', "BEGIN; SELECT count(*) FROM other; $claim; SELECT count(*) FROM outbox.messages; COMMIT" ],
	[ 'serializable', "BEGIN ISOLATION LEVEL SERIALIZABLE; $claim; COMMIT" ],
	[ 'complete_and_claim with nothing to report', q{SELECT count(*) FROM outbox.complete_and_claim('w', '{}', '{}', '{}', batch_size => 2)} ],
	[ 'where every report is stale', q{SELECT count(*) FROM outbox.complete_and_claim('w', ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()], '{FAILED}', batch_size => 2)} ]);
my @flushed = (
	[ 'and an INSERT', "BEGIN; $claim; INSERT INTO other VALUES (1); COMMIT" ],
	[ 'after an INSERT', "BEGIN; INSERT INTO other VALUES (1); $claim; COMMIT" ],
	[ 'between claims an INSERT', "BEGIN; $claim; INSERT INTO other VALUES (1); $claim; COMMIT" ],
	[ 'and an INSERT in one statement', q{WITH i AS (INSERT INTO other VALUES (1)) SELECT count(*) FROM outbox.claim('w', 1)} ],
	[ 'and an INSERT in a savepoint', "BEGIN; $claim; SAVEPOINT s; INSERT INTO other VALUES (1); RELEASE s; COMMIT" ],
	[ 'and an enqueue', qq{BEGIN; $claim; SELECT outbox.enqueue('e', '1'); COMMIT} ],
	[ 'after an enqueue', qq{BEGIN; SELECT outbox.enqueue('e', '1'); $claim; COMMIT} ],
	[ 'and a completion', qq{BEGIN; $claim; SELECT c.recorded ${\ $item->(0)}, outbox.complete(outbox_id, lease_token, 'w', 'DISPATCHED') c; COMMIT} ],
	[ 'after a completion', qq{BEGIN; SELECT c.recorded ${\ $item->(1)}, outbox.complete(outbox_id, lease_token, 'w', 'RETRYABLE') c; $claim; COMMIT} ],
	[ 'in complete_and_claim, with a report', qq{SELECT count(*) ${\ $item->(2)}, outbox.complete_and_claim('w', ARRAY[outbox_id], ARRAY[lease_token], '{DISPATCHED}') c} ],
	[ 'and renew', qq{BEGIN; $claim; SELECT r.error ${\ $item->(3)}, outbox.renew('w', ARRAY[outbox_id], ARRAY[lease_token]) r; COMMIT} ],
	[ 'and release', qq{BEGIN; $claim; SELECT r.error ${\ $item->(4)}, outbox.release('w', ARRAY[outbox_id], ARRAY[lease_token]) r; COMMIT} ],
	[ 'and nextval', "BEGIN; $claim; SELECT nextval('after_claim'); COMMIT" ],
	[ 'after nextval', "BEGIN; SELECT nextval('before_claim'); $claim; COMMIT" ],
	[ 'and a logical message', "BEGIN; $claim; SELECT pg_logical_emit_message(true, 'a', 'b'); COMMIT" ],
	[ 'and one outside the transaction', "BEGIN; $claim; SELECT pg_logical_emit_message(false, 'a', 'b'); COMMIT" ],
	[ 'after one outside the transaction', "BEGIN; SELECT pg_logical_emit_message(false, 'a', 'b'); $claim; COMMIT" ],
	[ 'and a row lock', "BEGIN; $claim; SELECT FROM other LIMIT 1 FOR UPDATE; COMMIT" ],
	[ 'that records a lost lease', q{SELECT count(*) FROM outbox.claim('w', queues => '{lost}')} ],
	[ 'that ends a message', q{SELECT count(*) FROM outbox.claim('w', queues => '{lowered, default}', batch_size => 2)} ],
	# Nothing of them is left, but the records are there: better once too often.
	[ 'and an INSERT that was undone', "BEGIN; $claim; SAVEPOINT s; INSERT INTO other VALUES (1); ROLLBACK TO s; COMMIT" ],
	[ 'after a claim that was undone', "BEGIN; SAVEPOINT s; $claim; ROLLBACK TO s; $claim; COMMIT" ],
	[ 'prepared', "BEGIN; $claim; PREPARE TRANSACTION 'p'" ],
	[ 'prepared, its COMMIT', "COMMIT PREPARED 'p'" ],
	[ 'none: renew', qq{SELECT r.error ${\ $item->(5)}, outbox.renew('w', ARRAY[outbox_id], ARRAY[lease_token]) r} ],
	[ 'none: release', qq{SELECT r.error ${\ $item->(6)}, outbox.release('w', ARRAY[outbox_id], ARRAY[lease_token]) r} ],
	[ 'none: enqueue_and_claim', q{SELECT created FROM outbox.enqueue_and_claim('w', 'e', '1')} ],
	[ 'none: repair', q{UPDATE outbox.pending SET lease_expires_at = claimed_at WHERE outbox_id = (SELECT outbox_id FROM held OFFSET 7 LIMIT 1); SELECT count(*) FROM outbox.repair_expired_leases()} ],
	[ 'none: an INSERT', 'INSERT INTO other VALUES (1)' ]);

is(effect($_->[1]), 'not flushed', "claim: $_->[0]") foreach @not_flushed;
is(effect($_->[1]), 'flushed', "claim: $_->[0]") foreach @flushed;
is(ask(q{SELECT string_agg(state::text, ' ' ORDER BY state) FROM outbox.attempts WHERE recorded_by = 'w' AND worker_id IS DISTINCT FROM 'w'}),
	'FAILED ZOMBIE_REQUEUE', 'the claims did record what they should have');

# Under columns, CHECKs and indexes of users the claim does not tell what they wrote. Vacuumed
# each time, so that reading the catalog writes nothing.
my @users = (
	[ 'a CHECK', 'ALTER TABLE outbox.pending ADD CONSTRAINT mine CHECK (length(claimed_by) < 100) NOT VALID', 'ALTER TABLE outbox.pending DROP CONSTRAINT mine' ],
	[ 'a column', 'ALTER TABLE outbox.pending ADD mine int', 'ALTER TABLE outbox.pending DROP mine' ],
	[ 'an index', 'CREATE INDEX mine ON outbox.pending (claimed_by)', 'DROP INDEX outbox.mine' ]);

foreach my $users (@users)
{
	my ($what, $add, $drop) = @$users;

	ask("$add; VACUUM FREEZE");
	is(effect($claim), 'flushed', "claim: under $what of users");
	ask("$drop; VACUUM FREEZE");
	is(effect($claim), 'not flushed', '... and when it is gone');
}

# ---------------------------------------------------------------- the settings

is(ask('SHOW synchronous_commit'), 'on', 'synchronous_commit is what it was');
foreach my $level ('local', 'remote_write')
{
	ask("SET synchronous_commit = $level");
	is(effect($claim), 'not flushed', "$level: a claim");
	is(ask('SHOW synchronous_commit'), $level, '... and it is what it was');
	is(effect("BEGIN; SET LOCAL synchronous_commit = on; $claim; COMMIT"), 'not flushed', '... also in a transaction that sets it for itself');
	is(ask('SHOW synchronous_commit'), $level, '... and it is what it was');
	is(effect("BEGIN; SET synchronous_commit = on; $claim; COMMIT"), 'not flushed', '... or for the session');
	is(ask('SHOW synchronous_commit'), 'on', '... and that holds');
}
is(effect("BEGIN; $claim; SET LOCAL outbox.async_claim = off; COMMIT"), 'flushed', 'what counts is how it is at the end');
is(effect($claim), 'not flushed', '... of that transaction');
is(sqlstate($node, q{SET ROLE outbox_executor; SET outbox.async_claim = on; SELECT FROM outbox.claim('w', 1)}), '00000', 'every worker may set it');

# ---------------------------------------------------------------- a crash

ask(q{SET outbox.async_claim = on; SELECT outbox.enqueue('c' || n, '1', 'crash') FROM generate_series(1, 5) n});
sub take
{
	my ($setting) = @_;

	ask("SET outbox.async_claim = $setting");
	return split /\|/, ask(q{SELECT event_type, outbox_id, lease_token FROM outbox.claim('w', 1, '1 day', '{crash}')});
}
my %leases;

foreach my $setting ('on', 'off', 'on', 'on')
{
	my ($message, $id, $token) = take($setting);

	$leases{$message} = "'$id', '$token', 'w'";
}
is(ask('SELECT pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()'), 't', 'two leases are not flushed');
$node->stop('immediate');
undef $stopped;
eval { $session->quit };
$node->start;

is($node->safe_psql('postgres', q{
		SELECT string_agg(event_type || ' ' || coalesce(claimed_by, '-') || ' ' || attempt_count, ', ' ORDER BY event_type)
		FROM outbox.pending JOIN outbox.messages USING (outbox_id, queue) WHERE queue = 'crash'}),
	'c1 w 0, c2 w 0, c3 - 0, c4 - 0, c5 - 0', 'the crash takes the leases after the last commit that was flushed, and no other');
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE queue = 'crash'}), '0', 'the ledger knows nothing of them');
foreach my $message ('c3', 'c4')
{
	is(sqlstate($node, "SELECT outbox.complete($leases{$message}, 'DISPATCHED')"), 'P7002', "$message: the token is refused");
}
is($node->safe_psql('postgres', q{SELECT string_agg(event_type, ' ') FROM outbox.claim('w', 10, '1 day', '{crash}')}), 'c3 c4 c5', 'its message is claimed again');
foreach my $message ('c3', 'c4')
{
	is(sqlstate($node, "SELECT outbox.complete($leases{$message}, 'DISPATCHED')"), 'P7002', "$message: the token is refused, with the same worker holding the next");
}
is($node->safe_psql('postgres', "SELECT attempt_no, recorded FROM outbox.complete($leases{$_}, 'DISPATCHED')"), '1|DISPATCHED', "$_: the token is good") foreach 'c1', 'c2';
is($node->safe_psql('postgres', q{
		SELECT string_agg(DISTINCT c.recorded || ' ' || c.attempt_no, ', ') FROM outbox.pending p, outbox.complete(p.outbox_id, p.lease_token, 'w', 'DISPATCHED') c WHERE queue = 'crash'}),
	'DISPATCHED 1', 'everything can be delivered');
consistent($node, 'consistent in the end');

$node->stop('fast');
done_testing();
