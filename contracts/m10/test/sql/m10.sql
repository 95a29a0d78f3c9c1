--
-- outbox_m10: what each function and the view do, case by case; the delays of failed
-- events; claims that are lost; events that came or ended by other ways; who may call
-- what. (Shapes and grants: pgtap. Races: isolation specs. Load: tap.)
--
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS outbox CASCADE;
CREATE EXTENSION outbox_m10 CASCADE;
RESET client_min_messages;
\getenv testdir PG_ABS_SRCDIR
\set helpers :testdir /sql/setup.inc
\i :helpers

-- The view, without its times.
CREATE VIEW t.outbox AS
	SELECT o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload, o.processed_at IS NOT NULL AS processed, o.retry_count AS retries,
		CASE WHEN o.process_after <= clock_timestamp() THEN 'due' WHEN o.process_after IS NOT NULL THEN 'scheduled' END AS process,
		o.claimed_by, o.claimed_at IS NOT NULL AS claimed
	FROM m10_recovery.outbox o
	ORDER BY o.event_type COLLATE "C", o.created_at;
-- What a claim returns, without payload.
CREATE FUNCTION t.claim(processor text, size int DEFAULT 10) RETURNS TABLE (id bigint, event_type text, retries int) LANGUAGE sql AS $$
	SELECT c.id, c.event_type, c.retry_count FROM m10_recovery.claim_outbox_events(processor, size) c
$$;
CREATE FUNCTION t.process_after(type text) RETURNS timestamptz LANGUAGE sql AS $$
	SELECT process_after FROM m10_recovery.outbox WHERE event_type = type
$$;

-- The queue, beside that of the core.
SELECT queue, max_attempts, lease, repair_delay, ordering, validator, paused FROM outbox.queues ORDER BY 1;

--
-- publish
--
SELECT m10_recovery.publish_outbox('order', 'o-1', 'placed', '{"total": 1}');
SELECT m10_recovery.publish_outbox(p_payload => 'null', p_event_type => 'paid', p_aggregate_id => '', p_aggregate_type => '');
SELECT queue, event_type, aggregate_type, aggregate_id, payload, headers, partition_key, sequence_id, idempotency_key, routing_key, priority, max_attempts, replay_of, event_id = outbox_id AS own_event_id
FROM outbox.messages ORDER BY created_at;
-- It is part of the caller's transaction. The id that was rolled back is not given again.
BEGIN;
SELECT m10_recovery.publish_outbox('order', 'o-2', 'rolled back', '1');
ROLLBACK;
SELECT m10_recovery.publish_outbox('order', 'o-1', 'shipped', '[1]');
-- No key: said twice, it is two events.
SELECT m10_recovery.publish_outbox('order', 'o-3', e, '1') FROM unnest(ARRAY['twice', 'twice']) e;
SELECT count(*) AS messages, count(DISTINCT i.id) AS ids FROM outbox.messages LEFT JOIN m10_recovery.event_ids i USING (outbox_id);
SELECT t.try($$SELECT m10_recovery.publish_outbox(NULL, 'a', 'e', '1')$$);
SELECT t.try($$SELECT m10_recovery.publish_outbox('a', NULL, 'e', '1')$$);
SELECT t.try($$SELECT m10_recovery.publish_outbox('a', 'a', NULL, '1')$$);
SELECT t.try($$SELECT m10_recovery.publish_outbox('a', 'a', 'e', NULL)$$);
SELECT t.try($$SELECT m10_recovery.publish_outbox('a', 'a', '', '1')$$);
SELECT * FROM t.outbox;
SELECT count(*) AS created_and_due_at_once FROM m10_recovery.outbox o JOIN m10_recovery.event_ids i USING (id) JOIN outbox.messages m USING (outbox_id)
WHERE o.created_at = m.created_at AND o.process_after = o.created_at AND o.next_retry_at IS NULL;

