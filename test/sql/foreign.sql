--
-- What users add to the tables. Triggers, rules, row level security and the like,
-- which direct access cannot honour, are refused with 0A000 and nothing is written;
-- indexes, CHECK, NOT NULL and columns of the user's own are kept up.
--
\set undated
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

CREATE EXTENSION IF NOT EXISTS amcheck;
SELECT outbox.create_queue('n', ordering => 'numbered', repair_delay => '0');
CREATE FUNCTION t.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE 'fired';
	RETURN COALESCE(new, old);
END
$$;

-- The same calls under each obstacle: what each says, and that a refused one
-- changed nothing. Everything is undone.
CREATE FUNCTION t.fingerprint() RETURNS text LANGUAGE sql AS $$
	SELECT md5(string_agg(x, '|' ORDER BY x)) FROM (
		SELECT md5(m::text) FROM outbox.messages m UNION ALL SELECT md5(a::text) FROM outbox.attempts a
		UNION ALL SELECT md5(p::text) FROM outbox.pending p UNION ALL SELECT md5(k::text) FROM outbox.idempotency_keys k
		UNION ALL SELECT md5(n::text) FROM outbox.key_numbers n UNION ALL SELECT md5(r::text) FROM outbox.replays r
		UNION ALL SELECT md5(q::text) FROM outbox.queues q) y(x)
$$;
CREATE FUNCTION t.tried(obstacle text) RETURNS TABLE (verb text, outcome text) LANGUAGE plpgsql SET client_min_messages = error AS $$
DECLARE
	call text;
	message text;
	before text;
BEGIN
	BEGIN
		EXECUTE obstacle;
		FOR verb, call IN VALUES
			('enqueue', $v$SELECT outbox.enqueue('x', '1', 'n', partition_key => 'k', idempotency_key => 'x')$v$),
			('enqueue_batch', $v$SELECT outbox.enqueue_batch('n', '[{"event_type": "x", "payload": 1}, {"event_type": "y", "payload": 1}]')$v$),
			('enqueue_and_claim', $v$SELECT outbox.enqueue_and_claim('w', 'x', '1', 'n')$v$),
			('claim', $v$SELECT outbox.claim('w', 1)$v$),
			('claim of an expired one', $v$SELECT outbox.claim('w', 1, queues => '{n}')$v$),
			('complete', $v$SELECT outbox.complete(t.id('leased'), t.token('leased'), 'w', 'DISPATCHED')$v$),
			('complete for a retry', $v$SELECT outbox.complete(t.id('leased'), t.token('leased'), 'w', 'RETRYABLE')$v$),
			('complete_batch', $v$SELECT outbox.complete_batch('w', ARRAY[t.id('leased')], ARRAY[t.token('leased')], '{FAILED}')$v$),
			('renew', $v$SELECT outbox.renew('w', ARRAY[t.id('leased')], ARRAY[t.token('leased')], '1 h')$v$),
			('release', $v$SELECT outbox.release('w', ARRAY[t.id('leased')], ARRAY[t.token('leased')])$v$),
			('repair', $v$SELECT outbox.repair_expired_leases()$v$),
			('cancel', $v$SELECT outbox.cancel(t.id('due'), 'r')$v$),
			('replay', $v$SELECT outbox.replay(t.id('dead'))$v$)
		LOOP
			before := t.fingerprint();
			BEGIN
				EXECUTE call;
				outcome := CASE WHEN t.fingerprint() = before THEN 'did nothing' ELSE 'works' END;
				RAISE EXCEPTION USING ERRCODE = 'UNDO0';
			EXCEPTION
				WHEN SQLSTATE 'UNDO0' THEN
					NULL;
				WHEN OTHERS THEN
					GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
					outcome := SQLSTATE || ' ' || t.masked(message);
			END;
			IF t.fingerprint() <> before THEN
				outcome := outcome || ' AND CHANGED SOMETHING';
			END IF;
			RETURN NEXT;
		END LOOP;
		RAISE EXCEPTION USING ERRCODE = 'UNDO0';
	EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
		NULL;
	END;
END
$$;
CREATE FUNCTION t.under(obstacle text) RETURNS TABLE (outcome text, verbs text) LANGUAGE sql AS $$
	SELECT outcome, string_agg(verb, ', ' ORDER BY n) FROM t.tried(obstacle) WITH ORDINALITY t(verb, outcome, n) GROUP BY 1 ORDER BY min(n)
