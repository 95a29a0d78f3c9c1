--
-- Append-only: UPDATE, DELETE and TRUNCATE of messages and attempts, and whatever takes a
-- message out of pending, are P0001 for everybody, on parents, leaves, future and detached
-- leaves, also under session_replication_role = replica. A plain INSERT works.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

-- What the triggers guard: the default leaves, dated leaves, and one that is
-- detached ("archived").
SELECT count(*) > 0 AS upkeep FROM outbox.maintain();
SELECT e.created, c.recorded FROM outbox.enqueue_and_claim('w', 'm', '1') e, LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', 'DISPATCHED') c;
SELECT created FROM outbox.enqueue('pending', '1');
SELECT tableoid::regclass AS messages_leaf, replace(tableoid::regclass::text, 'messages', 'attempts') AS attempts_leaf FROM outbox.messages WHERE event_type = 'm' \gset
-- Rows in the default leaves too, by plain INSERT of the owner.
SET ROLE outbox_owner;
INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, priority, payload, headers, created_at)
VALUES ('ffffffff-ffff-7fff-bfff-ffffffffffff', 'default', 'ffffffff-ffff-7fff-bfff-ffffffffffff', 'plain', 0, '1', '{}', clock_timestamp());
INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) VALUES ('ffffffff-ffff-7fff-bfff-ffffffffffff', 1, 'FAILED', clock_timestamp());
RESET ROLE;
SELECT event_type, tableoid::regclass = 'outbox.messages_default'::regclass AS in_default FROM outbox.messages ORDER BY 1;

CREATE FUNCTION t.guards(tables text[]) RETURNS TABLE (relation text, update text, delete text, truncate text) LANGUAGE plpgsql AS $$
DECLARE
	place regclass;
BEGIN
	FOREACH place IN ARRAY tables LOOP
		relation := t.masked(place::text);
		update := x FROM t.try(format('UPDATE %s SET outbox_id = outbox_id', place)) x LIMIT 1;
		delete := x FROM t.try(format('DELETE FROM %s', place)) x LIMIT 1;
		truncate := x FROM t.try(format('TRUNCATE %s', place)) x LIMIT 1;
		RETURN NEXT;
	END LOOP;
END
$$;
\pset format unaligned
SELECT * FROM t.guards(ARRAY['outbox.messages', 'outbox.messages_default', :'messages_leaf', 'outbox.attempts', 'outbox.attempts_default', :'attempts_leaf']);
SELECT t.try('TRUNCATE outbox.pending');
SET session_replication_role = replica;
SELECT * FROM t.guards(ARRAY['outbox.messages', 'outbox.messages_default', :'messages_leaf', 'outbox.attempts', 'outbox.attempts_default', :'attempts_leaf']);
SELECT t.try('TRUNCATE outbox.pending');
RESET session_replication_role;
SET session_replication_role = local;
SELECT relation, left(update, 5) AS update, left(delete, 5) AS delete, left(truncate, 5) AS truncate
FROM t.guards(ARRAY['outbox.messages', :'messages_leaf', 'outbox.attempts', :'attempts_leaf']);
RESET session_replication_role;
-- As their owner.
SET ROLE outbox_owner;
DELETE FROM outbox.messages WHERE event_type = 'plain';
\echo :SQLSTATE
UPDATE outbox.attempts SET state = 'FAILED' WHERE state = 'FAILED';
\echo :SQLSTATE
TRUNCATE outbox.attempts;
\echo :SQLSTATE
TRUNCATE outbox.messages CASCADE;
\echo :SQLSTATE
TRUNCATE outbox.pending, outbox.queues;
\echo :SQLSTATE
RESET ROLE;

-- Other ways to the same end: ON CONFLICT, MERGE, a writable CTE, a move to another
-- partition, a cascade.
SELECT t.try(s) FROM (VALUES
	($$INSERT INTO outbox.messages_default SELECT * FROM outbox.messages WHERE event_type = 'plain' ON CONFLICT (outbox_id) DO UPDATE SET payload = '2'$$),
	($$MERGE INTO outbox.messages m USING (SELECT 1) s ON m.event_type = 'plain' WHEN MATCHED THEN UPDATE SET payload = '2'$$),
	($$MERGE INTO outbox.attempts a USING (SELECT 1) s ON a.state = 'FAILED' WHEN MATCHED THEN DELETE$$),
	($$WITH d AS (DELETE FROM outbox.attempts RETURNING 1) SELECT 1$$),
	($$UPDATE outbox.messages SET outbox_id = '00000000-0000-7000-8000-000000000000' WHERE event_type = 'plain'$$)) AS v(s);
INSERT INTO outbox.messages_default SELECT * FROM outbox.messages WHERE event_type = 'plain' ON CONFLICT (outbox_id) DO NOTHING;

-- A row lock is no change.
BEGIN;
SELECT event_type FROM outbox.messages WHERE event_type = 'plain' FOR UPDATE;
ROLLBACK;

