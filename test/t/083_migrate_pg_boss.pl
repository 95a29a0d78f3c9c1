# examples/migrate/pg_boss.sql: from pg-boss, with pg-boss itself as the old producer and the old worker, in each of its versions.
#
# Proves: as 080, with workers that mark a job as active, work, and mark it as completed; a job that fails is deleted and inserted again. Times,
# tries, priorities and groups are carried; active jobs, jobs of a flow and those of other queues stay. In flows that are sent meanwhile
# a job that waits for another is done after it.
use strict;
use warnings;

use MigrateTest;
use OutboxTest;
use Test::More;

plan skip_all => $ENV{OUTBOX_OLD_QUEUES_MISSING} // 'pg-boss is not installed' unless $ENV{OUTBOX_OLD_QUEUES};

my $seed = seed();
my $node = new_node('main', preload => 1, conf => 'synchronous_commit = off');
make_units($node);
my $superuser = $node->safe_psql('postgres', 'SELECT current_user');

# The schema as pg-boss makes it, with the queues mail and other, and the script.
sub make_origin
{
	my ($version, $schema, %variables) = @_;

	stop_node(start_node($node, $superuser, 'pg_boss', $version, $schema, $seed, 'create'), 0);
	$node->safe_psql('postgres', qq{
		GRANT USAGE ON SCHEMA $schema TO migrator;
		GRANT SELECT, UPDATE, DELETE, TRIGGER ON ALL TABLES IN SCHEMA $schema TO migrator;
		CREATE SCHEMA migration AUTHORIZATION migrator});
	install($node, 'pg_boss', name => 'mail', queue => 'work', %variables);
	return;
}

# What is carried, and what stays.
sub try_jobs
{
	my ($schema, $flows) = @_;

	$node->safe_psql('postgres', qq{
		INSERT INTO $schema.job (name, data, state, start_after, priority, retry_limit, retry_count, started_on, singleton_key, keep_until) VALUES
			('mail', '{"is": "later"}', 'created', now() + interval '1 hour', 100, 3, 0, NULL, 's', now() + interval '1 day'),
			('mail', '{"is": "now"}', 'created', now(), 0, 2, 0, NULL, NULL, now() + interval '1 day'),
			('mail', NULL, 'retry', now() + interval '1 minute', -5, 3, 1, now(), NULL, now() + interval '1 day'),
			('mail', '{"is": "active"}', 'active', now(), 0, 2, 0, now(), NULL, now() + interval '1 day'),
			('mail', '{"is": "done"}', 'completed', now(), 0, 2, 0, now(), NULL, now() + interval '1 day'),
			('mail', '{"is": "dead"}', 'failed', now(), 0, 2, 2, now(), NULL, now() + interval '1 day'),
			('mail', '{"is": "over"}', 'created', now(), 0, 2, 0, NULL, NULL, now() - interval '1 day'),
			('other', '{"is": "other"}', 'created', now(), 0, 2, 0, NULL, NULL, now() + interval '1 day')});
	is($node->safe_psql('postgres', q{SELECT coalesce(payload ->> 'is', 'none') FROM migration.pending WHERE movable ORDER BY place, id}),
		"none\nnow\nlater", 'what is tried again comes first in order');
	$node->safe_psql('postgres', qq{
		INSERT INTO $schema.job (name, data, blocked, blocking, group_id, retry_limit, start_after) VALUES
			('mail', '{"is": "child"}', true, false, NULL, 2, now()), ('mail', '{"is": "grouped"}', false, false, 'g', 2, now()),
			('mail', '{"is": "parent"}', false, true, NULL, 2, now())}) if $flows;
	like(call($node, 'CALL migration.move()'), $flows ? qr/ 4 rows moved, 3 left/ : qr/ 3 rows moved, 1 left/, 'what no worker holds is moved');
	is($node->safe_psql('postgres', q{
			SELECT payload, m.partition_key, m.priority, m.max_attempts, headers, p.next_attempt_at > now() + interval '50 min' FROM outbox.messages m JOIN outbox.pending p USING (outbox_id)
			ORDER BY payload ->> 'is'}),
		join("\n", $flows ? '{"is": "grouped"}|g|0|3|{}|f' : (), '{"is": "later"}|s|15|4|{}|t', '{"is": "now"}||0|3|{}|f', 'null||0|2|{"attempts_before": 2}|f'),
		'... with what belongs to it');
	is($node->safe_psql('postgres', qq{SELECT string_agg(data ->> 'is', ' ' ORDER BY data ->> 'is') FROM $schema.job}),
		$flows ? 'active child dead done other over parent' : 'active dead done other over', 'the rest stays');
	$node->safe_psql('postgres', qq{SELECT outbox.cancel(outbox_id, 'end of this part') FROM outbox.pending; DELETE FROM $schema.job; TRUNCATE units, effects});
	return;
}

