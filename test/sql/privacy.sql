--
-- Protected fields: protect, reveal, erase_subject, the report, erasures after a restore; what a queue
-- protects by itself. The master key is that of test/run.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

-- Ids, nonces and ciphertexts masked.
CREATE FUNCTION t.shape(payload jsonb) RETURNS text LANGUAGE sql AS $$
	SELECT regexp_replace(regexp_replace(payload::text, '\{"\$enc": \{"c": "[A-Za-z0-9+/]+=*", "n": "[A-Za-z0-9+/]{16}", "v": 1, "sid": "[0-9a-f-]{36}"\}\}', '<protected>', 'g'),
		'\{"at": "\d{4}-\d\d-\d\dT[0-9:.]+\+00:00", "\$erased": true\}', '<erased>', 'g')
$$;
CREATE TABLE t.kept (name text PRIMARY KEY, payload jsonb);

-- Before anything is protected there is nothing to reveal, report or rotate, and no key.
SELECT outbox.reveal('{"a": {"b": [1, "x", null]}}'), outbox.rotate_master_key(), outbox.master_key_problem();
SELECT t.try($$SELECT * FROM outbox.subject_report('alice')$$);
SELECT t.try($$SELECT outbox.export_erasures()$$);
-- No field is there: no key is made.
SELECT outbox.protect('{"a": null, "l": []}', 'alice', '{b,$.c.d,$.a.b,$.a[*],$.l[0].x}'), outbox.protect('null', 'alice', '{b}'), outbox.protect('[]', 'alice', '{$[*].b}'), (SELECT count(*) FROM outbox.subject_keys) AS keys;

-- Every kind of value, at every kind of place, comes back as it was.
INSERT INTO t.kept SELECT 'all', outbox.protect(p, 'alice', ARRAY['text', 'a.b', 'number', 'big', 'bool', 'null', 'object', 'array', '$.in.side', '$.list[*].name', '$.list[1].n', '$."q u\"o"', '$.deep[*][*].x'])
FROM (SELECT '{"text": "Älice \u0007 \\ \"", "a.b": "dots", "number": 1.50, "big": 123456789012345678901234567890.5, "bool": true, "null": null, "object": {"x": {"y": []}}, "array": [1, [2]],
	"in": {"side": "s", "out": "o"}, "list": [{"name": "a", "n": 1}, {"name": "b", "n": 2}, {"n": 3}, null], "q u\"o": "", "deep": [[{"x": 1}], [{"x": 2}, {"y": 3}]], "plain": {"$enc": 1}, "a": {"b": "not meant"}}'::jsonb) v(p);
SELECT t.shape(payload) FROM t.kept;
SELECT t.shape(outbox.reveal(payload - 'plain')) FROM t.kept;
SELECT outbox.reveal(payload - 'plain')::text ~ '\$enc' AS left_over FROM t.kept;
SELECT outbox.reveal(outbox.protect('["x", {"y": 2}]', 'alice', '{$[0],$[1].y}'));

-- Protected twice: once. For another subject, or in another place: as a value like any other.
SELECT outbox.protect(payload, 'alice', '{text,object,$.list[*].name}') = payload AS same FROM t.kept;
SELECT outbox.reveal(outbox.protect(payload - 'plain', 'bob', '{text}')) -> 'text' ? '$enc' AS wrapped FROM t.kept;
-- What a producer made up is data, and comes back.
SELECT p = outbox.reveal(outbox.protect(p, 'mallory', '{f}')) AS same, t.shape(outbox.protect(p, 'mallory', '{f}'))
FROM (SELECT jsonb_build_object('f', f) FROM t.kept, LATERAL (VALUES (payload -> 'text'), ('{"$enc": {}}'), ('{"$enc": {"v": 1, "sid": "x", "n": "", "c": ""}}'), ('{"$enc": null, "more": 1}'), ('{"$erased": true}')) v(f)) x(p);

-- Moved, changed, cut, or of another database: refused.
CREATE FUNCTION t.changed(path text[], change text) RETURNS text LANGUAGE sql AS $$
	SELECT t.try(format('SELECT outbox.reveal(%L)', jsonb_build_object('text', jsonb_set(payload -> 'text', '{$enc}' || path, CASE WHEN change IS NULL THEN 'null' ELSE to_jsonb(change) END)))) FROM t.kept
