-- The inbox: what receive, receive_batch, finish, failed, replay, forget, set_window, maintain, stats and check do
-- in one session. Races: test/specs/race_inbox.spec; crashes, dumps, standby: t/060_inbox.pl.
\i test/sql/setup.inc
CREATE EXTENSION outbox_inbox;
SELECT t.try('DROP EXTENSION outbox_inbox'), t.try('CREATE EXTENSION outbox_inbox');

CREATE FUNCTION t.event(n integer) RETURNS uuid LANGUAGE sql AS $$ SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid $$;
INSERT INTO t.known SELECT t.event(n), 'event ' || n FROM generate_series(1, 9) n;
CREATE FUNCTION t.number(id uuid) RETURNS integer LANGUAGE sql AS $$ SELECT right(id::text, 12)::integer $$;
CREATE VIEW t.partitions AS
	SELECT p.consumer, row_number() OVER (PARTITION BY p.consumer ORDER BY p.number) AS place, (SELECT count(*) FROM inbox.events e WHERE e.tableoid = c.oid) AS events
	FROM inbox.partitions p JOIN pg_class c ON c.oid = to_regclass('inbox.events_' || p.number);
-- As if a consumer's partitions had been made so much earlier, and their events received.
CREATE FUNCTION t.age(consumer text, by interval) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	UPDATE inbox.partitions p SET begins = p.begins - by WHERE p.consumer = age.consumer;
	UPDATE inbox.events e SET consumed_at = e.consumed_at - by WHERE e.consumer = age.consumer;
END
$$;

-- once for each consumer
SELECT inbox.receive('billing', t.event(1), 'orders', 'order.placed');
SELECT inbox.receive('billing', t.event(1), 'orders', 'order.placed');
SELECT inbox.receive('Billing', t.event(1), 'orders', 'order.placed', '{"amount": 1}', 2);
BEGIN;
SELECT inbox.receive('billing', t.event(2), 'orders', 'order.placed'), inbox.receive('billing', t.event(2), 'orders', 'order.placed');
SAVEPOINT s;
SELECT inbox.receive('billing', t.event(3), 'orders', 'order.placed');
SELECT inbox.receive('new one', t.event(3), 'orders', 'order.placed');
ROLLBACK TO s;
SELECT inbox.receive('billing', t.event(3), 'orders', 'order.placed');
SELECT inbox.receive('new one', t.event(3), 'orders', 'order.placed');
ROLLBACK;
SELECT inbox.receive('billing', t.event(2), 'orders', 'order.placed');
SELECT consumer, t.number(event_id), source, event_type, payload, schema_version, consumed_at > now() - interval '1 minute' AS consumed, processing_duration_ms
FROM inbox.log ORDER BY 1, 2;
SELECT consumer, remember_for, window_chosen FROM inbox.consumers ORDER BY 1;
-- one narrow row and one index entry
SELECT pg_column_size(e.*) AS bytes, (SELECT count(*) FROM pg_index i WHERE i.indrelid = e.tableoid) AS indexes
FROM inbox.events e WHERE e.consumer = 'billing' AND e.event_id = t.event(1);
-- in a statement of many
SELECT count(*) FILTER (WHERE inbox.receive('billing', t.event(n % 10), 'orders', 'order.placed')) FROM generate_series(10, 29) n;

-- a batch
SELECT t.number(id) FROM inbox.receive_batch('batch', '[
	{"event_id": "00000000-0000-4000-8000-000000000003", "source": "s", "event_type": "c", "payload": {"n": 3}, "schema_version": 2},
	{"event_id": "00000000-0000-4000-8000-000000000001", "source": "s", "event_type": "a"},
	{"event_id": "00000000-0000-4000-8000-000000000003", "source": "s", "event_type": "again"},
	{"event_id": "00000000-0000-4000-8000-000000000002", "source": "s", "event_type": "b", "payload": null}]') WITH ORDINALITY AS r(id, place) ORDER BY place;
