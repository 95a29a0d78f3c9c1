--
-- Retention: which pairs of leaves go, which stay and why, what remains of them; the
-- archive; keys that lapse. Proves that the ledger is never deleted from, that numbers go
-- on, and that a repeated enqueue is answered as before.
--
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS outbox CASCADE;
DROP SCHEMA IF EXISTS attic CASCADE;
DROP ROLE IF EXISTS regress_outbox_keeper;
CREATE EXTENSION outbox;
RESET client_min_messages;
\getenv testdir PG_ABS_SRCDIR
\set helpers :testdir /sql/setup.inc
\i :helpers
\set aging :testdir /sql/aging.inc
\i :aging

-- What maintain() did with old data.
CREATE FUNCTION t.did() RETURNS SETOF text LANGUAGE sql AS $$
	SELECT concat_ws(' | ', action, object, t.masked(detail)) FROM outbox.maintain() WHERE action <> 'notified'
$$;
CREATE FUNCTION t.finish(state outbox.attempt_state, VARIADIC types text[]) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM outbox.claim('w', 100, queues => '{default, n}') c
	CROSS JOIN LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', CASE WHEN c.event_type = ANY (types) THEN state ELSE 'RETRYABLE' END,
		retry_delay => CASE WHEN NOT c.event_type = ANY (types) THEN interval '0' END) r
	WHERE r.recorded <> 'RETRYABLE'
$$;
CREATE VIEW t.leaves AS
	SELECT c.oid::regclass AS leaf FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
	WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass, 'outbox.events'::regclass) AND relname ~ '_p20(19|20)';
-- The first weeks of leaves, before today's.
CREATE FUNCTION t.make_old_pairs() RETURNS void LANGUAGE sql AS $$
	SELECT t.make_pair('20200101', d - interval '42 days', d - interval '35 days') FROM date_trunc('day', now(), 'UTC') d;
	SELECT t.make_pair('20200108', d - interval '35 days', d - interval '28 days') FROM date_trunc('day', now(), 'UTC') d
$$;
SELECT count(*) > 0 AS upkeep FROM outbox.maintain();

