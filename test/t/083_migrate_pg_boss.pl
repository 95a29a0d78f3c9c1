# examples/migrate/pg_boss.sql: from pg-boss, with pg-boss itself as the old producer and the old worker.
#
# Proves: as 080, with workers that mark a job as active, work, and mark it as completed; a job that fails is deleted and inserted again. Times,
# tries and priorities are carried; active jobs, and those of other queues, stay.
use strict;
use warnings;

use MigrateTest;
use OutboxTest;
use Test::More;

plan skip_all => $ENV{OUTBOX_OLD_QUEUES_MISSING} // 'pg-boss is not installed' unless $ENV{OUTBOX_OLD_QUEUES};

my $seed = seed();
my $node = new_node('main', preload => 1, conf => 'synchronous_commit = off');
make_units($node);
stop_node(start_node($node, 'postgres', 'pg_boss', $seed, 'create'), 0);
$node->safe_psql('postgres', q{
	GRANT USAGE ON SCHEMA pgboss TO migrator;
	GRANT SELECT, UPDATE, DELETE, TRIGGER ON ALL TABLES IN SCHEMA pgboss TO migrator;
	CREATE SCHEMA migration AUTHORIZATION migrator});

# ---------------------------------------------------------------- what is carried, and what stays

$node->safe_psql('postgres', q{
	SELECT pgboss.create_queue('other', '{"policy": "standard"}');
	INSERT INTO pgboss.job (name, data, state, start_after, priority, retry_limit, retry_count, started_on, singleton_key, keep_until) VALUES
		('mail', '{"is": "later"}', 'created', now() + interval '1 hour', 100, 3, 0, NULL, 's', now() + interval '1 day'),
		('mail', NULL, 'retry', now(), -5, 3, 1, now(), NULL, now() + interval '1 day'),
		('mail', '{"is": "active"}', 'active', now(), 0, 2, 0, now(), NULL, now() + interval '1 day'),
		('mail', '{"is": "done"}', 'completed', now(), 0, 2, 0, now(), NULL, now() + interval '1 day'),
		('mail', '{"is": "dead"}', 'failed', now(), 0, 2, 2, now(), NULL, now() + interval '1 day'),
		('mail', '{"is": "over"}', 'created', now(), 0, 2, 0, NULL, NULL, now() - interval '1 day'),
		('other', '{"is": "other"}', 'created', now(), 0, 2, 0, NULL, NULL, now() + interval '1 day')});
install($node, 'pg_boss', name => 'mail', queue => 'work');
like(call($node, 'CALL migration.move()'), qr/ 2 rows moved, 1 left/, 'what no worker holds is moved');
is($node->safe_psql('postgres', q{
		SELECT payload, m.partition_key, m.priority, m.max_attempts, headers, p.next_attempt_at > now() + interval '50 min' FROM outbox.messages m JOIN outbox.pending p USING (outbox_id) ORDER BY 4}),
	qq(null||0|2|{"attempts_before": 2}|f\n{"is": "later"}|s|15|4|{}|t), '... with what belongs to it');
is($node->safe_psql('postgres', q{SELECT string_agg(data ->> 'is', ' ' ORDER BY data ->> 'is') FROM pgboss.job}), 'active dead done other over', 'the rest stays');
$node->safe_psql('postgres', q{SELECT outbox.cancel(outbox_id, 'end of this part') FROM outbox.pending; DELETE FROM pgboss.job});

# ---------------------------------------------------------------- everything runs

$node->safe_psql('postgres', q{INSERT INTO pgboss.job (name, data, retry_limit) SELECT 'mail', jsonb_build_object('unit', make_unit('backlog')), 20 FROM generate_series(1, 800)});
my $producer = start_node($node, 'postgres', 'pg_boss', $seed, 'produce');
my $worker = start_node($node, 'postgres', 'pg_boss', $seed + 1, 'work');
my $load = start_load($node, $seed, work_new => [ 2, 100 ], produce_new => [ 2, 50 ]);
$node->poll_query_until('postgres', q{SELECT count(*) > 20 FROM effects WHERE side = 'old'}) or die;
move_and_kill($node);
redirect($node);
my $after = $node->safe_psql('postgres', 'SELECT max(unit) FROM units');
drain($node, until => "SELECT count(*) > $after + 100 FROM units");
stop_node($producer);
stop_load([ grep { $_->{name} =~ /^produce/ } @$load ], 'producers');
drain($node);
stop_node($worker);
stop_load([ grep { $_->{name} =~ /^work/ } @$load ], 'workers');
all_done_once($node);
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT state::text, ' ') FROM pgboss.job}), 'completed', 'what is left there is completed');
$node->stop;

done_testing();
