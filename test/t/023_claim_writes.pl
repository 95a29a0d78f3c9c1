# What a claim writes, read from the WAL by logical decoding: nothing can be written that is
# not seen there.
#
# Proves: in flight is a lease. Whatever way something is claimed, by the core or by a
# contract, each message costs one UPDATE of its row of pending and nothing else: no row of
# pending is deleted (or deleted and written again), and none is appended to attempts. There
# is one exception, which is the contract: a lease that the claim finds lost is recorded,
# with exactly one row; and a message that ends by that, or by a ceiling that was lowered,
# leaves pending.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => 'wal_level = logical');
my $payment = q{'{"amount": 12.5, "currency": "EUR", "destination": "DE02"}'};

$node->safe_psql('postgres', q{
	CREATE EXTENSION outbox_payment;
	CREATE EXTENSION outbox_m10;
	SELECT outbox.maintain();
	-- Only what the test lets expire does.
	SELECT outbox.alter_queue('default', lease => '1 day');
	SELECT outbox.create_queue('n', ordering => 'numbered', lease => '1 day');
	SELECT outbox.create_queue('once', max_attempts => 1);
	SELECT outbox.create_queue('lowered');
	SELECT pg_create_logical_replication_slot('writes', 'test_decoding');
});

# What was written since the last call, by table and command, attempts by their state too;
# partitions as the tables they are of.
sub written
{
	my %count;
	my $changes = $node->safe_psql('postgres', q{SELECT data FROM pg_logical_slot_get_changes('writes', NULL, NULL, 'include-xids', '0')});

	foreach my $line (split /\n/, $changes)
	{
		my ($table, $command, $row) = $line =~ /^table ([^:]+): ([A-Z]+): (.*)/ or next;
		my ($state) = $row =~ /\bstate\[outbox\.attempt_state\]:'(\w+)'/;

		$table =~ s/(messages|attempts)_(p\d+|default)$/$1/;
		$count{ join ' ', grep { defined } $command, $table, $table eq 'outbox.attempts' ? $state : undef }++;
	}
	return \%count;
}

# A statement in a transaction of its own returns so many rows, and writes just that.
sub writes
{
	my ($name, $statement, $rows, $expected) = @_;

	written();
	is($node->safe_psql('postgres', "SELECT count(*) FROM $statement"), $rows, "$name: $rows");
	is_deeply(written(), $expected, "$name: " . (join(', ', map { "$expected->{$_} $_" } sort keys %$expected) || 'nothing') . ' written');
	return;
}

sub prepare
{
	$node->safe_psql('postgres', $_[0]);
	return;
}

# ---------------------------------------------------------------- the instrument

# A claim as it must not be is seen to be that.
prepare(q{
	ALTER TABLE outbox.pending DISABLE TRIGGER pending_changed;
	SELECT outbox.enqueue('e', '1') FROM generate_series(1, 2);
	CREATE FUNCTION wrong_claim() RETURNS SETOF uuid LANGUAGE sql AS $$
		INSERT INTO outbox.attempts (outbox_id, attempt_no, state) SELECT outbox_id, 1, 'RETRYABLE' FROM outbox.pending;
		DELETE FROM outbox.pending RETURNING outbox_id $$});
writes('a wrong claim', 'wrong_claim()', 2, { 'INSERT outbox.attempts RETRYABLE' => 2, 'DELETE outbox.pending' => 2 });

# ---------------------------------------------------------------- the core

prepare(q{
	ALTER TABLE outbox.pending ENABLE ALWAYS TRIGGER pending_changed;
	SELECT outbox.enqueue('e', '1', priority => n % 3) FROM generate_series(1, 20) n;
	SELECT outbox.enqueue('e', '1', 'n', partition_key => 'k', idempotency_key => n::text) FROM generate_series(1, 20) n});
writes('one', q{outbox.claim('w', 1)}, 1, { 'UPDATE outbox.pending' => 1 });
writes('a batch', q{outbox.claim('w', 7)}, 7, { 'UPDATE outbox.pending' => 7 });
writes('of two queues', q{outbox.claim('w', 20, queues => '{n, default}')}, 20, { 'UPDATE outbox.pending' => 20 });
writes('with wait', q{outbox.claim('w', 100, wait => '1 hour')}, 12, { 'UPDATE outbox.pending' => 12 });
writes('nothing there', q{outbox.claim('w', 100, queues => '{default, n}')}, 0, {});
prepare(q{SELECT outbox.enqueue('e', '1') FROM generate_series(1, 3)});
writes('complete_and_claim', q{(SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens FROM outbox.claim('w', 1)) h,
	LATERAL outbox.complete_and_claim('w', ids, tokens, '{DISPATCHED}')}, 3,
	{ 'INSERT outbox.attempts DISPATCHED' => 1, 'DELETE outbox.pending' => 1, 'UPDATE outbox.pending' => 3 });
# As workers have it when somebody added an index: row by row, in subtransactions.
prepare(q{
	CREATE INDEX mine ON outbox.pending (claimed_at);
	SELECT outbox.enqueue('e', '1') FROM generate_series(1, 5)});
writes('beside an index of others', q{outbox.claim('w', 5)}, 5, { 'UPDATE outbox.pending' => 5 });
prepare('DROP INDEX outbox.mine');
# Undone, nothing remains.
prepare(q{SELECT outbox.enqueue('e', '1')});
written();
prepare(q{BEGIN; SELECT outbox.claim('w'); ROLLBACK});
is_deeply(written(), {}, 'rolled back: nothing is written');
prepare(q{BEGIN; SAVEPOINT s; SELECT outbox.claim('w'); ROLLBACK TO s; SELECT outbox.claim('w'); COMMIT});
is_deeply(written(), { 'UPDATE outbox.pending' => 1 }, 'rolled back to a savepoint: once');
prepare(q{CALL outbox.wait_for_work('1 ms')});
is_deeply(written(), {}, 'waiting for work writes nothing');

