--
-- Binary payloads: a message has a payload or payload_bytes, never both; the bytes come out
-- as they went in, whatever they are, by every way in and every way out.
--
\getenv testdir PG_ABS_SRCDIR
\getenv builddir PG_ABS_BUILDDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

-- No bytes, one zero byte, all 256 values, JSON that stays bytes, invalid UTF-8, 3 MB that do not
-- compress and 3 MB that do.
CREATE FUNCTION t.random_bytes(size int) RETURNS bytea LANGUAGE sql AS $$
	SELECT substr(string_agg(sha256(int4send(g)), '' ORDER BY g), 1, size) FROM generate_series(1, size / 32 + 1) g
$$;
CREATE TABLE t.given (name text PRIMARY KEY, bytes bytea NOT NULL);
INSERT INTO t.given VALUES
	('none', ''), ('zero', '\x00'), ('JSON', '{"a": 1}'), ('invalid', '\xc328ff00fe'), ('zeros', decode(repeat('00', 3000000), 'hex')),
	('all', (SELECT string_agg(decode(lpad(to_hex(g), 2, '0'), 'hex'), '' ORDER BY g) FROM generate_series(0, 255) g)),
	('large', t.random_bytes(3000001)), ('a page', t.random_bytes(8000));
SELECT name, octet_length(bytes) FROM t.given ORDER BY name COLLATE "C";
CREATE FUNCTION t.same(name text, bytes bytea) RETURNS boolean LANGUAGE sql AS $$
	SELECT g.bytes = bytes FROM t.given g WHERE g.name = same.name
$$;

-- By each way in.
SELECT name, e.created FROM t.given g, LATERAL outbox.enqueue(g.name, payload_bytes => g.bytes, content_type => 'application/' || g.name) e ORDER BY name COLLATE "C";
SELECT outbox.create_queue('batch'), outbox.create_queue('optimistic');
SELECT count(*) FROM outbox.enqueue_batch('batch', (SELECT jsonb_agg(jsonb_build_object('event_type', name,
	'payload_bytes', encode(bytes, 'base64'), 'content_type', 'application/' || name)) FROM t.given));
SELECT count(*) FROM outbox.enqueue_batch('batch', (SELECT jsonb_agg(jsonb_build_object('event_type', name,
	'payload_bytes', replace(encode(bytes, 'base64'), E'\n', ''), 'payload', NULL)) FROM t.given WHERE name <> 'large'));
SELECT name, e.lease_token IS NOT NULL AS leased FROM t.given g,
	LATERAL outbox.enqueue_and_claim('w', g.name, queue => 'optimistic', payload_bytes => g.bytes) e WHERE name = 'all';
SELECT queue, count(*), bool_and(t.same(event_type, payload_bytes)) AS same, count(payload) AS payloads, count(DISTINCT content_type) AS types
FROM outbox.messages GROUP BY 1 ORDER BY 1;

-- By each way out: as text and as binary, what COPY writes being what the protocol sends.
SELECT string_agg(column_name::text, ', ' ORDER BY n) FROM unnest((SELECT proargnames FROM pg_proc WHERE oid = 'outbox.claim'::regproc)) WITH ORDINALITY c(column_name, n) WHERE n > 22;
BEGIN;
SELECT event_type, payload IS NULL AS no_payload, t.same(event_type, payload_bytes), content_type FROM outbox.claim('w') ORDER BY event_type COLLATE "C";
SELECT event_type, payload_bytes::text = bytes::text AS same FROM outbox.claim('w', 100, queues => '{batch}') JOIN t.given ON name = event_type
WHERE octet_length(bytes) < 1000 AND content_type IS NOT NULL ORDER BY event_type COLLATE "C";
ROLLBACK;
\set file :builddir '/results/payload_bytes.copy'
COPY (SELECT event_type, payload_bytes FROM outbox.claim('w')) TO :'file' (FORMAT binary);
CREATE TABLE t.got (name text, bytes bytea);
COPY t.got FROM :'file' (FORMAT binary);
SELECT count(*), bool_and(t.same(name, bytes)) AS same FROM t.got;
SELECT kind, count(*), bool_and(t.same(event_type, payload_bytes)) AS same, count(DISTINCT content_type) AS types
FROM outbox.complete_and_claim('w', (SELECT array_agg(outbox_id) FROM outbox.pending WHERE claimed_by = 'w' AND queue = 'default'),
	(SELECT array_agg(lease_token) FROM outbox.pending WHERE claimed_by = 'w' AND queue = 'default'),
	array_fill('FAILED'::outbox.attempt_state, ARRAY[8]), batch_size => 100, queues => '{batch}') GROUP BY 1 ORDER BY 1;

