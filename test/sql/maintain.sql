--
-- maintain: partitions ahead, complete and in pairs; repairs; trimmed numbers;
-- what it says it did. And that a message's rows lie in the leaves of its birth.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

-- On a new database: pairs of leaves from now on, without gaps, all of one length, nothing in
-- the default leaves. CREATE EXTENSION makes them, and they are no members of it.
SELECT count(*) AS leaves FROM pg_inherits WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass, 'outbox.events'::regclass);
SELECT count(*) AS members FROM pg_depend d JOIN pg_inherits i ON d.classid = 'pg_class'::regclass AND d.objid = i.inhrelid WHERE d.deptype = 'e';
SELECT created FROM outbox.enqueue('the first', '1');
SELECT count(*) AS in_default FROM outbox.messages_default;
SELECT count(*) FROM (SELECT outbox.cancel(outbox_id, 'no more') FROM outbox.pending) c;
SELECT * FROM outbox.maintain();
CREATE VIEW t.leaves AS
	SELECT inhparent::regclass AS parent, c.relname, c.oid, r[1]::uuid AS lower, r[2]::uuid AS upper,
		to_timestamp(('x' || replace(left(r[1], 13), '-', ''))::bit(48)::bigint / 1000.0) AS begins,
		to_timestamp(('x' || replace(left(r[2], 13), '-', ''))::bit(48)::bigint / 1000.0) AS ends
	FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid, regexp_match(pg_get_expr(relpartbound, c.oid), 'FROM \(''(.*)''\) TO \(''(.*)''\)') r
	WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass, 'outbox.events'::regclass) AND r IS NOT NULL;
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

-- In a restore CREATE EXTENSION makes none: a dump begins with these settings. Rolled back,
-- nothing was made, and the session goes on; then it is made.
\set undated
\i :fresh
BEGIN;
SELECT action, count(*) FROM outbox.maintain() GROUP BY 1;
SELECT created FROM outbox.enqueue('rolled back', '1');
ROLLBACK;
SELECT count(*) AS leaves FROM pg_inherits WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass, 'outbox.events'::regclass);
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