$$;
SELECT created FROM outbox.enqueue('due', '1');
SELECT m, e.created FROM (VALUES ('leased'), ('expired')) v(m), LATERAL outbox.enqueue_and_claim('w', m, '1', 'n') e;
SELECT t.expire('expired');
SELECT recorded FROM outbox.enqueue_and_claim('w', 'dead', '1') e, LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', 'FAILED');
\pset format unaligned
SELECT * FROM t.under('SELECT 1');

-- Triggers of users: row and statement, before and after, on leaves and on parents,
-- for one role or another, with a condition; constraint triggers; foreign keys.
SELECT * FROM t.under('CREATE TRIGGER mine BEFORE INSERT ON outbox.pending FOR EACH ROW EXECUTE FUNCTION t.note()');
SELECT * FROM t.under('CREATE TRIGGER mine AFTER UPDATE ON outbox.pending FOR EACH ROW EXECUTE FUNCTION t.note()');
SELECT * FROM t.under('CREATE TRIGGER mine AFTER DELETE ON outbox.pending FOR EACH STATEMENT EXECUTE FUNCTION t.note()');
SELECT * FROM t.under('CREATE TRIGGER mine AFTER INSERT ON outbox.messages FOR EACH ROW EXECUTE FUNCTION t.note()');
SELECT * FROM t.under('CREATE TRIGGER mine AFTER INSERT ON outbox.messages FOR EACH STATEMENT EXECUTE FUNCTION t.note()');
SELECT * FROM t.under('CREATE TRIGGER mine AFTER INSERT ON outbox.messages_default FOR EACH ROW WHEN (new.queue = ''nobody'') EXECUTE FUNCTION t.note()');
SELECT * FROM t.under('CREATE TRIGGER mine BEFORE INSERT ON outbox.attempts FOR EACH ROW EXECUTE FUNCTION t.note()');
SELECT * FROM t.under('CREATE CONSTRAINT TRIGGER mine AFTER INSERT ON outbox.attempts_default DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION t.note()');
SELECT * FROM t.under('CREATE TRIGGER mine BEFORE INSERT ON outbox.idempotency_keys FOR EACH ROW EXECUTE FUNCTION t.note()');
SELECT * FROM t.under('CREATE TRIGGER mine BEFORE INSERT ON outbox.key_numbers FOR EACH ROW EXECUTE FUNCTION t.note()');
SELECT * FROM t.under('CREATE TRIGGER mine BEFORE INSERT ON outbox.replays FOR EACH ROW EXECUTE FUNCTION t.note()');
-- Of a function of ours, or under the name of our trigger, too: neither alone makes it ours.
SELECT * FROM t.under('CREATE TRIGGER mine AFTER INSERT ON outbox.pending FOR EACH ROW EXECUTE FUNCTION outbox.pending_changed()');
SELECT * FROM t.under('DROP TRIGGER pending_changed ON outbox.pending; CREATE TRIGGER pending_changed AFTER DELETE ON outbox.pending FOR EACH ROW EXECUTE FUNCTION t.note()');
SELECT * FROM t.under('CREATE FUNCTION outbox.note() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN RAISE NOTICE ''fired''; RETURN new; END $f$; CREATE TRIGGER mine BEFORE INSERT ON outbox.pending FOR EACH ROW EXECUTE FUNCTION outbox.note()');
SELECT * FROM t.under('CREATE TABLE t.refers (id uuid REFERENCES outbox.pending)');
SELECT * FROM t.under('CREATE TABLE t.kinds (k text PRIMARY KEY); ALTER TABLE outbox.messages_default ADD FOREIGN KEY (aggregate_type) REFERENCES t.kinds');

-- Rules and row level security, on leaves and on parents.
SELECT * FROM t.under('CREATE RULE mine AS ON INSERT TO outbox.pending DO ALSO NOTIFY mine');
SELECT * FROM t.under('CREATE RULE mine AS ON DELETE TO outbox.pending DO INSTEAD NOTHING');
SELECT * FROM t.under('CREATE RULE mine AS ON INSERT TO outbox.messages DO INSTEAD NOTHING');
SELECT * FROM t.under('CREATE RULE mine AS ON INSERT TO outbox.attempts_default DO ALSO NOTIFY mine');
SELECT * FROM t.under('ALTER TABLE outbox.pending ENABLE ROW LEVEL SECURITY');
SELECT * FROM t.under('ALTER TABLE outbox.messages ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY');
SELECT * FROM t.under('ALTER TABLE outbox.attempts_default ENABLE ROW LEVEL SECURITY');

