# What outbox.status says of a queue with more than outbox.count_limit entries: totals that commits keep.
#
# Proves: once the worker has counted, they are exact whatever is done: each verb, savepoints, rollbacks, errors, SQL by
# hand; and so are they after a crash and after a prepared transaction, once it has counted again. Until then, and without
# a count, they are a lower bound and say so. What was read, and nothing else, is what a scrape costs.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

seed();

my $node = new_node('main', preload => 1, conf => "outbox.poll_interval = '100 ms'\nautovacuum = off");
my @queues = qw(a b);

wait_for_worker($node);
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue(q, lease => '1 day', backoff_base => '0') FROM unnest(ARRAY['a', 'b']) q;
	SELECT outbox.enqueue('e', to_jsonb(g), CASE g % 2 WHEN 0 THEN 'a' ELSE 'b' END, deliver_at => CASE WHEN g % 4 < 2 THEN clock_timestamp() + interval '1 day' END)
	FROM generate_series(1, 200) g;
	SELECT outbox.cancel(outbox_id, 'broken') FROM (SELECT outbox_id FROM outbox.pending ORDER BY outbox_id LIMIT 60) p});

# queue => what status says of it when it may read next to nothing, and what there is.
my $said = q{
	SET outbox.count_limit = 1;
	SELECT string_agg(concat_ws(' ', s.queue, s.pending_count, s.leased_count + s.expired_lease_count, s.dead_count), ', ' ORDER BY s.queue)
	FROM outbox.status s WHERE s.queue <> 'default'};
my $true = q{
	SELECT string_agg(concat_ws(' ', q.queue, (SELECT count(*) FROM outbox.pending p WHERE p.queue = q.queue),
		(SELECT count(*) FROM outbox.pending p WHERE p.queue = q.queue AND p.lease_expires_at IS NOT NULL),
		(SELECT count(*) FROM outbox.dead d WHERE d.queue = q.queue AND d.acknowledged_at IS NULL)), ', ' ORDER BY q.queue)
	FROM outbox.queues q WHERE q.queue <> 'default'};
my $counts = q{SELECT string_agg(DISTINCT counts, ' ') FROM outbox.status WHERE queue <> 'default'};

sub is_right
{
	my ($name) = @_;

	return is($node->safe_psql('postgres', $said), $node->safe_psql('postgres', $true), $name);
}

sub wait_for_count
{
	return $node->poll_query_until('postgres', q{SELECT bool_and(counted_at IS NOT NULL) FROM outbox.status WHERE queue <> 'default'});
}

wait_for_count();
is($node->safe_psql('postgres', "SET outbox.count_limit = 1; $counts"), 'kept', 'more entries than may be read');
is_right('as the worker counted');
is($node->safe_psql('postgres', "SET outbox.count_limit = 1000; $counts"), 'exact', 'few enough to be read');
is($node->safe_psql('postgres', q{
		SELECT string_agg(concat_ws(' ', queue, (pending_count, due_unleased_count, scheduled_count, dead_count)::text), ', ' ORDER BY queue) FROM outbox.status WHERE queue <> 'default'}),
	'a (70,35,35,30), b (70,35,35,30)', 'all of it');
# One side of now can be read: the other is what remains.
$node->safe_psql('postgres', q{UPDATE outbox.pending SET next_attempt_at = clock_timestamp() WHERE outbox_id IN (
	SELECT outbox_id FROM outbox.pending WHERE queue = 'a' AND next_attempt_at > clock_timestamp() LIMIT 30)});
$node->safe_psql('postgres', 'VACUUM outbox.pending');	# dead entries are read as well
is($node->safe_psql('postgres', q{SET outbox.count_limit = 30; SELECT due_unleased_count, scheduled_count, counts FROM outbox.status WHERE queue = 'a'}),
	'65|5|kept', 'many are due, few scheduled');
