# Wake-ups and repairs, with a process stopped in each gap in which something could be lost.
#
# Proves: a message is told of though the worker dies between the producer's look at it
# and the commit, or between taking a flag and sending it; though its commit falls between
# any two steps of the worker; though no commit has raised the flag yet. A lease is recorded
# once, whoever comes in between. A database that was dropped between two launchers is
# forgotten. What a waiting session was woken for reaches another one if it ends, is canceled or takes something else
# instead, and what comes while it is under way finds it or another. A look-up that misses a row which moves under its eyes
# finds it nevertheless. The end of a maintenance process is noticed, whenever it comes.
#
# Needs a library made with STOP_POINTS=1: a process that comes to an armed place waits
# there until it is released. The safety poll is an hour away.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = 0\noutbox.max_queues = 16");
my $listener = listener($node);
my $producer = session($node);
my $producer_pid = $producer->query_safe('SELECT pg_backend_pid()');

make_stop_points($node);
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue(q, repair_delay => '0') FROM unnest(ARRAY['end', 'a', 'b']) q;
	SELECT outbox.create_queue('q' || i) FROM generate_series(1, 20) i});
wait_for_worker($node);

sub wait_until
{
	my ($condition) = @_;

	$node->poll_query_until('postgres', $condition) or die "never: $condition";
	return;
}

# Nothing is left to be told of, nor under way; the worker, which sleeps.
sub quiet
{
	heard($listener);
	$node->safe_psql('postgres', q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
	return wait_for_worker($node);
}

sub enqueue
{
	my ($queue, $arguments) = @_;

	$node->safe_psql('postgres', "SELECT outbox.enqueue('e', '1', '$queue'" . ($arguments // '') . ')');
	return;
}

# Ends the worker; another one follows.
sub end_worker
{
	my ($pid) = @_;

	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
	return;
}

# ---------------------------------------------------------------- the worker dies

# The producer has seen a live worker and leaves the telling to it. It ends; the next one
# has looked through everything before the commit.
{
	my $old = quiet();

	arm($node, 'after_pre_commit');
	$producer->query_safe(q{BEGIN; SELECT outbox.enqueue('e', '1', 'a')});
	start_query($producer, 'COMMIT');
	stands_at($node, 'after_pre_commit', $producer_pid);
	end_worker($old);
	my $new = wait_for_worker($node, other => $old);
	release($node, 'after_pre_commit');
	result_of($producer);
	is(hear($listener, 'a')->[1], $new, 'the worker ends between PRE_COMMIT and COMMIT: the next one tells');
}

# No worker lives at PRE_COMMIT, and one does at COMMIT: the transaction has told already.
{
	my $old = quiet();

	arm($node, 'worker_before_attach');
	end_worker($old);
	stands_at($node, 'worker_before_attach');
	arm($node, 'after_pre_commit');
	$producer->query_safe(q{BEGIN; SELECT outbox.enqueue('e', '1', 'a')});
	start_query($producer, 'COMMIT');
	stands_at($node, 'after_pre_commit', $producer_pid);
	release($node, 'worker_before_attach');
	my $new = wait_for_worker($node, other => $old);
	release($node, 'after_pre_commit');
	result_of($producer);
	is(hear($listener, 'a')->[1], $producer_pid, 'a worker comes between PRE_COMMIT and COMMIT: the transaction tells');
}

# A worker that is on its way is not a live one.
{
	my $old = quiet();

	arm($node, 'worker_before_attach');
	end_worker($old);
	stands_at($node, 'worker_before_attach');
	$producer->query_safe(q{SELECT outbox.enqueue('e', '1', 'a')});
	is(hear($listener, 'a')->[1], $producer_pid, 'while a worker is on its way the transaction tells for itself');
	$listener->{heard} = [];
	enqueue('b', q{, deliver_at => clock_timestamp() + interval '300 ms'});
	release($node, 'worker_before_attach');
	my $new = wait_for_worker($node, other => $old);
	is(hear($listener, 'b')->[1], $new, '... and the worker what was scheduled meanwhile');
}

# It has taken the flag and not sent the notification.
{
	my $old = quiet();

	arm($node, 'worker_before_send');
	enqueue('a');
	stands_at($node, 'worker_before_send', $old);
	end_worker($old);
	release($node, 'worker_before_send');
	my $new = wait_for_worker($node, other => $old);
	is(hear($listener, 'a')->[1], $new, 'the worker ends with the flag in its hand: the next one tells');
}

# The message is there, the flag is not yet raised, and the worker changes.
{
	my $old = quiet();

	arm($node, 'commit_before_flag');
	start_query($producer, q{SELECT outbox.enqueue('e', '1', 'a')});
	stands_at($node, 'commit_before_flag', $producer_pid);
	is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.pending WHERE queue = 'a'}), '1', 'a message is visible before the flag is raised');
	is(join(' ', map { $_->[0] } @{ $listener->{heard} }), '', '... and not told of');
	end_worker($old);
	# The next one finds it, tells itself at its commit, and stops there as well.
	wait_until(qq{SELECT count(*) = 1 FROM outbox.workers WHERE kind = 'worker' AND pid <> $old AND pid = reached('commit_before_flag')});
	release($node, 'commit_before_flag');
	result_of($producer);
	my $new = wait_for_worker($node, other => $old);
	is(hear($listener, 'a')->[1], $new, '... by the next worker, in the end');
}