--
-- claim
--
SELECT t.try($$SELECT m10_recovery.claim_outbox_events(NULL)$$);
SELECT t.try($$SELECT m10_recovery.claim_outbox_events('p', NULL)$$);
SELECT t.try($$SELECT m10_recovery.claim_outbox_events('')$$);
SELECT t.try($$SELECT m10_recovery.claim_outbox_events('p', 0)$$);
-- Oldest first, at most as many as asked for, for five minutes.
SELECT * FROM m10_recovery.claim_outbox_events('p1', 2);
SELECT * FROM t.outbox WHERE claimed;
SELECT t.lease('placed'), t.lease('paid'), t.lease('shipped');
SELECT count(*) FROM m10_recovery.outbox o JOIN m10_recovery.event_ids i USING (id) JOIN outbox.pending p USING (outbox_id) WHERE o.claimed_at = p.claimed_at;
-- No attempt is written when an event is claimed.
SELECT count(*) FROM outbox.attempts;
-- Ten by default; what is claimed is nobody else's.
SELECT count(m10_recovery.publish_outbox('bulk', n::text, 'bulk', '1')) FROM generate_series(1, 9) n;
SELECT count(*) FROM t.claim('p2');
SELECT event_type FROM t.claim('p2', 100) ORDER BY 1;
SELECT * FROM t.claim('p3', 100);

--
-- complete
--
SELECT id AS placed FROM m10_recovery.outbox WHERE event_type = 'placed' \gset
SELECT id AS paid FROM m10_recovery.outbox WHERE event_type = 'paid' \gset
SELECT id AS shipped FROM m10_recovery.outbox WHERE event_type = 'shipped' \gset
SELECT t.try($$SELECT m10_recovery.complete_outbox_event(NULL, 'p1', true)$$);
SELECT t.try($$SELECT m10_recovery.complete_outbox_event(1, NULL, true)$$);
SELECT t.try($$SELECT m10_recovery.complete_outbox_event(1, 'p1', NULL)$$);
SELECT t.try($$SELECT m10_recovery.complete_outbox_event(1, '', true)$$);
SELECT t.try($$SELECT m10_recovery.complete_outbox_event(12345, 'p1', true)$$);
SELECT t.try($$SELECT m10_recovery.complete_outbox_event(-1, 'p1', false, 'e')$$);
-- Success, by name; an error may be reported with it.
SELECT m10_recovery.complete_outbox_event(p_success => true, p_processor_id => 'p1', p_event_id => :placed);
SELECT m10_recovery.complete_outbox_event(:shipped, 'p2', true, 'took its time');
SELECT * FROM t.ledger;
SELECT * FROM t.outbox WHERE event_type IN ('placed', 'shipped');
SELECT count(*) FROM m10_recovery.outbox o JOIN m10_recovery.event_ids i USING (id) JOIN outbox.attempts a USING (outbox_id) WHERE o.processed_at = a.completed_at;
-- Failure.
SELECT m10_recovery.complete_outbox_event(:paid, 'p1', false, 'no answer');
SELECT * FROM t.ledger WHERE message = 'paid';
SELECT * FROM t.outbox WHERE event_type = 'paid';
-- Who does not hold the event is told how that is.
SELECT t.try(format('SELECT m10_recovery.complete_outbox_event(%s, ''p1'', true)', :placed));
SELECT t.try(format('SELECT m10_recovery.complete_outbox_event(%s, ''p2'', false)', :placed));
SELECT t.try(format('SELECT m10_recovery.complete_outbox_event(%s, ''p1'', true)', :paid));
SELECT t.try(format('SELECT m10_recovery.complete_outbox_event(%s, ''p2'', true)', :paid));
SELECT t.due('paid');
SELECT * FROM t.claim('p3');
SELECT t.try(format('SELECT m10_recovery.complete_outbox_event(%s, ''p2'', true)', :paid));
SELECT t.try(format('SELECT m10_recovery.complete_outbox_event(%s, ''P3'', true)', :paid));
SELECT m10_recovery.complete_outbox_event(:paid, 'p3', true);
SELECT * FROM t.ledger WHERE message = 'paid';
SELECT count(m10_recovery.complete_outbox_event(id, 'p2', true)) AS completed FROM m10_recovery.outbox WHERE claimed_by = 'p2';
SELECT count(*) AS pending FROM outbox.pending;

