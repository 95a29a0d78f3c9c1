# What the background worker does when time has come, with nobody connected but those who
# look: it wakes listeners when something falls due, and takes back leases that expired.
#
# Proves: scheduled messages, retries, releases and repairs are told when due, and expired
# leases recorded, by the timer alone (the safety poll is an hour away); the worker sleeps
# until exactly the earliest of these events, by what commits announce and by what the
# tables hold; what it cannot act on does not keep it awake, and is done once it can be;
# one message that cannot be repaired stops no other; asleep, it holds nothing.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed();
my $node = new_node('main', preload => 1);
my $listener = listener($node);

$node->safe_psql('postgres', q{
	SELECT outbox.create_queue(q, repair_delay => '0') FROM unnest(ARRAY['end', 'a', 'b', 'c', 'd', 'paused', 'dense', 'bad', 'good']) q;
	SELECT outbox.create_queue('policy', backoff_base => '300 ms', repair_delay => '300 ms');
	SELECT outbox.maintain()});
wait_for_worker($node);

# Until that is true.
sub wait_until
{
	my ($condition) = @_;

	$node->poll_query_until('postgres', $condition) or die "never: $condition";
	return;
}

# Ends everything, so that nothing is left that could wake anybody.
sub clear
{
	$node->safe_psql('postgres', q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
	return;
}

# What the SQL leaves to be told later is told: of that queue, and not before it was due.
sub told_later
{
	my ($queue, $name, $sql) = @_;

	clear();
	heard($listener);
	$node->safe_psql('postgres', $sql);
	hear($listener, $queue);
	return is($node->safe_psql('postgres', qq{
		SELECT count(*) FROM outbox.pending WHERE queue = '$queue' AND lease_token IS NULL AND next_attempt_at <= clock_timestamp()}),
		'1', "$name: told, and it is due");
}

# Whatever there is cannot be acted on: until the safety poll, and not at once again.
sub sleeps_for_long
{
	my ($name) = @_;

	return ok($node->poll_query_until('postgres',
		q{SELECT next_wake > clock_timestamp() + interval '5 min' FROM outbox.workers WHERE kind = 'worker'}), $name);
}

# ---------------------------------------------------------------- due

my $soon = q{clock_timestamp() + interval '300 ms'};
# An enqueue's own notification must not be taken for that of the timer: the message is
# born leased.
my $born = sub { my ($queue, $for) = @_; return qq{
	CREATE TEMP TABLE l AS SELECT * FROM outbox.enqueue_and_claim('w', 'e', '1', '$queue', lease => '$for');} };

told_later('a', 'a scheduled message', qq{SELECT outbox.enqueue('e', '1', 'a', deliver_at => $soon)});
told_later('a', 'a retry', $born->('a', '1 h')
	. q{SELECT outbox.complete(outbox_id, lease_token, 'w', 'RETRYABLE', retry_delay => '300 ms') FROM l});
told_later('policy', 'a retry by the queue\'s backoff', $born->('policy', '1 h')
	. q{SELECT outbox.complete(outbox_id, lease_token, 'w', 'RETRYABLE') FROM l});
told_later('a', 'a release with delay', $born->('a', '1 h')
	. q{SELECT outbox.release('w', ARRAY[outbox_id], ARRAY[lease_token], '300 ms') FROM l});
told_later('a', 'a replay for later', $born->('a', '1 h')
	. qq{SELECT outbox.complete(outbox_id, lease_token, 'w', 'FAILED') FROM l; SELECT outbox.replay(outbox_id, $soon) FROM l});
told_later('policy', 'a repaired lease, repair_delay later', $born->('policy', '300 ms'));
told_later('a', 'a repaired lease without delay', $born->('a', '300 ms'));
told_later('a', 'after a later one was announced', qq{
	SELECT outbox.enqueue('e', '1', q, deliver_at => clock_timestamp() + interval '1 h') FROM unnest(ARRAY['a', 'b']) q;
	SELECT outbox.enqueue('e', '1', 'a', deliver_at => $soon)});
told_later('a', 'after an earlier one was announced', qq{
	BEGIN; SELECT outbox.enqueue('e', '1', 'b', deliver_at => $soon); COMMIT;
	BEGIN; SELECT outbox.enqueue('e', '1', 'a', deliver_at => $soon + interval '300 ms'); COMMIT});
told_later('a', 'of the lowest priority, with later ones above it', qq{
	SELECT outbox.enqueue('e', '1', 'a', priority => p, deliver_at => clock_timestamp() + interval '1 h') FROM unnest(ARRAY[15, 7, 1]) p;
	SELECT outbox.enqueue('e', '1', 'a', deliver_at => $soon)});
told_later('a', 'of the highest priority, with later ones below it', qq{
	SELECT outbox.enqueue('e', '1', 'a', priority => p, deliver_at => clock_timestamp() + interval '1 h') FROM unnest(ARRAY[8, 7, 0]) p;
	SELECT outbox.enqueue('e', '1', 'a', priority => 15, deliver_at => $soon)});

# The time has passed before the commit.
{
	my $producer = session($node);

	clear();
	heard($listener);
	$producer->query_safe(q{BEGIN; SELECT outbox.enqueue('e', '1', 'a', deliver_at => clock_timestamp() + interval '100 ms')});
	$producer->query_safe(q{CREATE TEMP TABLE t AS SELECT next_attempt_at FROM outbox.pending WHERE queue = 'a'});
	for (1 .. 1800)
	{
		last if $producer->query(q{SELECT next_attempt_at < clock_timestamp() FROM t}) eq 't';
		select(undef, undef, undef, 0.02);
	}
	is(heard($listener), '', 'a message that falls due before its commit: nothing yet');
	$producer->query_safe('COMMIT');
	is(heard($listener), 'a', '... and told at the commit');
	$producer->quit;
}

# What is no more, or may not be delivered, is not told.
clear();
heard($listener);
$node->safe_psql('postgres', qq{
	BEGIN;
	SELECT outbox.enqueue('e', '1', 'paused', deliver_at => $soon);
	SELECT outbox.pause('paused');
	COMMIT;
	SELECT outbox.cancel(outbox_id, 'no') FROM outbox.enqueue('e', '1', 'b', deliver_at => $soon);
	BEGIN; SELECT outbox.enqueue('e', '1', 'c', deliver_at => $soon); ROLLBACK;
	SELECT outbox.enqueue('e', '1', 'a', deliver_at => clock_timestamp() + interval '600 ms')});
hear($listener, 'a');
is(heard($listener), 'a', 'a paused queue, a cancelled message and a rolled-back one are not told of');
sleeps_for_long('... and do not keep it awake');
$node->safe_psql('postgres', q{SELECT outbox.resume('paused')});
is(heard($listener), 'paused', '... but the paused one when it is resumed');

# Resumed before that, after the worker has looked at all queues.
clear();
heard($listener);
$node->safe_psql('postgres', q{
	SELECT outbox.pause('paused');
	SELECT outbox.enqueue('e', '1', 'paused', deliver_at => clock_timestamp() + interval '5 s');
	BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'look';
	COMMIT PREPARED 'look'});
sleeps_for_long('a queue is paused, and what is scheduled in it keeps nobody awake');
$node->safe_psql('postgres', q{SELECT outbox.resume('paused')});
hear($listener, 'paused');
pass('... but is told when it falls due, if the queue is resumed before that');

# A look that fails in the middle has told nothing of what it found before.
clear();
heard($listener);
$node->safe_psql('postgres', qq{
	BEGIN; SELECT outbox.enqueue('e', '1', q, deliver_at => now() + interval '1 s') FROM unnest(ARRAY['a', 'd']) q;
	UPDATE outbox.queues SET lease = '170000000 years' WHERE queue = 'd'; COMMIT});
wait_until(q{SELECT failures > 0 FROM outbox.workers WHERE kind = 'worker'});
$node->safe_psql('postgres', q{UPDATE outbox.queues SET lease = DEFAULT WHERE queue = 'd'});
hear($listener, $_) foreach 'a', 'd';
wait_until(q{SELECT failures = 0 FROM outbox.workers WHERE kind = 'worker'});
pass('two messages fell due, and the queue of the second could not be read at first: both are told');

# ---------------------------------------------------------------- leases

# A lease of a worker that is gone, recorded as api.md says.
clear();
{
	my $row = q{
		SELECT a.attempt_no, a.state, a.worker_id, a.completed_at IS NULL, a.error_code, a.recorded_by,
			a.lease_token = l.lease_token, a.claimed_at = l.claimed_at, a.created_at >= l.lease_expires_at,
			p.attempt_count, p.lease_token IS NULL, p.next_attempt_at >= l.lease_expires_at + interval '300 ms'
		FROM leases l JOIN outbox.attempts a USING (outbox_id) LEFT JOIN outbox.pending p USING (outbox_id)
		WHERE l.name = };

	$node->safe_psql('postgres', q{
		CREATE TABLE leases (name text, outbox_id uuid, lease_token uuid, claimed_at timestamptz, lease_expires_at timestamptz);
		BEGIN;
		SELECT outbox.enqueue_and_claim('gone', 'zombie', '1', 'policy', lease => '300 ms');
		SELECT outbox.enqueue_and_claim('gone', 'ceiling', '1', 'policy', lease => '300 ms', max_attempts => 1);
		SELECT outbox.pause('paused');
		INSERT INTO leases SELECT event_type, outbox_id, lease_token, claimed_at, lease_expires_at FROM outbox.pending JOIN outbox.messages USING (outbox_id);
		COMMIT});
	wait_until(q{SELECT count(*) = 2 FROM outbox.attempts JOIN leases USING (outbox_id)});
	is($node->safe_psql('postgres', "$row 'zombie'"), '1|ZOMBIE_REQUEUE|gone|t|LEASE_EXPIRED|outbox worker|t|t|t|1|t|t',
		'an expired lease is recorded and the message freed, repair_delay later');
	is($node->safe_psql('postgres', "$row 'ceiling'"), '1|FAILED|gone|f|LEASE_EXPIRED|outbox worker|t|t|t||t|',
		'... at the ceiling it ends');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.dead_letters JOIN leases USING (outbox_id)}), '1', '... as a dead letter');
}

