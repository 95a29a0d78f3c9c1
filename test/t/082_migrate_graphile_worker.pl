# examples/migrate/graphile_worker.sql: from graphile-worker, with graphile-worker itself as the old workers, in two of its versions.
#
# Proves: as 080, with workers that lock a job, work, and delete it. Times, attempts, priorities and keys are carried; jobs that are locked, or
# have used up their attempts, stay. With in_order, once the old worker has stopped, each named queue keeps its order.
use strict;
use warnings;

use MigrateTest;
use OutboxTest;
use Test::More;

plan skip_all => $ENV{OUTBOX_OLD_QUEUES_MISSING} // 'graphile-worker is not installed' unless $ENV{OUTBOX_OLD_QUEUES};

my $seed = seed();
my @versions = ('0.16', '0.17', '0.18');
my ($side_by_side, $in_order) = @versions[ $seed % 3, ($seed + 1) % 3 ];

# The schema, as graphile-worker makes it; producers that call its function.
sub make_origin
{
	my ($node, $version) = @_;

	$node->safe_psql('postgres', 'CREATE ROLE owner LOGIN IN ROLE outbox_ingest; GRANT CREATE ON DATABASE postgres TO owner');
	stop_node(start_node($node, 'owner', 'graphile_worker', $version, $seed), 0);
	$node->safe_psql('postgres', q{
		CREATE FUNCTION produce_old(key text) RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$
			SELECT j.id FROM make_unit(key) u, graphile_worker.add_job('work', json_build_object('unit', u), queue_name => key) j
		$$;
		CREATE SCHEMA migration AUTHORIZATION owner});
	script($node, 'produce_old', '\set key random(1, 5)', q{SELECT produce_old('old ' || :client_id || ' ' || :key);});
	return;
}

# ---------------------------------------------------------------- what is carried, and what stays

my $node = new_node('side_by_side', preload => 1, conf => 'synchronous_commit = off');
make_units($node);
make_origin($node, $side_by_side);
$node->safe_psql('postgres', q{
	SELECT graphile_worker.add_job('later', '[1]', run_at => now() + interval '1 hour', max_attempts => 5, priority => -3, job_key => 'k');
	SELECT graphile_worker.add_job('dead', max_attempts => 1);
	SELECT graphile_worker.add_job('locked', queue_name => 'q');
	SELECT graphile_worker.add_job('behind', queue_name => 'q');
	UPDATE graphile_worker._private_jobs SET attempts = 2 WHERE key = 'k';
	UPDATE graphile_worker._private_jobs SET attempts = 1 WHERE max_attempts = 1;
	UPDATE graphile_worker._private_jobs SET locked_at = now(), locked_by = 'w', attempts = 1 WHERE id = (SELECT min(id) FROM graphile_worker._private_jobs WHERE job_queue_id IS NOT NULL);
	UPDATE graphile_worker._private_job_queues SET locked_at = now(), locked_by = 'w'});
install($node, 'graphile_worker', queue => 'work', role => 'owner');
like(call($node, 'CALL migration.move(in_order => true)', role => 'owner'), qr/ 0 rows moved, 3 left/, 'in order, nothing passes a job that is locked');
is(call($node, 'CALL migration.redirect(in_order => true)', role => 'owner'), '55006', '... and there is no redirection');
like(call($node, 'CALL migration.move()', role => 'owner'), qr/ 2 rows moved, 1 left/, '... else all do');
is($node->safe_psql('postgres', q{
		SELECT event_type, payload, m.partition_key, m.priority, m.max_attempts, headers, p.next_attempt_at > now() + interval '50 min' FROM outbox.messages m JOIN outbox.pending p USING (outbox_id) ORDER BY 1}),
	qq(behind|{}|q|0|25|{}|f\nlater|[1]||3|3|{"job_key": "k", "attempts_before": 2}|t), 'jobs are carried with what belongs to them');
is($node->safe_psql('postgres', q{SELECT string_agg(task_identifier, ' ' ORDER BY id) FROM graphile_worker.jobs}), 'dead locked', 'what is locked or has used up its attempts stays');
$node->safe_psql('postgres', q{
	SELECT graphile_worker.force_unlock_workers(ARRAY(SELECT DISTINCT locked_by FROM graphile_worker.jobs WHERE locked_by IS NOT NULL))});