-- Detached, a leaf stays as it is guarded; attached again too; and so do the
-- partitions that are made next.
ALTER TABLE outbox.messages DETACH PARTITION :messages_leaf;
ALTER TABLE outbox.attempts DETACH PARTITION :attempts_leaf;
SELECT * FROM t.guards(ARRAY[:'messages_leaf', :'attempts_leaf']);
SET session_replication_role = replica;
SELECT relation, left(update, 5) AS update, left(delete, 5) AS delete, left(truncate, 5) AS truncate FROM t.guards(ARRAY[:'messages_leaf', :'attempts_leaf']);
RESET session_replication_role;
CREATE TABLE outbox.messages_future PARTITION OF outbox.messages FOR VALUES FROM ('fffffff0-0000-0000-0000-000000000000') TO ('fffffff1-0000-0000-0000-000000000000');
CREATE TABLE outbox.attempts_future PARTITION OF outbox.attempts FOR VALUES FROM ('fffffff0-0000-0000-0000-000000000000') TO ('fffffff1-0000-0000-0000-000000000000');
INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, priority, payload, headers, created_at)
VALUES ('fffffff0-0000-7fff-bfff-ffffffffffff', 'default', 'ffffffff-ffff-7fff-bfff-ffffffffffff', 'hand-made', 0, '1', '{}', clock_timestamp());
INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) VALUES ('fffffff0-0000-7fff-bfff-ffffffffffff', 1, 'FAILED', clock_timestamp());
SELECT relation, left(update, 5) AS update, left(delete, 5) AS delete FROM t.guards('{outbox.messages_future, outbox.attempts_future}');

-- Nothing of it changed anything.
SELECT event_type, payload FROM outbox.messages ORDER BY 1;
SELECT event_type, payload FROM :messages_leaf ORDER BY 1;
SELECT attempt_no, state FROM outbox.attempts ORDER BY outbox_id;

-- pending is a work record: a superuser may set its times, but take no message out of it.
CREATE FUNCTION t.pending_guards() RETURNS SETOF text LANGUAGE sql AS $t$
	SELECT t.try(s) FROM (VALUES
		($$UPDATE outbox.pending SET next_attempt_at = next_attempt_at$$),
		($$UPDATE outbox.pending SET outbox_id = outbox_id, priority = 1$$),
		($$UPDATE outbox.pending SET outbox_id = '00000000-0000-7000-8000-000000000000'$$),
		($$DELETE FROM outbox.pending$$),
		($$DELETE FROM outbox.pending WHERE false$$),
		($$TRUNCATE outbox.pending$$)) AS v(s) $t$;
SELECT t.pending_guards();
SET ROLE outbox_owner;
DELETE FROM outbox.pending;
RESET ROLE;
SET session_replication_role = replica;
SELECT t.pending_guards();
RESET session_replication_role;
SELECT count(*), sum(priority) AS priorities FROM outbox.pending;
-- A column of another type is none of its own: the trigger does not read it.
BEGIN;
ALTER TABLE outbox.pending RENAME COLUMN queue TO former;
ALTER TABLE outbox.pending ADD COLUMN queue bigint DEFAULT 1;
UPDATE outbox.pending SET next_attempt_at = next_attempt_at;
ROLLBACK;
-- Its lease is whole or absent, whoever writes.
SELECT t.try(s) FROM (VALUES
	($$INSERT INTO outbox.pending (outbox_id, queue, claimed_by) VALUES ('00000000-0000-7000-8000-000000000000', 'default', 'w')$$),
	($$INSERT INTO outbox.pending (outbox_id, queue, lease_token) VALUES ('00000000-0000-7000-8000-000000000000', 'default', '00000000-0000-7000-8000-000000000000')$$),
	($$INSERT INTO outbox.pending (outbox_id, queue, claimed_by, claimed_at, lease_expires_at) VALUES ('00000000-0000-7000-8000-000000000000', 'default', 'w', now(), now())$$)) AS v(s);

-- What the ledger refuses of itself: a number twice, a second terminal attempt.
SELECT t.try(s) FROM (VALUES
	($$INSERT INTO outbox.attempts (outbox_id, attempt_no, state) VALUES ('ffffffff-ffff-7fff-bfff-ffffffffffff', 1, 'RETRYABLE')$$),
	($$INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) VALUES ('ffffffff-ffff-7fff-bfff-ffffffffffff', 2, 'DISPATCHED', now())$$),
	($$INSERT INTO outbox.attempts (outbox_id, attempt_no, state) VALUES ('ffffffff-ffff-7fff-bfff-ffffffffffff', 0, 'RETRYABLE')$$),
	($$INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) VALUES ('ffffffff-ffff-7fff-bfff-ffffffffffff', 2, 'RETRYABLE', now())$$),
	($$INSERT INTO outbox.attempts (outbox_id, attempt_no, state) VALUES ('fffffffe-ffff-7fff-bfff-ffffffffffff', 1, 'FAILED')$$),
	($$INSERT INTO outbox.messages SELECT * FROM outbox.messages WHERE event_type = 'plain'$$)) AS v(s);

-- The trigger functions serve only as triggers of these tables.
SELECT outbox.append_only();
\echo :SQLSTATE
SELECT outbox.merge_queue();
\echo :SQLSTATE
