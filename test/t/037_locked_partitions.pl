# Partitions that others lock: by ALTER TABLE of their parent, or one of them for long.
#
# Proves: with a lock_timeout below deadlock_timeout, as the reference advises, ALTER TABLE gives
# way, and the transaction beside it is not disturbed; without, one of the two gets 40P01, and no
# message is lost or doubled. A partition of the ledger that somebody has locked delays the repair
# of its own leases alone, by one wait for all of them.
use strict;
use warnings;

use OutboxTest;
use Test::More;

my $node = new_node('main', preload => 1, conf => 'outbox.worker = off');
my ($user, $owner) = (session($node), session($node));

# A message in the DEFAULT partition, whose time lies before all others, and dated partitions.
$node->safe_psql('postgres', q{
	INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, payload, headers, priority, created_at) VALUES ('00000000-0000-7000-8000-000000000000', 'default', '00000000-0000-7000-8000-000000000000', 'old', '1', '{}', 0, now());
	INSERT INTO outbox.pending (outbox_id, queue) SELECT outbox_id, queue FROM outbox.messages;
	SELECT count(*) FROM outbox.maintain()});

# The user holds the dated partition, ALTER TABLE the parent and the DEFAULT partition, and then
# the user needs that one.
sub meet
{
	my ($column, $lock_timeout) = @_;
	my $failed;

	$owner->query_safe("SET lock_timeout = '$lock_timeout'");
	$user->query_safe(q{BEGIN; SELECT outbox.enqueue('new', '1')});
	start_query($owner, "ALTER TABLE outbox.messages ADD COLUMN $column text");
	wait_until_blocked($node, $owner, 'ALTER TABLE') if $lock_timeout eq '0';
	$failed = $user->query(q{SELECT event_type FROM outbox.claim('w') ORDER BY 1 DESC LIMIT 1}) ne 'old';
	$failed ||= $user->{stderr} ne '';
	$user->{stderr} = '';
	# It waits for this transaction for as long as it may.
	$node->poll_query_until('postgres', "SELECT state <> 'active' FROM pg_stat_activity WHERE pid = $owner->{outbox_pid}") if $lock_timeout ne '0';
	$user->query('COMMIT');
	return ($failed, (result_of($owner))[1]);
}

# The user would wait for an hour before it looked for a deadlock: it is not the one that ends it.
$user->query_safe(q{SET deadlock_timeout = '1 h'});
my ($failed, $error) = meet('a', '100 ms');
ok(!$failed, 'a transaction beside an ALTER TABLE that gives way is not disturbed');
like($error, qr/canceling statement due to lock timeout/, '... and the ALTER TABLE says so');
is($node->safe_psql('postgres', 'SELECT count(*) FROM outbox.pending WHERE claimed_by IS NULL'), '0', '... both messages are leased');

$node->safe_psql('postgres', q{SELECT count(*) FROM outbox.pending p, outbox.release('w', ARRAY[p.outbox_id], ARRAY[p.lease_token])});
$user->query_safe('SET deadlock_timeout = 10');
($failed, $error) = meet('b', '0');
is(($failed ? 1 : 0) + ($error =~ /deadlock detected/ ? 1 : 0), 1, 'one that does not give way: a deadlock, which one of the two survives');

# ---------------------------------------------------------------- repair

$node->safe_psql('postgres', q{
	SELECT outbox.cancel(outbox_id, 'done', force => true) FROM outbox.pending;
	INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, payload, headers, priority, created_at)
	SELECT id, 'default', id, 'old', '1', '{}', 0, now() FROM generate_series(1, 5) n, LATERAL (SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid AS id) i;
	INSERT INTO outbox.pending (outbox_id, queue) SELECT outbox_id, queue FROM outbox.messages WHERE event_type = 'old' AND outbox_id > '00000000-0000-7000-8000-000000000000';
	SELECT outbox.enqueue('new', '1') FROM generate_series(1, 5);
	SELECT count(*) FROM outbox.claim('lost', 10, '1 us')});
$owner->query_safe('BEGIN; LOCK TABLE outbox.attempts_default');
$user->query_safe(q{SET lock_timeout = '100 ms'});
is($user->query(q{SELECT count(*) FROM outbox.repair_expired_leases()}), '5', 'the leases of other partitions than the locked one are repaired');
is_deeply([ sort map { s/^.*message \S+: //r } grep { /WARNING/ } split /\n/, $user->{stderr} ],
	[ 'canceling statement due to lock timeout', ('the partition of its ledger is locked') x 4 ], '... for which they have waited once');
$user->{stderr} = '';
$owner->query_safe('COMMIT');
is($user->query_safe(q{SELECT count(*) FROM outbox.repair_expired_leases()}), '5', '... and its own when the lock is gone');

$_->quit foreach $user, $owner;
consistent($node, 'nothing lost, nothing twice');
$node->stop('fast');
done_testing();