call($node, 'CALL migration.move()', role => 'owner');
is($node->safe_psql('postgres', q{SELECT headers, max_attempts FROM outbox.messages WHERE event_type = 'locked'}), '{"attempts_before": 1}|24', 'a job that was unlocked by force is moved, too');
my $refused = $node->safe_psql('postgres', q{SELECT id FROM graphile_worker.add_job('zero', '{"text": "\u0000"}')});
is(call($node, 'CALL migration.move()', role => 'owner'), '22P05', 'a payload that jsonb does not take is refused');
is($node->safe_psql('postgres', q{SELECT id FROM migration.pending WHERE movable ORDER BY place, id LIMIT 1}), $refused, '... and found as the page says');
$node->safe_psql('postgres', "SELECT graphile_worker.permanently_fail_jobs(ARRAY[$refused])");
$node->safe_psql('postgres', q{SELECT outbox.cancel(outbox_id, 'end of this part') FROM outbox.pending});

# ---------------------------------------------------------------- everything runs

$node->safe_psql('postgres', q{SELECT count(graphile_worker.add_job('work', json_build_object('unit', make_unit('backlog')))) FROM generate_series(1, 800)});
my @old = map { start_node($node, 'owner', 'graphile_worker', $side_by_side, $seed + $_, 10) } 1, 2;
my $load = start_load($node, $seed, produce_old => [ 2, 100, 'producer' ], work_new => [ 2, 100 ], produce_new => [ 2, 50 ]);
$node->poll_query_until('postgres', q{SELECT count(*) > 20 FROM effects WHERE side = 'old'}) or die;
move_and_kill($node, role => 'owner');
redirect($node, role => 'owner');
my $redirected = $node->safe_psql('postgres', q{SELECT produce_old('redirected')});
is($node->safe_psql('postgres', "SELECT (SELECT count(*) FROM outbox.messages WHERE idempotency_key = 'graphile-worker $redirected'), (SELECT count(*) FROM graphile_worker.jobs WHERE id = $redirected)"),
	'1|0', 'a redirected job has an id, and is in the outbox only');
my $after = $node->safe_psql('postgres', 'SELECT max(unit) FROM units');
drain($node, role => 'owner', until => "SELECT count(*) > $after + 100 FROM units");
stop_load([ grep { $_->{name} =~ /^produce/ } @$load ], 'producers');
drain($node, role => 'owner');
stop_load([ grep { $_->{name} =~ /^work/ } @$load ], 'workers');
stop_node($_) foreach @old;
all_done_once($node);
$node->stop;

# ---------------------------------------------------------------- in order

$node = new_node('in_order', preload => 1, conf => 'synchronous_commit = off');
make_units($node, in_order => 1);
make_origin($node, $in_order);
$node->safe_psql('postgres', 'DO $$ BEGIN FOR n IN 1 .. 500 LOOP PERFORM produce_old(\'backlog \' || n % 20); COMMIT; END LOOP; END $$');
install($node, 'graphile_worker', queue => 'work', role => 'owner');
my $old = start_node($node, 'owner', 'graphile_worker', $in_order, $seed, 0);
$load = start_load($node, $seed, produce_old => [ 2, 100, 'producer' ], work_new => [ 2, 100 ]);
$node->poll_query_until('postgres', q{SELECT count(*) > 50 FROM effects WHERE side = 'old'}) or die;
stop_node($old);
move_and_kill($node, role => 'owner', in_order => 1);
redirect($node, role => 'owner', in_order => 1);
$after = $node->safe_psql('postgres', 'SELECT max(unit) FROM units');
$node->poll_query_until('postgres', "SELECT count(*) > $after + 100 FROM units") or die;
stop_load([ grep { $_->{name} =~ /^produce/ } @$load ], 'producers');
drain($node, role => 'owner');
stop_load([ grep { $_->{name} =~ /^work/ } @$load ], 'workers');
all_done_once($node, in_order => 1);

# What the script does not know it refuses.
$node->safe_psql('postgres', 'DROP SCHEMA migration CASCADE; CREATE SCHEMA migration AUTHORIZATION owner; INSERT INTO graphile_worker.migrations (id) VALUES (21)');
like(run_script($node, 'graphile_worker', queue => 'work', role => 'owner'), qr/has the migration 21 of graphile-worker.*HINT:  .*0\.16 to/s, 'a later graphile-worker is refused');
$node->stop;

done_testing();
