# Errors raised deep inside, at any moment.
#
# Proves: a call that is cancelled, times out, runs out of memory or fails at commit is an
# ordinary error; nothing is half done; the session goes on at once, holds no lock and has
# not grown; 20,000 calls in one backend, failing ones included, leave its memory where it
# was. (B37, B38)
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed();
my $node = new_node('main', conf => "log_min_messages = error\nlog_min_error_statement = panic");

# ---------------------------------------------------------------- helpers of the server side

$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('numbered', ordering => 'numbered', max_attempts => 4, repair_delay => '0', backoff_base => '0');
	CREATE TABLE done (what text, rows bigint);
	-- One call of each kind on many rows. Each is one transaction with its note in `done`.
	CREATE FUNCTION batch(n int, keys int) RETURNS jsonb LANGUAGE sql AS $$
		SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', repeat('x', 100), 'partition_key', 'p' || g % keys,
			'idempotency_key', CASE g % 2 WHEN 0 THEN gen_random_uuid()::text END))
		FROM generate_series(1, n) g
	$$;
	CREATE FUNCTION report(who text, states text[]) RETURNS bigint LANGUAGE sql AS $$
		SELECT count(c.attempt_no) FROM (
			SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens,
				array_agg(states[1 + sequence_id % array_length(states, 1)]) AS states
			FROM outbox.pending WHERE claimed_by = who) held,
			outbox.complete_batch(who, held.ids, held.tokens, held.states) c
		WHERE held.ids IS NOT NULL
	$$;
});

my %work = (
	enqueue => q{INSERT INTO done SELECT 'enqueue', count(*) FILTER (WHERE created) FROM outbox.enqueue_batch('numbered', batch(400, 7))},
	single => q{INSERT INTO done SELECT 'enqueue', count(*) FROM generate_series(1, 100) g, outbox.enqueue('e', '1', 'numbered', partition_key => 'p' || g % 5)},
	claim => q{INSERT INTO done SELECT 'claim', count(*) FROM outbox.claim('w', 500, '1 hour', ARRAY['numbered'])},
	complete => q{INSERT INTO done SELECT 'complete', report('w', ARRAY['DISPATCHED', 'RETRYABLE', 'FAILED'])},
	release => q{INSERT INTO done SELECT 'release', count(*) FROM (SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens FROM outbox.pending WHERE claimed_by = 'w') h, outbox.release('w', h.ids, h.tokens) r WHERE h.ids IS NOT NULL AND r.error IS NULL},
	renew => q{INSERT INTO done SELECT 'renew', count(*) FROM (SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens FROM outbox.pending WHERE claimed_by = 'w') h, outbox.renew('w', h.ids, h.tokens) r WHERE h.ids IS NOT NULL AND r.error IS NULL},
	lapse => q{UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE claimed_by IS NOT NULL},
	repair => q{INSERT INTO done SELECT 'repair', count(*) FROM outbox.repair_expired_leases(500)},
	replay => q{INSERT INTO done SELECT 'enqueue', count(outbox.replay(outbox_id)) FROM (SELECT outbox_id FROM outbox.dead_letters LIMIT 100) d},
	maintain => q{INSERT INTO done SELECT 'maintain', count(*) FROM outbox.maintain()});
my @kinds = qw(enqueue enqueue single claim claim complete complete renew release lapse repair repair claim complete replay maintain);

# Locks that a session still holds between two statements, its own query's apart.
my $locks = q{SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype NOT IN ('virtualxid') AND relation IS DISTINCT FROM 'pg_locks'::regclass};
# What its memory contexts hold, the caches apart, which fill up once.
my $memory = q{SELECT sum(total_bytes) FROM pg_backend_memory_contexts};

# Runs a script in one session; what it printed, and its errors by SQLSTATE.
sub run_script
{
	my ($script) = @_;
	my ($ret, $out, $err) = $node->psql('postgres', $script, on_error_stop => 0,
		extra_params => [ '-v', 'VERBOSITY=sqlstate', '-v', 'SHOW_CONTEXT=never' ]);
	my %errors;

	$errors{$1}++ while $err =~ /(?:ERROR|FATAL|PANIC):\s+(.*)/g;
	is($ret, 0, 'the session lived to its end') or diag(substr($err, -2000));
	return ($out, \%errors, $err);
}

sub only_these
{
	my ($name, $errors, @allowed) = @_;
	my %left = %$errors;

	delete @left{@allowed};
	return is_deeply(\%left, {}, "$name: only " . join(' ', @allowed)) && note(explain($errors));
}