clear();
$node->safe_psql('postgres', q{
	SELECT outbox.resume('paused');
	SELECT outbox.enqueue_and_claim('gone', 'lease', '1', 'paused', lease => '300 ms');
	SELECT outbox.pause('paused')});
wait_until(q{SELECT count(*) = 1 FROM outbox.pending WHERE queue = 'paused' AND attempt_count = 1 AND lease_token IS NULL});
pass('a lease in a paused queue is taken back as well');

# Imported, or enqueued when the clock had stepped back. Somebody has enqueued: no restore.
clear();
$node->safe_psql('postgres', $born->('b', '300 ms') . q{UPDATE outbox.pending SET created_at = '2001-01-01' WHERE queue = 'b'});
wait_until(q{SELECT count(*) = 1 FROM outbox.pending WHERE queue = 'b' AND attempt_count = 1 AND lease_token IS NULL});
pass('a lease of a message older than its queue is taken back as well');

# Renewed in time: not touched, though the worker wakes for what was announced first.
clear();
$node->safe_psql('postgres', $born->('a', '2 s') . q{
	SELECT outbox.renew('w', ARRAY[outbox_id], ARRAY[lease_token], '1 h') FROM l;
	SELECT outbox.enqueue_and_claim('gone', 'lease', '1', 'b', lease => '2100 ms')});
