--
-- Queues: create, alter, drop, pause, resume; what settings are refused; names.
--
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT queue, max_attempts, lease, backoff_base, backoff_cap, backoff_jitter, repair_delay, ordering, on_dead_head, validator, paused, max_in_flight, payload_kind, max_releases, rate_limit, rate_burst, max_in_flight_per_key, fair_by, priority_aging, handler, handler_timeout, dead_letter_queue, protect, reveal_on_claim, audit_events, created_at <= clock_timestamp() AS made
FROM outbox.queues;

-- Defaults are those of the table; every setting arrives, by position and by name.
SELECT outbox.create_queue('plain');
SELECT outbox.create_queue('all', 5, '1 min', '2 s', '3 h', 0.25, '4 s', 'numbered', 'continue', NULL, true, NULL, 'any', 6, 2.5, 10, NULL, NULL, '1 day', NULL, '5 s', 'plain', '{"subject": "s", "fields": ["f"]}', true, true);
SELECT outbox.create_queue(queue => 'named', max_attempts => NULL, lease => '1 min', backoff_base => '2 s', backoff_cap => '3 h', backoff_jitter => 1,
	repair_delay => '0', ordering => 'none', on_dead_head => 'continue', validator => NULL, paused => false, max_in_flight => NULL, payload_kind => 'any', max_releases => 0, rate_limit => 0.5, rate_burst => NULL, max_in_flight_per_key => NULL, fair_by => NULL, priority_aging => '2 h', handler => NULL, handler_timeout => '6 s', dead_letter_queue => 'default', protect => '{}', reveal_on_claim => false, audit_events => true);
CREATE VIEW t.queues AS SELECT queue, max_attempts, lease, backoff_base AS base, backoff_cap AS cap, backoff_jitter AS jitter, repair_delay, ordering, on_dead_head, validator, paused, max_in_flight, payload_kind AS kind, max_releases AS releases,
	rate_limit AS rate, rate_burst AS burst, max_in_flight_per_key AS per_key, fair_by, priority_aging AS aging, handler, handler_timeout AS timeout, dead_letter_queue AS dead_letters, protect, reveal_on_claim AS reveals, audit_events AS audits
FROM outbox.queues ORDER BY queue;
SELECT * FROM t.queues;
SELECT a = b AS same_as_default FROM
	(SELECT to_jsonb(q) - '{queue, created_at}'::text[] FROM outbox.queues q WHERE queue = 'plain') a(a),
	(SELECT to_jsonb(q) - '{queue, created_at}'::text[] FROM outbox.queues q WHERE queue = 'default') b(b);

-- It exists: 42710, and keeps its settings.
SELECT outbox.create_queue('all', 7);
\echo :SQLSTATE
SELECT outbox.create_queue('default');
\echo :SQLSTATE
SELECT queue, max_attempts, paused FROM outbox.queues WHERE queue IN ('all', 'default') ORDER BY 1;

-- alter: what is given changes, the rest stays; max_attempts and max_releases have a value
-- that keeps them, because NULL says no ceiling, as the limits have; fair_by and
-- priority_aging have a value that removes them.
SELECT outbox.alter_queue('plain', lease => '7 s');
SELECT outbox.alter_queue('all', NULL);
SELECT outbox.alter_queue('all', max_releases => NULL, rate_burst => NULL, max_in_flight_per_key => NULL, fair_by => '', priority_aging => '0', handler => '', dead_letter_queue => '', protect => '{}', reveal_on_claim => false, audit_events => false);
SELECT outbox.alter_queue('named', max_attempts => 3, backoff_jitter => 0, paused => true, ordering => 'numbered', repair_delay => '9 s', backoff_base => '0', backoff_cap => '0', on_dead_head => 'continue', payload_kind => 'object', max_releases => 4, rate_limit => NULL, rate_burst => 3, handler_timeout => '7 s', dead_letter_queue => '', protect => '{"subject": "$.a[0].\"b\"", "fields": ["f"]}', reveal_on_claim => true);
SELECT outbox.alter_queue('default');
SELECT * FROM t.queues;
SELECT outbox.alter_queue('nowhere', lease => '1 s');
\echo :SQLSTATE

-- A change holds from the next call on, in this very session and transaction.
BEGIN;
SELECT created FROM outbox.enqueue('a', '1', 'plain');
SELECT outbox.alter_queue('plain', lease => '3 h');
SELECT event_type FROM outbox.claim('w', queues => '{plain}');
SELECT t.lease('a');
ROLLBACK;
SELECT created FROM outbox.enqueue('a', '1', 'plain');
SELECT event_type FROM outbox.claim('w', queues => '{plain}');
SELECT t.lease('a');

-- pause, resume: said twice is no harm.
SELECT outbox.pause('plain'), outbox.pause('plain');
SELECT paused FROM outbox.queues WHERE queue = 'plain';
SELECT outbox.resume('plain'), outbox.resume('plain');
SELECT paused FROM outbox.queues WHERE queue = 'plain';

