# Background processes that handle messages: queues.handler.
#
# Proves: a message is handled once it is committed, scheduled or retried, with no poll; what the handler did and the
# outcome are one transaction, also if the handler fails, hangs, is canceled, catches each cancel, is terminated, is killed with the server,
# loses its lease or breaks a deferred constraint; deferred triggers and cursors run as its owner; a session serves one
# owner; a handler that is replaced, dropped or given away is not called as it was, and messages wait without an
# attempt; processes end when there is nothing to do, and for DROP DATABASE; without a free background worker slot
# messages wait, and the log says so once; commands on other extensions change nothing.
use strict;
use warnings;

use OutboxTest;
use Test::More;

my $node = new_node('main', preload => 1, conf => "restart_after_crash = on");
my $do = sub { $node->safe_psql('postgres', shift) };
my $until = sub {
	my ($sql, $what) = @_;
	ok($node->poll_query_until('postgres', $sql), $what)
		or diag($do->('SELECT kind, state, last_error FROM outbox.workers'), "\n",
			$do->('SELECT m.event_type, a.* FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id) ORDER BY a.created_at DESC LIMIT 5'));
};
my $running = sub { return "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox handler'" };
my $ledger = sub {
	my ($type) = @_;
	return $do->(qq{
		SELECT string_agg(concat_ws(' ', a.attempt_no, a.state, a.error_code), ', ' ORDER BY a.attempt_no)
		FROM outbox.messages m JOIN outbox.attempts a USING (outbox_id) WHERE m.event_type = '$type'});
};
my $effects = sub { return $do->("SELECT count(*) FROM app.effects WHERE event_type = '$_[0]'") };
my $handled = sub {
	my ($type, $what) = @_;
	$until->("SELECT NOT EXISTS (SELECT FROM outbox.pending JOIN outbox.messages USING (outbox_id) WHERE event_type ~ '^$type')", $what);
};

# The handler does what the message says. A message that says 'lock' waits for a session that holds the lock.
my $app = q{
	CREATE ROLE app_owner;
	CREATE ROLE other_owner;
	CREATE SCHEMA app;
	CREATE TABLE app.effects (event_type text, pid int, who text, n int GENERATED ALWAYS AS IDENTITY);
	CREATE TABLE app.parents (id int PRIMARY KEY);
	CREATE TABLE app.children (id int REFERENCES app.parents DEFERRABLE INITIALLY DEFERRED);
	CREATE TABLE app.attempts_seen (n int);
	GRANT USAGE, CREATE ON SCHEMA app TO app_owner, other_owner;
	GRANT ALL ON ALL TABLES IN SCHEMA app TO app_owner, other_owner;
	CREATE FUNCTION app.handle(m outbox.claimed) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO app.effects VALUES (m.event_type, pg_backend_pid(), current_user);
		IF m.payload ? 'sql' THEN EXECUTE m.payload ->> 'sql'; END IF;
	END $$;
	CREATE FUNCTION app.handle_too(m outbox.claimed) RETURNS void LANGUAGE sql AS
		'INSERT INTO app.effects VALUES (m.event_type, pg_backend_pid(), current_user)';
	ALTER FUNCTION app.handle OWNER TO app_owner;
	ALTER FUNCTION app.handle_too OWNER TO other_owner;
	SELECT outbox.create_queue('h', handler => 'app.handle', max_attempts => NULL, backoff_base => '0', backoff_jitter => 0);
};
$do->($app);
wait_for_worker($node);