SELECT t.number(id) FROM inbox.receive_batch('batch', '[
	{"event_id": "00000000-0000-4000-8000-000000000004", "source": "s", "event_type": "d"},
	{"event_id": "00000000-0000-4000-8000-000000000001", "source": "s", "event_type": "a"}]') id;
SELECT t.number(event_id), event_type, payload, schema_version FROM inbox.log WHERE consumer = 'batch' ORDER BY 1;
SELECT count(*) FROM inbox.receive_batch('batch', '[]');
SELECT count(*) FROM inbox.receive_batch('large', (SELECT jsonb_agg(jsonb_build_object('event_id', t.event(n), 'source', 's', 'event_type', 't')) FROM generate_series(1, 1000) n));
SELECT string_agg(t.number(id)::text, ' ') FROM inbox.receive_batch('large',
	(SELECT jsonb_agg(jsonb_build_object('event_id', t.event(n), 'source', 's', 'event_type', 't')) FROM generate_series(995, 1005) n)) id;
SELECT t.try($$SELECT inbox.receive_batch('batch', NULL)$$);
SELECT t.try($$SELECT inbox.receive_batch('batch', '{}')$$);
SELECT t.try($$SELECT inbox.receive_batch('batch', '[{}, []]')$$);
SELECT t.try($$SELECT inbox.receive_batch('batch', '[{"event_id": "00000000-0000-4000-8000-000000000004", "sauce": 1}]')$$);
SELECT t.try($$SELECT inbox.receive_batch('batch', '[{"source": "s", "event_type": "t"}]')$$);
SELECT t.try($$SELECT inbox.receive_batch('batch', '[{"event_id": "00000000-0000-4000-8000-000000000004", "event_type": "t"}]')$$);
SELECT t.try($$SELECT inbox.receive_batch('batch', '[{"event_id": "00000000-0000-4000-8000-000000000004", "source": "s", "event_type": ""}]')$$);
SELECT t.try($$SELECT inbox.receive_batch('batch', '[{"event_id": "00000000-0000-4000-8000-000000000004", "source": "s", "event_type": "t", "schema_version": 0}]')$$);
SELECT t.try($$SELECT inbox.receive_batch('batch', '[{"event_id": "4", "source": "s", "event_type": "t"}]')$$);
SELECT t.try($$SELECT inbox.receive_batch('batch', '[{"event_id": "00000000-0000-4000-8000-000000000004", "source": 5, "event_type": "t"}]')$$);
SELECT t.try($$SELECT inbox.receive_batch('batch', '[{"event_id": "00000000-0000-4000-8000-000000000004", "source": "s", "event_type": "t", "schema_version": "2"}]')$$);
SELECT t.try($$SELECT inbox.receive_batch('batch', '[{"event_id": null, "source": "s", "event_type": "t"}]')$$);
SELECT count(*) FROM inbox.log WHERE consumer = 'batch';

-- bad arguments
SELECT t.try(format('SELECT inbox.receive(%s)', list)) FROM (VALUES
	($$NULL, t.event(1), 's', 't'$$), ($$'c', NULL, 's', 't'$$), ($$'c', t.event(1), NULL, 't'$$), ($$'c', t.event(1), 's', NULL$$),
	($$'', t.event(1), 's', 't'$$), ($$'c', t.event(1), '', 't'$$), ($$'c', t.event(1), 's', ''$$),
	($$repeat('c', 64), t.event(1), 's', 't'$$), ($$'c', t.event(1), 's', 't', '{}', 0$$)) v(list);
SELECT inbox.receive(repeat('c', 63), t.event(1), 's', 't');
BEGIN READ ONLY;
SELECT t.try($$SELECT inbox.receive('billing', t.event(1), 's', 't')$$);
COMMIT;