-- drop: refused while it holds pending rows, leased or not; what was said stays.
SELECT outbox.drop_queue('plain');
\echo :SQLSTATE
UPDATE outbox.pending SET lease_expires_at = clock_timestamp() + interval '1 h';
SELECT recorded FROM outbox.complete(t.id('a'), t.token('a'), 'w', 'FAILED');
SELECT outbox.drop_queue('plain');
SELECT queue FROM outbox.queues ORDER BY 1;
SELECT queue, event_type FROM outbox.messages;
SELECT queue, event_type FROM outbox.dead_letters;
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.enqueue('b', '1', 'plain')$$),
	($$SELECT outbox.claim('w', queues => '{plain}')$$),
	($$SELECT outbox.drop_queue('plain')$$)) AS v(s);
-- Enqueued and dropped in one transaction.
BEGIN;
SELECT created FROM outbox.enqueue('open', '1', 'all');
SELECT outbox.drop_queue('all');
\echo :SQLSTATE
ROLLBACK;
BEGIN;
SELECT outbox.drop_queue('all');
SELECT outbox.create_queue('all', 2);
SELECT created FROM outbox.enqueue('new', '1', 'all');
COMMIT;
SELECT queue, max_attempts, ordering FROM outbox.queues WHERE queue = 'all';
-- 'default' is a queue like any other.
SELECT outbox.drop_queue('default');
SELECT t.try($$SELECT outbox.enqueue('b', '1')$$);
SELECT t.try($$SELECT outbox.claim('w')$$);
SELECT outbox.create_queue('default');
SELECT created FROM outbox.enqueue('b', '1');

