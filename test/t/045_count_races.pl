# Transactions that end while a claim counts the leases of a queue with max_in_flight.
#
# Proves: neither a lease that ends, nor one that is made, between the count and its use is lost: the next claim gets what
# the limit leaves, no more and no less.
#
# Needs a library made with STOP_POINTS=1.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', preload => 1, conf => 'outbox.worker = off');
my $counts = session($node);
my $pid = $counts->query_safe('SELECT pg_backend_pid()');

make_stop_points($node);
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('l', max_in_flight => 3, max_attempts => NULL);
	SELECT count(*) FROM generate_series(1, 100) g, outbox.enqueue('e' || g, '1', 'l');
	CREATE FUNCTION take(n int) RETURNS int LANGUAGE sql AS $$ SELECT count(*)::int FROM outbox.claim('w', n, '1 hour', '{l}') $$;
	CREATE FUNCTION finish(n int) RETURNS int LANGUAGE sql AS $$
		SELECT count(*)::int FROM (SELECT * FROM outbox.pending WHERE claimed_by = 'w' LIMIT n) p,
			LATERAL outbox.complete(p.outbox_id, p.lease_token, 'w', 'DISPATCHED')
	$$;
	CREATE FUNCTION leased() RETURNS int LANGUAGE sql AS $$ SELECT count(*)::int FROM outbox.pending WHERE claimed_by IS NOT NULL $$});
is($node->safe_psql('postgres', 'SELECT take(9)'), '3', 'the limit is reached');

# The change of a setting makes the count unknown.
sub counted_beside
{
	my ($point, $name, $sql, $answers) = @_;

	$node->safe_psql('postgres', q{SELECT outbox.alter_queue('l', max_in_flight => 3)});
	arm($node, $point, $pid);
	start_query($counts, 'SELECT take(1)');
	stands_at($node, $point, $pid);
	$node->safe_psql('postgres', $sql);
	release($node, $point);
	my $got = result_of($counts);
	is($got + $node->safe_psql('postgres', 'SELECT take(9)'), $answers, "$point, $name: claims get what is left");
	is($node->safe_psql('postgres', 'SELECT leased()'), '3', '... no more and no less');
	return;
}

foreach my $point ('grant_before_count', 'grant_after_count')
{
	counted_beside($point, 'a lease ends', 'SELECT finish(1)', 1);
	counted_beside($point, 'all leases end', 'SELECT finish(3)', 3);
	counted_beside($point, 'an end is rolled back', 'BEGIN; SELECT finish(3); ROLLBACK', 0);
	$node->safe_psql('postgres', q{BEGIN; SELECT finish(2); PREPARE TRANSACTION 'finish'});
	counted_beside($point, 'a prepared end is committed', q{COMMIT PREPARED 'finish'}, 2);
	counted_beside($point, 'one claims as well, and rolls back', 'SELECT finish(1); BEGIN; SELECT take(1); ROLLBACK', 1);
}
is($node->safe_psql('postgres', q{SELECT object, problem FROM outbox.check(deep => true) WHERE severity = 'error' AND object !~ 'worker'}), '', 'check() finds nothing');
$counts->quit;
$node->stop;
done_testing();
