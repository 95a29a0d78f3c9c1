# Queues that serve their keys in turn, with the library preloaded: the turns are kept in shared memory.
#
# Proves: however many sessions claim, report, give back, roll back and die, no snapshot ever sees more leases of a key
# than max_in_flight_per_key allows, and nothing of the limit is lost; a prepared transaction counts, and a crash changes
# nothing; who waits is woken when a lease of a full key ends. A key with a large backlog does not delay the others by more
# than a few claims, not behind messages that are not due and not behind the dead rows of a held snapshot either; what a
# claim reads does not grow with any of these.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed();
my $node = new_node('main', preload => 1, conf => "outbox.poll_interval = '1h'\nmax_prepared_transactions = 5\nautovacuum = off");

$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('l', max_in_flight_per_key => 2, repair_delay => '0', backoff_base => '0', max_attempts => NULL);
	SELECT count(*) FROM generate_series(1, 3000) g, outbox.enqueue('e' || g, '1', 'l', partition_key => 'k' || g % 5);
	CREATE FUNCTION most_leased() RETURNS bigint LANGUAGE sql AS $$
		SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM outbox.pending WHERE queue = 'l' AND claimed_by IS NOT NULL GROUP BY partition_key) l
	$$;
	CREATE FUNCTION take(n int, q text DEFAULT 'l') RETURNS int LANGUAGE sql AS $$
		SELECT count(*)::int FROM outbox.claim('w', n, '1 hour', ARRAY[q])
	$$;
	CREATE FUNCTION finish(most int, q text DEFAULT 'l') RETURNS int LANGUAGE sql AS $$
		SELECT count(*)::int FROM (SELECT * FROM outbox.pending WHERE queue = q AND claimed_by = 'w' ORDER BY outbox_id LIMIT most) p,
			LATERAL outbox.complete(p.outbox_id, p.lease_token, 'w', 'DISPATCHED')
	$$;});
wait_for_worker($node);

# ---------------------------------------------------------------- many sessions

claim_at_once($node, $seed, 6, 200, 'most_leased() <= 2', 'at no time more leases of a key than allowed');
$node->safe_psql('postgres', q{SELECT outbox.cancel(outbox_id, 'end') FROM outbox.pending WHERE partition_key NOT IN ('k0', 'k1', 'k2', 'k3', 'k4')});
# A walk among many dead rows may end before it has met each key.
is($node->safe_psql('postgres', 'SELECT take(100) + take(100) + take(100)'), '10', 'nothing of the limits was lost');
is($node->safe_psql('postgres', 'SELECT take(100)'), '0', '... nor was anything won');

# ---------------------------------------------------------------- a session that dies, a crash, prepared transactions, waiting

my $dies = session($node);
is($node->safe_psql('postgres', 'SELECT finish(2)'), '2', 'two end');
$dies->query_safe('BEGIN');
is($dies->query_safe('SELECT take(9)'), '2', '... and a session claims two');
is($node->safe_psql('postgres', 'SELECT take(9)'), '0', '... which count');
$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $dies->query_safe('SELECT pg_backend_pid()') . ', 60000)');
is($node->safe_psql('postgres', 'SELECT take(9)'), '2', '... and others get once it is ended');
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', 'SELECT take(9), most_leased()'), '0|2', 'after a crash they still count');
leases_make_room($node);

# ---------------------------------------------------------------- a flood

# How many claims of so many it takes until the message is leased.
sub claims_until
{
	my ($type, $n) = @_;

	return $node->safe_psql('postgres', qq{
		DO \$\$
		BEGIN
			FOR i IN 1 .. 100 LOOP
				PERFORM FROM outbox.claim('w', $n, queues => '{f}') c WHERE c.event_type = '$type';
				IF FOUND THEN
					PERFORM set_config('t.claims', i::text, false);
					RETURN;
				END IF;
				COMMIT;
			END LOOP;
		END
		\$\$;
		SELECT current_setting('t.claims')});
}

