# No page stays pinned while a lock is waited for.
#
# Proves: whatever a call waits for, VACUUM does not wait for the call: neither for a page of
# an index nor for one of a table (FREEZE waits for those). So no deadlock can arise that the
# server does not see, because one of its waits is for a pin: VACUUM for a call, ALTER TABLE
# for VACUUM, and the call for the transaction that alters the table. What VACUUM makes a session forget of a table
# is looked up once, also within a transaction.
#
# The library with stop points also ends the server where a lock is taken with a probe standing
# on a row, whether it has to be waited for or not: all tests of its kind prove this.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.worker = off\nautovacuum = off");
my ($owner, $caller, $cleaner) = map { session($node) } 1 .. 3;

$node->safe_psql('postgres', q{SELECT outbox.alter_queue('default', repair_delay => '0', backoff_base => '0');
	SELECT outbox.create_queue('numbered', ordering => 'numbered')});

# Finished rows and their entries, which VACUUM can remove at once, and twelve messages; with
# 'leased' they are leased to worker w, with 'lost' the lease is over.
sub fill
{
	my ($state) = @_;
	my $lease = { leased => '1 h', lost => '1 us' }->{$state};

	$node->safe_psql('postgres', q{SELECT outbox.cancel(outbox_id, 'done', force => true) FROM outbox.pending});
	$node->safe_psql('postgres', qq{SELECT outbox.enqueue_batch('default', (SELECT jsonb_agg('{"event_type": "e", "payload": 1}'::jsonb) FROM generate_series(1, $_)));
		SELECT outbox.cancel(outbox_id, 'done') FROM outbox.pending WHERE 12 > $_}) foreach 5, 12;
	$node->safe_psql('postgres', "SELECT count(*) FROM outbox.claim('w', 12, '$lease')") if $lease;
	return;
}

my $ids = q{(SELECT array_agg(outbox_id ORDER BY outbox_id) FROM outbox.pending)};
my $tokens = q{(SELECT array_agg(lease_token ORDER BY outbox_id) FROM outbox.pending)};
my $states = q{(SELECT array_agg('DISPATCHED'::outbox.attempt_state) FROM outbox.pending)};

# Runs a call that waits for what the owner's transaction holds, and VACUUM meanwhile.
sub vacuum_beside
{
	my ($name, $holds, $call, $table) = @_;
	my $wait;

	$owner->query_safe("BEGIN; $holds");
	start_query($caller, $call);
	wait_until_blocked($node, $caller, $name);
	start_query($cleaner, "VACUUM (FREEZE, INDEX_CLEANUP on, TRUNCATE off) $table");
	$node->poll_query_until('postgres', "SELECT state = 'idle' OR wait_event = 'BufferPin' FROM pg_stat_activity WHERE pid = $cleaner->{outbox_pid}") or die;
	$wait = $node->safe_psql('postgres', "SELECT wait_event FROM pg_stat_activity WHERE pid = $cleaner->{outbox_pid} AND state <> 'idle'");
	return is($wait, '', '... and VACUUM does not wait for it');
}

sub end_of
{
	my ($expected, $name) = @_;

	$owner->query_safe('COMMIT');
	result_of($cleaner);
	my ($output, $error) = result_of($caller);
	return is($output . $error, $expected, "... $name");
}

# ---------------------------------------------------------------- leaves, and the way round

fill('due');
if (vacuum_beside('a claim for a leaf of messages', 'LOCK TABLE outbox.messages', q{SELECT count(*) FROM outbox.claim('w', 12)}, 'outbox.pending'))
{
	# This is what waits for VACUUM.
	$owner->query_safe('ALTER TABLE outbox.pending SET (parallel_workers = 0)');
}
end_of('12', 'and the transaction that holds the leaf may alter pending');

fill('lost');
vacuum_beside('a claim of lost leases for a leaf of the ledger', 'LOCK TABLE outbox.attempts', q{SELECT count(*) FROM outbox.claim('w', 12)}, 'outbox.pending');
end_of('12', 'it ends');

fill('lost');
vacuum_beside('repair for a leaf of the ledger', 'LOCK TABLE outbox.attempts', q{SELECT count(*) FROM outbox.repair_expired_leases(12)}, 'outbox.pending');
end_of('12', 'it ends');

foreach my $parent ('messages', 'attempts')
{
	my $reindex = $node->safe_psql('postgres', qq{SELECT string_agg('REINDEX INDEX ' || indexrelid::regclass, '; ') FROM pg_index JOIN pg_inherits ON inhrelid = indrelid
		WHERE indisprimary AND inhparent = 'outbox.$parent'::regclass});

	fill('lost');
	vacuum_beside("a claim for an index of $parent", $reindex, q{SELECT count(*) FROM outbox.claim('w', 12)}, 'outbox.pending');
	end_of('12', 'it ends');
}

fill('leased');
my $lease = $node->safe_psql('postgres', q{SELECT format('%L, %L', outbox_id, lease_token) FROM outbox.pending LIMIT 1});
vacuum_beside('a completion', 'LOCK TABLE outbox.attempts', "SELECT attempt_no FROM outbox.complete($lease, 'w', 'DISPATCHED')", 'outbox.pending');
end_of('1', 'it ends');