-- how long it took
SELECT t.age('billing', '1 second');
SELECT inbox.finish('billing', t.event(1));
SELECT processing_duration_ms BETWEEN 1000 AND 60000 FROM inbox.log WHERE consumer = 'billing' AND event_id = t.event(1);
BEGIN;
SELECT inbox.receive('finish', t.event(1), 's', 't');
SELECT inbox.finish('finish', t.event(1));
SELECT inbox.receive('finish', t.event(1), 's', 't');
COMMIT;
SELECT inbox.receive('finish', t.event(1), 's', 't');
SELECT t.try($$SELECT inbox.finish('finish', t.event(2))$$);
SELECT t.try($$SELECT inbox.finish('no such consumer', t.event(1))$$);
SELECT t.try($$SELECT inbox.finish('finish', NULL)$$);

-- poison
SELECT inbox.failed('poison', t.event(1), 'boom 1', 3, 's', 't', '{"n": 1}', 2);
SELECT inbox.failed('poison', t.event(1), 'boom 2', 3);
BEGIN;
SELECT inbox.receive('poison', t.event(1), 's', 't');
ROLLBACK;
SELECT inbox.failed('poison', t.event(1), 'boom 3', 3);
SELECT inbox.receive('poison', t.event(1), 's', 't');
SELECT t.number(id) FROM inbox.receive_batch('poison', '[
	{"event_id": "00000000-0000-4000-8000-000000000001", "source": "s", "event_type": "t"},
	{"event_id": "00000000-0000-4000-8000-000000000002", "source": "s", "event_type": "t"}]') id;
SELECT consumer, t.number(event_id), failures, dead_at IS NOT NULL AS dead, source, event_type, payload, schema_version, error, replayed_at FROM inbox.failures;
SELECT inbox.failed('poison', t.event(1), 'late', 9);
SELECT count(*) FROM inbox.log WHERE consumer = 'poison' AND event_id = t.event(1);
SELECT inbox.replay('poison', t.event(1));
SELECT t.try($$SELECT inbox.replay('poison', t.event(1))$$);
SELECT t.try($$SELECT inbox.replay('poison', t.event(9))$$);
SELECT t.try($$SELECT inbox.replay('poison', NULL)$$);
SELECT failures, dead_at, replayed_at IS NOT NULL AS replayed FROM inbox.failures;
BEGIN;
SELECT inbox.receive('poison', t.event(1), 's', 't');
SELECT count(*) FROM inbox.failures;
ROLLBACK;
SELECT inbox.failed('poison', t.event(1), 'again', 3), failures FROM inbox.failures;
SELECT inbox.receive('poison', t.event(1), 's', 't');
SELECT count(*) FROM inbox.failures;
-- it was processed meanwhile
SELECT inbox.failed('poison', t.event(1), 'too late', 1), (SELECT count(*) FROM inbox.failures);
SELECT inbox.failed('poison', t.event(3), 'at once', 1), inbox.receive('poison', t.event(3), 's', 't');
SELECT t.try(format('SELECT inbox.failed(%s)', list)) FROM (VALUES
	($$NULL, t.event(1), 'e'$$), ($$'c', NULL, 'e'$$), ($$'c', t.event(1), NULL$$), ($$'c', t.event(1), 'e', NULL$$), ($$'c', t.event(1), 'e', 0$$), ($$'', t.event(1), 'e'$$)) v(list);