# ---------------------------------------------------------------- between two steps

# Whatever is committed before flags are taken goes with them.
{
	my $worker = quiet();

	arm($node, 'worker_before_collect');
	enqueue('a');
	stands_at($node, 'worker_before_collect', $worker);
	enqueue($_) foreach 'b', 'a', 'a';
	release($node, 'worker_before_collect');
	is(heard($listener), 'a b', 'commits before the worker collects: one notification per queue');
}

# What is committed after that is another notification.
{
	my $worker = quiet();

	arm($node, 'worker_before_send');
	enqueue('a');
	stands_at($node, 'worker_before_send', $worker);
	enqueue($_) foreach 'b', 'a', 'a';
	release($node, 'worker_before_send');
	is(heard($listener), 'a a b', 'commits between collecting and sending: a notification of their own');
}

# The worker has said until when it sleeps, and does not yet. Each of these must wake it.
enqueue("q$_") foreach 1 .. 20;		# and so take all places in shared memory
quiet();
my $missing = $node->safe_psql('postgres', q{SELECT min(queue) FROM outbox.stats WHERE stats_reset IS NULL AND queue LIKE 'q%'});
my $soon = q{clock_timestamp() + interval '300 ms'};

like($missing, qr/^q\d+$/, 'a queue has no place in shared memory');
foreach my $case (
	[ 'a message', sub { enqueue('a') }, sub { hear($listener, 'a') } ],
	[ 'a scheduled message', sub { enqueue('a', ", deliver_at => $soon") }, sub { hear($listener, 'a') } ],
	[ 'a message without a place', sub { enqueue($missing) }, sub { hear($listener, $missing) } ],
	[ 'a scheduled message without a place', sub { enqueue($missing, ", deliver_at => $soon") }, sub { hear($listener, $missing) } ],
	[ 'a lease', sub { $node->safe_psql('postgres', q{SELECT outbox.enqueue_and_claim('w', 'e', '1', 'a', lease => '300 ms')}) },
		sub { wait_until(q{SELECT count(*) = 1 FROM outbox.pending WHERE queue = 'a' AND attempt_count = 1 AND lease_token IS NULL}) } ],
	[ 'outbox.worker = off', sub { configure($node, 'outbox.worker' => 'off') },
		sub { wait_until(q{SELECT count(pid) = 0 FROM outbox.workers WHERE kind = 'worker'});
			configure($node, 'outbox.worker' => undef); wait_for_worker($node) } ])
{
	my ($name, $do, $wait) = @$case;
	my $worker = quiet();

	arm($node, 'worker_before_sleep');
	enqueue('b');
	stands_at($node, 'worker_before_sleep', $worker);
	$do->();
	release($node, 'worker_before_sleep');
	$wait->();
	pass("$name, while the worker is about to sleep");
}

