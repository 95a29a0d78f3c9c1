--
-- maintain: partitions ahead, complete and in pairs; repairs; trimmed numbers;
-- what it says it did. And that a message's rows lie in the leaves of its birth.
--
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS outbox CASCADE;
CREATE EXTENSION outbox;
RESET client_min_messages;
\getenv testdir PG_ABS_SRCDIR
\set helpers :testdir /sql/setup.inc
\i :helpers

-- On a new database: pairs of leaves from now on, without gaps, all of one length,
-- nothing in the default leaves.
SELECT count(*) AS leaves FROM pg_inherits WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass);
CREATE TABLE t.did AS SELECT * FROM outbox.maintain();
SELECT count(*) > 0 AS did_something, bool_and(action <> '' AND object <> '') AS says_what FROM t.did;
CREATE VIEW t.leaves AS
	SELECT inhparent::regclass AS parent, c.relname, c.oid, r[1]::uuid AS lower, r[2]::uuid AS upper,
		to_timestamp(('x' || replace(left(r[1], 13), '-', ''))::bit(48)::bigint / 1000.0) AS begins,
		to_timestamp(('x' || replace(left(r[2], 13), '-', ''))::bit(48)::bigint / 1000.0) AS ends
	FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid, regexp_match(pg_get_expr(relpartbound, c.oid), 'FROM \(''(.*)''\) TO \(''(.*)''\)') r
	WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass) AND r IS NOT NULL;
SELECT count(*) > 2 AS made, count(*) FILTER (WHERE parent = 'outbox.messages'::regclass) = count(*) FILTER (WHERE parent = 'outbox.attempts'::regclass) AS in_pairs,
	bool_and(ends - begins = '7 days') AS of_a_week, min(begins) <= now() AS covers_now, max(ends) > now() + interval '7 days' AS ahead
FROM t.leaves;
SELECT count(*) AS gaps FROM t.leaves a WHERE NOT EXISTS (SELECT 1 FROM t.leaves b WHERE b.parent = a.parent AND b.lower = a.upper)
	AND a.ends < (SELECT max(ends) FROM t.leaves);
SELECT bool_and(a.lower = m.lower AND a.upper = m.upper) AS same_bounds FROM t.leaves m FULL JOIN t.leaves a ON replace(m.relname, 'messages', 'attempts') = a.relname
WHERE m.parent = 'outbox.messages'::regclass AND a.parent = 'outbox.attempts'::regclass;
-- Named by their lower bound in UTC.
SELECT bool_and(relname = regexp_replace(parent::text, '^outbox\.', '') || to_char(begins AT TIME ZONE 'UTC', '"_p"YYYYMMDD')) AS names FROM t.leaves;
-- The next call has nothing to make, and takes nothing away.
SELECT count(*) AS leaves FROM t.leaves \gset
SELECT count(*) AS made FROM outbox.maintain() WHERE object ~ '_p[0-9]';
SELECT count(*) = :leaves AS leaves_stay FROM t.leaves;

