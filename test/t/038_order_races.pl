# Ordered keys, with a producer, a worker or one who settles stopped between two of their steps.
#
# Proves: wherever they meet, a key is neither stranded nor gets two heads, and its messages come in order; none of
# them waits for another; a server that is killed while one of them stands there goes on with the key; the
# background worker lets a key go on when both have ended, without polling.
#
# Needs a library made with STOP_POINTS=1.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

# The safety poll comes once an hour.
my $node = new_node('main', preload => 1, conf => "restart_after_crash = on\noutbox.worker = off\nautovacuum = off");
my ($producer, $worker, $settler);
my $key = 0;

make_stop_points($node);
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('f', ordering => 'fifo', repair_delay => '0');
	SELECT outbox.create_queue('b', ordering => 'fifo', on_dead_head => 'block');
	CREATE FUNCTION put(key text, q text = 'f') RETURNS bigint LANGUAGE sql AS $$
		SELECT sequence_id FROM outbox.enqueue('m', '1', q, partition_key => key)
	$$;
	-- Ends the first that the worker holds.
	CREATE FUNCTION finish(key text, state outbox.attempt_state = 'DISPATCHED') RETURNS int LANGUAGE sql AS $$
		SELECT c.attempt_no
		FROM (SELECT outbox_id, lease_token FROM outbox.pending WHERE partition_key = key AND claimed_by = 'w' ORDER BY sequence_id LIMIT 1) p,
			outbox.complete(outbox_id, lease_token, 'w', state) c
	$$;
	CREATE FUNCTION cancelled(key text, number bigint) RETURNS int LANGUAGE sql AS $$
		SELECT outbox.cancel(outbox_id, 'no longer') FROM outbox.pending WHERE partition_key = key AND sequence_id = number
	$$;
	CREATE FUNCTION heads(key text) RETURNS bigint LANGUAGE sql AS $$
		SELECT count(*) FROM outbox.pending WHERE partition_key = key AND NOT held_back
	$$;
	CREATE FUNCTION settled() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM FROM outbox.maintain(); END $$;
	-- What claims give of a key, and what is left.
	CREATE FUNCTION drained(key text, q text = 'f') RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		one record;
		numbers text;
	BEGIN
		UPDATE outbox.pending SET lease_expires_at = clock_timestamp() WHERE partition_key = key AND lease_expires_at IS NOT NULL;
		LOOP
			SELECT * INTO one FROM outbox.claim('d', 1, queues => ARRAY[q]);
			EXIT WHEN NOT FOUND;
			IF one.partition_key = key THEN
				numbers := concat_ws(' ', numbers, one.sequence_id);
			END IF;
			PERFORM outbox.complete(one.outbox_id, one.lease_token, 'd', 'DISPATCHED');
		END LOOP;
		RETURN concat_ws(', left: ', numbers, (SELECT string_agg(sequence_id::text, ' ' ORDER BY sequence_id) FROM outbox.pending WHERE partition_key = key));
	END
	$$});

sub connect_all
{
	($producer, $worker, $settler) = map { session($node) } 1 .. 3;
	return;
}

