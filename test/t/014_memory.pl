# The memory of the background worker, and of a session, does not grow with what they do.
#
# Its wake-ups are, in turn, notifications, repairs of expired leases, repairs that fail (a
# CHECK refuses them), and idle: a message that is due long after is announced, each a little
# earlier than the last, and the worker lays its alarm clock back. After a warm-up, many times
# as many add less than a megabyte, by the kernel's count and by that of its memory contexts.
#
# The C library keeps some of what a step needed and gave back, more or less of it as chance
# will have it: megabytes that come and go. Here it is told to return each block at once, so
# that the kernel counts what is in use.
#
# A session that enqueues, claims, completes, and is refused, holds as much after many such
# transactions as after few; one that waits, after many looks in vain as after few. Nor does a
# single claim or repair grow with the rows that it passes by, leases, or repairs.
#
# OUTBOX_SOAK: how many wake-ups; 200,000 is what a release is tried with.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $wakeups = $ENV{OUTBOX_SOAK} // 12000;
my $most_growth = 1024 * 1024;
my $a_chunk = 4 * $most_growth;	# a thousand rows in hand
local $ENV{MALLOC_MMAP_THRESHOLD_} = 8192;
local $ENV{MALLOC_MMAP_MAX_} = 100_000;
local $ENV{MALLOC_TRIM_THRESHOLD_} = 0;
local $ENV{MALLOC_TOP_PAD_} = 0;
my $node = new_node('main', conf => q{
shared_preload_libraries = 'outbox'
outbox.notify_gather = 0
outbox.poll_interval = 1h
fsync = off
});
my $worker = "FROM outbox.workers WHERE kind = 'worker' AND pid IS NOT NULL";

$node->poll_query_until('postgres', "SELECT count(*) = 1 $worker") or die 'no worker';
my $pid = $node->safe_psql('postgres', "SELECT pid $worker");

$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('lost', max_attempts => NULL, repair_delay => '1 year');
	SELECT outbox.create_queue('bad', max_attempts => NULL);
	SELECT outbox.create_queue('quiet');
	CREATE SEQUENCE earlier;
	CREATE TABLE start AS SELECT clock_timestamp() AS at;
	ALTER TABLE outbox.attempts ADD CHECK (worker_id <> 'bad') NOT VALID;
});

# What a client does many times over, to keep the worker busy in each of its ways.
my @scripts = map { my ($name, $sql) = @$_; my $file = "$PostgreSQL::Test::Utils::tmp_check/$name.sql";
	PostgreSQL::Test::Utils::append_to_file($file, "$sql;\n"); $file } (
	[ 'notified', q{SELECT outbox.enqueue('e', '1')} ],
	[ 'repaired', q{SELECT outbox.enqueue_and_claim('w', 'e', '1', 'lost', lease => '1 microsecond')} ],
	[ 'idle', q{SELECT outbox.enqueue('e', '1', deliver_at => at + interval '59 min' - nextval('earlier') * interval '1 ms') FROM start} ],
	[ 'failing', q{SELECT outbox.enqueue_and_claim('bad', 'e', '1', 'bad', lease => '1 microsecond')} ]);

sub counted
{
	return $node->safe_psql('postgres', "SELECT wakeups $worker");
}

# Until the worker has woken that often.
sub wake_until
{
	my ($target) = @_;

	while (counted() < $target)
	{
		$node->command_ok([ 'pgbench', '-n', '-c', '2', '-t', '250', '-f', $_, 'postgres' ], "wake-ups by $_")
			foreach @scripts;
	}
	return;
}

# What it has for itself: anonymous memory, in bytes.
sub resident
{
	my ($kilobytes) = PostgreSQL::Test::Utils::slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+) kB/m;

	return $kilobytes * 1024;
}

# What its memory contexts hold.
sub held
{
	my ($of) = @_;
	my $from = -s $node->logfile;

	$of //= $pid;
	$node->safe_psql('postgres', "SELECT pg_log_backend_memory_contexts($of)");
	$node->wait_for_log(qr/Grand total: \d+ bytes/, $from);
	my ($bytes) = PostgreSQL::Test::Utils::slurp_file($node->logfile, $from) =~ /Grand total: (\d+) bytes/;

	return $bytes;
}

wake_until(3000);
my ($resident, $held, $before) = (resident(), held(), counted());

wake_until($before + $wakeups);
cmp_ok(resident() - $resident, '<', $most_growth, "its memory does not grow in $wakeups wake-ups");
cmp_ok(held() - $held, '<', $most_growth, '... nor do its memory contexts');
is($node->safe_psql('postgres', "SELECT pid $worker"), $pid, '... and it is the same process');
is($node->safe_psql('postgres', "SELECT repaired > 0 AND unrepaired > 0 AND notified > 0 $worker"), 't',
	'... which has notified, repaired, and failed to repair');

