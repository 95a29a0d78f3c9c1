# examples/migrate/debezium.sql: from the table of Debezium's outbox event router.
#
# Proves: while producers insert, or insert and delete, and a connector reads the WAL, the redirection leaves each event to one side; each aggregate
# keeps its order. The connector is a logical slot that is read by SQL, each change once.
use strict;
use warnings;

use MigrateTest;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed();
my $node = new_node('main', preload => 1, conf => "wal_level = logical\nsynchronous_commit = off");
make_units($node, in_order => 1);
$node->safe_psql('postgres', q{
	CREATE ROLE shop LOGIN IN ROLE outbox_ingest;
	CREATE SCHEMA app AUTHORIZATION shop;
	CREATE SCHEMA migration AUTHORIZATION shop;
	SET ROLE shop;
	CREATE TABLE app.outboxevent (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb);
	GRANT USAGE ON SCHEMA app TO producer;
	GRANT SELECT, DELETE ON app.outboxevent TO producer;
	GRANT INSERT (aggregatetype, aggregateid, type, payload) ON app.outboxevent TO producer;
	RESET ROLE;
	SELECT pg_create_logical_replication_slot('debezium', 'test_decoding');
	SELECT outbox.pause('work');
	-- As an ORM does: it looks how many rows it has changed.
	CREATE FUNCTION produce_old(key text, remove boolean) RETURNS uuid LANGUAGE plpgsql AS $$
	DECLARE
		event uuid;
		n int;
	BEGIN
		INSERT INTO app.outboxevent (aggregatetype, aggregateid, type, payload) SELECT 'order', key, 'placed', jsonb_build_object('unit', make_unit(key)) RETURNING id INTO STRICT event;
		IF remove THEN
			DELETE FROM app.outboxevent WHERE id = event;
			GET DIAGNOSTICS n = ROW_COUNT;
			ASSERT n = 1, 'the row cannot be deleted';
		END IF;
		RETURN event;
	END $$;
	CREATE PROCEDURE connector() LANGUAGE sql AS $$
		INSERT INTO effects (unit, side)
		SELECT substring(data FROM '"unit": (\d+)')::bigint, 'old' FROM pg_logical_slot_get_changes('debezium', NULL, NULL)
		WHERE data ~ '^table app.outboxevent(_before)?: INSERT:'
	$$});
script($node, 'produce_old', '\set key random(1, 5)', '\set remove random(0, 1)', q{SELECT produce_old('old ' || :client_id || ' ' || :key, :remove = 1);});
script($node, 'connector', 'CALL connector();');
install($node, 'debezium', table => 'app.outboxevent', queue => 'work', role => 'shop');
my $load = start_load($node, $seed, produce_old => [ 4, 200, 'producer' ], work_new => [ 2, 100 ], connector => [ 1, 10 ]);
$node->poll_query_until('postgres', q{SELECT count(*) > 100 FROM effects WHERE side = 'old'}) or die;

# The connector is away at the moment of the redirection.
stop_load([ grep { $_->{name} eq 'connector' } @$load ], 'the connector');
my $produced = $node->safe_psql('postgres', 'SELECT max(unit) FROM units');
$node->poll_query_until('postgres', "SELECT max(unit) > $produced + 50 FROM units") or die;
redirect($node, role => 'shop');
is(call($node, 'CALL migration.redirect()', role => 'shop'), 'P0002', 'a second redirection is refused');
my $redirected = $node->safe_psql('postgres', q{SELECT produce_old('redirected', false)});
is($node->safe_psql('postgres', qq{
		SELECT event_type, aggregate_type, aggregate_id, partition_key, payload ? 'unit', (SELECT count(*) FROM app.outboxevent), (SELECT count(*) FROM app.outboxevent_before) > 0
		FROM outbox.messages WHERE event_id = '$redirected'}),
	'placed|order|redirected|redirected|t|0|t', 'a redirected event is in the outbox, under its id, and its row is gone');
$node->poll_query_until('postgres', q{SELECT count(*) > 200 FROM outbox.messages}) or die;
is($node->safe_psql('postgres', q{SELECT migration.delivered('debezium')}), 'f', 'what the connector has not read is not delivered');
is($node->safe_psql('postgres', q{SELECT count(*) FROM effects WHERE side = 'new'}), '0', '... and the queue waits for it');
my $connector = start_load($node, $seed, connector => [ 1, 10 ]);
$node->poll_query_until('postgres', q{SELECT migration.delivered('debezium')}) or die;
$node->safe_psql('postgres', q{SELECT outbox.resume('work')});
$produced = $node->safe_psql('postgres', 'SELECT max(unit) FROM units');
$node->poll_query_until('postgres', "SELECT max(unit) > $produced + 200 FROM units") or die;
stop_load([ grep { $_->{name} =~ /^produce/ } @$load ], 'producers');
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM outbox.pending}) or die;
# The connector reads on to the end, in which it must find nothing.
my $end = $node->safe_psql('postgres', 'SELECT pg_current_wal_lsn()');
$node->poll_query_until('postgres', "SELECT confirmed_flush_lsn >= '$end' FROM pg_replication_slots") or die;
stop_load([ grep { $_->{name} =~ /^work/ } @$load ], 'workers');
stop_load($connector, 'the connector');
all_done_once($node, in_order => 1);
$node->stop;

done_testing();
