# Sagas in the middle of their work move: by pg_dump into a cluster without the roles, to a standby that is promoted, by
# pg_upgrade. The extension goes and comes.
#
# Proves: the new database equals the old one, in every table of the schema, in its queues and in everything that belongs to
# the extension. The background worker, which looks on while a dump is restored, handles no timeout and no dead letter before
# the saga is there. Then sagas go on: commands are answered under the leases of before, what was due comes by saga_internal,
# keys are known, each saga ends. DROP EXTENSION outbox is refused. After DROP EXTENSION outbox_saga the messages of its queue
# wait, and other queues are served; CREATE EXTENSION takes the queue over, and ends what belongs to sagas that are gone.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# No background worker: what is due stays so.
my $main = new_node('main', streaming => 1);
my $dumps = PostgreSQL::Test::Utils::tempdir();

$main->safe_psql('postgres', q{
	CREATE EXTENSION outbox_saga;
	SELECT outbox.alter_queue('saga_internal', backoff_cap => '7 s');
	SELECT outbox.create_queue('work', lease => '1 day');
	SELECT saga.define('order', '[
		{"name": "reserve", "command": "reserve", "queue": "work", "compensation": "unreserve"},
		{"name": "charge", "command": "charge", "queue": "work", "compensation": "refund", "timeout": "1 h"},
		{"name": "ship", "command": "ship", "queue": "work"}]', 'diff');
	CREATE SCHEMA app;
	CREATE TABLE app.sagas (name text PRIMARY KEY, id uuid);
	CREATE TABLE app.held (name text, command text, outbox_id uuid, lease_token uuid);
	CREATE FUNCTION app.begin(name text) RETURNS void LANGUAGE sql AS $$
		INSERT INTO app.sagas VALUES (name, saga.start('order', NULL, '{"n": 1}', name, '{"h": 1}')) $$;
	CREATE FUNCTION app.hold() RETURNS SETOF app.held LANGUAGE sql AS $$
		INSERT INTO app.held SELECT s.name, c.event_type, c.outbox_id, c.lease_token
		FROM outbox.claim('w', 100, queues => '{work}') c JOIN app.sagas s ON s.id::text = c.headers ->> 'saga_id' RETURNING * $$;
	CREATE FUNCTION app.answer(who text) RETURNS bigint LANGUAGE sql AS $$
		WITH h AS (DELETE FROM app.held WHERE name = who RETURNING *)
		SELECT count(saga.succeed(h.outbox_id, h.lease_token, 'w', to_jsonb(h.command))) FROM h $$;
	CREATE FUNCTION app.step(who text) RETURNS bigint LANGUAGE sql AS $$ SELECT app.hold(); SELECT app.answer(who) $$;

	SELECT app.begin('completed'), app.begin('answered'), app.begin('late'), app.begin('dead'), app.begin('aborted');
	SELECT app.step('completed'), app.step('completed'), app.step('completed'), app.step('answered'), app.step('late'), app.step('dead'), app.step('aborted');
	SELECT app.hold();
	UPDATE saga.steps t SET deadline = now() - interval '1 s' FROM app.sagas s WHERE s.id = t.saga_id AND s.name = 'late' AND t.step = 'charge';
	UPDATE outbox.pending p SET next_attempt_at = now() - interval '1 s' FROM outbox.messages m, app.sagas s
	WHERE m.outbox_id = p.outbox_id AND m.event_type = 'saga.timeout' AND m.aggregate_id = s.id::text AND s.name = 'late';
	SELECT outbox.cancel(outbox_id, 'by a person', true) FROM app.held WHERE name = 'dead';
	SELECT saga.abort(id, 'no longer wanted') FROM app.sagas WHERE name = 'aborted';
	DELETE FROM app.held WHERE name IN ('dead', 'aborted');
	INSERT INTO app.sagas SELECT 'stored', saga.create('import', NULL, '{"line": 1}');
	SELECT saga.save(id, '{"line": 2}', 'running', 1, 'read', 'slow') FROM app.sagas WHERE name = 'stored'});

# Every row of the schema and of the queues, and what is pending.
sub facts
{
	my ($node, $db) = @_;
	my @tables = split /\n/, $node->safe_psql($db, q{
		SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'saga'::regnamespace AND c.relkind = 'r'
		UNION ALL SELECT unnest('{outbox.queues, outbox.pending, app.held, app.sagas}'::regclass[]) ORDER BY 1});

	return { map { $_ => $node->safe_psql($db, "SELECT t::text FROM $_ t ORDER BY t::text COLLATE \"C\"") } @tables };
}

