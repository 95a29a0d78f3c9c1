--
-- Seals: what they count, what verify_seals finds, and what it does not take for tampering.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

-- Past the triggers, as a superuser can; the partition that holds the message.
CREATE FUNCTION t.tamper(statement text, type text DEFAULT 'a') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	leaf text;
BEGIN
	SELECT c.relname INTO leaf FROM outbox.messages m JOIN pg_class c ON c.oid = m.tableoid WHERE event_type = type;
	CREATE OR REPLACE FUNCTION outbox.append_only() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN coalesce(NEW, OLD); END';
	EXECUTE replace(statement, '$leaf', leaf);
	RETURN 'done';
END
$$;
CREATE FUNCTION t.verified(VARIADIC seals bigint[] DEFAULT '{}') RETURNS TABLE (seal_no bigint, ok boolean, problem text) LANGUAGE sql AS $$
	SELECT v.seal_no, v.ok, t.masked(v.problem) FROM outbox.verify_seals(seals[1], seals[2]) v
$$;
-- What verify_seals says after the statement, which is undone.
CREATE FUNCTION t.found_after(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM t.tamper(statement);
		RAISE EXCEPTION USING errcode = 'UTEST',
			message = coalesce((SELECT string_agg(concat_ws(': ', v.seal_no, v.problem), E'\n' ORDER BY v.seal_no, v.problem COLLATE "C") FROM t.verified() v WHERE NOT v.ok), 'nothing');
	EXCEPTION WHEN SQLSTATE 'UTEST' THEN
		RETURN NEXT SQLERRM;
	END;
END
$$;

-- Nothing was recorded: the window is empty.
SELECT seal_no, from_at, to_at <= clock_timestamp() AS past, messages, attempts, events, encode(root, 'hex') AS root, parts,
	previous, length(hash) AS hash, signature, key_id FROM outbox.seal();
SELECT * FROM t.verified();

SELECT created FROM outbox.enqueue('a', '{"b": [1, null, "x"]}', headers => '{"h": true}', partition_key => 'k', deliver_at => '2020-01-01Z');
SELECT count(*) FROM outbox.enqueue_batch('default', '[{"event_type": "b", "payload": 1}, {"event_type": "c", "payload": "ö"}]');
SELECT count(*) FROM outbox.claim('w', 3);
SELECT outbox.complete(t.id('a'), t.token('a'), 'w', 'RETRYABLE', error_code => 'E1') IS NOT NULL AS reported;
SELECT t.delivered('b');
-- In the same transaction as records before and after it.
BEGIN;
SELECT created FROM outbox.enqueue('d', payload_bytes => '\x00ff', content_type => 'application/x');
SELECT seal_no, messages, attempts, events, jsonb_array_length(parts) AS parts FROM outbox.seal();
SELECT created FROM outbox.enqueue('e', '1');
COMMIT;
SELECT m.event_type, s.seal_no FROM outbox.messages m LEFT JOIN outbox.seals s ON m.created_at >= s.from_at AND m.created_at < s.to_at ORDER BY 1;
SELECT * FROM t.verified();

-- Rolled back: the next one has its number.
BEGIN;
SELECT seal_no, messages FROM outbox.seal();
ROLLBACK;
SELECT seal_no, messages, attempts FROM outbox.seal();
SELECT b.seal_no, b.previous = a.hash AS chained, b.from_at = a.to_at AS adjoins FROM outbox.seals a JOIN outbox.seals b ON b.seal_no = a.seal_no + 1 ORDER BY 1;
SELECT * FROM t.verified(2, 3);
SELECT * FROM t.verified(3);
SELECT * FROM t.verified(4);
-- Counts of the seals and of their parts are those of the tables.
SELECT sum(s.messages) = (SELECT count(*) FROM outbox.messages) AS messages, sum(s.attempts) = (SELECT count(*) FROM outbox.attempts) AS attempts FROM outbox.seals s;

-- What is changed is found and named.
SELECT t.found_after($$UPDATE outbox.messages SET payload = '2' WHERE event_type = 'a'$$);
SELECT t.found_after($$UPDATE outbox.messages SET headers = headers || '{"x": 1}' WHERE event_type = 'd'$$);
SELECT t.found_after($$UPDATE outbox.messages SET payload_bytes = '\x00fe' WHERE event_type = 'd'$$);
SELECT t.found_after($$UPDATE outbox.messages SET created_at = created_at + interval '1 us' WHERE event_type = 'a'$$);
SELECT t.found_after($$DELETE FROM outbox.messages WHERE event_type = 'a'$$);
SELECT t.found_after($$DELETE FROM outbox.messages$$);
SELECT t.found_after($$UPDATE outbox.attempts SET state = 'FAILED', completed_at = created_at WHERE state = 'RETRYABLE'$$);
SELECT t.found_after($$UPDATE outbox.attempts SET error_code = 'E2' WHERE error_code = 'E1'$$);
SELECT t.found_after($$UPDATE outbox.attempts SET error_message = '' WHERE error_code = 'E1'$$);
SELECT t.found_after($$DELETE FROM outbox.attempts WHERE state = 'DISPATCHED'$$);
SELECT t.found_after($$INSERT INTO outbox.attempts (outbox_id, attempt_no, state, created_at) SELECT outbox_id, 1, 'RETRYABLE', created_at FROM outbox.messages WHERE event_type = 'e'$$);
SELECT t.found_after($$INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, payload, headers, created_at, priority)
	SELECT '00000000-0000-7000-8000-000000000001', 'default', gen_random_uuid(), 'z', '1', '{}', '2001-01-01', 0$$);
