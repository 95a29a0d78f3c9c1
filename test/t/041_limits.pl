# Limits of a queue with the library preloaded: the count of leases, and what is spent of the rate, in shared memory.
#
# Proves of max_in_flight: however many sessions claim, report, give back, roll back and die, no snapshot ever sees more leases than the
# limit allows; nothing of the limit is lost by any of it; a crash and prepared transactions make the count unknown, and the
# next claim finds it again; who waits is woken when a lease ends.
#
# Of rate_limit: in no time that begins with a claim and ends with one more messages are leased than the burst and the rate
# allow, whatever sessions do, with the library preloaded and without; a start of the server, also after a crash, allows
# nothing at once; who waits is woken by the time when there is more; a limit that leaves nothing makes nobody look in vain.
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
	$$;});
wait_for_worker($node);

# ---------------------------------------------------------------- many sessions

claim_at_once($node, $seed, 4, 300, 'leased() <= 5', 'at no time more leases than allowed');
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

# ---------------------------------------------------------------- prepared transactions, waiting

leases_make_room($node);

# A queue that has nothing for a claim makes nobody look again, however little its limit allows.
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('empty', max_in_flight => 2, rate_limit => 1);
	SELECT (SELECT count(*) FROM outbox.claim('w', 8 + g, queues => '{empty}')) FROM generate_series(1, 20) g;
	SELECT outbox.enqueue('told', '1')});
$node->poll_query_until('postgres', q{SELECT notified > 0 FROM outbox.stats WHERE queue = 'default'});
is($node->safe_psql('postgres', q{SELECT notified, limited FROM outbox.stats WHERE queue = 'empty'}), '0|0', 'claims of an empty queue announce nothing');

# Places of what a transaction ended are its own until it ends, also if it is the one that counts.
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('own', max_in_flight => 3);
	SELECT outbox.enqueue('o' || g, '1', 'own') FROM generate_series(1, 9) g;
	CREATE TABLE own AS SELECT * FROM outbox.claim('w', 3, queues => '{own}')});
my $ends = session($node);
my $own = q{SELECT count(*) FROM outbox.claim('w', %d, queues => '{own}')};
$ends->query_safe(q{BEGIN; SELECT FROM own, LATERAL outbox.complete(outbox_id, lease_token, 'w', 'DISPATCHED')});
$node->safe_psql('postgres', q{SELECT outbox.alter_queue('own', max_in_flight => 3)});
is($ends->query_safe('SAVEPOINT s; ' . sprintf($own, 1)), 1, 'a transaction ends three leases, counts, and makes one');
is($node->safe_psql('postgres', sprintf($own, 9)), 0, '... which leaves no place to others');
is($ends->query_safe('ROLLBACK TO s; ' . sprintf($own, 9)), 3, '... but three to itself');
$ends->query_safe('ROLLBACK');
is($node->safe_psql('postgres', sprintf($own, 9)), 0, '... and none when it is rolled back');
$ends->quit;

# ---------------------------------------------------------------- the rate

# What each claim got, with the clock before and behind it.
my $rate = 500;
my $burst = 20;

sub prepare_rates
{
	my ($server) = @_;

	$server->safe_psql('postgres', qq{
		SELECT outbox.create_queue('rate', rate_limit => $rate, rate_burst => $burst, repair_delay => '0', backoff_base => '0', max_attempts => NULL);
		SELECT count(*) FROM generate_series(1, 3000) g, outbox.enqueue('r' || g, '1', 'rate');
		SELECT outbox.create_queue('long', rate_limit => 10, rate_burst => 100000);
		SELECT count(*) FROM generate_series(1, 3000) g, outbox.enqueue('l' || g, '1', 'long');
		CREATE TABLE started (at timestamptz);
		CREATE TABLE claims (begun timestamptz, ended timestamptz, leases int);
		CREATE FUNCTION take_rate(n int, outcome int) RETURNS int LANGUAGE plpgsql AS \$\$
		DECLARE
			begun timestamptz := clock_timestamp();
			kept uuid[];
			tokens uuid[];
		BEGIN
			IF outcome = 4 THEN
				BEGIN
					PERFORM FROM outbox.claim('w', n, queues => '{rate}');
					RAISE division_by_zero;
				EXCEPTION WHEN division_by_zero THEN
				END;
			END IF;
			SELECT array_agg(outbox_id), array_agg(lease_token) INTO kept, tokens FROM outbox.claim('w', n, queues => '{rate}');
			IF outcome = 3 AND kept IS NOT NULL THEN
				PERFORM FROM outbox.complete_batch('w', kept, tokens, array_fill('RETRYABLE'::outbox.attempt_state, ARRAY[cardinality(kept)]));
			ELSIF outcome = 2 AND kept IS NOT NULL THEN
				PERFORM FROM outbox.release('w', kept, tokens);
			ELSIF outcome = 1 THEN
				RAISE EXCEPTION 'rolled back' USING ERRCODE = '40001';
			END IF;
			INSERT INTO claims VALUES (begun, clock_timestamp(), coalesce(cardinality(kept), 0));
			RETURN coalesce(cardinality(kept), 0);
		END
		\$\$});
}

