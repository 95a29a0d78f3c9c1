# Sessions that wait inside the server: who is woken, and whose client is gone.
#
# Proves: of forty sessions that wait for a queue each, a wake-up of one queue wakes one; a
# session that waits for two queues is woken for both. A client that dies in a call that waits
# gets no lease: for work, for a lock, for a row. (The session's own messages of level DEBUG1
# count its wake-ups.)
use strict;
use warnings;

use OutboxTest;
use Test::More;

my $sessions = 40;
my $node = new_node('main', preload => 1, conf => 'max_connections = 80');

sub do_sql
{
	my ($sql) = @_;

	return $node->safe_psql('postgres', $sql);
}

# Starts a statement, and returns when its session waits for work.
sub start_waiting
{
	my ($session, $sql) = @_;

	start_query($session, $sql);
	$node->poll_query_until('postgres', "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $session->{outbox_pid}") or die;
	return;
}

# ---------------------------------------------------------------- who is woken

do_sql("SELECT outbox.create_queue('q' || n, lease => '1 day') FROM generate_series(0, $sessions) n; SELECT outbox.create_queue('x'); SELECT outbox.create_queue('y')");
wait_for_worker($node);

my @waiters = map { session($node) } 1 .. $sessions;
my ($busy, $both) = (session($node), session($node));

$_->query_safe('SET client_min_messages = debug1') foreach @waiters, $both;
start_waiting($waiters[ $_ - 1 ], "SELECT event_type FROM outbox.claim('w', queues => ARRAY['q$_'], wait => '1 day')") foreach 1 .. $sessions;
start_waiting($both, "CALL outbox.wait_for_work('1 day', ARRAY['x', 'y'])");
foreach my $n (1 .. 5)
{
	start_waiting($busy, "SELECT event_type FROM outbox.claim('w', queues => ARRAY['q0'], wait => '1 day')");
	do_sql("SELECT outbox.enqueue('busy $n', '1', 'q0')");
	is(scalar(result_of($busy)), "busy $n", "wake-up $n of a queue reaches the session that waits for it");
}

my %woken;
do_sql("SELECT outbox.enqueue('e', '1', 'q$_')") foreach reverse 1 .. $sessions;
foreach my $session (@waiters)
{
	my ($output, $messages) = result_of($session);

	$woken{$output} += () = $messages =~ /woken for work/g;
}
is_deeply(\%woken, { e => $sessions }, "$sessions others were woken once each, for their own queues");
do_sql(q{SELECT outbox.enqueue('e', '1', 'y')});
is(scalar(() = (result_of($both))[1] =~ /woken for work/g), 1, '... and so was one that waits for two queues, by one of them');
$_->quit foreach @waiters, $both, $busy;

# ---------------------------------------------------------------- whose client is gone

# The client is killed while its session waits; the session ends without having leased.
sub kill_client
{
	my ($session) = @_;

	$session->{run}->signal('KILL');
	$session->{run}->finish;
	return;
}

sub leases_nothing
{
	my ($session, $name) = @_;

	$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $session->{outbox_pid}") or die;
	return is(do_sql(q{SELECT count(*) FROM outbox.pending WHERE claimed_by = 'ghost'}), '0', $name);
}

my $ghost = session($node);
start_waiting($ghost, "SELECT FROM outbox.claim('ghost', 10, '1 h', wait => '1 day')");
kill_client($ghost);
do_sql(q{SELECT outbox.enqueue('e', '1') FROM generate_series(1, 10)});
leases_nothing($ghost, 'a client that dies while its claim waits for work gets no lease');

do_sql(q{SELECT outbox.pause('default')});
$ghost = session($node);
start_waiting($ghost, "CALL outbox.wait_for_work('1 day')");
kill_client($ghost);
leases_nothing($ghost, '... nor does its session wait for ever in wait_for_work');
do_sql(q{SELECT outbox.resume('default')});

my $holder = session($node);
my $lease = do_sql(q{SELECT format('ARRAY[%L]::uuid[], ARRAY[%L]::uuid[]', outbox_id, lease_token) FROM outbox.claim('first', 1, '1 h')});
my @calls = (
	[ q{LOCK TABLE outbox.messages}, q{SELECT FROM outbox.claim('ghost', 10)}, 'for a lock' ],
	[ q{SELECT FROM outbox.pending WHERE claimed_by = 'first' FOR UPDATE},
		qq{SELECT FROM outbox.complete_and_claim('first', $lease, ARRAY['DISPATCHED']::outbox.attempt_state[])}, 'for a row of complete_and_claim' ]);
foreach my $call (@calls)
{
	my ($hold, $sql, $name) = @$call;

	$ghost = session($node);
	$holder->query_safe("BEGIN; $hold");
	start_query($ghost, $sql);
	wait_until_blocked($node, $ghost, $name);
	kill_client($ghost);
	# A shorter wait is not worth a look at the connection.
	$node->poll_query_until('postgres', "SELECT clock_timestamp() > query_start + interval '1 s' FROM pg_stat_activity WHERE pid = $ghost->{outbox_pid}") or die;
	$holder->query_safe('COMMIT');
	leases_nothing($ghost, "a client that dies while it waits $name gets no lease");
}
is(do_sql(q{SELECT count(*) FROM outbox.pending WHERE claimed_by = 'first'}), '1', '... what it reported is not recorded, and it claims nothing');
is(do_sql(q{SELECT count(*) FROM outbox.claim('alive', 100)}), '9', '... all is left for a living worker');

$holder->quit;
consistent($node, 'nothing lost, nothing twice');
$node->stop('fast');
done_testing();