-- Names: 1 to 63 bytes, whatever bytes; B29 (pgmq): plain data, nothing of it is
-- cut, folded or built into a statement.
SELECT outbox.create_queue(q) FROM (VALUES ($$x'; DROP TABLE outbox.messages; --$$), ('a"b'), ('Foo'), ('foo'), ('%I'), (' '), ('a b'), (E'tab\there'), ('ünïcödé'), ('\'), (repeat('q', 62) || 'A'), (repeat('q', 62) || 'B')) v(q);
SELECT q, e.created FROM (VALUES ($$x'; DROP TABLE outbox.messages; --$$), ('a"b'), ('Foo'), ('foo'), ('%I'), (' '), ('a b'), (E'tab\there'), ('ünïcödé'), ('\'), (repeat('q', 62) || 'A'), (repeat('q', 62) || 'B')) v(q),
	LATERAL outbox.enqueue('names', to_jsonb(q), q) e;
SELECT bool_and(queue = payload #>> '{}') AS each_its_own, count(*), count(DISTINCT queue) FROM outbox.messages WHERE event_type = 'names';
SELECT c.queue, c.payload #>> '{}' = c.queue AS its_own FROM outbox.queues q, LATERAL outbox.claim('w', 10, queues => ARRAY[q.queue]) c WHERE c.event_type = 'names' ORDER BY 1;
SELECT queue, leased_count FROM outbox.status WHERE leased_count > 0 AND queue <> 'default' ORDER BY 1;
SELECT octet_length(repeat('ü', 31) || 'x') AS bytes, outbox.create_queue(repeat('ü', 31) || 'x');
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.create_queue('')$$),
	($$SELECT outbox.create_queue(NULL)$$),
	($$SELECT outbox.create_queue(repeat('q', 64))$$),
	($$SELECT outbox.create_queue(repeat('ü', 32))$$),
	($$SELECT outbox.create_queue(repeat('q', 100000))$$),
	($$SELECT outbox.enqueue('e', '1', repeat('q', 62) || 'C')$$),
	($$SELECT outbox.enqueue('e', '1', repeat('q', 63) || 'A')$$),
	($$SELECT outbox.enqueue('e', '1', 'FOO')$$),
	($$SELECT outbox.claim('w', queues => ARRAY['FOO'])$$)) AS v(s);

-- Settings that are refused, of create and of alter alike.
SELECT count(*) AS queues FROM outbox.queues \gset
SELECT outbox.create_queue('bad', ordering => 'lifo');
\echo :SQLSTATE
SELECT t.try(replace(s, 'F(', f)) FROM (VALUES ($$outbox.create_queue('bad', $$), ($$outbox.alter_queue('foo', $$)) w(f), (VALUES
	(1, $$SELECT F(max_attempts => 0)$$),
	(2, $$SELECT F(max_attempts => -2)$$),
	(3, $$SELECT F(lease => '0')$$),
	(4, $$SELECT F(lease => '-1 s')$$),
	(5, $$SELECT F(lease => '178000000 years')$$),
	(6, $$SELECT F(backoff_base => '-1 s')$$),
	(7, $$SELECT F(backoff_cap => '-1 s')$$),
	(8, $$SELECT F(backoff_jitter => -0.1)$$),
	(9, $$SELECT F(backoff_jitter => 1.1)$$),
	(10, $$SELECT F(backoff_jitter => 'NaN')$$),
	(11, $$SELECT F(backoff_jitter => 'infinity')$$),
	(12, $$SELECT F(repair_delay => '-1 s')$$),
	(13, $$SELECT F(ordering => 'Numbered')$$),
	(14, $$SELECT F(ordering => '')$$),
	(17, $$SELECT F(on_dead_head => 'stop')$$),
	(18, $$SELECT F(validator => 'public.f')$$),
	(20, $$SELECT F(max_in_flight => 0)$$),
	(21, $$SELECT F(max_releases => -2)$$),
	(22, $$SELECT F(rate_limit => 0)$$),
	(23, $$SELECT F(rate_limit => -2)$$),
	(24, $$SELECT F(rate_limit => 'NaN')$$),
	(25, $$SELECT F(rate_limit => 'infinity')$$),
	(26, $$SELECT F(rate_burst => 0)$$),
	(27, $$SELECT F(max_in_flight_per_key => 0)$$),
	(28, $$SELECT F(fair_by => 'event_type')$$),
	(29, $$SELECT F(priority_aging => '-1 s')$$),
	(30, $$SELECT F(priority_aging => '178000000 years')$$),
	(31, $$SELECT F(handler => 'public.f')$$),
	(32, $$SELECT F(handler_timeout => '0')$$),
	(35, $$SELECT F(dead_letter_queue => 'nowhere')$$),
	(36, $$SELECT F(protect => '[]')$$),
	(37, $$SELECT F(protect => '{"subject": "s"}')$$),
	(38, $$SELECT F(protect => '{"subject": 1, "fields": []}')$$),
	(39, $$SELECT F(protect => '{"subject": "$[*]", "fields": []}')$$),
	(40, $$SELECT F(protect => '{"subject": "s", "fields": "f"}')$$),
	(41, $$SELECT F(protect => '{"subject": "s", "fields": [1]}')$$),
	(42, $$SELECT F(protect => '{"subject": "s", "fields": ["$.."]}')$$),
	(43, $$SELECT F(protect => '{"subject": "s", "fields": []}')$$),
	(33, $$SELECT F(priority_aging => '1 min', fair_by => 'partition_key')$$),
	(34, $$SELECT F(priority_aging => '1 min', max_in_flight_per_key => 1)$$)) v(n, s) ORDER BY f DESC, n;
SELECT t.try(s) FROM (VALUES
	($$SELECT outbox.create_queue('bad', max_attempts => -1)$$),
	($$SELECT outbox.create_queue('bad', max_releases => -1)$$),
	($$SELECT outbox.create_queue('bad', rate_limit => -1)$$),
	($$SELECT outbox.create_queue('bad', rate_burst => -1)$$),
	($$SELECT outbox.create_queue('bad', lease => NULL)$$),
	($$SELECT outbox.create_queue('bad', backoff_base => NULL)$$),
	($$SELECT outbox.create_queue('bad', backoff_cap => NULL)$$),
	($$SELECT outbox.create_queue('bad', backoff_jitter => NULL)$$),
	($$SELECT outbox.create_queue('bad', repair_delay => NULL)$$),
	($$SELECT outbox.create_queue('bad', ordering => NULL)$$),
	($$SELECT outbox.create_queue('bad', on_dead_head => NULL)$$),
	($$SELECT outbox.create_queue('bad', paused => NULL)$$),
	($$SELECT outbox.create_queue('bad', handler_timeout => NULL)$$),
	($$SELECT outbox.create_queue('bad', reveal_on_claim => NULL)$$),
	($$SELECT outbox.alter_queue(NULL)$$),
	($$SELECT outbox.drop_queue(NULL)$$),
	($$SELECT outbox.pause(NULL)$$),
	($$SELECT outbox.resume(NULL)$$),
	($$SELECT outbox.pause('nowhere')$$),
	($$SELECT outbox.resume('nowhere')$$),
	($$SELECT outbox.drop_queue('nowhere')$$)) AS v(s);
SELECT count(*) = :queues AS nothing_made, bool_and(queue <> 'bad') AS not_bad FROM outbox.queues;
SELECT * FROM t.queues WHERE queue = 'foo';

-- A restored dump's INSERT of a queue that exists takes over its settings, also
-- under session_replication_role = replica; it makes no second row and no error.
INSERT INTO outbox.queues (queue, max_attempts, lease, paused) VALUES ('default', 3, '5 s', true), ('restored', 4, '6 s', false);
SELECT * FROM t.queues WHERE queue IN ('default', 'restored');
SET session_replication_role = replica;
INSERT INTO outbox.queues (queue, max_attempts, created_at) VALUES ('default', NULL, '2020-01-01 00:00+00');
RESET session_replication_role;
SELECT max_attempts, lease, paused, created_at FROM outbox.queues WHERE queue = 'default';