$node->safe_psql('postgres', q{UPDATE outbox.pending SET next_attempt_at = clock_timestamp() + interval '1 day' WHERE outbox_id IN (
	SELECT outbox_id FROM outbox.pending WHERE queue = 'a' AND next_attempt_at < clock_timestamp() LIMIT 60)});
$node->safe_psql('postgres', 'VACUUM outbox.pending');
is($node->safe_psql('postgres', q{SET outbox.count_limit = 30; SELECT due_unleased_count, scheduled_count, counts FROM outbox.status WHERE queue = 'a'}),
	'5|65|kept', 'few are due, many scheduled');

# What no commit tells of, as a restore of dead letters, is noticed by who reads more than is kept.
$node->safe_psql('postgres', q{INSERT INTO outbox.dead (outbox_id, queue, died_at) SELECT gen_random_uuid(), 'a', now() FROM generate_series(1, 200)});
is($node->safe_psql('postgres', q{SET outbox.count_limit = 100; SELECT dead_count, counts FROM outbox.status WHERE queue = 'a'}), '100|at least', 'more was read than is kept');
wait_for_count();
is($node->safe_psql('postgres', q{SET outbox.count_limit = 100; SELECT dead_count, counts FROM outbox.status WHERE queue = 'a'}), '230|kept', '... and is counted again');
is_right('with all that was not told of');

# ---------------------------------------------------------------- whatever is done

# The worker does not count again for an hour: what is right now is so by the commits.
configure($node, 'outbox.poll_interval' => '1 h');

sub chosen { return $_[ int rand @_ ] }