-- Constraints that need the executor.
SELECT * FROM t.under('ALTER TABLE outbox.attempts_default ADD UNIQUE (reference) DEFERRABLE INITIALLY DEFERRED');
SELECT * FROM t.under('ALTER TABLE outbox.messages_default ADD EXCLUDE USING hash (aggregate_id WITH =)');

-- Code of users, which would run as the owner of the tables, in a CHECK, a default, a generated
-- column, a key or a predicate of an index, an operator class, a domain; in SQL, which the
-- server would write out, too; functions of the server that read or run something.
CREATE FUNCTION t.same(x text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN x; END';
CREATE FUNCTION t.sql_same(x text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT x';
CREATE FUNCTION t.is_some(x text, y text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN true; END';
CREATE OPERATOR t.~~~ (LEFTARG = text, RIGHTARG = text, FUNCTION = t.is_some);
CREATE FUNCTION t.less(x text, y text) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN bttextcmp(x, y); END';
CREATE OPERATOR CLASS t.text_ops FOR TYPE text USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 t.less(text, text);
CREATE DOMAIN t.short AS text CHECK (t.same(VALUE) <> '');
CREATE DOMAIN t.any_text AS text;
CREATE TYPE t.mood AS ENUM ('fine', 'bad');
CREATE TYPE t.pair AS (a int, b text);
SELECT * FROM t.under('ALTER TABLE outbox.messages ADD CHECK (t.same(event_type) <> ''nothing'')');
SELECT * FROM t.under('ALTER TABLE outbox.messages ADD CHECK (t.sql_same(event_type) <> ''nothing'')');
SELECT * FROM t.under('ALTER TABLE outbox.pending ADD CHECK (queue OPERATOR(t.~~~) ''x'')');
SELECT * FROM t.under('ALTER TABLE outbox.pending ADD CHECK (CASE WHEN priority > 3 THEN ARRAY[t.same(queue)] IS NOT NULL ELSE true END)');
SELECT * FROM t.under('ALTER TABLE outbox.attempts_default ADD CHECK (set_config(''mine.id'', outbox_id::text, false) <> '''')');
SELECT * FROM t.under('ALTER TABLE outbox.pending ADD CHECK ((1, queue)::t.pair IS NOT NULL)');
SELECT * FROM t.under('ALTER TABLE outbox.messages ADD mine text DEFAULT t.same(''x'')');
SELECT * FROM t.under('ALTER TABLE outbox.pending ADD mine text GENERATED ALWAYS AS (t.sql_same(queue)) STORED');
SELECT * FROM t.under('ALTER TABLE outbox.pending ADD mine t.short');
SELECT * FROM t.under('ALTER TABLE outbox.pending ADD mine t.any_text');
SELECT * FROM t.under('ALTER TABLE outbox.pending ADD mine t.mood DEFAULT ''fine''');
SELECT * FROM t.under('ALTER TABLE outbox.pending ADD mine t.mood DEFAULT ''fine'' CHECK (mine <> ''bad'' AND mine IN (''fine'', ''bad''))');
SELECT * FROM t.under('CREATE INDEX mine ON outbox.pending (t.same(queue))');
SELECT * FROM t.under('CREATE INDEX mine ON outbox.pending (queue) WHERE t.sql_same(queue) <> ''''');
SELECT * FROM t.under('CREATE INDEX mine ON outbox.pending (queue t.text_ops)');
SELECT * FROM t.under('CREATE INDEX mine ON outbox.idempotency_keys (t.same(queue))');
SELECT * FROM t.under('CREATE INDEX mine ON outbox.key_numbers (t.same(queue))');
SELECT * FROM t.under('CREATE INDEX mine ON outbox.replays (t.same(replay_id::text))');
SELECT * FROM t.under('ALTER TABLE outbox.attempts_default ADD CHECK (created_at < created_at + interval ''1 day'' AND created_at > ''2020-01-01'' AND lower(worker_id) <> ''nobody'')');
CREATE FUNCTION t.problems_of(obstacle text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	found text;
BEGIN
	EXECUTE obstacle;
	found := (SELECT string_agg(object || ' ' || problem, E'\n' ORDER BY object, problem) FROM outbox.check() WHERE severity = 'error');
	RAISE EXCEPTION USING ERRCODE = 'UNDO0';
EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
	RETURN found;
END
$$;
SELECT t.problems_of('ALTER TABLE outbox.messages ADD mine t.short, ADD CHECK (t.same(event_type) <> ''nothing''); CREATE INDEX mine ON outbox.pending (queue t.text_ops)');

-- A column whose type was changed is not written as if it were of the old one.
SELECT left(outcome, 5) AS outcome, verbs FROM t.under('ALTER TABLE outbox.pending ALTER lease_token TYPE text');

-- With the obstacle gone, in the same session, everything works.
SELECT * FROM t.under('SELECT 1');
\pset format aligned

-- Indexes of the user's own, on every table, plain, of an expression, partial,
-- covering, not a B-tree: kept up by every verb.
CREATE INDEX mine_m1 ON outbox.messages_default ((payload ->> 'n'), aggregate_id);
CREATE INDEX mine_m2 ON outbox.messages_default USING gin (headers);
CREATE INDEX mine_m3 ON outbox.messages_default USING hash (event_type);
CREATE INDEX mine_m4 ON outbox.messages_default (lower(event_type)) WHERE aggregate_id IS NOT NULL;
CREATE INDEX mine_m5 ON outbox.messages_default USING brin (created_at);
CREATE INDEX mine_p1 ON outbox.pending (claimed_by) INCLUDE (attempt_count);
CREATE INDEX mine_p2 ON outbox.pending (lease_token) WHERE lease_token IS NOT NULL;
CREATE INDEX mine_p3 ON outbox.pending (next_attempt_at, attempt_count);
CREATE INDEX mine_a1 ON outbox.attempts_default (worker_id, state);
CREATE INDEX mine_a2 ON outbox.attempts_default (upper(error_code)) WHERE state = 'RETRYABLE';
CREATE INDEX mine_k1 ON outbox.idempotency_keys (queue);
CREATE INDEX mine_n1 ON outbox.key_numbers (outbox_id);
CREATE INDEX mine_r1 ON outbox.replays (replay_id);
CREATE INDEX mine_q1 ON outbox.queues (paused);
SELECT count(*) FROM generate_series(1, 30) g, outbox.enqueue('i' || g, jsonb_build_object('n', g), 'n', aggregate_id => CASE WHEN g % 2 = 0 THEN 'agg' || g END,
	partition_key => 'p' || g % 3, idempotency_key => 'i' || g, headers => jsonb_build_object('h', g));
SELECT count(*) FROM outbox.enqueue_batch('n', (SELECT jsonb_agg(jsonb_build_object('event_type', 'b' || g, 'payload', jsonb_build_object('n', g), 'aggregate_id', g::text, 'partition_key', 'p')) FROM generate_series(1, 30) g));
SELECT count(*) FROM outbox.enqueue_and_claim('w', 'c1', '{"n": 1}', 'n');
SELECT count(*) FROM outbox.claim('w1', 40, queues => '{n}');
CREATE FUNCTION t.held(worker text, n int, OUT ids uuid[], OUT tokens uuid[]) LANGUAGE sql AS $$
	SELECT array_agg(outbox_id), array_agg(lease_token)
	FROM (SELECT outbox_id, lease_token FROM outbox.pending WHERE claimed_by = worker ORDER BY outbox_id LIMIT n) p
$$;
SELECT count(*) FROM t.held('w1', 40) h, LATERAL outbox.renew('w1', ids, tokens, '1 h') r WHERE error IS NULL;
SELECT count(*) FROM t.held('w1', 12) h, LATERAL outbox.complete_batch('w1', ids, tokens, array_fill('RETRYABLE'::outbox.attempt_state, '{12}'), error_codes => array_fill('e'::text, '{12}')) r WHERE error IS NULL;
SELECT count(*) FROM t.held('w1', 5) h, unnest(ids, tokens) i(id, token), LATERAL outbox.complete(id, token, 'w1', 'FAILED');
SELECT count(*) FROM t.held('w1', 5) h, LATERAL outbox.release('w1', ids, tokens) r WHERE error IS NULL;
UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE claimed_by = 'w1';
SELECT count(*) > 0 AS repaired FROM outbox.repair_expired_leases(3);
SELECT count(*) > 0 AS claimed FROM outbox.claim('w2', 100, queues => '{n}');
SELECT count(outbox.cancel(id, 'r', true)) FROM t.held('w2', 3) h, unnest(ids) id;
SELECT count(outbox.replay(outbox_id)) FROM (SELECT outbox_id FROM outbox.dead_letters WHERE error_code = 'CANCELLED' ORDER BY 1 LIMIT 3) d;
-- B-trees: every row is in them. The others: the same answer with and without.
SELECT c.relname, bt_index_check(c.oid, true) FROM pg_class c JOIN pg_am a ON a.oid = c.relam
WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'i' AND a.amname = 'btree' AND (c.relname LIKE 'mine%' OR c.relname LIKE '%pkey' OR c.relname LIKE 'pending%' OR c.relname LIKE '%terminal%') ORDER BY 1;
CREATE FUNCTION t.agree(query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	by_index bigint;
	by_scan bigint;
BEGIN
	PERFORM set_config('enable_seqscan', 'off', true), set_config('enable_indexscan', 'on', true), set_config('enable_bitmapscan', 'on', true);
	EXECUTE query INTO by_index;
	PERFORM set_config('enable_seqscan', 'on', true), set_config('enable_indexscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_indexonlyscan', 'off', true);
	EXECUTE query INTO by_scan;
	RETURN by_index = by_scan AND by_scan > 0;
END
$$;
SELECT t.agree(q) FROM (VALUES
	($$SELECT count(*) FROM outbox.messages_default WHERE headers @> '{"h": 7}'$$),
	($$SELECT count(*) FROM outbox.messages_default WHERE event_type = 'i7'$$),
	($$SELECT count(*) FROM outbox.messages_default WHERE created_at > now() - interval '1 h'$$),
	($$SELECT count(*) FROM outbox.messages_default WHERE lower(event_type) = 'b7' AND aggregate_id IS NOT NULL$$),
	($$SELECT count(*) FROM outbox.messages_default WHERE payload ->> 'n' = '7'$$),
	($$SELECT count(*) FROM outbox.pending WHERE claimed_by = 'w2'$$),
	($$SELECT count(*) FROM outbox.attempts_default WHERE upper(error_code) = 'E' AND state = 'RETRYABLE'$$)) v(q);
DO $$
DECLARE
	i regclass;
BEGIN
	FOR i IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'i' AND c.relname LIKE 'mine%' LOOP
		EXECUTE 'DROP INDEX ' || i;
	END LOOP;
END
$$;

-- Unique ones are respected: 23505, and nothing half done.
SELECT count(*) AS messages, t.fingerprint() AS fingerprint FROM outbox.messages \gset
CREATE UNIQUE INDEX mine ON outbox.messages_default (aggregate_type, aggregate_id) WHERE aggregate_type = 'once';
SELECT created FROM outbox.enqueue('u1', '1', aggregate_type => 'once', aggregate_id => 'a');
SELECT created FROM outbox.enqueue('u2', '1', aggregate_type => 'once', aggregate_id => 'a');
\echo :SQLSTATE
SELECT t.try($$SELECT outbox.enqueue_batch('default', '[{"event_type": "u3", "payload": 1}, {"event_type": "u4", "payload": 1, "aggregate_type": "once", "aggregate_id": "a"}]')$$);
SELECT count(*) - :messages AS messages FROM outbox.messages;
DROP INDEX outbox.mine;
CREATE UNIQUE INDEX mine ON outbox.attempts_default (reference);
SELECT count(*) FROM generate_series(1, 4) g, outbox.enqueue_and_claim('w', 'r' || g, '1');
SELECT recorded FROM outbox.complete(t.id('r1'), t.token('r1'), 'w', 'DISPATCHED', reference => 'the same');
SELECT t.try($$SELECT outbox.complete(t.id('r2'), t.token('r2'), 'w', 'DISPATCHED', reference => 'the same')$$);
SELECT message, state FROM t.pending WHERE message = 'r2';
SELECT recorded FROM outbox.complete(t.id('r2'), t.token('r2'), 'w', 'DISPATCHED', reference => 'another');
DROP INDEX outbox.mine;

-- It fails the row that it concerns, no other.
BEGIN;
CREATE UNIQUE INDEX mine ON outbox.attempts_default (response_code);
SELECT count(*) FROM generate_series(1, 3) g, outbox.enqueue_and_claim('w', 'v' || g, '1');
SELECT recorded, error FROM outbox.complete_batch('w', ARRAY[t.id('v1'), t.id('v2'), t.id('v3')], ARRAY[t.token('v1'), t.token('v2'), t.token('v3')],
	array_fill('DISPATCHED'::outbox.attempt_state, '{3}'), response_codes => '{200, 200, 201}');
ROLLBACK;

-- What is ours is so by all of its definition, not by name or number: where all is ours, no
-- subtransaction is needed, whose number would be in the rows.
SELECT outbox.create_queue('mine');
CREATE FUNCTION t.confined() RETURNS TABLE (claimed boolean, completed boolean) LANGUAGE plpgsql AS $$
DECLARE
	top CONSTANT xid := pg_current_xact_id()::xid;
	c record;
BEGIN
	PERFORM outbox.enqueue('e', '1', 'mine');
	SELECT * INTO c FROM outbox.claim('w', 1, queues => '{mine}');
	SELECT p.xmin <> top INTO claimed FROM outbox.pending p WHERE p.outbox_id = c.outbox_id;
	PERFORM outbox.complete_batch('w', ARRAY[c.outbox_id], ARRAY[c.lease_token], '{DISPATCHED}');
	SELECT a.xmin <> top INTO completed FROM outbox.attempts a WHERE a.outbox_id = c.outbox_id;
	RETURN NEXT;
END
$$;
SELECT * FROM t.confined();
BEGIN;
ALTER INDEX outbox.pending_due SET (fillfactor = 50);
ALTER INDEX outbox.pending_lease SET (fillfactor = 50, deduplicate_items = off);
SELECT * FROM t.confined();
ROLLBACK;
BEGIN;
DROP INDEX outbox.attempts_default_failed;
CREATE INDEX "of USING btree (kind)" ON outbox.attempts_default (outbox_id) WHERE state = 'FAILED';
CREATE INDEX a_copy ON outbox.attempts_default (outbox_id) WHERE state = 'FAILED';
SELECT * FROM t.confined();
ROLLBACK;
-- An index of a user over columns that no verb changes refuses no change; any other may.
BEGIN;
CREATE INDEX mine ON outbox.pending (partition_key, sequence_id) INCLUDE (priority) WHERE queue = 'payment'::text AND lower(partition_key) <> '';
SELECT * FROM t.confined();
CREATE INDEX mine_too ON outbox.pending (attempt_count);
SELECT * FROM t.confined();
ROLLBACK;
BEGIN;
CREATE INDEX mine ON outbox.pending (outbox_id) WHERE claimed_by <> '';
SELECT * FROM t.confined();
ROLLBACK;
BEGIN;
CREATE UNIQUE INDEX mine ON outbox.pending (created_at, outbox_id);
SELECT * FROM t.confined();
ROLLBACK;

-- A CHECK of the user's own under the name of one of ours holds, too.
BEGIN;
ALTER TABLE outbox.pending DROP CONSTRAINT pending_priority, ADD CONSTRAINT pending_priority CHECK (priority < 5);
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.enqueue('e', '1', priority => 4)$$),
	($$SELECT outbox.enqueue('e', '1', priority => 5)$$)) v(s);
ROLLBACK;
BEGIN;
ALTER TABLE outbox.pending RENAME CONSTRAINT pending_priority TO of_the_same_kind;
SELECT * FROM t.confined();
ALTER TABLE outbox.pending ADD CONSTRAINT pending_priority CHECK (priority < 5);
SELECT * FROM t.confined();
ROLLBACK;

-- CHECK and NOT NULL of the user's own.
ALTER TABLE outbox.messages ADD CONSTRAINT has_amount CHECK (event_type <> 'pay' OR payload ? 'amount');
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.enqueue('pay', '{"amount": 1}')$$),
	($$SELECT outbox.enqueue('pay', '{}')$$),
	($$SELECT outbox.enqueue_batch('default', '[{"event_type": "pay", "payload": {"amount": 1}}, {"event_type": "pay", "payload": {}}]')$$)) v(s);
ALTER TABLE outbox.messages DROP CONSTRAINT has_amount;
SELECT t.lose($$outbox_id NOT IN (t.id('r3'), t.id('r4'))$$);
ALTER TABLE outbox.pending ADD CONSTRAINT few CHECK (attempt_count < 1);
ALTER TABLE outbox.pending ADD CONSTRAINT nobody CHECK (claimed_by <> 'nobody');
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.complete(t.id('r3'), t.token('r3'), 'w', 'RETRYABLE')$$),
	($$SELECT outbox.enqueue_and_claim('nobody', 'e', '1')$$),
	($$SELECT outbox.complete(t.id('r3'), t.token('r3'), 'w', 'DISPATCHED')$$)) v(s);
ALTER TABLE outbox.pending DROP CONSTRAINT few, DROP CONSTRAINT nobody;
-- The same for what earlier rows would violate, in a fresh database; and a column of
-- ours that must not be NULL any more.
\i :fresh
SELECT created FROM outbox.enqueue_and_claim('w', 'r4', '1');
ALTER TABLE outbox.attempts ADD CONSTRAINT says_why CHECK (state <> 'FAILED' OR error_code IS NOT NULL);
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.complete(t.id('r4'), t.token('r4'), 'w', 'FAILED')$$),
	($$SELECT outbox.complete(t.id('r4'), t.token('r4'), 'w', 'FAILED', error_code => 'e')$$)) v(s);
ALTER TABLE outbox.attempts DROP CONSTRAINT says_why;
SELECT error_code, count(*) FROM outbox.dead_letters GROUP BY 1;
\i :fresh
ALTER TABLE outbox.messages ALTER aggregate_id SET NOT NULL;
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.enqueue('e', '1', aggregate_id => 'a')$$),
	($$SELECT outbox.enqueue('e', '1')$$)) v(s);
ALTER TABLE outbox.messages ALTER aggregate_id DROP NOT NULL;
ALTER TABLE outbox.attempts ALTER reference SET NOT NULL;
SELECT created FROM outbox.enqueue_and_claim('w', 'nn', '1');
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.complete(t.id('nn'), t.token('nn'), 'w', 'DISPATCHED')$$),
	($$SELECT outbox.complete(t.id('nn'), t.token('nn'), 'w', 'DISPATCHED', 'ref')$$)) v(s);
ALTER TABLE outbox.attempts ALTER reference DROP NOT NULL;

-- Columns of the user's own: a default that is a constant, one that is computed for
-- each row, one of a sequence, a generated one, one without default; each indexed.
CREATE SEQUENCE t.s;
GRANT USAGE ON SCHEMA t TO outbox_owner;
GRANT USAGE ON SEQUENCE t.s TO outbox_owner;
SELECT created FROM outbox.enqueue('older', '1');
ALTER TABLE outbox.messages ADD mine_constant text DEFAULT 'constant', ADD mine_each text DEFAULT 'each ' || gen_random_uuid()::text,
	ADD mine_number bigint DEFAULT nextval('t.s'), ADD mine_generated text GENERATED ALWAYS AS (upper(event_type) || ' ' || queue) STORED, ADD mine_empty text;
ALTER TABLE outbox.attempts ADD mine_constant text DEFAULT 'constant', ADD mine_each text DEFAULT 'each ' || gen_random_uuid()::text,
	ADD mine_generated text GENERATED ALWAYS AS ('by ' || worker_id) STORED;
ALTER TABLE outbox.pending ADD mine_constant text DEFAULT 'constant', ADD mine_each text DEFAULT 'each ' || gen_random_uuid()::text,
	ADD mine_generated text GENERATED ALWAYS AS (coalesce(claimed_by, 'nobody') || attempt_count::text) STORED;
CREATE INDEX mine_1 ON outbox.messages_default (mine_each);
CREATE INDEX mine_2 ON outbox.messages_default (mine_generated, mine_constant);
CREATE INDEX mine_3 ON outbox.messages_default (mine_each, mine_number);
CREATE INDEX mine_4 ON outbox.attempts_default (mine_each);
CREATE INDEX mine_5 ON outbox.attempts_default (mine_each, mine_generated);
CREATE INDEX mine_6 ON outbox.pending (mine_each);
CREATE INDEX mine_7 ON outbox.pending (mine_each, mine_generated);
SELECT created FROM outbox.enqueue('younger', '1');
SELECT count(*) FROM outbox.enqueue_batch('default', (SELECT jsonb_agg(jsonb_build_object('event_type', 'batch' || g, 'payload', g)) FROM generate_series(1, 200) g));
SELECT event_type, mine_constant, left(mine_each, 5) AS each, mine_number, mine_generated, mine_empty FROM outbox.messages WHERE event_type LIKE '%er' ORDER BY 1;
SELECT count(DISTINCT mine_each), count(DISTINCT mine_number), count(DISTINCT mine_generated) FROM outbox.messages WHERE event_type LIKE 'batch%';
SELECT mine_generated, count(*), count(DISTINCT mine_each), min(mine_constant) FROM outbox.pending GROUP BY 1;
CREATE TABLE t.each AS SELECT outbox_id, mine_each FROM outbox.pending;
SELECT count(*) FROM outbox.claim('w', 150);
SELECT mine_generated, count(*), min(mine_constant) FROM outbox.pending GROUP BY 1 ORDER BY 1;
SELECT recorded, count(*)
FROM (SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens, array_agg((CASE WHEN n % 2 = 0 THEN 'RETRYABLE' ELSE 'DISPATCHED' END)::outbox.attempt_state) AS states
	FROM (SELECT outbox_id, lease_token, row_number() OVER (ORDER BY outbox_id) AS n FROM outbox.pending WHERE claimed_by = 'w') p WHERE n <= 60) p,
	LATERAL outbox.complete_batch('w', ids, tokens, states) GROUP BY 1 ORDER BY 1;
SELECT mine_generated, count(*), min(mine_constant) FROM outbox.pending GROUP BY 1 ORDER BY 1;
SELECT mine_generated, count(*), count(DISTINCT mine_each), min(mine_constant) FROM outbox.attempts WHERE mine_each IS NOT NULL AND mine_generated = 'by w' GROUP BY 1;
SELECT count(*) AS defaults_changed_by_updates FROM t.each e JOIN outbox.pending p USING (outbox_id) WHERE e.mine_each IS DISTINCT FROM p.mine_each;
SELECT c.relname, bt_index_check(c.oid, true) FROM pg_class c
WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'i' AND (c.relname LIKE 'mine%' OR c.relname LIKE 'pending%') ORDER BY 1;
-- NOT NULL without a default: refused for want of a value.
ALTER TABLE outbox.pending ADD mine_needed int NOT NULL DEFAULT 0;
ALTER TABLE outbox.pending ALTER mine_needed DROP DEFAULT;
SELECT t.try($$SELECT outbox.enqueue('e', '1')$$);
-- Dropped again: nothing of it remains, and everything works.
ALTER TABLE outbox.messages DROP mine_constant, DROP mine_each, DROP mine_number, DROP mine_generated, DROP mine_empty;
ALTER TABLE outbox.attempts DROP mine_constant, DROP mine_each, DROP mine_generated;
ALTER TABLE outbox.pending DROP mine_constant, DROP mine_each, DROP mine_generated, DROP mine_needed;
SELECT outbox.create_queue('n', ordering => 'numbered');
ALTER TABLE outbox.queues ADD mine text DEFAULT 'x', ADD gone int;
ALTER TABLE outbox.queues DROP gone;
ALTER TABLE outbox.idempotency_keys ADD mine timestamptz DEFAULT clock_timestamp();
ALTER TABLE outbox.key_numbers ADD gone int, ADD mine int DEFAULT 3;
ALTER TABLE outbox.key_numbers DROP gone;
ALTER TABLE outbox.replays ADD gone int;
ALTER TABLE outbox.replays DROP gone;
SELECT outbox.create_queue('after'), outbox.alter_queue('n', max_attempts => 2);
SELECT sequence_id, created FROM outbox.enqueue('a1', '{"v": 1}', 'n', 'type', 'id', 'key', 'once', NULL, '{"h": 1}', 'route', 3);
SELECT event_type, payload, aggregate_type, aggregate_id, partition_key, idempotency_key, headers, routing_key, priority FROM outbox.claim('w', queues => '{n}');
SELECT attempt_no, recorded FROM outbox.complete(t.id('a1'), t.token('a1'), 'w', 'RETRYABLE', 'ref', retry_delay => '0');
SELECT attempt_count FROM outbox.claim('w', queues => '{n}');
SELECT error FROM outbox.renew('w', ARRAY[t.id('a1')], ARRAY[t.token('a1')]);
SELECT attempt_no, recorded, error FROM outbox.complete_batch('w', ARRAY[t.id('a1')], ARRAY[t.token('a1')], '{RETRYABLE}');
SELECT event_type, error_code FROM outbox.dead_letters WHERE event_type = 'a1';
SELECT outbox.replay(t.id('a1')) AS replay \gset
SELECT sequence_id, payload FROM outbox.messages WHERE outbox_id = :'replay';
SELECT queue, mine, max_attempts FROM outbox.queues ORDER BY 1;
SELECT count(mine) FROM outbox.idempotency_keys;
SELECT count(mine) FROM outbox.key_numbers;
SELECT count(*) > 0 AS upkeep FROM outbox.maintain();
SELECT created FROM outbox.enqueue('last', '1');
