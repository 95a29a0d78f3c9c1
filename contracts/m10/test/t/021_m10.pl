# The m10 interface under load, from clients that know nothing else of the outbox.
#
# A producer and three processors are programs of their own (psql, with a script), with
# roles that may do just that; they and their sessions are killed at any moment, while
# claims run out and process_after comes, both by UPDATE. The background worker is off:
# claims find by themselves what was lost.
#
# Proves: what was published in a committed transaction is processed, exactly once, and
# nothing else is; every claim ends as exactly one ledger row; retry_count is the number
# of reported failures before the claim, lost claims not counted; process_after lies
# 1 s, 2 s ... 1024 s after the failure to the microsecond between two clocks, and no
# event is claimed before it; a processor that lost a claim gets P7002, and rolls back
# what he did in that transaction. And that the view finds an event, and what is
# pending, by indexes.
use strict;
use warnings;

use IPC::Run;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed();
my $node = new_node('main', preload => 1, extension => 0, conf => "outbox.worker = off\nmax_connections = 60");
my $wanted = 300;

$node->safe_psql('postgres', q{
	SET client_min_messages = warning;
	CREATE EXTENSION outbox_m10 CASCADE;
	CREATE ROLE producer LOGIN IN ROLE outbox_ingest;
	CREATE ROLE processor LOGIN IN ROLE outbox_executor, outbox_readonly;
	CREATE TABLE orders (n bigint GENERATED ALWAYS AS IDENTITY, id bigint);
	CREATE TABLE granted (batch bigint, id bigint, processor text, retry_count int, at timestamptz, process_after timestamptz, claimed_at timestamptz);
	CREATE TABLE effects (id bigint, processor text);
	CREATE TABLE failures (id bigint, processor text, retry_count int, before timestamptz, after timestamptz, process_after timestamptz);
	GRANT SELECT, INSERT, UPDATE ON orders TO producer;
	GRANT SELECT, INSERT, UPDATE ON granted, effects, failures TO processor;
});
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT state, ' ') FROM outbox.workers}), 'off', 'there is no background worker');

# ---------------------------------------------------------------- the programs

# An order and its event, in one transaction; one in five is rolled back.
my $produce = q{
BEGIN;
INSERT INTO orders DEFAULT VALUES RETURNING n, random() < 0.2 AS back \gset
UPDATE orders SET id = m10_recovery.publish_outbox('order', :'n', 'placed', to_jsonb(:n)) WHERE n = :n;
\if :back
ROLLBACK;
\else
COMMIT;
\endif
};

