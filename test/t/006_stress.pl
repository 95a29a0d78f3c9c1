# Many sessions at once, with random rollbacks, in all isolation levels.
#
# Proves: N enqueues of one key give one id; concurrent claims never hand out a row twice
# nor more than asked, under any planner setting; batches that name the same keys in any
# order never deadlock; numbers of a key have no gaps and come in commit order; every
# lease that was handed out ends as exactly one ledger row, however completion, repair,
# claim, renewal and release race each other, while indexes and tables are rebuilt and
# partitions are made underneath; not one 40001 or 40P01, and intact indexes in the end.
# (B01, B04, B05, B11, B14, B15)
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed();
# Deadlocks are looked for soon, but not before the time is over for which maintain, with a part of
# its locks, makes partitions and waits for the others.
my $node = new_node('main', extension => 0, conf => "deadlock_timeout = '2s'\ntrack_commit_timestamp = on\nautovacuum_naptime = '1s'");
my @levels = ('read committed', 'repeatable read', 'serializable');
my $files = 0;

# The command line of pgbench for weighted scripts.
sub bench_command
{
	my ($clients, $transactions, $defines, %scripts) = @_;
	my @command = ('pgbench', '-n', '-c', $clients, '-j', 1, '-t', $transactions, '--random-seed', ++$seed);

	push @command, '-D', "$_=$defines->{$_}" foreach sort keys %$defines;
	foreach my $name (sort keys %scripts)
	{
		my ($text, $weight) = @{ $scripts{$name} };
		my $file = $node->basedir . '/' . ++$files . "_$name.sql";

		append_to_file($file, $text);
		push @command, '-f', "$file\@$weight";
	}
	return (@command, $node->connstr('postgres'));
}