# From the begin of the run on, to the end of each claim: one that is rolled back may be the first. The clock of the rate and that of the log may differ a little.
my $most = qq{
	SELECT max(sum - $burst - $rate * (extract(epoch FROM ended - started.at)::float8 * 1.001 + 0.001)) <= 0, max(sum) > $burst
	FROM (SELECT ended, sum(leases) OVER (ORDER BY ended) FROM claims) c, started};

sub run_rates
{
	my ($server, $with) = @_;
	my $script = $server->basedir . '/rate.sql';
	my ($rate_out, $rate_err) = ('', '');

	$server->safe_psql('postgres', 'INSERT INTO started VALUES (clock_timestamp())');
	append_to_file($script, "\\set n random(1, 15)\n\\set outcome random(1, 8)\nSELECT take_rate(:n, :outcome);\n");
	IPC::Run::run([ 'pgbench', '-n', '-c', '8', '-j', '1', '-T', '2', '--max-tries', '1', '--random-seed', $seed, '-f', $script,
		$server->connstr('postgres') ], '<', \undef, '>', \$rate_out, '2>', \$rate_err);
	$rate_err =~ s/^pgbench: (?:hint|setting random seed).*\n//mg;
	is($rate_err, '', "$with: many sessions claim, without an error");
	is($server->safe_psql('postgres', $most), 't|t', '... never more than the rate allows');
	is($server->safe_psql('postgres', 'SELECT pg_sleep(0.1); SELECT take_rate(100, 9)'), "\n$burst", '... and all of the burst, after a pause');

	# What accrued before the start is lost.
	$server->safe_psql('postgres', q{SELECT FROM outbox.claim('w', 1, queues => '{long}')});
	$server->stop('immediate');
	$server->start;
	is($server->safe_psql('postgres', q{
		WITH c AS MATERIALIZED (SELECT count(*) FROM outbox.claim('w', 10000, queues => '{long}'))
		SELECT count <= 10 * extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) FROM c}), 't', '... and after a crash, no more than the time since');
	is($server->safe_psql('postgres', q{
		WITH c AS MATERIALIZED (SELECT count(*) FROM outbox.claim('w', 10000, queues => '{long}'))
		SELECT count <= 10 * extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) FROM c}), 't', '... nor at the next claim');
}

prepare_rates($node);
run_rates($node, 'preloaded');

# Rolled back: in less time than a message takes.
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('two', rate_limit => 1, rate_burst => 2);
	SELECT count(*) FROM generate_series(1, 9) g, outbox.enqueue('t' || g, '1', 'two');
	SELECT pg_sleep(2)});
my $two = q{SELECT count(*) FROM outbox.claim('w', 99, queues => '{two}')};
is($node->safe_psql('postgres', qq{
	BEGIN; $two; ROLLBACK;
	BEGIN; SAVEPOINT s; $two; ROLLBACK TO s; $two; ROLLBACK}),
	"2\n2\n2", 'what is rolled back');
my $gone = session($node);
is($gone->query_safe("BEGIN; $two"), 2, '... or claimed by a session');
$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $gone->query_safe('SELECT pg_backend_pid()') . ', 60000)');
is($node->safe_psql('postgres', "$two; $two"), "2\n0", '... that dies, can be claimed again, once');