# Born leased.
writes('enqueue_and_claim', q{outbox.enqueue_and_claim('w', 'e', '1') WHERE lease_token IS NOT NULL}, 1,
	{ 'INSERT outbox.messages' => 1, 'INSERT outbox.pending' => 1 });
writes('enqueue_and_claim with key and number', q{outbox.enqueue_and_claim('w', 'e', '1', 'n', partition_key => 'new', idempotency_key => 'k') WHERE lease_token IS NOT NULL}, 1,
	{ 'INSERT outbox.messages' => 1, 'INSERT outbox.pending' => 1, 'INSERT outbox.idempotency_keys' => 1, 'INSERT outbox.key_numbers' => 1 });
writes('enqueue_and_claim of a duplicate', q{outbox.enqueue_and_claim('w', 'e', '1', 'n', partition_key => 'new', idempotency_key => 'k') WHERE lease_token IS NULL}, 1, {});

# ---------------------------------------------------------------- what was lost

# In one statement: leases that are lost, and others that nobody holds.
prepare(q{
	ALTER TABLE outbox.pending DISABLE TRIGGER pending_changed; DELETE FROM outbox.pending; ALTER TABLE outbox.pending ENABLE ALWAYS TRIGGER pending_changed;
	SELECT outbox.enqueue_and_claim('gone', 'lost', '1') FROM generate_series(1, 3);
	UPDATE outbox.pending SET lease_expires_at = claimed_at;
	SELECT outbox.enqueue('e', '1') FROM generate_series(1, 4)});
my $lost = $node->safe_psql('postgres', q{SELECT outbox_id FROM outbox.pending WHERE claimed_by = 'gone' ORDER BY 1});
written();
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.claim('w', 100)}), 7, 'three lost leases among seven: 7');
my $found = written();
is($found->{'INSERT outbox.attempts ZOMBIE_REQUEUE'}, 3, '... one row each for what was lost');
is($found->{'DELETE outbox.pending'}, undef, '... nothing is deleted');
delete @$found{ 'INSERT outbox.attempts ZOMBIE_REQUEUE', 'UPDATE outbox.pending' };
is_deeply($found, {}, '... and nothing else is written');
is($node->safe_psql('postgres', q{SELECT outbox_id FROM outbox.attempts WHERE state = 'ZOMBIE_REQUEUE' AND error_code = 'LEASE_EXPIRED' AND worker_id = 'gone' ORDER BY 1}),
	$lost, '... and they are of these');
writes('again', q{outbox.claim('w', 100)}, 0, {});

# A message that ends: here, and nowhere else, its row goes.
prepare(q{
	SELECT outbox.enqueue_and_claim('gone', 'lost', '1', 'once');
	UPDATE outbox.pending SET lease_expires_at = claimed_at WHERE queue = 'once'});
writes('a lost lease at the ceiling', q{outbox.claim('w', 100, queues => '{once}')}, 0,
	{ 'INSERT outbox.attempts FAILED' => 1, 'INSERT outbox.dead' => 1, 'DELETE outbox.pending' => 1 });
prepare(q{
	SELECT outbox.complete(outbox_id, lease_token, 'w', 'RETRYABLE', retry_delay => '0')
	FROM outbox.enqueue_and_claim('w', 'e', '1', 'lowered');
	SELECT outbox.alter_queue('lowered', max_attempts => 1);
	SELECT outbox.enqueue('e', '1', 'lowered')});
writes('a ceiling that was lowered', q{outbox.claim('w', 100, queues => '{lowered}')}, 1,
	{ 'INSERT outbox.attempts FAILED' => 1, 'INSERT outbox.dead' => 1, 'DELETE outbox.pending' => 1, 'UPDATE outbox.pending' => 1 });

# ---------------------------------------------------------------- the contracts

prepare(qq{
	SELECT enqueue_payment_outbox('i' || n, 'p' || n % 2, 'k', 'rail', $payment) FROM generate_series(1, 6) n;
	SELECT m10_recovery.publish_outbox('a', n::text, 'event', '1') FROM generate_series(1, 6) n});
writes('payments', q{claim_outbox_batch(4, 'payer', 60)}, 4, { 'UPDATE outbox.pending' => 4 });
writes('events', q{m10_recovery.claim_outbox_events('p', 4)}, 4, { 'UPDATE outbox.pending' => 4 });
prepare(q{SELECT outbox.enqueue('event', '1', 'm10') FROM generate_series(1, 3)});
writes('events that have no id yet', q{m10_recovery.claim_outbox_events('p', 10)}, 5, { 'UPDATE outbox.pending' => 5, 'INSERT m10_recovery.event_ids' => 3 });
prepare(q{UPDATE outbox.pending SET lease_expires_at = claimed_at WHERE queue IN ('payment', 'm10')});
foreach my $case ([ 'payments', q{claim_outbox_batch(10, 'payer 2', 60)}, 6, 4 ], [ 'events', q{m10_recovery.claim_outbox_events('p 2', 10)}, 9, 9 ])
{
	my ($name, $claim, $rows, $lost) = @$case;

	written();
	is($node->safe_psql('postgres', "SELECT count(*) FROM $claim"), $rows, "lost $name: $rows");
	my $found = written();
	is($found->{'INSERT outbox.attempts ZOMBIE_REQUEUE'}, $lost, "lost $name: one row for each lost lease");
	is_deeply([ grep { !/^UPDATE outbox\.pending$|ZOMBIE_REQUEUE$/ } keys %$found ], [], "lost $name: nothing else but updates of pending");
}

$node->stop('fast');
done_testing();