-- A copy in place of a partition; a partition that is gone.
SELECT t.found_after($$ALTER TABLE outbox.messages DETACH PARTITION outbox.$leaf; DROP TABLE outbox.$leaf$$);
SELECT t.found_after($$ALTER TABLE outbox.$leaf RENAME TO messages_other$$);
-- ... which is right once its retirement is recorded, for what was sealed before.
SELECT t.found_after(format($$SELECT outbox.record_event('PARTITION_RETIRED', detail => '{"partition": "$leaf", "last_seal": "%s"}'); ALTER TABLE outbox.messages DETACH PARTITION outbox.$leaf; DROP TABLE outbox.$leaf$$, last_seal)) FROM unnest('{1,9,x}'::text[]) last_seal;
SELECT t.found_after($$SELECT outbox.record_event('PARTITION_RETIRED', detail => '{"partition": "messages_other", "last_seal": "9"}'); ALTER TABLE outbox.messages DETACH PARTITION outbox.$leaf; DROP TABLE outbox.$leaf$$);
-- The seals themselves.
SELECT t.found_after($$UPDATE outbox.seals SET messages = 7 WHERE seal_no = 2$$);
SELECT t.found_after($$UPDATE outbox.seals SET parts = jsonb_set(parts, '{0,rows}', '7') WHERE seal_no = 2$$);
SELECT t.found_after($$UPDATE outbox.seals SET parts = parts - 0 WHERE seal_no = 2$$);
SELECT t.found_after($$UPDATE outbox.seals SET parts = '{}' WHERE seal_no = 2$$);
SELECT t.found_after($$UPDATE outbox.seals SET root = '\x00' WHERE seal_no = 2$$);
SELECT t.found_after($$UPDATE outbox.seals SET root = sha256('') WHERE seal_no = 2$$);
SELECT t.found_after($$UPDATE outbox.seals SET hash = sha256('') WHERE seal_no = 2$$);
SELECT t.found_after($$UPDATE outbox.seals SET previous = sha256('') WHERE seal_no = 2$$);
SELECT t.found_after($$UPDATE outbox.seals SET to_at = to_at + interval '1 us' WHERE seal_no = 3$$);
SELECT t.found_after($$UPDATE outbox.seals SET key_id = '0123456789abcdef' WHERE seal_no = 2$$);
SELECT t.found_after($$UPDATE outbox.seals SET key_id = 'short', signature = '\x00' WHERE seal_no = 2$$);
SELECT t.found_after($$UPDATE outbox.seals SET signature = decode(repeat('00', 64), 'hex') WHERE seal_no = 2$$);
SELECT t.found_after($$DELETE FROM outbox.seals WHERE seal_no = 2$$);
SELECT t.found_after($$DELETE FROM outbox.seals WHERE seal_no = 1$$);
SELECT t.found_after($$DELETE FROM outbox.seals WHERE seal_no = (SELECT max(seal_no) FROM outbox.seals)$$);
SELECT t.found_after($$DELETE FROM outbox.seals$$);
-- An event that would never be sealed excuses nothing.
SELECT t.found_after($$INSERT INTO outbox.events (event_id, event, at, actor, detail) VALUES (gen_random_uuid(), 'PARTITION_RETIRED', '2999-01-01', 'x', '{"partition": "$leaf", "last_seal": "9"}'); TRUNCATE outbox.$leaf$$);
-- Nothing of this stayed.
SELECT * FROM t.verified();
SELECT t.found_after($$UPDATE outbox.pending SET priority = 3$$);

