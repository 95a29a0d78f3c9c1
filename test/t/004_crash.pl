# Crashes: the server stops at once, in the middle of everybody's transaction.
#
# Proves: what was committed is there, leases included, and completes under its token;
# what was open has left nothing, no number, no key, no lease; prepared transactions
# still hold what they held, and end as they are told; and under load, with a background
# worker and partitions being made, every committed business row has its message and every
# message its business row, also where claims commit asynchronously, and pg_amcheck finds
# no table or index damaged. (B39)
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed();
my $node = new_node('main');
my $partitions = q{SELECT count(*) FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relname ~ '_p\d{8}'};

# As a restore does, without partitions: so that maintenance has some to make.
$node->safe_psql('postgres', q{
	DROP EXTENSION outbox CASCADE;
	SET xmloption = content; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0;
	CREATE EXTENSION outbox});

# ---------------------------------------------------------------- open transactions

$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('numbered', ordering => 'numbered');
	SELECT outbox.create_queue('prepared');
	SELECT outbox.enqueue('m' || g, '1') FROM generate_series(1, 9) g;
	SELECT outbox.enqueue('n1', '1', 'numbered', partition_key => 'p', idempotency_key => 'n1');
	CREATE TABLE held AS SELECT event_type, outbox_id, lease_token FROM outbox.claim('holder', 6, '1 day');
});
my $before = checksums($node, 'postgres');

# Each of these is left open.
my @open = (
	q{SELECT outbox.enqueue('open', '1', idempotency_key => 'open')},
	q{SELECT outbox.enqueue('open', '1', 'numbered', partition_key => 'p')},
	q{SELECT outbox.claim('opener', 2)},
	q{SELECT outbox.complete(outbox_id, lease_token, 'holder', 'DISPATCHED') FROM held WHERE event_type = 'm1'},
	q{SELECT outbox.complete(outbox_id, lease_token, 'holder', 'RETRYABLE') FROM held WHERE event_type = 'm2'},
	q{SELECT outbox.renew('holder', ARRAY[outbox_id], ARRAY[lease_token], '2 days') FROM held WHERE event_type = 'm3'},
	q{SELECT outbox.cancel(outbox_id, 'no', true) FROM held WHERE event_type = 'm4'},
	q{SELECT outbox.create_queue('open')},
	q{SELECT count(*) FROM outbox.maintain()});
my @sessions;

foreach my $sql (@open)
{
	my $session = session($node);

	$session->query_safe("BEGIN; $sql");
	push @sessions, $session;
}
$node->stop('immediate');
# psql finds out that its server is gone.
foreach my $session (@sessions)
{
	eval { $session->quit };
}
$node->start;
is_deeply(checksums($node, 'postgres'), $before, 'open transactions leave nothing behind');
consistent($node, 'consistent after the crash');

# One that is alone, for it attaches no partition while others are at the DEFAULT ones.
my $maintaining = session($node);

$maintaining->query_safe('BEGIN; SELECT count(*) FROM outbox.maintain()');
cmp_ok($maintaining->query_safe($partitions), '>', 0, 'an open maintain() has made partitions');
$node->stop('immediate');
eval { $maintaining->quit };
$node->start;
is($node->safe_psql('postgres', $partitions), '0', '... and leaves none behind');
is_deeply(checksums($node, 'postgres'), $before, '... nor anything else');
consistent($node, 'consistent after that crash');
is($node->safe_psql('postgres', q{SELECT sequence_id FROM outbox.enqueue('n2', '1', 'numbered', partition_key => 'p')}), '2', 'no number was used up');
is($node->safe_psql('postgres', q{SELECT created FROM outbox.enqueue('n1', '1', 'numbered', partition_key => 'p', idempotency_key => 'n1')}),
	'f', 'keys are known');