-- Complete: what the default leaf has, each dated leaf has: columns, indexes,
-- checks, triggers of its own that are ENABLE ALWAYS, storage, comments, owner.
CREATE FUNCTION t.description(leaf regclass) RETURNS TABLE (what text) LANGUAGE sql AS $$
	WITH me AS (SELECT c.*, regexp_replace(c.relname, '_(default|p[0-9_]+)$', '') AS stem FROM pg_class c WHERE c.oid = leaf)
	SELECT format('column %s %s %s %s', attname, format_type(atttypid, atttypmod), attnotnull, attcollation::regcollation) FROM pg_attribute WHERE attrelid = leaf AND attnum > 0
	UNION ALL SELECT format('default %s %s', adnum, pg_get_expr(adbin, adrelid)) FROM pg_attrdef WHERE adrelid = leaf
	UNION ALL SELECT format('index %s %s', replace(i.indexrelid::regclass::text, relname, 'LEAF'), replace(pg_get_indexdef(i.indexrelid), relname, 'LEAF')) || ' ' || i.indisvalid || ' ' || coalesce(obj_description(i.indexrelid, 'pg_class'), 'no comment')
		FROM pg_index i, me WHERE i.indrelid = leaf
	UNION ALL SELECT format('constraint %s %s', replace(conname, relname, 'LEAF'), pg_get_constraintdef(x.oid)) || ' ' || coalesce(left(obj_description(x.oid, 'pg_constraint'), 0), ' no comment')
		FROM pg_constraint x, me WHERE conrelid = leaf AND contype <> 'n'
	UNION ALL SELECT format('trigger %s %s %s %s', tgname, tgfoid::regproc, tgtype, tgenabled) || ' clone: ' || (tgparentid <> 0) || ' ' || CASE WHEN tgparentid = 0 THEN coalesce(obj_description(x.oid, 'pg_trigger'), 'no comment') ELSE '' END
		FROM pg_trigger x WHERE tgrelid = leaf
	UNION ALL SELECT format('options %s owner %s grants to others %s rls %s am %s', reloptions, relowner::regrole, (SELECT count(*) FROM aclexplode(relacl) WHERE grantee <> relowner), relrowsecurity, amname) FROM me JOIN pg_am a ON a.oid = relam
	UNION ALL SELECT format('comment %s', obj_description(leaf, 'pg_class') IS NOT NULL)
$$;
SELECT l.parent, count(*) > 1 AS leaves, count(DISTINCT d.what) AS lines FROM t.leaves l, LATERAL t.description(l.oid) d GROUP BY 1 ORDER BY 1;
SELECT DISTINCT l.parent, 'only in a dated one: ' || d.what AS difference FROM t.leaves l, LATERAL (SELECT * FROM t.description(l.oid) EXCEPT SELECT * FROM t.description((l.parent::text || '_default')::regclass)) d
UNION ALL SELECT DISTINCT l.parent, 'only in the default one: ' || d.what FROM t.leaves l, LATERAL (SELECT * FROM t.description((l.parent::text || '_default')::regclass) EXCEPT SELECT * FROM t.description(l.oid)) d;
SELECT * FROM t.description('outbox.attempts_default') WHERE what !~ '^column' ORDER BY 1;
SELECT * FROM t.description('outbox.messages_default') WHERE what !~ '^column' ORDER BY 1;
SELECT * FROM outbox.check() WHERE severity = 'error';

-- Messages and attempts go where they belong, all of a message in one pair.
SELECT count(*) FROM generate_series(1, 10) g, outbox.enqueue('m' || g, to_jsonb(g));
SELECT count(*) FROM outbox.claim('w') c, LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', 'RETRYABLE', retry_delay => '0');
SELECT count(*) FROM outbox.claim('w') c, LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', 'DISPATCHED');
SELECT count(*) FILTER (WHERE tableoid = 'outbox.messages_default'::regclass) AS in_default, count(DISTINCT tableoid) AS leaves FROM outbox.messages;
SELECT count(*) AS attempts, count(*) FILTER (WHERE replace(a.tableoid::regclass::text, 'attempts', 'messages') <> m.tableoid::regclass::text) AS elsewhere
FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id);

-- Rolled back, nothing was made, and the session goes on; then it is made.
SET client_min_messages = warning;
DROP EXTENSION outbox CASCADE;
CREATE EXTENSION outbox;
\i :helpers
BEGIN;
SELECT count(*) > 0 AS did FROM outbox.maintain();
SELECT created FROM outbox.enqueue('rolled back', '1');
ROLLBACK;
SELECT count(*) AS leaves FROM pg_inherits WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass);
SELECT created FROM outbox.enqueue('first', '1');
SELECT tableoid::regclass FROM outbox.messages;
-- The default leaf now holds this period: the ranges it blocks are left out, later
-- ones are made; nothing is moved, nothing fails, and everything goes on.
SELECT count(*) > 0 AS did FROM outbox.maintain();
SELECT created FROM outbox.enqueue('second', '1');
SELECT event_type, tableoid::regclass FROM outbox.messages ORDER BY 1;
SELECT count(*) FROM outbox.claim('w') c, LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', 'DISPATCHED');
SELECT count(*), count(DISTINCT tableoid) FROM outbox.attempts;
SELECT * FROM outbox.check() WHERE severity = 'error';

