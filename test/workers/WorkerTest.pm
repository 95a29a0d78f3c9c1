# The examples of one language, against a server and through PgBouncer in transaction mode, while their workers are killed.
#
#   try_examples('python')
#
# Proves, of examples/LANGUAGE, both ways:
# - producer: an order that fails at its commit leaves no message, a message that is refused leaves no order, and the orders after
#   one that failed are stored with their messages;
# - worker: what was there before it started is delivered. Killed with SIGKILL while it holds leases, with some deliveries made and
#   not reported, it loses nothing: another worker delivers each message, under the same key, and each has one terminal attempt.
#   Refusals and failures are reported as such. A worker whose leases are gone drops its results and goes on; one whose connection
#   is gone connects, LISTENs and goes on. It delivers a batch side by side, and gives up what does not end. SIGTERM ends it without
#   a lease, idle and in the middle;
# - orm/producer: as producer. orm/worker: as worker, and each order is shipped exactly once.
#
# Each moment is chosen by a condition: a receiver holds the requests, or a lock of the test the shipments. A lease expires because
# the test says so. What is run was built by test/workers/build, into the folder that OUTBOX_WORKERS names.
package WorkerTest;

use strict;
use warnings;

use BrokerTest;
use BrokerTest::Process;
use Exporter 'import';
use OutboxTest ();
use IO::Socket::INET ();
use RelayTest;
use Test::More;

our @EXPORT = qw(try_examples);

my $built = $ENV{OUTBOX_WORKERS} // die 'OUTBOX_WORKERS is not set';