wait_until(q{SELECT count(*) = 1 FROM outbox.pending WHERE queue = 'b' AND attempt_count = 1});
is($node->safe_psql('postgres', q{SELECT attempt_count, claimed_by FROM outbox.pending WHERE queue = 'a'}), '0|w',
	'a renewed lease is left alone while another, that expired later than its first, is taken back');

# Held by an open completion when it expires: left to that, or in the end to the poll.
clear();
{
	my $holder = session($node);
	my $state = q{SELECT attempt_count, claimed_by, lease_expires_at < clock_timestamp() FROM outbox.pending WHERE queue = 'a'};

	# In one go, so that the lease does not run out before.
	$holder->query_safe(q{
		SELECT outbox.enqueue_and_claim('w', 'e', '1', 'a', lease => '1 s');
		BEGIN; SELECT outbox.complete(outbox_id, lease_token, 'w', 'FAILED') FROM outbox.pending WHERE queue = 'a'});
	wait_until(q{SELECT lease_expires_at < clock_timestamp() FROM outbox.pending WHERE queue = 'a'});
	sleeps_for_long('a lease that expires under an open completion does not keep it awake');
	is($node->safe_psql('postgres', $state), '0|w|t', '... nor is it taken');
	$holder->query_safe('COMMIT');
	$holder->quit;
	is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.pending WHERE queue = 'a'}), '0', '... and the completion succeeds');
}