# The blocks that a claim reads, once the turns and the floors are known.
sub blocks
{
	my ($n) = @_;
	my $answer = $node->safe_psql('postgres', qq{
		SELECT count(*) FROM outbox.claim('w', $n, queues => '{f}');
		SELECT count(*) FROM outbox.claim('w', $n, queues => '{f}');
		EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT count(*) FROM outbox.claim('w', $n, queues => '{f}')});
	my %blocks = $answer =~ /(hit|read)=(\d+)/ ? $answer =~ /(hit|read)=(\d+)/g : ();

	return ($blocks{hit} // 0) + ($blocks{read} // 0);
}

$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('f', fair_by => 'partition_key');
	CREATE FUNCTION fill(n int, keys int, later interval DEFAULT '0') RETURNS void LANGUAGE sql AS $$
		SELECT outbox.enqueue_batch('f', jsonb_agg(jsonb_build_object('event_type', 'hot', 'payload', 1, 'partition_key', 'k' || g % keys,
			'deliver_at', clock_timestamp() + later))) FROM generate_series(0, n - 1) g GROUP BY g / 5000
	$$;
	SELECT fill(2000, 1)});
my $few = blocks(10);
$node->safe_psql('postgres', 'SELECT fill(98000, 1)');
cmp_ok(blocks(10), '<', 2 * $few, 'a claim reads no more of a hot key with fifty times the messages');
foreach my $n (1, 10)
{
	$node->safe_psql('postgres', qq{SELECT outbox.enqueue('quiet$n', '1', 'f', partition_key => 'quiet')});
	cmp_ok(claims_until("quiet$n", $n), '<=', 3, "... and another key has its turn, with claims of $n");
}
$node->safe_psql('postgres', q{SELECT fill(20000, 10000, '1 day')});
my $later = blocks(10);
cmp_ok($later, '<', 20 * $few, '... also among 10,000 keys with nothing due');
$node->safe_psql('postgres', q{SELECT outbox.cancel(outbox_id, 'end') FROM outbox.pending WHERE queue = 'f' AND next_attempt_at > clock_timestamp()});

my $holds = session($node);
$holds->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
$holds->query_safe('SELECT count(*) FROM outbox.pending');
$node->safe_psql('postgres', q{SELECT fill(20000, 20000)});
$node->safe_psql('postgres', q{
	DO $$
	BEGIN
		FOR i IN 1 .. 30 LOOP
			PERFORM outbox.complete_batch('w', array_agg(c.outbox_id), array_agg(c.lease_token), array_agg('DISPATCHED'::outbox.attempt_state))
			FROM outbox.claim('w', 1000, queues => '{f}') c;
			COMMIT;
		END LOOP;
	END
	$$});
cmp_ok(blocks(10), '<', 20 * $few, '... and among the dead rows of 20,000 keys that a snapshot holds');
$holds->query_safe('COMMIT');

$node->safe_psql('postgres', 'ANALYZE');
is($node->safe_psql('postgres', q{SELECT object, problem FROM outbox.check(deep => true) WHERE severity = 'error'}), '', 'check() finds nothing');

# A lost lease that the worker leaves alone, because attempts of it are missing, behind a hundred messages of its key.
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('lost', max_in_flight_per_key => 1, repair_delay => '0');
	SELECT count(*) FROM generate_series(0, 100) g, outbox.enqueue('e' || g, '1', 'lost', partition_key => 'a');
	SELECT count(*) FROM outbox.claim('w', 1, '1 hour', '{lost}');
	UPDATE outbox.pending SET attempt_count = 2, lease_expires_at = clock_timestamp() WHERE queue = 'lost' AND claimed_by IS NOT NULL});
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.claim('v', 1, queues => '{lost}')}), '1', 'a lost lease does not block its key for ever');

$node->stop;
done_testing();
