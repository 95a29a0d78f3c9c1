# Sagas under random faults, with participants in several sessions and a crash of the server.
#
# Proves: every saga ends; a completed one has done each step, a failed one has undone each step that was done and
# has a compensation, or lists it; each command was sent once in each round; each change has one row in the audit log; no
# deadlock occurs. Participants die before and after their work, lose leases, hang until the timeout, fail, answer late, twice, or
# by a reply; operators abort. OUTBOX_TEST_SAGAS: how many sagas (1,000).
use strict;
use warnings;

use IPC::Run;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed();
my $sagas = $ENV{OUTBOX_TEST_SAGAS} // 1000;
my $node = new_node('main', preload => 1);
my $do = sub { $node->safe_psql('postgres', shift) };

$do->(q{
	CREATE EXTENSION outbox_saga;
	SELECT outbox.create_queue('work', max_attempts => 3, lease => '200 ms', backoff_base => '1 ms', repair_delay => '0');
	SELECT saga.define('order', '[
		{"name": "reserve", "command": "reserve", "queue": "work", "compensation": "unreserve", "timeout": "5 s"},
		{"name": "charge", "command": "charge", "queue": "work", "compensation": "refund", "timeout": "2 s"},
		{"name": "ship", "command": "ship", "queue": "work", "timeout": "5 s"}]');
	SELECT saga.define('trip', '[
		{"name": "flight", "command": "fly", "queue": "work", "compensation": "unfly", "timeout": "3 s", "parallel_group": "book"},
		{"name": "hotel", "command": "sleep", "queue": "work", "compensation": "unsleep", "timeout": "3 s", "parallel_group": "book"},
		{"name": "car", "command": "drive", "queue": "work", "compensation": "undrive", "timeout": "3 s", "parallel_group": "book"},
		{"name": "pay", "command": "pay", "queue": "work", "compensation": "unpay", "timeout": "3 s"}]', 'diff');

	-- What participants have done. done = false: undone or refused, and never done from then on.
	CREATE TABLE done (saga_id text, step text, done boolean NOT NULL, PRIMARY KEY (saga_id, step));
	-- Commands of those who hang, and answer at last.
	CREATE TABLE hung (outbox_id uuid, lease_token uuid, saga_id text, step text);
	CREATE TABLE seen (what text);
	CREATE INDEX ON seen (what);

	-- The work itself: whether it is done.
	CREATE FUNCTION effect(h jsonb) RETURNS boolean LANGUAGE sql AS $$
		INSERT INTO done AS d VALUES (h ->> 'saga_id', h ->> 'step', h ->> 'direction' = 'forward')
		ON CONFLICT (saga_id, step) DO UPDATE SET done = d.done AND excluded.done RETURNING d.done
	$$;
	CREATE FUNCTION refused(h jsonb) RETURNS boolean LANGUAGE sql AS $$
		INSERT INTO done AS d VALUES (h ->> 'saga_id', h ->> 'step', false) ON CONFLICT (saga_id, step) DO UPDATE SET done = d.done RETURNING NOT d.done
	$$;
	-- An answer that may come too late.
	CREATE FUNCTION answer(id uuid, token uuid, how text, succeeded boolean) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF succeeded THEN
			PERFORM saga.succeed(id, token, 'w', to_jsonb(how));
		ELSE
			PERFORM saga.fail(id, token, 'w', 'NO', how, how = 'again');
		END IF;
		INSERT INTO seen VALUES (how);
	EXCEPTION WHEN SQLSTATE 'P7002' THEN
		INSERT INTO seen VALUES (how || ', stale');
	END
	$$;
	CREATE FUNCTION lose_lease(id uuid, token uuid) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM outbox.break_lease(id, 'slow') FROM outbox.pending p WHERE p.outbox_id = id AND p.lease_token = token;
	EXCEPTION WHEN SQLSTATE 'P7005' OR object_not_in_prerequisite_state THEN
		NULL;	-- it has lost it by itself
	END
	$$;
	CREATE PROCEDURE work(many integer, seed float8) LANGUAGE plpgsql AS $$
	DECLARE
		c record;
		r float8;
		forward boolean;
		hung hung;
	BEGIN
		PERFORM setseed(seed);
		FOR n IN 1 .. many LOOP
			SELECT q.outbox_id, q.lease_token, q.headers INTO c FROM outbox.claim('w', 1, queues => '{work}', wait => '100 ms') q;
			COMMIT;
			CONTINUE WHEN c.outbox_id IS NULL;
			r := random();
			forward := c.headers ->> 'direction' = 'forward';
			IF r < 0.04 THEN
				INSERT INTO seen VALUES ('died before');
			ELSIF r < 0.08 THEN
				PERFORM effect(c.headers);
				INSERT INTO seen VALUES ('died after');
			ELSIF r < 0.13 THEN
				PERFORM answer(c.outbox_id, c.lease_token, 'again', false);
			ELSIF r < 0.16 THEN
				IF NOT forward OR refused(c.headers) THEN
					PERFORM answer(c.outbox_id, c.lease_token, 'refused', false);
				END IF;
			ELSIF r < 0.19 AND forward THEN
				PERFORM outbox.renew('w', ARRAY[c.outbox_id], ARRAY[c.lease_token], '1 h');
				INSERT INTO hung VALUES (c.outbox_id, c.lease_token, c.headers ->> 'saga_id', c.headers ->> 'step');
				INSERT INTO seen VALUES ('hung');
			ELSIF r < 0.22 THEN
				IF effect(c.headers) = forward THEN
					COMMIT;
					PERFORM lose_lease(c.outbox_id, c.lease_token);
					COMMIT;
					PERFORM answer(c.outbox_id, c.lease_token, 'slow', true);
				END IF;
			ELSIF r < 0.26 AND effect(c.headers) = forward THEN
				PERFORM error FROM outbox.complete_batch('w', ARRAY[c.outbox_id], ARRAY[c.lease_token], '{DISPATCHED}');
				COMMIT;
				FOR i IN 1 .. 2 LOOP
					PERFORM saga.reply((c.headers ->> 'saga_id')::uuid, c.headers ->> 'step', true, '"reply"', direction => c.headers ->> 'direction');
					COMMIT;
				END LOOP;
				INSERT INTO seen VALUES ('reply');
			ELSIF r < 0.27 AND forward THEN
				BEGIN
					PERFORM saga.abort((c.headers ->> 'saga_id')::uuid, 'no longer wanted');
					INSERT INTO seen VALUES ('abort');
				EXCEPTION WHEN SQLSTATE 'P7008' THEN
					NULL;
				END;
			ELSIF r < 0.274 THEN
				DELETE FROM hung WHERE ctid = (SELECT ctid FROM hung LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING * INTO hung;
				IF FOUND THEN
					PERFORM answer(hung.outbox_id, hung.lease_token, 'hung', effect(jsonb_build_object('saga_id', hung.saga_id, 'step', hung.step, 'direction', 'forward')));
				END IF;
			ELSE
				PERFORM answer(c.outbox_id, c.lease_token, 'answer', effect(c.headers) = forward);
			END IF;
			COMMIT;
		END LOOP;
	END
	$$;
});
wait_for_worker($node);

# Participants, until a condition holds.
my $script = $node->basedir . '/work.sql';
append_to_file($script, "\\set r random(0, 1000000)\nCALL work(20, :r / 1000000.0);\n");
sub participants
{
	my ($condition) = @_;
	my $rounds = 0;

	while ($rounds++ < 1000 && $do->("SELECT $condition") ne 't')
	{
		my $log = '';
		local $ENV{PGOPTIONS} = '-c client_min_messages=warning';
		IPC::Run::run([ 'pgbench', '-n', '-c', 4, '-t', 5, '--random-seed', ++$seed, '-f', $script, $node->connstr('postgres') ],
			'<', \undef, '>', \$log, '2>&1')
		  or do { fail('participants work') or diag($log); return };
	}
	return;
}

# In the middle of their work.
sub crash
{
	my $participants = IPC::Run::start([ 'pgbench', '-n', '-c', 4, '-t', 1000, '--random-seed', ++$seed, '-f', $script, $node->connstr('postgres') ],
		'<', \undef, '>', '/dev/null', '2>', '/dev/null');
	my $before = $do->('SELECT count(*) FROM saga.audit_log');

	$node->poll_query_until('postgres', "SELECT count(*) > $before + 20 FROM saga.audit_log");
	$node->stop('immediate');
	$participants->finish;
	$node->start;
	wait_for_worker($node);
	return;
}

# Not all at once: timeouts are to be the exception.
my $portion = 250;
for (my $n = 0; $n < $sagas; $n += $portion)
{
	my $last = $n + $portion < $sagas ? $n + $portion : $sagas;

	# Those before are named again, and not started again.
	$do->("SELECT count(saga.start(CASE n % 2 WHEN 0 THEN 'order' ELSE 'trip' END, NULL, '{}', n::text)) FROM generate_series(@{[ $n > 10 ? $n - 10 : 1 ]}, $last) n");
	crash() if $n <= $sagas / 2 && $n + $portion > $sagas / 2;
	participants("count(*) < 50 FROM saga.instances WHERE status NOT IN ('completed', 'failed')");
}
is($do->('SELECT count(*) FROM saga.instances'), $sagas, 'a key starts one saga');

my $quiet = q{NOT EXISTS (SELECT FROM saga.instances WHERE status NOT IN ('completed', 'failed'))
	AND NOT EXISTS (SELECT FROM saga.steps WHERE status IN ('sent', 'compensating')) AND NOT EXISTS (SELECT FROM outbox.pending WHERE queue = 'work')};
participants($quiet);
# Those who hang answer at last.
$do->(q{SELECT count(answer(h.outbox_id, h.lease_token, 'hung', effect(jsonb_build_object('saga_id', h.saga_id, 'step', h.step, 'direction', 'forward')))) FROM hung h});
participants($quiet);
is($do->("SELECT $quiet"), 't', 'every saga ends');

my $none = sub {
	my ($name, $sql) = @_;
	is($do->($sql), '', $name);
};
diag($do->(q{SELECT string_agg(what || ' ' || n, '; ' ORDER BY what) FROM (SELECT what, count(*) AS n FROM seen GROUP BY 1
	UNION ALL SELECT status, count(*) FROM saga.instances GROUP BY 1 UNION ALL SELECT 'step ' || status, count(*) FROM saga.steps GROUP BY 1
	UNION ALL SELECT 'sent again', count(*) FROM saga.steps WHERE rounds > 1 UNION ALL SELECT 'timeout', count(*) FROM saga.steps WHERE error ~ 'in time'
	UNION ALL SELECT 'dead letter', count(*) FROM saga.steps WHERE error ~ 'dead letter') s}));
foreach my $status ('completed', 'failed')
{
	cmp_ok($do->("SELECT count(*) FROM saga.instances WHERE status = '$status'"), '>', $sagas / 10, "many are $status");
}
$none->('a completed saga has done each step', q{
	SELECT i.id, d.name FROM saga.instances i JOIN saga.definition_steps d ON d.saga_type = i.saga_type AND d.version = i.definition_version
	LEFT JOIN saga.steps s ON s.saga_id = i.id AND s.step_no = d.step_no LEFT JOIN done w ON w.saga_id = i.id::text AND w.step = d.name
	WHERE i.status = 'completed' AND (s.status IS DISTINCT FROM 'succeeded' OR w.done IS DISTINCT FROM true)});
$none->('a failed one has undone what was done and can be undone, or lists it', q{
	SELECT i.id, s.step, s.status FROM saga.instances i JOIN saga.steps s ON s.saga_id = i.id
	JOIN saga.definition_steps d ON d.saga_type = i.saga_type AND d.version = i.definition_version AND d.step_no = s.step_no
	JOIN done w ON w.saga_id = i.id::text AND w.step = d.name
	WHERE i.status = 'failed' AND w.done AND d.compensation IS NOT NULL AND NOT EXISTS (SELECT FROM saga.uncompensated u WHERE u.saga_id = i.id AND u.step = s.step)});
$none->('... and has compensated each step that succeeded', q{
	SELECT i.id, s.step, s.status FROM saga.instances i JOIN saga.steps s ON s.saga_id = i.id
	JOIN saga.definition_steps d ON d.saga_type = i.saga_type AND d.version = i.definition_version AND d.step_no = s.step_no
	WHERE i.status = 'failed' AND d.compensation IS NOT NULL AND s.status NOT IN ('failed', 'compensated', 'uncompensated')});
$none->('a command is sent once in each round', q{
	SELECT headers ->> 'saga_id', headers ->> 'step', headers ->> 'direction', headers ->> 'round' FROM outbox.messages WHERE queue = 'work'
	GROUP BY 1, 2, 3, 4 HAVING count(*) > 1});
$none->('... and each step has its own', q{
	SELECT s.saga_id, s.step FROM saga.steps s LEFT JOIN (SELECT (headers ->> 'saga_id')::uuid AS saga_id, headers ->> 'step' AS step,
		count(*) FILTER (WHERE headers ->> 'direction' = 'forward') AS forward, count(*) FILTER (WHERE headers ->> 'direction' = 'compensate') AS back
		FROM outbox.messages WHERE queue = 'work' GROUP BY 1, 2) m USING (saga_id, step) WHERE m.forward IS DISTINCT FROM 1 OR m.back <> s.rounds});
$none->('each change has one row in the audit log', q{
	SELECT i.id FROM saga.instances i LEFT JOIN saga.audit_log a ON a.saga_id = i.id GROUP BY i.id HAVING count(a.version) <> i.version OR max(a.version) <> i.version});
$none->('... and the changes are those of the table', q{
	SELECT a.saga_id, a.version FROM saga.audit_log a WHERE a.old_status <> a.new_status
		AND NOT EXISTS (SELECT FROM saga.transitions t WHERE t.subject = 'saga' AND (t.from_status, t.to_status) = (a.old_status, a.new_status))
	UNION ALL SELECT a.saga_id, a.version FROM saga.audit_log a JOIN saga.audit_log b ON b.saga_id = a.saga_id AND b.version = a.version + 1 WHERE b.old_status <> a.new_status});
$none->('no message of saga_internal died', q{SELECT error_code, error_message FROM outbox.dead_letters WHERE queue = 'saga_internal'});
unlike(slurp_file($node->logfile), qr/ERROR:  (?:deadlock|could not serialize|INVALID_TRANSITION)/, 'no deadlock, no transition that is not listed');

done_testing();