sub judge_bench
{
	my ($name, $status, $out, $err) = @_;

	$err =~ s/^pgbench: (?:hint|setting random seed).*\n//mg;
	ok($status == 0 && $err eq '', "$name: no error") or diag($err);
	like($out, qr/^number of failed transactions: 0 \(/m, "$name: no serialization failure, no deadlock")
		or diag(join "\n", slurp_file($node->logfile) =~ /^.*(?:ERROR:  (?:deadlock|could not serialize).*(?:\n.*){1,14})$/mg);
	return;
}

sub bench
{
	my ($name, @arguments) = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run([ bench_command(@arguments) ], '<', \undef, '>', \$out, '2>', \$err);
	judge_bench($name, $?, $out, $err);
	return;
}

sub none
{
	my ($name, $sql) = @_;

	return is($node->safe_psql('postgres', $sql), '', $name);
}

# Ends a transaction: one in four is rolled back.
my $end = q{
\if :end = 1
ROLLBACK;
\else
COMMIT;
\endif
};

# History in DEFAULT leaves, as a restore begins, or, with every other seed, in dated ones, which
# CREATE EXTENSION makes.
my $dated = $seed % 2;

$node->safe_psql('postgres', ($dated ? '' : 'SET xmloption = content; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; ')
	. 'CREATE EXTENSION outbox');
$node->safe_psql('postgres', q{
	CREATE EXTENSION amcheck;
	SELECT outbox.create_queue(q) FROM unnest(ARRAY['work', 'untouched', 'mix']) q;
	SELECT outbox.create_queue('numbered', ordering => 'numbered');
	SELECT outbox.alter_queue('mix', max_attempts => 5, repair_delay => '0');
	CREATE TABLE answers (round int, key text, outbox_id uuid, created boolean);
	CREATE TABLE claimed (worker int, wanted int, outbox_id uuid, batch bigint);
	CREATE TABLE granted (token uuid);
	CREATE TABLE released (token uuid);
	CREATE TABLE reported (token uuid, recorded outbox.attempt_state, error text);
});

# ---------------------------------------------------------------- one key, many sessions

my $round = 0;
foreach my $level (@levels)
{
	local $ENV{PGOPTIONS} = '-c default_transaction_isolation=' . $level =~ s/ /\\ /r;

	bench("keys, $level", 8, 60, { r => ++$round },
		single => [ q{
\set k random(1, 25)
\set end random(1, 4)
BEGIN;
INSERT INTO answers SELECT :r, 'key ' || :k, e.outbox_id, e.created
FROM outbox.enqueue('e', '1', idempotency_key => :r || ' ' || :k, aggregate_id => 'a') e;
} . $end, 3 ],
		event => [ q{
\set k random(1, 25)
\set end random(1, 4)
BEGIN;
INSERT INTO answers SELECT :r, 'event ' || :k, e.outbox_id, e.created
FROM outbox.enqueue('e', '1', event_id => md5(:r || ' ' || :k)::uuid) e;
} . $end, 2 ],
		batch => [ q{
\set k random(1, 25)
\set l random(1, 25)
\set m random(1, 25)
\set end random(1, 4)
BEGIN;
INSERT INTO answers SELECT :r, 'key ' || (ARRAY[:k, :l, :m])[e.ordinality], e.outbox_id, e.created
FROM outbox.enqueue_batch('default', (
	SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', 1, 'aggregate_id', 'a', 'idempotency_key', :r || ' ' || k) ORDER BY n)
	FROM unnest(ARRAY[:k, :l, :m]) WITH ORDINALITY u(k, n))) e;
} . $end, 2 ],
		born => [ q{
\set k random(1, 25)
\set end random(1, 4)
BEGIN;
INSERT INTO answers SELECT :r, 'key ' || :k, e.outbox_id, e.created
FROM outbox.enqueue_and_claim('w', 'e', '1', idempotency_key => :r || ' ' || :k, aggregate_id => 'a') e;
} . $end, 1 ]);
}
none('one id a key, created once', q{
	SELECT round, key, count(DISTINCT outbox_id), count(*) FILTER (WHERE created) FROM answers
	GROUP BY 1, 2 HAVING count(DISTINCT outbox_id) <> 1 OR count(*) FILTER (WHERE created) <> 1});
is($node->safe_psql('postgres', 'SELECT count(*) FROM outbox.messages'),
	$node->safe_psql('postgres', 'SELECT count(DISTINCT outbox_id) FROM answers'), 'as many messages as ids');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM answers WHERE NOT created'), '>', 100, 'there were duplicates');
consistent($node, 'consistent after keys');

# ---------------------------------------------------------------- many workers, one queue

$node->safe_psql('postgres', q{
	SELECT count(*)
	FROM unnest(ARRAY['work', 'untouched']) q, generate_series(1, 2500) g,
		LATERAL outbox.enqueue('e', '1', q, priority => g % 3, idempotency_key => 'k' || g, event_id => md5('claim ' || g)::uuid)});
foreach my $level (@levels)
{
	local $ENV{PGOPTIONS} = '-c default_transaction_isolation=' . $level =~ s/ /\\ /r
		. ' -c enable_hashjoin=off -c enable_mergejoin=off -c enable_material=off -c enable_indexscan=off';

	bench("claims, $level", 8, 25, {}, claim => [ q{
\set n random(1, 7)
\set end random(1, 4)
BEGIN;
INSERT INTO claimed SELECT :client_id, :n, outbox_id, count(*) OVER ()
FROM outbox.claim('w' || :client_id, :n, '1 hour', ARRAY['work']);
} . $end, 1 ]);
}
none('no row was handed out twice', 'SELECT outbox_id FROM claimed GROUP BY 1 HAVING count(*) > 1');
none('nor more than asked', 'SELECT * FROM claimed WHERE batch > wanted');
none('nor a row of another queue', q{SELECT FROM outbox.pending WHERE queue <> 'work' AND claimed_by ~ '^w\d'});
none('what is leased is what was handed out', q{
	SELECT coalesce(p.outbox_id, c.outbox_id) FROM claimed c
	FULL JOIN (SELECT * FROM outbox.pending WHERE claimed_by ~ '^w\d') p ON p.outbox_id = c.outbox_id AND p.claimed_by = 'w' || c.worker
	WHERE p.outbox_id IS NULL OR c.outbox_id IS NULL});
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM claimed'), '>', 500, 'much was claimed');
consistent($node, 'consistent after claims');

# ---------------------------------------------------------------- numbers

foreach my $level (@levels)
{
	local $ENV{PGOPTIONS} = '-c default_transaction_isolation=' . $level =~ s/ /\\ /r;

	bench("numbers, $level", 6, 50, { r => ++$round },
		batch => [ q{
\set order random(1, 1000)
\set end random(1, 4)
BEGIN;
SELECT count(*) FROM outbox.enqueue_batch('numbered', (
	SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', 1, 'partition_key', 'p' || k % 6,
		'idempotency_key', CASE k % 3 WHEN 0 THEN :r || ' ' || k || ' ' || :order % 20 END) ORDER BY md5(:order || ' ' || k))
	FROM generate_series(1, 9) k));
} . $end, 3 ],
		single => [ q{
\set k random(0, 5)
\set end random(1, 4)
BEGIN;
SELECT sequence_id FROM outbox.enqueue('e', '1', 'numbered', partition_key => 'p' || :k);
} . $end, 2 ],
		savepoint => [ q{
\set k random(0, 5)
\set end random(1, 4)
BEGIN;
SAVEPOINT s;
SELECT sequence_id FROM outbox.enqueue('e', '1', 'numbered', partition_key => 'p' || :k);
ROLLBACK TO s;
SELECT sequence_id FROM outbox.enqueue('e', '1', 'numbered', partition_key => 'p' || :k);
} . $end, 1 ]);
}
none('numbers come in commit order', q{
	SELECT FROM (
		SELECT pg_xact_commit_timestamp(xmin) AS committed,
			lag(pg_xact_commit_timestamp(xmin)) OVER (PARTITION BY partition_key ORDER BY sequence_id) AS before
		FROM outbox.messages WHERE queue = 'numbered') m
	WHERE before > committed});