$node->safe_psql('postgres', q{
	CREATE PROCEDURE work(transactions int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. transactions LOOP
			PERFORM outbox.enqueue('e', '1', idempotency_key => random()::text, partition_key => 'p' || i % 100);
			BEGIN
				PERFORM outbox.enqueue('e', '1', 'nowhere');
			EXCEPTION WHEN sqlstate 'P7004' THEN NULL;
			END;
			PERFORM outbox.complete_batch('w', array_agg(outbox_id), array_agg(lease_token),
				array_agg(CASE WHEN i % 2 = 0 THEN 'DISPATCHED' ELSE 'RETRYABLE' END::outbox.attempt_state))
			FROM outbox.claim('w', 5) HAVING count(*) > 0;
			BEGIN
				PERFORM outbox.complete(gen_random_uuid(), gen_random_uuid(), 'w', 'DISPATCHED');
			EXCEPTION WHEN sqlstate 'P7002' THEN NULL;
			END;
			COMMIT;
		END LOOP;
	END $$;
});
my @bytes = split /\s+/, $node->safe_psql('postgres', sprintf(q{
	CALL work(500);
	SELECT sum(total_bytes) FROM pg_backend_memory_contexts;
	CALL work(%d);
	SELECT sum(total_bytes) FROM pg_backend_memory_contexts;
}, $wakeups / 8));

is(scalar @bytes, 2, 'a session has worked, and measured itself');
cmp_ok($bytes[1] - $bytes[0], '<', 64 * 1024, '... and holds no more for it');

# Each notification, of whatever queue, has those who wait look.
foreach my $wait (q{SELECT outbox.claim('w', 1, queues => ARRAY['quiet'], wait => '1 h')}, q{CALL outbox.wait_for_work('1 h', ARRAY['quiet'])})
{
	my $session = session($node);
	my $before;

	start_query($session, $wait);
	for my $round (0 .. 4)
	{
		$node->command_ok([ 'pgbench', '-n', '-c', '1', '-t', '500', '-f', $scripts[0], 'postgres' ], 'others are notified');
		$before = held($session->{outbox_pid}) if $round == 0;
	}
	cmp_ok(held($session->{outbox_pid}) - $before, '<', 64 * 1024, "the memory of a session that waits does not grow: $wait");
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($session->{outbox_pid})");
	result_of($session);
	$session->quit;
}

# Whoever takes leases back is asked to.
configure($node, 'outbox.worker' => 'off');
wait_for_no_worker($node, 'postgres');
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('many', max_attempts => NULL);
	SELECT outbox.create_queue('refused', max_attempts => NULL);
	ALTER TABLE outbox.pending ADD CHECK (queue <> 'refused' OR claimed_by IS NULL);
});

sub enqueue_many
{
	my ($queue, $count) = @_;

	return $node->safe_psql('postgres', "SELECT count(*) FROM outbox.enqueue_batch('$queue', (SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', repeat('x', 500))) FROM generate_series(1, $count)))");
}

# By how much a query grows a session of its own, at most. It is asked twice: first where there
# is nothing to do yet, then after others have made something.
sub grows_by
{
	my ($query, $result, $others, $isolation) = @_;
	my $session = session($node);
	my $pid = $session->query_safe("SET client_min_messages = error; SET work_mem = 64; SELECT pg_backend_pid()");
	my $peak = sub { return (PostgreSQL::Test::Utils::slurp_file("/proc/$pid/status") =~ /^VmPeak:\s+(\d+) kB/m)[0] * 1024 };

	$session->query_safe('BEGIN ISOLATION LEVEL ' . ($isolation // 'READ COMMITTED'));
	is($session->query_safe($query), 0, "nothing to do: $query");
	$others->();
	my $before = $peak->();
	is($session->query_safe($query), $result, "done: $query");
	my $after = $peak->();
	$session->query_safe('COMMIT');
	$session->quit;
	return $after - $before;
}

cmp_ok(grows_by(q{SELECT count(*) FROM outbox.claim('w', 10, queues => ARRAY['many'])}, 0, sub { enqueue_many('many', 20000) }, 'REPEATABLE READ'),
	'<', $most_growth, 'a claim that passes by what it may not see');
cmp_ok(grows_by(q{SELECT count(*) FROM outbox.claim('w', 10, queues => ARRAY['refused'])}, 0, sub { enqueue_many('refused', 2000) }),
	'<', $most_growth, 'a claim of what is refused');
$node->safe_psql('postgres', q{
	ALTER TABLE outbox.pending DROP CONSTRAINT pending_check;
	SELECT count(outbox.cancel(outbox_id, 'done')) FROM outbox.pending WHERE queue = 'many'});
cmp_ok(grows_by(q{SELECT count(*) FROM outbox.claim('w', 20000, '1 microsecond', queues => ARRAY['many'])}, 20000, sub { enqueue_many('many', 20000) }),
	'<', $a_chunk, 'a claim of many');
$node->safe_psql('postgres', q{UPDATE outbox.pending SET lease_expires_at = now() + interval '1 h' WHERE claimed_by IS NOT NULL});
my $expire = sub { $node->safe_psql('postgres', q{UPDATE outbox.pending SET lease_expires_at = now() WHERE claimed_by IS NOT NULL}) };
cmp_ok(grows_by(q{SELECT count(*) FROM outbox.repair_expired_leases(queues => ARRAY['quiet'])}, 0, $expire),
	'<', $most_growth, 'a repair that passes by other queues');
$node->safe_psql('postgres', q{UPDATE outbox.pending SET lease_expires_at = now() + interval '1 h' WHERE claimed_by IS NOT NULL});
cmp_ok(grows_by(q{SELECT count(*) FROM outbox.repair_expired_leases(20000, queues => ARRAY['many'])}, 20000, $expire),
	'<', $a_chunk, 'a repair of many');
$node->stop('fast');
done_testing();