# ---- what is handled, and when
$do->(q{SELECT outbox.enqueue('one', '{}', 'h')});
$handled->('one', 'a message is handled after its commit');
is($effects->('one'), '1', '... once');
is($ledger->('one'), '1 DISPATCHED', '... in one attempt');
is($do->("SELECT who FROM app.effects WHERE event_type = 'one'"), 'app_owner', '... as the owner');
# The worker knows by now that the queue has a handler.
my $listener = listener($node);
$do->(q{SELECT outbox.enqueue('later', '{}', 'h', deliver_at => clock_timestamp() + '300 ms')});
$handled->('later', 'a scheduled one is, when it is due');
$do->(q{SELECT count(*) FROM generate_series(1, 3000) n, outbox.enqueue('bulk' || n, '{}', 'h')});
$handled->('bulk', 'a backlog is');
is($do->("SELECT count(*) || ' ' || count(DISTINCT event_type) FROM app.effects WHERE event_type ~ '^bulk'"), '3000 3000', '... each once');
cmp_ok($do->("SELECT count(DISTINCT pid) FROM app.effects WHERE event_type ~ '^bulk'"), '<=', 2, '... by two processes at most');
$node->poll_query_until('postgres', $running->(), '0');
is($do->($running->()), '0', 'processes end when there is nothing to do');
is($do->("SELECT state FROM outbox.workers WHERE kind = 'handler'"), 'idle', '... as outbox.workers says');
$do->(q{SELECT outbox.create_queue('end')});
is_deeply([ heard($listener) ], [], 'no session is notified of what only a handler may take');

# ---- failures
$do->(q{SELECT outbox.enqueue('fails', '{"sql": "SELECT 1 / count(*) FROM app.parents"}', 'h')});
$until->("SELECT count(*) >= 2 FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = 'fails'", 'one that fails is tried again');
is($effects->('fails'), '0', '... and what it did is undone');
$do->('INSERT INTO app.parents VALUES (0)');
$handled->('fails', '... until it does not fail');
is($effects->('fails'), '1', '... once');
like($ledger->('fails'), qr/^1 RETRYABLE 22012, 2 RETRYABLE 22012, .*DISPATCHED$/, '... with each attempt in the ledger');
$do->(q{SELECT outbox.enqueue('bad', '{"sql": "DO $$BEGIN RAISE ''no'' USING ERRCODE = ''P8001''; END$$"}', 'h')});
$handled->('bad', 'class P8 ends it');
is($ledger->('bad'), '1 FAILED P8001', '... at once');

$do->(q{SELECT outbox.enqueue('orphan', '{"sql": "INSERT INTO app.children VALUES (7)"}', 'h', max_attempts => 1)});
$handled->('orphan', 'a deferred constraint that fails at the commit');
is($ledger->('orphan') . ' ' . $effects->('orphan'), '1 FAILED 23503 0', '... is a failure of the handler');
$do->(q{SELECT outbox.enqueue('child', '{"sql": "INSERT INTO app.children VALUES (8); INSERT INTO app.parents VALUES (8)"}', 'h')});
$handled->('child', 'one that holds at the commit');
is($ledger->('child'), '1 DISPATCHED', '... is none');

# ---- rights
$do->(q{
	CREATE TABLE app.deferred (who text);
	CREATE TABLE app.seen (what text);
	GRANT ALL ON app.deferred, app.seen TO app_owner;
	CREATE FUNCTION app.tell() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO app.seen VALUES ('trigger as ' || current_user); RETURN NULL; END$$;
	CREATE CONSTRAINT TRIGGER tell AFTER INSERT ON app.deferred DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION app.tell();
	CREATE FUNCTION app.tell_text() RETURNS text LANGUAGE plpgsql AS $$BEGIN INSERT INTO app.seen VALUES ('cursor as ' || current_user); RETURN 'x'; END$$;
	CREATE FUNCTION app.on_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO app.seen VALUES ('event as ' || current_user); END$$;
	CREATE EVENT TRIGGER on_ddl ON ddl_command_end EXECUTE FUNCTION app.on_ddl();
	SELECT outbox.enqueue('deferred', '{"sql": "INSERT INTO app.deferred VALUES (1)"}', 'h'),
		outbox.enqueue('cursor', '{"sql": "DECLARE held CURSOR WITH HOLD FOR SELECT app.tell_text()"}', 'h'),
		outbox.enqueue('cursor again', '{"sql": "DECLARE held CURSOR WITH HOLD FOR SELECT app.tell_text()"}', 'h'),
		outbox.enqueue('temp', '{"sql": "CREATE TEMP TABLE made (n int) ON COMMIT DROP"}', 'h'),
		outbox.enqueue('ddl', '{"sql": "CREATE TABLE app.made (n int)"}', 'h')});