# Many leases that expire one right after the other: none falls between two looks.
clear();
$node->safe_psql('postgres', q{
	SELECT count(*) FROM generate_series(1, 5000) i,
		outbox.enqueue_and_claim('gone', 'e', '1', 'dense', lease => interval '1 s' + i * interval '400 us')});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 5000 FROM outbox.pending WHERE queue = 'dense' AND attempt_count = 1 AND lease_token IS NULL}),
	'5,000 leases that expire within two seconds');
is($node->safe_psql('postgres', q{SELECT count(*), count(DISTINCT outbox_id), min(state), max(state), min(recorded_by), max(recorded_by)
	FROM outbox.attempts WHERE outbox_id IN (SELECT outbox_id FROM outbox.pending WHERE queue = 'dense')}),
	'5000|5000|ZOMBIE_REQUEUE|ZOMBIE_REQUEUE|outbox worker|outbox worker', '... each recorded once');
note($node->safe_psql('postgres', q{
	SELECT 'from expiry to record: at most ' || max(a.created_at - a.claimed_at - interval '1 s') FROM outbox.attempts a
	WHERE outbox_id = (SELECT outbox_id FROM outbox.pending WHERE queue = 'dense' ORDER BY outbox_id LIMIT 1)}));

# ---------------------------------------------------------------- until when it sleeps

# The earliest event of the tables; with those that are due in a queue of that condition.
# Nothing of it is nearer than ten minutes. Without any event it is the safety poll.
sub earliest
{
	my ($condition) = @_;

	return qq{
		SELECT coalesce(min(t), clock_timestamp() + interval '51 min') FROM (
			SELECT min(greatest(next_attempt_at, lease_expires_at)) FROM outbox.pending JOIN outbox.queues q USING (queue) WHERE $condition
			UNION ALL SELECT min(lease_expires_at) FROM outbox.pending) e (t)};
}

# A worker that was told by commits may have been told of a paused queue, and wakes once in
# vain; one that looks for itself knows. It says until when a moment after it has computed
# how long.
sub sleeps_until_the_earliest
{
	my ($name, $told) = @_;
	my $from = earliest($told ? 'true' : 'NOT q.paused');
	my $to = earliest('NOT q.paused');

	return ok($node->poll_query_until('postgres', qq{
		SELECT next_wake >= ($from) AND next_wake < ($to) + interval '1 s' OR ($to) > clock_timestamp() + interval '50 min' AND next_wake >= ($from)
		FROM outbox.workers WHERE kind = 'worker' AND pid IS NOT NULL}),
		"$name: sleeps until the earliest event");
}

sub random_events
{
	my ($n) = @_;

	foreach (1 .. $n)
	{
		my $queue = ('a', 'b', 'c', 'paused')[rand 4];
		my $at = sprintf("interval '%d ms'", 600_000 + int(rand(2_400_000)));
		my $priority = int(rand(16));

		$node->safe_psql('postgres', rand() < 0.6
			? "SELECT outbox.enqueue('e', '1', '$queue', priority => $priority, deliver_at => clock_timestamp() + $at)"
			: "SELECT outbox.enqueue_and_claim('w', 'e', '1', '$queue', priority => $priority, lease => $at)");
	}
	return;
}

clear();
foreach my $round (1 .. 6)
{
	my $pid = wait_for_worker($node);

	random_events(1 + int(rand(8)));
	sleeps_until_the_earliest("round $round, announced", 1);
	$node->safe_psql('postgres', q{
		SELECT outbox.cancel(outbox_id, 'no', force => true) FROM outbox.pending
		ORDER BY greatest(next_attempt_at, lease_expires_at) LIMIT (SELECT count(*) / 3 FROM outbox.pending)});
	if ($round == 3)
	{
		$node->stop('immediate');
		$node->start;
		wait_for_worker($node);
	}
	else
	{
		$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
		wait_for_worker($node, other => $pid);
	}
	sleeps_until_the_earliest("round $round, " . ($round == 3 ? 'after a crash' : 'a new worker'));
}
$listener = listener($node);

# ---------------------------------------------------------------- asleep