sub statuses
{
	my ($node, $db) = @_;

	return $node->safe_psql($db, q{SELECT string_agg(s.name || ' ' || i.status, ', ' ORDER BY s.name) FROM app.sagas s JOIN saga.instances i USING (id)});
}

my $facts = facts($main, 'postgres');
my $members = membership($main, 'postgres', 'outbox_saga');
my $before = 'aborted compensating, answered running, completed completed, dead running, late running, stored running';
is(statuses($main, 'postgres'), $before, 'sagas in the middle of their work');
is($main->safe_psql('postgres', q{SELECT string_agg(name || ' ' || command, ', ' ORDER BY name) FROM app.held}), 'answered charge, late charge', '... and workers');
is($main->safe_psql('postgres', q{
		SELECT string_agg(m.event_type, ', ' ORDER BY m.event_type) FROM outbox.pending p JOIN outbox.messages m USING (outbox_id)
		WHERE p.queue = 'saga_internal' AND p.next_attempt_at <= now()}),
	'outbox.dead_letter, outbox.dead_letter, saga.timeout', '... and what is due');
is(join(' ', grep { $facts->{$_} eq '' } sort keys %$facts), '', '... in every table');

sub equal
{
	my ($node, $db, $name) = @_;

	is_deeply(facts($node, $db), $facts, "$name: equal rows");
	return is_deeply(membership($node, $db, 'outbox_saga'), $members, "$name: an equal extension");
}

# With a background worker.
sub goes_on
{
	my ($node, $db, $name) = @_;
	my $ask = sub { return $node->safe_psql($db, $_[0]) };

	is($ask->(q{SELECT app.answer('answered')}), '1', "$name: a command is answered under the lease of before");
	ok($node->poll_query_until($db, q{SELECT count(*) = 2 FROM saga.instances i JOIN app.sagas s USING (id) WHERE s.name IN ('dead', 'late') AND i.status = 'compensating'}),
		'... and a timeout and a dead letter come');
	is($ask->(q{SELECT app.answer('late')}), '1', '... and a late answer is accepted');
	is($ask->(q{SELECT saga.start('order', NULL, '{}', name) = id FROM app.sagas WHERE name = 'dead'}), 't', '... and a key is known');
	is($ask->(q{SELECT saga.save(id, state, 'completed', version) FROM saga.load((SELECT id FROM app.sagas WHERE name = 'stored'))}), '3', '... and a version');
	while ($ask->('SELECT count(*) FROM app.hold()') > 0)
	{
		$ask->('SELECT count(app.answer(name)) FROM app.sagas');
	}
	is(statuses($node, $db), 'aborted failed, answered completed, completed completed, dead failed, late failed, stored completed', '... and each saga ends');
	is($ask->(q{SELECT string_agg(DISTINCT status, ' ' ORDER BY status) FROM saga.steps}), 'compensated succeeded', '... done or undone');
	is($ask->(q{SELECT count(*) FROM saga.instances i WHERE version <> (SELECT count(*) FROM saga.audit_log a WHERE a.saga_id = i.id)}), '0', '... and has a row of the audit log for each change');
	is(sqlstate($node, 'DELETE FROM saga.audit_log', database => $db), 'P0001', '... which keeps them');
	is($ask->(q{SELECT string_agg(error_code, ' ') FROM outbox.dead_letters WHERE queue = 'saga_internal'}), '', '... and no message of saga_internal died');
	return consistent($node, "$name: consistent in the end", $db);
}

# ---------------------------------------------------------------- dump and restore

# In the worst order, with the worker looking on.
my $fresh = new_node('fresh', preload => 1, extension => 0, conf => "outbox.poll_interval = '100 ms'");
my $dump = "$dumps/dump";
$main->command_ok([ 'pg_dump', '-Fc', '-f', $dump, 'postgres' ], 'pg_dump');
my @items = grep { /^\d/ } split /\n/, (run_command([ 'pg_restore', '--section=data', '-l', $dump ]))[0];
# pg_dump puts a table after those that its foreign keys name; pg_restore --jobs fills them in any order.
my @sagas = reverse grep { / saga / } @items;
my @others = grep { !/ saga / } @items;
is(scalar(@sagas), 6, 'a dump has the tables of sagas');
$fresh->safe_psql('postgres', 'CREATE DATABASE restored TEMPLATE template0');
foreach my $part ('--section=pre-data', \@others, \@sagas, '--section=post-data')
{
	my @what = ($part);

	if (ref $part)
	{
		unlink "$dumps/list";
		append_to_file("$dumps/list", join("\n", @$part) . "\n");
		@what = ('-L', "$dumps/list");
	}
	$fresh->command_ok([ 'pg_restore', '--exit-on-error', '-d', 'restored', @what, $dump ], "pg_restore @what");
	wait_for_worker($fresh, database => 'restored');
	wait_for_rounds($fresh, 'worker', 'restored', 3);
}
equal($fresh, 'restored', 'restored');
goes_on($fresh, 'restored', 'restored');
$fresh->stop;