-- Proofs and exports. A row that is not sealed yet has no path.
CREATE FUNCTION t.hash(hex text) RETURNS bytea LANGUAGE sql AS $$ SELECT sha256(decode(hex, 'hex')) $$;
SELECT p ->> 'format' AS format, jsonb_array_length(p -> 'rows') AS rows, jsonb_array_length(p -> 'seals') AS seals, p ->> 'outbox_id' = t.id('a')::text AS id
FROM outbox.prove(t.id('a')) p;
SELECT r ->> 'table' AS "table", r -> 'seal_no' AS seal_no, r -> 'rows' AS rows, jsonb_array_length(r -> 'path') AS path, r -> 'part_index' AS part, r -> 'parts' AS parts, jsonb_array_length(r -> 'part_path') AS part_path,
	(SELECT string_agg(c ->> 0 || ' ' || (c ->> 1) || CASE WHEN c -> 2 = 'null' THEN ' null' ELSE '' END, ', ') FROM jsonb_array_elements(r -> 'columns') c) AS columns
FROM outbox.prove(t.id('a')) p, jsonb_array_elements(p -> 'rows') r;
-- The path leads from the leaf to the root of the part, and from there to that of the seal.
SELECT l.leaf = t.hash('00' || '000000106f7574626f78206d6573736167652031' || '00000012' || string_agg(CASE WHEN c -> 2 = 'null' THEN 'ffffffff' ELSE lpad(to_hex(length(c ->> 2) / 2), 8, '0') || (c ->> 2) END, '' ORDER BY o)) AS leaf
FROM outbox.prove(t.id('a')) p, jsonb_array_elements(p -> 'rows' -> 0 -> 'columns') WITH ORDINALITY x(c, o), outbox.seal_leaves(2) l
WHERE l."table" = 'messages' AND l.id = t.id('a') GROUP BY l.leaf;
CREATE FUNCTION t.walked(leaf bytea, index bigint, rows bigint, path jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	step text;
	last bigint := rows - 1;
BEGIN
	FOR step IN SELECT jsonb_array_elements_text(path) LOOP
		WHILE index % 2 = 0 AND index = last LOOP
			index := index / 2;
			last := last / 2;
		END LOOP;
		leaf := CASE WHEN index % 2 = 1 THEN sha256('\x01'::bytea || decode(step, 'hex') || leaf) ELSE sha256('\x01'::bytea || leaf || decode(step, 'hex')) END;
		index := index / 2;
		last := last / 2;
	END LOOP;
	RETURN encode(leaf, 'hex');
END
$$;
SELECT r ->> 'table' AS "table", t.walked(l.leaf, (r ->> 'index')::bigint, (r ->> 'rows')::bigint, r -> 'path') = s.parts -> (r ->> 'part_index')::int ->> 'root' AS leads_to_root
FROM outbox.prove(t.id('a')) p, jsonb_array_elements(p -> 'rows') r
JOIN outbox.seals s ON s.seal_no = (r ->> 'seal_no')::bigint
JOIN outbox.seal_leaves(2) l ON l."table" = r ->> 'table' AND l.id = t.id('a');
SELECT count(*), bool_and(p -> 'rows' -> 0 -> 'seal_no' = to_jsonb(s.seal_no)) AS sealed FROM outbox.messages m JOIN outbox.seals s ON m.created_at >= s.from_at AND m.created_at < s.to_at, outbox.prove(m.outbox_id) p;
SELECT created FROM outbox.enqueue('open', '1');
SELECT p -> 'rows' -> 0 -> 'seal_no' AS seal_no, p -> 'rows' -> 0 ? 'path' AS path, p -> 'seals' AS seals FROM outbox.prove(t.id('open')) p;
SELECT "table", count(*), count(DISTINCT leaf), count(attempt_no) FROM outbox.seal_leaves(2) GROUP BY 1 ORDER BY 1;
SELECT string_agg(k, ' ' ORDER BY k) FROM outbox.export_seals(2, 2) e, jsonb_object_keys(e) k;
SELECT e ->> 'seal_no' AS seal_no, e ->> 'from_at' ~ '^-infinity$|^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$' AS from_at, e -> 'parts' = s.parts AS parts, e ->> 'hash' = encode(s.hash, 'hex') AS hash,
	'2000-01-01Z'::timestamptz + (e ->> 'to_us')::bigint * interval '1 us' = s.to_at AS to_us, e -> 'signature' AS signature
FROM outbox.export_seals() e JOIN outbox.seals s ON s.seal_no = (e ->> 'seal_no')::bigint;
SELECT e -> 'from_us' AS from_us FROM outbox.export_seals(1, 1) e;
-- What was changed has no proof.
BEGIN;
SELECT t.tamper($$UPDATE outbox.messages SET payload = '2' WHERE event_type = 'b'$$);
SELECT t.try('SELECT outbox.prove(t.id(''a''))');
ROLLBACK;
SELECT s, t.try('SELECT outbox.' || s) FROM unnest(ARRAY['prove(NULL)', 'prove(''00000000-0000-7000-8000-000000000000'')', 'seal_leaves(NULL)', 'seal_leaves(99)', 'export_seals(0)', 'export_seals(3, 2)']) s;

-- Each seal is an event of the next window, and a message of the queue outbox_seals where there is one.
SELECT event, queue, detail ->> 'seal_no' AS seal_no, detail ->> 'hash' = encode(s.hash, 'hex') AS hash FROM outbox.events LEFT JOIN outbox.seals s ON s.seal_no = (detail ->> 'seal_no')::bigint WHERE event = 'SEALED' ORDER BY at;
SELECT count(*) FROM outbox.pending WHERE queue = 'outbox_seals';
SELECT outbox.create_queue('outbox_seals');
SELECT seal_no FROM outbox.seal();
SELECT event_type, payload = (SELECT e FROM outbox.export_seals(4, 4) e) AS is_seal, idempotency_key = encode(s.hash, 'hex') AS has_key FROM outbox.messages JOIN outbox.seals s ON seal_no = 4 WHERE queue = 'outbox_seals';
-- Nobody else writes into that queue, in no way: its messages are seals. What died is replayed as it was.
SELECT s, t.try(s) FROM (VALUES
	($$SELECT outbox.enqueue('outbox.seal', '{}', 'outbox_seals')$$),
	($$SELECT outbox.enqueue_batch('outbox_seals', '[{"event_type": "outbox.seal", "payload": {}}]')$$),
	($$SELECT outbox.enqueue_and_claim('w', 'outbox.seal', '{}', 'outbox_seals')$$),
	($$SELECT outbox.create_queue('telling', dead_letter_queue => 'outbox_seals')$$),
	($$SELECT outbox.alter_queue('default', dead_letter_queue => 'outbox_seals')$$)) v(s);
BEGIN;
SELECT outbox.cancel(t.id('outbox.seal'), 'r');
SELECT outbox.replay(t.id('outbox.seal')) IS NOT NULL AS replayed;
ROLLBACK;
SELECT t.found_after($$UPDATE outbox.events SET detail = detail || '{"seal_no": "9"}' WHERE event = 'SEALED' AND detail ->> 'seal_no' = '2'$$);
SELECT t.found_after($$DELETE FROM outbox.events WHERE event = 'SEALED' AND detail ->> 'seal_no' = '2'$$);

-- Append-only.
SELECT t.try('UPDATE outbox.seals SET messages = 0');
SELECT t.try('DELETE FROM outbox.seals');
SELECT t.try('TRUNCATE outbox.seals');

-- Seals that a restore brings raise the floor: what is recorded then has no earlier time.
BEGIN;
INSERT INTO outbox.seals SELECT seal_no + 1, to_at, '2999-01-01Z', 0, 0, 0, root, '[]', hash, sha256(''), NULL, NULL FROM outbox.seals ORDER BY seal_no DESC LIMIT 1;
SELECT created FROM outbox.enqueue('late', '1');
SELECT created_at FROM outbox.messages WHERE event_type = 'late';
ROLLBACK;
-- ... and does not go back. The clock is behind: seals go on, a microsecond at least for each.
SELECT created FROM outbox.enqueue('later', '1');
SELECT created_at FROM outbox.messages WHERE event_type = 'later';
SELECT seal_no, messages, to_at FROM outbox.seal();
SELECT created FROM outbox.enqueue('latest', '1');
SELECT seal_no, messages, to_at FROM outbox.seal();
SELECT seal_no, messages, to_at FROM outbox.seal();
SELECT count(*) > 0 AS claimed FROM outbox.claim('w', 10, queues => '{default}');
SELECT * FROM t.verified();

-- A time zone in which the server does not read what it writes.
BEGIN;
SET LOCAL TimeZone = '<+99>-99';
SELECT count(*) AS sealed FROM outbox.seal();
SELECT count(*) AS bad FROM outbox.verify_seals() WHERE NOT ok;
SELECT jsonb_array_length(outbox.prove(t.id('latest')) -> 'rows') > 0 AS proved, (SELECT count(*) > 0 FROM outbox.export_seals()) AS exported;
ROLLBACK;

-- Errors.
SELECT a, t.try('SELECT * FROM outbox.verify_seals' || a) FROM unnest('{"(0)","(2, 1)","(NULL, 0)"}'::text[]) a;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT t.try('SELECT outbox.seal()');
SELECT t.try('SELECT outbox.verify_seals()');
ROLLBACK;
BEGIN READ ONLY;
SELECT t.try('SELECT outbox.seal()');
SELECT count(*) FROM outbox.verify_seals();
ROLLBACK;

-- Not while a message is written.
CREATE FUNCTION t.seals(payload jsonb, headers jsonb, routing_key text) RETURNS text LANGUAGE sql AS 'SELECT NULL::text FROM (SELECT count(*) FROM outbox.seal()) s';
SELECT outbox.create_queue('sealing', validator => 't.seals');
SELECT t.try($$SELECT outbox.enqueue('late', '1', 'sealing')$$);
SELECT count(*) FILTER (WHERE NOT ok) AS bad FROM outbox.verify_seals();

-- Who may.
CREATE ROLE regress_outbox_sealer;
SELECT r, has_function_privilege(r, 'outbox.seal()', 'EXECUTE') AS seal, has_function_privilege(r, 'outbox.verify_seals(bigint, bigint)', 'EXECUTE') AS verify,
	has_table_privilege(r, 'outbox.seals', 'SELECT') AS read, has_table_privilege(r, 'outbox.seals', 'INSERT') AS write
FROM unnest('{outbox_ingest,outbox_executor,outbox_operator,outbox_readonly,outbox_auditor,regress_outbox_sealer}'::text[]) r;
GRANT outbox_operator TO regress_outbox_sealer;
SET ROLE regress_outbox_sealer;
SELECT seal_no FROM outbox.seal();
SELECT count(*) FILTER (WHERE ok) AS good, count(*) FILTER (WHERE NOT ok) AS bad FROM outbox.verify_seals();
RESET ROLE;
DROP ROLE regress_outbox_sealer;

-- A policy that hides rows from the owner is an error, not silence.
BEGIN;
ALTER TABLE outbox.messages_default ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
SELECT ok, problem FROM t.verified(1, 1);
SELECT t.try('SELECT outbox.seal()');
ROLLBACK;

-- The bounds of arrays are sealed, too.
SELECT outbox.cancel(t.id('latest'), 'r', force => true) IS NOT NULL AS cancelled;
SELECT events > 0 AS has_event FROM outbox.seal();
SELECT t.found_after($$UPDATE outbox.events SET outbox_ids = ('[0:0]=' || outbox_ids::text)::uuid[] WHERE event = 'MESSAGE_CANCELLED'$$);
SELECT t.found_after($$UPDATE outbox.events SET outbox_ids = ('{' || outbox_ids::text || '}')::uuid[] WHERE event = 'MESSAGE_CANCELLED'$$);
SELECT t.found_after($$UPDATE outbox.events SET outbox_ids = '{}' WHERE event = 'MESSAGE_CANCELLED'$$);

-- A partition in a schema that the owner may not use: sealed, verified and proved under the name with the schema. No
-- other partition has that name, whatever it is called.
BEGIN;
CREATE SCHEMA "else where";
DO $$
BEGIN
	EXECUTE (SELECT format('ALTER TABLE outbox.%I SET SCHEMA "else where"', relname) FROM pg_class c JOIN outbox.messages m ON m.tableoid = c.oid WHERE event_type = 'latest');
	EXECUTE (SELECT format('ALTER TABLE outbox.%I RENAME TO "attempts.""p"', relname) FROM pg_class c JOIN outbox.attempts a ON a.tableoid = c.oid WHERE outbox_id = t.id('latest'));
END
$$;
SELECT created FROM outbox.enqueue('there', '1');
SELECT outbox.cancel(t.id('there'), 'r') IS NOT NULL AS cancelled;
SELECT messages, attempts, t.masked(p ->> 'partition') AS partition FROM outbox.seal(), jsonb_array_elements(parts) p ORDER BY parts::text, p ->> 'table', 3;
SELECT ok, problem FROM outbox.verify_seals((SELECT max(seal_no) FROM outbox.seals));
SELECT r ->> 'table' AS "table", t.masked(r ->> 'partition') AS partition, r ? 'path' AS sealed FROM outbox.prove(t.id('there')) p, jsonb_array_elements(p -> 'rows') r;
SELECT DISTINCT "table", t.masked(partition) AS partition FROM outbox.seal_leaves((SELECT max(seal_no) FROM outbox.seals));
SELECT t.found_after($$UPDATE outbox.messages SET payload = '2' WHERE event_type = 'there'$$) ~ 'partition "else where".messages_\S+ of messages: a row was changed' AS found;
ROLLBACK;
SELECT count(*) FILTER (WHERE NOT ok) AS bad FROM outbox.verify_seals();
