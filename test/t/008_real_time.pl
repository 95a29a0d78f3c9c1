# Leases and due times by the wall clock, and what must not wait for whom.
#
# Proves: a claim made late in a long transaction gets its whole lease, and sees what
# fell due since the transaction began; a completion that holds the row keeps it, however
# long ago the lease ran out; one that had to wait for the row, while its lease ran out,
# is late; the release of a rolled-back transaction's rows lets others go on; producers
# that wait for a key hold up neither VACUUM nor the reading of the tables. (B05)
#
# Nothing here sleeps a fixed time: each wait is for a condition, and where something must
# happen within a lease, the lease is made longer until it did.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my $a = session($node);
my $b = session($node);

sub enqueue
{
	my ($type, $arguments) = @_;

	return $node->safe_psql('postgres', "SELECT outbox_id FROM outbox.enqueue('$type', '1'" . ($arguments ? ", $arguments" : '') . ")");
}

# Waits, in the session, until the wall clock has passed a time, without a new snapshot.
sub until_past
{
	my ($session, $time) = @_;

	return $session->query_safe(qq{
		DO \$\$ BEGIN WHILE clock_timestamp() <= '$time'::timestamptz LOOP PERFORM pg_sleep(0.01); END LOOP; END \$\$});
}

# ---------------------------------------------------------------- long transactions

foreach my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	my $id = enqueue('soon', "deliver_at => clock_timestamp() + interval '300 milliseconds'");

	$a->query_safe("BEGIN ISOLATION LEVEL $level; SELECT now()");
	my $due = $node->safe_psql('postgres', "SELECT next_attempt_at FROM outbox.pending WHERE outbox_id = '$id'");
	until_past($a, $due);
	my $before = $a->query_safe('SELECT clock_timestamp()');
	is($a->query_safe("SELECT event_type, lease_expires_at >= '$before'::timestamptz + interval '1 minute' FROM outbox.claim('w', 1, '1 minute')"),
		'soon|t', "$level: a message that fell due during the transaction is claimed, for its whole lease");
	is($a->query_safe("SELECT claimed_at >= '$before' AND claimed_at > now() FROM outbox.pending WHERE outbox_id = '$id'"), 't',
		"$level: the lease begins when it was given");
	$a->query_safe('COMMIT');
	$node->safe_psql('postgres', "SELECT outbox.cancel('$id', 'done', true)");
}

# ---------------------------------------------------------------- a lease runs out during a completion

foreach my $end ('COMMIT', 'ROLLBACK')
{
	my ($id, $token, $expires, $lease) = (enqueue('held'), undef, undef, 0.25);

	while (1)
	{
		($token, $expires) = split /\|/, $node->safe_psql('postgres', "SELECT lease_token, lease_expires_at FROM outbox.claim('w1', 1, '$lease s')");
		$a->query_safe('BEGIN');
		my $done = $a->query("SELECT attempt_no FROM outbox.complete('$id', '$token', 'w1', 'DISPATCHED')");
		last if $done eq '1';
		like($a->{stderr}, qr/LEASE_LOST/, 'too slow for this lease: once more');
		$a->{stderr} = '';
		$a->query_safe('ROLLBACK');
		$node->safe_psql('postgres', "SELECT outbox.cancel('$id', 'too slow', true)");
		$id = enqueue('held');
		$lease *= 2;
	}
	until_past($b, $expires);
	is($b->query_safe('SELECT count(*) FROM outbox.repair_expired_leases()'), '0', "$end: repair leaves it alone");
	is($b->query_safe("SELECT count(*) FROM outbox.claim('w2')"), '0', "$end: claim too");
	is($b->query_safe("SELECT error FROM outbox.renew('w1', ARRAY['$id']::uuid[], ARRAY['$token']::uuid[])"), 'P7002', "$end: it cannot be renewed");
	$a->query_safe($end);
	is($b->query_safe('SELECT count(*) FROM outbox.repair_expired_leases()'), $end eq 'COMMIT' ? '0' : '1', "$end: repaired, or not");
	is($b->query_safe("SELECT state FROM outbox.attempts WHERE outbox_id = '$id'"), $end eq 'COMMIT' ? 'DISPATCHED' : 'ZOMBIE_REQUEUE',
		"$end: one attempt, and the right one");
	$node->safe_psql('postgres', "SELECT outbox.cancel('$id', 'done', true)") if $end eq 'ROLLBACK';
}