--
-- process_after: 1 s, 2 s and so on to 1024 s, from the failure on, and no longer
--
SELECT m10_recovery.publish_outbox('a', 'a', 'failing', '1') AS failing \gset
CREATE TABLE t.failures (failure int, retry_count_before int, retry_count_after int, seconds int, to_the_second boolean, claimed_too_early int);
CREATE FUNCTION t.fail(event bigint, failure int, seconds int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	retries int;
	before timestamptz;
BEGIN
	SELECT c.retries INTO STRICT retries FROM t.claim('p') c;
	before := clock_timestamp();
	PERFORM m10_recovery.complete_outbox_event(event, 'p', false, 'failure ' || failure);
	INSERT INTO t.failures
	SELECT failure, retries, o.retry_count, seconds,
		o.process_after BETWEEN before + make_interval(secs => seconds) AND clock_timestamp() + make_interval(secs => seconds)
	FROM m10_recovery.outbox o WHERE o.id = event;
	-- A year ahead stands for any moment before process_after.
	PERFORM t.hold('failing');
	UPDATE t.failures f SET claimed_too_early = (SELECT count(*) FROM t.claim('p')) WHERE f.failure = $2;
	PERFORM t.due('failing');
END
$$;
SELECT count(t.fail(:failing, n::int, seconds))
FROM unnest(ARRAY[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024, 1024]) WITH ORDINALITY d(seconds, n);
SELECT * FROM t.failures ORDER BY 1;
SELECT no, state, error_message FROM t.ledger WHERE message = 'failing' AND no IN (1, 14);
SELECT * FROM t.outbox WHERE event_type = 'failing';
-- There is no ceiling: the 15th try is as good as any.
SELECT * FROM t.claim('p');
SELECT m10_recovery.complete_outbox_event(:failing, 'p', true);
SELECT * FROM t.outbox WHERE event_type = 'failing';

--
-- Lost claims
--
SELECT m10_recovery.publish_outbox('a', 'a', 'lost', '1') AS lost \gset
SELECT t.claim('p1');
SELECT m10_recovery.complete_outbox_event(:lost, 'p1', false);
SELECT t.due('lost');
SELECT t.process_after('lost') AS process_after \gset
SELECT * FROM t.claim('p1');
-- As long as it lasts nobody else gets it; a moment later anybody does. What was lost is
-- in the ledger, does not count and moves nothing.
SELECT * FROM t.claim('p2');
SELECT t.expire('lost');
SELECT * FROM t.outbox WHERE event_type = 'lost';
SELECT * FROM t.claim('p2');
SELECT t.process_after('lost') = :'process_after' AS not_moved;
SELECT * FROM t.ledger WHERE message = 'lost';
-- Who lost it is refused, and the new holder is not in the least disturbed.
SELECT t.try(format('SELECT m10_recovery.complete_outbox_event(%s, ''p1'', true)', :lost));
SELECT t.try(format('SELECT m10_recovery.complete_outbox_event(%s, ''p1'', false)', :lost));
SELECT * FROM t.outbox WHERE event_type = 'lost';
-- Past its time, and nobody has taken it over: it is lost all the same.
SELECT t.expire('lost');
SELECT t.try(format('SELECT m10_recovery.complete_outbox_event(%s, ''p2'', true)', :lost));
-- Found by repair instead of a claim.
SELECT attempt_no, state, lost_by FROM outbox.repair_expired_leases();
SELECT * FROM t.outbox WHERE event_type = 'lost';
SELECT t.process_after('lost') = :'process_after' AS not_moved;
SELECT t.try(format('SELECT m10_recovery.complete_outbox_event(%s, ''p2'', true)', :lost));
-- The delay goes by reported failures, of which this is the second, not by attempts.
SELECT * FROM t.claim('p3');
SELECT clock_timestamp() AS before \gset
SELECT m10_recovery.complete_outbox_event(:lost, 'p3', false);
SELECT t.process_after('lost') BETWEEN :'before'::timestamptz + interval '2 s' AND clock_timestamp() + interval '2 s' AS two_seconds;
SELECT no, state FROM t.ledger WHERE message = 'lost';
SELECT * FROM t.outbox WHERE event_type = 'lost';
-- The same processor again, after it lost its claim: it holds the new one.
SELECT t.due('lost');
SELECT * FROM t.claim('p1');
SELECT t.expire('lost');
SELECT * FROM t.claim('p1');
SELECT m10_recovery.complete_outbox_event(:lost, 'p1', true);
SELECT no, state, worker_id FROM t.ledger WHERE message = 'lost';

--
-- Events that came by another way: they are in the view, and get an id when they are claimed
--
SELECT created FROM outbox.enqueue('by core', '{"a": [1]}', 'm10', partition_key => 'k', headers => '{"h": 1}');
SELECT created FROM outbox.enqueue('later', '1', 'm10', deliver_at => clock_timestamp() + interval '1 hour', idempotency_key => 'k');
SELECT lease_token IS NOT NULL AS leased FROM outbox.enqueue_and_claim('sender', 'born claimed', '1', 'm10');
SELECT created FROM outbox.enqueue('of another queue', '1');
SELECT * FROM t.outbox WHERE event_type IN ('by core', 'later', 'born claimed', 'of another queue');
SELECT event_type, aggregate_type, aggregate_id, payload, retry_count FROM m10_recovery.claim_outbox_events('p1');
SELECT t.expire('born claimed'), t.due('later');
SELECT event_type, retry_count FROM m10_recovery.claim_outbox_events('p1') ORDER BY 1;
SELECT event_type, id IS NOT NULL AS has_id FROM m10_recovery.outbox WHERE claimed_by = 'p1' ORDER BY 1;
-- The id stays: given once, by whichever claim came first.
SELECT id AS core FROM m10_recovery.outbox WHERE event_type = 'by core' \gset
SELECT t.expire('by core');
SELECT id = :core AS same FROM m10_recovery.claim_outbox_events('p2');
SELECT count(*) AS ids, count(DISTINCT outbox_id) AS messages, count(*) FILTER (WHERE outbox_id = t.id('by core')) AS of_this FROM m10_recovery.event_ids;
SELECT count(m10_recovery.complete_outbox_event(id, claimed_by, true)) AS completed FROM m10_recovery.outbox WHERE claimed_by IS NOT NULL;
-- Other queues are not touched, and nothing of theirs has an id.
SELECT * FROM t.pending;
SELECT count(*) FROM m10_recovery.event_ids i JOIN outbox.messages m USING (outbox_id) WHERE m.queue <> 'm10';

--
-- Events that ended by another way: neither processed nor to be
--
SELECT m10_recovery.publish_outbox('a', 'a', 'cancelled', '1') AS cancelled \gset
SELECT * FROM t.claim('p1');
SELECT outbox.cancel(t.id('cancelled'), 'not wanted', force => true);
SELECT * FROM t.outbox WHERE event_type = 'cancelled';
SELECT t.try(format('SELECT m10_recovery.complete_outbox_event(%s, ''p1'', true)', :cancelled));
-- A replayed one is a new event with an id of its own.
SELECT outbox.replay(t.id('cancelled')) IS NOT NULL AS replayed;
SELECT id = :cancelled AS first, id IS NOT NULL AS has_id, claimed_by, processed_at, process_after IS NOT NULL AS pending FROM m10_recovery.outbox WHERE event_type = 'cancelled' ORDER BY created_at;
SELECT id > :cancelled AS new_id, event_type, retry_count FROM m10_recovery.claim_outbox_events('p1');
SELECT m10_recovery.complete_outbox_event(max(id), 'p1', true) FROM m10_recovery.outbox WHERE event_type = 'cancelled';
SELECT id = :cancelled AS first, processed_at IS NOT NULL AS processed FROM m10_recovery.outbox WHERE event_type = 'cancelled' ORDER BY created_at;
-- A ceiling of the message's own is kept to.
SELECT created FROM outbox.enqueue('two tries', '1', 'm10', max_attempts => 2);
SELECT m10_recovery.complete_outbox_event(id, 'p1', false, 'first') FROM m10_recovery.claim_outbox_events('p1');
SELECT t.due('two tries');
SELECT m10_recovery.complete_outbox_event(id, 'p1', false, 'second') FROM m10_recovery.claim_outbox_events('p1');
SELECT no, state, error_code, error_message FROM t.ledger WHERE message = 'two tries';
-- (retry_count counts what led to a retry.)
SELECT processed, retries, process, claimed FROM t.outbox WHERE event_type = 'two tries';
-- A paused queue, and one with a validator.
SELECT m10_recovery.publish_outbox('a', 'a', 'paused', '1') AS paused \gset
SELECT outbox.pause('m10');
SELECT * FROM t.claim('p1');
SELECT outbox.resume('m10');
SELECT event_type FROM t.claim('p1');
CREATE FUNCTION t.valid(payload jsonb, headers jsonb, routing_key text) RETURNS text LANGUAGE sql AS $$
	SELECT 'is not a number' WHERE jsonb_typeof(payload) <> 'number'
$$;
SELECT outbox.alter_queue('m10', validator => 't.valid');
SELECT t.try($$SELECT m10_recovery.publish_outbox('a', 'a', 'e', '"text"')$$);
SELECT outbox.alter_queue('m10', validator => '');
-- With its own business, in one transaction.
CREATE TABLE t.business (event bigint);
BEGIN;
INSERT INTO t.business VALUES (:paused);
SELECT m10_recovery.complete_outbox_event(:paused, 'p1', true);
ROLLBACK;
SELECT processed, claimed_by FROM t.outbox WHERE event_type = 'paused';
SELECT m10_recovery.complete_outbox_event(:paused, 'p1', true);

--
-- Ids are never changed, forgotten or given by others; the view is not written through
--
SELECT count(*) AS ids FROM m10_recovery.event_ids \gset
SELECT t.try('UPDATE m10_recovery.event_ids SET outbox_id = gen_random_uuid()');
SELECT t.try('DELETE FROM m10_recovery.event_ids');
SELECT t.try('TRUNCATE m10_recovery.event_ids');
SELECT t.try('TRUNCATE m10_recovery.event_ids RESTART IDENTITY CASCADE');
SET session_replication_role = replica;
SELECT t.try('UPDATE m10_recovery.event_ids SET outbox_id = gen_random_uuid()');
SELECT t.try('DELETE FROM m10_recovery.event_ids');
SELECT t.try('TRUNCATE m10_recovery.event_ids');
RESET session_replication_role;
SET ROLE m10_recovery_owner;
DELETE FROM m10_recovery.event_ids;
RESET ROLE;
SELECT t.try('INSERT INTO m10_recovery.event_ids (id, outbox_id) VALUES (1, gen_random_uuid())');
SELECT t.try('INSERT INTO m10_recovery.event_ids (outbox_id) SELECT outbox_id FROM m10_recovery.event_ids LIMIT 1');
SELECT count(*) = :ids AS all_there FROM m10_recovery.event_ids;
SELECT t.try('UPDATE m10_recovery.outbox SET processed_at = now()');
SELECT t.try('DELETE FROM m10_recovery.outbox');
SELECT t.try('INSERT INTO m10_recovery.outbox (event_type) VALUES (''e'')');

--
-- Roles at work
--
CREATE ROLE regress_m10_nobody;
CREATE FUNCTION t.as(who text, statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('role', who, true);
	BEGIN
		EXECUTE statement;
		RETURN NEXT 'ok';
	EXCEPTION WHEN OTHERS THEN
		RETURN NEXT SQLSTATE || ' ' || SQLERRM;
	END;
	PERFORM set_config('role', 'none', true);
END
$$;
CREATE TABLE t.calls (n int, what text, statement text);
INSERT INTO t.calls VALUES
	(1, 'publish', $$SELECT m10_recovery.publish_outbox('a', 'a', 'by role', '1')$$),
	(2, 'claim', $$SELECT m10_recovery.claim_outbox_events('p', 1)$$),
	(3, 'complete', $$SELECT m10_recovery.complete_outbox_event(0, 'p', true)$$),
	(4, 'view', 'SELECT * FROM m10_recovery.outbox'),
	(5, 'ids', 'SELECT * FROM m10_recovery.event_ids'),
	(6, 'write ids', 'INSERT INTO m10_recovery.event_ids (outbox_id) VALUES (gen_random_uuid())'),
	(7, 'sequence', $$SELECT nextval('m10_recovery.event_ids_id_seq')$$);
SELECT what, who, t.as(who, statement) AS answer
FROM t.calls, unnest(ARRAY['outbox_ingest', 'outbox_executor', 'outbox_operator', 'outbox_readonly', 'outbox_auditor', 'regress_m10_nobody']) WITH ORDINALITY w(who, k)
ORDER BY n, k;
DROP ROLE regress_m10_nobody;

-- What a caller puts in the way of names is not found: a path, and temporary objects.
SELECT m10_recovery.publish_outbox('a', 'a', 'path', '1') AS path \gset
CREATE SCHEMA evil;
CREATE FUNCTION evil.wrong(double precision) RETURNS interval LANGUAGE sql AS 'SELECT interval ''1 year''';
CREATE FUNCTION evil.make_interval(years int DEFAULT 0, months int DEFAULT 0, weeks int DEFAULT 0, days int DEFAULT 0, hours int DEFAULT 0, mins int DEFAULT 0, secs double precision DEFAULT 0)
RETURNS interval LANGUAGE sql AS 'SELECT evil.wrong(secs)';
CREATE FUNCTION pg_temp.count() RETURNS bigint LANGUAGE sql AS 'SELECT 9::bigint';
CREATE TEMP TABLE event_ids (id bigint, outbox_id uuid);
CREATE TEMP TABLE pending (outbox_id uuid);
SET search_path = evil, pg_temp, pg_catalog;
SELECT event_type, retry_count FROM m10_recovery.claim_outbox_events('p') WHERE event_type = 'path';
SELECT clock_timestamp() AS before \gset
SELECT m10_recovery.complete_outbox_event(:path, 'p', false);
SELECT process_after BETWEEN :'before'::timestamptz + interval '1 s' AND clock_timestamp() + interval '1 s' AS one_second, retry_count FROM m10_recovery.outbox WHERE event_type = 'path';
RESET search_path;
DROP TABLE event_ids, pending;
SET client_min_messages = warning;
DROP SCHEMA evil CASCADE;
RESET client_min_messages;

--
-- Dropped and made again: messages and queue stay, ids do not
--
SELECT outbox.alter_queue('m10', max_attempts => 3, lease => '1 s', repair_delay => '1 min', backoff_cap => '7 min');
SELECT count(*) AS messages FROM outbox.messages \gset
DROP VIEW t.outbox;
DROP EXTENSION outbox_m10;
SELECT t.try('SELECT m10_recovery.publish_outbox(''a'', ''a'', ''e'', ''1'')');
SELECT count(*) = :messages AS all_there FROM outbox.messages;
SELECT severity, object, problem FROM outbox.check() WHERE severity = 'error';
CREATE EXTENSION outbox_m10;
SELECT queue, max_attempts, lease, repair_delay, backoff_cap, ordering FROM outbox.queues WHERE queue = 'm10';
SELECT count(*), count(id) FROM m10_recovery.outbox;
DROP VIEW t.ledger, t.pending;
SELECT t.try('DROP EXTENSION outbox');
-- A schema of that name is not taken over, nor a role that may do more.
DROP EXTENSION outbox_m10;
CREATE SCHEMA m10_recovery;
SELECT t.try('CREATE EXTENSION outbox_m10');
DROP SCHEMA m10_recovery;
ALTER ROLE m10_recovery_owner LOGIN;
SELECT t.try('CREATE EXTENSION outbox_m10');
ALTER ROLE m10_recovery_owner NOLOGIN BYPASSRLS;
SELECT t.try('CREATE EXTENSION outbox_m10');
ALTER ROLE m10_recovery_owner NOBYPASSRLS;
SELECT t.try('CREATE EXTENSION outbox_m10 SCHEMA public');
SELECT t.try('CREATE EXTENSION outbox_m10');
SELECT count(*), count(id) FROM m10_recovery.outbox;
SET client_min_messages = warning;
DROP EXTENSION outbox CASCADE;
DROP SCHEMA t CASCADE;