consistent($node, 'consistent after numbers');

# ---------------------------------------------------------------- everything against everything

my $begin = q{
\set level random(1, 3)
\if :level = 1
BEGIN;
\elif :level = 2
BEGIN ISOLATION LEVEL REPEATABLE READ;
\else
BEGIN ISOLATION LEVEL SERIALIZABLE;
\endif
};
# Claims in one transaction, reports in another, in any order. Rolled-back claims are
# reported too: their tokens were never real.
my $states = q{(SELECT coalesce(array_agg((ARRAY['DISPATCHED', 'RETRYABLE', 'RETRYABLE', 'FAILED'])[1 + (:outcome + i) % 4]), '{}') AS states,
		coalesce(array_agg(CASE WHEN (:outcome + i) % 4 IN (1, 2) THEN interval '0' END), '{}') AS delays FROM generate_subscripts(':ids'::uuid[], 1) i) s};
my $take = q{
\set n random(1, 9)
\set end random(1, 4)
\set order random(1, 1000000)
} . $begin . q{
WITH c AS MATERIALIZED (SELECT * FROM outbox.claim('w' || :client_id, :n, '1 hour', ARRAY['mix'])),
	g AS (INSERT INTO granted SELECT lease_token FROM c)
SELECT coalesce(array_agg(outbox_id ORDER BY md5(:order || outbox_id::text)), '{}') AS ids,
	coalesce(array_agg(lease_token ORDER BY md5(:order || outbox_id::text)), '{}') AS tokens
FROM c \gset
} . $end;
my $report = q{
\set end random(1, 4)
\set outcome random(0, 1000)
} . $begin . q{
INSERT INTO reported
SELECT (':tokens'::uuid[])[u.n], c.recorded, c.error
FROM } . $states . q{,
	ROWS FROM (outbox.complete_batch('w' || :client_id, ':ids', ':tokens', s.states, retry_delays => s.delays)) WITH ORDINALITY
		AS c(outbox_id, attempt_no, recorded, next_attempt_at, error, n),
	LATERAL (SELECT c.n) u;
} . $end;
my %mix = (
	produce => [ q{
\set order random(1, 1000000)
\set end random(1, 4)
} . $begin . q{
SELECT count(*) FROM outbox.enqueue_batch('mix', (
	SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', 1, 'priority', k % 3,
		'idempotency_key', CASE WHEN k < 3 THEN 'mix ' || (:order * k) % 500 END) ORDER BY md5(:order || ' ' || k))
	FROM generate_series(1, 6) k));
} . $end, 3 ],
	work => [ $take . $report, 3 ],
	# In between, reports and the next claim in one statement.
	fused => [ $take . q{
\set end random(1, 4)
\set outcome random(0, 1000)
} . $begin . q{
WITH f AS MATERIALIZED (
	SELECT c.* FROM } . $states . q{,
		ROWS FROM (outbox.complete_and_claim('w' || :client_id, ':ids', ':tokens', s.states, retry_delays => s.delays,
			batch_size => :n, lease => '1 hour', queues => ARRAY['mix'])) WITH ORDINALITY AS c),
	r AS (INSERT INTO reported SELECT (':tokens'::uuid[])[ordinality], recorded, error FROM f WHERE kind = 'completed'),
	g AS (INSERT INTO granted SELECT lease_token FROM f WHERE kind = 'claimed')
SELECT coalesce(array_agg(outbox_id), '{}') AS ids, coalesce(array_agg(lease_token), '{}') AS tokens FROM f WHERE kind = 'claimed' \gset
} . $end . $report, 2 ],
	# Renews, gives some back, and forgets the rest.
	leave => [ q{
\set end random(1, 4)
} . $begin . q{
WITH c AS MATERIALIZED (SELECT * FROM outbox.claim('w' || :client_id, 4, '1 hour', ARRAY['mix'])),
	g AS (INSERT INTO granted SELECT lease_token FROM c)
SELECT coalesce(array_agg(outbox_id), '{}') AS ids, coalesce(array_agg(lease_token), '{}') AS tokens FROM c \gset
} . $end . $begin . q{
SELECT count(error) FROM outbox.renew('w' || :client_id, ':ids', ':tokens', '2 hours');
INSERT INTO released
SELECT (':tokens'::uuid[])[r.n]
FROM outbox.release('w' || :client_id, (':ids'::uuid[])[1:2], (':tokens'::uuid[])[1:2]) WITH ORDINALITY AS r(outbox_id, next_attempt_at, error, n)
WHERE r.error IS NULL;
} . $end, 1 ],
	# Lets leases run out: those given last, which somebody is about to report on, or any.
	lapse => [ q{
\set newest random(0, 1)
UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 second'
WHERE outbox_id IN (
	SELECT outbox_id FROM outbox.pending WHERE queue = 'mix' AND lease_expires_at > clock_timestamp()
	ORDER BY CASE :newest WHEN 1 THEN claimed_at END DESC, md5(lease_token::text) LIMIT 2 FOR UPDATE SKIP LOCKED);
}, 4 ],
	repair => [ q{
\set end random(1, 4)
} . $begin . q{
SELECT count(*) FROM outbox.repair_expired_leases(5, 'r' || :client_id, ARRAY['mix']);
} . $end, 2 ],
	cancel => [ q{
SELECT tried(format('SELECT outbox.cancel(%L, ''no'')', (SELECT outbox_id FROM outbox.pending WHERE queue = 'mix' AND claimed_by IS NULL ORDER BY md5(outbox_id::text) LIMIT 1)));
}, 1 ]);