# A lease that is released counts: what accrued in its place may be spent.
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('few', rate_limit => 10, rate_burst => 5);
	SELECT count(*) FROM generate_series(1, 99) g, outbox.enqueue('f' || g, '1', 'few');
	CREATE FUNCTION take_few(OUT count int, OUT ids uuid[], OUT tokens uuid[]) LANGUAGE sql AS
		$$SELECT count(*), array_agg(outbox_id), array_agg(lease_token) FROM outbox.claim('w', 99, queues => '{few}')$$;
	CREATE TABLE burst (at timestamptz);
	CREATE FUNCTION take_burst() RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		DELETE FROM burst;
		INSERT INTO burst VALUES (clock_timestamp());
		RETURN (SELECT count FROM take_few());
	END $$;
	CREATE FUNCTION take_too_much() RETURNS bool LANGUAGE plpgsql AS $$
	DECLARE
		taken int := (SELECT count FROM take_few());
	BEGIN
		RETURN taken > 10 * extract(epoch FROM clock_timestamp() - (SELECT at FROM burst));
	END $$;
	SELECT pg_sleep(0.6)});
is($node->safe_psql('postgres', 'CREATE TABLE first AS SELECT * FROM take_few(); SELECT count FROM first'), 5, 'a burst is claimed');
is($node->safe_psql('postgres', 'SELECT pg_sleep(0.6); SELECT take_burst()'), "\n5", '... and another one, when it has accrued');
is($node->safe_psql('postgres', q{SELECT count(*) FROM first, outbox.release('w', ids, tokens)}), 5, '... the first is released');
is($node->safe_psql('postgres', 'SELECT take_too_much()'), 'f', '... and allows no more than the time since');

# Nor is that there twice which is rolled back.
my $late = session($node);
$node->safe_psql('postgres', 'SELECT pg_sleep(0.6)');
is($late->query_safe('BEGIN; SELECT count FROM take_few()'), 5, 'a burst is claimed');
is($node->safe_psql('postgres', 'SELECT pg_sleep(0.6); SELECT take_burst()'), "\n5", '... and another one, when it has accrued');
$late->query_safe('ROLLBACK');
is($node->safe_psql('postgres', 'SELECT take_too_much()'), 'f', '... and the first, rolled back, allows no more than the time since');
$late->quit;

# Waiting.
wait_for_worker($node);
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('slow', rate_limit => 0.4);
	SELECT outbox.enqueue('s' || g, '1', 'slow') FROM generate_series(1, 5) g;
	SELECT outbox.create_queue('day', rate_limit => 1 / 86400.0);
	SELECT outbox.enqueue('d' || g, '1', 'day') FROM generate_series(1, 5) g});
my $slow = session($node);
my $day = session($node);
my $from = log_size($node);
$slow->query_safe('SET log_min_messages = debug1');
start_query($slow, q{SELECT count(*) FROM outbox.claim('waits', 3, queues => '{slow}', wait => '10 min')});
start_query($day, q{CALL outbox.wait_for_work('10 min', '{day}')});
is(result_of($slow), '1', 'a session that waits claims what the rate allows');
ok(log_lines($node, $from, qr/woken for work/), '... because it was woken');
is($node->safe_psql('postgres', "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $day->{outbox_pid}"), 'Extension', 'wait_for_work does not end while the rate allows nothing');
is($node->safe_psql('postgres', q{SELECT limited > 0 FROM outbox.stats WHERE queue = 'slow'}), 't', 'claims that were limited are counted');
$node->safe_psql('postgres', q{SELECT outbox.alter_queue('day', rate_limit => 100000)});
is(result_of($day), '', '... but when the limit is raised');

is($node->safe_psql('postgres', q{SELECT object, problem FROM outbox.check(deep => true) WHERE severity = 'error'}), '', 'check() finds nothing');
$_->quit foreach $slow, $day;
$node->stop;

# ---------------------------------------------------------------- without preloading

my $plain = new_node('plain');

prepare_rates($plain);
run_rates($plain, 'without preloading');
my $holds = session($plain);
my $take = q{SELECT count(*) FROM outbox.claim('w', 99, queues => '{rate}')};
$plain->safe_psql('postgres', 'SELECT pg_sleep(0.1)');
is($holds->query_safe("BEGIN; $take"), $burst, 'a session claims a burst');
is($plain->safe_psql('postgres', 'SELECT pg_sleep(0.1); SELECT take_rate(5, 9)'), "\n0", '... and nobody else anything, until it ends');
$holds->query_safe('ROLLBACK');
is($plain->safe_psql('postgres', 'SELECT take_rate(100, 9)'), $burst, '... by a rollback');
$holds->quit;
$plain->stop;
done_testing();
