# The inbox under load, in crashes, dumps, prepared transactions and on a standby, in a database without an outbox.
#
# Proves: of any number of sessions that receive an event, one commits its effect, whatever rolls back, while partitions are
# made, in batches and one by one, and no deadlock occurs; after the server was killed in the middle, what was received and
# what was done agree, and a delivery of everything again does the rest once; a prepared receive survives a restart and is waited for; a
# dump, pg_upgrade, and a standby that is promoted, remember every event; a partition in use is not dropped, and delays
# the maintenance of its own consumer alone.
use strict;
use warnings;

use IPC::Run;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed();
my $node = new_node('main', extension => 0, streaming => 1);
my $dumps = PostgreSQL::Test::Utils::tempdir();

$node->safe_psql('postgres', q{
	CREATE EXTENSION outbox_inbox;
	SELECT inbox.set_window('c', '30 days');
	CREATE FUNCTION event(n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid $$;
	CREATE FUNCTION batch(VARIADIC n bigint[]) RETURNS SETOF uuid LANGUAGE sql AS $$
		SELECT inbox.receive_batch('c', (SELECT jsonb_agg(jsonb_build_object('event_id', event(i), 'source', 's', 'event_type', 't')) FROM unnest(n) i)) $$;
	CREATE TABLE effects (event_id uuid);
});

# ---------------------------------------------------------------- many receivers

my $events = 400;
my $one = "$dumps/one.sql";
my $many = "$dumps/many.sql";
my $make = "$dumps/make.sql";
append_to_file($one, qq{
\\set n random(1, $events)
\\set bad random(1, 6)
BEGIN;
SELECT inbox.receive('c', event(:n), 's', 't')::int AS fresh \\gset
\\if :fresh
INSERT INTO effects VALUES (event(:n));
SELECT inbox.finish('c', event(:n));
\\endif
\\if :bad = 1
ROLLBACK;
\\else
COMMIT;
\\endif
});
append_to_file($many, qq{
\\set a random(1, $events)
\\set b random(1, $events)
\\set bad random(1, 6)
BEGIN;
INSERT INTO effects SELECT * FROM batch(:a, :b, :a, :b / 2 + 1, (:a + :b) % $events + 1, :a / 3 + 1);
\\if :bad = 1
ROLLBACK;
\\else
COMMIT;
\\endif
});
append_to_file($make, q{SELECT inbox.make_partition('c', (SELECT consumer_id FROM inbox.consumers WHERE consumer = 'c'));});

sub pgbench
{
	my (@options) = @_;
	return [ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, "--random-seed=$seed", @options, 'postgres' ];
}

# Those that one of the two has and the other has not, or has twice.
my $differences = q{
	SELECT count(*) FROM (SELECT event_id, count(*) AS n FROM effects GROUP BY 1) e
	FULL JOIN (SELECT event_id, count(*) AS n FROM inbox.log WHERE consumer = 'c' GROUP BY 1) l USING (event_id)
	WHERE e.n IS DISTINCT FROM 1 OR l.n IS DISTINCT FROM 1};

foreach my $isolation ('read committed', 'repeatable read')
{
	$node->safe_psql('postgres', q{TRUNCATE effects; SELECT inbox.forget('c', '0')});
	local $ENV{PGOPTIONS} = "-c default_transaction_isolation=" . $isolation =~ s/ /\\ /r;
	my ($out, $err) = run_command(pgbench('-c', 8, '-j', 2, '-t', 150, '-f', "$one\@6", '-f', "$many\@3", '-f', "$make\@0"));
	like($out, qr{processed: 1200/1200}, "$isolation: no receive fails or deadlocks") or diag($err);
	is($node->safe_psql('postgres', $differences), '0', '... and what was received was done once');
	cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM effects'), '>', 100, '... which is a lot');
}
$node->safe_psql('postgres', q{TRUNCATE effects; SELECT inbox.forget('c', '0')});
my ($out, $err) = run_command(pgbench('-c', 8, '-j', 2, '-t', 100, '-f', "$one\@20", '-f', "$many\@10", '-f', "$make\@1"));
like($out, qr{processed: 800/800}, 'while partitions are made: none fails') or diag($err);
is($node->safe_psql('postgres', $differences), '0', '... and what was received was done once');
cmp_ok($node->safe_psql('postgres', q{SELECT count(DISTINCT tableoid) FROM inbox.events}), '>', 2, '... in several partitions');
cmp_ok($node->safe_psql('postgres', q{SELECT duplicates FROM inbox.stats WHERE consumer = 'c'}), '>', 100, '... and duplicates were counted');

# ---------------------------------------------------------------- killed in the middle

$node->safe_psql('postgres', q{TRUNCATE effects; SELECT inbox.forget('c', '0')});
my $load = IPC::Run::start(pgbench('-c', 6, '-T', 120, '-f', "$one\@20", '-f', "$many\@10", '-f', "$make\@1"), '>', \my $load_out, '2>', \my $load_err);
$node->poll_query_until('postgres', 'SELECT count(*) > 60 FROM effects') or die 'there is no load';
# All at once, as when the machine loses its power: none may tidy up.
my @all = split /\n/, $node->safe_psql('postgres', 'SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()');
$node->kill9;
kill 'KILL', @all;
$load->finish;
for (1 .. 1800)
{
	last unless grep { kill 0, $_ } @all;
	select(undef, undef, undef, 0.1);
}
$node->start;
is($node->safe_psql('postgres', $differences), '0', 'after a crash what was received was done once');
$node->safe_psql('postgres', qq{
	DO \$\$
	BEGIN
		FOR n IN 1 .. $events LOOP
			IF inbox.receive('c', event(n), 's', 't') THEN
				INSERT INTO effects VALUES (event(n));
			END IF;
		END LOOP;
	END
	\$\$});
is($node->safe_psql('postgres', $differences), '0', '... also after all was delivered again');
is($node->safe_psql('postgres', 'SELECT count(*) FROM effects'), $events, '... and then all is done');
is($node->safe_psql('postgres', q{SELECT count(*) FROM inbox.check() WHERE severity = 'error'}), '0', '... and check() finds nothing');

# ---------------------------------------------------------------- prepared

$node->safe_psql('postgres', q{BEGIN; SELECT inbox.receive('c', event(1001), 's', 't'), inbox.receive('first', event(1), 's', 't'); PREPARE TRANSACTION 'p'});
$node->stop('immediate');
$node->start;
my $session = session($node);
my $other = session($node);
start_query($session, q{SELECT inbox.receive('c', event(1001), 's', 't')});
wait_until_blocked($node, $session, 'a receive of a prepared event, after a crash');
start_query($other, q{SELECT inbox.receive('first', event(2), 's', 't')});
wait_until_blocked($node, $other, 'a receive of a prepared consumer');
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
is(scalar(result_of($session)), 'f', '... and is told that it has been received');
is(scalar(result_of($other)), 't', '... and there is the consumer');

# ---------------------------------------------------------------- a partition in use

$node->safe_psql('postgres', q{SELECT inbox.receive('used', event(1), 's', 't')});
$session->query_safe(q{BEGIN; SELECT inbox.receive('used', event(2), 's', 't')});
is($node->safe_psql('postgres', q{SELECT inbox.forget('used', '0')}), '0', 'a partition in which a transaction is is not dropped');
is($node->safe_psql('postgres', q{SELECT inbox.receive('used', event(1), 's', 't')}), 'f', '... and is looked into');
$session->query_safe('COMMIT');
is($node->safe_psql('postgres', q{SELECT inbox.forget('used', '0')}), '2', '... until then');
is($node->safe_psql('postgres', q{SELECT inbox.receive('used', event(1), 's', 't')}), 't', '... and is forgotten afterwards');

$node->safe_psql('postgres', q{
	SELECT inbox.set_window(consumer, '1 day'), inbox.receive(consumer, event(1), 's', 't') FROM unnest('{locked,unlocked}'::text[]) consumer;
	UPDATE inbox.events SET consumed_at = consumed_at - interval '2 days' WHERE consumer LIKE '%locked';
	UPDATE inbox.partitions SET begins = begins - interval '2 days' WHERE consumer LIKE '%locked'});
my $partition = $node->safe_psql('postgres', q{SELECT number FROM inbox.partitions WHERE consumer = 'locked'});
$session->query_safe("BEGIN; LOCK TABLE inbox.events_$partition");
is($node->safe_psql('postgres', 'SELECT consumer, made, forgotten FROM inbox.maintain()'), 'unlocked|1|1', 'maintenance passes by a partition that is locked');
$session->query_safe("ALTER TABLE inbox.events_$partition RENAME TO elsewhere; COMMIT");
is($node->safe_psql('postgres', q{UPDATE inbox.partitions SET begins = begins - interval '2 days' WHERE consumer = 'unlocked'; SELECT inbox.receive('unlocked', event(1), 's', 't'); SELECT consumer, made FROM inbox.maintain()}), "t\nunlocked|1", '... and by one that is missing');
$node->safe_psql('postgres', "ALTER TABLE inbox.elsewhere RENAME TO events_$partition");
is($node->safe_psql('postgres', 'SELECT consumer, made, forgotten FROM inbox.maintain()'), 'locked|1|1', '... until it is there');

# The window of an event begins when it is received, not when that began to wait.
$session->query_safe(q{BEGIN; SELECT inbox.receive('waited', event(1), 's', 't')});
start_query($other, q{SELECT inbox.receive('waited', event(1), 's', 't')});
wait_until_blocked($node, $other, 'a receive');
my $ended = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
$session->query_safe('ROLLBACK');
is(scalar(result_of($other)), 't', '... until the other one has rolled back');
is($node->safe_psql('postgres', "SELECT consumed_at > '$ended' FROM inbox.log WHERE consumer = 'waited'"), 't', '... and is of then');

# ---------------------------------------------------------------- dump and restore

$node->safe_psql('postgres', q{
	SELECT inbox.failed('c', event(2001), 'error', 1, 's', 't', '{"n": 1}');
	SELECT inbox.receive('c', event(2002), 's', 't', '{"n": 2}', 3);
	CREATE FUNCTION lift(payload jsonb, headers jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT payload';
	SELECT inbox.add_upcaster('t', 1, 'lift')});
my $facts = q{
	SELECT 'log', md5(string_agg(l::text, ',' ORDER BY l::text COLLATE "C")), count(*) FROM inbox.log l
	UNION ALL SELECT 'rows', md5(string_agg(t::text, ',' ORDER BY t::text COLLATE "C")), count(*) FROM (
		SELECT c::text FROM inbox.consumers c UNION ALL SELECT p::text FROM inbox.partitions p UNION ALL SELECT f::text FROM inbox.failures f
		UNION ALL SELECT u::text FROM inbox.upcasters u) t
	UNION ALL SELECT 'duplicates', sum(duplicates)::text, sum(dead)::bigint FROM inbox.stats
	UNION ALL SELECT 'objects', string_agg(c.relname::text || ' ' || c.relkind::text || ' ' || c.relowner::regrole || ' ' || coalesce(c.relacl, acldefault((CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END)::"char", c.relowner))::text || obj_description(c.oid, 'pg_class'), ',' ORDER BY c.relname), count(*)
	FROM pg_class c WHERE c.relnamespace = 'inbox'::regnamespace AND c.relkind <> 't'
	UNION ALL SELECT 'constraints', string_agg(conname::text || pg_get_constraintdef(oid), ',' ORDER BY conname), count(*) FROM pg_constraint WHERE connamespace = 'inbox'::regnamespace
	UNION ALL SELECT 'check', string_agg(k::text, ',' ORDER BY k::text), count(*) FROM inbox.check() k};
my $dumped = $node->safe_psql('postgres', $facts);
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dumps/dump", 'postgres' ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-j', 2, '-d', 'restored', "$dumps/dump" ], 'pg_restore');
is($node->safe_psql('restored', $facts), $dumped, 'all is there');

# works DATABASE NAME: what was received is remembered, and more is received
sub works
{
	my ($where, $database, $name) = @_;

	is($where->safe_psql($database, q{SELECT count(*) FROM generate_series(1, 400) n WHERE inbox.receive('c', event(n), 's', 't')}), '0', "$name: what was received is remembered");
	is($where->safe_psql($database, q{SELECT inbox.receive('c', event(2001), 's', 't'), inbox.receive('c', event(2002), 's', 't'), inbox.receive('c', event(2003), 's', 't')}),
		'f|f|t', '... and what was put aside, and the next is new');
	is($where->safe_psql($database, q{SELECT inbox.receive('brand new', event(1), 's', 't'), inbox.forget('c', '0') > 400, inbox.receive('c', event(1), 's', 't')}), 't|t|t',
		'... and consumers and partitions are made and dropped');
	is($where->safe_psql($database, q{SELECT count(*) FROM inbox.check() WHERE severity = 'error'}), '0', '... and check() finds nothing');
}
works($node, 'restored', 'restored');

# ---------------------------------------------------------------- standby

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby, 'replay', $node->lsn('flush'));
is($standby->safe_psql('postgres', $facts =~ s/UNION ALL SELECT 'duplicates'.*?stats\s//sr), $dumped =~ s/^duplicates.*\n//mr, 'a standby shows the same');
is($standby->safe_psql('postgres', q{SELECT dead, partitions > 1 FROM inbox.stats WHERE consumer = 'c'}), '1|t', '... and stats');
is(sqlstate($standby, "SELECT $_"), '25006', "... and refuses $_")
	foreach (q{inbox.receive('c', event(1), 's', 't')}, q{inbox.receive('nobody', event(1), 's', 't')}, q{inbox.receive_batch('c', '[]')},
	q{inbox.finish('c', event(1))}, q{inbox.failed('c', event(3001), 'e')}, q{inbox.replay('c', event(2001))}, q{inbox.forget('c', '0')}, q{inbox.set_window('c', '1 day')}, q{inbox.maintain()});
$node->stop;
$standby->promote;
works($standby, 'postgres', 'promoted');

# ---------------------------------------------------------------- pg_upgrade

my $new = new_node('upgraded', extension => 0);
$new->stop;
chdir($dumps) or die;
command_ok(
	[ 'pg_upgrade', '--no-sync', '-d', $node->data_dir, '-D', $new->data_dir, '-b', $node->config_data('--bindir'),
		'-B', $new->config_data('--bindir'), '-s', $new->host, '-p', $node->port, '-P', $new->port ],
	'pg_upgrade');
$new->start;
is($new->safe_psql('postgres', $facts), $dumped, '... keeps everything');
works($new, 'postgres', 'upgraded');
$new->stop;

# ---------------------------------------------------------------- the extension goes

$standby->safe_psql('postgres', q{SET client_min_messages = error; DROP EXTENSION outbox_inbox CASCADE});
is($standby->safe_psql('postgres', q{SELECT count(*) FROM pg_class WHERE relname ~ '^(events|duplicates)_'}), '0', 'DROP EXTENSION CASCADE leaves nothing');
done_testing();