$node->safe_psql('postgres', q{
	CREATE FUNCTION tried(command text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE command;
		RETURN '';
	EXCEPTION WHEN SQLSTATE '55006' OR SQLSTATE 'P7005' OR SQLSTATE '22004' THEN
		RETURN SQLSTATE;
	END
	$$});
{
	# Into files: that it runs is then all that pumpable() tells, and nobody pumps one that has ended.
	my ($out, $err) = map { $node->basedir . "/mix.$_" } qw(out err);
	my $load = IPC::Run::start([ bench_command(8, 400, {}, %mix) ], '<', '/dev/null', '>', $out, '2>', $err);
	my $rounds = 0;
	my $leaf = $node->safe_psql('postgres', q{SELECT replace(tableoid::regclass::text, 'messages', 'attempts') FROM outbox.messages GROUP BY tableoid ORDER BY count(*) DESC LIMIT 1});

	# Meanwhile everything underneath is rebuilt, and partitions appear: each round asks
	# for longer ones, further ahead.
	while ($load->pumpable)
	{
		$rounds++ if $rounds < 8;
		foreach my $command ('REINDEX TABLE CONCURRENTLY outbox.pending', 'VACUUM FULL outbox.pending', 'VACUUM outbox.pending',
			"SET outbox.partition_interval = '" . 14 * 2**$rounds . " days'; SELECT * FROM outbox.maintain()",
			"REINDEX TABLE CONCURRENTLY $leaf", 'REINDEX INDEX outbox.idempotency_keys_pkey', 'ANALYZE outbox.messages',
			'CREATE INDEX IF NOT EXISTS pending_mine ON outbox.pending (created_at)', 'DROP INDEX outbox.pending_mine')
		{
			last unless $load->pumpable;
			$node->safe_psql('postgres', $command);
		}
	}
	my $succeeded = $load->finish;
	judge_bench('mix', $succeeded ? 0 : 1, slurp_file($out), slurp_file($err));
	note("$rounds rounds of rebuilding");
}
is($node->safe_psql('postgres', q{SELECT count(*) > 0 FROM outbox.attempts_default}), $dated ? 'f' : 't', 'history lies where it should');
my $leaves = q{SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox.messages'::regclass};
note('partitions: ' . $node->safe_psql('postgres', $leaves));
# Where autovacuum is at a table, a later pass makes what the first one leaves.
$node->poll_query_until('postgres', q{
	SET outbox.partition_interval = '3653 days';
	SELECT count(*) = 0 FROM outbox.maintain() WHERE action = 'partition left for later'}, "SET\nt");
cmp_ok($node->safe_psql('postgres', $leaves), '>', $dated ? 4 : 2, 'partitions were made, or at the latest now');
note("reports: " . $node->safe_psql('postgres', q{SELECT string_agg(r, ', ') FROM (SELECT coalesce(error, 'recorded') || ' ' || count(*) FROM reported GROUP BY error) x(r)}));
note("ledger: " . $node->safe_psql('postgres', q{SELECT string_agg(r, ', ') FROM (SELECT state || ' ' || coalesce(error_code, '') || ' ' || count(*) FROM outbox.attempts GROUP BY state, error_code) x(r)}));
is($node->safe_psql('postgres', q{SELECT count(*) FROM reported WHERE error IS NOT NULL AND error <> 'P7002'}), '0', 'a report is recorded, or its lease was lost');
foreach my $what ([ 'recorded', 'error IS NULL' ], [ 'lost', "error = 'P7002'" ])
{
	cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM reported WHERE $what->[1]"), '>', 20, "reports that were $what->[0]");
}
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.attempts WHERE state = 'ZOMBIE_REQUEUE'}), '>', 20, 'leases were lost');
consistent($node, 'consistent after the mix');