-- What only a superuser can do.
CREATE FUNCTION t.without_guards(statement text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	CREATE OR REPLACE FUNCTION outbox.append_only() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN coalesce(NEW, OLD); END';
	EXECUTE statement;
	CREATE OR REPLACE FUNCTION outbox.append_only() RETURNS trigger LANGUAGE c AS 'outbox', 'outbox_append_only';
END
$$;
-- What was tried today, was tried long ago.
CREATE FUNCTION t.long_ago() RETURNS void LANGUAGE sql AS $$
	SELECT t.without_guards('UPDATE outbox.attempts SET created_at = created_at - interval ''37 days'' WHERE created_at > now() - interval ''1 day''')
$$;

-- The policy is the operator's to set, all of it at once, and for whoever reads to see.
CREATE ROLE regress_outbox_keeper IN ROLE outbox_operator;
SET ROLE regress_outbox_keeper;
SELECT outbox.set_retention('1 h', '2 h', 'attic');
SELECT keep, dead_letters, archive_schema FROM outbox.retention;
SELECT outbox.set_retention('3653 days');
SELECT keep, dead_letters, archive_schema FROM outbox.retention;
UPDATE outbox.retention SET keep = '1 s';
RESET ROLE;
SELECT has_function_privilege(r, 'outbox.set_retention(interval, interval, text)', 'EXECUTE') AS may, r FROM unnest(ARRAY['outbox_ingest', 'outbox_executor', 'outbox_operator', 'outbox_readonly']) r;
SELECT a, v, t.try(format('SELECT outbox.set_retention(%s => %L, %s => NULL)', a, v, CASE a WHEN 'keep' THEN 'dead_letters' ELSE 'keep' END)) FROM unnest(ARRAY['keep', 'dead_letters']) a, unnest(ARRAY['1 h', '59 min', '-1 day', '1 month', '3653 days 1 us', '2147483647 days', 'soon']) v ORDER BY a, v COLLATE "C";
SELECT t.try(format('SELECT outbox.set_retention(NULL, NULL, %L)', v)) FROM unnest(ARRAY['', 'attic', repeat('x', 64)]) v;
-- A schema that cannot take them is allowed, since it may come later, and check() says so meanwhile.
SELECT outbox.set_retention('1 h', archive_schema => 'At%tic');
SELECT problem FROM outbox.check() WHERE object = 'outbox.retention';
CREATE SCHEMA "At%tic";
SELECT problem FROM outbox.check() WHERE object = 'outbox.retention';
GRANT USAGE, CREATE ON SCHEMA "At%tic" TO outbox_owner;
SELECT problem FROM outbox.check() WHERE object = 'outbox.retention';
DROP SCHEMA "At%tic";
SELECT outbox.set_retention(NULL, archive_schema => 'At%tic');
SELECT problem FROM outbox.check() WHERE object = 'outbox.retention';
SELECT outbox.set_retention(NULL);
-- What the test sets one by one.
CREATE FUNCTION t.keep(keep interval) RETURNS void LANGUAGE sql AS 'SELECT outbox.set_retention($1, r.dead_letters, r.archive_schema) FROM outbox.retention r';
CREATE FUNCTION t.keep_dead(keep interval) RETURNS void LANGUAGE sql AS 'SELECT outbox.set_retention(r.keep, $1, r.archive_schema) FROM outbox.retention r';
CREATE FUNCTION t.keep_in(name text) RETURNS void LANGUAGE sql AS 'SELECT outbox.set_retention(r.keep, r.dead_letters, $1) FROM outbox.retention r';

-- Two old pairs. In the first: a numbered key that is quiet ever since, keys of both kinds,
-- a dead letter, and one that is late.
SELECT t.make_old_pairs();
SELECT outbox.create_queue('n', ordering => 'numbered');
SELECT event_type, e.* FROM unnest(ARRAY['a', 'b', 'c']) WITH ORDINALITY u(event_type, n), LATERAL (SELECT sequence_id, created FROM outbox.enqueue(event_type, '1', 'n', partition_key => 'quiet', idempotency_key => 'key ' || event_type)) e;
SELECT sequence_id, created FROM outbox.enqueue('event', '1', 'n', partition_key => 'quiet', event_id => '00000000-0000-4000-8000-000000000001');
SELECT sequence_id, created FROM outbox.enqueue('keyless', '1', 'n', partition_key => 'quiet');
SELECT sequence_id, created FROM outbox.enqueue('unnumbered', '1', idempotency_key => 'k');
SELECT t.finish('DISPATCHED', 'a', 'b', 'event', 'keyless', 'unnumbered');
SELECT t.let_pass('37 days');
SELECT tableoid::regclass, event_type, sequence_id FROM outbox.messages ORDER BY 2;
SELECT tableoid::regclass, outbox_id = t.id('a') AS a FROM outbox.attempts WHERE outbox_id = t.id('a');
INSERT INTO t.known SELECT outbox_id, event_type FROM outbox.messages;
CREATE TABLE t.first AS SELECT event_type, outbox_id, sequence_id FROM outbox.messages;

-- Nothing is set: nothing goes, nothing is said.
SELECT t.did();
-- A message is pending: its pair stays, the one after it goes.
SELECT t.keep('20 days');
SELECT t.did();
CREATE VIEW t.retired AS SELECT detail ->> 'partition' AS partition, regexp_replace(detail ->> 'done', '_p\d+_\d+', '_p<now>') AS done, queue FROM outbox.events WHERE event = 'PARTITION_RETIRED' ORDER BY event_id DESC LIMIT 1;
SELECT * FROM t.retired;
-- Not old enough: neither.
SELECT t.keep('36 days');
SELECT t.did();
SELECT t.keep('20 days');
-- Nor if the session took an index of somebody's for one that holds all that is pending: by the
-- caller's names, nothing is left out of it.
CREATE SCHEMA names;
CREATE FUNCTION names.exceeds(uuid, uuid) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 IS NOT NULL';
CREATE OPERATOR names.> (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = names.exceeds);
CREATE FUNCTION names.lower(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF current_user = 'outbox_owner' THEN
		RAISE NOTICE 'called as outbox_owner';
	END IF;
	RETURN 'the caller''s';
END
$$;
GRANT USAGE ON SCHEMA names, t TO outbox_owner;
CREATE FUNCTION t.is_new(x uuid) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$SELECT x > 'f0000000-0000-0000-0000-000000000000'$$;
CREATE FUNCTION t.norm(x text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT lower(x)';
-- So many that the smaller index is preferred.
INSERT INTO outbox.pending (outbox_id, queue) SELECT ('ef' || substr(gen_random_uuid()::text, 3))::uuid, 'n' FROM generate_series(1, 2000);
CREATE INDEX mine ON outbox.pending (outbox_id) WHERE t.is_new(outbox_id);
BEGIN;
SET LOCAL search_path = names, pg_catalog;
DO $$BEGIN EXECUTE 'EXPLAIN SELECT FROM outbox.pending'; END$$;
RESET search_path;
SET LOCAL enable_seqscan = off;
SELECT t.did();
ROLLBACK;
DROP INDEX outbox.mine;
SELECT t.lose($$outbox_id > 'ef000000-0000-0000-0000-000000000000'$$);
-- It is a dead letter now, and holds its own pair alone.
SELECT t.finish('FAILED', 'c');
SELECT t.did();
SELECT * FROM t.leaves ORDER BY leaf::text;
SELECT t.keep_dead('3 days');
SELECT t.did();
-- Acknowledged, it keeps the partition no longer, and goes with it.
BEGIN;
SELECT outbox.acknowledge_dead(t.id('c'), 'known') AS acknowledged;
SELECT t.long_ago();
SELECT t.did();
SELECT count(*) AS dead_letters FROM outbox.dead_letters;
ROLLBACK;
-- Rolled back, a replay does not count; committed, it does.
BEGIN;
SELECT outbox.replay(t.id('c')) IS NOT NULL AS replayed;
SELECT t.did();
ROLLBACK;
SELECT t.did();
SELECT outbox.replay(t.id('c')) IS NOT NULL AS replayed;
-- It died today: what has not ended long ago stays, however old it is.
SELECT t.did();
SELECT t.long_ago();
-- In a stricter transaction old data is left alone.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT t.did();
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT t.did();
COMMIT;
-- Nor does it write where code of users would run.
CREATE INDEX mine ON outbox.retired_numbers (t.norm(outbox_id::text));
CREATE DOMAIN t.code AS text;
ALTER TABLE outbox.retired_numbers ADD code t.code DEFAULT 'X';
ALTER DOMAIN t.code ADD CHECK (t.norm(VALUE) <> '');
BEGIN;
SET LOCAL search_path = names, pg_catalog;
SELECT 'x'::t.code;
DO $$BEGIN EXECUTE 'EXPLAIN SELECT FROM outbox.retired_numbers'; END$$;
RESET search_path;
SELECT t.did();
ROLLBACK;
DROP INDEX outbox.mine;
ALTER TABLE outbox.retired_numbers DROP code;
SET client_min_messages = warning;
DROP SCHEMA names CASCADE;
RESET client_min_messages;
-- Once there are seals, what is not sealed yet stays; what is goes, and the seals accept that.
BEGIN;
SELECT seal_no FROM outbox.seal();
SELECT t.without_guards($$UPDATE outbox.seals SET to_at = to_at - interval '60 days'$$);
SELECT t.did();
SELECT t.without_guards($$UPDATE outbox.seals SET to_at = (SELECT max(created_at) + interval '1 us' FROM outbox.messages WHERE tableoid = 'outbox.messages_p20200101'::regclass)$$);
SELECT t.did();
ROLLBACK;
BEGIN;
SELECT seal_no FROM outbox.seal();
SELECT t.did();
SELECT seal_no FROM outbox.seal();
SELECT * FROM outbox.verify_seals();
ROLLBACK;
-- ... also when the event that says so was retired as well.
BEGIN;
SELECT seal_no FROM outbox.seal();
SELECT t.did();
SELECT t.make_pair('20200115', d - interval '28 days', d - interval '21 days') FROM date_trunc('day', now(), 'UTC') d;
SELECT t.without_guards($$UPDATE outbox.events SET event_id = t.aged(event_id, '25 days') WHERE event = 'PARTITION_RETIRED' AND detail ? 'last_seal'$$);
SELECT seal_no FROM outbox.seal();
SELECT t.did();
SELECT seal_no FROM outbox.seal();
SELECT * FROM outbox.verify_seals();
SELECT detail ->> 'partition' AS partition, detail ->> 'last_seal' AS last_seal, detail ->> 'repeated' AS repeated FROM outbox.events
WHERE event = 'PARTITION_RETIRED' AND detail ? 'last_seal' ORDER BY event_id;
ROLLBACK;
-- Rolled back, it has not happened.
BEGIN;
SELECT t.did();
SELECT count(*) FROM t.leaves;
ROLLBACK;
-- Which subjects the messages had goes with them; of the replay it stays.
INSERT INTO outbox.subject_messages SELECT '00000000-0000-4000-8000-000000000002', outbox_id FROM outbox.messages;
SELECT * FROM t.leaves ORDER BY leaf::text;
SELECT t.did();
SELECT * FROM t.leaves ORDER BY leaf::text;
SELECT event_type, replay_of = (SELECT outbox_id FROM t.first WHERE event_type = 'c') AS replay FROM outbox.messages;
SELECT m.event_type FROM outbox.subject_messages s LEFT JOIN outbox.messages m USING (outbox_id);
DELETE FROM outbox.subject_messages;

-- What is remembered: the numbers that a repeated enqueue is told, and no other.
SELECT f.event_type, r.sequence_id, r.sequence_id = f.sequence_id AS the_same FROM outbox.retired_numbers r LEFT JOIN t.first f USING (outbox_id) ORDER BY 1;
SELECT f.event_type, e.outbox_id = f.outbox_id AS the_first, e.sequence_id IS NOT DISTINCT FROM f.sequence_id AS its_number, e.created
FROM t.first f CROSS JOIN LATERAL outbox.enqueue('again', '1', 'n', partition_key => 'quiet', idempotency_key => 'key ' || f.event_type) e WHERE f.event_type IN ('a', 'b', 'c') ORDER BY 1;
SELECT e.outbox_id = f.outbox_id AS the_first, e.sequence_id = f.sequence_id AS its_number, e.created
FROM t.first f, outbox.enqueue('again', '1', 'n', partition_key => 'quiet', event_id => '00000000-0000-4000-8000-000000000001') e WHERE f.event_type = 'event';
SELECT e.outbox_id = f.outbox_id AS the_first, e.sequence_id, e.created FROM t.first f, outbox.enqueue('again', '1', idempotency_key => 'k') e WHERE f.event_type = 'unnumbered';
SELECT e.ordinality, f.event_type, e.sequence_id, e.created
FROM outbox.enqueue_batch('n', '[{"event_type": "x", "payload": 1, "partition_key": "quiet", "idempotency_key": "key c"}, {"event_type": "x", "payload": 1, "partition_key": "quiet", "idempotency_key": "key a"}, {"event_type": "x", "payload": 1, "partition_key": "quiet", "idempotency_key": "key c"}]') e
JOIN t.first f USING (outbox_id) ORDER BY 1;
SELECT e.outbox_id = f.outbox_id AS the_first, e.sequence_id = f.sequence_id AS its_number, e.created, e.lease_token
FROM t.first f, outbox.enqueue_and_claim('w', 'again', '1', 'n', partition_key => 'quiet', idempotency_key => 'key b') e WHERE f.event_type = 'b';
-- The numbers of the key go on: 3 keys, an event_id, one without a key, the replay.
SELECT sequence_id, created FROM outbox.enqueue('new', '1', 'n', partition_key => 'quiet');
-- What is gone is no message any more.
SELECT f.event_type, t.try(format('SELECT outbox.replay(%L)', f.outbox_id)) AS replay, t.try(format('SELECT outbox.cancel(%L, ''r'')', f.outbox_id)) AS cancel
FROM t.first f WHERE f.event_type IN ('a', 'c') ORDER BY 1;
SELECT t.try(format('SELECT outbox.complete(%L, gen_random_uuid(), ''w'', ''DISPATCHED'')', f.outbox_id)) FROM t.first f WHERE f.event_type = 'a';
SELECT count(*) FROM outbox.dead_letters;
SELECT count(*) AS replays FROM outbox.replays;
SELECT * FROM outbox.check() WHERE severity = 'error';

-- Keys that lapse go, with the numbers that they led to; younger ones stay.
SELECT count(*) FROM outbox.idempotency_keys;
SET outbox.idempotency_window = '40 days';
SELECT t.did();
SET outbox.idempotency_window = '36 days';
SELECT created FROM outbox.enqueue('fresh', '1', idempotency_key => 'fresh');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT t.did();
COMMIT;
-- A key that somebody locks is passed by.
BEGIN;
SELECT count(*) FROM (SELECT 1 FROM outbox.idempotency_keys WHERE outbox_id = (SELECT outbox_id FROM t.first WHERE event_type = 'a') FOR UPDATE) k;
PREPARE TRANSACTION 'outbox retention';
SELECT t.did();
ROLLBACK PREPARED 'outbox retention';
SELECT t.did();
SELECT count(*) FROM outbox.idempotency_keys;
SELECT count(*) FROM outbox.retired_numbers;
SELECT created FROM outbox.enqueue('fresh', '1', idempotency_key => 'fresh');
-- The number of a message that no key leads to any more is not carried over.
SET outbox.idempotency_window = '10 days';
SELECT t.make_pair('20200101', d - interval '42 days', d - interval '35 days') FROM date_trunc('day', now(), 'UTC') d;
SELECT sequence_id, created FROM outbox.enqueue('lapses', '1', 'n', partition_key => 'p', idempotency_key => 'lapses');
SELECT t.finish('DISPATCHED', 'lapses', 'c', 'new', 'fresh');
SELECT t.let_pass('37 days');
SELECT t.did();
SELECT count(*) FROM outbox.retired_numbers;
SELECT sequence_id, created FROM outbox.enqueue('again', '1', 'n', partition_key => 'p', idempotency_key => 'lapses');
RESET outbox.idempotency_window;

-- The archive. Whatever is wrong with it is said, and stops nothing else.
SELECT t.keep_in('attic');
SELECT t.make_old_pairs();
SELECT t.finish('DISPATCHED', 'again');
SELECT count(*) FROM outbox.enqueue('kept for good', '1');
SELECT t.finish('DISPATCHED', 'kept for good');
SELECT t.let_pass('37 days');
SELECT t.did();
CREATE SCHEMA attic;
SELECT t.did();
GRANT USAGE, CREATE ON SCHEMA attic TO outbox_owner;
CREATE TABLE attic.attempts_p20200101 ();
SELECT t.did();
DROP TABLE attic.attempts_p20200101;
SELECT t.did();
SELECT * FROM t.leaves;
SELECT event_type FROM outbox.messages;
SELECT event_type, outbox_id IN (SELECT outbox_id FROM attic.attempts_p20200101 WHERE state = 'DISPATCHED') AS ended FROM attic.messages_p20200101 ORDER BY 1;
-- It is as append-only as it was, with its indexes and comments.
SELECT c.relname, t.try(format(s, c.oid::regclass)) FROM pg_class c, unnest(ARRAY['UPDATE %s SET outbox_id = outbox_id', 'DELETE FROM %s', 'TRUNCATE %s']) s WHERE relnamespace = 'attic'::regnamespace AND relkind = 'r' AND relname ~ '^(messages|attempts)_p.*0101$' ORDER BY 1, s;
SELECT c.relname, tgname, tgenabled, obj_description(t.oid, 'pg_trigger') IS NOT NULL AS comment FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid WHERE relnamespace = 'attic'::regnamespace ORDER BY 1, 2;
SELECT relname, obj_description(oid, 'pg_class') IS NOT NULL AS comment, relowner::regrole FROM pg_class WHERE relnamespace = 'attic'::regnamespace ORDER BY 1;
SELECT * FROM outbox.check() WHERE severity = 'error';
ALTER TABLE attic.messages_p20200101 DISABLE TRIGGER append_only_leaf;
DROP TRIGGER append_only_truncate ON attic.attempts_p20200108;
SELECT object, problem FROM outbox.check() WHERE severity = 'error';
SET client_min_messages = warning;
DROP SCHEMA attic CASCADE;
RESET client_min_messages;
-- Guards that a leaf lacks are made.
CREATE SCHEMA attic AUTHORIZATION outbox_owner;
SELECT t.make_old_pairs();
DROP TRIGGER append_only_leaf ON outbox.messages_p20200101;
ALTER TABLE outbox.attempts_p20200101 DISABLE TRIGGER append_only_truncate;
SELECT t.did();
SELECT * FROM outbox.check() WHERE severity = 'error';
DROP SCHEMA attic CASCADE;
SELECT t.keep_in(NULL);

-- Partitions without indexes are those of a restore that is going on.
SELECT t.make_old_pairs();
BEGIN;
DROP INDEX outbox.attempts_p20200108_failed;
SELECT t.did();
ROLLBACK;
-- What a leaf is used for elsewhere keeps it, and it alone.
CREATE VIEW t.uses AS SELECT * FROM outbox.messages_p20200101;
SELECT t.did();
DROP VIEW t.uses;
-- What somebody uses is left for later; so it is when somebody reads the whole ledger, and
-- when somebody has locked the keys. (Prepared transactions do it here.)
BEGIN;
LOCK TABLE outbox.attempts_p20200101 IN ACCESS SHARE MODE;
PREPARE TRANSACTION 'outbox retention';
SELECT t.did();
ROLLBACK PREPARED 'outbox retention';
BEGIN;
LOCK TABLE ONLY outbox.messages IN ACCESS SHARE MODE;
PREPARE TRANSACTION 'outbox retention';
SELECT t.did();
ROLLBACK PREPARED 'outbox retention';
SET outbox.idempotency_window = '10 days';
BEGIN;
LOCK TABLE outbox.idempotency_keys IN ACCESS EXCLUSIVE MODE;
PREPARE TRANSACTION 'outbox retention';
SELECT t.did();
ROLLBACK PREPARED 'outbox retention';
RESET outbox.idempotency_window;
SELECT * FROM t.leaves;

-- Odd ones: no counterpart, a partition that is partitioned, a message that has not ended
-- and is not pending.
SELECT t.make_old_pairs();
ALTER TABLE outbox.events DETACH PARTITION outbox.events_p20200101;
SELECT t.did();
DROP TABLE outbox.messages_p20200101, outbox.attempts_p20200101, outbox.events_p20200101;
SELECT t.make_old_pairs();
ALTER TABLE outbox.attempts DETACH PARTITION outbox.attempts_p20200101;
SELECT t.did();
DROP TABLE outbox.messages_p20200101, outbox.attempts_p20200101, outbox.events_p20200101;
SELECT t.make_old_pairs();
DROP TABLE outbox.attempts_p20200101;
SELECT t.try(format('CREATE TABLE outbox.attempts_p20200101 PARTITION OF outbox.attempts %s PARTITION BY HASH (outbox_id)', pg_get_expr(relpartbound, oid))) FROM pg_class WHERE oid = 'outbox.messages_p20200101'::regclass;
SELECT t.did();
DROP TABLE outbox.messages_p20200101, outbox.attempts_p20200101, outbox.events_p20200101;
SELECT t.make_pair('20200101', d - interval '42 days', d - interval '35 days') FROM date_trunc('day', now(), 'UTC') d;
SELECT count(*) FROM outbox.enqueue('lost by hand', '1');
SELECT t.let_pass('37 days');
SELECT t.lose($$outbox_id = t.id('lost by hand')$$);
SELECT t.did();
INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) VALUES (t.id('lost by hand'), 1, 'DISPATCHED', now());
SELECT t.long_ago();
SELECT t.did();

-- Rows in DEFAULT leaves go together, when all of them have ended long enough ago.
SELECT count(*) FROM unnest(ARRAY['default 1', 'default 2']) e, outbox.enqueue(e, '1', 'n', partition_key => 'default', idempotency_key => e);
SELECT t.finish('DISPATCHED', 'default 1');
SELECT t.let_pass('38 days');
SELECT tableoid::regclass, event_type FROM outbox.messages ORDER BY 2;
SELECT t.did();
SELECT t.finish('DISPATCHED', 'default 2');
SELECT t.did();
SELECT t.long_ago();
BEGIN;
LOCK TABLE outbox.attempts_default IN ACCESS SHARE MODE;
PREPARE TRANSACTION 'outbox retention';
SELECT t.did();
ROLLBACK PREPARED 'outbox retention';
BEGIN;
CREATE SCHEMA attic AUTHORIZATION outbox_owner;
SELECT t.keep_in('attic');
SELECT regexp_replace(t.did(), '_p\d+_\d+', '_p<now>');
SELECT * FROM t.retired;
SELECT count(*) FROM outbox.messages_default;
SELECT c.relname ~ '^messages_p' AS messages, t.try(format('DELETE FROM %s', c.oid::regclass)) FROM pg_class c WHERE relnamespace = 'attic'::regnamespace AND relkind = 'r' ORDER BY 1;
SELECT * FROM outbox.check() WHERE severity = 'error';
ROLLBACK;
SELECT t.did();
SELECT * FROM t.retired;
SELECT tableoid::regclass, event_type FROM outbox.messages ORDER BY 2;
SELECT t.try('TRUNCATE outbox.messages_default');
SELECT sequence_id, created FROM outbox.enqueue('again', '1', 'n', partition_key => 'default', idempotency_key => 'default 1');
SELECT * FROM outbox.check() WHERE severity = 'error';

-- As many as the lock table bears in one transaction; the rest by the next calls.
SELECT count(t.make_pair('201901' || lpad(n::text, 2, '0'), d - interval '100 days' + n * interval '1 day', d - interval '99 days' + n * interval '1 day'))
FROM generate_series(1, 12) n, date_trunc('day', now(), 'UTC') d;
SELECT count(*) FROM t.did();
SELECT count(*) FROM t.did();
SELECT count(*) FROM t.did();
SELECT * FROM outbox.check() WHERE severity = 'error';

-- Where the next leaf is missing, ids are held back to the end of the last one: what lies
-- there may be young.
SET client_min_messages = warning;
DROP EXTENSION outbox CASCADE;
DROP ROLE regress_outbox_keeper;
\c -
SET client_min_messages = warning;
-- As a restore does: without dated partitions.
SET xmloption = content; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0;
CREATE EXTENSION outbox;
SELECT t.make_pair('20200101', d - interval '42 days', d - interval '35 days') FROM date_trunc('day', now(), 'UTC') d;
SELECT count(*) FROM outbox.enqueue('held back', '1');
SELECT tableoid::regclass, created_at > now() - interval '1 day' AS young FROM outbox.messages;
SELECT recorded FROM outbox.claim('w') c, outbox.complete(c.outbox_id, c.lease_token, 'w', 'DISPATCHED');
SELECT outbox.set_retention('20 days');
SELECT object, regexp_replace(detail, '[0-9a-f-]{36}', '<id>') FROM outbox.maintain() WHERE action = 'partition kept';
