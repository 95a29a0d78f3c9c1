--
-- BRIN indexes of users, which summarize blocks: from PostgreSQL 16 on an update that changes no
-- other index's columns concerns them alone. Each verb keeps them up: a scan of the index finds what
-- was written, and a scan of another value reads no block.
--
\set undated
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT count(*) FROM outbox.enqueue_and_claim('w', 'before', '1');
CREATE INDEX queues_brin ON outbox.queues USING brin (lease interval_minmax_ops) WITH (pages_per_range = 1);
CREATE INDEX pending_brin ON outbox.pending USING brin (attempt_count) WITH (pages_per_range = 1);
CREATE INDEX messages_brin ON outbox.messages_default USING brin (priority, event_type) WITH (pages_per_range = 1);
CREATE INDEX attempts_brin ON outbox.attempts_default USING brin (attempt_no, worker_id) WITH (pages_per_range = 1);

-- The rows that the index leads to, of a query that uses no other.
CREATE FUNCTION t.by_index(index text, query text) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off SET enable_indexscan = off AS $$
DECLARE
	line text;
	used boolean := false;
	found bigint;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		used := used OR line ~ ('Bitmap Index Scan on ' || index);
	END LOOP;
	EXECUTE query INTO found;
	RETURN CASE WHEN used THEN found END;
END
$$;
SELECT t.by_index('queues_brin', $$SELECT count(*) FROM outbox.queues WHERE lease = '1 hour 7 s'$$) AS before;

-- One column, that no other index has.
SELECT outbox.alter_queue('default', lease => '1 hour 7 s');
SELECT t.by_index('queues_brin', $$SELECT count(*) FROM outbox.queues WHERE lease = '1 hour 7 s'$$) AS altered;
SELECT outbox.create_queue('new', lease => '2 hours 7 s');
SELECT t.by_index('queues_brin', $$SELECT count(*) FROM outbox.queues WHERE lease = '2 hours 7 s'$$) AS created;

SELECT created FROM outbox.enqueue('zebra', '1', priority => 15);
SELECT t.by_index('messages_brin', $$SELECT count(*) FROM outbox.messages WHERE priority = 15 AND event_type = 'zebra'$$) AS enqueued;
SELECT count(*) FROM outbox.claim('zoe', 1);
SELECT recorded FROM outbox.complete(t.id('zebra'), t.token('zebra'), 'zoe', 'RETRYABLE');
SELECT t.by_index('pending_brin', $$SELECT count(*) FROM outbox.pending WHERE attempt_count = 1$$) AS retried;
SELECT t.by_index('attempts_brin', $$SELECT count(*) FROM outbox.attempts WHERE worker_id = 'zoe'$$) AS recorded;
SELECT severity, object, problem FROM outbox.check() WHERE severity = 'error';