clear();
{
	my $pid = wait_for_worker($node);

	is($node->safe_psql('postgres', "SELECT state, xact_start IS NULL, backend_xid IS NULL, backend_xmin IS NULL FROM pg_stat_activity WHERE pid = $pid"),
		'idle|t|t|t', 'asleep, it has no transaction and no snapshot');
	is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE pid = $pid"), '0', '... and no lock');
}

# Some twenty safety polls long it wakes for nothing else: they are no closer than their
# interval, so that in a given time there can be only so many. What it could stumble over
# happens meanwhile, a second from now: the next poll would end a loop that it gets into.
my $poll_s = 0.2;

sub stays_calm
{
	my ($name, %options) = @_;
	my $per_poll = $options{per_poll} // 1;
	my $look = q{SELECT wakeups, extract(epoch FROM clock_timestamp()) FROM outbox.workers WHERE kind = 'worker'};
	my ($before, $start) = split /\|/, $node->safe_psql('postgres', $look);

	$node->poll_query_until('postgres', "SELECT wakeups >= $before + 20 FROM outbox.workers WHERE kind = 'worker'")
		or die 'it does not wake at all';
	my ($after, $end) = split /\|/, $node->safe_psql('postgres', $look);
	my $polls = int(($end - $start) / $poll_s) + 1;

	return cmp_ok($after - $before, '<=', $per_poll * $polls + 3, "$name: $polls polls, no more wake-ups than they explain");
}

configure($node, 'outbox.poll_interval' => $poll_s * 1000 . 'ms');
stays_calm('an idle server');
$node->safe_psql('postgres', q{SELECT outbox.enqueue('e', '1', 'paused')});
stays_calm('a due message of a paused queue');
$node->safe_psql('postgres', q{SELECT outbox.enqueue('e', '1', 'paused', deliver_at => clock_timestamp() + interval '1 s')});
stays_calm('a message of a paused queue that falls due');

# Each poll tells of it, in the same round.
$node->safe_psql('postgres', q{SELECT outbox.enqueue('e', '1', 'a')});
stays_calm('a message that nobody claims');
clear();

foreach my $end ('COMMIT', 'ROLLBACK')
{
	my $holder = session($node);
	my ($id) = split /\n/, $holder->query_safe(q{
		SELECT outbox_id FROM outbox.enqueue_and_claim('w', 'e', '1', 'c', lease => '1 s');
		BEGIN; SELECT outbox.complete(outbox_id, lease_token, 'w', 'DISPATCHED') FROM outbox.pending WHERE queue = 'c'});

	stays_calm("a lease expires that an open completion holds");
	wait_until(qq{SELECT lease_expires_at < clock_timestamp() FROM outbox.pending WHERE outbox_id = '$id'});
	is($node->safe_psql('postgres', qq{SELECT count(*) FROM outbox.attempts WHERE outbox_id = '$id'}), '0', '... and is not taken from it');
	$holder->query_safe($end);
	wait_until(qq{SELECT count(*) = 1 FROM outbox.attempts WHERE outbox_id = '$id'});
	is($node->safe_psql('postgres', qq{SELECT state, recorded_by FROM outbox.attempts WHERE outbox_id = '$id'}),
		$end eq 'COMMIT' ? 'DISPATCHED|w' : 'ZOMBIE_REQUEUE|outbox worker', "... after its $end all is as it must be");
	$holder->quit;
	clear();
}

# A lock on the tables: repair, and what looks for due messages, try again after a pause.
foreach my $table ('attempts', 'pending')
{
	my $locker = session($node);

	$node->safe_psql('postgres', q{SELECT outbox.enqueue_and_claim('w', 'locked', '1', 'c', lease => '1 s')});
	$locker->query_safe("BEGIN; LOCK outbox.$table IN ACCESS EXCLUSIVE MODE");
	stays_calm("a lease expires, and there is a lock on $table", per_poll => 3);
	$locker->query_safe('COMMIT');
	ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM outbox.pending WHERE attempt_count = 1 AND lease_token IS NULL}),
		'... and once it is gone the lease is taken back');
	ok($node->poll_query_until('postgres', q{SELECT state = 'running' AND failures = 0 AND unrepaired = 0 FROM outbox.workers WHERE kind = 'worker'}),
		'... and all is well');
	$locker->quit;
	clear();
}