# Nothing is half done: what `done` says is what is there.
sub sums_up
{
	my ($name) = @_;

	is($node->safe_psql('postgres', 'SELECT count(*) FROM outbox.messages'),
		$node->safe_psql('postgres', q{SELECT coalesce(sum(rows), 0) FROM done WHERE what = 'enqueue'}), "$name: messages are those of calls that succeeded");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM outbox.attempts'),
		$node->safe_psql('postgres', q{
			SELECT (SELECT coalesce(sum(rows), 0) FROM done WHERE what IN ('complete', 'repair'))
				+ (SELECT count(*) FROM outbox.attempts WHERE recorded_by = 'w' AND (state = 'ZOMBIE_REQUEUE' OR error_code = 'LEASE_EXPIRED'))
				+ (SELECT count(*) FROM outbox.attempts WHERE recorded_by = 'outbox maintain')}),
		"$name: so are attempts, with the lost leases that claim and maintain() found");
	consistent($node, "$name: consistent");
	return;
}

# ---------------------------------------------------------------- statement_timeout

{
	my $script = "\\set QUIET on\n";

	for (1 .. 400)
	{
		my $kind = $kinds[ int(rand(@kinds)) ];

		$script .= "SET statement_timeout = " . (1 + int(rand(12))) . ";\n$work{$kind};\n";
		$script .= "SET statement_timeout = 0;\n$locks;\n" if rand() < 0.2;
	}
	my ($out, $errors, $err) = run_script($script);

	only_these('statement_timeout', $errors, '57014');
	cmp_ok($errors->{'57014'} // 0, '>', 20, 'statement_timeout: many did time out');
	unlike($out, qr/^[1-9]$/m, 'statement_timeout: no lock is left');
	sums_up('statement_timeout');
}

# ---------------------------------------------------------------- cancelled by another session

{
	my $worker = session($node);
	my $pid = $worker->query_safe('SELECT pg_backend_pid()');
	my $cancels = $node->basedir . '/cancels.sql';

	append_to_file($cancels, join '', map { sprintf("SELECT pg_cancel_backend(%d), pg_sleep(%.6f);\n", $pid, rand(0.02)) } 1 .. 500);
	# With files alone pumpable() tells whether it runs, and nobody pumps one that has ended.
	my $canceller = IPC::Run::start([ 'psql', '-XAtq', '-f', $cancels, '-d', $node->connstr('postgres') ], '<', '/dev/null', '>', '/dev/null');
	my %errors;

	while ($canceller->pumpable)
	{
		my $kind = $kinds[ int(rand(@kinds)) ];

		$worker->query($work{$kind});
		# A cancel may also strike the \echo's of the test itself: they are no queries.
		$errors{$1}++ while $worker->{stderr} =~ /ERROR:\s+(.*)/g;
		$worker->{stderr} = '';
	}
	$canceller->finish;
	$errors{$_} > 0 && /^canceling statement due to user request/ && delete $errors{$_} && ($errors{cancelled} = 1) foreach keys %errors;
	is_deeply(\%errors, { cancelled => 1 }, 'cancelled: an ordinary error, and no other');
	# The last cancel may still be on its way.
	$worker->query('SELECT 1') for 1 .. 2;
	$worker->{stderr} = '';
	is($worker->query($locks), '0', 'cancelled: no lock is left');
	is($worker->query('SELECT pg_backend_pid()'), $pid, 'cancelled: the same backend');
	$worker->quit;
	sums_up('cancelled');
}

# ---------------------------------------------------------------- lock_timeout

{
	my $holder = session($node);

	$holder->query_safe(q{BEGIN; SELECT outbox.enqueue('held', '1', 'numbered', partition_key => 'p1', idempotency_key => 'held')});
	my ($out, $errors, $err) = run_script(qq{
		SET lock_timeout = '1ms';
		SELECT outbox.enqueue('e', '1', 'numbered', idempotency_key => 'held');
		$locks;
		SELECT outbox.enqueue('e', '1', 'numbered', partition_key => 'p1');
		$locks;
		SELECT outbox.enqueue_batch('numbered', batch(100, 7));
		$locks;
		BEGIN;
		SAVEPOINT s;
		SELECT outbox.enqueue_batch('numbered', batch(100, 7));
		ROLLBACK TO s;
		SELECT created FROM outbox.enqueue('after', '1', 'numbered', partition_key => 'other');
		ROLLBACK;
	});

	is_deeply($errors, { '55P03' => 4 }, 'lock_timeout: each wait ends');
	is($out, "0\n0\n0\nt", 'lock_timeout: no lock is left, and a transaction goes on after a savepoint');
	$holder->query_safe('ROLLBACK');
	$holder->quit;
	sums_up('lock_timeout');
}

# ---------------------------------------------------------------- at commit

{
	$node->safe_psql('postgres', q{
		CREATE TABLE parent (id int PRIMARY KEY);
		CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
		CREATE TABLE skew (who int PRIMARY KEY, active boolean);
		INSERT INTO skew VALUES (1, true), (2, true);
	});
	my ($out, $errors) = run_script(qq{
		BEGIN;
		SELECT created FROM outbox.enqueue('late', '1', 'numbered', partition_key => 'late', idempotency_key => 'late');
		INSERT INTO child VALUES (1);
		COMMIT;
		$locks;
		SELECT sequence_id, created FROM outbox.enqueue('late', '1', 'numbered', partition_key => 'late', idempotency_key => 'late');
		INSERT INTO done VALUES ('enqueue', 1);
	});
	is_deeply($errors, { '23503' => 1 }, 'a deferred constraint fails at commit');
	is($out, "t\n0\n1|t", '... and takes the message, its number and its key with it');

	my @pair = (session($node), session($node));
	foreach my $i (0, 1)
	{
		my $who = $i + 1;

		$pair[$i]->query_safe(qq{
			BEGIN ISOLATION LEVEL SERIALIZABLE;
			UPDATE skew SET active = false WHERE who = $who AND (SELECT count(*) FROM skew WHERE active) = 2;
			SELECT outbox.enqueue('skew', '$who', idempotency_key => 'skew $who')});
	}
	$pair[0]->query_safe('COMMIT');
	$node->safe_psql('postgres', q{INSERT INTO done VALUES ('enqueue', 1)});
	$pair[1]->query('COMMIT');
	like($pair[1]->{stderr}, qr/could not serialize/, 'a write skew fails at commit');
	$pair[1]->{stderr} = '';
	is($pair[1]->query(q{INSERT INTO done SELECT 'enqueue', 1 FROM outbox.enqueue('skew', '2', idempotency_key => 'skew 2') WHERE created RETURNING rows}), '1',
		'... and takes the message with it; the next try succeeds');
	$_->quit foreach @pair;
	sums_up('at commit');
}

# ---------------------------------------------------------------- terminated

{
	my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

	for (1 .. 15)
	{
		my $victim = session($node);
		my $pid = $victim->query_safe('SELECT pg_backend_pid()');

		$victim->{stdin} .= "$work{$kinds[ int(rand(@kinds)) ]};\n" x 3;
		$victim->{run}->pump_nb;
		select(undef, undef, undef, rand(0.03));
		$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
		eval { $victim->quit };
	}
	is($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend'}), 1, 'terminated: all are gone');
	is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'terminated: the server is the same');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_prepared_xacts}), '0', 'terminated: nothing else is left');
	sums_up('terminated');
}