-- All gaps of a period are looked at: one that DEFAULT keeps, and those after it.
CREATE FUNCTION t.covers(at timestamptz) RETURNS boolean LANGUAGE sql AS $$
	SELECT count(*) > 0 FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid, regexp_match(pg_get_expr(relpartbound, c.oid), 'FROM \(''(.*)''\) TO \(''(.*)''\)') r
	WHERE inhparent = 'outbox.messages'::regclass
		AND (overlay(lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') PLACING '-' FROM 9 FOR 0) || '-7000-8000-000000000000')::uuid >= r[1]::uuid
		AND (overlay(lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') PLACING '-' FROM 9 FOR 0) || '-7000-8000-000000000000')::uuid < r[2]::uuid
$$;
SET outbox.partition_interval = '3650 days';
SELECT action, count(*) FROM outbox.maintain() WHERE object ~ 'messages' GROUP BY 1 ORDER BY 1;
SELECT t.covers(now()) AS now, t.covers(now() + interval '7 days') AS next_week, t.covers(now() + interval '8000 days') AS late;
SELECT action, count(*) FROM outbox.maintain() WHERE object ~ 'messages' GROUP BY 1 ORDER BY 1;
RESET outbox.partition_interval;

-- A large DEFAULT leaf is not read under the lock that attaching takes: a CHECK is made,
-- validated and dropped again, a call each (t/035_large_default.pl asks what is read).
\set undated
\i :fresh
CREATE TEMP VIEW exclusions AS
	SELECT conrelid::regclass AS leaf, regexp_replace(conname, '\d+', '<ms>', 'g') AS name, convalidated FROM pg_constraint WHERE conname ~ 'excludes';
CREATE FUNCTION pg_temp.fill(ms bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, priority, payload, headers, created_at)
	SELECT (lpad(to_hex(ms + g), 12, '0') || '70008000' || lpad(to_hex(g), 12, '0'))::uuid, 'default', gen_random_uuid(), 'e', 0, '1', '{}', now()
	FROM generate_series(1, 25000) g;
END
$$;
SELECT pg_temp.fill(1600000000000);
SELECT created FROM outbox.enqueue('in the present period', '1');
SELECT count(*) FROM outbox.claim('w') WHERE event_type <> 'e';
SELECT action, object = to_char(date_trunc('week', now(), 'UTC') AT TIME ZONE 'UTC' + interval '7 days', '"messages_p"YYYYMMDD') AS next_week FROM outbox.maintain() WHERE object ~ 'messages';
SELECT * FROM exclusions;
SELECT created FROM outbox.enqueue('beside a CHECK', '1');
-- Somebody who writes into it, and has not committed, does not keep it from being validated.
BEGIN;
SELECT created FROM outbox.enqueue('still open', '1');
PREPARE TRANSACTION 'outbox maintain';
SELECT action FROM outbox.maintain() WHERE object ~ 'messages';
SELECT * FROM exclusions;
-- It keeps it from being attached.
SELECT action, detail FROM outbox.maintain() WHERE object ~ 'messages';
COMMIT PREPARED 'outbox maintain';
SELECT action FROM outbox.maintain() WHERE action = 'partition made';
SELECT count(*) FILTER (WHERE tableoid = 'outbox.messages_default'::regclass) AS in_default, count(*) AS messages FROM outbox.messages;
-- A CHECK of a time that is wanted no more gives way to another one, and none is copied.
-- (Tomorrow is in the week that DEFAULT keeps, but on Sundays.)
SET outbox.partition_interval = '1 day';
SELECT action FROM outbox.maintain() WHERE object ~ 'messages' AND action NOT IN ('partition not needed', 'partition left for later');
SELECT * FROM exclusions;
SET outbox.partition_interval = '3650 days';
SELECT action FROM outbox.maintain() WHERE object ~ 'messages' AND action <> 'partition not needed';
SELECT action FROM outbox.maintain() WHERE object ~ 'messages' AND action <> 'partition not needed';
SELECT action FROM outbox.maintain() WHERE object ~ 'messages' AND action <> 'partition not needed';
SELECT * FROM exclusions;
RESET outbox.partition_interval;
-- A time that new ids may fall into is not excluded: an enqueue would be refused.
\unset undated
\i :fresh
SELECT pg_temp.fill(1600000000000);
DO $$
DECLARE
	leaf regclass;
BEGIN
	FOR leaf IN SELECT inhrelid FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
		WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass, 'outbox.events'::regclass) AND relname ~ to_char(date_trunc('week', now(), 'UTC') AT TIME ZONE 'UTC', '"_p"YYYYMMDD')
	LOOP
		EXECUTE format('DROP TABLE %s', leaf);
	END LOOP;
END
$$;
SELECT action, detail FROM outbox.maintain() WHERE object ~ 'messages';
SELECT created FROM outbox.enqueue('e', '1');
SELECT * FROM exclusions;
-- Where no partition bounds new ids, a CHECK does, also in a session whose ids were beyond.
\set undated
\i :fresh
SELECT outbox_id > '0174876e-8000-7000-8000-000000000000' AS beyond FROM outbox.enqueue('before', '1');
ALTER TABLE outbox.messages_default ADD CONSTRAINT messages_default_excludes_1600000000000_4000000000000
	CHECK (outbox_id < '0174876e-8000-7000-8000-000000000000' OR outbox_id >= '03a35294-4000-7000-8000-000000000000') NOT VALID;
SELECT outbox_id > '0174876e-8000-7000-8000-000000000000' AS beyond, created FROM outbox.enqueue('beside it', '1');
SELECT count(*) FROM outbox.enqueue_batch('default', '[{"event_type": "a", "payload": 1}, {"event_type": "b", "payload": 1}]');

-- outbox.partition_interval: shorter partitions carry the hour in their names.
SET outbox.partition_interval = '1 hour';
\unset undated
\i :fresh
SELECT bool_and(relname ~ '^(messages|attempts|events)_p[0-9]{8}(_[0-9]{4})?$') AS names, count(*) FILTER (WHERE relname ~ '_[0-9]{4}$') > 0 AS with_the_hour
FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass, 'outbox.events'::regclass) AND relname !~ 'default';
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

-- A lock that is not to be had stops its own part of a pass alone, whatever it is on (a prepared
-- transaction holds it here).
\set undated
\i :fresh
SELECT outbox.set_retention('1 h');
UPDATE outbox.queues SET repair_delay = '0';
CREATE FUNCTION t.lose_lease() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM outbox.enqueue('e', '1');
	PERFORM FROM outbox.claim('w');
	UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE claimed_by IS NOT NULL;
	RETURN (SELECT count(*) FROM outbox.pending WHERE claimed_by IS NOT NULL);
END
$$;
SELECT unnest(ARRAY['SELECT t.lose_lease() > 0 AS lost', 'BEGIN', 'LOCK TABLE ONLY ' || l, 'PREPARE TRANSACTION ''outbox maintain''',
	'SELECT action, regexp_replace(object, ''\d+'', ''<date>'') AS object, count(*) FROM outbox.maintain() GROUP BY 1, 2 ORDER BY 1, 2', 'SELECT count(*) AS leases_left FROM outbox.pending WHERE claimed_by IS NOT NULL',
	'ROLLBACK PREPARED ''outbox maintain'''])
FROM unnest(ARRAY['outbox.messages', 'outbox.attempts', 'outbox.messages_default', 'outbox.idempotency_keys']) l \gexec
SELECT outbox.set_retention(NULL);
-- Without any lock to be had nothing of it is done, and said so.
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

-- What check() says of it: rows in DEFAULT, much without a retention, and what claims pass by.
\unset undated
\i :fresh
SELECT pg_temp.fill(1600000000000);
INSERT INTO outbox.pending (outbox_id, queue) VALUES ('00000000-0000-7000-8000-000000000001', 'default'), ('00000000-0000-7000-8000-000000000002', 'nowhere');
UPDATE pg_class SET relpages = 2000000 WHERE oid = 'outbox.messages_default'::regclass;
SELECT severity, object, problem FROM outbox.check() WHERE object <> 'background worker';
SELECT outbox.set_retention('90 days');
SELECT severity, object FROM outbox.check() WHERE object <> 'background worker';
