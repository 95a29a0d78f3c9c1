# examples/migrate/table.sql: from an outbox table of one's own.
#
# Proves: while old producers, old workers (FOR UPDATE SKIP LOCKED), new producers and new workers run, moves that are killed and called again, and the
# redirection, leave each unit of work with one effect. What is scheduled, has been tried, is delivered or given up is carried, or left,
# as the page says. With in_order, once the old workers have stopped, each key keeps its order while its producers go on.
use strict;
use warnings;

use MigrateTest;
use OutboxTest;
use Test::More;

my $seed = seed();

sub make_origin
{
	my ($node) = @_;

	$node->safe_psql('postgres', q{
		CREATE SCHEMA app;
		CREATE TABLE app.outbox_events (
			id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
			aggregate_type text, aggregate_id text,
			event_type text NOT NULL, payload jsonb NOT NULL, headers jsonb,
			attempts int NOT NULL DEFAULT 0,
			available_at timestamptz NOT NULL DEFAULT now(),
			processed_at timestamptz, failed_at timestamptz);
		CREATE FUNCTION app.produce(key text) RETURNS bigint LANGUAGE sql AS $$
			INSERT INTO app.outbox_events (aggregate_type, aggregate_id, event_type, payload)
			SELECT 'thing', key, 'work', jsonb_build_object('unit', u) FROM make_unit(key) u
			RETURNING id
		$$;
		-- Takes some rows, is busy for a moment, and marks them; sometimes it fails, and tries again later.
		CREATE PROCEDURE app.work(outcome int) LANGUAGE plpgsql AS $$
		DECLARE
			row app.outbox_events;
		BEGIN
			FOR row IN SELECT * FROM app.outbox_events WHERE processed_at IS NULL AND failed_at IS NULL AND available_at <= clock_timestamp()
				ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED
			LOOP
				PERFORM pg_sleep(0.01);
				IF outcome = 0 THEN
					UPDATE app.outbox_events SET attempts = attempts + 1, available_at = clock_timestamp() + '50 ms' WHERE id = row.id;
				ELSE
					INSERT INTO effects (unit, side) VALUES ((row.payload ->> 'unit')::bigint, 'old');
					UPDATE app.outbox_events SET processed_at = clock_timestamp() WHERE id = row.id;
				END IF;
			END LOOP;
			IF outcome = 1 THEN
				ROLLBACK;
			END IF;
		END $$;
		GRANT USAGE ON SCHEMA app TO producer, migrator;
		GRANT INSERT, SELECT ON app.outbox_events TO producer;
		GRANT SELECT, UPDATE, DELETE, TRIGGER ON app.outbox_events TO migrator;
		CREATE SCHEMA migration AUTHORIZATION migrator});
	script($node, 'produce_old', '\set key random(1, 10)', q{SELECT app.produce('old ' || :client_id || ' ' || :key);});
	script($node, 'work_old', '\set outcome random(0, 9)', 'CALL app.work(:outcome);');
	return;
}

# ---------------------------------------------------------------- everything runs

my $node = new_node('side_by_side', preload => 1, conf => 'synchronous_commit = off');
make_units($node);
make_origin($node);
$node->safe_psql('postgres', q{
	SELECT count(app.produce('backlog')) FROM generate_series(1, 800);
	INSERT INTO app.outbox_events (event_type, payload, headers, attempts, available_at, aggregate_type, aggregate_id)
	SELECT 'later', jsonb_build_object('unit', make_unit('later')), '{"tenant": "acme"}', 3, now() + '1 hour', 'thing', 17;
	INSERT INTO app.outbox_events (event_type, payload, processed_at) VALUES ('done', '{}', now());
	INSERT INTO app.outbox_events (event_type, payload, failed_at) VALUES ('dead', '{}', now())});
install($node, 'table', table => 'app.outbox_events', queue => 'work');
my $load = start_load($node, $seed, produce_old => [ 2, 100, 'producer' ], work_old => [ 3, 30 ], work_new => [ 2, 100 ], produce_new => [ 2, 50 ]);
$node->poll_query_until('postgres', q{SELECT count(*) > 20 FROM effects WHERE side = 'old'}) or die;
move_and_kill($node);
redirect($node);
my $redirected = $node->safe_psql('postgres', q{SELECT app.produce('redirected')});
cmp_ok($redirected, '>', 800, 'a redirected INSERT returns its id');
is($node->safe_psql('postgres', "SELECT (SELECT count(*) FROM outbox.messages WHERE idempotency_key = 'outbox_events $redirected'), (SELECT count(*) FROM app.outbox_events WHERE id = $redirected)"),
	'1|0', '... and its row is in the outbox only');
is($node->safe_psql('postgres', q{
		SELECT event_type, aggregate_type, aggregate_id, headers ->> 'tenant', p.next_attempt_at > now() + interval '50 min', m.max_attempts
		FROM outbox.messages m JOIN outbox.pending p USING (outbox_id) WHERE event_type = 'later'}),
	'later|thing|17|acme|t|7', 'what is scheduled and was tried keeps its time, its headers, and the attempts that are left');
$node->safe_psql('postgres', q{SELECT outbox.reschedule(outbox_id, now()) FROM outbox.messages WHERE event_type = 'later'});
my $after = $node->safe_psql('postgres', 'SELECT max(unit) FROM units');
drain($node, until => "SELECT count(*) > $after + 100 FROM units");
stop_load([ grep { $_->{name} =~ /^produce/ } @$load ], 'producers');
drain($node);
stop_load([ grep { $_->{name} =~ /^work/ } @$load ], 'workers');
all_done_once($node);
is($node->safe_psql('postgres', q{SELECT string_agg(event_type, ' ' ORDER BY id) FROM app.outbox_events WHERE event_type <> 'work'}), 'done dead', 'what is delivered or given up stays');

