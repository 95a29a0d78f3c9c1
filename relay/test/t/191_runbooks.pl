# The runbooks that call the relay, each in the state that it is about. The others: test/t/090_runbooks.pl.
#
# Proves: each command of a page works there, as a role that has no more rights than the page says, and shows what the page
# shows; what the page says to do has the effect that it says.
use strict;
use warnings;

use BrokerTest;
use HTTP::Tiny;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use Runbook;
use Test::More;

my $program = $ENV{OUTBOX_RELAY} // "$BrokerTest::Base::here/../outbox-relay";
my $bin = new_folder('bin');
my $node = new_node('main', preload => 1, extension => 0, conf => "outbox.poll_interval = '200ms'");
my $nats = start_nats();
my $port = free_port();

$nats->stream('mail', subjects => ['mail.>']);
$node->safe_psql('postgres', 'CREATE ROLE ops LOGIN; CREATE ROLE dpo LOGIN; CREATE ROLE relay LOGIN');
symlink $program, "$bin/outbox-relay" or die;

sub sql { my ($sql) = @_; return $node->safe_psql('bank', $sql); }
sub wait_sql { my ($sql) = @_; return wait_for(sub { sql($sql) eq 't' }, $sql); }

sub make_bank
{
	my ($sql) = @_;

	$node->safe_psql('postgres', 'DROP DATABASE IF EXISTS bank WITH (FORCE)');
	$node->safe_psql('postgres', 'CREATE DATABASE bank');
	sql("CREATE EXTENSION outbox; GRANT outbox_operator TO ops; GRANT outbox_executor, outbox_readonly TO relay; SELECT outbox.create_queue('mail'); $sql");
	wait_for_worker($node, database => 'bank');
	return;
}

sub config
{
	my ($listen) = @_;

	return <<"END";
[relay]
listen = "$listen"
[[source]]
dsn = "${\ $node->connstr('bank')} user=relay"
queues = ["mail"]
[sink.events]
type = "nats"
url = "nats://127.0.0.1:${\ $nats->port}"
timeout = "2s"
connect_timeout = "2s"
[[route]]
subject = "mail.{event_type}"
END
}

my $other_config = write_file("$bin/relay.toml", config(''));

# The sessions of a page, which a restart of the server ends.
my %sessions;

sub connect_all
{
	%sessions = map { $_ => session($node, database => 'bank') } '', 'superuser';
	$sessions{''}->query('SET SESSION AUTHORIZATION ops');
	return \%sessions;
}