$$;
SELECT t.try(format('SELECT outbox.reveal(%L)', jsonb_build_object('email', payload -> 'text'))) FROM t.kept;
SELECT t.try(format('SELECT outbox.reveal(%L)', jsonb_build_object('list', jsonb_build_array(payload #> '{list,1}')))) FROM t.kept;
SELECT t.changed('{sid}', gen_random_uuid()::text) LIKE '22023 AUTHENTICATION_FAILED%' AS sid, t.changed('{n}', 'AAAAAAAAAAAAAAAA') LIKE '22023 AUTHENTICATION_FAILED%' AS n,
	t.changed('{n}', '') LIKE '22023 AUTHENTICATION_FAILED%' AS no_n, t.changed('{v}', '1') LIKE '22023 AUTHENTICATION_FAILED%' AS v, t.changed('{c}', NULL) LIKE '22023 AUTHENTICATION_FAILED%' AS c;
-- Each byte of nonce, ciphertext and tag.
SELECT count(*), bool_and(t.changed(ARRAY[part], encode(set_byte(decode(value, 'base64'), i, get_byte(decode(value, 'base64'), i) # 1), 'base64')) LIKE '22023 AUTHENTICATION_FAILED%') AS refused
FROM t.kept, LATERAL jsonb_each_text(payload #> '{text,$enc}') e(part, value), LATERAL generate_series(0, length(decode(CASE WHEN part IN ('n', 'c') THEN value ELSE '' END, 'base64')) - 1) i
WHERE part IN ('n', 'c');

-- Arguments.
SELECT s, t.try(s) FROM (VALUES
	($$SELECT outbox.protect(NULL, 'alice', '{a}')$$),
	($$SELECT outbox.protect('{}', NULL, '{a}')$$),
	($$SELECT outbox.protect('{}', '', '{a}')$$),
	($$SELECT outbox.protect('{}', repeat('x', 1025), '{a}')$$),
	($$SELECT outbox.protect('{}', 'alice', NULL)$$),
	($$SELECT outbox.protect('{}', 'alice', '{a,NULL}')$$),
	($$SELECT outbox.protect('{}', 'alice', '{""}')$$),
	($$SELECT outbox.protect('{}', 'alice', '{$}')$$),
	($$SELECT outbox.protect('{}', 'alice', '{$.}')$$),
	($$SELECT outbox.protect('{}', 'alice', '{$a}')$$),
	($$SELECT outbox.protect('{}', 'alice', '{$..a}')$$),
	($$SELECT outbox.protect('{}', 'alice', '{$.*}')$$),
	($$SELECT outbox.protect('{}', 'alice', '{$.a[-1]}')$$),
	($$SELECT outbox.protect('{}', 'alice', '{$.a[1}')$$),
	($$SELECT outbox.protect('{}', 'alice', '{$.a[99999999999999999999]}')$$),
	($$SELECT outbox.protect('{}', 'alice', ARRAY['$."a'])$$),
	($$SELECT outbox.protect('{"a": [{"b": "x"}, "x"]}', 'alice', '{$.a[*].b}')$$),
	($$SELECT outbox.protect('{"a": [["x"]]}', 'alice', '{$.a[0].b}')$$),
	($$SELECT outbox.protect('{"a": {"b": "x"}}', 'alice', '{$.a[*].b}')$$),
	($$SELECT outbox.protect('{"a": 1}', 'alice', '{$.a.b}')$$),
	($$SELECT outbox.protect('{"a": true}', 'alice', '{$.a.b.c}')$$),
	($$SELECT outbox.protect('{"a": "x"}', 'alice', '{$[*]}')$$),
	($$SELECT outbox.protect('["x"]', 'alice', '{a}')$$),
	($$SELECT outbox.protect('"x"', 'alice', '{a}')$$),
	($$SELECT outbox.protect('{"a": {"$enc": "x"}}', 'alice', '{$.a[*].b}')$$),
	($$SELECT outbox.reveal(NULL)$$),
	($$SELECT outbox.erase_subject(NULL, 'r', 'b')$$),
	($$SELECT outbox.erase_subject('', 'r', 'b')$$),
	($$SELECT outbox.erase_subject('alice', '', 'b')$$),
	($$SELECT outbox.erase_subject('alice', 'r', NULL)$$),
	($$SELECT outbox.reapply_erasures(NULL)$$),
	($$SELECT outbox.reapply_erasures(ARRAY[NULL]::jsonb[])$$),
	($$SELECT outbox.reapply_erasures('{"{\"certificate\": \"c\"}"}')$$),
	($$SELECT outbox.reapply_erasures(ARRAY[(SELECT e - 'reason' FROM outbox.export_erasures() e LIMIT 1)])$$)) v(s);
SELECT t.try($$SELECT outbox.reapply_erasures('{"{\"format\": \"outbox erasure 1\", \"hash_key\": \"0\"}"}')$$) LIKE '22023 certificate NULL is not one of this database%' AS other_database;

-- A queue that protects by itself, also in a batch and optimistically. The validator sees plain text.
CREATE FUNCTION t.valid(payload jsonb, headers jsonb, routing_key text) RETURNS text LANGUAGE sql AS $$ SELECT 'no address' WHERE payload ->> 'email' NOT LIKE '%@%' $$;
GRANT USAGE ON SCHEMA t TO PUBLIC;
SELECT outbox.create_queue('orders', validator => 't.valid', ordering => 'numbered', protect => '{"subject": "$.customer.id", "fields": ["email", "$.lines[*].note"]}');
SELECT sequence_id, created FROM outbox.enqueue('one', '{"customer": {"id": 17}, "email": "a@b", "total": 3}', 'orders', partition_key => 'k', idempotency_key => 'once');
SELECT sequence_id, created FROM outbox.enqueue('one', '{"customer": {"id": 17}, "email": "a@b", "total": 3}', 'orders', partition_key => 'k', idempotency_key => 'once');
SELECT created FROM outbox.enqueue_batch('orders', '[{"event_type": "two", "payload": {"customer": {"id": "18"}, "email": "c@d", "lines": [{"note": "n", "q": 1}]}}, {"event_type": "three", "payload": {"customer": {"id": "17"}, "email": "e@f"}},
	{"event_type": "four", "payload": {"nothing": "personal"}}]');
SELECT created, lease_token IS NOT NULL AS leased FROM outbox.enqueue_and_claim('w', 'five', '{"customer": {"id": 18}, "email": "g@h"}', 'orders');
SELECT event_type, t.shape(payload) FROM outbox.messages ORDER BY outbox_id;
SELECT event_type, t.shape(outbox.reveal(payload)) FROM outbox.messages ORDER BY outbox_id;
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.enqueue('bad', '{"email": "a@b"}', 'orders')$$),
	($$SELECT outbox.enqueue('bad', '{"customer": {"id": null}, "email": "a@b"}', 'orders')$$),
	($$SELECT outbox.enqueue('bad', '{"customer": {"id": ""}, "lines": [{}, {"note": 1}]}', 'orders')$$),
	($$SELECT outbox.enqueue('bad', '{"customer": {"id": 1}, "email": "nowhere"}', 'orders')$$),
	($$SELECT outbox.enqueue('bad', queue => 'orders', payload_bytes => '\x00')$$),
	($$SELECT outbox.enqueue_batch('orders', '[{"event_type": "good", "payload": {"customer": {"id": 1}, "email": "a@b"}}, {"event_type": "bad", "payload": {"email": "a@b"}}]')$$)) v(s);

-- Of another form than the paths: refused, whatever it is, since plain text might be in it; but for null, in which
-- nothing is. What the producer has protected as a whole stays.
SELECT lines, t.try(format('SELECT outbox.enqueue(''shape'', %L, ''orders'')', jsonb_build_object('customer', '{"id": 1}'::jsonb, 'lines', lines)))
FROM unnest('{"{\"note\": \"plain\"}","\"plain\"","5","true","[[{\"note\": \"plain\"}]]","[\"plain\"]","[{\"note\": \"n\"}, 5]","{\"$enc\": \"plain\"}"}'::jsonb[]) lines;
SELECT p, t.try(format('SELECT outbox.enqueue(''shape'', %L, ''orders'')', p)) FROM unnest('{"[{\"email\": \"a@b\"}]","\"a@b\"","5","{\"lines\": \"no subject\"}"}'::jsonb[]) p;
SELECT count(*) FROM outbox.enqueue_batch('orders', jsonb_build_array(
	jsonb_build_object('event_type', 'null lines', 'payload', '{"customer": {"id": 1}, "lines": null}'::jsonb),
	jsonb_build_object('event_type', 'null line', 'payload', '{"customer": {"id": 1}, "lines": [null, {"note": "n"}]}'::jsonb),
	jsonb_build_object('event_type', 'no lines', 'payload', '{"customer": {"id": 1}, "lines": []}'::jsonb),
	jsonb_build_object('event_type', 'whole lines', 'payload', '{"customer": {"id": 1}}' || outbox.protect('{"lines": [{"note": "n"}]}', 'other', '{lines}'))));
SELECT event_type, t.shape(payload) FROM outbox.messages WHERE event_type ~ 'line' ORDER BY outbox_id;
SELECT count(outbox.cancel(outbox_id, 'not needed')) AS cancelled FROM outbox.messages JOIN outbox.pending USING (outbox_id) WHERE event_type ~ 'line';

-- By hand: any queue; forged ids lead nowhere.
SELECT created FROM outbox.enqueue('hand', outbox.protect('{"name": "Al", "sub": {"x": 1}}', '17', '{name}') || outbox.protect('{"other": "Bo"}', 'bo', '{other}'));
SELECT created FROM outbox.enqueue('forged', jsonb_build_object('f', jsonb_build_object('$enc', jsonb_build_object('v', 1, 'sid', gen_random_uuid(), 'n', 'AAAAAAAAAAAAAAAA', 'c', 'AAAAAAAAAAAAAAAAAAAAAAAA'))));
SELECT m.event_type, count(*) FROM outbox.subject_messages s JOIN outbox.messages m USING (outbox_id) GROUP BY m.outbox_id, 1 ORDER BY m.outbox_id;

-- The report: the subject's fields, and no other's.
SELECT queue, event_type, t.shape(payload), headers FROM outbox.subject_report('17');
SELECT queue, event_type, t.shape(payload) FROM outbox.subject_report('nobody');

-- Claims give ciphertext, or plain text where the queue says so; also what nobody can open.
SELECT event_type, t.shape(payload) FROM outbox.claim('w', 9, queues => '{orders}') ORDER BY outbox_id;
SELECT error FROM outbox.release('w', (SELECT array_agg(outbox_id ORDER BY outbox_id) FROM outbox.pending WHERE claimed_by = 'w'), (SELECT array_agg(lease_token ORDER BY outbox_id) FROM outbox.pending WHERE claimed_by = 'w'));
SELECT outbox.alter_queue('orders', reveal_on_claim => true);
SELECT outbox.alter_queue('default', reveal_on_claim => true);
SELECT event_type, t.shape(payload) FROM outbox.claim('w', 9, queues => '{orders,default}') ORDER BY outbox_id;

-- A dead letter and its replay keep the ciphertext; the report has both.
SELECT outbox.cancel(t.id('three'), 'r', force => true);
SELECT outbox.replay(t.id('three')) IS NOT NULL AS replayed;
SELECT count(*), count(DISTINCT payload) FROM outbox.messages WHERE event_type = 'three';
SELECT event_type, count(*) FROM outbox.subject_report('17') GROUP BY 1 ORDER BY 1;

-- A message from before the rule: its replay is protected, and what was protected then stays, also if it was erased.
-- What the rule cannot protect has no replay.
SELECT outbox.create_queue('later');
SELECT count(*) FROM outbox.enqueue_batch('later', jsonb_build_array(
	jsonb_build_object('event_type', 'before', 'payload', '{"id": "carl", "a": "plain"}'::jsonb),
	jsonb_build_object('event_type', 'before, by hand', 'payload', '{"id": "carl"}' || outbox.protect('{"a": "hand"}', 'gone', '{a}')),
	jsonb_build_object('event_type', 'before, nothing', 'payload', '{"b": "no field"}'::jsonb),
	jsonb_build_object('event_type', 'before, no subject', 'payload', '{"a": "plain"}'::jsonb),
	jsonb_build_object('event_type', 'before, other form', 'payload', '["plain"]'::jsonb),
	jsonb_build_object('event_type', 'before, bytes', 'payload_bytes', 'AAAA')));
SELECT count(outbox.erase_subject('gone', 'r', 'b'));
SELECT count(outbox.cancel(outbox_id, 'r')) FROM outbox.pending WHERE queue = 'later';
SELECT outbox.alter_queue('later', protect => '{"subject": "id", "fields": ["a"]}');
SELECT event_type, t.try(format('SELECT outbox.replay(%L)', outbox_id))
FROM outbox.messages WHERE queue = 'later' ORDER BY outbox_id;
SELECT r.event_type, t.shape(r.payload), t.shape(outbox.reveal(r.payload)), (SELECT count(*) FROM outbox.subject_messages s WHERE s.outbox_id = r.outbox_id) AS links
FROM outbox.messages r WHERE queue = 'later' AND replay_of IS NOT NULL ORDER BY outbox_id;

-- The handler of a queue that reveals gets plain text, and of one that does not, ciphertext.
CREATE TABLE t.handled (queue text, payload jsonb);
CREATE FUNCTION t.handles(c outbox.claimed) RETURNS void LANGUAGE sql SECURITY DEFINER AS 'INSERT INTO t.handled VALUES (c.queue, c.payload)';
SELECT outbox.create_queue('handled', handler => 't.handles', protect => '{"subject": "id", "fields": ["a"]}', reveal_on_claim => true);
SELECT outbox.create_queue('handled closed', handler => 't.handles', protect => '{"subject": "id", "fields": ["a"]}');
SELECT count(*) FROM unnest('{handled,handled closed}'::text[]) q, outbox.enqueue('handled', '{"id": 3, "a": "plain"}', q);
SELECT count(*) > 0 AS maintained FROM outbox.maintain();
SELECT queue, t.shape(payload) FROM t.handled ORDER BY 1;
SELECT outbox.drop_queue(q) FROM unnest('{handled,handled closed}'::text[]) q;

-- Erased.
BEGIN;
SELECT outbox.erase_subject('17', 'request 5', 'the person') IS NOT NULL AS erased;
ROLLBACK;
SELECT event_type, t.shape(outbox.reveal(payload)) FROM outbox.messages WHERE event_type = 'one';
SELECT outbox.erase_subject('17', 'request 5', 'the person') AS certificate \gset
SELECT reason, requested_by, erased_by = current_user AS by_me, messages, seal_no, sid IS NOT NULL AS had_key, length(subject_hash), erased_at <= clock_timestamp() AS at FROM outbox.erasures WHERE certificate = :'certificate';
SELECT event_type, t.shape(outbox.reveal(payload)) FROM outbox.messages WHERE event_type <> 'forged' AND payload IS NOT NULL ORDER BY outbox_id;
SELECT event_type, t.shape(payload) FROM outbox.subject_report('17') ORDER BY outbox_id;
SELECT outbox.reveal(outbox.protect('{"a": 1}', 'alice', '{a}')) AS others_live;
-- Again, and one who has nothing: certificates of nothing.
SELECT count(outbox.erase_subject(s, 'again', 'b')) FROM unnest('{17,nobody}'::text[]) s;
SELECT messages, sid IS NULL AS had_none FROM outbox.erasures e WHERE reason = 'again';
-- The subject comes back: another key, and the old text stays erased.
SELECT created FROM outbox.enqueue('back', '{"customer": {"id": 17}, "email": "new@b"}', 'orders');
SELECT event_type, t.shape(outbox.reveal(payload)) FROM outbox.messages WHERE event_type IN ('one', 'back') ORDER BY outbox_id;
SELECT count(*), count(DISTINCT subject_hash) FROM outbox.subjects WHERE subject_hash = outbox.subject_hash('17');

-- What was sealed before an erasure is as it was, and the certificate names the seal. A function of the
-- caller's own that looks like one of the server's is not called.
SELECT count(*) AS sealed FROM outbox.seal();
CREATE SCHEMA t2;
CREATE FUNCTION t2.max(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 1 / 0';
SET search_path = t2, pg_catalog;
SELECT outbox.erase_subject('18', 'after a seal', 'the person') IS NOT NULL AS erased;
RESET search_path;
DROP FUNCTION t2.max(bigint);
DROP SCHEMA t2;
SELECT messages, seal_no = (SELECT max(seal_no) FROM outbox.seals) AS the_last_seal FROM outbox.erasures WHERE reason = 'after a seal';
SELECT event_type, t.shape(outbox.reveal(payload)) FROM outbox.messages WHERE event_type IN ('two', 'five') ORDER BY outbox_id;
SELECT count(*) > 0 AS seals, bool_and(ok) AS unchanged FROM outbox.verify_seals();

-- What is written stays.
SELECT t.try(s) FROM (VALUES ('UPDATE outbox.erasures SET reason = NULL'), ('DELETE FROM outbox.erasures'), ('TRUNCATE outbox.erasures'), ('DELETE FROM outbox.subjects'), ('UPDATE outbox.subjects SET sid = sid'), ('TRUNCATE outbox.subjects')) v(s);

-- A restore brings the key back; the erasures take it away again.
CREATE TABLE t.backup AS SELECT * FROM outbox.subject_keys;
SELECT outbox.erase_subject('alice', 'r', 'b') IS NOT NULL AS erased;
CREATE TABLE t.exported AS SELECT e FROM outbox.export_erasures() e;
SELECT count(*), bool_and(e ->> 'format' = 'outbox erasure 1' AND e::text !~ 'alice') AS ok FROM t.exported;
INSERT INTO outbox.subject_keys SELECT b.* FROM t.backup b WHERE subject_hash = outbox.subject_hash('alice');
ALTER TABLE outbox.erasures DISABLE TRIGGER append_only;
DELETE FROM outbox.erasures WHERE subject_hash = outbox.subject_hash('alice');
ALTER TABLE outbox.erasures ENABLE ALWAYS TRIGGER append_only;
SELECT outbox.reveal(payload - 'plain') ->> 'a.b' FROM t.kept;
UPDATE outbox.subject_hash_key SET lineage = 'elsewhere';
SELECT severity, object, problem FROM outbox.check() WHERE object ~ 'subject|erasure|master';
-- A certificate that was changed, or that was never written, destroys nothing.
SELECT (SELECT string_agg(line, '') FROM t.try(format('SELECT outbox.reapply_erasures(ARRAY[%L, %L]::jsonb[])', e, e || change)) line) LIKE '22023 certificate % is not one of this database%mac is not that of its contents%' AS refused, count(*)
FROM t.exported, LATERAL (VALUES ('{"reason": "other"}'::jsonb), ('{"messages": 0.0}'), ('{"more": 1}'), ('{"mac": "00"}'), ('{"mac": null}'), (jsonb_build_object('sid', gen_random_uuid())),
	(jsonb_build_object('sid', (SELECT k.sid FROM outbox.subject_keys k WHERE k.sid::text <> e ->> 'sid' ORDER BY k.sid LIMIT 1), 'subject_hash', (SELECT encode(k.subject_hash, 'hex') FROM outbox.subject_keys k WHERE k.sid::text <> e ->> 'sid' ORDER BY k.sid LIMIT 1)))) v(change) GROUP BY 1;
SELECT (SELECT string_agg(line, '') FROM t.try(format('SELECT outbox.reapply_erasures(ARRAY[%L]::jsonb[])', e - 'mac')) line) LIKE '22023%' AS refused, count(*) FROM t.exported GROUP BY 1;
SELECT outbox.reveal(payload - 'plain') ->> 'a.b' FROM t.kept;
SELECT outbox.reapply_erasures(array_agg(e)) FROM t.exported;
SELECT outbox.reapply_erasures(array_agg(e)) FROM t.exported;
SELECT severity, object, problem FROM outbox.check() WHERE object ~ 'subject|erasure|master';
SELECT t.shape(outbox.reveal(payload - 'plain')) FROM t.kept;
SELECT count(*) = (SELECT count(*) FROM t.exported) AS same FROM outbox.erasures;
SELECT outbox.reapply_erasures('{}');

-- Each is an audit event, that names nobody.
SELECT event, queue, actor = session_user AS by_me, detail - '{application_name,client_addr,certificate,sid,key_id}'::text[] AS detail, count(*) FROM outbox.events WHERE event IN ('ERASED', 'KEY_ROTATED') GROUP BY 1, 2, 3, 4 ORDER BY 1, 4;
SELECT count(*) FROM outbox.events e WHERE e::text ~ 'alice|the person';

-- No name of a subject is in the tables, no field in plain text.
SELECT count(*) FROM (SELECT m::text FROM outbox.subjects m UNION ALL SELECT m::text FROM outbox.subject_keys m UNION ALL SELECT m::text FROM outbox.erasures m UNION ALL SELECT m::text FROM outbox.subject_messages m) v(row) WHERE row ~ 'alice|@';
SELECT count(*) FROM outbox.messages WHERE payload::text ~ '@';
-- No nonce twice.
SELECT count(n) > 10000 AS many, count(n) - count(DISTINCT n) AS repeated
FROM generate_series(1, 10500) i, LATERAL (SELECT outbox.protect('{"a": 1}', 'alice' || i % 3, '{a}') #>> '{a,$enc,n}') v(n);

-- Roles.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_outbox_dpo, regress_outbox_operates;
RESET client_min_messages;
CREATE ROLE regress_outbox_dpo IN ROLE outbox_privacy;
CREATE ROLE regress_outbox_operates IN ROLE outbox_operator, outbox_ingest, outbox_executor, outbox_auditor;
CREATE FUNCTION t.answer(statement text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE statement; RETURN 'ok'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
SET ROLE regress_outbox_operates;
SELECT s, t.answer(s) FROM (VALUES
	($$SELECT outbox.reveal('{}')$$), ($$SELECT outbox.erase_subject('a', 'r', 'b')$$), ($$SELECT outbox.subject_report('a')$$), ($$SELECT outbox.export_erasures()$$), ($$SELECT outbox.reapply_erasures('{}')$$),
	($$SELECT * FROM outbox.subject_keys$$), ($$SELECT * FROM outbox.subject_hash_key$$), ($$SELECT outbox.subject_hash('a')$$), ($$SELECT outbox.reveal_of('{}', '{}')$$), ($$SELECT outbox.rewrapped_key('', '', NULL, NULL)$$),
	($$SELECT outbox.alter_queue('orders', reveal_on_claim => true)$$), ($$SELECT outbox.alter_queue('orders', protect => '{}')$$), ($$SELECT outbox.create_queue('mine', reveal_on_claim => true)$$),
	($$SELECT outbox.rotate_master_key()$$), ($$SELECT outbox.protect('{}', 'a', '{a}')$$), ($$SELECT outbox.alter_queue('orders', reveal_on_claim => false)$$)) v(s);
-- Nor what shows it to a function of theirs, or to a worker: a validator or handler, or another queue's ciphertext where claims reveal.
RESET ROLE;
GRANT CREATE ON SCHEMA t TO regress_outbox_operates;
SELECT outbox.create_queue('reveals', reveal_on_claim => true), outbox.create_queue('plain'), outbox.create_queue('guarded', protect => '{"subject": "id", "fields": ["a"]}');
CREATE FUNCTION t.spied(c outbox.claimed) RETURNS void LANGUAGE sql AS '';
ALTER FUNCTION t.spied(outbox.claimed) OWNER TO regress_outbox_operates;
CREATE FUNCTION t.spies(payload jsonb, headers jsonb, routing_key text) RETURNS text LANGUAGE sql AS 'SELECT payload::text';
ALTER FUNCTION t.spies(jsonb, jsonb, text) OWNER TO regress_outbox_operates;
SET ROLE regress_outbox_operates;
SELECT s, t.answer(s) FROM (VALUES
	($$SELECT outbox.alter_queue('guarded', validator => 't.spies')$$), ($$SELECT outbox.alter_queue('plain', validator => 't.spies')$$),
	($$SELECT outbox.alter_queue('plain', protect => '{"subject": "id", "fields": ["a"]}')$$), ($$SELECT outbox.alter_queue('plain', validator => '', protect => '{"subject": "id", "fields": ["a"]}')$$),
	($$SELECT outbox.create_queue('both', validator => 't.spies', protect => '{"subject": "id", "fields": ["a"]}')$$),
	($$SELECT outbox.alter_queue('reveals', handler => 't.spied')$$), ($$SELECT outbox.alter_queue('guarded', handler => 't.spied')$$), ($$SELECT outbox.drop_queue('guarded')$$),
	($$SELECT outbox.enqueue('x', '{"a": 1}', 'reveals')$$), ($$SELECT outbox.enqueue('x', outbox.protect('{"a": 1}', 's', '{a}'), 'reveals')$$),
	($$SELECT outbox.enqueue_batch('reveals', jsonb_build_array(jsonb_build_object('event_type', 'x', 'payload', outbox.protect('{"a": 1}', 's', '{a}'))))$$)) v(s);
SET ROLE regress_outbox_dpo;
SELECT t.answer($$SELECT outbox.reveal('{"a": {"$enc": 1}}')$$);
SELECT s, t.answer(s) FROM (VALUES
	($$SELECT outbox.reveal('{}')$$), ($$SELECT outbox.erase_subject('a', 'r', 'b')$$), ($$SELECT * FROM outbox.subject_report('a')$$), ($$SELECT count(*) FROM outbox.export_erasures()$$), ($$SELECT outbox.reapply_erasures('{}')$$),
	($$SELECT count(*) FROM outbox.erasures$$), ($$SELECT * FROM outbox.subject_keys$$), ($$SELECT * FROM outbox.messages$$), ($$SELECT outbox.rotate_master_key()$$), ($$SELECT outbox.enqueue('a', '1')$$)) v(s);
RESET ROLE;
SELECT t.answer($$SELECT outbox.enqueue('x', outbox.protect('{"a": 1}', 's', '{a}'), 'reveals')$$), t.answer($$SELECT outbox.drop_queue('guarded')$$);
SELECT outbox.reveal_of('{"a": {"$enc": 1}}', ARRAY[NULL]::uuid[]);
DROP FUNCTION t.spied, t.spies;
REVOKE CREATE ON SCHEMA t FROM regress_outbox_operates;
DROP ROLE regress_outbox_dpo, regress_outbox_operates;
-- A subject's number is one number, however it is written.
SELECT outbox.create_queue('numbers', protect => '{"subject": "id", "fields": ["a"]}');
SELECT count(*) FROM outbox.enqueue_batch('numbers', '[{"event_type": "n", "payload": {"id": 5, "a": "x"}}, {"event_type": "n", "payload": {"id": 5.0, "a": "y"}}]');
SELECT count(DISTINCT payload #>> '{a,$enc,sid}') FROM outbox.messages WHERE queue = 'numbers';

-- A session that saw a database without keys, into which a restore brings some.
CREATE TABLE t.keys AS SELECT (SELECT to_jsonb(h) FROM outbox.subject_hash_key h) AS hash_key, (SELECT jsonb_agg(k) FROM outbox.subject_keys k) AS keys;
SELECT outbox.protect('{"a": "x"}', 'restored', '{a}') AS hand \gset
UPDATE t.keys SET keys = (SELECT jsonb_agg(k) FROM outbox.subject_keys k);
DELETE FROM outbox.subject_hash_key;
DELETE FROM outbox.subject_keys;
\c
SELECT created FROM outbox.enqueue('looks', '{"a": 1}');
INSERT INTO outbox.subject_hash_key SELECT r.* FROM t.keys, jsonb_populate_record(NULL::outbox.subject_hash_key, hash_key) r;
INSERT INTO outbox.subject_keys SELECT r.* FROM t.keys, jsonb_populate_recordset(NULL::outbox.subject_keys, keys) r;
SELECT created FROM outbox.enqueue('after a restore', :'hand');
SELECT event_type, outbox.reveal(payload) FROM outbox.subject_report('restored') r;