$handled->('deferred|cursor|temp|ddl', 'what runs at the end of the transaction is handled');
is($do->("SELECT string_agg(DISTINCT what, ', ' ORDER BY what) FROM app.seen WHERE what !~ 'postgres'"), 'event as app_owner, trigger as app_owner', '... as the owner of the handler');
is($do->("SELECT count(*) FROM app.seen WHERE what ~ 'trigger as [^a]|event as [^a]|cursor as [^a]'"), '0', '... and as no other');
is($ledger->('cursor again'), '1 DISPATCHED', 'no cursor is left behind');
$do->(q{SELECT outbox.enqueue('locks', '{"sql": "SELECT pg_advisory_lock(2)"}', 'h'),
	outbox.enqueue('locks too', '{"sql": "SELECT pg_advisory_lock(2), 1 / 0"}', 'h', max_attempts => 1)});
$handled->('locks', 'a handler that takes a lock of the session');
is($do->("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), '0', '... does not keep it');
$do->('DROP EVENT TRIGGER on_ddl');
my $become = sub {
	my ($n, $sql) = @_;
	$do->("SELECT outbox.enqueue('become$n', jsonb_build_object('sql', \$\$$sql\$\$), 'h', max_attempts => 1)");
	$handled->("become$n", $sql);
	is($ledger->("become$n") . ' ' . $effects->("become$n"), '1 FAILED ' . ($sql =~ /ROLE|AUTH|role/ ? '42501' : '0A000') . ' 0', '... is refused');
};
$become->(1, 'SET ROLE postgres');
$become->(2, 'RESET ROLE');
$become->(3, 'SET SESSION AUTHORIZATION postgres');
$become->(4, 'RESET SESSION AUTHORIZATION');
$become->(5, q{SELECT set_config('role', 'postgres', true)});
$become->(6, 'COMMIT');
$do->(q{SELECT outbox.enqueue('sets', '{"sql": "SET search_path = app; SET statement_timeout = 1; SET lock_timeout = 1; SET default_transaction_read_only = on"}', 'h'),
	outbox.enqueue('set', '{"sql": "INSERT INTO app.seen SELECT concat_ws('' '', ''settings'', current_setting(''search_path''), current_setting(''lock_timeout''), current_setting(''transaction_read_only''))"}', 'h')});
$handled->('set', 'what it sets');
is($do->("SELECT what FROM app.seen WHERE what ~ 'settings'"), 'settings pg_catalog, pg_temp 0 off', '... is undone');

# ---- one owner in a session
$do->(q{SELECT outbox.create_queue('other', handler => 'app.handle_too');
	SELECT count(*) FROM generate_series(1, 500) n, outbox.enqueue('two' || n, '{}', CASE n % 2 WHEN 0 THEN 'h' ELSE 'other' END)});
$handled->('two', 'queues of two owners are handled');
is($do->("SELECT count(DISTINCT who) FROM app.effects WHERE event_type ~ '^two'"), '2', '... as each of them');
is($do->("SELECT count(*) FROM (SELECT FROM app.effects GROUP BY pid HAVING count(DISTINCT who) > 1) x"), '0', '... never in one session');

# ---- a handler that is held up
my $locker = session($node);
my $hold = sub {
	my ($type, $more) = @_;
	$locker->query_safe('SELECT pg_advisory_lock(1)');
	$do->("SELECT outbox.enqueue('$type', '{\"sql\": \"SELECT pg_advisory_xact_lock(1)\"}', 'h')");
	$until->("SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", "$type: its handler runs");
};
my $let_go = sub { $locker->query_safe('SELECT pg_advisory_unlock_all()') };
my $handler_pid = sub { return $do->("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") };

$hold->('broken');
is($do->("SELECT (SELECT lease_expires_at - claimed_at FROM outbox.pending JOIN outbox.messages USING (outbox_id) WHERE event_type = 'broken') >= interval '1 minute'"), 't',
	'the lease outlasts the handler');
$do->(q{SELECT outbox.pause('h'); SELECT outbox.break_lease(outbox_id, 'test') FROM outbox.messages WHERE event_type = 'broken'});
$let_go->();
$until->("SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'", 'the lease is broken meanwhile');
is($effects->('broken'), '0', '... what it did is undone');
unlike($ledger->('broken'), qr/DISPATCHED/, '... and is not recorded');
$do->(q{SELECT outbox.resume('h')});
$handled->('broken', '... it is handled under another lease');
is($effects->('broken'), '1', '... once');

$do->(q{SELECT outbox.alter_queue('h', handler_timeout => '300 ms')});
$locker->query_safe('SELECT pg_advisory_lock(1)');
$do->(q{SELECT outbox.enqueue('hangs', '{"sql": "SELECT pg_advisory_xact_lock(1)"}', 'h', max_attempts => 1)});
$handled->('hangs', 'one that takes too long ends');
is($ledger->('hangs') . ' ' . $effects->('hangs'), '1 FAILED 57014 0', '... by a cancel');
is($do->("SELECT error_message FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = 'hangs'"), 'the handler took longer than 300 ms', '... that says so');
$do->(q{SELECT outbox.enqueue('clings', '{"sql": "DO $$BEGIN SET LOCAL statement_timeout = 0; PERFORM pg_advisory_xact_lock(1); EXCEPTION WHEN query_canceled THEN NULL; END$$"}', 'h', max_attempts => 1)});
$handled->('clings', 'one that catches the cancel');
is($ledger->('clings') . ' ' . $effects->('clings'), '1 FAILED 57014 0', '... is no success');
$do->(q{SELECT outbox.enqueue('loops', '{"sql": "DO $$DECLARE n int := 0; BEGIN LOOP BEGIN LOOP END LOOP; EXCEPTION WHEN query_canceled THEN n := n + 1; IF n = 2 THEN RAISE; END IF; END; END LOOP; END$$"}', 'h', max_attempts => 1)});
$handled->('loops', 'one that loops, and catches the cancel');
is($ledger->('loops') . ' ' . $effects->('loops'), '1 FAILED 57014 0', '... is canceled again');
my $stubborn = '{"sql": "DO $$BEGIN LOOP BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END$$"}';
my $stubborn_runs = "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'outbox handler' AND wait_event = 'PgSleep'";
my $from = log_size($node);
$do->("SELECT outbox.alter_queue('h', handler_timeout => '1 s')");
$do->("SELECT outbox.enqueue('stubborn', '$stubborn', 'h', max_attempts => 1)");
$until->($stubborn_runs, 'one that catches each cancel runs');
my $stubborn_pid = $do->("SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox handler'");
$until->("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $stubborn_pid)", '... and ends with its process');
is(scalar(log_lines($node, $from, 'terminating background worker "outbox handler"')), 1, '... as the log says');
$do->(q{UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE queue = 'h'; SELECT outbox.repair_expired_leases()});
$handled->('stubborn', 'a message whose process ended is repaired');
is($ledger->('stubborn') . ' ' . $effects->('stubborn'), '1 FAILED LEASE_EXPIRED 0', '... as a lost lease');
$let_go->();
$do->(q{SELECT outbox.alter_queue('h', handler_timeout => '1 hour')});
$do->("SELECT outbox.enqueue('stays', '$stubborn', 'h', max_attempts => 1)");
$until->($stubborn_runs, 'one that catches the cancel of a shutdown runs');
$node->restart;
$do->(q{UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE queue = 'h'; SELECT outbox.repair_expired_leases()});
$handled->('stays', 'a message whose server stopped is repaired');
is($ledger->('stays') . ' ' . $effects->('stays'), '1 FAILED LEASE_EXPIRED 0', '... as a lost lease, too');
wait_for_worker($node);
$locker = session($node);

$hold->('canceled');
$do->("SELECT pg_cancel_backend(" . $handler_pid->() . ")");
$until->("SELECT count(*) >= 1 FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = 'canceled'", 'a cancel');
$let_go->();
$handled->('canceled', '... is an attempt that failed');
like($ledger->('canceled') . ' ' . $effects->('canceled'), qr/^1 RETRYABLE 57014, .*DISPATCHED 1$/, '... and what it did is undone');

$hold->('ended');
$do->("SELECT pg_terminate_backend(" . $handler_pid->() . ")");
$let_go->();
$handled->('ended', 'a process that is terminated');
like($ledger->('ended') . ' ' . $effects->('ended'), qr/^1 (RETRYABLE 57014, 2 )?DISPATCHED 1$/, '... undoes and records what it was at');

# ---- crash
$hold->('killed');
my $victim = $handler_pid->();
kill 'KILL', $victim;
ok($node->poll_query_until('postgres', 'SELECT true'), 'a process is killed, and the server with it');
wait_for_worker($node);
is($effects->('killed'), '0', '... what it did is gone');
is($do->("SELECT claimed_by FROM outbox.pending JOIN outbox.messages USING (outbox_id) WHERE event_type = 'killed'"), 'outbox handler', '... but not the lease');
$do->(q{UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE queue = 'h'});
$do->(q{SELECT outbox.alter_queue('h', repair_delay => '0'); SELECT outbox.repair_expired_leases()});
$handled->('killed', '... it is handled once that is lost');
is($ledger->('killed') . ' ' . $effects->('killed'), '1 ZOMBIE_REQUEUE LEASE_EXPIRED, 2 DISPATCHED 1', '... which was an attempt');

# ---- a handler that changes
$locker = session($node);
$hold->('replaced');
$do->(q{CREATE OR REPLACE FUNCTION app.handle(m outbox.claimed) RETURNS void LANGUAGE sql AS
	$$INSERT INTO app.effects VALUES (m.event_type, 0, 'replaced')$$});
$let_go->();
$handled->('replaced', 'one that is replaced while it runs');
is($effects->('replaced'), '1', '... ends as it was');
$do->(q{SELECT outbox.enqueue('after', '{}', 'h')});
$handled->('after', '... and is called as it is');
is($do->("SELECT who FROM app.effects WHERE event_type = 'after'"), 'replaced', '... from then on');

$from = log_size($node);
$do->(q{ALTER FUNCTION app.handle OWNER TO other_owner; SELECT outbox.enqueue('given', '{}', 'h')});
$until->("SELECT last_error ~ 'queue \"h\": handler app.handle has another owner than when it was set' FROM outbox.workers WHERE kind = 'handler'", 'one that was given away is not called');
$do->(q{DROP FUNCTION app.handle});
$do->(q{SELECT outbox.enqueue('given2', '{}', 'h')});
$until->("SELECT last_error ~ 'handler app.handle\\(outbox.claimed\\) does not exist' FROM outbox.workers WHERE kind = 'handler'", 'one that was dropped is not called');
is($do->("SELECT sum(attempt_count) FROM outbox.pending JOIN outbox.messages USING (outbox_id) WHERE event_type ~ 'given'"), '0', '... and costs no attempt');
is(scalar(log_lines($node, $from, 'could not handle messages')), 1, '... and the log says it once');
$do->(q{CREATE FUNCTION app.handle(m outbox.claimed) RETURNS void LANGUAGE sql AS 'INSERT INTO app.effects VALUES (m.event_type, pg_backend_pid(), current_user)';
	ALTER FUNCTION app.handle OWNER TO app_owner; SELECT outbox.alter_queue('h', handler => 'app.handle')});
$handled->('given', 'set again, it handles what waited');
$until->("SELECT failures = 0 FROM outbox.workers WHERE kind = 'handler'", '... and all is well again');

# ---- other extensions
$do->(q{SELECT outbox.enqueue('outlasts', '{}', 'h', deliver_at => now() + interval '1 day')});
$do->('CREATE EXTENSION outbox_inbox');
$do->('DROP EXTENSION outbox_inbox');
$do->(q{SELECT outbox.reschedule(outbox_id, now()) FROM outbox.messages WHERE event_type = 'outlasts'});
$handled->('outlasts', 'another extension came and went: handled before anything is enqueued');

# ---- switched off, and restarts
configure($node, 'outbox.handler_workers' => 0);
$until->("SELECT setting = '0' FROM pg_settings WHERE name = 'outbox.handler_workers'", 'without processes');
$do->(q{SELECT outbox.enqueue('off', '{}', 'h')});
is($do->("SELECT string_agg(action || ' ' || detail, ', ') FROM outbox.maintain() WHERE action ~ 'handle'"), 'messages handled 1', 'maintain() handles');
$do->(q{SELECT outbox.enqueue('restart', '{}', 'h')});
configure($node, 'outbox.handler_workers' => undef);
$node->restart;
$handled->('restart', 'a new server handles what was left');

# ---- dump and restore
configure($node, 'outbox.handler_workers' => 0);
$until->("SELECT setting = '0' FROM pg_settings WHERE name = 'outbox.handler_workers'", 'without processes again');
$do->(q{SELECT outbox.enqueue('moved', '{}', 'h'); CREATE DATABASE copy TEMPLATE template0});
my $dump = $node->basedir . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, 'postgres' ], 'a dump');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', 'copy', $dump ], '... is restored');
configure($node, 'outbox.handler_workers' => undef);
wait_for_worker($node, database => 'copy');
my $in_copy = sub { return $node->safe_psql('copy', shift) };
is($in_copy->("SELECT concat_ws(' ', handler, handler_owner, handler_timeout) FROM outbox.queues WHERE queue = 'h'"), 'app.handle app_owner 01:00:00', '... with the handler');
is($in_copy->("SELECT count(*) FROM app.effects WHERE event_type = 'moved'"), '0', '... which does not run before something is enqueued');
$in_copy->(q{SELECT outbox.enqueue('first', '{}', 'h')});
ok($node->poll_query_until('copy', "SELECT count(*) = 2 FROM app.effects WHERE event_type IN ('moved', 'first')"), '... and then does');
$handled->('moved', '... as it does in the original');

