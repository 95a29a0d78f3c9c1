# Sessions that wait inside the server: who is woken, and whose client is gone.
#
# Proves: of forty sessions that wait for a queue each, a wake-up of one queue wakes one; a
# session that waits for two queues is woken for both. Of two hundred that wait for one queue as many are woken as there
# are messages, and the others neither look nor wake up. A message that is there again, because the claim of
# it is rolled back, reaches another session; so does one that comes when an earlier wait was given up in a subtransaction; so
# do messages when the worker ends, or is switched off. A queue that is dropped ends the wait. wait_for_work heeds the
# limit of a queue. A client that dies in a call that waits
# gets no lease, and renews none: for work, for a lock, for a row. A background worker that sends its output to another
# process has no client that could be gone. (Messages of level DEBUG1 count looks and wake-ups.)
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $sessions = 40;
my $many = 200;
my $node = new_node('main', preload => 1, conf => "max_connections = 260\nlog_line_prefix = '%m [%p] %q%a '");

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

# ---------------------------------------------------------------- two hundred

# Of the sessions whose application has this name, and that wait for work.
sub waiting
{
	my ($number, $name) = @_;

	$node->poll_query_until('postgres', "SELECT count(*) = $number AND bool_and(wait_event_type = 'Extension') IS NOT FALSE FROM pg_stat_activity WHERE application_name = '$name'")
		or die "not $number that wait";
	return;
}

# How often they have begun to run: to look, or only to sleep again.
sub switches
{
	my ($name) = @_;
	my $sum = 0;

	foreach my $pid (split /\n/, do_sql("SELECT pid FROM pg_stat_activity WHERE application_name = '$name'"))
	{
		$sum += $1 if PostgreSQL::Test::Utils::slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
	}
	return $sum;
}

foreach my $how ([ 'claim', q{SELECT count(*) FROM outbox.claim('w' || :client_id, 1, '1 day', '{many}', wait => '1 day')} ],
	[ 'wait_for_work', qq{CALL outbox.wait_for_work('1 day', '{many}');\nSELECT count(*) FROM outbox.claim('w' || :client_id, 1, '1 day', '{many}')} ])
{
	my ($name, $sql) = @$how;
	my $file = $node->basedir . "/$name.sql";
	my ($out, $err, $begin, $switched) = ('', '', log_size($node));
	my $says = sub { scalar(log_lines($node, $begin, qr/$_[0]/)) };
	do_sql(q{SELECT outbox.create_queue('many')}) if $name eq 'claim';
	append_to_file($file, "$sql;\n");
	my $clients = IPC::Run::start([ 'pgbench', '-n', '-c', $many, '-j', '1', '-t', '1', '-f', $file,
		$node->connstr('postgres') . " application_name=$name options='-c log_min_messages=debug1'" ], '<', \undef, '>', \$out, '2>', \$err);

	waiting($many, $name);
	$switched = switches($name);
	do_sql(q{SELECT outbox.enqueue('one', '1', 'many')});
	waiting($many - 1, $name);
	do_sql(q{BEGIN; SELECT outbox.enqueue('five', '1', 'many') FROM generate_series(1, 5); COMMIT});
	waiting($many - 6, $name);
	# Who has returned from wait_for_work has not taken anything yet.
	do_sql(q{SELECT outbox.enqueue('ten', '1', 'many')}), $name eq 'claim' || waiting($many - 6 - $_, $name) foreach 1 .. 10;
	waiting($many - 16, $name);
	do_sql(q{SELECT outbox.enqueue('due', '1', 'many', deliver_at => now() + interval '50 ms') FROM generate_series(1, 4)});
	waiting($many - 20, $name);
	# Two seconds more, in which nothing happens.
	$node->poll_query_until('postgres', "SELECT clock_timestamp() > max(query_start) + interval '2 s' FROM pg_stat_activity WHERE application_name = '$name'") or die;
	is(do_sql(q{SELECT count(*) FILTER (WHERE claimed_by IS NULL) FROM outbox.pending WHERE queue = 'many'}), '0', "$name: of $many that wait 20 take 20 messages");
	is($says->('woken for work'), 20, '... and no other was woken');
	is($says->('looking for work'), $many + 20, '... or has looked, for seconds');
	note('wake-ups of those that sleep, and what the 20 did: ' . (switches($name) - $switched));
	do_sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = '$name'");
	$clients->finish;
	is($says->('woken for work'), 20, '... to the end');
	do_sql(q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending WHERE queue = 'many'});
}

