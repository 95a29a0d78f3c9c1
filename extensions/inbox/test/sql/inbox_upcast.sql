-- Versions of events: upcasters, their chain, its gaps, and whose rights they have.
\i test/sql/setup.inc
CREATE EXTENSION outbox_inbox;
ALTER FUNCTION t.masked SECURITY DEFINER;

CREATE FUNCTION t.name_parts(payload jsonb, headers jsonb) RETURNS jsonb LANGUAGE sql AS $$
	SELECT payload - 'name' || jsonb_build_object('first', split_part(payload ->> 'name', ' ', 1), 'last', split_part(payload ->> 'name', ' ', 2))
$$;
CREATE FUNCTION t.with_country(payload jsonb, headers jsonb) RETURNS jsonb LANGUAGE sql AS $$
	SELECT payload || jsonb_build_object('country', coalesce(headers ->> 'country', 'unknown'), 'from', headers -> 'schema_version')
$$;
CREATE FUNCTION t.nothing(payload jsonb, headers jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
CREATE FUNCTION t.two(payload jsonb, headers jsonb) RETURNS SETOF jsonb LANGUAGE sql AS 'SELECT payload';
CREATE FUNCTION t.text(payload jsonb, headers jsonb) RETURNS text LANGUAGE sql AS 'SELECT payload::text';

-- without any
SELECT * FROM inbox.upcast('customer', 1, '{"name": "Ada L"}');
SELECT * FROM inbox.upcast('customer', NULL, '{"name": "Ada L"}');
SELECT t.try($$SELECT inbox.upcast('customer', 1, '{}', 2)$$);

SELECT inbox.add_upcaster('customer', 1, 't.name_parts');
SET search_path = t;
SELECT inbox.add_upcaster('customer', 3, 'with_country(jsonb, jsonb)');
RESET search_path;
SELECT * FROM inbox.upcasters ORDER BY 1, 2;
SELECT * FROM inbox.upcast('customer', 1, '{"name": "Ada L"}', 2);
SELECT * FROM inbox.upcast('customer', 3, '{"first": "Ada"}', headers => '{"country": "GB"}');
-- a gap, and where it is
SELECT t.try($$SELECT inbox.upcast('customer', 1, '{"name": "Ada L"}')$$);
SELECT t.try($$SELECT inbox.upcast('customer', 2, '{"name": "Ada L"}', 3)$$);
SELECT t.try($$SELECT inbox.upcast('customer', 3, '{"name": "Ada L"}', 5)$$);
SELECT * FROM inbox.check();
SELECT inbox.add_upcaster('customer', 2, 't.with_country');
SELECT inbox.add_upcaster('customer', 2, 't.with_country');
SELECT * FROM inbox.check();
SELECT * FROM inbox.upcast('customer', 1, '{"name": "Ada L"}', headers => '{"country": "GB"}');
SELECT * FROM inbox.upcast('customer', NULL, '{"name": "Ada L"}', 3);
SELECT * FROM inbox.upcast('customer', 4, '{"name": "Ada L"}');
SELECT * FROM inbox.upcast('customer', 9, '{"name": "Ada L"}');
-- never down, so never round
SELECT t.try($$SELECT inbox.upcast('customer', 4, '{}', 3)$$);
SELECT t.try($$SELECT inbox.upcast('customer', 0, '{}', 3)$$);
SELECT t.try($$SELECT inbox.upcast(NULL, 1, '{}', 3)$$);

-- events of version 1, and a consumer that knows version 3
CREATE TABLE t.customers (first text, last text, country text);
CREATE FUNCTION t.consume(id uuid, type text, version integer, payload jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	lifted jsonb;
BEGIN
	IF NOT inbox.receive('crm', id, 'shop', type, payload, version) THEN
		RETURN false;
	END IF;
	SELECT u.payload INTO lifted FROM inbox.upcast(type, version, payload, 3) u;
	INSERT INTO t.customers SELECT * FROM jsonb_to_record(lifted) AS r(first text, last text, country text);
	RETURN true;
END
$$;
SELECT t.consume(('00000000-0000-4000-8000-00000000000' || n)::uuid, 'customer', 1, jsonb_build_object('name', 'Ada ' || n)) FROM generate_series(1, 3) n;
SELECT t.consume('00000000-0000-4000-8000-000000000004', 'customer', 3, '{"first": "Bob", "last": "4", "country": "FR"}');
-- replayed from the beginning, by a consumer that has forgotten
SELECT t.consume(l.event_id, l.event_type, l.schema_version, l.payload) FROM (TABLE inbox.log ORDER BY event_id) l;
CREATE TABLE t.history AS SELECT * FROM inbox.log;
SELECT inbox.forget('crm', '0');
TRUNCATE t.customers;
SELECT t.consume(l.event_id, l.event_type, l.schema_version, l.payload) FROM (TABLE t.history ORDER BY event_id) l;
SELECT * FROM t.customers ORDER BY last;

-- what cannot be one
SELECT t.try(format('SELECT inbox.add_upcaster(%s)', list)) FROM (VALUES
	($$NULL, 1, 't.nothing'$$), ($$'c', NULL, 't.nothing'$$), ($$'c', 1, NULL$$), ($$'', 1, 't.nothing'$$), ($$'c', 0, 't.nothing'$$),
	($$'c', 1, 't.no_such'$$), ($$'c', 1, 't.two'$$), ($$'c', 1, 't.text'$$), ($$'c', 1, 'now()'$$), ($$'customer', 2, 't.nothing'$$)) v(list);
SELECT inbox.add_upcaster('nothing', 1, 't.nothing');
SELECT t.try($$SELECT inbox.upcast('nothing', 1, '{}')$$);
SELECT t.try($$SELECT inbox.drop_upcaster('nothing', 2)$$);
SELECT inbox.drop_upcaster('nothing', 1);

-- rights: of the owner who registers, and of the caller who lifts
CREATE ROLE regress_operator IN ROLE inbox_operator;
CREATE ROLE regress_consumer IN ROLE inbox_consumer;
GRANT USAGE ON SCHEMA t TO regress_operator, regress_consumer;
GRANT CREATE ON SCHEMA t TO regress_operator;
CREATE FUNCTION t.who(payload jsonb, headers jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN jsonb_build_object('user', current_user, 'path', current_setting('search_path'));
END
$$;
SET ROLE regress_operator;
SELECT t.try($$SELECT inbox.add_upcaster('who', 1, 't.who')$$);
RESET ROLE;
SELECT inbox.add_upcaster('who', 1, 't.who');
SET ROLE regress_consumer;
SELECT * FROM inbox.upcast('who', 1, '{}');
SELECT t.try($$SELECT inbox.add_upcaster('who', 2, 't.who')$$);
SELECT t.try($$TABLE inbox.upcasters$$);
RESET ROLE;
REVOKE EXECUTE ON FUNCTION t.who FROM PUBLIC;
SET ROLE regress_consumer;
SELECT t.try($$SELECT inbox.upcast('who', 1, '{}')$$);
RESET ROLE;
-- another one in its place is not called
ALTER FUNCTION t.who OWNER TO regress_operator;
SELECT t.try($$SELECT inbox.upcast('who', 1, '{}')$$);
SELECT * FROM inbox.check();
DROP FUNCTION t.who;
SELECT t.try($$SELECT inbox.upcast('who', 1, '{}')$$);
SET ROLE regress_operator;
CREATE FUNCTION t.who(payload jsonb, headers jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT payload';
SELECT t.try($$SELECT inbox.upcast('who', 1, '{}')$$);
SELECT inbox.drop_upcaster('who', 1), inbox.add_upcaster('who', 1, 't.who');
SELECT * FROM inbox.upcast('who', 1, '{"a": 1}');
RESET ROLE;
SET client_min_messages = warning;
DROP EXTENSION outbox_inbox CASCADE;
DROP SCHEMA t CASCADE;
DROP ROLE regress_operator, regress_consumer;