is($node->safe_psql('postgres', q{SELECT created FROM outbox.enqueue('open', '1', idempotency_key => 'open')}), 't', 'nor a key');
is($node->safe_psql('postgres',
		q{SELECT c.attempt_no, c.recorded FROM held, outbox.complete(outbox_id, lease_token, 'holder', 'DISPATCHED') c WHERE event_type = 'm1'}),
	'1|DISPATCHED', 'a lease survives, and its token completes');

# ---------------------------------------------------------------- prepared transactions

my $prepare = sub {
	my ($name, $sql) = @_;

	$node->safe_psql('postgres', "BEGIN; $sql; PREPARE TRANSACTION '$name'");
};
$prepare->('enqueue', q{SELECT outbox.enqueue('prepared', '1', 'prepared', idempotency_key => 'p')});
$prepare->('number', q{SELECT outbox.enqueue('prepared', '1', 'numbered', partition_key => 'p')});
$prepare->('complete', q{SELECT outbox.complete(outbox_id, lease_token, 'holder', 'DISPATCHED') FROM held WHERE event_type = 'm5'});
$prepare->('claim', q{SELECT outbox.claim('preparer', 1)});
$prepare->('cancel', q{SELECT outbox.cancel(outbox_id, 'no', true) FROM held WHERE event_type = 'm6'});
my $claimed = $node->safe_psql('postgres', q{SELECT count(*) FROM outbox.claim('other', 100)});

cmp_ok($claimed, '>', 0, 'a claim passes by what prepared transactions hold');
$node->safe_psql('postgres', q{SELECT outbox.release('other', array_agg(outbox_id), array_agg(lease_token)) FROM outbox.pending WHERE claimed_by = 'other'});
foreach my $round ('before', 'after')
{
	my %expected = (
		"SELECT outbox.enqueue('again', '1', 'prepared', idempotency_key => 'p')" => '55P03',
		"SELECT outbox.enqueue('next', '1', 'numbered', partition_key => 'p')" => '55P03',
		"SELECT outbox.drop_queue('prepared')" => '55006',
		"SELECT outbox.complete(outbox_id, lease_token, 'holder', 'FAILED') FROM held WHERE event_type = 'm5'" => '55P03',
		"SELECT outbox.cancel(outbox_id, 'again', true) FROM held WHERE event_type = 'm6'" => '55P03');

	foreach my $sql (sort keys %expected)
	{
		is(sqlstate($node, "SET lock_timeout = '10ms'; $sql"), $expected{$sql}, "$round the crash: $sql");
	}
	is($node->safe_psql('postgres', q{SELECT r.error FROM held, outbox.renew('holder', ARRAY[outbox_id], ARRAY[lease_token]) r WHERE event_type = 'm5'}),
		'55P03', "$round the crash: renew does not wait");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.claim('other', 100)}), $claimed, "$round the crash: claim neither");
	$node->safe_psql('postgres', q{SELECT outbox.release('other', array_agg(outbox_id), array_agg(lease_token)) FROM outbox.pending WHERE claimed_by = 'other'});
	if ($round eq 'before')
	{
		$node->stop('immediate');
		$node->start;
	}
}
$node->safe_psql('postgres', "COMMIT PREPARED '$_'") foreach 'enqueue', 'complete';
$node->safe_psql('postgres', "ROLLBACK PREPARED '$_'") foreach 'number', 'claim', 'cancel';
is($node->safe_psql('postgres', q{SELECT created FROM outbox.enqueue('again', '1', 'prepared', idempotency_key => 'p')}), 'f', 'committed: its key is known');
is($node->safe_psql('postgres', q{SELECT event_type FROM outbox.claim('w', queues => ARRAY['prepared'])}), 'prepared', '... and it is claimed');
is($node->safe_psql('postgres', q{SELECT sequence_id FROM outbox.enqueue('next', '1', 'numbered', partition_key => 'p')}), '3', 'rolled back: its number is free');
is($node->safe_psql('postgres', q{SELECT a.state, p.outbox_id FROM held JOIN outbox.attempts a USING (outbox_id) LEFT JOIN outbox.pending p USING (outbox_id) WHERE event_type = 'm5'}),
	'DISPATCHED|', 'a prepared completion, committed');