-- an error of any length, which is cut as the ledger cuts it; an event_id that is the same for all who have none
BEGIN;
SELECT inbox.failed('poison', t.event(4), repeat('ä', 10000));
SELECT length(error), right(error, 19) FROM inbox.failures WHERE event_id = t.event(4);
ROLLBACK;
SELECT t.try($$SELECT inbox.receive('nil', '00000000-0000-0000-0000-000000000000', 's', 't')$$);
SELECT t.try($$SELECT inbox.receive_batch('nil', '[{"event_id": "00000000-0000-4000-8000-000000000001", "source": "s", "event_type": "t"},
	{"event_id": "00000000-0000-0000-0000-000000000000", "source": "s", "event_type": "t"}]')$$);

-- the window
SELECT inbox.set_window('window', '40 days');
SELECT inbox.receive('window', t.event(1), 's', 't');
SELECT * FROM inbox.maintain();
SELECT t.age('window', '11 days');
SELECT * FROM inbox.maintain();
SELECT * FROM inbox.maintain();
SELECT inbox.receive('window', t.event(2), 's', 't');
SELECT t.age('window', '11 days');
SELECT * FROM inbox.maintain();
SELECT inbox.receive('window', t.event(n), 's', 't') FROM generate_series(1, 3) n;
SELECT * FROM t.partitions WHERE consumer = 'window';
SELECT t.age('window', '11 days');
SELECT * FROM inbox.maintain();
SELECT t.age('window', '11 days');
SELECT * FROM inbox.maintain();
SELECT * FROM t.partitions WHERE consumer = 'window';
SELECT inbox.receive('window', t.event(n), 's', 't') FROM generate_series(1, 3) n;
-- The newest stays, whatever its age; an empty one is not followed by another.
SELECT t.age('window', '1 year');
SELECT made, forgotten FROM inbox.maintain();
SELECT * FROM t.partitions WHERE consumer = 'window';
SELECT t.age('window', '1 year');
SELECT made, forgotten FROM inbox.maintain();
SELECT * FROM t.partitions WHERE consumer = 'window';
SELECT inbox.set_window('window', NULL);
SELECT inbox.receive('window', t.event(1), 's', 't');
SELECT t.age('window', '100 years');
SELECT made, forgotten FROM inbox.maintain();
SELECT t.try($$SELECT inbox.set_window(NULL, '1 day')$$);
SELECT t.try($$SELECT inbox.set_window('', '1 day')$$);
SELECT t.try($$SELECT inbox.set_window('c', '0')$$);
SELECT t.try($$SELECT inbox.set_window('c', '101 years')$$);

-- forgotten by hand
SELECT inbox.forget('large', '1 day');
SELECT inbox.forget('large', '0');
SELECT inbox.receive('large', t.event(1), 's', 't');
SELECT inbox.forget('large', '1 day'), inbox.receive('large', t.event(1), 's', 't');
SELECT t.age('large', '2 days');
SELECT inbox.receive('large', t.event(2), 's', 't');
-- The partition holds a younger one.
SELECT inbox.forget('large', '1 day'), inbox.receive('large', t.event(1), 's', 't');
SELECT t.try($$SELECT inbox.forget('no such consumer', '1 day')$$);
SELECT t.try($$SELECT inbox.forget('large', '-1 day')$$);
SELECT t.try($$SELECT inbox.forget('large', '10000 years')$$);
SELECT t.try($$SELECT inbox.forget(NULL, '1 day')$$);
SELECT t.try($$SELECT inbox.forget('large', NULL)$$);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT t.try($$SELECT inbox.forget('large', '1 day')$$);
SELECT t.try($$SELECT inbox.maintain()$$);
ROLLBACK;

-- A closed partition is looked into only for ids between its own, and its table opened only for its own.
SELECT count(*) FILTER (WHERE inbox.receive('closed', t.event(n), 's', 't')) FROM generate_series(3, 5, 2) n;
SELECT inbox.make_partition('closed', (SELECT consumer_id FROM inbox.consumers WHERE consumer = 'closed'));
SELECT inbox.receive('closed', t.event(6), 's', 't');
SELECT inbox.receive('closed', t.event(6), 's', 't');
CREATE VIEW t.closed AS SELECT pg_stat_get_numscans(to_regclass(format('inbox.events_%s_pkey', min(number)))) AS looks FROM inbox.partitions WHERE consumer = 'closed';
SELECT pg_stat_force_next_flush();
SELECT looks AS so_far FROM t.closed \gset
SELECT count(*) FILTER (WHERE inbox.receive('closed', t.event(n), 's', 't')) FROM generate_series(7, 26) n;
SELECT count(*) FROM inbox.receive_batch('closed', (SELECT jsonb_agg(jsonb_build_object('event_id', t.event(n), 'source', 's', 'event_type', 't')) FROM generate_series(20, 40) n));
SELECT inbox.receive('closed', t.event(2), 's', 't'), pg_stat_force_next_flush();
SELECT looks - :so_far AS looks_beyond FROM t.closed;
SELECT inbox.receive('closed', t.event(4), 's', 't'), pg_stat_force_next_flush();
SELECT looks - :so_far AS looks_between FROM t.closed;
SELECT inbox.receive('closed', t.event(3), 's', 't'), inbox.receive('closed', t.event(5), 's', 't'), inbox.finish('closed', t.event(5));
SELECT t.number(id) FROM inbox.receive_batch('closed', (SELECT jsonb_agg(jsonb_build_object('event_id', t.event(n), 'source', 's', 'event_type', 't')) FROM generate_series(1, 8) n)) id;
SELECT * FROM t.partitions WHERE consumer = 'closed';

-- What one transaction makes it does not use before its commit, unless there is nothing older.
BEGIN;
SELECT inbox.make_partition('large', (SELECT consumer_id FROM inbox.consumers WHERE consumer = 'large'));
SELECT inbox.receive('large', t.event(3), 's', 't');
SELECT place, events FROM t.partitions WHERE consumer = 'large';
COMMIT;
SELECT inbox.receive('large', t.event(3), 's', 't'), inbox.receive('large', t.event(4), 's', 't');
SELECT place, events FROM t.partitions WHERE consumer = 'large';
BEGIN;
SELECT inbox.receive('fresh', t.event(1), 's', 't');
SELECT inbox.forget('fresh', '0'), inbox.receive('fresh', t.event(1), 's', 't'), inbox.receive('fresh', t.event(1), 's', 't');
COMMIT;
SELECT place, events FROM t.partitions WHERE consumer = 'fresh';

-- operators of the caller's search_path are not called as the owner of the tables
CREATE FUNCTION t.equal(text, text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'called by %', current_user; END$$;
CREATE OPERATOR t.= (LEFTARG = text, RIGHTARG = text, FUNCTION = t.equal);
CREATE FUNCTION t.equal(uuid, uuid) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'called by %', current_user; END$$;
CREATE OPERATOR t.= (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = t.equal);
GRANT USAGE ON SCHEMA t TO inbox_owner;
SELECT inbox.failed('operators', t.event(1), 'error');
SET search_path = t, pg_catalog;
SELECT inbox.receive('operators', t.event(1), 's', 't');
RESET search_path;
DROP OPERATOR t.= (text, text), t.= (uuid, uuid);
DROP FUNCTION t.equal(text, text), t.equal(uuid, uuid);

-- stats: the lag by the time in a UUIDv7
SELECT inbox.event_time('018bcfe5-687b-7000-8000-000000000000'), inbox.event_time(t.event(1));
SELECT inbox.receive('lag', ('018bcfe5-687b-7000-8000-00000000000' || n)::uuid, 's', 't') FROM generate_series(1, 2) n;
SELECT inbox.receive('lag', '018bcfe5-687b-7000-8000-000000000001', 's', 't') FROM generate_series(1, 3);
SELECT consumer, partitions, last_consumed_at > now() - interval '1 hour' AS lately, duplicates, failing, dead, lag > interval '1000 days' AS late
FROM inbox.stats ORDER BY consumer COLLATE "C";
SELECT line FROM (SELECT regexp_replace(line, '(age|lag)(_seconds.* )[0-9.]+$', '\1\2<n>') AS line
	FROM string_to_table(inbox.prometheus(), E'\n') line) l WHERE line ~ '^#|"(lag|poison|batch)"' AND line !~ '^inbox_events';

-- check
SELECT severity, object, regexp_replace(problem, 'was .* old', 'was <time> old') FROM inbox.check() WHERE object IN ('consumer lag', 'consumer billing', 'consumer poison');
SELECT inbox.set_window(consumer, '10 years') FROM inbox.consumers;
SELECT inbox.replay('poison', t.event(3));
SELECT severity, object, regexp_replace(problem, 'was .* old', 'was <time> old') AS problem FROM inbox.check();
SELECT inbox.set_window('lag', '10000 days');
CREATE FUNCTION t.of(consumer text) RETURNS text LANGUAGE sql AS $$ SELECT 'inbox.events_' || max(p.number) FROM inbox.partitions p WHERE p.consumer = of.consumer $$;
CREATE FUNCTION t.checked() RETURNS SETOF text LANGUAGE sql AS $$ SELECT regexp_replace(concat_ws(' | ', severity, object, problem), 'events_[0-9]+|[0-9]{4}-.*\+00', '<N>', 'g') FROM inbox.check() $$;
CREATE PROCEDURE t.damage(command text) LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	EXECUTE format(command, t.of('batch'));
	FOR line IN SELECT * FROM t.checked() UNION ALL SELECT t.try('SELECT inbox.receive(''batch'', t.event(9), ''s'', ''t'')') LOOP
		RAISE NOTICE '%', regexp_replace(line, 'events_[0-9]+', 'events_<N>', 'g');
	END LOOP;
	ROLLBACK;
END
$$;
SET client_min_messages = notice;
CALL t.damage('ALTER TABLE %1$s DROP CONSTRAINT "' || split_part(t.of('batch'), '.', 2) || '_pkey"');
-- keys of the same name, which the inbox would read as its own
CALL t.damage('ALTER TABLE inbox.partitions DROP CONSTRAINT partitions_pkey, ADD CONSTRAINT partitions_pkey PRIMARY KEY (number, consumer)');
CALL t.damage('ALTER TABLE inbox.failures DROP CONSTRAINT failures_pkey, ADD CONSTRAINT failures_pkey PRIMARY KEY (event_id, consumer)');
CALL t.damage('ALTER TABLE inbox.failures DROP CONSTRAINT failures_pkey, ADD CONSTRAINT failures_pkey PRIMARY KEY (consumer, first_failed_at)');
CALL t.damage('ALTER TABLE inbox.failures DROP CONSTRAINT failures_pkey');
CALL t.damage('CREATE TRIGGER mine BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()');
CALL t.damage('ALTER TABLE %s ENABLE ROW LEVEL SECURITY');
CALL t.damage('ALTER TABLE %s SET UNLOGGED');
CALL t.damage('ALTER TABLE %s OWNER TO postgres');
CALL t.damage('GRANT INSERT ON %s TO PUBLIC');
CALL t.damage('GRANT EXECUTE ON FUNCTION inbox.receive TO PUBLIC');
CALL t.damage('ALTER ROLE inbox_readonly CREATEROLE');
CALL t.damage('DELETE FROM inbox.partitions WHERE consumer = ''batch''');
CALL t.damage($$SELECT t.age('batch', '6 years'); SELECT inbox.receive('batch', t.event(8), 's', 't')$$);
-- What users add holds.
CALL t.damage('ALTER TABLE %s ADD tenant text DEFAULT ''mine'', ADD CHECK (event_type <> ''t'')');
CALL t.damage('CREATE INDEX ON %s (consumed_at)');
-- The last ones: plans that were made without the partition stay when it comes back.
CALL t.damage('ALTER TABLE %s NO INHERIT inbox.events');
CALL t.damage('DROP TABLE %s');
SET client_min_messages = warning;

SELECT DISTINCT left(line, 75) FROM t.try('DROP EXTENSION outbox_inbox') line WHERE line !~ 'DETAIL';
DROP EXTENSION outbox_inbox CASCADE;
SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('inbox');
