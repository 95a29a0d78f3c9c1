# Scan floors, with many sessions and chance.
#
# Proves: whatever commits, aborts, late commits, savepoints, prepared transactions, claims,
# completions, retries, releases, lost leases, repairs, UPDATE and COPY by hand do at once,
# nothing is left below a floor: whenever all sessions stand between transactions, each row
# that is due is claimed by the next claim, and by the one after it if that is undone; each
# expired lease is found by the next repair. In the end a drain returns all that is pending,
# and each message has one terminal attempt. This under a reader's old snapshot, under that of
# a producer that has enqueued and not committed, and while the clock steps forwards and
# backwards by minutes, also for the background worker, which neither ends nor spins.
#
# The sweep, which would hide faults, comes once an hour. Each round is of a few kinds of
# transactions and times, drawn by lot, so that what lowers floors far does not always hide
# what leaves them too high. Needs a library made with STOP_POINTS=1: every process stays a
# while in some of the gaps of raising and lowering.
#
# OUTBOX_TEST_SEED repeats the choices, not the schedule; OUTBOX_STRESS multiplies the rounds.
use strict;
use warnings;

use List::Util qw(shuffle);
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $rounds = 12 * ($ENV{OUTBOX_STRESS} // 1);
my $clients = 6;
my $steps = 12;		# of each client, in a round
my $seed = seed();
my $dir = PostgreSQL::Test::Utils::tempdir();
my $node = new_node('main', preload => 1, conf => "autovacuum = off\nfsync = off");
my ($one, $two, $finisher);

chmod 0777, $dir;
make_stop_points($node);
$node->safe_psql('postgres', q{
	-- The trigger as it is, or without DELETE, so that rows may be copied out and in again.
	CREATE FUNCTION guard_against(events text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE format('CREATE OR REPLACE TRIGGER pending_changed AFTER %s ON outbox.pending FOR EACH ROW EXECUTE FUNCTION outbox.pending_changed()', events);
		ALTER TABLE outbox.pending ENABLE ALWAYS TRIGGER pending_changed;
	END $$;
	SELECT guard_against('INSERT OR UPDATE');
	SELECT outbox.create_queue('a', repair_delay => '0', max_attempts => NULL);
	SELECT outbox.create_queue('b', repair_delay => '2 ms', max_attempts => NULL, priority_aging => '20 ms');
	-- What a worker (or more) holds, as it would remember it.
	CREATE TABLE held (worker text, outbox_id uuid, token uuid);

	-- Choices are numbers, for pgbench draws them.
	CREATE FUNCTION put_one(q int, p int, due int) RETURNS uuid LANGUAGE plpgsql AS $$
		DECLARE
			id uuid := (SELECT outbox_id FROM outbox.enqueue('e', '1', (ARRAY['a', 'b'])[q], priority => (ARRAY[0, 7, 15])[p],
				deliver_at => CASE due WHEN 2 THEN clock_timestamp() + interval '2 ms' END));
		BEGIN
			IF due = 1 THEN		-- long ago
				UPDATE outbox.pending SET next_attempt_at = '2001-01-01'::timestamptz + random() * interval '1 year' WHERE outbox_id = id;
			END IF;
			RETURN id;
		END $$;
	CREATE FUNCTION put(q int, p int, due int, n int) RETURNS void LANGUAGE sql AS 'SELECT put_one(q, p, due) FROM generate_series(1, n)';
	CREATE FUNCTION take(w int, q int, n int, lease int) RETURNS void LANGUAGE sql AS $$
		INSERT INTO held SELECT w::text, outbox_id, lease_token FROM outbox.claim(w::text, n,
			(ARRAY['2 ms', '10 ms', '1 min'])[lease]::interval, (ARRAY['{a}', '{b}', '{a,b}'])[q]::text[]) $$;
	-- A transaction's own message is there for its own claim.
	CREATE FUNCTION put_and_take(w int, q int, p int) RETURNS void LANGUAGE plpgsql AS $$
		DECLARE
			mine uuid := put_one(q, p, 1);
		BEGIN
			PERFORM take(w, q, 1000000, 3);
			IF NOT EXISTS (SELECT FROM held WHERE outbox_id = mine) THEN
				RAISE 'a transaction does not find its own message';
			END IF;
		END $$;
	CREATE FUNCTION let_go(w text, n int) RETURNS TABLE (ids uuid[], tokens uuid[]) LANGUAGE sql AS $$
		WITH gone AS (DELETE FROM held WHERE ctid = ANY (ARRAY(SELECT ctid FROM held WHERE worker = w LIMIT n)) RETURNING *)
		SELECT coalesce(array_agg(outbox_id ORDER BY outbox_id), '{}'), coalesce(array_agg(token ORDER BY outbox_id), '{}') FROM gone $$;
	CREATE FUNCTION finish(w int, n int, state int, delay int) RETURNS void LANGUAGE sql AS $$
		SELECT outbox.complete_batch(w::text, ids, tokens,
			array_fill((ARRAY['DISPATCHED', 'FAILED', 'RETRYABLE'])[state], ARRAY[cardinality(ids)])::outbox.attempt_state[],
			retry_delays => array_fill(CASE state WHEN 3 THEN make_interval(secs => delay * 0.001) END, ARRAY[cardinality(ids)]))
		FROM let_go(w::text, n) $$;
	CREATE FUNCTION give_back(w text, n int, delay int) RETURNS void LANGUAGE sql AS $$
		SELECT outbox.release(w, ids, tokens, make_interval(secs => delay * 0.001)) FROM let_go(w, n) $$;
	-- Until so many transactions have begun, or for a moment. (pg_sleep goes by the clock, which steps.)
	CREATE FUNCTION stay(n int) RETURNS void LANGUAGE plpgsql AS $$
		DECLARE
			first bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
		BEGIN
			FOR i IN 1 .. 2000 LOOP
				EXIT WHEN pg_snapshot_xmax(pg_current_snapshot())::text::bigint >= first + n;
			END LOOP;
		END $$;
	CREATE FUNCTION some_row(leased bool) RETURNS uuid LANGUAGE sql AS $$
		SELECT outbox_id FROM outbox.pending WHERE (claimed_by IS NOT NULL) = leased ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED $$;

	-- What is due, and the next claim does not return. What the worker has repaired may be seen a
	-- moment before its commit has lowered the floors; then it is not idle yet.
	CREATE FUNCTION unclaimed() RETURNS SETOF outbox.pending LANGUAGE plpgsql AS $$
		DECLARE
			due uuid[] := ARRAY(SELECT outbox_id FROM outbox.pending WHERE claimed_by IS NULL AND next_attempt_at <= clock_timestamp());
		BEGIN
			WHILE EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'outbox worker' AND state <> 'idle') LOOP
				PERFORM pg_stat_clear_snapshot();
			END LOOP;
			INSERT INTO held SELECT 'check', outbox_id, lease_token FROM outbox.claim('check', 1000000, '1 min', '{a,b}');
			RETURN QUERY SELECT * FROM outbox.pending p WHERE outbox_id = ANY (due) AND claimed_by IS DISTINCT FROM 'check';
		END $$;
	-- Ends most of what the check holds, gives the rest back.
	CREATE FUNCTION settle() RETURNS void LANGUAGE sql AS $$
		SELECT outbox.complete_batch('check', ids, tokens, array_fill('DISPATCHED'::outbox.attempt_state, ARRAY[cardinality(ids)]))
		FROM (SELECT count(*) * 3 / 4 AS n FROM held WHERE worker = 'check') h, let_go('check', n::int);
		SELECT outbox.complete_batch('check', ids, tokens, array_fill('RETRYABLE'::outbox.attempt_state, ARRAY[cardinality(ids)]),
			retry_delays => array_fill(interval '0', ARRAY[cardinality(ids)])) FROM let_go('check', 5);
		SELECT give_back('check', 1000000, 0) $$;
});

# ---------------------------------------------------------------- what a client does

my $put = 'SELECT put(:q, :p, :due, :n);';
my $take = 'SELECT take(:client_id, :c, :few, :lease);';
my $finish = 'SELECT finish(:client_id, :few, :state, :delay);';
my $either = sub { my ($yes, $no) = @_; return "\n\\if :half = 1\n$yes\n\\else\n$no\n\\endif\n" };
my $chosen = q{
\set q random(:first, :last)
\set c random(1, 3)
\set p random(1, :priorities)
\set due random(:earliest, 4)
\set n random(1, 3)
\set few random(1, 8)
\set many random(3, 40)
\set lease random(1, :longest)
\set state random(1, 3)
\set delay random(0, 3)
\set half random(1, 2)
\set id random(1, 2000000000)
};
my $redo = sub { my ($body) = @_; return "BEGIN; SAVEPOINT s;\n$body\nROLLBACK TO s;" . $either->("$put\nCOMMIT;", 'COMMIT;') };
my $prepare = sub { my ($body) = @_; return "SELECT count(*) < 12 AS room FROM pg_prepared_xacts \\gset\n\\if :room\nBEGIN;\n$body\nPREPARE TRANSACTION 'p:id';\n\\endif\n" };
my $row = q{SELECT coalesce(some_row(:leased)::text, '') AS row \gset};

my %producers = (
	commit => $put,
	batch => q{SELECT outbox.enqueue_batch((ARRAY['a', 'b'])[:q], '[{"event_type": "e", "payload": 1}, {"event_type": "e", "payload": 1, "priority": 7}]');},
	abort => "BEGIN;\n$put\nROLLBACK;",
	late => "BEGIN;\n$put\nSELECT stay(:many);\nCOMMIT;",
	savepoints => "BEGIN;" . $either->('', $put) . "SAVEPOINT s;\n$put\nSAVEPOINT t;\n$put" . $either->('RELEASE t;', 'ROLLBACK TO t;') . $either->('COMMIT;', "RELEASE s;\nSELECT stay(:few);\nCOMMIT;"),
	undone_savepoint => $redo->($put),
	prepare => $prepare->($put),
	own => "BEGIN;\nSELECT put_and_take(:client_id, :q, :p);\n" . $either->('COMMIT;', "SELECT put_and_take(:client_id, :q, :p);\nROLLBACK;"),
);
my %workers = (
	take => $take,
	take_late => "BEGIN;\nSELECT take(:client_id, :c, :few, 1);\nSELECT stay(:many);\nCOMMIT;",
	take_undone => "BEGIN;\n$take\n" . $either->($take, $finish) . 'ROLLBACK;',
	take_redone => $redo->("$take\n$take"),
	take_prepared => $prepare->("$take\n$put"),
	finish => $finish,
	finish_undone => "BEGIN;\n$finish\n$take\nSELECT stay(:few);\nROLLBACK;",
	finish_prepared => $prepare->($finish),
	retry => 'SELECT finish(:client_id, :few, 3, :delay * (:half - 1));',
	give_back => 'SELECT give_back(:client_id::text, :few, :delay * (:half - 1));',
	repair => "BEGIN;\nSELECT outbox.repair_expired_leases(:few);" . $either->('COMMIT;', 'ROLLBACK;'),
);
my %others = (
	update => q{UPDATE outbox.pending SET next_attempt_at = CASE :due WHEN 1 THEN '2002-02-02' ELSE clock_timestamp() END WHERE outbox_id = some_row(false);},
	expire => q{UPDATE outbox.pending SET lease_expires_at = CASE :due WHEN 1 THEN '2002-02-02' ELSE clock_timestamp() END WHERE outbox_id = some_row(true);},
	move => q{UPDATE outbox.pending SET queue = (ARRAY['a', 'b'])[:q], priority = (ARRAY[0, 7, 15])[:p] WHERE outbox_id = some_row(false);},
	copy => "BEGIN;\n\\set leased false\n$row\n" . qq{COPY (SELECT * FROM outbox.pending WHERE outbox_id::text = ':row') TO '$dir/c:client_id';
		DELETE FROM outbox.pending WHERE outbox_id::text = ':row';
		COPY outbox.pending FROM '$dir/c:client_id';} . $either->('COMMIT;', 'ROLLBACK;'),
);
my %scripts = (%producers, %workers, %others);

foreach my $name (keys %scripts)
{
	# some_row() is volatile: once, not for each row.
	my $text = $scripts{$name} =~ s/outbox_id = (some_row\(\w+\))/outbox_id = (SELECT $1)/r;

	append_to_file("$dir/$name.sql", "$chosen\n$text\n");
}

# ---------------------------------------------------------------- rounds

sub one_of
{
	return $_[int(rand(@_))];
}

sub some_of
{
	my ($most, @all) = @_;

	return (shuffle(@all))[0 .. int(rand($most))];
}

# One that is just being prepared is seen, and busy for a moment more. Returns how many were there.
sub end_prepared
{
	my @gids = split /\n/, $finisher->query_safe('SELECT gid FROM pg_prepared_xacts');

	foreach my $gid (@gids)
	{
		$finisher->query(one_of('COMMIT', 'COMMIT', 'ROLLBACK') . " PREPARED '$gid'");
		die $finisher->{stderr} if $finisher->{stderr} =~ /ERROR/ && $finisher->{stderr} !~ /is busy/;
		$finisher->{stderr} = '';
	}
	return scalar @gids;
}

sub load
{
	my ($moves_clock) = @_;
	# Who claims and then completes may meet another one at it where leases that ran out have not run
	# out any more: a deadlock, that the server looks for by the same clock.
	my @names = (some_of(2, sort keys %producers), some_of(3, grep { !$moves_clock || $_ ne 'take_undone' } sort keys %workers),
		rand() < 0.3 ? some_of(2, sort keys %others) : (), rand() < 0.3 ? qw(repair finish_undone) : ());
	my ($first, $last) = @{ one_of([ 1, 1 ], [ 1, 2 ]) };
	my %range = (first => $first, last => $last, priorities => one_of(1, 3), earliest => one_of(1, 2, 3), longest => one_of(1, 3));
	my @command = ('pgbench', '-n', '-c', $clients, '-t', $steps, '--random-seed', ++$seed, map { ('-D', "$_=$range{$_}") } sort keys %range);
	# Into files: that it runs is then all that pumpable() tells, and nobody pumps one that has ended.
	my $bench = IPC::Run::start([ @command, (map { ('-f', "$dir/$_.sql") } @names), $node->connstr('postgres') ],
		'<', '/dev/null', '>', "$dir/bench.out", '2>', "$dir/bench.err");

	while ($bench->pumpable)
	{
		end_prepared();
		set_clock($node, int(rand(1200)) - 600) if $moves_clock && rand() < 0.2;
		select(undef, undef, undef, 0.005);
	}
	my $succeeded = $bench->finish && slurp_file("$dir/bench.out") =~ /^number of failed transactions: 0 /m;
	1 while end_prepared();
	return join(' ', @names, map { "$_=$range{$_}" } sort keys %range)
		. ($succeeded ? '' : "\n" . slurp_file("$dir/bench.err"));
}

# Until there is no such row: one that the worker is at, or that time makes ready.
sub settled
{
	my ($condition) = @_;

	for (1 .. 3000)
	{
		return 1 if $two->query_safe("SELECT count(*) FROM outbox.pending WHERE $condition") eq '0';
		select(undef, undef, undef, 0.01);
	}
	return 0;
}

# The worker repairs as well.
sub expired_leases_found
{
	my $time = $two->query_safe('SELECT clock_timestamp()');

	$two->query_safe('SELECT outbox.repair_expired_leases(1000000)');
	return settled("lease_expires_at <= '$time'");
}

# All sessions stand between transactions: '' or what is not as it must be.
sub left_behind
{
	my $leases_first = rand() < 0.5;
	my @left;

	push @left, 'an expired lease' if $leases_first && !expired_leases_found();
	$one->query_safe('BEGIN');
	push @left, $one->query_safe('SELECT * FROM unclaimed()');
	$one->query_safe('ROLLBACK');
	push @left, $two->query_safe('SELECT * FROM unclaimed()');
	push @left, 'an expired lease' if !$leases_first && !expired_leases_found();
	$two->query_safe('SELECT settle()');
	return join("\n", grep { $_ ne '' } @left);
}

# Everything pending is returned by claims, and ends.
sub drain
{
	my ($name) = @_;
	my $all;

	$one->query_safe(q{SELECT give_back(worker, 1000000, 0) FROM (SELECT DISTINCT worker FROM held) w});
	settled('greatest(next_attempt_at, lease_expires_at) > clock_timestamp()') or die;
	ok(expired_leases_found(), "$name: all expired leases are repaired");
	settled('next_attempt_at > clock_timestamp()') or die;
	$all = $one->query_safe('SELECT count(*) > 0, array_agg(outbox_id ORDER BY outbox_id) FROM outbox.pending');
	is($two->query_safe(q{WITH c AS (INSERT INTO held SELECT 'check', outbox_id, lease_token FROM outbox.claim('check', 1000000, '10 min', '{a,b}') RETURNING outbox_id)
		SELECT count(*) > 0, array_agg(outbox_id ORDER BY outbox_id) FROM c}), $all, "$name: a drain returns what is pending");
	like($all, qr/^t/, '... and something was');
	$two->query_safe(q{SELECT outbox.complete_batch('check', ids, tokens, array_fill('DISPATCHED'::outbox.attempt_state, ARRAY[cardinality(ids)])) FROM let_go('check', 1000000)});
	is($one->query_safe('SELECT count(*) FROM outbox.pending'), '0', '... nothing is left');
	is($one->query_safe(q{SELECT count(*) FROM outbox.attempts WHERE state IN ('DISPATCHED', 'FAILED')}), $one->query_safe('SELECT count(*) FROM outbox.messages'),
		'... and each message has ended');
	$node->safe_psql('postgres', q{SELECT guard_against('INSERT OR UPDATE OR DELETE')});
	consistent($node, "$name: nothing lost, nothing twice");
	$node->safe_psql('postgres', q{SELECT guard_against('INSERT OR UPDATE')});
	return;
}

# before: what a session does that then holds its snapshot; after: how it ends.
sub phase
{
	my ($name, $before, $after, $moves_clock) = @_;
	my $holder = session($node);

	($one, $two, $finisher) = map { session($node) } 1 .. 3;
	wait_for_worker($node);
	$one->query_safe('SELECT shake(1000)');
	$holder->query_safe($before);
	foreach my $round (1 .. $rounds)
	{
		my $what = load($moves_clock);

		is(left_behind(), '', "$name, round $round: all that is due is claimed ($what)") or last;
		unlike($what, qr/\n/, '... without an error') or last;
	}
	$holder->query_safe($after);
	is($two->query_safe('SELECT * FROM unclaimed()'), '', "$name: also what the holder committed");
	$one->query_safe('SELECT shake(0)');
	set_clock($node, 3600) if $moves_clock;
	drain($name);
	$_->quit foreach $holder, $one, $two, $finisher;
	return;
}

phase('an old reader', 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox.pending', 'COMMIT');
phase('an idle producer', 'BEGIN; SELECT put(q, p, 1, 1) FROM generate_series(1, 2) q, generate_series(1, 3) p', 'COMMIT');

# ---------------------------------------------------------------- the clock steps

SKIP:
{
	skip 'no libfaketime', 2 * $rounds unless faketime();

	my ($before, $pid);

	$node->stop('fast');
	start_with_false_clock($node);
	$pid = wait_for_worker($node);
	$before = worker_says($node, 'wakeups');
	phase('the clock steps', 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox.pending', 'COMMIT', 1);
	serves($node, 'postgres', 'after all steps of the clock');
	is(wait_for_worker($node), $pid, '... the one of before');
	# What one transaction told of, and its rows' times.
	cmp_ok(worker_says($node, 'wakeups') - $before, '<', 10 * $clients * $steps * $rounds, '... and did not spin');
}

$node->stop('fast');
done_testing();
