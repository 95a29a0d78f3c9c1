# max_in_flight with the library preloaded: the count of leases in shared memory.
#
# Proves: however many sessions claim, report, give back, roll back and die, no snapshot ever sees more leases than the
# limit allows; nothing of the limit is lost by any of it; a crash and prepared transactions make the count unknown, and the
# next claim finds it again; who waits is woken when a lease ends.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed();
my $node = new_node('main', preload => 1, conf => "outbox.poll_interval = '1h'\nmax_prepared_transactions = 5");

$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('l', max_in_flight => 5, repair_delay => '0', backoff_base => '0', max_attempts => NULL);
	SELECT count(*) FROM generate_series(1, 3000) g, outbox.enqueue('e' || g, '1', 'l');
	CREATE FUNCTION leased() RETURNS bigint LANGUAGE sql AS $$
		SELECT count(*) FROM outbox.pending WHERE queue = 'l' AND claimed_by IS NOT NULL
	$$;
	CREATE FUNCTION take(n int, lease interval DEFAULT '1 hour') RETURNS int LANGUAGE sql AS $$
		SELECT count(*)::int FROM outbox.claim('w', n, lease, '{l}')
	$$;
	CREATE FUNCTION finish(most int) RETURNS int LANGUAGE sql AS $$
		SELECT count(*)::int FROM (SELECT * FROM outbox.pending WHERE queue = 'l' AND claimed_by = 'w' LIMIT most) p,
			LATERAL outbox.complete(p.outbox_id, p.lease_token, 'w', 'DISPATCHED')
	$$;
	CREATE FUNCTION work(n int, outcome int) RETURNS int LANGUAGE plpgsql AS $$
	DECLARE
		ids uuid[];
		tokens uuid[];
	BEGIN
		SELECT array_agg(outbox_id), array_agg(lease_token) INTO ids, tokens
		FROM outbox.claim('w' || n, n, CASE outcome WHEN 5 THEN interval '20 ms' ELSE '1 hour' END, '{l}');
		IF ids IS NULL OR outcome = 5 THEN
			RETURN 0;
		END IF;
		IF outcome = 4 THEN
			PERFORM FROM outbox.release('w' || n, ids, tokens);
		ELSIF outcome = 3 THEN
			BEGIN
				PERFORM FROM outbox.complete_batch('w' || n, ids, tokens, array_fill('DISPATCHED'::outbox.attempt_state, ARRAY[cardinality(ids)]));
				PERFORM FROM outbox.claim('w' || n, 9, queues => '{l}');
				RAISE division_by_zero;
			EXCEPTION WHEN division_by_zero THEN
				PERFORM FROM outbox.release('w' || n, ids[2:], tokens[2:]);
				PERFORM FROM outbox.complete(ids[1], tokens[1], 'w' || n, 'RETRYABLE');
			END;
		ELSIF outcome = 2 THEN
			RAISE EXCEPTION 'rolled back' USING ERRCODE = '40001';
		ELSE
			PERFORM FROM outbox.complete_and_claim('w' || n, ids, tokens, array_fill('DISPATCHED'::outbox.attempt_state, ARRAY[cardinality(ids)]),
				batch_size => n, queues => '{l}') c WHERE lease_token IS NOT NULL;
			PERFORM outbox.release('w' || n, a.ids, a.tokens)
			FROM (SELECT array_agg(p.outbox_id) AS ids, array_agg(p.lease_token) AS tokens FROM outbox.pending p WHERE p.claimed_by = 'w' || n AND p.queue = 'l') a
			WHERE a.ids IS NOT NULL;
		END IF;
		RETURN cardinality(ids);
	END
	$$});
wait_for_worker($node);

# ---------------------------------------------------------------- many sessions

my $files = $node->basedir;
append_to_file("$files/work.sql", "\\set n random(1, 4)\n\\set outcome random(1, 5)\nSELECT work(:n, :outcome);\n");
append_to_file("$files/look.sql", "SELECT 1 / (leased() <= 5)::int;\n");
my ($out, $err) = ('', '');
IPC::Run::run([ 'pgbench', '-n', '-c', '8', '-j', '1', '-t', '300', '--max-tries', '1', '--random-seed', $seed, '-f', "$files/work.sql\@3", '-f', "$files/look.sql\@1",
	$node->connstr('postgres') ], '<', \undef, '>', \$out, '2>', \$err);
$err =~ s/^pgbench: (?:hint|setting random seed).*\n//mg;
is($err, '', 'many sessions: no error, and at no time more leases than allowed');
like($out, qr/^number of transactions actually processed: [1-9]/m, '... of those that were not rolled back');
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM outbox.pending WHERE queue = 'l' AND lease_expires_at < clock_timestamp()});
$node->safe_psql('postgres', q{SELECT outbox.break_lease(outbox_id, 'end') FROM outbox.pending WHERE claimed_by IS NOT NULL});
is($node->safe_psql('postgres', 'SELECT take(100)'), '5', 'nothing of the limit was lost');
is($node->safe_psql('postgres', 'SELECT take(100)'), '0', '... nor was anything won');

# ---------------------------------------------------------------- a session that dies, a crash

my $dies = session($node);
is($node->safe_psql('postgres', 'SELECT finish(2)'), '2', 'two end');
$dies->query_safe('BEGIN');
is($dies->query_safe('SELECT take(9)'), '2', '... and a session claims two');
$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $dies->query_safe('SELECT pg_backend_pid()') . ', 60000)');
is($node->safe_psql('postgres', 'SELECT take(9)'), '2', '... which others get once it is ended');
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', 'SELECT take(9), leased()'), '0|5', 'after a crash the leases are counted');
is($node->safe_psql('postgres', 'SELECT finish(3)') . $node->safe_psql('postgres', 'SELECT take(9)'), '33', '... and make room as they end');

# ---------------------------------------------------------------- prepared transactions

$node->safe_psql('postgres', 'SELECT finish(2)');
$node->safe_psql('postgres', q{BEGIN; SELECT take(2); PREPARE TRANSACTION 'claim'});
is($node->safe_psql('postgres', 'SELECT take(9)'), '0', 'a prepared claim counts');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'claim'});
is($node->safe_psql('postgres', 'SELECT take(9)'), '2', '... until it is rolled back');
$node->safe_psql('postgres', q{BEGIN; SELECT finish(2); PREPARE TRANSACTION 'finish'});
is($node->safe_psql('postgres', 'SELECT take(9)'), '0', 'a prepared completion makes no room');
$node->safe_psql('postgres', q{COMMIT PREPARED 'finish'});
is($node->safe_psql('postgres', 'SELECT take(9)'), '2', '... until it is committed');

# ---------------------------------------------------------------- waiting

wait_for_worker($node);
my $waits = session($node);
my $from = log_size($node);
$waits->query_safe('SET log_min_messages = debug1');
start_query($waits, q{SELECT count(*) FROM outbox.claim('waits', 1, queues => '{l}', wait => '10 min')});
$node->poll_query_until('postgres', "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $waits->{outbox_pid}");
is($node->safe_psql('postgres', 'SELECT finish(1)'), '1', 'a lease ends');
is(result_of($waits), '1', '... and a session that waits claims in its place');
ok(log_lines($node, $from, qr/woken for work/), '... because it was woken');
is($node->safe_psql('postgres', q{SELECT object, problem FROM outbox.check(deep => true) WHERE severity = 'error'}), '', 'check() finds nothing');
$waits->quit;
$node->stop;
done_testing();
