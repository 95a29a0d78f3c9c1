# Sagas against their reference: random calls to the extension's functions and to the same ones in PL/pgSQL
# (extensions/saga/test/reference.sql), each in a database of its own.
#
# Proves: results, SQLSTATEs, messages, tables of sagas, messages and attempts agree after each call, in each isolation
# level, after rollbacks and savepoints, with stale leases, late answers, lost leases, dead letters, replays, timeouts
# and hints that anyone sends. Then the reference is broken on purpose (mutants), and the test must notice.
# OUTBOX_TEST_STEPS: how many calls (600). OUTBOX_TEST_MUTANTS: how many mutants (2).
use strict;
use warnings;

use FindBin;
use IPC::Run;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed();
my $steps = $ENV{OUTBOX_TEST_STEPS} // 600;
my $mutants = $ENV{OUTBOX_TEST_MUTANTS} // 2;
my $node = new_node('main', conf => "synchronous_commit = off\nfsync = off");
my $reference = slurp_file("$FindBin::RealBin/../reference.sql");

# What must be noticed: a part of the reference, and what stands there instead.
my @mutants = (
	[ 'first step first', 't.step_no DESC LIMIT 1', 't.step_no LIMIT 1' ],
	[ 'any round', 'AND s.rounds = round END', 'END' ],
	[ 'late refusals go on', q{IF to_status = 'failed' AND s.status IN}, q{IF to_status = 'succeeded' AND s.status IN} ],
	[ 'replies have no timeout', q{CASE WHEN d.answer = 'reply' THEN clock_timestamp() + d.timeout END}, 'NULL' ],
	[ 'errors are not counted', 'was.retry_count + (NOT succeeded)::integer', 'was.retry_count' ],
	[ 'the other steps go on', q{WHERE t.saga_id = i.id AND t.status = 'sent' ORDER}, q{WHERE false ORDER} ],
	[ 'no headers', '(SELECT r.headers FROM saga.runs r WHERE r.saga_id = i.id) ||', q{'{}'::jsonb ||} ],
	[ 'null is no change', 'o.value IS DISTINCT FROM n.value', 'o.value <> n.value' ]);

# ---------------------------------------------------------------- what both databases have