# Claims a few and remembers that; then, an event a transaction, does what the event is
# about and reports success, or reports a failure, or forgets about it.
my $process = q{
BEGIN;
SELECT txid_current() AS batch \gset
INSERT INTO granted
SELECT :batch, c.id, :'me', c.retry_count, clock_timestamp() FROM m10_recovery.claim_outbox_events(:'me', 1 + (random() * 3)::int) c;
UPDATE granted g SET process_after = o.process_after, claimed_at = o.claimed_at FROM m10_recovery.outbox o WHERE o.id = g.id AND g.batch = :batch;
COMMIT;
SELECT 'BEGIN',
	CASE WHEN outcome < 0.5 THEN format('INSERT INTO effects VALUES (%s, %L)', id, :'me')
		ELSE format('INSERT INTO failures VALUES (%s, %L, %s, clock_timestamp())', id, :'me', retry_count) END,
	format('SELECT m10_recovery.complete_outbox_event(%s, %L, %L, %L)', id, :'me', outcome < 0.5, 'no luck'),
	CASE WHEN outcome >= 0.5 THEN format('UPDATE failures f SET after = clock_timestamp(), process_after = o.process_after FROM m10_recovery.outbox o
		WHERE o.id = %s AND f.id = o.id AND f.retry_count = %s AND f.after IS NULL', id, retry_count) END,
	'COMMIT'
FROM (SELECT id, retry_count, random() AS outcome FROM granted WHERE batch = :batch) g
WHERE outcome < 0.9
\gexec
};

my $started = 0;
my %errors;

# Starts a program that goes through its script so many times. Each has a name of its own,
# by which the claims of one that was killed are told from those of its successor.
sub start_program
{
	my ($role, $script, $rounds) = @_;
	my $name = $role . ++$started;
	my $file = $node->basedir . "/$name.sql";
	my %program = (role => $role, name => $name, err => "$file.err");

	append_to_file($file, "SELECT setseed(" . rand() . ");\n" . $script x $rounds);
	$program{handle} = IPC::Run::start(
		[ 'psql', '-Xq', '-v', "me=$name", '-v', 'VERBOSITY=sqlstate', '-v', 'SHOW_CONTEXT=never', '-f', $file,
			'-d', $node->connstr('postgres') . " user=$role application_name=$name" ],
		# Into a file: that it runs is then all that pumpable() tells, and nobody pumps one that has ended.
		'<', '/dev/null', '>', '/dev/null', '2>', $program{err});
	return \%program;
}

# What it said is counted, by SQLSTATE; the rest is what psql says when it is cut off, maybe in
# the middle of a line.
sub end_program
{
	my ($program) = @_;

	eval { $program->{handle}->finish };
	foreach my $line (split /\n/, slurp_file($program->{err}) =~ s/[^\n]+\z//r)
	{
		if ($line =~ /(?:ERROR|FATAL):\s+([0-9A-Z]{5})$/) { $errors{$1}++ }
		elsif ($line !~ /server closed the connection|terminated abnormally|before or while processing|connection to server was lost|no connection to the server|SSL|^\s*$/) { $errors{$line}++ }
	}
	return;
}

sub replacement
{
	my ($program) = @_;

	return $program->{role} eq 'producer' ? start_program('producer', $produce, 20) : start_program('processor', $process, 40);
}

# ---------------------------------------------------------------- everything at once

my @programs = (start_program('producer', $produce, 20), map { start_program('processor', $process, 40) } 1 .. 3);
my %killed = (program => 0, session => 0);
my $rounds = 0;

while (1)
{
	my $state = $node->safe_psql('postgres', qq{
		-- Claims run out: of programs that are gone, or may have forgotten; and the newest,
		-- of those who are still at it.
		UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 second'
		WHERE outbox_id IN (SELECT outbox_id FROM outbox.pending WHERE lease_expires_at > clock_timestamp() ORDER BY claimed_at LIMIT 4 FOR UPDATE SKIP LOCKED);
		UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 second'
		WHERE outbox_id IN (SELECT outbox_id FROM outbox.pending WHERE lease_expires_at > clock_timestamp() ORDER BY claimed_at DESC LIMIT 2 FOR UPDATE SKIP LOCKED);
		-- process_after comes.
		UPDATE outbox.pending SET next_attempt_at = clock_timestamp() - interval '1 millisecond'
		WHERE outbox_id IN (
			SELECT outbox_id FROM outbox.pending WHERE next_attempt_at > clock_timestamp() AND claimed_by IS NULL
			ORDER BY md5(outbox_id::text || $rounds) LIMIT 20 FOR UPDATE SKIP LOCKED);
		SELECT count(*) FROM outbox.repair_expired_leases(1, 'repairer') WHERE $rounds % 3 = 0;
		-- In this order: a producer that is gone publishes nothing any more.
		SELECT EXISTS (SELECT FROM pg_stat_activity WHERE usename = 'producer');
		SELECT EXISTS (SELECT FROM outbox.pending), (SELECT count(*) FROM orders) >= $wanted,
			EXISTS (SELECT FROM outbox.attempts WHERE recorded_by = 'repairer')});
	my ($producing, $pending, $ordered, $repaired) = $state =~ /([tf])\n([tf])\|([tf])\|([tf])$/;
	my $enough = $ordered eq 't' && $repaired eq 't' && $killed{program} >= 5 && $killed{session} >= 5 && $errors{P7002};

	# The last order has been published, then all there is has been processed.
	last if $enough && $pending eq 'f' && $producing eq 'f' && !grep { $_->{role} eq 'producer' } @programs;
	die 'it does not come to an end' if ++$rounds > 5000;
	if (rand() < 0.7)
	{
		my $victim = $programs[ int(rand(@programs)) ];

		if (rand() < 0.5)
		{
			$victim->{handle}->kill_kill(grace => 0);
			$killed{program}++;
		}
		else
		{
			$killed{session} += $node->safe_psql('postgres',
				"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = '$victim->{name}'");
		}
	}
	my @living;

	foreach my $program (@programs)
	{
		if ($program->{handle}->pumpable)
		{
			push @living, $program;
			next;
		}
		end_program($program);
		push @living, replacement($program) unless $program->{role} eq 'producer' && $enough;
	}
	@programs = @living;
}
foreach my $program (@programs)
{
	$program->{handle}->kill_kill(grace => 0);
	end_program($program);
}
# Whatever a killed program's session was still doing.
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = 'processor'});
note("$rounds rounds, $started programs, killed: $killed{program} programs, $killed{session} sessions; errors: "
	. join(', ', map { "$_ $errors{$_}" } sort keys %errors));

# ---------------------------------------------------------------- what came of it

sub none
{
	my ($name, $sql) = @_;

	return is($node->safe_psql('postgres', $sql), '', $name);
}

