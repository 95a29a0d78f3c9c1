# The runbooks that need no relay, each in the state that it is about. The others: relay/test/t/191_runbooks.pl.
#
# Proves: each command of a page works there, as a role that has no more rights than the page says, and shows what the page
# shows; what the page says to do has the effect that it says.
use strict;
use warnings;

use FindBin;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Runbook;
use Test::More;

my $root = "$FindBin::RealBin/../..";
my $conf = "timezone = 'UTC'\noutbox.poll_interval = '200ms'";
my $main = new_node('main', preload => 1, extension => 0, conf => $conf);
my $folder = PostgreSQL::Test::Utils::tempdir();

system_or_bail('make', '-s', '-C', "$root/verify");
$main->safe_psql('postgres', q{CREATE ROLE ops LOGIN; CREATE ROLE dpo LOGIN});
chdir $folder or die;	# where psql writes its files

# A new database, with the roles of the pages.
sub make_bank
{
	my ($node, $sql) = @_;

	$node->safe_psql('postgres', 'DROP DATABASE IF EXISTS bank WITH (FORCE)');
	$node->safe_psql('postgres', 'CREATE DATABASE bank');
	$node->safe_psql('bank', "CREATE EXTENSION outbox; GRANT outbox_operator TO ops; GRANT outbox_privacy TO dpo; $sql");
	wait_for_worker($node, database => 'bank');
	return;
}

sub sql { my ($sql) = @_; return $main->safe_psql('bank', $sql); }

# as(NODE, ROLE): a session in bank
sub as
{
	my ($node, $role) = @_;
	my $session = session($node, database => 'bank');

	$session->query("SET SESSION AUTHORIZATION $role") if $role;
	return $session;
}

