-- Sagas: storage, and what the orchestrator does with answers, failures, timeouts and dead letters in one session.
-- Answers at once: test/specs/race_saga.spec. Rights: test/pgtap/saga.sql. Here no background worker is: maintain()
-- handles saga_internal.
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh
CREATE EXTENSION outbox_saga;

SET client_min_messages = warning;
CREATE TABLE t.held (command text, outbox_id uuid, lease_token uuid);
CREATE FUNCTION t.work(queue text DEFAULT 'work', many integer DEFAULT 10) RETURNS TABLE (command text, direction text, payload jsonb) LANGUAGE sql AS $$
	WITH c AS MATERIALIZED (SELECT * FROM outbox.claim('w', many, queues => ARRAY[queue])),
	h AS (INSERT INTO t.held SELECT c.event_type, c.outbox_id, c.lease_token FROM c)
	SELECT c.event_type, c.headers ->> 'direction', c.payload FROM c ORDER BY c.event_type COLLATE "C"
$$;
-- The last one that was claimed under this name.
CREATE FUNCTION t.held(command text) RETURNS t.held LANGUAGE sql AS $$
	SELECT h.* FROM t.held h WHERE h.command = held.command ORDER BY h.outbox_id DESC, h.ctid DESC LIMIT 1
$$;
CREATE FUNCTION t.ok(command text, result jsonb DEFAULT '{}', state_patch jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
	SELECT saga.succeed(h.outbox_id, h.lease_token, 'w', result, state_patch)::text FROM t.held(command) h
$$;
CREATE FUNCTION t.bad(command text, retryable boolean DEFAULT false) RETURNS text LANGUAGE sql AS $$
	SELECT saga.fail(h.outbox_id, h.lease_token, 'w', 'NO', 'it broke', retryable)::text FROM t.held(command) h
$$;
CREATE FUNCTION t.of(correlation integer) RETURNS uuid LANGUAGE sql AS $$
	SELECT id FROM saga.instances WHERE correlation_id = ('00000000-0000-4000-8000-' || lpad(correlation::text, 12, '0'))::uuid
$$;
CREATE FUNCTION t.launch(saga_type text, correlation integer, state jsonb DEFAULT '{}', key text DEFAULT NULL, headers jsonb DEFAULT '{}') RETURNS boolean LANGUAGE sql AS $$
	SELECT saga.start(saga_type, ('00000000-0000-4000-8000-' || lpad(correlation::text, 12, '0'))::uuid, state, key, headers) IS NOT NULL
$$;
CREATE FUNCTION t.show(correlation integer) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT format('%s v%s, at %s, state %s, errors %s: %s', status, version, coalesce(current_step, '-'), state, retry_count, coalesce(t.masked(last_error), '-'))
	FROM saga.instances WHERE id = t.of(correlation)
	UNION ALL
	SELECT * FROM (SELECT format('  %s: %s, result %s, sent back %s times, error %s', step, status, coalesce(result::text, '-'), rounds, coalesce(t.masked(error), '-'))
		FROM saga.steps WHERE saga_id = t.of(correlation) ORDER BY step_no) s
$$;
CREATE FUNCTION t.audit(correlation integer) RETURNS TABLE (version bigint, event_type text, step text, change text, old_state jsonb, new_state jsonb, metadata text) LANGUAGE sql AS $$
	SELECT version, event_type, step, coalesce(old_status, '-') || ' > ' || new_status, old_state, new_state, t.masked(metadata::text)
	FROM saga.audit_log WHERE saga_id = t.of(correlation) ORDER BY version
$$;
-- The deadlines of a saga are over, and what came of it is handled.
CREATE FUNCTION t.over(correlation integer) RETURNS void LANGUAGE sql AS $$
	UPDATE saga.steps SET deadline = now() - interval '1 s' WHERE saga_id = t.of(correlation);
	UPDATE outbox.pending p SET next_attempt_at = now() - interval '1 s' FROM outbox.messages m
	WHERE m.outbox_id = p.outbox_id AND m.queue = 'saga_internal' AND m.aggregate_id = t.of(correlation)::text;
$$;
CREATE VIEW t.handled AS SELECT action, object, n FROM (SELECT m.* FROM outbox.maintain() m) x(action, object, n) WHERE object = 'saga_internal';
-- What does not depend on the order of things: each change one row, versions without gaps, the last row is the saga.
CREATE VIEW t.wrong AS
	SELECT i.id, 'audit log' AS what FROM saga.instances i JOIN saga.audit_log a ON a.saga_id = i.id GROUP BY i.id
	HAVING count(*) <> i.version OR max(a.version) <> i.version OR (array_agg(a.new_status ORDER BY a.version DESC))[1] <> i.status
	UNION ALL
	SELECT a.saga_id, 'chain' FROM saga.audit_log a JOIN saga.audit_log b ON b.saga_id = a.saga_id AND b.version = a.version + 1 WHERE b.old_status <> a.new_status AND a.saga_type <> 'pair'
	UNION ALL
	SELECT a.saga_id, 'transition' FROM saga.audit_log a WHERE a.old_status <> a.new_status
		AND NOT EXISTS (SELECT FROM saga.transitions t WHERE t.subject = 'saga' AND (t.from_status, t.to_status) = (a.old_status, a.new_status))
	UNION ALL
	SELECT s.saga_id, 'open step' FROM saga.steps s JOIN saga.instances i ON i.id = s.saga_id WHERE i.status IN ('completed', 'failed') AND s.status = 'sent';
RESET client_min_messages;

-- ---------------------------------------------------------------- storage
SELECT saga.create('import', NULL, '{"n": 1}', '00000000-0000-4000-8000-0000000000aa');
SELECT t.try($$SELECT saga.create('import', NULL, '{}', '00000000-0000-4000-8000-0000000000aa')$$);
SELECT t.try(s) FROM (VALUES ($$SELECT saga.create(NULL, NULL)$$), ($$SELECT saga.create('import', NULL, NULL)$$), ($$SELECT saga.create('import', NULL, '[]')$$),
	($$SELECT saga.load(NULL)$$), ($$SELECT saga.load('00000000-0000-4000-8000-0000000000ab')$$), ($$SELECT saga.load('00000000-0000-4000-8000-0000000000ab', true)$$)) v(s);
\set id '''00000000-0000-4000-8000-0000000000aa'''
SELECT saga_type, state, status, version, retry_count, completed_at FROM saga.load(:id);
SELECT saga.save(:id, '{"n": 2}', 'running', 1, 'read');
SELECT saga.save(:id, '{"n": 3}', 'running', 2, 'read', 'no file');
SELECT t.try($$SELECT saga.save('00000000-0000-4000-8000-0000000000aa', '{}', 'running', 2)$$);
SELECT t.try(format('SELECT saga.save(%L, ''{}'', %L, 3)', '00000000-0000-4000-8000-0000000000aa', s)) FROM unnest('{started,failed,done,NULL}'::text[]) s;
SELECT t.try($$SELECT saga.save('00000000-0000-4000-8000-0000000000ab', '{}', 'running', 1)$$);
SELECT t.try($$SELECT saga.save('00000000-0000-4000-8000-0000000000aa', 'null', 'running', 3)$$);
SELECT state, status, current_step, version, last_error, retry_count FROM saga.load(:id, true);
SELECT saga.save(:id, '{}', 'completed', 3);
SELECT t.try($$SELECT saga.save('00000000-0000-4000-8000-0000000000aa', '{}', 'completed', 4)$$);
SELECT t.try($$SELECT saga.save('00000000-0000-4000-8000-0000000000aa', '{}', 'running', 4)$$);
SELECT completed_at IS NOT NULL AS ended FROM saga.load(:id);
SELECT version, event_type, step, old_status, new_status, old_state, new_state, user_id = session_user AS me, trace_id, metadata FROM saga.audit_log ORDER BY version;
SELECT t.try(s) FROM (VALUES ($$UPDATE saga.audit_log SET step = 'x'$$), ($$DELETE FROM saga.audit_log$$), ($$TRUNCATE saga.audit_log$$)) v(s);
SELECT t.try(s) FROM (VALUES ($$SELECT saga.reply('00000000-0000-4000-8000-0000000000aa', 'x', true)$$), ($$SELECT saga.abort('00000000-0000-4000-8000-0000000000aa', 'x')$$),
	($$SELECT saga.retry('00000000-0000-4000-8000-0000000000aa')$$)) v(s);
-- all pairs of statuses, by save, as the table says
CREATE FUNCTION t.pair(f text, s text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	made uuid := saga.create('pair', NULL);
BEGIN
	UPDATE saga.instances SET status = f, completed_at = CASE WHEN f IN ('completed', 'failed') THEN now() END WHERE instances.id = made;
	PERFORM saga.save(made, '{}', s, 1);
	RETURN true;
EXCEPTION WHEN SQLSTATE 'P7008' THEN
	RETURN false;
END
$$;
SELECT f || ' > ' || s AS allowed FROM unnest('{started,running,compensating,completed,failed}'::text[]) f, unnest('{started,running,compensating,completed,failed}'::text[]) s WHERE t.pair(f, s) ORDER BY 1;
SELECT from_status || ' > ' || to_status AS listed FROM saga.transitions WHERE subject = 'saga' AND from_status <> 'absent' ORDER BY 1;
SELECT saga.create('stuck', NULL) IS NOT NULL;
UPDATE saga.instances SET updated_at = now() - interval '2 h' WHERE saga_type = 'stuck';
SELECT saga_type, status FROM saga.stuck('1 h');

-- ---------------------------------------------------------------- definitions
SELECT outbox.create_queue('work', max_attempts => 2, backoff_base => '1 us', backoff_jitter => 0, repair_delay => '0');
SELECT t.try(format('SELECT saga.define(%L, %s)', 'bad', s)) FROM (VALUES ('NULL'), ($$'{}'$$), ($$'[]'$$), ($$'[1]'$$),
	($$'[{"name": "a", "command": "c", "queue": "work", "step": 1}]'$$), ($$'[{"name": "a", "command": "c"}]'$$), ($$'[{"name": "", "command": "c", "queue": "work"}]'$$),
	($$'[{"name": "a", "command": "c", "queue": "nowhere"}]'$$), ($$'[{"name": "a", "command": "c", "queue": "work"}, {"name": "a", "command": "d", "queue": "work"}]'$$),
	($$'[{"name": "a", "command": "c", "queue": "work", "answer": "maybe"}]'$$), ($$'[{"name": "a", "command": "c", "queue": "work", "timeout": "-1 s"}]'$$),
	($$'[{"name": "a", "command": "c", "queue": "work", "timeout": "soon"}]'$$), ($$'[{"name": "a", "command": "c", "queue": "work", "max_attempts": 0}]'$$),
	($$'[{"name": "a", "command": "c", "queue": "work", "timeout": "101 years"}]'$$), ($$'[{"name": "a", "command": "c", "queue": "work", "compensation": ""}]'$$),
	($$'[{"name": "a", "command": "c", "queue": "work"}]', 'none'$$),
	($$'[{"name": "a", "command": "a", "queue": "work", "parallel_group": "g"}, {"name": "b", "command": "b", "queue": "work"}, {"name": "c", "command": "c", "queue": "work", "parallel_group": "g"}]'$$)) v(s);
SELECT t.try($$SELECT saga.start('order', NULL)$$);
SELECT saga.define('order', '[
	{"name": "reserve", "command": "reserve", "queue": "work", "compensation": "unreserve"},
	{"name": "charge", "command": "charge", "queue": "work", "compensation": "refund", "timeout": "1 h"},
	{"name": "ship", "command": "ship", "queue": "work"}]');
SELECT saga.define('trip', '[
	{"name": "plan", "command": "plan", "queue": "work"},
	{"name": "flight", "command": "fly", "queue": "work", "compensation": "unfly", "parallel_group": "book"},
	{"name": "hotel", "command": "sleep", "queue": "work", "compensation": "unsleep", "parallel_group": "book"},
	{"name": "car", "command": "drive", "queue": "work", "compensation": "undrive", "parallel_group": "pick"},
	{"name": "pay", "command": "pay", "queue": "work"}]', 'diff');
SELECT step_no, stage, name FROM saga.definition_steps WHERE saga_type = 'trip' ORDER BY 1;
-- their queues tell saga_internal of dead letters
SELECT outbox.create_queue('other', dead_letter_queue => 'default');
SELECT t.try(format('SELECT saga.define(%L, %L)', 'bad', jsonb_build_array(jsonb_build_object('name', 'a', 'command', 'c', 'queue', 'work'), jsonb_build_object('name', 'b', 'command', 'c', 'queue', q))))
FROM unnest('{other,default,saga_internal}'::text[]) q;
SELECT outbox.drop_queue('other');
SELECT queue, dead_letter_queue FROM outbox.queues ORDER BY 1;
SELECT DISTINCT saga_type FROM saga.definitions ORDER BY 1;

-- ---------------------------------------------------------------- all is well
SELECT t.launch('order', 1, '{"item": "tea"}', 'key', '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}');
SELECT t.launch('order', 1, '{"item": "coffee"}', 'key');
SELECT * FROM t.work();
SELECT headers - 'saga_id' AS headers, aggregate_type, idempotency_key = t.of(1) || '/reserve/forward' AS key, partition_key = t.of(1)::text AS partition
FROM outbox.messages WHERE event_type = 'reserve';
SELECT t.ok('reserve', '{"shelf": 7}', '{"reserved": true}');
SELECT t.try($$SELECT t.ok('reserve')$$);
SELECT * FROM t.work();
SELECT t.bad('charge', true);
SELECT version, status FROM saga.load(t.of(1));
SELECT command FROM t.work();
SELECT t.ok('charge', '{"receipt": 1}');
SELECT * FROM t.work();
SELECT saga.define('order', '[{"name": "other", "command": "other", "queue": "work"}]');
SELECT t.ok('ship');
SELECT * FROM t.show(1);
SELECT * FROM t.audit(1);
SELECT DISTINCT trace_id FROM saga.audit_log WHERE saga_id = t.of(1);
SELECT t.try($$SELECT saga.abort(t.of(1), 'changed my mind')$$);
SELECT t.try($$SELECT saga.save(t.of(1), '{}', 'failed', 4)$$);
-- its timeout comes, and does nothing
SELECT t.over(1);
SELECT * FROM t.handled;
SELECT status, version FROM saga.load(t.of(1));
DELETE FROM saga.definition_steps WHERE saga_type = 'order' AND version = 2;
DELETE FROM saga.definitions WHERE saga_type = 'order' AND version = 2;

-- ---------------------------------------------------------------- a step fails: those before it, in reverse order
SELECT t.launch('order', 2);
SELECT command FROM t.work();
SELECT t.ok('reserve', '{"shelf": 8}');
SELECT command FROM t.work();
SELECT t.bad('charge');
SELECT * FROM t.show(2);
SELECT * FROM t.work();
SELECT t.ok('unreserve', '{}', '{"given_back": true}');
SELECT * FROM t.show(2);
SELECT * FROM t.audit(2);

-- the first step fails: nothing to undo
SELECT t.launch('order', 3);
SELECT command FROM t.work();
SELECT t.bad('reserve');
SELECT * FROM t.show(3);

-- without a word
SELECT t.launch('order', 9);
SELECT command FROM t.work();
SELECT saga.fail(h.outbox_id, h.lease_token, 'w', NULL, NULL) FROM t.held('reserve') h;
SELECT last_error FROM saga.load(t.of(9));

-- ---------------------------------------------------------------- at the ceiling its outcome is unknown: it is compensated too; one that gives up, and the next goes on
SELECT t.launch('order', 4);
SELECT command FROM t.work();
SELECT t.ok('reserve');
SELECT command FROM t.work();
SELECT t.bad('charge', true);
SELECT command FROM t.work();
SELECT t.bad('charge', true);
SELECT * FROM t.show(4);
SELECT command FROM t.work();
SELECT t.bad('refund', true);
SELECT command FROM t.work();
SELECT t.bad('refund', true);
SELECT saga_type, saga_status, step, compensation, error FROM saga.uncompensated;
SELECT command FROM t.work();
SELECT t.ok('unreserve');
SELECT * FROM t.show(4);
SELECT line FROM string_to_table(saga.prometheus(), E'\n') line WHERE line ~ '^(#|saga_uncomp)';
SELECT saga.retry(t.of(4));
SELECT t.try($$SELECT saga.retry(t.of(4))$$);
SELECT command FROM t.work();
SELECT t.ok('refund');
SELECT * FROM t.show(4);
SELECT * FROM t.audit(4);
SELECT count(*) FROM saga.uncompensated;

-- ---------------------------------------------------------------- timeout: the command is taken back; the answer that comes late is recorded, and compensated
SELECT t.launch('order', 5);
SELECT command FROM t.work();
SELECT t.ok('reserve');
SELECT command FROM t.work();
SELECT deadline > now() AS has_time FROM saga.load(t.of(5));
-- not before the deadline in the table, whatever the message says
UPDATE outbox.pending p SET next_attempt_at = now() - interval '1 s' FROM outbox.messages m WHERE m.outbox_id = p.outbox_id AND m.event_type = 'saga.timeout' AND m.aggregate_id = t.of(5)::text;
SELECT * FROM t.handled;
SELECT version, status FROM saga.load(t.of(5));
SELECT t.over(5);
SELECT * FROM t.handled;
SELECT * FROM t.show(5);
SELECT command FROM t.work();
SELECT t.ok('refund');
SELECT * FROM t.show(5);
-- late, after its compensation
SELECT t.ok('charge', '{"receipt": 5}');
SELECT t.try($$SELECT t.ok('charge', '{"receipt": 5}')$$);
SELECT * FROM t.show(5);
SELECT command FROM t.work();
SELECT t.ok('unreserve');
SELECT * FROM t.work();
SELECT t.ok('refund');
SELECT * FROM t.show(5);
SELECT * FROM t.audit(5);

-- late, after the saga has ended
SELECT t.launch('order', 6);
SELECT command FROM t.work();
SELECT saga.abort(t.of(6), 'no longer wanted');
SELECT saga.abort(t.of(6), 'no longer wanted');
SELECT command FROM t.work();
SELECT t.bad('unreserve');
SELECT * FROM t.show(6);
SELECT t.ok('reserve', '{"shelf": 6}');
SELECT * FROM t.show(6);
SELECT status, current_step FROM saga.stuck('0') WHERE id = t.of(6);
SELECT command FROM t.work();
SELECT t.ok('unreserve');
SELECT * FROM t.show(6);
SELECT status, current_step FROM saga.stuck('0') WHERE id = t.of(6);

-- late: it was not done
SELECT t.launch('order', 7);
SELECT command FROM t.work();
SELECT saga.abort(t.of(7), 'no longer wanted');
SELECT t.bad('reserve');
SELECT * FROM t.show(7);
SELECT command FROM t.work();
SELECT t.ok('unreserve');
SELECT * FROM t.show(7);

-- late: of two workers that had it only the last one knows that it was not done
SELECT t.launch('order', 14);
SELECT command FROM t.work();
UPDATE outbox.pending SET lease_expires_at = now() - interval '1 s' WHERE outbox_id = (t.held('reserve')).outbox_id;
SELECT command FROM t.work();
SELECT saga.abort(t.of(14), 'no longer wanted');
CREATE FUNCTION t.bad_first(command text) RETURNS text LANGUAGE sql AS $$
	SELECT saga.fail(h.outbox_id, h.lease_token, 'w', 'NO', 'it broke')::text FROM t.held h WHERE h.outbox_id = (t.held(bad_first.command)).outbox_id ORDER BY h.ctid LIMIT 1
$$;
SELECT t.try($$SELECT t.bad_first('reserve')$$);
SELECT * FROM t.show(14);
SELECT t.ok('reserve', '{"shelf": 14}');
SELECT * FROM t.show(14);
SELECT command FROM t.work();
SELECT t.ok('unreserve');
SELECT * FROM t.show(14);

-- ---------------------------------------------------------------- dead letters come by the dead_letter_queue
SELECT t.launch('order', 8);
SELECT command FROM t.work();
-- it is not dead, whatever a message says
CREATE FUNCTION t.died(type text) RETURNS boolean LANGUAGE sql AS $$
	SELECT (outbox.enqueue('outbox.dead_letter', jsonb_build_object('outbox_id', h.outbox_id), 'saga_internal')).created FROM t.held(type) h
$$;
SELECT t.died('reserve');
SELECT * FROM t.handled;
SELECT version, status FROM saga.load(t.of(8));
SELECT attempt_no FROM t.held('reserve') h, outbox.cancel(h.outbox_id, 'by a person', true) attempt_no;
SELECT t.died('reserve');
SELECT * FROM t.handled;
SELECT * FROM t.show(8);
SELECT command FROM t.work();
SELECT attempt_no FROM t.held('unreserve') h, outbox.cancel(h.outbox_id, 'by a person', true) attempt_no;
SELECT * FROM t.handled;
SELECT * FROM t.show(8);
-- a replay of the compensation is one too
SELECT outbox.replay(h.outbox_id) IS NOT NULL AS replayed FROM t.held('unreserve') h;
SELECT command FROM t.work();
SELECT t.ok('unreserve');
SELECT * FROM t.show(8);

-- a replay of a command that was answered: nothing would undo what it does
BEGIN;
SELECT t.launch('order', 12);
SELECT command FROM t.work();
SELECT t.bad('reserve');
SELECT outbox.replay(h.outbox_id) IS NOT NULL AS replayed FROM t.held('reserve') h;
SELECT command FROM t.work();
SELECT t.try($$SELECT t.ok('reserve')$$);
SELECT t.bad('reserve');
SELECT * FROM t.show(12);
-- the same while its worker is at work
SELECT t.launch('order', 13);
SELECT command FROM t.work();
SELECT saga.reply(t.of(13), 'reserve', false);
SELECT t.try($$SELECT t.ok('reserve')$$);
ROLLBACK;

-- a timeout of a step that has none
BEGIN;
SELECT t.launch('order', 10);
SELECT created FROM outbox.enqueue('saga.timeout', jsonb_build_object('saga_id', t.of(10), 'step', 'reserve', 'direction', 'forward', 'round', 1), 'saga_internal');
SELECT * FROM t.handled;
SELECT * FROM t.show(10);
ROLLBACK;

-- what the saga has not sent is no command of it, whatever its headers say, and no producer can take the place of a command
CREATE FUNCTION t.forged(correlation integer, step text, direction text, round integer DEFAULT 1) RETURNS boolean LANGUAGE sql AS $$
	SELECT (outbox.enqueue('forged', '{}', 'work', headers => jsonb_build_object('saga_id', t.of(correlation), 'step', step, 'direction', direction, 'round', round))).created
$$;
BEGIN;
SELECT t.launch('order', 11);
SELECT t.forged(11, 'reserve', 'forward');
SELECT command FROM t.work();
SELECT t.try($$SELECT t.ok('forged')$$);
SELECT t.try($$SELECT t.bad('forged')$$);
SELECT attempt_no FROM t.held('forged') h, outbox.cancel(h.outbox_id, 'by a person', true) attempt_no;
SELECT * FROM t.handled;
SELECT outbox.replay(h.outbox_id) IS NOT NULL AS replayed FROM t.held('forged') h;
SELECT command FROM t.work();
SELECT t.try($$SELECT t.ok('forged')$$);
SELECT created FROM unnest('{work,saga_internal}'::text[]) q,
	outbox.enqueue('forged', '{}', q, aggregate_id => t.of(11)::text, idempotency_key => t.of(11) || '/charge/forward');
SELECT t.ok('reserve');
SELECT command FROM t.work();
SELECT m.event_type, m.idempotency_key FROM saga.steps s JOIN outbox.messages m ON m.outbox_id = s.command_id WHERE s.saga_id = t.of(11) AND s.step = 'charge';
SELECT t.over(11);
SELECT action, n FROM t.handled ORDER BY 1;
SELECT t.forged(11, 'charge', 'compensate');
SELECT command FROM t.work();
SELECT t.try($$SELECT t.ok('forged')$$);
-- of another round it changes nothing
SELECT t.forged(11, 'charge', 'compensate', 2);
SELECT command FROM t.work();
SELECT t.ok('forged');
SELECT * FROM t.show(11);
ROLLBACK;

-- what is neither
SELECT created FROM outbox.enqueue('something', '{}', 'saga_internal'),
	LATERAL (SELECT outbox.enqueue('outbox.dead_letter', '{}', 'saga_internal'), outbox.enqueue('saga.timeout', '{"saga_id": "x"}', 'saga_internal'),
		outbox.enqueue('saga.timeout', jsonb_build_object('saga_id', t.of(8), 'step', 'reserve', 'direction', 'forward', 'round', 99999999999), 'saga_internal')) x;
SELECT * FROM t.handled;
SELECT error_code, error_message FROM outbox.dead_letters WHERE queue = 'saga_internal' ORDER BY 1, 2;

-- ---------------------------------------------------------------- parallel steps
SELECT t.launch('trip', 20);
SELECT command FROM t.work();
SELECT t.ok('plan');
SELECT command FROM t.work();
SELECT t.ok('sleep', '{"room": 1}', '{"b": 1}');
SELECT count(*) FROM t.work();
SELECT * FROM t.show(20);
SELECT t.ok('fly', '{"seat": 2}', '{"a": 2}');
SELECT * FROM t.work();
SELECT t.ok('drive');
SELECT command FROM t.work();
SELECT t.ok('pay', '{}', '{"a": null, "b": 1}');
SELECT * FROM t.show(20);
SELECT * FROM t.audit(20);
-- one fails while another is at work
SELECT t.launch('trip', 21);
SELECT command FROM t.work();
SELECT t.ok('plan');
SELECT command FROM t.work();
SELECT t.bad('fly');
SELECT * FROM t.show(21);
SELECT t.ok('sleep', '{"room": 2}');
SELECT * FROM t.show(21);
SELECT command, payload FROM t.work();
SELECT t.ok('unsleep');
SELECT * FROM t.show(21);
-- an error without a word, while another is at work
BEGIN;
SELECT t.launch('trip', 22);
SELECT command FROM t.work();
SELECT t.ok('plan');
SELECT saga.reply(t.of(22), 'flight', false, error => '');
SELECT * FROM t.show(22);
ROLLBACK;
-- the saga has the deadline of what it still waits for
BEGIN;
SELECT saga.define('race', '[
	{"name": "hare", "command": "run", "queue": "work", "answer": "reply", "timeout": "1 h", "parallel_group": "g"},
	{"name": "tortoise", "command": "run", "queue": "work", "answer": "reply", "timeout": "1 day", "parallel_group": "g"},
	{"name": "judge", "command": "look", "queue": "work", "answer": "reply", "parallel_group": "g"}]');
SELECT t.launch('race', 23);
SELECT deadline - now() < interval '2 h' AS soon FROM saga.load(t.of(23));
SELECT saga.reply(t.of(23), 'hare', true);
SELECT deadline - now() < interval '2 h' AS soon FROM saga.load(t.of(23));
SELECT saga.reply(t.of(23), 'tortoise', true);
SELECT deadline - now() < interval '2 h' AS soon FROM saga.load(t.of(23));
ROLLBACK;

-- ---------------------------------------------------------------- replies
SELECT saga.define('mail', '[
	{"name": "print", "command": "print", "queue": "work", "compensation": "burn", "answer": "reply", "timeout": "1 h"},
	{"name": "post", "command": "post", "queue": "work", "answer": "reply"}]');
SELECT t.launch('mail', 30);
SELECT command FROM t.work();
SELECT t.delivered('print');
SELECT t.try($$SELECT saga.reply(t.of(30), 'post', true)$$);
SELECT t.try($$SELECT saga.reply(t.of(30), 'print', true, direction => 'back')$$);
SELECT saga.reply(t.of(30), 'print', true, '{"pages": 3}');
SELECT saga.reply(t.of(30), 'print', true, '{"pages": 3}');
SELECT saga.reply(t.of(30), 'print', false, error => 'paper jam');
SELECT saga.reply(t.of(30), 'print', true, direction => 'compensate');
SELECT * FROM t.show(30);
SELECT command FROM t.work();
SELECT saga.reply(t.of(30), 'post', false, error => 'no stamp');
SELECT saga.reply(t.of(30), 'print', true, '{"pages": 3}');
SELECT * FROM t.show(30);
SELECT saga_type, status, sagas, overdue, unchanged_since > now() - interval '1 h' AS changed FROM saga.stats WHERE saga_type IN ('mail', 'stuck') ORDER BY 1;
BEGIN;
UPDATE saga.instances SET saga_type = E'"\\\n' WHERE saga_type = 'stuck';
SELECT t.over(30);
UPDATE saga.instances SET deadline = now() - interval '1 s' WHERE id = t.of(30);
SELECT regexp_replace(line, '(unchanged_seconds.* )([1-9]|0\.)[0-9.]*$', '\1<n>') AS line FROM string_to_table(saga.prometheus(), E'\n') line WHERE line !~ '^#';
ROLLBACK;
-- its compensation is not answered in time, then it is
SELECT t.over(30);
SELECT * FROM t.handled;
SELECT * FROM t.show(30);
SELECT saga.reply(t.of(30), 'print', true, direction => 'compensate', round => 2);
SELECT status FROM saga.steps WHERE saga_id = t.of(30) AND step = 'print';
SELECT saga.reply(t.of(30), 'print', true, direction => 'compensate', round => 1);
SELECT saga.reply(t.of(30), 'print', true, direction => 'compensate');
SELECT * FROM t.show(30);
SELECT * FROM t.audit(30);

-- a definition that was rolled back, and another with its number
BEGIN;
SELECT saga.define('again', '[{"name": "one", "command": "one", "queue": "work"}]');
SELECT t.launch('again', 40);
SELECT current_step FROM saga.load(t.of(40));
ROLLBACK;
SELECT saga.define('again', '[{"name": "two", "command": "two", "queue": "work"}]');
BEGIN;
SELECT t.launch('again', 40);
SELECT current_step FROM saga.load(t.of(40));
ROLLBACK;
-- a timeout that is longer than what a message may be delayed by now
BEGIN;
SET LOCAL outbox.max_delay = '1 min';
SELECT t.launch('mail', 42);
SELECT i.deadline > now() + interval '30 min' AS deadline, m.event_type, p.next_attempt_at < now() + interval '2 min' AS early
FROM saga.instances i, outbox.messages m JOIN outbox.pending p USING (outbox_id)
WHERE i.id = t.of(42) AND m.queue = 'saga_internal' AND m.aggregate_id = i.id::text;
ROLLBACK;
-- an error that is not about the message is tried again, whatever its SQLSTATE
BEGIN;
SELECT t.launch('mail', 43);
CREATE FUNCTION t.picky(payload jsonb, headers jsonb, routing_key text) RETURNS text LANGUAGE plpgsql AS $$BEGIN RETURN 'x'::integer::text; END$$;
SELECT outbox.alter_queue('work', validator => 't.picky');
SELECT t.over(43);
SELECT action FROM t.handled WHERE action = 'handler failed';
SELECT attempt_count FROM outbox.pending WHERE queue = 'saga_internal' AND partition_key = t.of(43)::text;
SELECT outbox.alter_queue('work', validator => '');
DROP INDEX saga.steps_uncompensated;
SELECT t.over(43);
SELECT action FROM t.handled WHERE action = 'handler failed';
SELECT attempt_count FROM outbox.pending WHERE queue = 'saga_internal' AND partition_key = t.of(43)::text;
SELECT error_code FROM outbox.attempts WHERE outbox_id = (SELECT outbox_id FROM outbox.pending WHERE queue = 'saga_internal' AND partition_key = t.of(43)::text) ORDER BY attempt_no;
ROLLBACK;
-- a command that was completed without a word: a person answers
BEGIN;
SELECT t.launch('order', 44);
SELECT command FROM t.work();
SELECT recorded FROM t.held('reserve') h, outbox.complete(h.outbox_id, h.lease_token, 'w', 'DISPATCHED');
SELECT t.try($$SELECT t.ok('reserve')$$);
SELECT * FROM t.show(44);
SELECT saga.reply(t.of(44), 'reserve', true);
SELECT * FROM t.show(44);
ROLLBACK;
-- in a handler
BEGIN;
CREATE FUNCTION t.participant(message outbox.claimed) RETURNS void LANGUAGE sql AS $$
	SELECT saga.reply((message.headers ->> 'saga_id')::uuid, message.headers ->> 'step', message.event_type <> 'last',
		direction => message.headers ->> 'direction', round => (message.headers ->> 'round')::integer)
$$;
SELECT outbox.create_queue('inside', handler => 't.participant');
SELECT saga.define('inside', '[{"name": "a", "command": "first", "queue": "inside", "compensation": "undo", "answer": "reply"},
	{"name": "b", "command": "last", "queue": "inside", "answer": "reply"}]');
SELECT t.launch('inside', 45);
SELECT count(*) > 0 AS handled FROM outbox.maintain();
SELECT count(*) > 0 AS handled FROM outbox.maintain();
SELECT count(*) > 0 AS handled FROM outbox.maintain();
SELECT * FROM t.show(45);
ROLLBACK;
-- states that are stored apart
SELECT string_agg(md5(n::text), '') AS long FROM generate_series(1, 1000) n \gset
BEGIN;
SELECT t.launch('order', 41, jsonb_build_object('long', :'long'));
SELECT count(*) FROM t.work();
SELECT t.ok('reserve', to_jsonb(:'long'::text), '{"more": 1}');
SELECT version, old_state = jsonb_build_object('long', :'long') AS old, new_state = jsonb_build_object('long', :'long') AS new,
	new_state = jsonb_build_object('long', :'long', 'more', 1) AS more FROM saga.audit_log WHERE saga_id = t.of(41) ORDER BY version;
SELECT payload = jsonb_build_object('state', jsonb_build_object('long', :'long', 'more', 1), 'results', jsonb_build_object('reserve', :'long'::text)) AS payload
FROM outbox.messages WHERE event_type = 'charge' AND aggregate_id = t.of(41)::text;
SELECT state = jsonb_build_object('long', :'long', 'more', 1) AS state FROM saga.load(t.of(41));
ROLLBACK;

-- bad arguments
SELECT t.try(s) FROM (VALUES ($$SELECT saga.start(NULL, NULL)$$), ($$SELECT saga.start('mail', NULL, '[]')$$), ($$SELECT saga.start('mail', NULL, headers => NULL)$$),
	($$SELECT saga.succeed(NULL, gen_random_uuid(), 'w')$$), ($$SELECT saga.succeed(gen_random_uuid(), gen_random_uuid(), 'w')$$), ($$SELECT saga.succeed(gen_random_uuid(), gen_random_uuid(), 'w', '{}', '[]')$$),
	($$SELECT saga.fail(gen_random_uuid(), NULL, 'w', 'c', 'm')$$), ($$SELECT saga.fail(gen_random_uuid(), gen_random_uuid(), 'w', 'c', 'm')$$),
	($$SELECT saga.reply(NULL, 'x', true)$$), ($$SELECT saga.reply(gen_random_uuid(), 'x', true)$$), ($$SELECT saga.abort(t.of(30), '')$$), ($$SELECT saga.retry(gen_random_uuid())$$),
	($$SELECT saga.succeed((SELECT outbox_id FROM outbox.messages WHERE event_type = 'something'), gen_random_uuid(), 'w')$$)) v(s);
SELECT t.try($$SELECT saga.start('mail', NULL, idempotency_key => '')$$);
SELECT * FROM t.wrong;
-- texts are kept as the ledger keeps them
BEGIN;
SELECT saga.start('mail', NULL) AS long_error \gset
SELECT saga.abort(:'long_error', repeat('ä', 10000));
SELECT octet_length(last_error), right(last_error, 19) FROM saga.instances WHERE id = :'long_error';
SELECT max(octet_length(metadata::text)) < 9000 AS short FROM saga.audit_log WHERE saga_id = :'long_error';
ROLLBACK;

-- outbox.check() knows it
SELECT severity, object, problem FROM outbox.check() WHERE severity = 'error' OR object ~ 'saga';
BEGIN;
ALTER TABLE saga.audit_log DISABLE TRIGGER append_only;
ALTER TABLE saga.steps DISABLE TRIGGER ALL;
GRANT INSERT ON saga.instances TO outbox_saga;
ALTER FUNCTION saga.handle OWNER TO outbox_owner;
SELECT severity, object, problem FROM outbox.check() WHERE severity = 'error' OR object ~ 'saga';
ROLLBACK;
-- it comes and goes; its queue stays
DROP VIEW t.wrong;
DROP EXTENSION outbox_saga;
SELECT severity, object, problem FROM outbox.check() WHERE object ~ 'saga';
CREATE EXTENSION outbox_saga;
SELECT severity, object, problem FROM outbox.check() WHERE object ~ 'saga';
-- what the session remembers of its definitions is gone
SELECT saga.define('again', '[{"name": "three", "command": "three", "queue": "work"}]');
SELECT t.launch('again', 40);
SELECT current_step FROM saga.load(t.of(40));