my $helpers = q{
	SET client_min_messages = warning;
	SELECT outbox.create_queue('work', max_attempts => 2, lease => '1 day', backoff_base => '1 us', backoff_jitter => 0, repair_delay => '0');
	SELECT outbox.create_queue('line', lease => '1 day', backoff_base => '1 us', backoff_jitter => 0, repair_delay => '0', ordering => 'fifo', on_dead_head => 'continue');
	-- What failed is tried again by the next d.handle(), not because time has passed.
	SELECT outbox.alter_queue('saga_internal', backoff_base => '1 h', backoff_cap => '1 h', backoff_jitter => 0);
	CREATE SCHEMA d;
	CREATE TABLE d.held (n serial, command text, outbox_id uuid, lease_token uuid);
	CREATE TABLE d.shown (line text);
	CREATE TABLE d.scope (least int);
	INSERT INTO d.scope VALUES (0);

	-- Both know a saga by its number, which its correlation_id has.
	CREATE FUNCTION d.uuid(n int) RETURNS uuid LANGUAGE sql AS $$ SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid $$;
	CREATE FUNCTION d.saga(n int) RETURNS uuid LANGUAGE sql AS $$ SELECT coalesce((SELECT id FROM saga.instances WHERE correlation_id = d.uuid(n) ORDER BY created_at LIMIT 1), d.uuid(n)) $$;
	CREATE FUNCTION d.number(id uuid) RETURNS int LANGUAGE sql AS $$ SELECT right(correlation_id::text, 12)::int FROM saga.instances i WHERE i.id = number.id $$;
	CREATE FUNCTION d.plain(value text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		id text;
	BEGIN
		FOR id IN SELECT DISTINCT m[1] FROM regexp_matches(value, '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}', 'g') m WHERE m[1] !~ '^0{8}' LOOP
			value := replace(value, id, coalesce('saga ' || d.number(id::uuid), 'an id'));
		END LOOP;
		RETURN regexp_replace(value, '\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?(\+\d+)?', 'a time', 'g');
	END
	$$;
	CREATE FUNCTION d.try(statement text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		result text;
		detail text;
		hint text;
	BEGIN
		EXECUTE statement INTO result;
		RETURN 'result ' || coalesce(d.plain(result), 'NULL');
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
		RETURN d.plain(concat_ws(' | ', sqlstate, sqlerrm, nullif(detail, ''), nullif(hint, '')));
	END
	$$;
	CREATE FUNCTION d.message(id uuid) RETURNS text LANGUAGE sql AS $$ SELECT d.plain(m.idempotency_key) FROM outbox.messages m WHERE m.outbox_id = id $$;

	-- All that a call may change, of the sagas from d.scope on.
	CREATE VIEW d.now AS
		WITH i AS MATERIALIZED (SELECT d.number(i.id) AS n, i.* FROM saga.instances i WHERE i.correlation_id >= d.uuid((SELECT least FROM d.scope)))
		SELECT format('saga %s: %s %s', n, d.plain(row(saga_type, state, status, current_step, version, last_error, retry_count, deadline IS NULL, definition_version, completed_at IS NULL)::text),
			created_at <= updated_at AND updated_at <= clock_timestamp()) AS line FROM i
		UNION ALL
		SELECT format('saga %s run: %s', n, row(r.saga_type, r.idempotency_key, r.headers)) FROM i JOIN saga.runs r ON r.saga_id = i.id
		UNION ALL
		SELECT format('saga %s step %s: %s', n, step_no, d.plain(row(step, s.status, d.message(command_id), d.message(compensation_id), rounds, result, error, s.deadline IS NULL, answered_at IS NULL, compensated_at IS NULL)::text))
		FROM i JOIN saga.steps s ON s.saga_id = i.id
		UNION ALL
		SELECT format('saga %s version %s: %s', n, a.version, d.plain(row(a.saga_type, event_type, step, old_status, new_status, old_state, new_state, user_id, trace_id, metadata)::text))
		FROM i JOIN saga.audit_log a ON a.saga_id = i.id
		UNION ALL
		SELECT format('saga %s message %s of %s: %s', n, d.plain(m.idempotency_key), m.queue,
			d.plain(row(event_type, aggregate_type, m.partition_key = i.id::text, m.priority, m.max_attempts, payload, headers, replay_of IS NULL, p.outbox_id IS NULL, p.claimed_by, p.attempt_count, p.next_attempt_at > clock_timestamp(), d.outbox_id IS NULL,
				(SELECT array_agg(row(a.attempt_no, a.state, a.worker_id, a.reference, a.error_code, a.error_message, a.recorded_by) ORDER BY a.attempt_no) FROM outbox.attempts a WHERE a.outbox_id = m.outbox_id))::text))
		FROM i JOIN outbox.messages m ON m.aggregate_id = i.id::text LEFT JOIN outbox.pending p USING (outbox_id) LEFT JOIN outbox.dead d USING (outbox_id);
	CREATE FUNCTION d.changes() RETURNS SETOF text LANGUAGE plpgsql AS $$
	BEGIN
		CREATE TEMP TABLE new ON COMMIT DROP AS SELECT line FROM d.now;
		RETURN QUERY SELECT * FROM (SELECT '  + ' || line FROM (SELECT line FROM new EXCEPT ALL SELECT line FROM d.shown) x
			UNION ALL SELECT '  - ' || line FROM (SELECT line FROM d.shown EXCEPT ALL SELECT line FROM new) x) y(line) ORDER BY line COLLATE "C";
		TRUNCATE d.shown;
		INSERT INTO d.shown SELECT line FROM new;
	END
	$$;

	-- The calls, by what both know. r chooses one of the commands that were claimed, those whose lease is good rather.
	CREATE FUNCTION d.claim(queue text, many int) RETURNS text LANGUAGE sql AS $$
		WITH c AS MATERIALIZED (SELECT * FROM outbox.claim('w', many, queues => ARRAY[queue])),
		h AS (INSERT INTO d.held (command, outbox_id, lease_token) SELECT d.message(c.outbox_id), c.outbox_id, c.lease_token FROM c ORDER BY d.message(c.outbox_id) COLLATE "C", c.outbox_id)
		SELECT string_agg(c.event_type || ' ' || d.message(c.outbox_id), ', ' ORDER BY d.message(c.outbox_id) COLLATE "C") FROM c
	$$;
	CREATE FUNCTION d.pick(r float8) RETURNS d.held LANGUAGE plpgsql AS $$
	DECLARE
		picked d.held;
	BEGIN
		-- One whose lease is good, or any of the last ones.
		SELECT h.* INTO picked FROM d.held h JOIN outbox.pending p USING (outbox_id, lease_token) ORDER BY h.n
		OFFSET floor(r * 1.25 * (SELECT count(*) FROM d.held g JOIN outbox.pending q USING (outbox_id, lease_token))) LIMIT 1;
		IF picked.n IS NULL THEN
			SELECT h.* INTO picked FROM d.held h WHERE h.n = (SELECT max(n) - floor((1 - r) * 100)::int FROM d.held);
		END IF;
		RETURN picked;
	END
	$$;
	CREATE FUNCTION d.succeed(r float8, worker text, result jsonb, state_patch jsonb, stale boolean) RETURNS text LANGUAGE sql AS $$
		SELECT h.command || coalesce(saga.succeed(h.outbox_id, CASE WHEN stale THEN gen_random_uuid() ELSE h.lease_token END, worker, result, state_patch)::text, '') FROM d.pick(r) h
	$$;
	CREATE FUNCTION d.fail(r float8, worker text, code text, message text, retryable boolean, stale boolean) RETURNS text LANGUAGE sql AS $$
		SELECT h.command || coalesce(saga.fail(h.outbox_id, CASE WHEN stale THEN gen_random_uuid() ELSE h.lease_token END, worker, code, message, retryable)::text, '') FROM d.pick(r) h
	$$;
	CREATE FUNCTION d.deliver(r float8) RETURNS text LANGUAGE sql AS $$
		SELECT h.command || (SELECT row(c.recorded, c.error)::text FROM outbox.complete_batch('w', ARRAY[h.outbox_id], ARRAY[h.lease_token], '{DISPATCHED}') c) FROM d.pick(r) h
	$$;
	CREATE FUNCTION d.start(saga_type text, n int, state jsonb, key text, headers jsonb) RETURNS text LANGUAGE sql AS $$
		SELECT d.number(saga.start(saga_type, CASE WHEN n > 0 THEN d.uuid(n) END, state, key, headers))::text
	$$;
	-- One after the other, in the same order in both.
	CREATE FUNCTION d.due(n int) RETURNS void LANGUAGE sql AS $$
		UPDATE outbox.pending p SET next_attempt_at = now() - interval '1 s' + m.place * interval '1 us'
		FROM (SELECT outbox_id, aggregate_id, row_number() OVER (ORDER BY d.plain(idempotency_key) COLLATE "C", outbox_id) AS place FROM outbox.messages
			WHERE queue = 'saga_internal') m
		WHERE m.outbox_id = p.outbox_id AND (p.attempt_count > 0 OR m.aggregate_id = d.saga(n)::text)
	$$;
	CREATE FUNCTION d.over(n int) RETURNS void LANGUAGE sql AS $$
		UPDATE saga.steps SET deadline = now() - interval '1 s' WHERE saga_id = d.saga(n) AND deadline IS NOT NULL;
		SELECT d.due(n)
	$$;
	CREATE FUNCTION d.handle() RETURNS text LANGUAGE sql AS $$
		SELECT d.due(NULL);
		SELECT string_agg(row(m.action, m.n)::text, ', ' ORDER BY m.action) FROM outbox.maintain() m(action, object, n) WHERE object = 'saga_internal'
	$$;
	CREATE FUNCTION d.told() RETURNS text LANGUAGE sql AS $$
		SELECT string_agg(d.plain(row(m.event_type, a.error_code, a.error_message)::text), ', ' ORDER BY m.outbox_id) FROM outbox.messages m JOIN outbox.attempts a USING (outbox_id)
		WHERE m.queue = 'saga_internal' AND a.state = 'FAILED' AND a.created_at > now() - interval '1 day'
	$$;
	CREATE FUNCTION d.hint(event_type text, payload jsonb, n int) RETURNS text LANGUAGE sql AS $$
		SELECT created::text FROM outbox.enqueue(event_type, CASE WHEN n >= 0 THEN payload || jsonb_build_object('saga_id', d.saga(n)) ELSE payload END, 'saga_internal')
	$$;
	CREATE FUNCTION d.forged(headers jsonb, n int) RETURNS text LANGUAGE sql AS $$
		SELECT created::text FROM outbox.enqueue('forged', '{}', 'work', headers => headers || jsonb_build_object('saga_id', d.saga(n)))
	$$;
};

# ---------------------------------------------------------------- random calls

sub one_of { return $_[ int(rand(@_)) ] }
sub literal { my ($value) = @_; return defined $value ? "'" . $value =~ s/'/''/gr . "'" : 'NULL' }
sub json_value { return one_of('{}', '{"a": 1}', '{"a": null}', '{"b": {"c": [1, 2]}}', '{"a": 1.0, "b": 2}', '{"long": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}', '{"": "empty"}') }
sub any_json { return rand() < 0.9 ? json_value() : one_of('[]', '"text"', '5', 'null', 'true', undef) }
sub uuid_of { my ($n) = @_; return sprintf("'00000000-0000-4000-8000-%012d'", $n) }
sub any_step { return one_of(qw(a b c p x y z print post nothing)) }
sub any_command { return sprintf('"step": "%s", "direction": "%s", "round": %s', any_step(), one_of(qw(forward compensate)), one_of(1, 1, 2, '"x"')) }

my %definitions = (
	chain => q{[{"name": "a", "command": "do a", "queue": "work", "compensation": "undo a"},
		{"name": "b", "command": "do b", "queue": "work", "compensation": "undo b", "timeout": "1 h"},
		{"name": "c", "command": "do c", "queue": "work", "max_attempts": 1}]},
	wide => q{[{"name": "p", "command": "do p", "queue": "line"},
		{"name": "x", "command": "do x", "queue": "line", "compensation": "undo x", "parallel_group": "g", "timeout": "2 h"},
		{"name": "y", "command": "do y", "queue": "line", "compensation": "undo y", "parallel_group": "g", "timeout": "1 h"},
		{"name": "z", "command": "do z", "queue": "work", "compensation": "undo z"}]},
	mail => q{[{"name": "print", "command": "do print", "queue": "work", "compensation": "undo print", "answer": "reply", "timeout": "1 h"},
		{"name": "post", "command": "do post", "queue": "line", "compensation": "undo post", "answer": "reply"}]});

# One call, about the sagas of these numbers.
sub random_call
{
	my ($first, $last) = @_;
	my $n = rand() < 0.97 ? $first + int(rand($last - $first + 1)) : 0;
	my $r = rand();
	my $stale = rand() < 0.05 ? 'true' : 'false';
	my $worker = rand() < 0.95 ? "'w'" : one_of("'other'", "''", 'NULL');
	my $kind = rand();

	return 'd.claim(' . one_of("'work'", "'line'") . ', ' . (1 + int(rand(3))) . ')' if $kind < 0.2;
	return "d.succeed($r, $worker, " . literal(any_json()) . ', ' . literal(rand() < 0.95 ? json_value() : any_json()) . ", $stale)" if $kind < 0.42;
	return "d.fail($r, $worker, " . one_of("'E1'", "''", 'NULL') . ', ' . one_of("'it broke'", 'NULL') . ', ' . (rand() < 0.5 ? 'true' : 'false') . ", $stale)" if $kind < 0.52;
	return "d.start(" . one_of("'chain'", "'wide'", "'mail'", "'unknown'") . ", $n, " . literal(json_value()) . ', ' . one_of("'key $n'", "'key $first'", 'NULL') . ', '
	  . literal(one_of('{}', '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "step": "mine"}', '{"traceparent": 5}', '{"traceparent": "none", "k": {"l": []}}', '[]')) . ')'
	  if $kind < 0.54;
	return "saga.reply(d.saga($n), '" . any_step() . "', " . one_of(('true') x 6, ('false') x 3, 'NULL') . ', ' . literal(any_json()) . ', ' . one_of('NULL', "'no'", "''") . ', '
	  . one_of("'forward'", "'forward'", "'compensate'", "'back'") . ', ' . one_of('NULL', 1, 1, 2) . ')' if $kind < 0.66;
	return "saga.abort(d.saga($n), " . one_of("'not wanted'", "''", 'NULL') . ')' if $kind < 0.69;
	return "saga.retry(d.saga($n))" if $kind < 0.73;
	return "d.over($n)" if $kind < 0.77;
	return 'd.handle()' if $kind < 0.83;
	return "d.deliver($r)" if $kind < 0.86;
	return "(SELECT h.command || outbox.cancel(h.outbox_id, 'by hand', true)::text FROM d.pick($r) h)" if $kind < 0.88;
	return "(SELECT h.command || (outbox.replay(h.outbox_id) IS NOT NULL)::text FROM d.pick($r) h)" if $kind < 0.90;
	return "(SELECT h.command || outbox.break_lease(h.outbox_id, 'slow')::text FROM d.pick($r) h)" if $kind < 0.92;
	return 'd.hint(' . one_of("'saga.timeout'", "'saga.timeout'", "'outbox.dead_letter'", "'other'") . ', ' . literal('{' . any_command() . one_of('', ', "outbox_id": "x"') . '}') . ', ' . one_of($n, $n, -1) . ')'
	  if $kind < 0.94;
	return 'd.forged(' . literal('{' . any_command() . '}') . ", $n)" if $kind < 0.95;
	return 'saga.define(' . one_of("'chain'", "'wide'") . ', ' . literal(one_of($definitions{chain}, $definitions{wide}, '[]')) . ', ' . one_of("'full'", "'diff'", "'none'") . ')' if $kind < 0.96;
	return "saga.create('own', " . uuid_of($n) . ', ' . literal(any_json()) . ', ' . uuid_of($n) . ')' if $kind < 0.97;
	return "(saga.load(d.saga($n), " . one_of('true', 'false', 'NULL') . ')).version' if $kind < 0.975;
	return "saga.save(d.saga($n), " . literal(any_json()) . ', ' . one_of("'running'", "'compensating'", "'failed'", "'completed'", "'done'", 'NULL') . ', ' . int(1 + rand(3)) . ', '
	  . one_of("'here'", 'NULL') . ', ' . one_of("'oh'", 'NULL') . ')';
}

# The statements of one step of the test.
sub tried { return map { "SELECT d.try(\$try\$SELECT $_\$try\$);" } @_ }
sub random_step
{
	my (@scope) = @_;
	my @calls = map { random_call(@scope) } 1 .. (rand() < 0.9 ? 1 : 3);
	my $level = one_of('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE');

	return tried(map { /^d\.over/ ? ($_, 'd.handle()') : $_ } @calls) if rand() < 0.7 || grep { /^d\.(handle|over)/ } @calls;
	return ("BEGIN ISOLATION LEVEL $level;", tried(@calls), one_of('COMMIT', 'COMMIT', 'ROLLBACK') . ';');
}

# Each kind of error, each status of a step, and what each mutant breaks, whatever the seed.
my @fixed = ("d.start('unknown', 1, '{}', NULL, '{}')", q{d.start('wide', 1, '{}', NULL, '{"traceparent": "00-a-b-01"}')}, "d.claim('line', 3)", q{d.succeed(0, 'w', '{"a": 1}', '{"b": 2}', true)},
	q{d.succeed(0, 'w', '{"a": 1}', '{"b": 2}', false)}, "d.claim('line', 3)", "saga.abort(d.saga(1), 'not wanted')", "saga.abort(d.saga(1), 'not wanted')", "d.claim('line', 3)",
	"d.fail(0, 'w', 'E', 'no', false, false)", "d.claim('line', 3)", "d.succeed(0, 'w', '1', '{}', false)", "saga.abort(d.saga(1), 'again')", 'saga.retry(d.saga(1))', 'saga.retry(d.saga(1))',
	map({ "saga.reply(d.saga(1), 'y', true, '{}', NULL, 'compensate', $_)" } 1, 2),
	"d.start('chain', 5, '{}', NULL, '{}')", "d.claim('work', 1)", "saga.abort(d.saga(5), 'no')", "d.fail(1, 'w', 'E', 'late', false, false)",
	"d.start('mail', 6, '{}', NULL, '{}')", "saga.reply(d.saga(6), 'print', true)", "saga.reply(d.saga(6), 'post', false)",
	"saga.create('own', " . uuid_of(2) . ", '[]')", map({ "saga.create('own', " . uuid_of(2) . ", '{}', " . uuid_of(2) . ')' } 1, 2),
	map({ "saga.save(d.saga(2), '{}', $_)" } "'running', 7", "'done', 1", "NULL, 1", "'running', 1"), 'saga.load(d.saga(3))', "d.start('chain', 4, '{}', NULL, '{}')", "d.claim('work', 1)",
	"d.fail(0, 'w', 'E', NULL, false, false)");

# Episodes of some sagas each.
my @script = ('\pset format unaligned', '\pset tuples_only on', 'SET client_min_messages = warning;');
push @script, 'SELECT saga.define(' . literal($_) . ', ' . literal($definitions{$_}) . ", '" . ($_ eq 'wide' ? 'diff' : 'full') . "');" foreach sort keys %definitions;
my $step = 0;
sub put_step { push @script, '\echo ' . literal('step ' . ++$step . ': ' . join(' ', @_) =~ s/\s+/ /gr), @_, 'SELECT d.changes();' }
put_step(tried($_)) foreach @fixed;
for (my $first = 11; $step < $steps; $first += 10)
{
	push @script, "UPDATE d.scope SET least = $first;", 'TRUNCATE d.shown;';
	my @sagas = (map({ $first + $_ } 0 .. 4));

	push @script, "SELECT d.start('" . one_of(qw(chain wide mail)) . "', $_, '{}', NULL, '{}');" foreach @sagas[ 0 .. 3 ];
	push @script, "SELECT saga.create('own', " . uuid_of($sagas[4]) . ", '{}', " . uuid_of($sagas[4]) . ');', 'SELECT d.changes();';
	put_step(random_step($sagas[0], $sagas[4])) for 1 .. 100;
	push @script, 'SELECT d.told();';
}
my $script = $node->basedir . '/script.sql';
append_to_file($script, join("\n", @script) . "\n");

# ---------------------------------------------------------------- comparing

my $made = 0;

# Runs the script in a new database; returns a handle, and where its output comes.
sub begin_run
{
	my (@setup) = @_;
	my $database = 'run' . ++$made;
	my $output = '';

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, $_) foreach 'CREATE EXTENSION outbox', 'CREATE EXTENSION outbox_saga', @setup, $helpers;
	my $run = IPC::Run::start([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $script, '-d', $node->connstr($database) ], '<', \undef, '>', \$output, '2>&1');
	return { run => $run, output => \$output, database => $database };
}

sub lines_of
{
	my ($begun) = @_;

	ok($begun->{run}->finish, 'the calls are made') or diag(substr(${ $begun->{output} }, -2000));
	return split /\n/, ${ $begun->{output} };
}

# The step and the lines of both where they differ; nothing if they agree.
sub first_difference
{
	my ($one, $other) = @_;
	my $step = 'before the first step';

	for my $i (0 .. ($#$one > $#$other ? $#$one : $#$other))
	{
		my ($a, $b) = ($one->[$i] // '(nothing)', $other->[$i] // '(nothing)');

		$step = $a if $a =~ /^step /;
		return "$step\nextension: $a\nreference: $b" if $a ne $b;
	}
	return '';
}

my $extension = begin_run();
my $model = begin_run($reference);
is($node->safe_psql($model->{database}, q{SELECT string_agg(proname, ' ') FROM pg_proc WHERE pronamespace = 'saga'::regnamespace AND probin IS NOT NULL}), '', 'the reference calls no C');
my @extension = lines_of($extension);
is(first_difference(\@extension, [ lines_of($model) ]), '', 'extension and reference agree');

# Otherwise it proves little.
my %codes;
/^([0-9A-Z]{5}) \| / and $codes{$1}++ foreach @extension;
$codes{$_} //= 0 foreach qw(P7002 P7006 P7007 P7008 55000 22004 22023 42710 42704);
my %statuses;
/^  \+ saga \d+ step \d+: \(\w+,(\w+),/ and $statuses{$1}++ foreach @extension;
diag(join ', ', map { "$_ $codes{$_}" } sort keys %codes);
diag(join ', ', map { "$_ $statuses{$_}" } sort keys %statuses);
is_deeply([ grep { $codes{$_} == 0 } sort keys %codes ], [], 'each error came up');
is(join(' ', sort keys %statuses), 'compensated compensating failed sent succeeded uncompensated unknown', '... and each status of a step');

foreach my $n (1 .. $mutants)
{
	my ($name, $old, $new) = @{ $mutants[ ($seed + $n) % @mutants ] };
	my $mutant = $reference =~ s/\Q$old\E/$new/r;

	isnt($mutant, $reference, "mutant: $name");
	isnt(first_difference(\@extension, [ lines_of(begin_run($mutant)) ]), '', '... is noticed');
}

done_testing();
