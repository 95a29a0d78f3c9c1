--
-- Bad input of every kind: a clear error or a right answer, nothing half done, the
-- session usable at once. (Each function's own arguments: the file of its name.)
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('n', ordering => 'numbered', payload_kind => 'any');
SELECT string_agg(md5(g::text), '' ORDER BY g) AS long FROM generate_series(1, 640) g \gset

-- B13 (GoodJob): 20 kB of text that does not compress, wherever text is taken: it
-- works, or is refused as an argument (22023), never by an index (54000).
SELECT length(:'long');
SELECT n, e.created FROM (VALUES (1, NULL, :'long'), (2, NULL, :'long'), (3, NULL, :'long' || 'x'), (4, :'long', 'k'), (5, :'long', 'k')) v(n, a, k),
	LATERAL outbox.enqueue('e1', '1', aggregate_id => a, idempotency_key => k) e ORDER BY n;
SELECT n, e.sequence_id FROM (VALUES (1, :'long'), (2, :'long'), (3, 'x' || :'long')) v(n, k), LATERAL outbox.enqueue('e2', '1', 'n', partition_key => k) e ORDER BY n;
SELECT a.created AS type, b.created AS aggregate_type, c.created AS routing_key, d.created AS headers
FROM outbox.enqueue(:'long', '1') a, outbox.enqueue('e3', '1', aggregate_type => :'long') b, outbox.enqueue('e3', '1', routing_key => :'long') c,
	outbox.enqueue('e3', '1', headers => jsonb_build_object(:'long', :'long')) d;
SELECT t.try(replace(s, 'LONG', quote_literal(:'long'))) FROM (VALUES
	($$SELECT outbox.claim(LONG, 1)$$),
	($$SELECT outbox.enqueue_and_claim(LONG, 'e', '1')$$),
	($$SELECT outbox.complete(t.id('e4'), t.id('e4'), LONG, 'DISPATCHED')$$),
	($$SELECT outbox.complete_batch(LONG, '{}', '{}', '{}')$$),
	($$SELECT outbox.complete_and_claim(LONG, '{}', '{}', '{}')$$),
	($$SELECT outbox.renew(LONG, '{}', '{}')$$),
	($$SELECT outbox.release(LONG, '{}', '{}')$$),
	($$SELECT outbox.repair_expired_leases(10, LONG)$$),
	($$SELECT outbox.create_queue(LONG)$$),
	($$SELECT outbox.enqueue('e', '1', LONG)$$),
	($$SELECT outbox.claim('w', queues => ARRAY[LONG])$$),
	($$SELECT outbox.pause(LONG)$$),
	($$SELECT outbox.backoff(LONG, 1)$$),
	($$SELECT outbox.enqueue_batch('default', jsonb_build_array(jsonb_build_object('event_type', 'e', 'payload', 1, LONG, 1)))$$)) v(s);
-- What the ledger keeps of a report is 8 kB of each text, cut between two characters, with a mark. In
-- each way of reporting.
SELECT repeat('ä', 5000) || 'end' AS long_text, repeat('x', 8192) AS just_fits \gset
SELECT e.outbox_id AS cut1, e.lease_token AS token1 FROM outbox.enqueue_and_claim('w', 'cut 1', '1') e \gset
SELECT recorded FROM outbox.complete(:'cut1', :'token1', 'w', 'FAILED', :'just_fits', :'just_fits' || 'x', :'long_text', repeat('z', 10000000));
SELECT e.outbox_id AS cut2, e.lease_token AS token2 FROM outbox.enqueue_and_claim('w', 'cut 2', '1') e \gset
SELECT recorded FROM outbox.complete_batch('w', ARRAY[:'cut2']::uuid[], ARRAY[:'token2']::uuid[], '{DISPATCHED}', refs => ARRAY[:'long_text']);
SELECT count(*) FROM outbox.enqueue('cut 3', '1');
SELECT outbox.cancel(t.id('cut 3'), :'long_text');
SELECT m.event_type, t.name, octet_length(t.value) AS bytes, right(t.value, 30) AS ends_with
FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id), LATERAL (VALUES ('reference', a.reference), ('response_code', a.response_code),
	('error_code', a.error_code), ('error_message', a.error_message)) t(name, value)