# ---------------------------------------------------------------- memory of a long-lived backend

{
	# Each round: 10 calls, two of them in vain.
	my $round = q{
		SELECT outbox.enqueue('e', '{"a": [1, 2, 3]}', idempotency_key => gen_random_uuid()::text);
		SELECT outbox.enqueue('e', '2', 'numbered', partition_key => 'memory');
		SELECT count(*) FROM outbox.enqueue_batch('default', '[{"event_type": "e", "payload": 1}, {"event_type": "e", "payload": 2}]');
		SELECT outbox.enqueue('e', '1', 'no such queue');
		SELECT count(*) FROM outbox.claim('m', 4, '1 hour');
		SELECT count(*) FROM (SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens FROM outbox.pending WHERE claimed_by = 'm') h, outbox.renew('m', h.ids, h.tokens, '2 hours') r;
		SELECT outbox.complete(gen_random_uuid(), gen_random_uuid(), 'm', 'DISPATCHED');
		SELECT count(*) FROM outbox.repair_expired_leases();
		BEGIN; SAVEPOINT s; SELECT outbox.enqueue('e', '3'); ROLLBACK TO s; SELECT outbox.enqueue('e', '3'); ROLLBACK;
		SELECT report_all('m');
	};
	$round =~ s/\n\s*/\n/g;
	$node->safe_psql('postgres', q{
		CREATE FUNCTION report_all(who text) RETURNS bigint LANGUAGE sql AS $$
			SELECT count(c.attempt_no) FROM (
				SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens, array_agg('DISPATCHED'::text) AS states
				FROM outbox.pending WHERE claimed_by = who) held,
				outbox.complete_batch(who, held.ids, held.tokens, held.states) c
			WHERE held.ids IS NOT NULL
		$$;
	});
	my $backend = session($node);
	my $pid = $backend->query_safe('SELECT pg_backend_pid()');
	my $rss = sub {
		my ($kb) = slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+) kB/m;
		return $kb;
	};
	my $many = sub {
		my ($rounds) = @_;

		$backend->query("\\o /dev/null\n" . ($round x $rounds) . "\n\\o");
		$backend->{stderr} = '';
	};

	$many->(50) for 1 .. 4;
	my $contexts_before = $backend->query_safe($memory);
	my $rss_before = $rss->();
	$many->(100) for 1 .. 20;
	my $contexts_after = $backend->query_safe($memory);
	my $rss_after = $rss->();

	note("memory contexts $contexts_before -> $contexts_after bytes, private memory $rss_before -> $rss_after kB");
	cmp_ok($contexts_after - $contexts_before, '<', 256 * 1024, '20,000 calls: no memory context has grown');
	cmp_ok($rss_after - $rss_before, '<', 1024, '20,000 calls: the process has not grown by a megabyte');
	is($backend->query($locks), '0', '20,000 calls: no lock is left');
	is($backend->query('SELECT count(*) FROM pg_cursors'), '0', '20,000 calls: no cursor is left');

	# One transaction with many calls gives its memory back at the end.
	$backend->query_safe(q{
		DO $$
		BEGIN
			FOR i IN 1 .. 10000 LOOP
				PERFORM outbox.enqueue('e', '1', priority => i % 16);
			END LOOP;
		END
		$$});
	cmp_ok($backend->query_safe($memory) - $contexts_after, '<', 256 * 1024, '10,000 calls in one transaction: nothing stays');

	# Within one transaction a call costs little that stays to its end.
	$backend->query_safe(q{BEGIN; SELECT outbox.enqueue('e', '1')});
	my $early = $backend->query_safe($memory);
	$backend->query_safe(q{SELECT outbox.enqueue('e', '1')}) for 1 .. 3;
	$backend->query("\\o /dev/null\n" . ("SELECT outbox.enqueue('e', '1', priority => 3);\n" x 2000) . "\\o");
	cmp_ok($backend->query_safe($memory) - $early, '<', 1024 * 1024, '2,000 statements in one transaction: hardly anything stays');
	$backend->query_safe('ROLLBACK');
	$backend->quit;
}
consistent($node, 'consistent in the end');
$node->stop('fast');