-- outbox.partition_interval: shorter partitions carry the hour in their names.
SET client_min_messages = warning;
DROP EXTENSION outbox CASCADE;
CREATE EXTENSION outbox;
\i :helpers
SET outbox.partition_interval = '1 hour';
SELECT count(*) > 0 AS did FROM outbox.maintain();
SELECT bool_and(relname ~ '^(messages|attempts)_p[0-9]{8}(_[0-9]{4})?$') AS names, count(*) FILTER (WHERE relname ~ '_[0-9]{4}$') > 0 AS with_the_hour
FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass) AND relname !~ 'default';
-- A change of the interval goes on where the last partition ends.
SET outbox.partition_interval = '1 day';
SELECT count(*) > 0 AS did FROM outbox.maintain();
SELECT created FROM outbox.enqueue('e', '1');
SELECT tableoid <> 'outbox.messages_default'::regclass AS dated FROM outbox.messages WHERE event_type = 'e';
SELECT * FROM outbox.check() WHERE severity = 'error';
SELECT t.try(format('SET outbox.partition_interval = %L', v)) AS set, t.try('SELECT outbox.maintain()') AS maintain
FROM (VALUES ('1 hour'), ('59 minutes'), ('10 years'), ('11 years'), ('0'), ('-1 week'), ('a while'), ('')) x(v);
RESET outbox.partition_interval;
SHOW outbox.partition_interval;

-- It repairs, and says so.
SELECT created FROM outbox.enqueue_and_claim('lost', 'late', '1');
SELECT t.expire('late');
SELECT count(*) > 0 AS says_so FROM outbox.maintain();
SELECT message, no, state, worker_id, recorded_by IS NOT NULL AS recorded FROM t.ledger;
SELECT message, state FROM t.pending WHERE message = 'late';

-- It trims superseded numbers; the next number stays what it was.
SELECT outbox.create_queue('n', ordering => 'numbered');
SELECT count(*) FROM generate_series(1, 50) g, LATERAL outbox.enqueue('n', to_jsonb(g), 'n', partition_key => 'k');
DO $$ BEGIN FOR i IN 1 .. 50 LOOP PERFORM outbox.enqueue('n', '1', 'n', partition_key => 'k'); COMMIT; END LOOP; END $$;
SELECT count(*) > 0 AS did FROM outbox.maintain();
SELECT count(*) AS rows FROM outbox.key_numbers;
SELECT * FROM outbox.sequences;
SELECT sequence_id FROM outbox.enqueue('n', '1', 'n', partition_key => 'k');

-- A lock that is not to be had stops its own step alone (a prepared transaction holds it here).
DROP EXTENSION outbox CASCADE;
CREATE EXTENSION outbox;
SELECT count(*) FROM outbox.enqueue('e', '1');
SELECT count(*) FROM outbox.claim('w');
UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 second';
BEGIN;
LOCK TABLE outbox.pending;
PREPARE TRANSACTION 'outbox maintain';
SELECT action, count(*) FROM outbox.maintain() WHERE action <> 'partition not needed' GROUP BY action ORDER BY action;
ROLLBACK PREPARED 'outbox maintain';
SELECT action, count(*) FROM outbox.maintain() WHERE action <> 'partition not needed' GROUP BY action ORDER BY action;
SELECT state, worker_id, recorded_by FROM outbox.attempts;