# The time of a scheduled message passes between its commit and its announcement.
{
	quiet();
	arm($node, 'commit_before_flag');
	start_query($producer, "SELECT outbox.enqueue('e', '1', 'a', deliver_at => $soon)");
	stands_at($node, 'commit_before_flag', $producer_pid);
	wait_until(q{SELECT next_attempt_at < clock_timestamp() FROM outbox.pending WHERE queue = 'a'});
	release($node, 'commit_before_flag');
	result_of($producer);
	is(heard($listener), 'a', 'a message that falls due between commit and flag: told, once');
}

# ---------------------------------------------------------------- leases

# Somebody else is quicker than the worker that is about to take the lease back.
{
	my $worker = quiet();

	arm($node, 'worker_before_repair');
	$node->safe_psql('postgres', q{SELECT outbox.enqueue_and_claim('gone', 'e', '1', 'a', lease => '300 ms')});
	stands_at($node, 'worker_before_repair', $worker);
	is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.claim('next', 1, lease => '1 h', queues => ARRAY['a'])}), '1',
		'a claim takes a lease that the worker is about to take back');
	release($node, 'worker_before_repair');
	heard($listener);
	wait_for_worker($node);
	is($node->safe_psql('postgres', q{
		SELECT p.claimed_by, a.attempt_no, a.state, a.worker_id, a.recorded_by FROM outbox.pending p JOIN outbox.attempts a USING (outbox_id)
		WHERE queue = 'a'}), 'next|1|ZOMBIE_REQUEUE|gone|next', '... which leaves it alone: recorded once');
}

# The worker ends instead.
{
	my $old = quiet();

	arm($node, 'worker_before_repair');
	$node->safe_psql('postgres', q{SELECT outbox.enqueue_and_claim('gone', 'e', '1', 'a', lease => '300 ms')});
	stands_at($node, 'worker_before_repair', $old);
	end_worker($old);
	release($node, 'worker_before_repair');
	wait_until(q{SELECT count(*) = 1 FROM outbox.attempts JOIN outbox.pending USING (outbox_id) WHERE queue = 'a' AND recorded_by = 'outbox worker'});
	is($node->safe_psql('postgres', q{SELECT attempt_count, claimed_by FROM outbox.pending WHERE queue = 'a'}), '1|',
		'the worker ends before it takes a lease back: the next one does');
}

# ---------------------------------------------------------------- databases

# A database that is dropped while there is no launcher: the next one forgets it.
{
	my $launcher = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox launcher'});
	my $nameless = q{FROM outbox.workers WHERE kind = 'worker' AND database IS NULL};

	$node->safe_psql('postgres', 'CREATE DATABASE forgotten');
	$node->safe_psql('forgotten', 'CREATE EXTENSION outbox');
	wait_for_worker($node, database => 'forgotten');
	arm($node, 'launcher_before_attach');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($launcher)");
	stands_at($node, 'launcher_before_attach');
	$node->safe_psql('postgres', 'DROP DATABASE forgotten');
	is($node->safe_psql('postgres', "SELECT count(*) $nameless"), '1',
		'a database is dropped while there is no launcher: outbox.workers has it still');
	release($node, 'launcher_before_attach');
	wait_until("SELECT count(*) = 0 $nameless");
	pass('... until there is one');
	wait_for_worker($node);
}

# ---------------------------------------------------------------- a row that moves