# A row that enqueue refuses stops the move, and is named by moving one at a time.
$node->safe_psql('postgres', q{
	DROP SCHEMA migration CASCADE;
	CREATE SCHEMA migration AUTHORIZATION migrator;
	INSERT INTO app.outbox_events (event_type, payload) VALUES ('fine', '1'), ('', '1'), ('fine', '1')});
install($node, 'table', table => 'app.outbox_events', queue => 'work');
like(run_script($node, 'table', table => 'app.outbox_events', queue => 'work'), qr/already exists/, 'the script runs once');
is(call($node, q{SET default_transaction_isolation = 'repeatable read'; CALL migration.redirect(in_order => true)}), '25001', 'a snapshot that may be old is refused');
is(call($node, 'CALL migration.move()'), '22023', 'a row that enqueue refuses stops its batch');
is(call($node, 'CALL migration.move(batch => 1)'), '22023', '... and, one by one,');
is($node->safe_psql('postgres', q{SELECT string_agg(event_type, ' ' ORDER BY id) FROM migration.pending}), ' fine', '... is the first that is left');
$node->safe_psql('postgres', q{
	DELETE FROM app.outbox_events WHERE event_type = '';
	INSERT INTO app.outbox_events (event_type, payload) VALUES ('large', jsonb_build_object('text', repeat('x', 30000000)))});
like(call($node, 'CALL migration.move()'), qr/ 2 rows moved, 0 left/, 'once it is corrected the rest is moved, a large payload, too');
is(call($node, 'CALL migration.redirect()'), '', 'the redirection is made');
is(call($node, 'CALL migration.redirect()'), '42710', '... once');
$node->safe_psql('postgres', 'DROP OWNED BY migrator CASCADE; DROP ROLE migrator');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_trigger WHERE tgrelid = 'app.outbox_events'::regclass}), '0', 'nothing of it remains');
$node->stop;

# ---------------------------------------------------------------- in order

$node = new_node('in_order', preload => 1, conf => 'synchronous_commit = off');
make_units($node, in_order => 1);
make_origin($node);
$node->safe_psql('postgres', q{SELECT app.produce('backlog ' || n % 20) FROM generate_series(1, 500) n});
install($node, 'table', table => 'app.outbox_events', queue => 'work');
# One old worker: it takes the rows in their order, and tries one that fails again before the next.
$node->safe_psql('postgres', q{
	CREATE PROCEDURE app.work_in_order(outcome int) LANGUAGE plpgsql AS $$
	DECLARE
		row app.outbox_events;
	BEGIN
		SELECT * INTO row FROM app.outbox_events WHERE processed_at IS NULL ORDER BY id LIMIT 1 FOR UPDATE;
		INSERT INTO effects (unit, side) SELECT (row.payload ->> 'unit')::bigint, 'old' WHERE row.id IS NOT NULL;
		UPDATE app.outbox_events SET processed_at = clock_timestamp() WHERE id = row.id;
		IF outcome = 0 THEN
			ROLLBACK;
		END IF;
	END $$});
script($node, 'work_in_order', '\set outcome random(0, 9)', 'CALL app.work_in_order(:outcome);');
$load = start_load($node, $seed, produce_old => [ 2, 100, 'producer' ], work_new => [ 2, 100 ]);
my $old = start_load($node, $seed, work_in_order => [ 1, 200 ]);
$node->poll_query_until('postgres', q{SELECT count(*) > 50 FROM effects WHERE side = 'old'}) or die;
stop_load($old, 'the old worker');
# It is stopped, but one transaction has not ended: the move waits for its row, and does not pass it by.
my $slow = session($node);
my $held = $slow->query_safe('SELECT id FROM app.outbox_events WHERE processed_at IS NULL ORDER BY id OFFSET 30 LIMIT 1');
$slow->query_safe("BEGIN; SELECT FROM app.outbox_events WHERE id = $held FOR UPDATE");
my $move = IPC::Run::start([ 'psql', '-Xq', '-d', $node->connstr('postgres') . ' user=migrator', '-c', 'CALL migration.move(batch => 10, in_order => true)' ], '<', \undef, '>', \my $out, '2>', \my $err);
$node->poll_query_until('postgres', q{SELECT count(*) >= 30 FROM outbox.messages}) or die;
is(call($node, 'CALL migration.redirect(in_order => true)'), '55P03', 'the redirection is refused while a row is locked');
is($node->safe_psql('postgres', "SELECT min(id) = $held FROM migration.pending"), 't', 'the move has come to that row');
$slow->query_safe('ROLLBACK');
$slow->quit;
$move->finish;
like($err, qr/rows moved/, '... and goes on when it is free');
$node->safe_psql('postgres', q{SELECT app.produce('backlog ' || n % 20) FROM generate_series(1, 500) n});
move_and_kill($node, in_order => 1);
redirect($node, in_order => 1);
$after = $node->safe_psql('postgres', 'SELECT max(unit) FROM units');
$node->poll_query_until('postgres', "SELECT count(*) > $after + 100 FROM units") or die;
stop_load([ grep { $_->{name} =~ /^produce/ } @$load ], 'producers');
drain($node);
stop_load([ grep { $_->{name} =~ /^work/ } @$load ], 'workers');
all_done_once($node, in_order => 1);
is($node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox_events WHERE processed_at IS NULL'), '0', 'no old row is left behind');
$node->stop;

done_testing();