# ---------------------------------------------------------------- keys at their limit

do_sql(q{SELECT outbox.create_queue('keyed', lease => '1 day', max_in_flight_per_key => 1)});
do_sql(q{SELECT outbox.enqueue('e', '1', 'keyed', partition_key => k) FROM unnest('{a,a,a,a,a,a,b,b,b,b,b,b}'::text[]) k});
is(do_sql(q{SELECT count(*) FROM outbox.claim('holds', 9, queues => '{keyed}')}), '2', 'of two keys two messages are leased');

my @keyed = map { session($node) } 1 .. 5;

foreach my $session (@keyed)
{
	$session->query_safe('SET client_min_messages = debug1');
	start_waiting($session, q{SELECT 'got ' || partition_key FROM outbox.claim('w', 1, queues => '{keyed}', wait => '1 day')});
}
my $of_keyed = join ',', map { $_->{outbox_pid} } @keyed;
do_sql(q{SELECT c.recorded FROM outbox.pending p, outbox.complete(p.outbox_id, p.lease_token, 'holds', 'DISPATCHED') c WHERE p.claimed_by = 'holds' AND p.partition_key = 'a'});
$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid IN ($of_keyed) AND state LIKE 'idle%'") or die;
do_sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid IN ($of_keyed) AND state = 'active'");
my ($got, $woken_in_vain) = ('', 0);
foreach my $session (@keyed)
{
	my ($output, $messages) = result_of($session);

	$got .= $output;
	$woken_in_vain += () = $messages =~ /woken for work/g;
}
is($got, 'got a', 'the end of a lease lets one session have a message of its key');
is($woken_in_vain, 1, '... and no other is woken for those that the key may not have yet');
$_->quit foreach @keyed;

# ---------------------------------------------------------------- what others leave

do_sql(q{SELECT outbox.create_queue('left', lease => '1 day')});
my @two = map { session($node) } 1, 2;
my $claim_left = q{SELECT event_type FROM outbox.claim('w', 1, queues => '{left}', wait => '1 day')};

# Which of the two has its answer, and the other.
sub first_of_two
{
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid IN ($two[0]{outbox_pid}, $two[1]{outbox_pid}) AND state LIKE 'idle%'") or die;
	@two = reverse @two if do_sql("SELECT state = 'active' FROM pg_stat_activity WHERE pid = $two[0]{outbox_pid}") eq 't';
	return @two;
}

$_->query_safe('BEGIN') foreach @two;
start_waiting($_, $claim_left) foreach @two;
do_sql(q{SELECT outbox.enqueue('again', '1', 'left')});
my ($first, $second) = first_of_two();
is(scalar(result_of($first)), 'again', 'a message that one of two gets');
$first->query_safe('ROLLBACK');
is(scalar(result_of($second)), 'again', '... reaches the other when the first claim is rolled back');
$second->query_safe('SAVEPOINT s');
start_waiting($first, $claim_left);
$second->query_safe('ROLLBACK TO s; COMMIT');
do_sql(q{SELECT outbox.enqueue('next', '1', 'left')});
is(scalar(result_of($first)), 'next', '... and the next one, too');

$first->query_safe('BEGIN');
start_waiting($first, qq{DO \$\$ BEGIN PERFORM FROM outbox.claim('w', 1, queues => '{left}', wait => '1 day'); EXCEPTION WHEN query_canceled THEN END \$\$});
do_sql("SELECT pg_cancel_backend($first->{outbox_pid})");
result_of($first);
foreach my $n (1 .. 3)
{
	start_waiting($second, $claim_left);
	do_sql("SELECT outbox.enqueue('caught $n', '1', 'left')");
	is(scalar(result_of($second)), "caught $n", "who has given up in a subtransaction takes no wake-up of another ($n)");
}
$first->query_safe('COMMIT');