is($node->safe_psql('postgres', q{SELECT c.attempt_no FROM held, outbox.complete(outbox_id, lease_token, 'holder', 'DISPATCHED') c WHERE event_type = 'm6'}),
	'1', 'a prepared cancellation, rolled back: the lease is good');
consistent($node, 'consistent after prepared transactions');

# ---------------------------------------------------------------- under load

$node->append_conf('postgresql.conf', "shared_preload_libraries = 'outbox'\noutbox.poll_interval = '100ms'");
$node->restart;
make_load($node, 'postgres', 'numbered');
$node->safe_psql('postgres', q{
	SELECT count(outbox.cancel(outbox_id, 'cleared', true)) FROM outbox.pending WHERE queue = 'numbered';
});
my $script = $node->basedir . '/load.sql';
append_to_file($script, q{
\set key random(1, 5)
\set n random(1, 4)
\set outcome random(0, 1000)
BEGIN;
SELECT produce('load ' || :key);
SELECT produce('load ' || :key);
COMMIT;
SELECT work('w' || :client_id, :n, :outcome);
SELECT outbox.claim('leaves it', 1, '100 ms', ARRAY['numbered']);
SELECT count(*) FROM outbox.repair_expired_leases(10);
});
foreach my $round (1 .. 4)
{
	my $wanted = $node->safe_psql('postgres', 'SELECT count(*) FROM business') + 100 + int(rand(300));
	my ($out, $err) = ('', '');
	# In every other round the crash may take leases back.
	local $ENV{PGOPTIONS} = $round % 2 ? '' : '-c outbox.async_claim=on';
	my $load = IPC::Run::start(
		[ 'pgbench', '-n', '-c', '4', '-j', '1', '-T', '600', '--random-seed', $seed + $round, '-f', $script, $node->connstr('postgres') ],
		'<', \undef, '>', \$out, '2>', \$err);

	$node->poll_query_until('postgres', "SELECT count(*) >= $wanted FROM business") or die "no load: $err";
	$node->stop('immediate');
	$load->finish;
	unlike($err, qr/ERROR:/, "round $round: no error but the loss of the server");
	$node->start;
	load_is_told($node, "round $round: each business row has its message, each message its row");
	consistent($node, "round $round: consistent");
	undamaged($node, "round $round: nothing damaged");
}
# If no round left maintenance the time for it, it takes it now that somebody has enqueued.
$node->safe_psql('postgres', q{SELECT outbox.enqueue('late', '1')});
ok($node->poll_query_until('postgres', "SELECT ($partitions) > 0"),
	'partitions are made');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.attempts WHERE recorded_by = 'outbox worker'}), '>', 0,
	'leases were repaired meanwhile');

# Every lease that is left runs out, is repaired, and everything ends.
configure($node, 'outbox.worker' => 'off');
wait_for_no_worker($node, 'postgres');
$node->safe_psql('postgres', q{UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE claimed_by IS NOT NULL});
my $lost = $node->safe_psql('postgres', q{SELECT count(*) FROM outbox.pending WHERE claimed_by IS NOT NULL});
is($node->safe_psql('postgres', 'SELECT count(*) FROM outbox.repair_expired_leases(1000000)'), $lost, 'leases of before the crashes are repaired');
$node->safe_psql('postgres', q{
	UPDATE outbox.pending SET next_attempt_at = clock_timestamp();
	WITH held AS MATERIALIZED (SELECT * FROM outbox.claim('last', 1000000, queues => (SELECT array_agg(queue) FROM outbox.queues)))
	SELECT outbox.complete(outbox_id, lease_token, 'last', 'DISPATCHED') FROM held});
is($node->safe_psql('postgres', 'SELECT count(*) FROM outbox.pending'), '0', 'and everything can be delivered');
consistent($node, 'consistent in the end');

$node->stop('fast');
done_testing();