# run(NODE, PAGE, OPTION => VALUE...): more sessions and variables, and the options of Runbook::run
sub run
{
	my ($node, $page, %options) = @_;
	my %sessions = ('' => as($node, 'ops'), superuser => as($node), privacy => as($node, 'dpo'), %{ delete $options{sessions} // {} });
	my $runbook = Runbook->new(folder => $folder, sessions => \%sessions, env => {
		PGHOST => $node->host, PGPORT => $node->port, PATH => "$root/verify:$ENV{PATH}", %{ delete $options{env} // {} } });

	$runbook->run($page, %options);
	$_->quit foreach values %sessions;
	return;
}

my %page;

# ---------------------------------------------------------------- a worker that keeps dying

# A worker takes a message, and its lease ends.
sub lose
{
	my ($worker, $count) = @_;
	my $before = sql(q{SELECT count(*) FROM outbox.attempts WHERE state = 'ZOMBIE_REQUEUE'});

	sql("SELECT count(*) FROM outbox.claim('$worker', $count, queues => '{mail}')");
	sql("UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE claimed_by = '$worker'");
	$main->poll_query_until('bank', qq{SELECT count(*) = $before + $count FROM outbox.attempts WHERE state = 'ZOMBIE_REQUEUE'}) or die;
	return;
}

$page{'dying-worker'} = sub {
	make_bank($main, q{
		SELECT outbox.create_queue('mail', repair_delay => '0');
		SELECT c.recorded FROM outbox.enqueue_and_claim('worker 1', 'slow', '{}', 'mail') e, outbox.complete(e.outbox_id, e.lease_token, 'worker 1', 'DISPATCHED', latency_ms => 28000) c;
		SELECT outbox.enqueue('m', '{}', 'mail') FROM generate_series(1, 2)});
	lose('worker 1', 2);
	sql(q{SELECT outbox.enqueue('kills', '{}', 'mail', priority => 9)});
	lose('worker 2', 1) foreach 1 .. 3;
	run($main, 'dying-worker', after => {
		'A message kills its workers' => sub { is(sql(q{SELECT event_type FROM outbox.dead_letters}), 'kills', 'the message that kills is out of the way'); },
		'Deliveries take longer than the lease' => sub { is(sql(q{SELECT lease FROM outbox.queues WHERE queue = 'mail'}), '00:02:00', 'the lease is longer'); } });
	is(sql(q{SELECT paused FROM outbox.queues WHERE queue = 'mail'}), 'f', 'the queue goes on');
};

# ---------------------------------------------------------------- dead letters

$page{'dead-letters'} = sub {
	make_bank($main, q{
		SELECT outbox.create_queue('mail');
		SELECT count(*) FROM generate_series(1, 2502) n, outbox.enqueue(CASE WHEN n > 2500 THEN 'newsletter' ELSE 'order.placed' END, '{}', 'mail');
		SELECT count(*) FROM outbox.claim('worker 1', 3000, queues => '{mail}');
		SELECT count(*) FROM (
			SELECT array_agg(outbox_id ORDER BY outbox_id) AS ids, array_agg(lease_token ORDER BY outbox_id) AS tokens,
				array_agg(CASE event_type WHEN 'newsletter' THEN 'HTTP_410' ELSE 'HTTP_503' END ORDER BY outbox_id) AS codes
			FROM outbox.pending JOIN outbox.messages USING (outbox_id)) p,
			outbox.complete_batch('worker 1', ids, tokens, array_fill('FAILED'::outbox.attempt_state, ARRAY[2502]), error_codes => codes,
				error_messages => array_fill('no server is available'::text, ARRAY[2502]))});
	run($main, 'dead-letters',
		before => { 'Stop what would die next' => sub { sql(q{SELECT outbox.enqueue('newsletter', '{}', 'mail') FROM generate_series(1, 3)}); } },
		after => {
			'The cause is gone: replay' => sub { is(sql('SELECT count(*), count(DISTINCT replay_of) FROM outbox.messages WHERE replay_of IS NOT NULL'), '2500|2500', 'each is replayed, once'); },
			'They are not wanted: acknowledge' => sub { is(sql(q{SELECT dead_count FROM outbox.status WHERE queue = 'mail'}), '0', 'nothing waits for a decision'); },
			'Stop what would die next#1' => sub { is(sql(q{SELECT count(*) FROM outbox.dead_letters WHERE error_message = 'wrong template'}), '3', 'what would die next is cancelled'); },
			'Stop what would die next' => sub { is(sql(q{SELECT count(*) FROM outbox.dead_letters WHERE error_message = 'purged'}), '2500', 'and purged'); } });
};

# ---------------------------------------------------------------- a key is blocked

# The heads of so many keys are reported.
sub report_heads
{
	my ($count, $state, $more) = @_;

	return sql(qq{SELECT c.partition_key, r.recorded FROM outbox.claim('worker 1', $count, queues => '{mail}') c,
		outbox.complete(c.outbox_id, c.lease_token, 'worker 1', $state, $more) r ORDER BY 1});
}

$page{'blocked-key'} = sub {
	make_bank($main, q{
		SELECT outbox.create_queue('mail', ordering => 'fifo', on_dead_head => 'block');
		SELECT outbox.enqueue('order.placed', '{}', 'mail', partition_key => k) FROM unnest('{customer 17,customer 17,customer 17,customer 17,customer 17,customer 23,customer 23}'::text[]) k});
	report_heads(1, q{'FAILED'}, q{error_code => 'HTTP_422', error_message => 'total is missing'});
	report_heads(1, q{'RETRYABLE'}, q{retry_delay => '1 hour'});
	run($main, 'blocked-key',
		before => {
			# The replay dies as well.
			'It can be left out' => sub {
				is(sql(q{SELECT sequence_id, held_back FROM outbox.pending JOIN outbox.messages m USING (outbox_id, sequence_id) WHERE m.replay_of IS NOT NULL}), '1|f', 'the replay is first');
				report_heads(1, q{'FAILED'}, q{error_code => 'HTTP_422'});
			},
			'Many keys are blocked by one cause' => sub {
				sql(q{SELECT outbox.enqueue('order.placed', '{}', 'mail', partition_key => k, priority => 9) FROM unnest('{customer 30,customer 30}'::text[]) k});
				report_heads(1, q{'FAILED'}, q{error_code => 'HTTP_422'});
			} },
		after => {
			'It can be left out' => sub { is(sql(q{SELECT reason FROM outbox.blocked_keys WHERE partition_key = 'customer 17'}), 'due', 'the key goes on'); },
			'It waits for its next attempt' => sub { is(sql(q{SELECT reason FROM outbox.blocked_keys WHERE partition_key = 'customer 23'}), 'due', 'it is tried now'); },
			'Many keys are blocked by one cause' => sub { is(sql(q{SELECT reason FROM outbox.blocked_keys WHERE partition_key = 'customer 30'}), 'due', 'the others go on, too'); } });
};

# ---------------------------------------------------------------- the table grows

$page{'table-grows'} = sub {
	make_bank($main, q{
		SELECT outbox.create_queue('mail');
		SELECT c.recorded FROM generate_series(1, 100) n, outbox.enqueue_and_claim('w', 'e', to_jsonb(n), 'mail') e, outbox.complete(e.outbox_id, e.lease_token, 'w', 'DISPATCHED') c});
	my $report = as($main);
	my $shorter = sub { s/1 minute/0 seconds/g };

	$report->query($_) foreach q{SET application_name = 'nightly report'}, 'BEGIN', 'SELECT pg_current_xact_id()'; # has no backend_xmin then
	run($main, 'table-grows', rewrite => { 'Look' => $shorter, 'An old snapshot is held' => $shorter }, after => {
		'An old snapshot is held' => sub { is(sql(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'nightly report'}), '0', 'the report has ended'); },
		'Everything is kept for ever' => sub { is(sql('SELECT keep, dead_letters FROM outbox.retention'), '90 days|365 days', 'retention is set'); } });
	eval { $report->quit };
};

# ---------------------------------------------------------------- an auditor asks

$page{'auditor'} = sub {
	make_bank($main, q{
		SELECT outbox.create_queue('mail');
		SELECT c.recorded FROM outbox.enqueue_and_claim('worker 1', 'order.placed', '{}', 'mail', aggregate_type => 'order', aggregate_id => '17') e,
			outbox.complete(e.outbox_id, e.lease_token, 'worker 1', 'RETRYABLE', error_code => 'TIMEOUT', retry_delay => '1 hour') c;
		SET SESSION AUTHORIZATION ops;
		SELECT outbox.reschedule(outbox_id, now()) FROM outbox.pending;
		RESET SESSION AUTHORIZATION;
		SELECT r.recorded FROM outbox.claim('worker 1', 1, queues => '{mail}') c, outbox.complete(c.outbox_id, c.lease_token, 'worker 1', 'DISPATCHED', 'receipt 4711') r});
	seal_all($main, 'bank');
	run($main, 'auditor');
};

# ---------------------------------------------------------------- a subject asks for erasure

$page{'erasure'} = sub {
	make_bank($main, q{
		SELECT outbox.create_queue('mail', protect => '{"subject": "$.customer.id", "fields": ["$.email"]}');
		SELECT outbox.enqueue('order.placed', '{"email": "ann@example.com", "total": 99.90, "customer": {"id": "customer 17"}}', 'mail');
		SELECT outbox.enqueue('order.paid', '{"email": "ann@example.com", "customer": {"id": "customer 17"}}', 'mail')});
	run($main, 'erasure');
	is(sql(q{SELECT count(*) FROM outbox.erasures}), '1', 'one certificate');
};

# ---------------------------------------------------------------- restore

$page{'restore'} = sub {
	make_bank($main, q{
		SELECT outbox.create_queue('mail'), outbox.create_queue('persons', protect => '{"subject": "$.id", "fields": ["$.email"]}');
		SELECT outbox.enqueue(e, '{}', 'mail') FROM unnest('{order.placed,newsletter}'::text[]) e;
		SELECT outbox.enqueue('person', '{"id": 17, "email": "ann@example.com"}', 'persons')});
	seal_all($main, 'bank');
	run($main, 'restore', before => {
		# Erased after the backup.
		'Do' => sub {
			sql(q{SELECT outbox.erase_subject('17', 'request 1', 'test')});
			open my $file, '>', "$folder/erasures.jsonl" or die;
			print $file $main->safe_psql('bank', 'SELECT outbox.export_erasures()'), "\n";
			close $file;
		},
		'Do#2' => sub {
			$main->poll_query_until('bank_restored', q{SELECT count(*) = 1 FROM outbox.workers WHERE kind = 'worker' AND database = 'bank_restored' AND state = 'running'}) or die;
		},
		'Let it go' => sub { is($main->safe_psql('bank_restored', q{SELECT count(*) FROM outbox.claim('w', queues => '{mail}')}), '0', 'the copy is held back'); } });
	is($main->safe_psql('bank_restored', q{SELECT event_type FROM outbox.claim('w', queues => '{mail}')}), 'order.placed', 'the copy delivers what is left');
	is($main->safe_psql('bank_restored', q{SELECT outbox.reveal(payload) -> 'email' ? '$erased' FROM outbox.messages WHERE event_type = 'person'}), 't', '... and the person is erased there');
};

# ---------------------------------------------------------------- failover

$page{'failover'} = sub {
	my $primary = new_node('primary', preload => 1, streaming => 1, extension => 0, conf => $conf);
	my $standby = PostgreSQL::Test::Cluster->new('standby');

	$primary->safe_psql('postgres', q{CREATE ROLE ops LOGIN; CREATE ROLE dpo LOGIN});
	make_bank($primary, q{
		SELECT outbox.create_queue('mail', lease => '1 hour');
		SELECT outbox.enqueue('order.placed', '{}', 'mail') FROM generate_series(1, 4);
		SELECT outbox_id FROM outbox.claim('worker 1', 1, queues => '{mail}')});
	$primary->backup('backup');
	$standby->init_from_backup($primary, 'backup', has_streaming => 1);
	$standby->start;
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
	run($standby, 'failover', sessions => { standby => as($standby) }, env => { STANDBY_PGDATA => $standby->data_dir },
		before => {
			'Look' => sub { $standby->poll_query_until('bank', 'SELECT pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn()') or die; },
			'Do' => sub { $primary->stop('fast'); },
			'Do#2' => sub { wait_for_worker($standby, database => 'bank'); } });
	is($standby->safe_psql('bank', q{SELECT count(*) FROM outbox.claim('w', queues => '{mail}')}), '3', 'work goes on');
};

is_deeply([ sort keys %page ], [ Runbook::pages(with_relay => 0) ], 'each page is run, here or with the relay');
# What stops one of them stops no other.
eval { $page{$_}->(); 1 } or fail("$_: $@") foreach sort keys %page;
done_testing();