# ---------------------------------------------------------------- standby

$main->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($main, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf', "shared_preload_libraries = 'outbox'");
$standby->start;
$main->wait_for_catchup($standby, 'replay', $main->lsn('flush'));
equal($standby, 'postgres', 'standby');
is(sqlstate($standby, "SELECT $_"), '25006', "... and refuses $_")
	foreach (q{saga.start('order', NULL)}, q{saga.define('order', '[{"name": "a", "command": "a", "queue": "work"}]')}, q{app.answer('answered')},
	q{saga.create('import', NULL)}, q{saga.load((SELECT id FROM app.sagas LIMIT 1), true)});
$main->stop;
$standby->promote;
wait_for_worker($standby);
goes_on($standby, 'postgres', 'promoted');
undamaged($standby, 'promoted: nothing damaged');
$standby->stop;

# ---------------------------------------------------------------- pg_upgrade

my $new = new_node('upgraded', preload => 1, extension => 0, conf => "outbox.worker = off\noutbox.poll_interval = '1 s'");
$new->stop;
$main->append_conf('postgresql.conf', "shared_preload_libraries = 'outbox'\noutbox.worker = off");
chdir($dumps) or die;
command_ok(
	[ 'pg_upgrade', '--no-sync', '-d', $main->data_dir, '-D', $new->data_dir, '-b', $main->config_data('--bindir'),
		'-B', $new->config_data('--bindir'), '-s', $new->host, '-p', $main->port, '-P', $new->port ],
	'pg_upgrade');
$new->start;
equal($new, 'postgres', 'upgraded');
configure($new, 'outbox.worker' => 'on');
wait_for_worker($new);
goes_on($new, 'postgres', 'upgraded');

# ---------------------------------------------------------------- the extension goes and comes

my $do = sub { return $new->safe_psql('postgres', shift) };
$do->(q{
	CREATE TABLE app.seen (n int);
	CREATE FUNCTION app.see(m outbox.claimed) RETURNS void LANGUAGE sql AS $$ INSERT INTO app.seen VALUES ((m.payload ->> 'n')::int) $$;
	SELECT outbox.create_queue('seen', handler => 'app.see');
	SELECT app.begin('left');
	SELECT app.step('left');
	SELECT app.hold()});
is(sqlstate($new, 'DROP EXTENSION outbox'), '2BP01', 'outbox is not dropped while outbox_saga is there');
$do->('DROP EXTENSION outbox_saga');
is($do->(q{SELECT count(*) FROM pg_namespace WHERE nspname = 'saga'}), '0', 'outbox_saga is');
$do->(q{SELECT outbox.cancel(outbox_id, 'by a person', true) FROM app.held; SELECT outbox.enqueue('see', '{"n": 1}', 'seen')});
ok($new->poll_query_until('postgres', 'SELECT EXISTS (SELECT FROM app.seen)'), '... and other queues are handled');
is($do->(q{
		SELECT string_agg(concat_ws(' ', m.event_type, p.attempt_count), ', ' ORDER BY m.event_type) FROM outbox.pending p JOIN outbox.messages m USING (outbox_id)
		WHERE p.queue = 'saga_internal' AND p.next_attempt_at <= now()}),
	'outbox.dead_letter 0', '... while those of saga_internal wait');
is($do->(q{SELECT object || ': ' || problem FROM outbox.check() WHERE severity = 'error'}),
	'queue saga_internal: its handler saga.handle(outbox.claimed) does not exist: nothing is handled', '... and check() says so');
$do->('CREATE EXTENSION outbox_saga');
ok($new->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM outbox.pending WHERE queue = 'saga_internal' AND next_attempt_at <= now())}), 'made anew it takes the queue over');
is($do->(q{SELECT string_agg(error_code, ' ') FROM outbox.dead_letters WHERE queue = 'saga_internal'}), 'P8000', '... and what belongs to a saga that is gone ends');

# For good, as docs/saga.md says.
$do->('DROP EXTENSION outbox_saga');
$do->(q{
	SELECT outbox.alter_queue(queue, dead_letter_queue => '') FROM outbox.queues WHERE dead_letter_queue = 'saga_internal';
	SELECT outbox.cancel(outbox_id, 'no more sagas', force => true) FROM outbox.pending WHERE queue = 'saga_internal';
	SELECT outbox.drop_queue('saga_internal')});
consistent($new, 'the queue can be removed');

done_testing();