my $session = session($node);
my %steps = (
	enqueue => sub { my ($queue, $n) = @_; return "SELECT outbox.enqueue('e', '1', '$queue') FROM generate_series(1, $n)" },
	batch => sub { my ($queue, $n) = @_; return "SELECT outbox.enqueue_batch('$queue', (SELECT jsonb_agg('{\"event_type\": \"e\", \"payload\": 1}'::jsonb) FROM generate_series(1, $n)))" },
	optimistic => sub { my ($queue) = @_; return "SELECT outbox.enqueue_and_claim('w', 'e', '1', '$queue')" },
	claim => sub { my ($queue, $n) = @_; return "SELECT count(*) FROM outbox.claim('w', $n, queues => ARRAY['$queue'])" },
	complete => sub {
		my ($queue, $n) = @_;
		my $states = join ', ', map { chosen(qw(DISPATCHED FAILED RETRYABLE)) } 1 .. $n;

		return "SELECT outbox.complete_batch('w', ids, tokens, ('{$states}'::text[])[:cardinality(ids)]) FROM (
			SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens
			FROM (SELECT * FROM outbox.pending WHERE queue = '$queue' AND claimed_by = 'w' LIMIT $n) p) c WHERE ids IS NOT NULL";
	},
	release => sub { my ($queue, $n) = @_; return "SELECT outbox.release('w', array_agg(outbox_id), array_agg(lease_token))
		FROM (SELECT * FROM outbox.pending WHERE queue = '$queue' AND claimed_by = 'w' LIMIT $n) p HAVING count(*) > 0" },
	lose => sub { my ($queue, $n) = @_; return "UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 s'
		WHERE outbox_id IN (SELECT outbox_id FROM outbox.pending WHERE queue = '$queue' AND claimed_by = 'w' LIMIT $n);
		SELECT count(*) FROM outbox.repair_expired_leases(" . chosen(1, 100) . ")" },
	cancel => sub { my ($queue, $n) = @_; return "SELECT outbox.cancel(outbox_id, 'no', true) FROM (SELECT outbox_id FROM outbox.pending WHERE queue = '$queue' LIMIT $n) p" },
	replay => sub { my ($queue, $n) = @_; return "SELECT outbox.replay(outbox_id) FROM (SELECT outbox_id FROM outbox.dead WHERE queue = '$queue' LIMIT $n) d" },
	acknowledge => sub { my ($queue, $n) = @_; return "SELECT outbox.acknowledge_dead(outbox_id, 'known') FROM (SELECT outbox_id FROM outbox.dead WHERE queue = '$queue' LIMIT $n) d" },
	'by hand' => sub { my ($queue, $n) = @_; return "UPDATE outbox.pending SET " . chosen('next_attempt_at = clock_timestamp()',
		'claimed_by = NULL, claimed_at = NULL, lease_token = NULL, lease_expires_at = NULL',
		"claimed_by = 'w', claimed_at = clock_timestamp(), lease_token = gen_random_uuid(), lease_expires_at = clock_timestamp() + interval '1 day'")
		. " WHERE outbox_id IN (SELECT outbox_id FROM outbox.pending WHERE queue = '$queue' LIMIT $n)" });
my %frames = (
	plain => '%s; %s',
	transaction => 'BEGIN; %s; %s; COMMIT',
	'rolled back' => 'BEGIN; %s; %s; ROLLBACK',
	savepoint => 'BEGIN; %s; SAVEPOINT s; %s; ROLLBACK TO s; COMMIT',
	released => 'BEGIN; SAVEPOINT s; %s; SAVEPOINT i; %s; RELEASE i; RELEASE s; COMMIT',
	inner => 'BEGIN; SAVEPOINT s; %s; SAVEPOINT i; %s; RELEASE i; ROLLBACK TO s; COMMIT',
	error => 'BEGIN; %s; %s; SELECT 1 / 0; COMMIT');
my $wrong = 0;

foreach my $round (1 .. 150)
{
	my $frame = chosen(sort keys %frames);
	my @names = map { chosen(sort keys %steps) } 1 .. 2;
	my $sql = sprintf $frames{$frame}, map { $steps{$_}->(chosen(@queues), 1 + int rand 8) } @names;

	$session->query($sql);
	my ($says, $is) = map { $node->safe_psql('postgres', $_) } $said, $true;
	next if $says eq $is;
	is($says, $is, "round $round, $frame: $names[0], $names[1]");
	last if ++$wrong > 3;
}
ok(!$wrong, 'kept right by each of 150 transactions');
is($node->safe_psql('postgres', "SET outbox.count_limit = 1; $counts"), 'kept', 'and it was by what is kept');
$session->quit;

# ---------------------------------------------------------------- what no commit tells of

$node->safe_psql('postgres', q{BEGIN; SELECT outbox.enqueue('e', '1', 'a') FROM generate_series(1, 40); PREPARE TRANSACTION 'p'});
is_right('prepared: nothing has happened');
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
# That wakes the worker, which has it counted.
$node->poll_query_until('postgres', "SELECT ($true) = (SELECT s FROM (" . ($said =~ s/SET.*?;//sr) . ') x(s))');
wait_for_count();
is_right('counted after COMMIT PREPARED');

$node->stop('immediate');
$node->append_conf('postgresql.conf', "outbox.worker = off");
$node->start;
$node->safe_psql('postgres', q{SELECT outbox.enqueue('e', '1', q) FROM unnest(ARRAY['a', 'b']) q});
is($node->safe_psql('postgres', "SET outbox.count_limit = 1; $counts"), 'at least', 'after a crash, and nobody has counted');
is($node->safe_psql('postgres', q{SET outbox.count_limit = 1; SELECT bool_and(s.pending_count > 0 AND s.pending_count <= (SELECT count(*) FROM outbox.pending p WHERE p.queue = s.queue))
		FROM outbox.status s WHERE queue <> 'default'}), 't', '... what is said is a lower bound');
configure($node, 'outbox.worker' => 'on');
wait_for_worker($node);
wait_for_count();
is($node->safe_psql('postgres', "SET outbox.count_limit = 1; $counts"), 'kept', 'the worker counts');
is_right('... and it is right');

done_testing();