# ---- a restore of which the worker sees the messages before their queue
my $worker = "kind = 'worker' AND database = 'postgres'";
my $notified = $do->("SELECT notified FROM outbox.workers WHERE $worker");
$do->(q{BEGIN;
	SELECT outbox.create_queue('restored', handler => 'app.handle'), outbox.enqueue('before its queue', '{}', 'restored');
	CREATE TABLE saved AS SELECT * FROM outbox.queues WHERE queue = 'restored';
	DELETE FROM outbox.queues WHERE queue = 'restored';
	COMMIT});
$until->("SELECT notified > $notified FROM outbox.workers WHERE $worker", 'the worker is told of a message whose queue is not there yet');
$until->("SELECT a.state = 'idle' FROM pg_stat_activity a JOIN outbox.workers USING (pid) WHERE $worker", '... and has looked for it');
$do->(q{INSERT INTO outbox.queues SELECT * FROM saved; SELECT outbox.enqueue('after its queue', '{}', 'restored')});
$handled->($_, "... which is handled once it is: $_") foreach ('before its queue', 'after its queue');

# ---- databases come and go
$do->('CREATE DATABASE gone');
$node->safe_psql('gone', 'CREATE EXTENSION outbox');
wait_for_worker($node, database => 'gone');
$node->safe_psql('gone', $app =~ s/CREATE ROLE \w+;//gr);
$node->safe_psql('gone', q{SELECT outbox.enqueue('sleeps', '{"sql": "SELECT pg_sleep(3600)"}', 'h')});
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'outbox handler' AND datname = 'gone' AND wait_event = 'PgSleep'"), 'a handler runs');
is($node->psql('postgres', 'DROP DATABASE gone'), 0, '... and does not keep its database from being dropped');
consistent($node, 'all is consistent');
$node->stop;

# ---- no free background worker slot: launcher, that of logical replication, and two workers
$node = new_node('crowded', preload => 1, extension => 0, conf => "max_worker_processes = 4");
$node->safe_psql('postgres', 'CREATE DATABASE second');
foreach my $database ('postgres', 'second')
{
	$node->safe_psql($database, 'CREATE EXTENSION outbox');
	wait_for_worker($node, database => $database);
}
$from = log_size($node);
$node->safe_psql('postgres', $app);
$node->safe_psql('postgres', q{SELECT outbox.enqueue('waits', '{}', 'h')});
ok($node->poll_query_until('postgres', "SELECT failures >= 4 FROM outbox.workers WHERE kind = 'handler' AND last_error ~ 'no background worker slot is free'"), 'without a free slot it tries again');
is(scalar(log_lines($node, $from, 'could not start handlers: no background worker slot is free')), 1, '... and the log says so once');
configure($node, 'outbox.databases' => 'postgres');
ok($node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM app.effects'), '... until there is one');
is(scalar(log_lines($node, $from, 'can start handlers again')), 1, '... and the log says that too');
$node->stop;

done_testing();