# A look-up reads the index page first and the versions of the row that it names then; one
# that is made in between, while the version before it dies, is missed. It takes two
# sessions and luck, which many dead versions (kept by an old snapshot) make likely: one
# renews a lease without end, the other completes under it, and undoes that, until it has
# missed the row. There it stands; the row moves once more; and it must find it.
{
	my $reader = session($node);
	my $renewer = session($node);
	my $holder = session($node);

	quiet();
	my ($id, $token) = split /\|/, $node->safe_psql('postgres',
		q{SELECT outbox_id, lease_token FROM outbox.enqueue_and_claim('w', 'e', '1', 'a', lease => '1 h')});
	my $renew = qq{outbox.renew('w', ARRAY['$id'::uuid], ARRAY['$token'::uuid], '2 h')};

	$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox.pending');
	$node->safe_psql('postgres', qq{
		CREATE TABLE control AS SELECT false AS stop;
		DO \$\$ BEGIN FOR i IN 1 .. 2000 LOOP PERFORM $renew; COMMIT; END LOOP; END \$\$});
	arm($node, 'find_pending_missed');
	start_query($renewer, qq{DO \$\$ BEGIN WHILE NOT (SELECT stop FROM control) LOOP PERFORM $renew; COMMIT; END LOOP; END \$\$});
	start_query($holder, qq{
		DO \$\$ DECLARE done int := 0; lost int := 0; BEGIN
			WHILE NOT (SELECT stop FROM control) LOOP
				BEGIN
					PERFORM outbox.complete('$id', '$token', 'w', 'DISPATCHED');
					RAISE 'undo' USING ERRCODE = 'ZZ001';
				EXCEPTION
					WHEN SQLSTATE 'ZZ001' THEN done := done + 1;
					WHEN SQLSTATE 'P7002' THEN lost := lost + 1;
				END;
			END LOOP;
			RAISE WARNING 'completed %, lost %', least(done, 1), lost;
		END \$\$});
	my $missed = 0;
	for (1 .. 600)
	{
		$missed = $node->safe_psql('postgres', q{SELECT reached('find_pending_missed')}) == $holder->{outbox_pid};
		last if $missed;
		select(undef, undef, undef, 0.1);
	}
	$node->safe_psql('postgres', 'UPDATE control SET stop = true');
	result_of($renewer);
  SKIP:
	{
		skip 'the look-up did not miss the row once', 1 unless $missed;
		is($node->safe_psql('postgres', "SELECT error IS NULL FROM $renew"), 't',
			'a completion has missed the row that it looks for, and the row moves again');
	}
	release($node, 'find_pending_missed');
	like((result_of($holder))[1], qr/completed 1, lost 0$/m, 'no completion takes a row that moves for a lease that is lost');
	$_->quit foreach $reader, $renewer, $holder;
}

# ---------------------------------------------------------------- sessions that wait