WHERE m.event_type LIKE 'cut %' AND octet_length(t.value) > 100 ORDER BY 1, 2;

-- So it is of a reason, where an acknowledgement and the audit events keep it.
SELECT outbox.acknowledge_dead(t.id('cut 3'), :'long_text');
SELECT event_type, octet_length(reason) FROM outbox.dead_letters WHERE event_type = 'cut 3';
SELECT event, octet_length(detail ->> 'reason'), right(detail ->> 'reason', 19) FROM outbox.events WHERE outbox_ids = ARRAY[t.id('cut 3')] ORDER BY event_id;

-- A worker_id of 512 bytes goes all the way.
SELECT left(:'long', 512) AS longest \gset
SELECT t.try(format('SELECT outbox.claim(%L, 1)', repeat('é', 257)));
SELECT count(*) FROM outbox.claim(:'longest', 1, queues => '{n}');
SELECT claimed_by = :'longest' AS kept FROM outbox.pending WHERE claimed_by IS NOT NULL;
UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE claimed_by IS NOT NULL;
SELECT lost_by = :'longest' AS kept FROM outbox.repair_expired_leases(10, :'longest');
SELECT worker_id = :'longest' AS kept, recorded_by = :'longest' AS kept FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type NOT LIKE 'cut %';
-- A lease with a long name that somebody wrote by hand is repaired all the same.
SELECT created FROM outbox.enqueue('by hand', '1');
UPDATE outbox.pending SET claimed_by = repeat('x', 20000), claimed_at = clock_timestamp(), lease_token = gen_random_uuid(), lease_expires_at = clock_timestamp() - interval '1 s' WHERE outbox_id = t.id('by hand');
SELECT attempt_no, state, length(lost_by) FROM outbox.repair_expired_leases(10);
-- In an outcome: stored.
SELECT recorded FROM outbox.enqueue_and_claim('w', 'e5', '1') e, LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', 'FAILED', :'long', :'long', :'long', :'long');
SELECT length(reference), length(response_code), length(error_code), length(error_message) FROM outbox.attempts WHERE outbox_id = t.id('e5');
SELECT created FROM outbox.enqueue('e6', '1');
SELECT outbox.cancel(t.id('e6'), :'long');
SELECT length(error_message) FROM outbox.dead_letters WHERE event_type = 'e6';

-- 100 MB of payload: in, out and completed.
SELECT t.lose();
SELECT created FROM outbox.enqueue('huge', jsonb_build_object('x', repeat('a', 100 * 1024 * 1024)));
SELECT event_type, payload ->> 'x' = repeat('a', 100 * 1024 * 1024) AS the_same FROM outbox.claim('w');
SELECT recorded FROM outbox.complete(t.id('huge'), t.token('huge'), 'w', 'FAILED');
SELECT event_type FROM outbox.dead_letters WHERE event_type = 'huge';