# ---------------------------------------------------------------- worker, queue and limit change

start_waiting($first, $claim_left);
do_sql(q{SELECT pg_terminate_backend(pid) FROM outbox.workers WHERE kind = 'worker' AND database = 'postgres'});
do_sql(q{SELECT outbox.enqueue('no worker', '1', 'left')});
is(scalar(result_of($first)), 'no worker', 'who waits gets a message when the worker has been ended');
wait_for_worker($node);
start_waiting($first, $claim_left);
configure($node, 'outbox.worker' => 'off');
wait_for_no_worker($node, 'postgres');
do_sql(q{SELECT outbox.enqueue('switched off', '1', 'left')});
is(scalar(result_of($first)), 'switched off', '... or switched off');
configure($node, 'outbox.worker' => undef);
wait_for_worker($node);

do_sql(q{SELECT outbox.create_queue('gone')});
start_waiting($first, q{SELECT FROM outbox.claim('w', queues => '{gone}', wait => '1 day')});
do_sql(q{SELECT outbox.drop_queue('gone')});
like((result_of($first))[1], qr/queue "gone" does not exist/, 'a queue that is dropped ends the wait');

do_sql(q{SELECT outbox.create_queue('limited', max_in_flight => 1, lease => '1 day'); SELECT outbox.enqueue('l', '1', 'limited') FROM generate_series(1, 2)});
do_sql(q{SELECT FROM outbox.claim('w', queues => '{limited}')});
start_waiting($first, q{CALL outbox.wait_for_work('1 day', '{limited}')});
is(do_sql("SELECT state FROM pg_stat_activity WHERE pid = $first->{outbox_pid}"), 'active', 'wait_for_work waits while the limit of the queue is reached');
do_sql(q{SELECT outbox.complete(outbox_id, lease_token, 'w', 'DISPATCHED') FROM outbox.pending WHERE queue = 'limited' AND claimed_by IS NOT NULL});
is((result_of($first))[1], '', '... and ends when a lease ends');
$_->quit foreach @two;

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
		qq{SELECT FROM outbox.complete_and_claim('first', $lease, ARRAY['DISPATCHED']::outbox.attempt_state[])}, 'for a row of complete_and_claim' ],
	[ q{LOCK TABLE outbox.messages}, q{SELECT FROM outbox.enqueue_and_claim('ghost', 'e', '1', lease => '1 h')}, 'for a lock of enqueue_and_claim' ],
	[ q{LOCK TABLE outbox.pending}, qq{SELECT FROM outbox.renew('first', $lease, '5 h')}, 'for a lock of renew' ]);
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
is(do_sql(q{SELECT count(*), bool_and(lease_expires_at < now() + interval '2 h') FROM outbox.pending WHERE claimed_by = 'first'}), '1|t',
	'... what it reported is not recorded, and its lease is not renewed');
is(do_sql(q{SELECT count(*) FROM outbox.claim('alive', 100)}), '9', '... all is left for a living worker');

$holder->quit;

# ---------------------------------------------------------------- no socket

chomp(my $headers = qx{"$ENV{PG_CONFIG}" --includedir-server});
PostgreSQL::Test::Utils::system_or_bail('cc', '-shared', '-fPIC', '-I', $headers, '-o', $node->basedir . '/redirected_worker.so', 'test/redirected_worker.c');
configure($node, dynamic_library_path => '$libdir:' . $node->basedir);
do_sql(q{CREATE FUNCTION run_redirected(text) RETURNS void LANGUAGE c STRICT AS 'redirected_worker'; SELECT outbox.create_queue('redirected')});
do_sql(q{SELECT run_redirected($$SELECT FROM outbox.claim('w', queues => '{redirected}', wait => '100 ms'); SELECT FROM outbox.enqueue('e', '1', 'redirected')$$)});
is(do_sql(q{SELECT count(*) FROM outbox.pending WHERE queue = 'redirected'}), '1', 'a background worker waits for work, and goes on');

consistent($node, 'nothing lost, nothing twice');
$node->stop('fast');
done_testing();