# ---------------------------------------------------------------- a lease runs out while its completion waits

foreach my $call ("SELECT recorded FROM outbox.complete('%s', '%s', 'w1', 'RETRYABLE', retry_delay => '0')",
	"SELECT coalesce(error, 'recorded') FROM outbox.complete_batch('w1', ARRAY['%s']::uuid[], ARRAY['%s']::uuid[], ARRAY['DISPATCHED'])")
{
	my ($id, $lease) = (enqueue('waited'), 0.5);

	while (1)
	{
		my ($token, $expires) = split /\|/, $node->safe_psql('postgres', "SELECT lease_token, lease_expires_at FROM outbox.claim('w1', 1, '$lease s')");

		$a->query_safe("BEGIN; SELECT FROM outbox.pending WHERE outbox_id = '$id' FOR UPDATE");
		start_query($b, sprintf($call, $id, $token));
		my $blocked = $node->poll_query_until('postgres',
			"SELECT wait_event_type = 'Lock' OR state <> 'active' FROM pg_stat_activity WHERE pid = $b->{outbox_pid} AND query LIKE '%/* $b->{outbox_tag} */%'");
		my $waits = $node->safe_psql('postgres', "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $b->{outbox_pid}");

		until_past($a, $expires);
		$a->query_safe('ROLLBACK');
		my ($out, $err) = result_of($b);
		if ($waits eq 't')
		{
			like("$out $err", qr/LEASE_LOST|P7002/, "late, because it had to wait: " . substr($call, 0, 40));
			is($node->safe_psql('postgres', "SELECT count(*) FROM outbox.attempts WHERE outbox_id = '$id'"), '0', '... and nothing was recorded');
			is($node->safe_psql('postgres', 'SELECT lost_by FROM outbox.repair_expired_leases()'), 'w1', '... until it is repaired');
			$node->safe_psql('postgres', "SELECT outbox.cancel('$id', 'done')");
			last;
		}
		# It did not even begin within its lease.
		$node->safe_psql('postgres', "SELECT outbox.cancel('$id', 'too slow', true)");
		$id = enqueue('waited');
		$lease *= 2;
	}
}

# ---------------------------------------------------------------- VACUUM and waiting producers

$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('numbered', ordering => 'numbered');
	-- Dead rows and index entries, so that VACUUM has work in every table.
	BEGIN;
	SELECT count(*) FROM generate_series(1, 500) g, outbox.enqueue('gone', '1', 'numbered', partition_key => 'p' || g % 9, idempotency_key => 'gone ' || g);
	ROLLBACK;
	SELECT count(*) FROM generate_series(1, 500) g, outbox.enqueue('there', '1', 'numbered', partition_key => 'p' || g % 9, idempotency_key => 'there ' || g);
});
foreach my $wait ([ 'idempotency_key', "idempotency_key => 'there x'" ], [ 'numbered key', "partition_key => 'p1'" ])
{
	my ($what, $arguments) = @$wait;

	$a->query_safe("BEGIN; SELECT outbox.enqueue('first', '1', 'numbered', $arguments)");
	start_query($b, "SELECT sequence_id, created FROM outbox.enqueue('second', '1', 'numbered', $arguments)");
	wait_until_blocked($node, $b, $what);
	foreach my $table ('idempotency_keys', 'key_numbers', 'pending', 'messages', 'attempts')
	{
		is(sqlstate($node, "SET statement_timeout = '60s'; VACUUM (INDEX_CLEANUP ON, ANALYZE) outbox.$table"), '00000',
			"a producer that waits for a $what does not hold up VACUUM of $table");
	}
	$a->query_safe('ROLLBACK');
	my ($out, $err) = result_of($b);
	like($out, qr/^\d*\|t$/, '... and goes on afterwards');
	is($err, '', '... without an error');
}

$a->quit;
$b->quit;
consistent($node, 'consistent');
$node->stop('fast');
done_testing();