-- Payloads around the size of a page, one by one and as a batch.
CREATE FUNCTION t.text(n int) RETURNS text LANGUAGE sql AS $$SELECT left(string_agg(md5(n::text || g), '' ORDER BY g), n) FROM generate_series(0, n / 32) g$$;
SELECT count(*) FROM generate_series(7800, 8300, 5) n, LATERAL outbox.enqueue('page', to_jsonb(t.text(n)), 'n', headers => to_jsonb(ROW(n)));
SELECT count(*) FROM outbox.enqueue_batch('n', (SELECT jsonb_agg(jsonb_build_object('event_type', 'page', 'payload', t.text(n), 'headers', to_jsonb(ROW(n)))) FROM generate_series(7802, 8300, 5) n));
SELECT count(*), bool_and(payload #>> '{}' = t.text((headers ->> 'f1')::int)) AS the_same FROM outbox.claim('w', 1000, queues => '{n}');
SELECT t.lose();

-- Text with any bytes that the encoding has.
CREATE TABLE t.odd AS SELECT n, v FROM (VALUES
	(1, (SELECT string_agg(chr(g), '' ORDER BY g) FROM generate_series(1, 127) g)),
	(2, (SELECT string_agg(chr(g), '' ORDER BY g) FROM generate_series(128, 2200) g)),
	(3, chr(65535) || chr(65536) || chr(1114111) || chr(8238) || chr(65279) || 'e' || chr(769)),
	(4, $$'; DROP TABLE outbox.messages; --$$), (5, '%s%n%d%1$s'), (6, '\x00'), (7, E'\\'), (8, E'\n'), (9, ' '), (10, '{}'), (11, 'NULL')) AS v(n, v);
SELECT count(*) FROM t.odd, LATERAL outbox.enqueue(v, to_jsonb(v), 'n', v, v, v, v, NULL, jsonb_build_object(v, v), v);
SELECT n, created FROM t.odd, LATERAL outbox.enqueue('again', '1', 'n', aggregate_id => v, idempotency_key => v) ORDER BY n;
SELECT count(*) AS read_back, bool_and(aggregate_type = v AND aggregate_id = v AND partition_key = v AND idempotency_key = v AND routing_key = v AND payload = to_jsonb(v) AND headers = jsonb_build_object(v, v) AND sequence_id = 1) AS the_same
FROM outbox.messages JOIN t.odd ON event_type = v;
CREATE TABLE t.claimed AS SELECT c.* FROM outbox.claim(E'w\x01\'"\\', 100, queues => '{n}') c JOIN t.odd ON event_type = v;
SELECT count(*) FROM t.claimed, LATERAL outbox.complete(outbox_id, lease_token, E'w\x01\'"\\', 'FAILED', event_type, event_type, event_type, event_type);
SELECT count(*), bool_and(reference = v AND response_code = v AND error_code = v AND error_message = v AND worker_id = E'w\x01\'"\\') FROM outbox.attempts JOIN outbox.messages USING (outbox_id) JOIN t.odd ON event_type = v;
SELECT count(*) FROM t.odd, LATERAL outbox.enqueue_batch('n', jsonb_build_array(jsonb_build_object('event_type', v, 'payload', v, 'partition_key', v, 'idempotency_key', v || 'batch')));
SELECT sequence_id, count(*) FROM outbox.messages JOIN t.odd ON event_type = v GROUP BY 1 ORDER BY 1;
-- What is no text, or no JSON, is refused before it arrives.
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.enqueue(E'\xff', '1')$$),
	($$SELECT outbox.enqueue('e', '"\u0000"')$$),
	($$SELECT outbox.enqueue('e', '{')$$),
	($$SELECT outbox.enqueue('e', '1', event_id => 'x')$$),
	($$SELECT outbox.enqueue('e', '1', deliver_at => 'soon')$$),
	($$SELECT outbox.enqueue('e', '1', priority => 2147483648)$$),
	($$SELECT outbox.claim('w', 2147483648)$$)) v(s);
-- Wrong values in messages are shown, and shown short.
SELECT t.try($$SELECT outbox.enqueue('e', '1', repeat('é', 100000))$$);
SELECT t.try($$SELECT outbox.enqueue('e', '1', '%s%n')$$);

-- Intervals: none, negative, huge, of parts with different signs; months and days
-- count 30 days and 24 hours.
SELECT created FROM outbox.enqueue_and_claim('w', 'i', '1');
SELECT v, string_agg(x, ' / ') FROM (VALUES
	(1, '0'), (2, '-1 microsecond'), (3, '1 microsecond'), (4, '1 month -30 days'), (5, '1 month -31 days'), (6, '1 month -29 days'), (7, '-1 month 31 days'), (8, '24 hours -1 day'),
	(9, '178000000 years'), (10, '-178000000 years'), (11, '2147483647 days'), (12, '2562047788 hours'), (13, '290000 years'), (14, '3653 days 1 us'), (15, '3653 days')) w(n, v),
	LATERAL t.try(format('SELECT outbox.renew(''w'', ARRAY[t.id(''i'')], ARRAY[t.token(''i'')], %L)', v)) x GROUP BY n, v ORDER BY n;
SELECT error FROM outbox.complete_batch('w', array_fill(t.id('i'), '{3}'), array_fill(gen_random_uuid(), '{3}'), '{RETRYABLE, RETRYABLE, RETRYABLE}', retry_delays => '{-1 s, 178000000 years, 290000 years}');
SELECT error FROM outbox.complete_batch('w', array_fill(t.id('i'), '{2}'), array_fill(t.token('i'), '{2}'), '{RETRYABLE, RETRYABLE}', retry_delays => '{-1 s, 178000000 years}');
SELECT message, state FROM t.pending WHERE message = 'i';

-- Arrays: large ones, of NULLs only, of ids at the ends of the range.
SELECT error, count(*) FROM outbox.complete_batch('w', array_fill('00000000-0000-0000-0000-000000000000'::uuid, '{20000}'), array_fill('00000000-0000-0000-0000-000000000000'::uuid, '{20000}'), array_fill('DISPATCHED'::outbox.attempt_state, '{20000}')) GROUP BY 1;
SELECT error, count(*) FROM outbox.complete_batch('w', array_fill(NULL::uuid, '{100}'), array_fill(NULL::uuid, '{100}'), array_fill(NULL::outbox.attempt_state, '{100}')) GROUP BY 1;
SELECT error FROM outbox.renew('w', '{00000000-0000-0000-0000-000000000000, ffffffff-ffff-ffff-ffff-ffffffffffff, NULL}', '{00000000-0000-0000-0000-000000000000, ffffffff-ffff-ffff-ffff-ffffffffffff, NULL}');
SELECT error FROM outbox.release('w', '{00000000-0000-0000-0000-000000000000, ffffffff-ffff-ffff-ffff-ffffffffffff, NULL}', '{00000000-0000-0000-0000-000000000000, ffffffff-ffff-ffff-ffff-ffffffffffff, NULL}');
SELECT t.try(format(s, i)) FROM (VALUES
	('SELECT outbox.complete(%1$L, %1$L, ''w'', ''DISPATCHED'')'), ('SELECT outbox.cancel(%1$L, ''r'')'), ('SELECT outbox.replay(%1$L)')) v(s),
	(VALUES ('00000000-0000-0000-0000-000000000000'), ('ffffffff-ffff-ffff-ffff-ffffffffffff')) w(i);
SELECT count(*) FROM outbox.claim('w', 10, queues => array_fill('default'::text, '{10000}'));

-- Another database's ids: what another installation made means nothing here.
SELECT outbox_id AS id, lease_token AS token FROM outbox.enqueue_and_claim('w', 'elsewhere', '1', idempotency_key => 'k') \gset
\i :fresh
SELECT t.try(format(s, :'id', :'token')) FROM (VALUES
	('SELECT outbox.complete(%1$L, %2$L, ''w'', ''DISPATCHED'')'), ('SELECT outbox.cancel(%1$L, ''r'')'), ('SELECT outbox.replay(%1$L)')) v(s);
SELECT attempt_no, recorded, error FROM outbox.complete_batch('w', ARRAY[:'id']::uuid[], ARRAY[:'token']::uuid[], '{DISPATCHED}');
SELECT error FROM outbox.renew('w', ARRAY[:'id']::uuid[], ARRAY[:'token']::uuid[]);
SELECT created FROM outbox.enqueue('here', '1', idempotency_key => 'k');
SELECT count(*) FROM outbox.attempts;

-- A pending row without its message, and a message without pending row: not handed
-- out, no harm to the others.
INSERT INTO outbox.pending (outbox_id, queue) VALUES ('00000000-0000-7000-8000-000000000000', 'default');
SELECT event_type FROM outbox.claim('w');
SELECT event_type FROM outbox.claim('w');

-- Every function with every argument NULL: 22004 for the first one, but for these, which answer.
SELECT p.proname, string_agg(x, ' / ' ORDER BY o) FROM pg_proc p,
	LATERAL t.try(format('SELECT outbox.%I(%s)', proname, (SELECT string_agg('NULL::' || format_type(a, NULL), ', ' ORDER BY n) FROM unnest(p.proargtypes) WITH ORDINALITY a(a, n)))) WITH ORDINALITY x(x, o)
WHERE pronamespace = 'outbox'::regnamespace AND prorettype <> 'trigger'::regtype AND prokind = 'f' AND pronargs > 0
GROUP BY 1, proargnames[1] HAVING string_agg(x, ' / ' ORDER BY o) <> format('22004 %s must not be null', proargnames[1]) ORDER BY 1;
SELECT count(*) FROM outbox.messages;
-- The pending row without its message.
SELECT count(*) FROM outbox.check() WHERE severity = 'error';