sub run
{
	my ($page, %options) = @_;
	my $runbook = Runbook->new(folder => $bin, sessions => connect_all(), env => {
		PGHOST => $node->host, PGPORT => $node->port, PGDATA => $node->data_dir, PATH => "$bin:$ENV{PATH}", RELAY_CONFIG => $other_config,
		RELAY_URL => "http://127.0.0.1:$port", %{ delete $options{env} // {} } });

	$runbook->run($page, %options);
	$_->quit foreach values %sessions;
	return;
}

# In place of sessions that a restart has ended.
sub reconnect
{
	my %old = %sessions;

	eval { $_->quit } foreach values %old;
	connect_all();
	foreach my $session (values %sessions)
	{
		$session->query($_) foreach '\pset format aligned', '\pset tuples_only off';
	}
	return;
}

my %page;

# ---------------------------------------------------------------- stuck messages

# What it claims.
sub as_worker { my ($lease) = @_; return sql("SELECT event_type FROM outbox.claim('worker 1', 1, '$lease', '{mail}')"); }

$page{'stuck-messages'} = sub {
	my ($hangs, $open);

	make_bank(q{
		SELECT outbox.enqueue('order.placed', '{}', 'mail') FROM generate_series(1, 3);
		UPDATE outbox.pending SET next_attempt_at = now() - interval '760 s', created_at = now() - interval '760 s'});
	$hangs = sub { is(as_worker('1 hour'), 'order.placed', 'a worker holds a message'); };
	run('stuck-messages',
		before => {
			'The queue is paused' => sub {
				$sessions{''}->query(q{SELECT outbox.pause('mail')});
				is(sql(q{SELECT outbox.explain(outbox_id) ~ 'The queue is paused' FROM outbox.pending LIMIT 1}), 't', 'explain says that the queue is paused');
			},
			'A worker holds it and hangs' => $hangs,
			'Leases have expired and are not taken back' => sub {
				configure($node, 'outbox.worker' => 'off');
				wait_sql(q{SELECT count(*) = 0 FROM outbox.workers WHERE kind = 'worker' AND pid IS NOT NULL});
				as_worker('1 ms');
			},
			'A transaction has its row in use' => sub {
				$open = session($node, database => 'bank');
				$open->query($_) foreach 'BEGIN', 'UPDATE outbox.pending SET priority = priority';
			} },
		rewrite => { 'A worker holds it and hangs' => sub { s/10 minutes/0 seconds/ }, 'A transaction has its row in use' => sub { s/5 minutes/0 seconds/ } },
		after => {
			'The queue is paused' => sub { is(sql(q{SELECT paused FROM outbox.queues WHERE queue = 'mail'}), 'f', 'the queue goes on'); },
			'A worker holds it and hangs' => sub { is(sql('SELECT error_code, error_message FROM outbox.attempts'), 'LEASE_BROKEN|worker hangs', 'the lease is gone, and recorded'); },
			'Leases have expired and are not taken back' => sub {
				is(sql('SELECT count(*) FROM outbox.pending WHERE claimed_by IS NOT NULL'), '0', 'maintain() takes leases back');
				configure($node, 'outbox.worker' => undef);
				wait_for_worker($node, database => 'bank');
			},
			'A transaction has its row in use' => sub {
				wait_sql(q{SELECT count(*) = 0 FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = 'bank'});
				wait_sql(q{SELECT count(*) > 0 FROM outbox.claim('worker 1', 10, queues => '{mail}')});
			} });
	eval { $open->quit };
};

# ---------------------------------------------------------------- the broker is away

$page{'broker-away'} = sub {
	my $relay;
	my $up = sub { my ($up) = @_; return wait_for(sub { HTTP::Tiny->new->get("http://127.0.0.1:$port/metrics")->{content} =~ /^outbox_sink_up\{sink="events"\} $up$/m }, "the sink to be up: $up"); };

	make_bank('');
	$relay = start_relay(config("127.0.0.1:$port"));
	sql(q{SELECT outbox.enqueue('order.placed', '{}', 'mail')});
	wait_sql('SELECT count(*) = 0 FROM outbox.pending');
	$nats->stop;
	sql(q{SELECT outbox.enqueue('order.placed', '{}', 'mail') FROM generate_series(1, 3)});
	$up->(0);
	run('broker-away', env => { RELAY_PID => $relay->pid },
		before => {
			'The broker comes back, and cannot take it all at once' => sub { is($relay->running, 1, 'the relay reads its configuration, and goes on'); },
			'Afterwards' => sub {
				$nats->start;
				wait_sql('SELECT count(*) = 0 FROM outbox.pending');
				$up->(1);
			} },
		after => { 'The broker comes back, and cannot take it all at once' => sub { is(sql(q{SELECT rate_limit IS NULL FROM outbox.queues WHERE queue = 'mail'}), 't', 'the limit is gone again'); } });
	is(sql(q{SELECT string_agg(DISTINCT state::text, ' ') FROM outbox.attempts WHERE state NOT IN ('RETRYABLE')}), 'DISPATCHED', 'the outage made no dead letter');
	$relay->stop;
};

# ---------------------------------------------------------------- scaling out

$page{'scaling-out'} = sub {
	$nats->start unless $nats->running;
	make_bank(q{
		SELECT c.recorded FROM generate_series(1, 50) n, outbox.enqueue_and_claim('worker 1', 'order.placed', to_jsonb(n), 'mail') e,
			outbox.complete(e.outbox_id, e.lease_token, 'worker 1', 'DISPATCHED', latency_ms => 40) c;
		SELECT outbox.alter_queue('mail', max_in_flight => 2);
		SELECT outbox.enqueue('order.placed', '{}', 'mail') FROM generate_series(1, 200);
		SELECT outbox_id FROM outbox.claim('worker 1', 2, queues => '{mail}')});
	run('scaling-out',
		before => {
			'More workers' => sub { sql(q{SELECT outbox.break_lease(outbox_id, 'test') FROM outbox.pending WHERE claimed_by IS NOT NULL}); },
			'More workers#2' => sub { wait_sql(q{SELECT bool_or(worker_id LIKE 'outbox-relay%') FROM outbox.attempts}); },
			'Some messages cannot wait' => sub {
				wait_sql('SELECT count(*) = 0 FROM outbox.pending');
				sql(q{SELECT outbox.pause('mail'); SELECT outbox.enqueue('order.placed', '{}', 'mail', partition_key => 'vip')});
			},
			'Afterwards' => sub {
				sql(q{SELECT outbox.resume('mail')});
				wait_sql('SELECT count(*) = 0 FROM outbox.pending');
			} },
		after => {
			'A limit holds it back' => sub { is(sql(q{SELECT max_in_flight FROM outbox.queues WHERE queue = 'mail'}), '100', 'the limit is raised'); },
			'Some messages cannot wait' => sub { is(sql('SELECT priority FROM outbox.pending'), '10', 'it is claimed first'); } });
};

# ---------------------------------------------------------------- upgrade

$page{'upgrade'} = sub {
	make_bank('');
	run('upgrade', before => {
		'Do#2' => sub {
			$node->_update_pid(1);
			reconnect();
		},
		'Afterwards' => sub { wait_for_worker($node, database => 'bank'); } });
};

is_deeply([ sort keys %page ], [ Runbook::pages(with_relay => 1) ], 'each page is run, here or without the relay');
# What stops one of them stops no other.
eval { $page{$_}->(); 1 } or fail("$_: $@") foreach sort keys %page;
done_testing();
