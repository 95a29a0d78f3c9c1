--
-- The views stats and workers, and prometheus(), without the library being preloaded:
-- what is counted in shared memory is 0, what the tables say is there. (With it:
-- test/t/015_prometheus.pl.)
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

\set odd 'it''s \\ a "queue"\\n,\nin {two} lines'
SELECT outbox.create_queue(:'odd'), outbox.create_queue('idle', paused => true);

-- One message in each state, and one of each outcome.
SELECT count(*) FROM (VALUES ('due'), ('leased'), ('expired'), ('scheduled'), ('retried'), ('dead'), ('sent')) v(m), LATERAL outbox.enqueue_and_claim('w', m, to_jsonb(m));
SELECT error FROM outbox.release('w', ARRAY[t.id('due'), t.id('scheduled')], ARRAY[t.token('due'), t.token('scheduled')]);
SELECT t.hold('scheduled'), t.expire('expired');
SELECT recorded FROM outbox.complete_batch('w', ARRAY[t.id('retried'), t.id('dead'), t.id('sent')], ARRAY[t.token('retried'), t.token('dead'), t.token('sent')],
	'{RETRYABLE, FAILED, DISPATCHED}', latencies_ms => '{1, 2, 3}', retry_delays => '{1 h, NULL, NULL}');
SELECT created FROM outbox.enqueue('once', '1', :'odd', idempotency_key => 'k');
SELECT created FROM outbox.enqueue('once', '1', :'odd', idempotency_key => 'k');
UPDATE outbox.pending SET created_at = clock_timestamp() - interval '100 s';
UPDATE outbox.pending SET next_attempt_at = clock_timestamp() - interval '50 s' WHERE outbox_id = t.id('due');

-- Nothing was counted, for want of shared memory: a row a queue, all 0.
SELECT count(*) AS queues, count(*) FILTER (WHERE stats_reset IS NULL) AS never_reset FROM outbox.stats;
SELECT DISTINCT value FROM outbox.stats s, LATERAL jsonb_each(to_jsonb(s)) WHERE key NOT IN ('queue', 'stats_reset') ORDER BY 1;
SELECT outbox.reset_stats();
SELECT count(*) FROM outbox.queue_stats();
SELECT * FROM outbox.workers;

-- What is scraped; of the counters, one. Ages are compared below.
\pset format unaligned
\pset tuples_only on
SELECT regexp_replace(line, '(age_seconds\{.*\}) [0-9.]+$', '\1 <age>')
FROM regexp_split_to_table(outbox.prometheus(), E'\n') WITH ORDINALITY l(line, n)
WHERE (line !~ '"idle"' OR line ~ 'paused|depth') AND line !~ 'outbox_(?!attempts_)\w+_total' ORDER BY n;
\pset format aligned
\pset tuples_only off

CREATE FUNCTION t.sample(series text) RETURNS double precision LANGUAGE sql AS $$
	SELECT split_part(line, series || ' ', 2)::double precision FROM regexp_split_to_table(outbox.prometheus(), E'\n') line WHERE starts_with(line, series || ' ')
$$;
CREATE FUNCTION t.age(since timestamptz) RETURNS double precision LANGUAGE sql AS $$
	SELECT extract(epoch FROM clock_timestamp() - since)::double precision
$$;
WITH times AS MATERIALIZED (
	SELECT min(created_at) AS created, min(next_attempt_at) FILTER (WHERE outbox_id = t.id('due')) AS due FROM outbox.pending WHERE queue = 'default'
), before AS MATERIALIZED (
	SELECT t.age(created) AS created, t.age(due) AS due FROM times
), shown AS MATERIALIZED (
	SELECT before.*, t.sample('outbox_oldest_pending_age_seconds{queue="default"}') AS shown_created,
		t.sample('outbox_oldest_claimable_age_seconds{queue="default"}') AS shown_due FROM before
), after AS MATERIALIZED (
	SELECT shown.*, t.age(times.created) AS created_after, t.age(times.due) AS due_after FROM shown, times
)
SELECT shown_created BETWEEN created AND created_after AS pending_age, shown_due BETWEEN due AND due_after AS claimable_age, created > 99 AND due > 49 AS old FROM after;

-- The same for whoever may read it, whatever their settings.
SELECT md5(regexp_replace(outbox.prometheus(), 'age_seconds[^\n]*', '', 'g')) AS before \gset
BEGIN;
SET LOCAL extra_float_digits = -15;
SET LOCAL standard_conforming_strings = off;
SET LOCAL search_path = '';
SET LOCAL TRANSACTION READ ONLY;
SET LOCAL ROLE outbox_readonly;
SELECT pg_catalog.md5(pg_catalog.regexp_replace(outbox.prometheus(), E'age_seconds[^\\n]*', '', 'g')) OPERATOR(pg_catalog.=) :'before' AS same;
COMMIT;

-- Without a queue there are only the lines of the worker; one that is made has its own.
TRUNCATE outbox.queues;
SELECT outbox.prometheus();
SELECT count(*) FROM outbox.stats;
SELECT outbox.create_queue('new');
SELECT t.sample('outbox_enqueued_total{queue="new"}') AS enqueued, t.sample('outbox_pending_depth{queue="new"}') AS depth,
	t.sample('outbox_oldest_pending_age_seconds{queue="new"}') AS pending_age, t.sample('outbox_oldest_claimable_age_seconds{queue="new"}') AS claimable_age;