# 25P02: the rest of a transaction that has failed. 57P01: its session was terminated.
is(join(' ', grep { !/^(?:P7002|25P02|57P01)$/ } sort keys %errors), '', 'no error but that of a claim that was lost');
cmp_ok($errors{P7002} // 0, '>', 0, 'claims were lost, and their reports refused');

my $events = q{(SELECT o.*, i.outbox_id FROM m10_recovery.outbox o JOIN m10_recovery.event_ids i USING (id))};

none('each order has its event, each event its order',
	q{SELECT n, o.id, e.id FROM orders o FULL JOIN m10_recovery.outbox e ON e.id = o.id AND e.payload = to_jsonb(n) AND e.aggregate_id = n::text WHERE n IS NULL OR e.id IS NULL});
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM orders'), '>=', $wanted, 'so many orders');
none('each event had its effect once', qq{
	SELECT o.id, count(f.id) FROM orders o LEFT JOIN effects f ON f.id = o.id GROUP BY 1 HAVING count(f.id) <> 1});
none('and nothing else had one', q{SELECT id FROM effects WHERE id NOT IN (SELECT id FROM orders)});
none('what had its effect is processed', q{SELECT id FROM effects JOIN m10_recovery.outbox USING (id) WHERE processed_at IS NULL OR process_after IS NOT NULL OR claimed_by IS NOT NULL});
none('each claim is one ledger row', qq{
	SELECT g.id, g.processor, count(a.outbox_id) FROM granted g LEFT JOIN $events e USING (id)
		LEFT JOIN outbox.attempts a ON a.outbox_id = e.outbox_id AND a.worker_id = g.processor AND a.claimed_at = g.claimed_at
	GROUP BY g.batch, 1, 2 HAVING count(a.outbox_id) <> 1});
none('each ledger row is of a claim', q{
	SELECT a.* FROM outbox.attempts a JOIN m10_recovery.event_ids i USING (outbox_id)
	WHERE NOT EXISTS (SELECT FROM granted g WHERE g.id = i.id AND g.processor = a.worker_id AND g.claimed_at = a.claimed_at)});
none('retry_count is the failures before', qq{
	SELECT g.* FROM granted g JOIN $events e USING (id)
		JOIN outbox.attempts a ON a.outbox_id = e.outbox_id AND a.worker_id = g.processor AND a.claimed_at = g.claimed_at
	WHERE g.retry_count <> (SELECT count(*) FROM outbox.attempts b WHERE b.outbox_id = a.outbox_id AND b.attempt_no < a.attempt_no AND b.state = 'RETRYABLE')});
none('no event was claimed before its time', q{SELECT * FROM granted WHERE process_after > at OR process_after IS NULL});
none('failures were put off for as long as they should', q{
	SELECT * FROM failures WHERE (process_after BETWEEN before + interval '1 s' * 2 ^ least(retry_count, 10) AND after + interval '1 s' * 2 ^ least(retry_count, 10)) IS NOT TRUE});
none('each failure is a ledger row', qq{
	SELECT id, f.n, count(a.outbox_id) FROM (SELECT id, count(*) AS n FROM failures GROUP BY 1) f JOIN $events e USING (id)
		JOIN outbox.attempts a ON a.outbox_id = e.outbox_id AND a.state = 'RETRYABLE' AND a.error_message = 'no luck'
	GROUP BY 1, 2 HAVING f.n <> count(a.outbox_id)});
note('ledger: ' . $node->safe_psql('postgres', q{SELECT string_agg(s, ', ') FROM (SELECT state || ' ' || count(*) FROM outbox.attempts GROUP BY state ORDER BY state) x(s)}));
foreach my $what ([ 'lost claims', "state = 'ZOMBIE_REQUEUE' AND recorded_by <> 'repairer'" ], [ 'lost claims found by repair', "recorded_by = 'repairer'" ],
	[ 'failures', "state = 'RETRYABLE'" ], [ 'fourth failures', "state = 'RETRYABLE' AND attempt_no >= 4" ])
{
	cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM outbox.attempts WHERE $what->[1]"), '>', 0, "there were $what->[0]");
}
consistent($node, 'consistent');

# ---------------------------------------------------------------- the view finds by index

$node->safe_psql('postgres', q{
	SELECT count(m10_recovery.publish_outbox('a', g::text, 'e', '1')) FROM generate_series(1, 5000) g;
	DO $$
	BEGIN
		FOR n IN 1 .. 100 LOOP
			PERFORM m10_recovery.complete_outbox_event(id, 'p', true) FROM m10_recovery.claim_outbox_events('p', 50);
		END LOOP;
		PERFORM m10_recovery.publish_outbox('a', n::text, 'e', '1') FROM generate_series(1, 20) n;
		PERFORM outbox.enqueue_batch('default', (SELECT jsonb_agg('{"event_type": "other", "payload": 1}'::jsonb) FROM generate_series(1, 20000)));
		PERFORM m10_recovery.claim_outbox_events('claims', 5);
	END
	$$;
	ANALYZE});
foreach my $case (
	[ 'id = 5000', 1 ], [ 'id IN (1000, 2000)', 2 ], [ 'process_after IS NOT NULL', 20 ], [ "claimed_by = 'claims'", 5 ])
{
	my ($condition, $rows) = @$case;
	my $plan = $node->safe_psql('postgres', "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM m10_recovery.outbox WHERE $condition");
	my ($found) = $plan =~ /actual rows=(\d+)/;

	ok($found == $rows && $plan !~ /Seq Scan on (?:messages|attempts|event_ids|pending)\S* .*\(actual rows=[1-9]/,
		"$condition: by index, $found rows") or diag($plan);
}

$node->stop('fast');
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC|TRAP|XX000/, 'no crash');
done_testing();