-- A dead letter keeps them, and so does its replay.
SELECT count(*), bool_and(t.same(event_type, payload_bytes)) AS same, count(payload) AS payloads, min(content_type) FROM outbox.dead_letters;
SELECT count(outbox.replay(outbox_id)) FROM outbox.dead_letters;
SELECT count(*), bool_and(t.same(event_type, payload_bytes)) AS same, count(payload) AS payloads, min(content_type)
FROM outbox.messages WHERE replay_of IS NOT NULL;

-- content_type is carried along with JSON too.
SELECT created FROM outbox.enqueue('typed', '{}', content_type => 'application/cloudevents+json');
SELECT payload, payload_bytes, content_type FROM outbox.messages WHERE event_type = 'typed';

-- Exactly one of both. JSON null is a payload, but beside bytes in an array it is none.
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.enqueue('bad')$$),
	($$SELECT outbox.enqueue('bad', NULL)$$),
	($$SELECT outbox.enqueue('bad', '{}', payload_bytes => '')$$),
	($$SELECT outbox.enqueue('bad', 'null', payload_bytes => '')$$),
	($$SELECT outbox.enqueue_and_claim('w', 'bad')$$),
	($$SELECT outbox.enqueue_and_claim('w', 'bad', '{}', payload_bytes => '')$$)) v(s);
SELECT t.try(format('SELECT outbox.enqueue_batch(''default'', %L)', '[{"event_type": "bad", "payload": 1}, ' || s || ']')) FROM (VALUES
	('{"event_type": "bad"}'),
	('{"event_type": "bad", "payload_bytes": null}'),
	('{"event_type": "bad", "payload": {}, "payload_bytes": ""}'),
	('{"event_type": "bad", "payload_bytes": "?"}'),
	('{"event_type": "bad", "payload_bytes": "AA"}'),
	('{"event_type": "bad", "payload_bytes": "AA==", "content_type": 1}'),
	('{"event_type": "bad", "payload_bytes": [0]}')) v(s);
SELECT count(*) FROM outbox.messages WHERE event_type = 'bad';
SELECT outbox.enqueue_batch('default', '[{"event_type": "bad", "payload": 1}, {"event_type": "bad", "payload_bytes": "A-_B"}]');
\echo :SQLSTATE
SELECT t.try(format('INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, priority, headers, created_at, payload, payload_bytes)
	VALUES (gen_random_uuid(), ''q'', gen_random_uuid(), ''e'', 0, ''{}'', now(), %s)', s)) FROM (VALUES ('NULL, NULL'), ($$'{}', ''$$)) v(s);

-- A validator is shown no bytes: payload is NULL. A STRICT one cannot refuse, so nothing passes.
CREATE FUNCTION t.no_json(payload jsonb, headers jsonb, routing_key text) RETURNS text LANGUAGE sql AS
	$$ SELECT CASE WHEN payload IS NOT NULL THEN 'JSON is not wanted' END $$;
CREATE FUNCTION t.strict(payload jsonb, headers jsonb, routing_key text) RETURNS text STRICT LANGUAGE sql AS $$ SELECT NULL::text $$;
SELECT outbox.create_queue('bytes only', validator => 't.no_json'), outbox.create_queue('strict', validator => 't.strict');
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.enqueue('e', '{}', 'bytes only')$$),
	($$SELECT outbox.enqueue('e', queue => 'bytes only', payload_bytes => '')$$),
	($$SELECT outbox.enqueue('e', '{}', 'strict')$$),
	($$SELECT outbox.enqueue('e', queue => 'strict', payload_bytes => '')$$)) v(s);