foreach my $call (
	[ 'a batch of completions', "outbox.complete_batch('w', $ids, $tokens, $states)" ],
	[ 'complete_and_claim', "outbox.complete_and_claim('w', $ids, $tokens, $states)" ])
{
	fill('leased');
	vacuum_beside($call->[0], 'LOCK TABLE outbox.attempts', "SELECT count(*) FROM $call->[1]", 'outbox.pending');
	end_of('12', 'it ends');
}

foreach my $verb ('renew', 'release')
{
	fill('leased');
	vacuum_beside("$verb for pending", 'LOCK TABLE outbox.pending', "SELECT count(*) FROM outbox.$verb('w', $ids, $tokens)", 'outbox.idempotency_keys');
	end_of('12', 'it ends');
}
fill('leased');
vacuum_beside('renew for the queue', 'LOCK TABLE outbox.queues', "SELECT count(*) FROM outbox.renew('w', $ids, $tokens)", 'outbox.pending');
end_of('12', 'it ends');

fill('due');
vacuum_beside('cancel for a leaf of the ledger', 'LOCK TABLE outbox.attempts',
	"SELECT outbox.cancel($ids\[1], 'no need')", 'outbox.pending');
end_of('1', 'it ends');

# ---------------------------------------------------------------- keys

# Of many keys one is taken; the tables have finished rows of each.
sub batch
{
	my ($name) = @_;

	return "SELECT count(*) FROM outbox.enqueue_batch('numbered', (SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', 1, '$name', n::text)) FROM generate_series(1, 21) n))";
}

foreach my $name ('idempotency_key', 'partition_key')
{
	my $table = { idempotency_key => 'outbox.idempotency_keys', partition_key => 'outbox.key_numbers' }->{$name};

	$node->safe_psql('postgres', "BEGIN; ${\ batch($name)}; ROLLBACK");
	vacuum_beside("a batch for its $name", "SELECT outbox.enqueue('e', '1', 'numbered', $name => '21')", batch($name), $table);
	end_of('21', 'it ends');
}

# A key that has lapsed, and that maintenance is about to forget.
$node->safe_psql('postgres', q{BEGIN; SELECT outbox.enqueue('e', '1', idempotency_key => k) FROM unnest('{old, older}'::text[]) k; ROLLBACK});
$node->safe_psql('postgres', q{SELECT outbox.enqueue('e', '1', idempotency_key => k) FROM unnest('{old, older}'::text[]) k});
$node->safe_psql('postgres', q{UPDATE outbox.idempotency_keys SET outbox_id = '00000000-0000-7000-8000-000000000000'});
$caller->query_safe(q{SET outbox.idempotency_window = '1 h'});
vacuum_beside('a lapsed key', 'SELECT FROM outbox.idempotency_keys FOR UPDATE', q{SELECT created FROM outbox.enqueue('e', '1', idempotency_key => 'old')}, 'outbox.key_numbers');
end_of('t', 'it ends');

fill('due');
my $dead = $node->safe_psql('postgres', q{SELECT outbox_id FROM outbox.attempts LIMIT 1});
$node->safe_psql('postgres', "BEGIN; SELECT outbox.replay('$dead'); ROLLBACK");
vacuum_beside('a replay', "SELECT outbox.replay('$dead')", "SELECT outbox.replay('$dead')", 'outbox.replays');
$owner->query_safe('ROLLBACK');
result_of($cleaner);
like(scalar result_of($caller), qr/^[0-9a-f-]{36}$/, '... it ends');

# ---------------------------------------------------------------- queues

vacuum_beside('alter_queue for pending', 'LOCK TABLE outbox.pending', q{SELECT outbox.alter_queue('default', max_attempts => 5)}, 'outbox.queues');
end_of('', 'it ends');

# ---------------------------------------------------------------- what VACUUM makes a session forget

make_stop_points($node);
$caller->query_safe('BEGIN');
$caller->query_safe(q{SELECT outbox.enqueue('before', '1')});
$node->safe_psql('postgres', 'VACUUM (TRUNCATE off) outbox.pending');
$caller->query_safe(q{SELECT outbox.enqueue('after', '1')});
act_at($node, 'table_looked_over', '58030', $caller->{outbox_pid});
is($caller->query_safe(q{SELECT count(*) FROM generate_series(1, 9) n, outbox.enqueue('then', to_jsonb(n))}), '9',
	'a transaction looks a table over once after a VACUUM, and not in each call');
$node->safe_psql('postgres', 'VACUUM (TRUNCATE off) outbox.pending');
$caller->{stderr} = '';
$caller->query(q{SELECT outbox.enqueue('again', '1')});
like($caller->{stderr}, qr/stop point "table_looked_over" fails/, '... as it does after the next one');
release($node, 'table_looked_over');
$caller->{stderr} = '';
$caller->query_safe('ROLLBACK');

$_->quit foreach $owner, $caller, $cleaner;
$node->stop('fast');
done_testing();