# What is left is delivered.
$node->safe_psql('postgres', q{UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE queue = 'mix' AND claimed_by IS NOT NULL});
$node->safe_psql('postgres', q{
	SELECT count(*) FROM outbox.repair_expired_leases(1000000, queues => ARRAY['mix']);
	WITH c AS MATERIALIZED (SELECT * FROM outbox.claim('last', 1000000, queues => ARRAY['mix'])), g AS (INSERT INTO granted SELECT lease_token FROM c)
	SELECT outbox.complete(outbox_id, lease_token, 'last', 'DISPATCHED') FROM c});
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.pending WHERE queue = 'mix'}), '0', 'everything was delivered');
none('every lease that was handed out ended as one ledger row, or was given back', q{
	SELECT token, count(a.lease_token), count(r.token) FROM granted
		LEFT JOIN outbox.attempts a ON a.lease_token = token LEFT JOIN released r USING (token)
	GROUP BY 1 HAVING count(*) <> 1 OR count(a.lease_token) + count(r.token) <> 1});
none('the ledger names no other leases', q{
	SELECT a.lease_token FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id)
	WHERE m.queue = 'mix' AND a.lease_token IS NOT NULL AND NOT EXISTS (SELECT FROM granted WHERE token = a.lease_token)});
none('a report that was accepted is in the ledger as it was answered', q{
	SELECT r.token FROM reported r LEFT JOIN outbox.attempts a ON a.lease_token = r.token
	WHERE r.error IS NULL AND a.state IS DISTINCT FROM r.recorded});
consistent($node, 'consistent in the end');

# ---------------------------------------------------------------- in the end

is($node->safe_psql('postgres', q{SELECT pg_stat_force_next_flush(); SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()}), "\n0", 'no deadlock');
is($node->safe_psql('postgres', q{
		SELECT count(*) > 10, count(bt_index_check(i.indexrelid, true)) > 10
		FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r'}),
	't|t', 'every index holds every row');
none('every heap is sound', q{
	SELECT c.oid::regclass, v.* FROM pg_class c, LATERAL verify_heapam(c.oid) v WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r'});
$node->stop('fast');
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC|TRAP|XX000/, 'no crash');
done_testing();