# Everything runs.
sub try_load
{
	my ($version, $schema) = @_;

	$node->safe_psql('postgres', qq{INSERT INTO $schema.job (name, data, retry_limit) SELECT 'mail', jsonb_build_object('unit', make_unit('backlog')), 20 FROM generate_series(1, 800)});
	my $producer = start_node($node, $superuser, 'pg_boss', $version, $schema, $seed, 'produce');
	my $worker = start_node($node, $superuser, 'pg_boss', $version, $schema, $seed + 1, 'work');
	my $load = start_load($node, $seed, work_new => [ 2, 100 ], produce_new => [ 2, 50 ]);
	$node->poll_query_until('postgres', q{SELECT count(*) > 20 FROM effects WHERE side = 'old'}) or die;
	move_and_kill($node);
	redirect($node);
	$node->safe_psql('postgres', qq{INSERT INTO $schema.job (name, data) VALUES ('other', '{"is": "of another queue"}')});
	my $after = $node->safe_psql('postgres', 'SELECT count(*) FROM units');
	$node->poll_query_until('postgres', "SELECT count(*) > $after + 50 FROM units") or die;
	$node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM outbox.messages WHERE payload ? 'after'}) or die if $version >= 12;
	stop_node($producer);
	stop_load([ grep { $_->{name} =~ /^produce/ } @$load ], 'producers');
	drain($node);
	stop_node($worker);
	stop_load([ grep { $_->{name} =~ /^work/ } @$load ], 'workers');
	all_done_once($node);
	is($node->safe_psql('postgres', qq{SELECT string_agg(DISTINCT name || ' ' || state::text, ', ') FROM $schema.job}), 'mail completed, other created',
		'what is left there is completed, or of another queue');
	return;
}

foreach ([ '10', 'pgboss' ], [ '11', 'jobs11', schema => 'jobs11' ], [ '12', 'jobs12', schema => 'jobs12' ])
{
	my ($version, $schema, @variables) = @$_;

	note("pg-boss $version");
	make_origin($version, $schema, @variables);
	try_jobs($schema, $version >= 12);
	try_load($version, $schema);
	like($node->safe_psql('postgres', q{
			SELECT count(*), count(*) FILTER (WHERE later.no < earlier.no)
			FROM outbox.messages m JOIN effects later ON later.unit = (payload ->> 'unit')::bigint JOIN effects earlier ON earlier.unit = (payload ->> 'after')::bigint}),
		qr/^[1-9]\d*\|0$/, 'each job of a flow is done after the one that it waits for') if $version >= 12;
	$node->safe_psql('postgres', 'DROP SCHEMA migration CASCADE');
}

# What the script does not know it refuses, and leaves nothing.
$node->safe_psql('postgres', 'CREATE SCHEMA migration AUTHORIZATION migrator');
like(run_script($node, 'pg_boss', name => 'nail', queue => 'work'), qr/pg-boss has no queue "nail"/, 'an unknown queue is refused');
$node->safe_psql('postgres', 'UPDATE pgboss.version SET version = 20');
like(run_script($node, 'pg_boss', name => 'mail', queue => 'work'), qr/the schema "pgboss" has the version 20 .*HINT:  .*pg-boss 10\.0 to/s, 'an older pg-boss is refused');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_class WHERE relnamespace = 'migration'::regnamespace}), '0', '... and nothing is left of the script');
$node->stop;

done_testing();