# Rows that no commit told of.
heard($listener);
$node->safe_psql('postgres', q{SELECT outbox.enqueue('e', '1', 'b', deliver_at => clock_timestamp() + interval '1 h')});
$node->safe_psql('postgres', q{UPDATE outbox.pending SET next_attempt_at = clock_timestamp() WHERE queue = 'b'});
hear($listener, 'b');
pass('a message made due by hand is told by the safety poll');
$node->safe_psql('postgres', q{SELECT outbox.enqueue_and_claim('w', 'e', '1', 'c', lease => '1 h')});
$node->safe_psql('postgres', q{UPDATE outbox.pending SET lease_expires_at = clock_timestamp() WHERE queue = 'c'});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM outbox.pending WHERE queue = 'c' AND attempt_count = 1 AND lease_token IS NULL}),
	'a lease made to expire by hand is taken back by it');
clear();

# ---------------------------------------------------------------- rows that cannot be repaired

sub each_ledger
{
	my ($action) = @_;

	$node->safe_psql('postgres', qq{
		DO \$\$ DECLARE leaf regclass; BEGIN
			FOR leaf IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'outbox.attempts'::regclass LOOP
				EXECUTE format('ALTER TABLE %s %s', leaf, \$x\$$action\$x\$);
			END LOOP;
		END \$\$});
	return;
}

# Whatever they raise that the server's own functions can.
my $lost = 0;
foreach my $case (
	[ '23514', q{worker_id <> 'bad'}, qr/"refuses"/ ],
	[ '22012', q{CASE worker_id WHEN 'bad' THEN 1 / (length(worker_id) - 3) = 0 ELSE true END}, qr/division by zero/ ])
{
	my ($sqlstate, $condition, $message) = @$case;
	my $from = log_size($node);

	# The bad ones first, and all at one time: more than are looked at in one go.
	each_ledger(qq{ADD CONSTRAINT refuses CHECK ($condition) NOT VALID});
	$node->safe_psql('postgres', q{
		SELECT count(*) FROM unnest(ARRAY['bad', 'good']) q, generate_series(1, 300) i, outbox.enqueue('e', to_jsonb(i), q);
		SELECT count(*) FROM outbox.claim('bad', 250, lease => '500 ms', queues => ARRAY['bad']);
		SELECT count(*) FROM outbox.claim('good', 300, lease => '600 ms', queues => ARRAY['good'])});
	ok($node->poll_query_until('postgres', q{SELECT count(*) = 300 FROM outbox.pending WHERE queue = 'good' AND attempt_count = 1 AND lease_token IS NULL}),
		"300 leases are taken back, behind 250 that cannot be ($sqlstate)");
	ok($node->poll_query_until('postgres', q{SELECT unrepaired = 250 FROM outbox.workers WHERE kind = 'worker'}),
		'... outbox.workers tells how many cannot');
	like(worker_says($node, 'last_error'), qr/^could not repair the lease of message [0-9a-f-]{36}: .*$message/, '... and why');
	stays_calm('rows that cannot be repaired', per_poll => 4);
	is(worker_says($node, 'unrepaired'), '250', '... still as many');
	is($node->safe_psql('postgres', q{SELECT count(*), count(DISTINCT lease_token) FROM outbox.pending WHERE claimed_by = 'bad' AND attempt_count = 0}),
		'250|250', '... and left as they were');
	is(scalar(log_lines($node, $from, qr/could not repair/)), 1, '... the log says so once');
	is(scalar(log_lines($node, $from, qr/repaired all/)), 0, '... and not that all is well');
	each_ledger('DROP CONSTRAINT refuses');
	ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM outbox.pending WHERE claimed_by = 'bad'}),
		'... when they can be, they are');
	ok($node->poll_query_until('postgres', q{SELECT unrepaired = 0 AND state = 'running' FROM outbox.workers WHERE kind = 'worker'}), '... and none is reported');
	$node->wait_for_log(qr/repaired all expired leases again/, $from);
	is(scalar(log_lines($node, $from, qr/could not repair|repaired all/)), 2, '... and the log says that, once');
	$lost += 550;
	is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.attempts WHERE worker_id IN ('bad', 'good') AND state = 'ZOMBIE_REQUEUE'}), $lost,
		'... each recorded once');
	clear();
}

consistent($node, 'nothing lost, nothing twice');
$listener->{session}->quit;
$node->stop('fast');
done_testing();