# ---------------------------------------------------------------- out of memory

SKIP:
{
	# A server whose processes may not have more than so much address space.
	my $small = new_node('small', conf => "shared_buffers = '4MB'\nrestart_after_crash = off");
	my $pid = slurp_file($small->data_dir . '/postmaster.pid') =~ s/\n.*//sr;
	my ($size) = slurp_file("/proc/$pid/status") =~ /^VmSize:\s+(\d+) kB/m;

	$small->stop('fast');
	my $limit = $size + 80 * 1024;
	my $status = system('bash', '-c', 'ulimit -v "$1" && exec pg_ctl -w -D "$2" -l "$3" start >/dev/null', 'bash', $limit, $small->data_dir, $small->logfile);

	is($status, 0, "a server with $limit kB of address space");
	$small->_update_pid(1);
	my ($ok, $failed) = (0, 0);
	my $session = session($small);
	my $backend = $session->query_safe('SELECT pg_backend_pid()');

	for (my $megabytes = 1; $megabytes <= 36; $megabytes += 2 + int(rand(4)))
	{
		foreach my $call ("outbox.enqueue('big', to_jsonb(repeat('x', $megabytes * 1024 * 1024)))",
			"outbox.enqueue_batch('default', jsonb_build_array(jsonb_build_object('event_type', 'big', 'payload', repeat('x', $megabytes * 1024 * 1024))))",
			"outbox.enqueue('many', '1', idempotency_key => repeat('x', $megabytes * 1024 * 1024))")
		{
			$session->query("\\set VERBOSITY sqlstate\nSELECT count(*) FROM $call");
			if ($session->{stderr} eq '')
			{
				$ok++;
			}
			elsif ($session->{stderr} =~ /ERROR:\s+(53200|54000)/)
			{
				$failed++;
			}
			else
			{
				fail("$call: $session->{stderr}");
			}
			$session->{stderr} = '';
		}
		# What went in comes out, or is an error and stays leased.
		$session->query("SELECT count(payload) FROM outbox.claim('w', 3)");
		fail("claim: $session->{stderr}") unless $session->{stderr} =~ /^$|ERROR:\s+(53200|54000)/;
		$session->{stderr} = '';
	}
	cmp_ok($ok, '>', 3, "out of memory: $ok calls succeeded");
	cmp_ok($failed, '>', 3, "out of memory: $failed calls failed");
	is($session->query('SELECT pg_backend_pid()'), $backend, 'out of memory: the same backend');
	is($small->safe_psql('postgres', 'SELECT count(*) FROM outbox.messages'), $ok, 'out of memory: what succeeded is there, and nothing else');
	$session->quit;
	$small->stop('fast');
	unlike(slurp_file($small->logfile), qr/terminated by signal|PANIC|TRAP|std::|XX000/, 'out of memory: no crash');
}

unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC|TRAP|XX000|leak|still active|not closed/, 'no crash, no leak');
done_testing();