# One was woken, and stands before it looks. They are woken in turn, so `one` always comes before the other.
{
	my @two = (session($node), session($node));
	my $claim = sub { "SELECT event_type FROM outbox.claim('w', $_[0], '1 day', ARRAY[$_[1]], wait => '1 day')" };
	my $any = $claim->(1, q{'a'});
	my $wait = sub {
		my ($session, $sql) = @_;

		start_query($session, $sql);
		wait_until("SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $session->{outbox_pid}");
	};
	my $message = sub { $node->safe_psql('postgres', "SELECT outbox.enqueue('$_[0]', '1', '$_[1]')"); wait_for_worker($node) };
	my $left = sub { $node->safe_psql('postgres', 'SELECT count(*) FROM outbox.pending WHERE claimed_by IS NULL') };

	quiet();
	$wait->($_, $any) foreach @two;
	$message->('e', 'a');
	wait_until("SELECT count(*) = 1 FROM pg_stat_activity WHERE pid IN ($two[0]{outbox_pid}, $two[1]{outbox_pid}) AND state = 'idle'");
	@two = reverse @two if $node->safe_psql('postgres', "SELECT state FROM pg_stat_activity WHERE pid = $two[0]{outbox_pid}") eq 'active';
	$message->('e', 'a');
	result_of($_) foreach @two;

	my ($one, $other) = @two;
	my $woken = sub {
		$wait->($other, $_[1] // $any);
		$wait->($one, $_[0] // $any);
		arm($node, 'wait_before_look', $one->{outbox_pid});
		$message->('first', 'a');
		stands_at($node, 'wait_before_look', $one->{outbox_pid});
	};

	foreach my $end ('cancel', 'terminate')
	{
		$woken->();
		$node->safe_psql('postgres', "SELECT pg_${end}_backend($one->{outbox_pid})");
		release($node, 'wait_before_look');
		is(scalar(result_of($other)), 'first', "it ends before it has looked ($end): another one gets the message");
		result_of($one) if $end eq 'cancel';
	}
	$one = session($node);

	$woken->();
	$message->('second', 'a');
	like(scalar(result_of($other)), qr/^(?:first|second)$/, 'a second message wakes another one, that takes one');
	is($left->(), '1', '... and leaves one');
	release($node, 'wait_before_look');
	like(scalar(result_of($one)), qr/^(?:first|second)$/, '... to the first');

	$woken->($claim->(2, q{'a'}));
	$message->('second', 'a');
	is($left->(), '2', 'for what one that wants two can take no other is woken');
	release($node, 'wait_before_look');
	is(scalar(result_of($one)), "first\nsecond", '... and it takes both');
	$message->('third', 'a');
	is(scalar(result_of($other)), 'third', '... and the next one goes to the other');

	$woken->($claim->(1, q{'b', 'a'}));
	$message->('elsewhere', 'b');
	release($node, 'wait_before_look');
	is(scalar(result_of($one)), 'elsewhere', 'it takes something from another queue instead');
	is(scalar(result_of($other)), 'first', '... and another one what it was woken for');

	# It takes its message between the count of the worker and its calls.
	my @four = map { session($node) } 1 .. 4;
	$_->query_safe('SET client_min_messages = debug1') foreach @four;
	$wait->($_, $any) foreach @four;
	arm($node, 'wait_before_look');
	$message->('first', 'a');
	stands_at($node, 'wait_before_look');
	my $called = $node->safe_psql('postgres', q{SELECT reached('wait_before_look')});
	arm($node, 'worker_before_call');
	$node->safe_psql('postgres', q{SELECT outbox.enqueue('second', '1', 'a')});
	stands_at($node, 'worker_before_call');
	release($node, 'wait_before_look');
	wait_until("SELECT state = 'idle' FROM pg_stat_activity WHERE pid = $called");
	release($node, 'worker_before_call');
	wait_for_worker($node);
	wait_until('SELECT count(*) = 0 FROM outbox.pending WHERE claimed_by IS NULL');
	$message->($_, 'a'), wait_until('SELECT count(*) = 0 FROM outbox.pending WHERE claimed_by IS NULL') foreach 'third', 'fourth';
	is(scalar(map { (result_of($_))[1] =~ /woken for work/g } @four), 4, 'a message that one takes while the worker counts wakes no other');
	$_->quit foreach @four;

	# It looks, and finds nothing, while a message comes that it is taken to see.
	$wait->($one, $any);
	arm($node, 'wait_before_look', $one->{outbox_pid});
	$message->('first', 'a');
	stands_at($node, 'wait_before_look', $one->{outbox_pid});
	$node->safe_psql('postgres', q{SELECT outbox.cancel(outbox_id, 'gone') FROM outbox.pending WHERE queue = 'a' AND claimed_by IS NULL});
	arm($node, 'wait_before_sleep', $one->{outbox_pid});
	release($node, 'wait_before_look');
	stands_at($node, 'wait_before_sleep', $one->{outbox_pid});
	$message->('late', 'a');
	release($node, 'wait_before_sleep');
	is(scalar(result_of($one)), 'late', 'a message that comes while it looks in vain reaches it before it sleeps');
	$_->quit foreach $one, $other;
}

# ---------------------------------------------------------------- maintenance

# It ends, with its work undone, between the beginning of the worker's round and the moment at
# which the next one could be asked for.
{
	my $worker = quiet();
	my $leaves = q{SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox.messages'::regclass};
	my $before = $node->safe_psql('postgres', $leaves);

	arm($node, 'maintenance_before_work');
	configure($node, 'outbox.partition_interval' => '4 weeks', 'outbox.poll_interval' => '100ms');
	enqueue('a');
	stands_at($node, 'maintenance_before_work');
	my $maintenance = $node->safe_psql('postgres', q{SELECT reached('maintenance_before_work')});
	arm($node, 'worker_before_repair', $worker);
	stands_at($node, 'worker_before_repair', $worker);
	end_worker($maintenance);
	release($node, 'maintenance_before_work');
	# The postmaster has noticed its end before it lets another session in.
	$node->safe_psql('postgres', 'SELECT 1');
	release($node, 'worker_before_repair');
	ok($node->poll_query_until('postgres', "SELECT ($leaves) > $before"), 'another one does it');
	configure($node, 'outbox.partition_interval' => undef, 'outbox.poll_interval' => undef);
}

quiet();
consistent($node, 'nothing lost, nothing twice');
$producer->quit;
$listener->{session}->quit;
$node->stop('fast');
done_testing();