# A new key with so many messages, the first of which the worker holds, or so many of them.
sub begin_key
{
	my ($messages, $queue, $held) = @_;

	$queue //= 'f';
	$held //= 1;
	$key = 'k' . ($key =~ s/\D//r + 1);
	$node->safe_psql('postgres', "SELECT put('$key', '$queue') FROM generate_series(1, $messages)");
	$node->safe_psql('postgres', "SELECT count(*) FROM outbox.claim('w', $held, queues => ARRAY['$queue'])");
	return;
}

# Has a session run into a stop point.
sub stop
{
	my ($session, $point, $sql) = @_;
	my $pid = $session->query_safe('SELECT pg_backend_pid()');

	arm($node, $point, $pid);
	start_query($session, $sql);
	stands_at($node, $point, $pid);
	return;
}

sub go_on
{
	my ($session, $point) = @_;

	release($node, $point);
	return result_of($session);
}

# When all have ended.
sub then_comes
{
	my ($expected, $name, $queue) = @_;

	$node->safe_psql('postgres', 'SELECT settled()');
	is($node->safe_psql('postgres', "SELECT heads('$key')"), $expected eq '' ? '0' : '1', "$name: one head");
	is($node->safe_psql('postgres', "SELECT drained('$key', '" . ($queue // 'f') . "')"), $expected, '... and the key goes on, in order');
	return;
}

connect_all();

# ---------------------------------------------------------------- the producer stands still

# It has looked at the head; or its row is there, too, and it is about to look again.
foreach my $point ('enqueue_after_first_look', 'enqueue_before_second_look')
{
	foreach my $end ('COMMIT', 'ROLLBACK')
	{
		foreach my $others ('COMMIT', 'ROLLBACK')
		{
			my $expected = join ' ', $others eq 'COMMIT' ? () : 1, $end eq 'COMMIT' ? 2 : ();

			begin_key(1);
			$producer->query_safe('BEGIN');
			stop($producer, $point, "SELECT put('$key')");
			$worker->query_safe("BEGIN; SELECT finish('$key'); $others");
			go_on($producer, $point);
			$producer->query_safe($end);
			then_comes($expected, "the head ends ($others) while a producer ($end) stands at $point");

			begin_key(1);
			$producer->query_safe('BEGIN');
			stop($producer, $point, "SELECT put('$key')");
			$worker->query_safe("BEGIN; SELECT finish('$key')");
			go_on($producer, $point);
			$producer->query_safe($end);
			$node->safe_psql('postgres', 'SELECT settled()');
			$worker->query_safe($others);
			then_comes($expected, '... and one that is still open then');
		}
	}
}

# ---------------------------------------------------------------- the worker stands still

# The row of the head is gone, and it is about to look behind it.
foreach my $end ('COMMIT', 'ROLLBACK')
{
	foreach my $others ('COMMIT', 'ROLLBACK')
	{
		my $expected = join ' ', $end eq 'COMMIT' ? () : 1, $others eq 'COMMIT' ? 2 : ();

		begin_key(1);
		$worker->query_safe('BEGIN');
		stop($worker, 'end_before_look_behind', "SELECT finish('$key')");
		$producer->query_safe("BEGIN; SELECT put('$key'); $others");
		go_on($worker, 'end_before_look_behind');
		$worker->query_safe($end);
		then_comes($expected, "an enqueue ($others) before a worker ($end) looks behind the head");

		begin_key(1);
		$worker->query_safe('BEGIN');
		stop($worker, 'end_before_look_behind', "SELECT finish('$key')");
		$producer->query_safe("BEGIN; SELECT put('$key')");
		go_on($worker, 'end_before_look_behind');
		$worker->query_safe($end);
		$node->safe_psql('postgres', 'SELECT settled()');
		$producer->query_safe($others);
		then_comes($expected, '... and one that is still open then');
	}
}

# Both at once; either goes on first.
foreach my $first ('the producer', 'the worker')
{
	begin_key(1);
	stop($producer, 'enqueue_before_second_look', "SELECT put('$key')");
	stop($worker, 'end_before_look_behind', "SELECT finish('$key')");
	go_on($producer, 'enqueue_before_second_look') if $first eq 'the producer';
	go_on($worker, 'end_before_look_behind');
	go_on($producer, 'enqueue_before_second_look') if $first eq 'the worker';
	then_comes('2', "both stand, $first goes on first");
}

# What is behind the head is cancelled meanwhile, all of it or the first.
begin_key(3);
stop($worker, 'end_before_look_behind', "SELECT finish('$key')");
$node->safe_psql('postgres', "SELECT cancelled('$key', 2)");
go_on($worker, 'end_before_look_behind');
then_comes('3', 'the next one is cancelled before a worker looks behind the head');

begin_key(2);
stop($worker, 'end_before_look_behind', "SELECT finish('$key')");
$producer->query_safe("BEGIN; SELECT cancelled('$key', 2)");
$node->safe_psql('postgres', "SELECT put('$key')");
go_on($worker, 'end_before_look_behind');
$node->safe_psql('postgres', 'SELECT settled()');
$producer->query_safe('COMMIT');
then_comes('3', 'the last one is cancelled, and another one enqueued');

# A repair has found the lost lease of the head, and another worker takes the run over before it goes on.
begin_key(2, 'f', 2);
$node->safe_psql('postgres', "UPDATE outbox.pending SET lease_expires_at = clock_timestamp() WHERE partition_key = '$key'");
stop($settler, 'repair_of_w', 'SELECT count(*) FROM outbox.repair_expired_leases()');
is($node->safe_psql('postgres', "SELECT string_agg(sequence_id::text, ' ') FROM outbox.claim('v', 2, queues => ARRAY['f'])"),
	'1 2', 'a claim takes over a run whose lost lease a repair has found');
is(go_on($settler, 'repair_of_w'), '0', '... which the repair leaves alone');
is( $node->safe_psql('postgres', "SELECT string_agg(claimed_by, ' ') FROM outbox.pending WHERE partition_key = '$key'"),
	'v v', '... with what is leased behind it');
then_comes('1 2', '... and it is taken over once more');

# An index scan has read the entry of the next one, whose row moves before it is read: the one behind
# that must not be taken for the next.
begin_key(3, 'f', 2);
stop($worker, 'end_before_look_behind', "SELECT finish('$key')");
arm($node, 'probe_before_row', $worker->{outbox_pid});
release($node, 'end_before_look_behind');
stands_at($node, 'probe_before_row', $worker->{outbox_pid});
$node->safe_psql('postgres', "SELECT error FROM outbox.pending, outbox.renew('w', ARRAY[outbox_id], ARRAY[lease_token]) WHERE partition_key = '$key' AND sequence_id = 2");
go_on($worker, 'probe_before_row');
then_comes('2 3', 'the row of the next one moves while a worker looks for it');

# ---------------------------------------------------------------- one who settles stands still

# Leaves the mark of a message that another transaction was about to end, and did not.
sub leave_mark_behind
{
	my ($sql, $queue) = @_;

	$queue //= 'f';
	$worker->query_safe("BEGIN; $sql");
	$producer->query_safe("SELECT put('$key', '$queue')");
	$worker->query_safe('ROLLBACK');
	is($node->safe_psql('postgres', "SELECT string_agg(kind, ' ') FROM outbox.key_marks WHERE partition_key = '$key'"), 'drained', 'a mark');
	return;
}

begin_key(2);
leave_mark_behind("SELECT cancelled('$key', 2)");
stop($settler, 'settle_marks_read', 'SELECT settled()');
$worker->query_safe("SELECT cancelled('$key', 2)");
go_on($settler, 'settle_marks_read');
is($node->safe_psql('postgres', "SELECT heads('$key')"), '1', 'the last message is cancelled after its mark was read: one head');
then_comes('1 3', '... and later');

begin_key(1, 'b');
leave_mark_behind("SELECT finish('$key')", 'b');
stop($settler, 'settle_marks_read', 'SELECT settled()');
$worker->query_safe("SELECT finish('$key', 'FAILED')");
go_on($settler, 'settle_marks_read');
is($node->safe_psql('postgres', "SELECT heads('$key')"), '0', 'the head dies after its mark was read: its key is blocked');
$node->safe_psql('postgres', "SELECT outbox.unblock('b', '$key')");
then_comes('2', '... until it is unblocked', 'b');

foreach my $end ('COMMIT', 'ROLLBACK')
{
	begin_key(1);
	leave_mark_behind("SELECT finish('$key')");
	stop($settler, 'settle_marks_read', 'SELECT settled()');
	$worker->query_safe("BEGIN; SELECT finish('$key')");
	go_on($settler, 'settle_marks_read');
	$worker->query_safe($end);
	then_comes($end eq 'COMMIT' ? '2' : '1 2', "the head ends ($end) after its mark was read");
}

# ---------------------------------------------------------------- the server is killed

# A crash of one process is one of the server. Who asks a server that is not ready yet may fail at that.
sub kill_process
{
	my ($pid) = @_;
	my $from = log_size($node);

	kill 'KILL', $pid;
	$node->wait_for_log(qr/database system is ready to accept connections/, $from);
	connect_all();
	return;
}

sub kill_at
{
	my ($session, $point, $sql) = @_;

	stop($session, $point, $sql);
	kill_process($session->{outbox_pid});
	return;
}

begin_key(1);
kill_at($producer, 'enqueue_before_second_look', "SELECT put('$key')");
$worker->query_safe("SELECT finish('$key')");
$producer->query_safe("SELECT put('$key')");
then_comes('2', 'a producer is killed before its second look');

begin_key(1);
stop($producer, 'enqueue_before_second_look', "SELECT put('$key')");
$worker->query_safe("SELECT finish('$key')");
kill_process($producer->{outbox_pid});
$producer->query_safe("SELECT put('$key')");
then_comes('2', '... after the head has ended');

begin_key(2);
kill_at($worker, 'end_before_look_behind', "SELECT finish('$key')");
then_comes('1 2', 'a worker is killed before it looks behind the head');

begin_key(1);
stop($worker, 'end_before_look_behind', "SELECT finish('$key')");
$producer->query_safe("SELECT put('$key')");
kill_process($worker->{outbox_pid});
then_comes('1 2', '... after another one was enqueued');

begin_key(1);
leave_mark_behind("SELECT finish('$key')");
$worker->query_safe("SELECT finish('$key')");
kill_at($settler, 'settle_marks_read', 'SELECT settled()');
then_comes('2', 'one who settles is killed');

# ---------------------------------------------------------------- the background worker

# Until the worker has let the key go on, or seen that it need not: it leaves no mark behind.
sub worker_settles
{
	my ($heads, $name) = @_;

	ok($node->poll_query_until('postgres', "SELECT heads('$key') = $heads AND NOT EXISTS (SELECT FROM outbox.key_marks WHERE partition_key = '$key')"), $name);
	is($node->safe_psql('postgres', "SELECT drained('$key')"), $heads ? '2' : '', '... and it goes on');
	return;
}

configure($node, 'outbox.worker' => 'on');
wait_for_worker($node);

# Two that meet, and end in this order.
foreach my $order ([ $producer, 'COMMIT', $worker, 'COMMIT' ], [ $worker, 'COMMIT', $producer, 'COMMIT' ], [ $worker, 'COMMIT', $producer, 'ROLLBACK' ])
{
	my ($first, $its_end, $second, $end) = @$order;

	foreach my $begins ($producer, $worker)
	{
		begin_key(1);
		$_->query_safe("BEGIN; SELECT " . ($_ == $producer ? 'put' : 'finish') . "('$key')") foreach $begins, $begins == $producer ? $worker : $producer;
		$first->query_safe($its_end);
		wait_for_worker($node);
		$second->query_safe($end);
		worker_settles($end eq 'COMMIT' ? 1 : 0, sprintf 'the worker settles once both have ended (%s begins, %s ends first, then %s)',
			(map { $_ == $producer ? 'the producer' : 'the worker' } $begins, $first), $end);
	}
}

# It has taken the flag, and stands before it looks: it does not miss those who come then.
my $earlier;
begin_key(1);
$earlier = $key;
arm($node, 'worker_before_settle');
$producer->query_safe("BEGIN; SELECT put('$key')");
$worker->query_safe("SELECT finish('$key')");
stands_at($node, 'worker_before_settle');
begin_key(1);
$worker->query_safe("BEGIN; SELECT finish('$key')");
$node->safe_psql('postgres', "SELECT put('$key')");
$worker->query_safe('COMMIT');
$producer->query_safe('COMMIT');
release($node, 'worker_before_settle');
worker_settles(1, 'a key that comes to a standstill while the worker is about to look');
is($node->safe_psql('postgres', "SELECT count(*) FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE partition_key = '$earlier' AND state = 'DISPATCHED'"),
	'2', '... and the one for which it did, went on as well');

# Killed there.
begin_key(1);
arm($node, 'worker_before_settle');
$producer->query_safe("BEGIN; SELECT put('$key')");
$worker->query_safe("SELECT finish('$key')");
stands_at($node, 'worker_before_settle');
$producer->query_safe('COMMIT');
kill_process(worker_says($node, 'pid'));
wait_for_worker($node);
worker_settles(1, 'the worker is killed before it settles: the next one does');

is($node->safe_psql('postgres', 'SELECT count(*) FROM outbox.key_marks'), '0', 'no mark is left');
consistent($node, 'nothing was lost, nothing came twice');
done_testing();
