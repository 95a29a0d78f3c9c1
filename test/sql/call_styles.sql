--
-- How drivers call the worker's functions: untyped literals, typed parameters, parameters without
-- a type, text where a type of its own is wanted. No overload may make one of them ambiguous.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh
SELECT count(*) FROM generate_series(1, 12) g, outbox.enqueue('e' || g, to_jsonb(g));
CREATE TABLE t.held AS SELECT *, substr(event_type, 2)::int AS n FROM outbox.claim('w', 12);
CREATE FUNCTION t.call(function text, ids text, tokens text, rest text = '') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE format('SELECT coalesce(error, ''ok'') FROM outbox.%I(''w'', %s, %s%s)', function, ids, tokens, rest) INTO answer;
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
-- Arrays of ids and tokens, in each way, for each function that takes them; the last is refused, and takes a cast.
SELECT s.style, t.call('renew', format(s.form, outbox_id), format(s.form, lease_token)) AS renew,
	t.call('complete_batch', format(s.form, outbox_id), format(s.form, lease_token), ', ''{DISPATCHED}''') AS complete_batch,
	t.call('release', format(s.form, outbox_id), format(s.form, lease_token)) AS release	-- found, and lost by then
FROM (VALUES (1, 'literal', '''{%s}'''), (2, 'uuid[]', '''{%s}''::uuid[]'), (3, 'array of literals cast', 'ARRAY[''%s'']::uuid[]'),
	(4, 'array of uuid', 'ARRAY[''%s''::uuid]'), (5, 'text[] cast', '''{%s}''::text[]::uuid[]'), (6, 'text[]', '''{%s}''::text[]')) s(n, style, form)
JOIN t.held USING (n) ORDER BY n;
-- States, in each way.
SELECT s.style, (SELECT c.recorded FROM t.held h, LATERAL (SELECT 1) x, outbox.complete(h.outbox_id, h.lease_token, 'w', s.state) c WHERE h.n = s.n)
FROM (VALUES (7, 'text', 'DISPATCHED'::text)) s(n, style, state);
SELECT c.recorded FROM t.held h, outbox.complete(h.outbox_id, h.lease_token, 'w', 'DISPATCHED') c WHERE h.n = 8;
SELECT c.recorded FROM t.held h, outbox.complete(h.outbox_id, h.lease_token, 'w', 'DISPATCHED'::varchar) c WHERE h.n = 9;
SELECT c.recorded, c.error FROM t.held h, outbox.complete_batch('w', ARRAY[h.outbox_id], ARRAY[h.lease_token], '{DISPATCHED}'::text[]) c WHERE h.n = 10;
SELECT c.recorded, c.error FROM t.held h, outbox.complete_batch('w', ARRAY[h.outbox_id], ARRAY[h.lease_token], '{DISPATCHED}'::varchar[]) c WHERE h.n = 11;
-- Parameters whose type the server finds out: what it answers is what a driver must send.
PREPARE claim AS SELECT count(*) FROM outbox.claim($1, $2, $3, $4, $5);
PREPARE complete AS SELECT recorded FROM outbox.complete($1, $2, $3, $4, retry_delay => $5);
PREPARE complete_batch AS SELECT recorded FROM outbox.complete_batch($1, $2, $3, $4, latencies_ms => $5, retry_delays => $6);
PREPARE complete_and_claim AS SELECT kind FROM outbox.complete_and_claim($1, $2, $3, $4, batch_size => $5, queues => $6);
PREPARE renew AS SELECT error FROM outbox.renew($1, $2, $3, $4);
PREPARE release AS SELECT error FROM outbox.release($1, $2, $3, $4);
PREPARE repair AS SELECT state FROM outbox.repair_expired_leases($1, $2, $3);
SELECT name, parameter_types FROM pg_prepared_statements ORDER BY name;
-- Whole numbers: a 64-bit one takes a cast, a smaller one does not.
SELECT t.try(s) FROM (VALUES
	($$SELECT count(*) FROM outbox.claim('w', 1::smallint)$$),
	($$SELECT count(*) FROM outbox.claim('w', 1)$$),
	($$SELECT count(*) FROM outbox.claim('w', '1')$$),
	($$SELECT count(*) FROM outbox.claim('w', 1::bigint::int)$$),
	($$SELECT count(*) FROM outbox.claim('w', 1::bigint)$$)) v(s);
DEALLOCATE ALL;
SET client_min_messages = warning;
DROP SCHEMA t CASCADE;
