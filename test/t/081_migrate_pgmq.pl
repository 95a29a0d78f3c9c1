# examples/migrate/pgmq.sql: from pgmq.
#
# Proves: as 080, with consumers whose hold is a visibility timeout: they read in one transaction, work, and delete in another one. A message that
# was read is moved only after its timeout, one that was sent with a delay at once, with it.
#
# The schema is written here after pgmq's documentation of its SQL functions (1.10). OUTBOX_PGMQ_SQL: a file with pgmq's own.
use strict;
use warnings;

use MigrateTest;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed();
my $node = new_node('main', preload => 1, conf => 'synchronous_commit = off');
make_units($node);

# ---------------------------------------------------------------- pgmq

my $pgmq = q{
	CREATE TYPE pgmq.message_record AS (msg_id bigint, read_ct int, enqueued_at timestamptz, last_read_at timestamptz, vt timestamptz, message jsonb, headers jsonb);
	CREATE FUNCTION pgmq.create(queue_name text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE format('CREATE TABLE pgmq.%I (msg_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, read_ct int NOT NULL DEFAULT 0, enqueued_at timestamptz NOT NULL DEFAULT now(),
			last_read_at timestamptz, vt timestamptz NOT NULL, message jsonb, headers jsonb)', 'q_' || queue_name);
	END $$;
	CREATE FUNCTION pgmq.send(queue_name text, msg jsonb, headers jsonb, delay int) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
	BEGIN
		RETURN QUERY EXECUTE format('INSERT INTO pgmq.%I (vt, message, headers) VALUES (clock_timestamp() + make_interval(secs => $1), $2, $3) RETURNING msg_id', 'q_' || queue_name)
			USING delay, msg, headers;
	END $$;
	CREATE FUNCTION pgmq.read(queue_name text, vt int, qty int) RETURNS SETOF pgmq.message_record LANGUAGE plpgsql AS $$
	BEGIN
		RETURN QUERY EXECUTE format('
			WITH seen AS (SELECT msg_id FROM pgmq.%1$I WHERE vt <= clock_timestamp() ORDER BY msg_id LIMIT $1 FOR UPDATE SKIP LOCKED)
			UPDATE pgmq.%1$I q SET vt = clock_timestamp() + make_interval(secs => $2), read_ct = read_ct + 1, last_read_at = clock_timestamp() FROM seen WHERE q.msg_id = seen.msg_id
			RETURNING q.msg_id, q.read_ct, q.enqueued_at, q.last_read_at, q.vt, q.message, q.headers', 'q_' || queue_name) USING qty, vt;
	END $$;
	CREATE FUNCTION pgmq.delete(queue_name text, msg_id bigint) RETURNS boolean LANGUAGE plpgsql AS $$
	DECLARE
		deleted bigint;
	BEGIN
		EXECUTE format('DELETE FROM pgmq.%I q WHERE q.msg_id = $1 RETURNING q.msg_id', 'q_' || queue_name) INTO deleted USING msg_id;
		RETURN deleted IS NOT NULL;
	END $$;
};
$node->safe_psql('postgres', 'CREATE SCHEMA pgmq');
$node->safe_psql('postgres', $ENV{OUTBOX_PGMQ_SQL} ? slurp_file($ENV{OUTBOX_PGMQ_SQL}) : $pgmq);
$node->safe_psql('postgres', q{
	SELECT pgmq.create('mail');
	CREATE FUNCTION produce_old(key text) RETURNS SETOF bigint LANGUAGE sql AS $$
		SELECT send FROM make_unit(key) u, pgmq.send('mail', jsonb_build_object('unit', u), jsonb_build_object('x-pgmq-group', key), 0)
	$$;
	-- A consumer that fails lets the timeout pass.
	CREATE PROCEDURE work_old(outcome int) LANGUAGE plpgsql AS $$
	DECLARE
		seen pgmq.message_record[] := ARRAY(SELECT r FROM pgmq.read('mail', CASE outcome WHEN 0 THEN 1 ELSE 600 END, 3) r);
		m pgmq.message_record;
	BEGIN
		COMMIT;
		IF outcome = 0 THEN
			RETURN;
		END IF;
		FOREACH m IN ARRAY seen LOOP
			PERFORM pg_sleep(0.02);
			INSERT INTO effects (unit, side, attempts) VALUES ((m.message ->> 'unit')::bigint, 'old', m.read_ct - 1);
			COMMIT;
			IF NOT pgmq.delete('mail', m.msg_id) THEN
				RAISE EXCEPTION 'message % is gone', m.msg_id;
			END IF;
			COMMIT;
		END LOOP;
	END $$;
	GRANT USAGE ON SCHEMA pgmq TO producer, migrator;
	GRANT SELECT, INSERT ON pgmq.q_mail TO producer;
	GRANT SELECT, UPDATE, DELETE, TRIGGER ON pgmq.q_mail TO migrator;
	CREATE SCHEMA migration AUTHORIZATION migrator});
script($node, 'produce_old', '\set key random(1, 10)', q{SELECT produce_old('old ' || :client_id || ' ' || :key);});
script($node, 'work_old', '\set outcome random(0, 9)', 'CALL work_old(:outcome);');

# ---------------------------------------------------------------- what is held, and what waits

like(run_script($node, 'pgmq', table => 'public.units', queue => 'work'), qr/public\.units is not the table of a queue of pgmq 1\.5/, 'another table is refused');
install($node, 'pgmq', table => 'pgmq.q_mail', queue => 'work');
$node->safe_psql('postgres', q{
	SELECT pgmq.send('mail', '{"is": "read"}', NULL, 0);
	SELECT pgmq.read('mail', 600, 1);
	SELECT pgmq.send('mail', '{"is": "delayed"}', '{"x-pgmq-group": "g", "tenant": "acme"}', 3600);
	SELECT pgmq.send('mail', NULL, NULL, 0)});
like(call($node, 'CALL migration.move(in_order => true)'), qr/ 0 rows moved, 3 left/, 'in order, nothing passes a message that a consumer holds');
like(call($node, 'CALL migration.move()'), qr/ 2 rows moved, 1 left/, '... else all do');
my $moved = q{SELECT payload, headers, m.partition_key, event_type, p.next_attempt_at > now() + interval '50 min' FROM outbox.messages m JOIN outbox.pending p USING (outbox_id) ORDER BY payload ->> 'is'};
is($node->safe_psql('postgres', $moved), qq({"is": "delayed"}|{"tenant": "acme", "x-pgmq-group": "g"}|g|work|t\nnull|{}||work|f), 'a delayed message keeps its delay, its headers and its group');
is(call($node, 'CALL migration.redirect(in_order => true)'), '55006', 'no redirection in order while a message is held');
$node->safe_psql('postgres', 'UPDATE pgmq.q_mail SET vt = now()');
like(call($node, 'CALL migration.move(in_order => true)'), qr/ 1 rows moved, 0 left/, 'once the timeout is over the message is moved');
is($node->safe_psql('postgres', q{SELECT headers FROM outbox.messages WHERE payload ->> 'is' = 'read'}), '{"attempts_before": 1}', '... with the number of its reads');
$node->safe_psql('postgres', q{SELECT outbox.cancel(outbox_id, 'end of this part') FROM outbox.pending});

# ---------------------------------------------------------------- everything runs

$node->safe_psql('postgres', q{SELECT count(id) FROM generate_series(1, 800) n, LATERAL produce_old('backlog ' || n % 20) id});
my $load = start_load($node, $seed, produce_old => [ 2, 100, 'producer' ], work_old => [ 3, 30 ], work_new => [ 2, 100 ], produce_new => [ 2, 50 ]);
$node->poll_query_until('postgres', q{SELECT count(*) > 20 FROM effects WHERE side = 'old'}) or die;
move_and_kill($node);
redirect($node);
my $redirected = $node->safe_psql('postgres', q{SELECT produce_old('redirected')});
is($node->safe_psql('postgres', "SELECT (SELECT count(*) FROM outbox.messages WHERE idempotency_key = 'pgmq.q_mail $redirected'), (SELECT count(*) FROM pgmq.q_mail WHERE msg_id = $redirected)"),
	'1|0', 'a redirected message has an id, and is in the outbox only');
my $after = $node->safe_psql('postgres', 'SELECT max(unit) FROM units');
drain($node, until => "SELECT count(*) > $after + 100 FROM units");
stop_load([ grep { $_->{name} =~ /^produce/ } @$load ], 'producers');
drain($node);
stop_load([ grep { $_->{name} =~ /^work/ } @$load ], 'workers');
all_done_once($node);
$node->stop;

done_testing();