# How the programs of a language are run, and told a database; the status with which SIGTERM ends them.
my %languages = (
	python => {
		command => sub { [ '/usr/bin/python3', "$_[0].py" ] },
		env => { PYTHONPATH => "$built/python/packages", PYTHONDONTWRITEBYTECODE => 1 },
		orm_url => sub { $_[0] =~ s/^postgresql:/postgresql+psycopg:/r },
	},
	node => { command => sub { [ 'node', "$_[0].js" ] } },
	ruby => { command => sub { [ '/usr/bin/ruby', "$_[0].rb" ] } },
	go => { command => sub { ["$built/go/$_[0]"] }, pooled => '?default_query_exec_mode=exec', orm_url => sub { $_[0] =~ s/\?.*//r } },
	java => {
		command => sub {
			my $class = join '.', 'shop', map { /producer|worker/ ? ucfirst : $_ } split m{/}, $_[0];
			[ 'java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-cp', "classes:dependency/*", $class ];
		},
		url => sub { $_[0] =~ s{^postgresql://(\w+)@([^?]+)}{jdbc:postgresql://$2?user=$1}r },
		pooled => '&prepareThreshold=0',
		stopped => 143,
	},
	rust => { command => sub { [ "$built/rust/" . $_[0] =~ s{/}{_}r ] } },
);

my ($language, $node, $receiver, $bouncer, $pooled, $way);

sub sql { return $node->safe_psql('postgres', $_[0]); }

# A program of the language, ready to start: producer, worker, orm/producer, orm/worker.
sub program
{
	my ($name, @arguments) = @_;
	my $is = $languages{$language};
	my $role = $name =~ /producer/ ? 'shop' : 'shipper';
	my $url = "postgresql://$role\@127.0.0.1:" . ($pooled ? $bouncer->{listens} : $node->port) . '/postgres';

	$url = $is->{url}->($url) if $is->{url};
	$url .= $is->{pooled} if $pooled && $is->{pooled};
	$url = $is->{orm_url}->($url) if $is->{orm_url} && $name =~ /^orm/;
	return BrokerTest::Process->new(
		name => "$language-$way-" . $name =~ s{/}{-}r, folder => "$built/$language", command => [ @{ $is->{command}->($name) }, @arguments ],
		env => { %{ $is->{env} // {} }, DATABASE_URL => $url, RECEIVER_URL => $receiver->url('/hook'), $pooled ? (POOLED => 1) : () },
		ready => sub { 1 });
}

# Runs a producer to its end: its exit status.
sub produce
{
	my ($name, @items) = @_;
	my $producer = program($name, @items);

	$producer->spawn;
	return $producer->wait_end;
}

# Places so many orders, as a producer does, in one transaction with what goes before.
sub place
{
	my ($count, $before) = @_;

	sql('BEGIN;' . ($before // '') . qq{
		WITH placed AS (INSERT INTO orders (item) SELECT 'book' FROM generate_series(1, $count) RETURNING *)
		SELECT outbox.enqueue('order.placed', to_jsonb(placed), aggregate_type => 'order', aggregate_id => id::text) FROM placed;
		COMMIT});
	return;
}

sub start
{
	my $worker = program(@_);

	$worker->spawn;
	return $worker;
}

# The worker ends as it is asked to, and leaves no lease.
sub stops
{
	my ($worker, $test) = @_;

	is($worker->wait_end, $languages{$language}{stopped} // 0, "$test: SIGTERM ends the worker") || diag($worker->log);
	is(sql('SELECT count(*) FROM outbox.pending WHERE claimed_by IS NOT NULL'), '0', "$test: ... which leaves no lease");
	return;
}

sub leased { return sql('SELECT count(*) FROM outbox.pending WHERE lease_expires_at > clock_timestamp()'); }

# How many leases have expired.
sub expired { return sql(q{SELECT count(*) FROM outbox.attempts WHERE error_code = 'LEASE_EXPIRED'}); }

sub expire_leases
{
	sql(q{
		UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE claimed_by IS NOT NULL;
		SELECT outbox.repair_expired_leases()});
	return;
}

# The keys of the requests that came.
sub keys_received { return map { $_->{headers}{'idempotency-key'} } $receiver->requests('/hook'); }

# Waits until nothing is pending, and looks at all that was enqueued since the last time, less the first requests that were refused.
sub delivered
{
	my ($test, %options) = @_;

	wait_until_done($node);
	my @keys = keys_received();
	splice @keys, 0, delete $options{refused} // 0;
	proven($node, $test, \@keys, where => 'NOT EXISTS (SELECT FROM seen WHERE seen.outbox_id = outbox.messages.outbox_id)', %options);
	$receiver->forget;
	sql('INSERT INTO seen SELECT outbox_id FROM outbox.messages ON CONFLICT DO NOTHING');
	return;
}

# ---------------------------------------------------------------- producers

sub try_producer
{
	my ($name, $count) = @_;
	my $test = "$way: $name";
	my $before = sql('SELECT count(*) FROM orders');

	is(produce($name, ('book') x 2, 'nonsense', ('lamp') x ($count - 2)), 1, "$test: an order fails, and it says so");
	is(sql('SELECT count(*) FROM orders') - $before, $count, "$test: ... and the other ones are stored");
	is(sql(q{
		SELECT count(*) FROM orders o FULL JOIN (SELECT * FROM outbox.messages WHERE event_type = 'order.placed') m
			ON m.payload = jsonb_build_object('id', o.id, 'item', o.item) AND m.aggregate_type = 'order' AND m.aggregate_id = o.id::text
		WHERE o.id IS NULL OR m.outbox_id IS NULL}), '0', "$test: each order has its message, each message its order");
	sql('REVOKE outbox_ingest FROM shop');
	is(produce($name, 'book'), 1, "$test: a message is refused, and it says so");
	sql('GRANT outbox_ingest TO shop');
	is(sql('SELECT count(*) FROM orders') - $before, $count, "$test: ... and its order is not stored");
	return;
}

# ---------------------------------------------------------------- plain workers

sub try_worker
{
	my $test = "$way: worker";

	# Without a receiver.
	my $lost = program('worker');
	delete $lost->{env}{RECEIVER_URL};
	$lost->spawn;
	isnt($lost->wait_end, 0, "$test: it ends if it does not know where to deliver");
	is(sql(q{SELECT count(*) FILTER (WHERE claimed_by IS NULL AND attempt_count = 0) > 0 AND count(*) FILTER (WHERE claimed_by IS NOT NULL) = 0 FROM outbox.pending}),
		't', '... before it claims');

	# Killed in the middle, when five are delivered and not reported.
	$receiver->answer('/hook', ({}) x 5, { hold => 'head' });
	my $killed = start('worker');
	$receiver->wait_held('/hook', 1);
	$receiver->requests('/hook', count => 6);
	$killed->kill9;
	cmp_ok(leased(), '>', 0, "$test: it is killed while it holds leases");
	$receiver->answer('/hook', {});
	expire_leases();
	my $worker = start('worker');
	delivered("$test, killed");
	is(sql("SELECT count(DISTINCT worker_id) FROM outbox.attempts JOIN outbox.messages m USING (outbox_id) WHERE event_type = 'order.placed'") >= 2 ? 'own' : 'shared', 'own',
		"$test: each process has a worker_id of its own");

	# What it reports.
	sql(q{SELECT outbox.alter_queue('default', backoff_base => '1 ms', backoff_cap => '1 ms')});
	$receiver->answer('/hook', { status => 422 }, { status => 503 }, {});
	my $expired = expired();
	place(5);
	delivered("$test, refused", refused => 2, failed => 1);
	is(expired(), $expired, "$test: ... each message of the batch is reported");
	is(sql(q{SELECT string_agg(outcome, ', ' ORDER BY outcome) FROM (
			SELECT DISTINCT a.state || ' ' || a.error_code AS outcome FROM outbox.attempts a WHERE a.error_code LIKE 'HTTP%') outcomes}),
		'FAILED HTTP_422, RETRYABLE HTTP_503', "$test: a refusal is a dead letter, a failure is tried again");

	# Its leases are gone when it reports.
	$receiver->answer('/hook', { hold => 'head' }, {});
	place(1);
	$receiver->wait_held('/hook', 1);
	$worker->pause;    # its time limit is not that of this machine
	expire_leases();
	my $other = start('worker');
	wait_until_done($node);
	$receiver->release('/hook');
	$worker->resume;
	$worker->wait_log(qr/not recorded/);
	ok($worker->running, "$test: that leases are gone does not end it");
	$other->signal('TERM');
	stops($other, "$test, idle");
	place(1);
	delivered("$test, leases lost");

	# Its connection is gone.
	my $log = OutboxTest::log_size($node);
	lose_connections($worker);
	place(1);
	delivered("$test, connection lost");
	is(scalar(OutboxTest::log_lines($node, $log, qr/: LISTEN outbox_pending$/)), $pooled ? 0 : 1, "$test: ... it LISTENs again, where it can");

	# It is asked to stop in the middle, and has claimed a part of what is there, which it delivers side by side. Either they end, or
	# they never do, and it gives them up. Node.js may read the answers, and claim once more, before it hears the signal.
	$receiver->answer('/hook', { hold => 'head' });
	place(105);
	$receiver->wait_held('/hook', 20);
	$worker->signal('TERM');
	if ($pooled)
	{
		$receiver->answer('/hook', {});
		$receiver->release('/hook');
	}
	stops($worker, "$test, in the middle");
	cmp_ok(sql('SELECT count(*) FROM outbox.pending'), '>=', $pooled ? 1 : 105, "$test: ... and soon claims no more");
	my $given_up = $pooled ? 0 : keys_received();
	$receiver->answer('/hook', {});
	$receiver->release('/hook');
	$worker = start('worker');
	delivered("$test, stopped", refused => $given_up);
	$worker->signal('TERM');
	stops($worker, "$test, idle again");
	return;
}

# All connections of the workers end, and for a moment there is nothing to connect to.
sub lose_connections
{
	my ($worker) = @_;

	if ($pooled)
	{
		$bouncer->kill9;
		$bouncer->start;
	}
	else
	{
		$node->stop;
		$worker->wait_log(qr/trying again/);
		$node->start;
	}
	return;
}

# ---------------------------------------------------------------- workers with an ORM

# A session that keeps shipments from being stored, until it is released; returns when a worker waits for it.
sub hold_shipments
{
	my ($waits) = @_;
	my $lock = OutboxTest::session($node);

	$lock->query_safe('BEGIN; LOCK TABLE shipments IN SHARE MODE');
	$waits->();
	$node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = 'shipper' AND wait_event_type = 'Lock'})
		or die 'no worker waits';
	cmp_ok(leased(), '>', 0, "$way: orm/worker: it holds leases");
	return $lock;
}

sub shipped
{
	my ($test) = @_;

	wait_until_done($node);
	is(sql(q{
		SELECT count(*) FROM (SELECT aggregate_id::bigint AS order_id FROM outbox.messages m
			WHERE NOT EXISTS (SELECT FROM seen s WHERE s.outbox_id = m.outbox_id) AND event_type = 'order.placed') placed
		FULL JOIN (SELECT order_id, count(*) FROM shipments GROUP BY 1) shipped USING (order_id)
		WHERE placed.order_id IS NULL OR shipped.count IS DISTINCT FROM 1}), '0', "$test: each order is shipped once");
	return;
}

sub try_orm_worker
{
	my $test = "$way: orm/worker";
	my $worker;

	sql('TRUNCATE shipments');
	my $lock = hold_shipments(sub { $worker = start('orm/worker') });
	$worker->kill9;
	expire_leases();
	$lock->quit;
	$worker = start('orm/worker');
	shipped("$test, killed");

	# Its lease is gone when it reports.
	$lock = hold_shipments(sub { place(1) });
	expire_leases();
	$lock->quit;
	shipped("$test, lease lost");

	# What cannot be shipped is a dead letter after some tries, and nothing else suffers.
	my $expired = expired();
	place(3, q{SELECT outbox.enqueue('order.imagined', '{"id": 0}', max_attempts => 2);});
	shipped("$test, fault");
	is(expired(), $expired, "$test: ... each message of the batch is reported");
	is(sql(q{SELECT string_agg(state::text, ', ' ORDER BY attempt_no) FROM outbox.attempts JOIN outbox.messages m USING (outbox_id)
		WHERE event_type = 'order.imagined' AND NOT EXISTS (SELECT FROM seen WHERE seen.outbox_id = m.outbox_id)}), 'RETRYABLE, FAILED',
		"$test: ... and what cannot be shipped is given up");

	lose_connections($worker);
	place(1);
	shipped("$test, connection lost");

	$lock = hold_shipments(sub { place(25) });
	$worker->signal('TERM');
	$lock->quit;
	stops($worker, "$test, in the middle");
	cmp_ok(sql('SELECT count(*) FROM outbox.pending'), '>', 0, "$test: ... and claims no more");
	$worker = start('orm/worker');
	shipped("$test, stopped");
	$worker->signal('TERM');
	stops($worker, "$test, idle");
	sql('INSERT INTO seen SELECT outbox_id FROM outbox.messages ON CONFLICT DO NOTHING');
	return;
}

# ---------------------------------------------------------------- all of a language

# The settings of PgBouncer, Debian's, which is in the way if the examples go through it.
sub start_bouncer
{
	my $folder = new_folder('pgbouncer');
	my $port = free_port();
	my $host = $node->host;

	write_file("$folder/users", qq{"shop" ""\n"shipper" ""\n});
	write_file("$folder/pgbouncer.ini", <<"END");
[databases]
postgres = host=$host port=${\ $node->port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port
unix_socket_dir =
auth_type = trust
auth_file = $folder/users
pool_mode = transaction
default_pool_size = 5
ignore_startup_parameters = extra_float_digits
END
	return BrokerTest::Process->new(name => 'pgbouncer', folder => $folder, listens => $port,
		command => [ 'pgbouncer', '-q', "$folder/pgbouncer.ini" ], ready => sub { is_open($port) })->start;
}

sub is_open
{
	return defined IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $_[0]);
}

sub try_examples
{
	($language) = @_;
	my $folder = "$built/$language";

	if (-e "$folder/missing")
	{
		my $reason = slurp("$folder/missing");

		die $reason if ($ENV{CI} // '') eq 'true';
		plan(skip_all => $reason);
	}
	ok(!-e "$folder/failed", "$language: it is built, without a warning") or die slurp("$folder/failed");

	$node = OutboxTest::new_node('main', preload => 1, conf => "listen_addresses = '127.0.0.1'\n");
	$node->append_conf('pg_hba.conf', 'host all all 127.0.0.1/32 trust');
	$node->reload;
	sql(slurp("$ENV{OUTBOX_EXAMPLES}/schema.sql"));
	sql(q{
		CREATE TABLE seen (outbox_id uuid PRIMARY KEY);
		ALTER ROLE shipper SET log_statement = 'all';
		SELECT outbox.alter_queue('default', repair_delay => '0')});
	$receiver = start_receiver();
	foreach my $through ('', 'pooled')
	{
		$way = $through || 'direct';
		$pooled = $through;
		$bouncer = start_bouncer() if $pooled;
		try_producer('producer', 42);
		try_worker();
		try_producer('orm/producer', 22);
		try_orm_worker();
	}
	OutboxTest::consistent($node, 'nothing lost, nothing twice');
	done_testing();
	return;
}

1;
