# The launcher and the workers: who gets one, when, and what they survive.
#
# Proves: a database has a worker from the commit of CREATE EXTENSION to that of DROP
# EXTENSION, however these commands are given; a worker or launcher that is terminated,
# killed or configured away comes back; too few max_worker_processes and a version that
# the library does not serve cost one log line each and heal; nothing that a role or a
# database sets reaches a worker; a standby runs and logs nothing until it is promoted;
# outbox.workers and pg_stat_activity say what runs, and the log says nothing else.
#
# The slow look and the safety poll are kept out (a day and an hour) but where they are
# what is tested: what happens, happens because a process was notified. That a database gets no
# worker is asked once one that came later has its own.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', preload => 1, extension => 0, conf => "restart_after_crash = on\nautovacuum = off");
my $fences = 0;

# All that went before has been acted on by the launcher: a database that came after it
# has its worker.
sub fence
{
	my $database = 'fence' . ++$fences;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION outbox');
	wait_for_worker($node, database => $database);
	$node->safe_psql('postgres', "DROP DATABASE $database");
	return;
}

sub has_none
{
	my ($database, $name) = @_;

	fence();
	wait_for_no_worker($node, $database);
	return is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^outbox' AND datname = '$database'"),
		'0', $name);
}

sub terminate
{
	my ($pid) = @_;

	return is($node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)"), 't', "process $pid is told to end");
}

sub launcher_pid
{
	return $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox launcher'});
}

# ---------------------------------------------------------------- with the extension, and without

ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'outbox launcher'}), 'a launcher');
$node->safe_psql('postgres', "CREATE DATABASE $_") foreach qw(plain one two);

my $from = log_size($node);

$node->safe_psql('one', 'CREATE EXTENSION outbox');
my $worker = wait_for_worker($node, database => 'one');
ok($worker, 'CREATE EXTENSION is told of at once');
serves($node, 'one', 'a new worker');
has_none('plain', 'a database without the extension has no worker');
has_none('postgres', '... nor has another one');

$node->safe_psql('two', q{DO $$ BEGIN CREATE EXTENSION outbox; END $$});
wait_for_worker($node, database => 'two');
serves($node, 'two', 'an extension made by a DO block');

$node->safe_psql('two', 'DROP EXTENSION outbox');
wait_for_no_worker($node, 'two');
pass('DROP EXTENSION ends the worker');
$node->safe_psql('two', 'CREATE EXTENSION outbox');
wait_for_worker($node, database => 'two');
serves($node, 'two', 'the extension made again');

$node->safe_psql('two', 'BEGIN; DROP EXTENSION outbox; ROLLBACK');
fence();
wait_for_worker($node, database => 'two');
serves($node, 'two', 'a DROP EXTENSION that was rolled back');
$node->safe_psql('two', 'BEGIN; DROP EXTENSION outbox; CREATE EXTENSION outbox; COMMIT');
fence();
wait_for_worker($node, database => 'two');
serves($node, 'two', 'dropped and made in one transaction');
$node->safe_psql('two', q{DO $$ BEGIN DROP EXTENSION outbox; END $$});
wait_for_no_worker($node, 'two');
pass('DROP EXTENSION in a DO block ends the worker');

$node->safe_psql('plain', 'BEGIN; CREATE EXTENSION outbox; ROLLBACK');
has_none('plain', 'a CREATE EXTENSION that was rolled back');
$node->safe_psql('plain', 'CREATE SCHEMA outbox; CREATE TABLE outbox.messages (); CREATE TABLE outbox.pending ()');
$node->psql('plain', 'CREATE EXTENSION outbox');
has_none('plain', 'a schema outbox without the extension');
$node->safe_psql('two', 'CREATE SCHEMA s; CREATE EXTENSION outbox');
wait_for_worker($node, database => 'two');
# Somebody has enqueued there before: its first look starts maintenance.
ok($node->poll_query_until('two', q{
		SELECT count(*) > 0 AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'outbox maintenance')
		FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relname ~ '_p\d{8}'}),
	'maintenance has made partitions, and is gone');
is(worker_says($node, 'pid', 'one'), $worker, 'none of that disturbed the worker of another database');
logged($node, $from, 'CREATE and DROP EXTENSION', qr/^ERROR:  .*outbox/);

# ---------------------------------------------------------------- what they show

is($node->safe_psql('postgres', q{SELECT count(*), bool_and(datname IS NULL AND query <> '' AND wait_event_type = 'Extension')
	FROM pg_stat_activity WHERE backend_type = 'outbox launcher'}), '1|t', 'pg_stat_activity: one launcher, in no database, says what it does');
is($node->safe_psql('postgres', q{SELECT string_agg(datname, ' ' ORDER BY datname), bool_and(query <> '' AND wait_event_type = 'Extension')
	FROM pg_stat_activity WHERE backend_type = 'outbox worker'}), 'one two|t', '... one worker in each database that has the extension');
is($node->safe_psql('postgres', q{
		SELECT count(*) FILTER (WHERE xact_start IS NOT NULL OR backend_xmin IS NOT NULL OR backend_xid IS NOT NULL), (
			SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE backend_type ~ '^outbox')
		FROM pg_stat_activity WHERE backend_type ~ '^outbox'}),
	'0|0', '... none of them has a transaction, a snapshot or a lock while it sleeps');
# Who looked while the extension was being dropped or made waited for a lock, which is no trouble.
is($node->safe_psql('one', q{
		SELECT w.kind, w.database, w.state, w.pid = a.pid, w.failures, coalesce(w.last_error ~ 'lock timeout$', true), w.since > a.backend_start - interval '1 minute'
		FROM outbox.workers w LEFT JOIN pg_stat_activity a ON a.pid = w.pid AND a.backend_type = 'outbox ' || w.kind
		ORDER BY database NULLS FIRST, kind DESC}),
	"launcher||running|t|0|t|t\nworker|one|running|t|0|t|t\nmaintenance|one|idle||0|t|\nworker|two|running|t|0|t|t\nmaintenance|two|idle||0|t|",
	'outbox.workers shows the processes of all databases');
is($node->safe_psql('one', q{
		SELECT next_wake > now() + interval '50 minutes' AND next_wake <= now() + interval '61 minutes' FROM outbox.workers
		WHERE kind = 'worker' AND database = 'two'}), 't', '... and when they wake by themselves: for the safety poll, when nothing else is known');
is($node->safe_psql('one', q{SELECT count(*) FROM outbox.check() WHERE object = 'background worker'}), '0', 'check() finds nothing amiss');
foreach my $role (qw(outbox_readonly outbox_auditor outbox_operator))
{
	is($node->safe_psql('one', "SET ROLE $role; SELECT count(*) FROM outbox.workers WHERE pid IS NOT NULL"), '3', "$role may read outbox.workers");
}
$node->safe_psql('postgres', 'CREATE ROLE nobody LOGIN');
foreach my $role (qw(nobody outbox_ingest outbox_executor))
{
	is(sqlstate($node, "SET ROLE $role; SELECT * FROM outbox.workers", database => 'one'), '42501', "$role may not");
}

# ---------------------------------------------------------------- terminated, killed, stopped

$from = log_size($node);
terminate($worker);
$worker = wait_for_worker($node, database => 'one', other => $worker);
serves($node, 'one', 'a worker that was terminated');
for (1 .. 3)
{
	terminate($worker);
	$worker = wait_for_worker($node, database => 'one', other => $worker);
}
serves($node, 'one', 'a worker that was terminated again and again');

my $launcher = launcher_pid();
terminate($launcher);
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'outbox launcher' AND pid <> $launcher"),
	'a launcher that was terminated');
fence();
is(worker_says($node, 'pid', 'one'), $worker, '... finds the workers that run');
is($node->safe_psql('postgres', q{SELECT count(*), count(DISTINCT datname) FROM pg_stat_activity WHERE backend_type = 'outbox worker'}),
	'2|2', '... and starts no second one');
terminate($worker);
$worker = wait_for_worker($node, database => 'one', other => $worker);
serves($node, 'one', 'a worker that the launcher did not start was terminated');

$launcher = launcher_pid();
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type ~ '^outbox'});
$worker = wait_for_worker($node, database => 'one', other => $worker);
wait_for_worker($node, database => 'two');
serves($node, 'two', 'all were terminated at once');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($worker)");
serves($node, 'one', 'a worker that was cancelled while it slept');
is(worker_says($node, 'pid', 'one'), $worker, '... goes on');
logged($node, $from, 'terminating');

# A crash of a worker is one of the server: all processes go, and what was in shared memory. Who
# asks a server that is not ready yet may fail at that.
my $ready = qr/database system is ready to accept connections/;

$node->safe_psql('one', q{SELECT outbox_id FROM outbox.enqueue_and_claim('crash', 'e', '1', lease => '1 second')});
$from = log_size($node);
kill 'KILL', $worker;
$node->wait_for_log($ready, $from);
$worker = wait_for_worker($node, database => 'one', other => $worker);
ok($node->poll_query_until('one', q{SELECT count(*) = 1 FROM outbox.attempts WHERE worker_id = 'crash' AND recorded_by = 'outbox worker'}),
	'a worker that was killed: a lease of before the crash is repaired');
wait_for_worker($node, database => 'two');
serves($node, 'two', 'the worker of another database after the crash');
$launcher = launcher_pid();
$from = log_size($node);
kill 'KILL', $launcher;
$node->wait_for_log($ready, $from);
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'outbox launcher' AND pid <> $launcher"),
	'a launcher that was killed');
wait_for_worker($node, database => 'one');
serves($node, 'one', 'after the crash of the launcher');

foreach my $mode ('fast', 'smart', 'immediate')
{
	my @ours = split /\n/, $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type ~ '^outbox'});

	$from = log_size($node);
	$node->stop($mode);
	is(scalar(grep { kill 0, $_ } @ours), 0, "$mode stop: all have ended");
	is(scalar(log_lines($node, $from, qr/terminated by signal|PANIC/)), 0, '... in good order');
	$node->start;
	wait_for_worker($node, database => $_) foreach qw(one two);
}
serves($node, 'one', 'after restarts');

# Without a postmaster nobody of ours may go on: the next one could not start.
# Nor may the server's own processes.
my ($ours, @all) = split /\n/, $node->safe_psql('postgres', q{
	SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^outbox';
	SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()});
is($ours, 3, 'three processes of ours');
$node->kill9;
my $left = @all;
for (1 .. 1800)
{
	$left = grep { kill 0, $_ } @all;
	last if $left == 0;
	select(undef, undef, undef, 0.1);
}
is($left, 0, 'the postmaster was killed: all have ended');
$node->start;
wait_for_worker($node, database => $_) foreach qw(one two);

# ---------------------------------------------------------------- settings, by reload

$from = log_size($node);
configure($node, 'outbox.worker' => 'off');
wait_for_no_worker($node, $_) foreach qw(one two);
is($node->safe_psql('one', q{SELECT state, pid IS NOT NULL FROM outbox.workers WHERE kind = 'launcher'}), 'off|t', 'outbox.worker = off: the launcher stays');
is($node->safe_psql('one', q{SELECT state FROM outbox.workers WHERE kind = 'worker' AND database = 'one'}), 'stopped', '... and the workers go');
is($node->safe_psql('one', q{SELECT count(*) FROM outbox.check() WHERE severity = 'warning' AND object = 'background worker'}), '1', '... which check() tells');
my $listener = listener($node, database => 'one');
$node->safe_psql('one', q{SELECT outbox.enqueue('e', '1')});
ok(hear($listener, 'default'), '... and producers notify for themselves');
$listener->{session}->quit;
$node->safe_psql('plain', 'DROP SCHEMA outbox CASCADE; CREATE EXTENSION outbox');
$node->safe_psql('two', 'DROP EXTENSION outbox');
wait_for_rounds($node, 'launcher', 'one', 1, sub { $node->reload });
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox worker'}), '0', '... and CREATE EXTENSION starts none');
configure($node, 'outbox.worker' => undef);
wait_for_worker($node, database => $_) foreach qw(one plain);
serves($node, $_, 'outbox.worker = on again') foreach qw(one plain);
has_none('two', 'an extension that was dropped meanwhile');
$node->safe_psql('two', 'CREATE EXTENSION outbox');
wait_for_worker($node, database => 'two');

logged($node, $from, 'outbox.worker off and on');

# Nobody announces rows that are written by hand: they are left to the safety poll.
$listener = listener($node, database => 'one');
$node->safe_psql('one', q{SELECT outbox.create_queue('by hand')});
$node->safe_psql('one', q{SELECT outbox.enqueue('e', '1', 'by hand', deliver_at => 'tomorrow')});
$node->safe_psql('one', q{UPDATE outbox.pending SET next_attempt_at = '2001-01-01' WHERE queue = 'by hand'});
is($node->safe_psql('one', q{SELECT notified FROM outbox.stats WHERE queue = 'by hand'}), '0', 'with a long outbox.poll_interval nothing is found');
configure($node, 'outbox.poll_interval' => '100ms');
ok(hear($listener, 'by hand'), '... and when it is shortened by a reload, it is');
$listener->{session}->quit;
configure($node, 'outbox.poll_interval' => undef);
wait_for_worker($node, database => 'one');

# Which databases have a worker.
sub served
{
	return $node->safe_psql('postgres', q{SELECT string_agg(datname, ' ' ORDER BY datname COLLATE "C") FROM pg_stat_activity
		WHERE backend_type = 'outbox worker' AND state = 'idle'});
}

sub served_are
{
	my ($databases, $expected, $name) = @_;

	configure($node, 'outbox.databases' => $databases);
	$node->poll_query_until('postgres', q{SELECT coalesce(string_agg(datname, ' ' ORDER BY datname COLLATE "C"), '') FROM pg_stat_activity
		WHERE backend_type = 'outbox worker' AND state = 'idle'}, $expected);
	wait_for_rounds($node, 'launcher', 'two', 1, sub { $node->reload });
	return is(served(), $expected, $name);
}

$from = log_size($node);
foreach my $name ('Upper', 'We ird, "n"', "it's")
{
	$node->safe_psql('postgres', 'CREATE DATABASE "' . $name =~ s/"/""/gr . '"');
	$node->safe_psql($name, 'CREATE EXTENSION outbox');
}
served_are('', q{Upper We ird, "n" it's one plain two}, 'outbox.databases is empty: all that have the extension');
served_are('one', 'one', 'one name');
served_are('ONE , plain', 'one plain', 'names are folded as SQL folds them');
served_are('"Upper", "We ird, ""n""", "it\'\'s"', q{Upper We ird, "n" it's}, 'names in quotes');
serves($node, 'We ird, "n"', 'a strange name');
served_are('upper, "ONE", nowhere, two, postgres', 'two', 'names of no database, of one of another case, of one without the extension');
served_are('nowhere', '', 'only names of no database');
served_are(undef, q{Upper We ird, "n" it's one plain two}, 'back to all');
is(sqlstate($node, q{ALTER SYSTEM SET outbox.databases = 'one two'}), '22023', 'a list that is none is refused');
logged($node, $from, 'outbox.databases', qr/^ERROR:  .*outbox.databases.*one two/);
$node->safe_psql('postgres', qq{DROP DATABASE "$_"}) foreach 'Upper', 'We ird, ""n""', "it's", 'plain';

# ---------------------------------------------------------------- a version that is not served

$from = log_size($node);
$worker = worker_says($node, 'pid', 'one');
$node->safe_psql('one', q{UPDATE pg_extension SET extversion = '99.9' WHERE extname = 'outbox'});
terminate($worker);
wait_for_no_worker($node, 'one');
has_none('one', 'a version that the library does not serve has no worker');
configure($node, 'outbox.discovery_interval' => '1s');
wait_for_rounds($node, 'launcher', 'two', 8);
# Each look is by a worker, which goes again: one that stays is there after the last one, too.
configure($node, 'outbox.discovery_interval' => undef);
ok($node->poll_query_until('two', q{SELECT next_wake > now() + interval '1 hour' FROM outbox.workers WHERE kind = 'launcher'}), 'the launcher has looked for the last time');
has_none('one', '... nor when the launcher looks again');
logged($node, $from, 'another version', qr/version of the extension that this library does not support/,
	qr/^HINT:  .*ALTER EXTENSION outbox UPDATE/);
$from = log_size($node);
$node->safe_psql('one', q{UPDATE pg_extension SET extversion = (SELECT default_version FROM pg_available_extensions WHERE name = 'outbox')
	WHERE extname = 'outbox'});
$node->safe_psql('one', 'ALTER EXTENSION outbox UPDATE');
wait_for_worker($node, database => 'one');
serves($node, 'one', 'ALTER EXTENSION is told of');

# By the slow look alone, and the safety poll finds that the version changed.
configure($node, 'outbox.discovery_interval' => '1s', 'outbox.poll_interval' => '100ms');
$node->safe_psql('one', q{UPDATE pg_extension SET extversion = '99.9' WHERE extname = 'outbox'});
wait_for_no_worker($node, 'one');
pass('the worker goes when the version changes under it');
# The launcher says so a moment later, or when it has looked again; if there still is something to say.
ok($node->wait_for_log(qr/version of the extension that this library does not support/, $from), '... and the log says why');
$node->safe_psql('one', q{UPDATE pg_extension SET extversion = (SELECT default_version FROM pg_available_extensions WHERE name = 'outbox')
	WHERE extname = 'outbox'});
wait_for_worker($node, database => 'one');
pass('the slow look finds the extension');
configure($node, 'outbox.discovery_interval' => undef, 'outbox.poll_interval' => undef);
serves($node, 'one', 'a version that is served again');
logged($node, $from, 'the version goes and comes back', qr/version of the extension that this library does not support/,
	qr/^HINT:  .*ALTER EXTENSION outbox UPDATE/);

# ---------------------------------------------------------------- what roles and databases set

# Whatever is found through this search_path fails.
my $trap = q{
	CREATE SCHEMA evil;
	CREATE FUNCTION evil.trap() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
	CREATE FUNCTION evil.uuid_trap(uuid, uuid) RETURNS boolean LANGUAGE sql AS 'SELECT evil.trap()';
	CREATE FUNCTION evil.oid_trap(oid, oid) RETURNS boolean LANGUAGE sql AS 'SELECT evil.trap()';
	CREATE FUNCTION evil.name_trap(name, name) RETURNS boolean LANGUAGE sql AS 'SELECT evil.trap()';
	CREATE FUNCTION evil.text_trap(text, text) RETURNS text LANGUAGE sql AS 'SELECT evil.trap()::text';
	CREATE FUNCTION evil.time_trap(timestamptz, timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT evil.trap()';
	CREATE OPERATOR evil.= (FUNCTION = evil.uuid_trap, LEFTARG = uuid, RIGHTARG = uuid);
	CREATE OPERATOR evil.< (FUNCTION = evil.uuid_trap, LEFTARG = uuid, RIGHTARG = uuid);
	CREATE OPERATOR evil.>= (FUNCTION = evil.uuid_trap, LEFTARG = uuid, RIGHTARG = uuid);
	CREATE OPERATOR evil.= (FUNCTION = evil.oid_trap, LEFTARG = oid, RIGHTARG = oid);
	CREATE OPERATOR evil.= (FUNCTION = evil.name_trap, LEFTARG = name, RIGHTARG = name);
	CREATE OPERATOR evil.<= (FUNCTION = evil.time_trap, LEFTARG = timestamptz, RIGHTARG = timestamptz);
	CREATE OPERATOR evil.|| (FUNCTION = evil.text_trap, LEFTARG = text, RIGHTARG = text);
	CREATE FUNCTION evil.substr(text, int) RETURNS text LANGUAGE sql AS 'SELECT evil.trap()::text';
	CREATE FUNCTION evil.obj_description(oid, name) RETURNS text LANGUAGE sql AS 'SELECT evil.trap()::text';
	CREATE FUNCTION evil.array_to_string(text[], text) RETURNS text LANGUAGE sql AS 'SELECT evil.trap()::text';
	CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT evil.trap()::text::timestamptz';
	CREATE FUNCTION evil.lower(text) RETURNS text LANGUAGE sql AS 'SELECT evil.trap()::text';
	CREATE VIEW evil.pg_class AS SELECT evil.trap();
	CREATE VIEW evil.pg_index AS SELECT evil.trap();
	CREATE VIEW evil.pg_extension AS SELECT evil.trap();
	CREATE VIEW evil.pending AS SELECT evil.trap();
	CREATE VIEW evil.messages AS SELECT evil.trap()};
my %hostile = (
	statement_timeout => '1', lock_timeout => '1', idle_in_transaction_session_timeout => '1', idle_session_timeout => '1',
	default_transaction_read_only => 'on', default_transaction_isolation => 'serializable', default_transaction_deferrable => 'on',
	search_path => 'evil, pg_catalog', role => 'nobody', session_replication_role => 'replica', row_security => 'off',
	exit_on_error => 'on', client_encoding => 'LATIN1', datestyle => 'SQL, DMY', intervalstyle => 'sql_standard',
	timezone => 'Asia/Kathmandu', standard_conforming_strings => 'off', quote_all_identifiers => 'on',
	enable_indexscan => 'off', enable_seqscan => 'off', work_mem => '64kB', client_min_messages => 'error',
	'outbox.partition_interval' => '1 hour');
# What the test's own sessions need to do without, which would have all that as well.
my $own = join ' ', map { "-c $_" } 'default_transaction_isolation=read\\ committed', qw(
	statement_timeout=0 lock_timeout=0 idle_in_transaction_session_timeout=0 idle_session_timeout=0
	default_transaction_read_only=off default_transaction_deferrable=off search_path=public role=none
	session_replication_role=origin row_security=on exit_on_error=off client_encoding=UTF8 datestyle=ISO
	intervalstyle=postgres timezone=UTC standard_conforming_strings=on client_min_messages=notice);

$node->safe_psql('postgres', 'CREATE DATABASE hostile');
# As a restore does, without partitions.
$node->safe_psql('hostile', "SET xmloption = content; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; CREATE EXTENSION outbox; $trap");
wait_for_worker($node, database => 'hostile');
$from = log_size($node);
foreach my $whom ('DATABASE hostile', 'ROLE SESSION_USER IN DATABASE hostile', 'ROLE SESSION_USER', 'ROLE ALL', 'ROLE outbox_owner')
{
	my @databases = $whom =~ /hostile/ ? ('hostile') : ('hostile', 'one');
	my %before = map { $_ => worker_says($node, 'pid', $_) } @databases;
	local $ENV{PGOPTIONS} = $own;

	$node->safe_psql('postgres', join '', map {
		"ALTER $whom SET $_ = " . ($_ eq 'search_path' ? $hostile{$_} : "'$hostile{$_}'") . ";\n" } sort keys %hostile);
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type ~ '^outbox'});
	foreach my $database (@databases)
	{
		wait_for_worker($node, database => $database, other => $before{$database});
		serves($node, $database, "settings of $whom");
	}
	$node->safe_psql('postgres', "ALTER $whom RESET ALL");
}
# Of an hour, by the time of day in its name, which midnight has not.
ok($node->poll_query_until('hostile', q{SELECT count(*) > 0 FROM pg_class WHERE relname ~ '^messages_p[0-9]+_[0-9]+$'}),
	'maintenance, of which outbox.partition_interval is heard, made its partitions');
logged($node, $from, 'settings of roles and databases');
is(join("\n", log_lines($node, $from, qr/evil/)), '', '... and nothing was found through their search_path');
$node->safe_psql('postgres', 'DROP DATABASE hostile');
consistent($node, "nothing lost, nothing twice in $_", $_) foreach qw(one two);
$node->stop('fast');

# ---------------------------------------------------------------- too few processes

# Room for the launcher and one worker: that of logical replication would take a place.
my $small = new_node('small', preload => 1, conf => "max_worker_processes = 2\nmax_logical_replication_workers = 0");

wait_for_worker($small);
$from = log_size($small);
$small->safe_psql('postgres', "CREATE DATABASE $_") foreach qw(one two);
$small->safe_psql('one', 'CREATE EXTENSION outbox');
$small->safe_psql('two', 'CREATE EXTENSION outbox');
ok($small->poll_query_until('postgres', q{SELECT last_error ~ 'no background worker slot' FROM outbox.workers WHERE kind = 'launcher'}),
	'max_worker_processes is used up: outbox.workers says so');
wait_for_rounds($small, 'launcher', 'postgres', 5);
is(scalar(log_lines($small, $from, qr/max_worker_processes/)), 1, '... one line of the log names the setting, however often it is tried');
$listener = listener($small, database => 'one');
$small->safe_psql('one', q{SELECT outbox.enqueue('e', '1')});
ok(hear($listener, 'default'), '... producers notify for themselves');
$listener->{session}->quit;
is($small->safe_psql('one', q{
		SELECT recorded FROM outbox.claim('w') c, outbox.complete(c.outbox_id, c.lease_token, 'w', 'DISPATCHED')}),
	'DISPATCHED', '... and messages are claimed and completed');
is($small->safe_psql('one', q{SELECT count(*) FROM outbox.check() WHERE severity = 'warning' AND object = 'background worker'}), '1', '... check() tells');
$small->safe_psql('postgres', 'DROP EXTENSION outbox');
# Not the one that goes.
my $idle = q{FROM pg_stat_activity WHERE backend_type = 'outbox worker' AND state = 'idle' AND datname <> 'postgres'};
my $first = $small->poll_query_until('postgres', "SELECT count(*) = 1 $idle") && $small->safe_psql('postgres', "SELECT datname $idle");
like($first, qr/^(one|two)$/, 'a slot is free: another database has its worker');
serves($small, $first, 'after waiting for a slot');
$small->safe_psql($first, 'DROP EXTENSION outbox');
my $second = $first eq 'one' ? 'two' : 'one';
wait_for_worker($small, database => $second);
serves($small, $second, 'after waiting longer');
ok($small->wait_for_log(qr/slots are free again/, $from), '... and the log says that the trouble is over');

$small->stop('fast');
$small->append_conf('postgresql.conf', 'max_worker_processes = 1');
$from = log_size($small);
$small->start;
ok($small->poll_query_until($second, q{SELECT last_error ~ 'no background worker slot' FROM outbox.workers WHERE kind = 'launcher'}),
	'room for the launcher only');
wait_for_rounds($small, 'launcher', $second, 5);
is(scalar(log_lines($small, $from, qr/max_worker_processes/)), 1, '... one line says so');
is($small->safe_psql($second, q{
		SELECT recorded FROM outbox.enqueue_and_claim('w', 'e', '1') c, outbox.complete(c.outbox_id, c.lease_token, 'w', 'DISPATCHED')}),
	'DISPATCHED', '... messages are sent all the same');
$small->stop('fast');

# No room even for the launcher.
$small->append_conf('postgresql.conf', 'max_worker_processes = 0');
$small->start;
is($small->safe_psql($second, q{SELECT state FROM outbox.workers WHERE kind = 'launcher'}), 'not running', 'max_worker_processes = 0: the server starts');
$listener = listener($small, database => $second);
$small->safe_psql($second, q{SELECT outbox.enqueue('e', '1')});
ok(hear($listener, 'default'), '... and producers notify for themselves');
$listener->{session}->quit;
$small->stop('fast');

# ---------------------------------------------------------------- a standby

my $primary = new_node('primary', preload => 1, streaming => 1, conf => 'outbox.worker = off');

$primary->safe_psql('postgres', q{
	SELECT outbox.alter_queue('default', repair_delay => '1 year');
	SELECT count(*) FROM generate_series(1, 3) g, outbox.enqueue_and_claim('gone', 'e', to_jsonb(g), lease => '1 ms')});
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf', "outbox.worker = on\noutbox.discovery_interval = '1 s'");
$standby->start;
# What the primary does arrives: a new database with the extension among it.
$primary->safe_psql('postgres', 'CREATE DATABASE late');
$primary->safe_psql('late', 'CREATE EXTENSION outbox');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
is($standby->safe_psql('late', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^outbox'}), '0', 'a standby runs none of our processes');
is($standby->safe_psql('postgres', q{SELECT state FROM outbox.workers}), 'not running', '... says so');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM outbox.attempts}), '0', '... and repairs nothing');
$primary->stop('fast');
is(join("\n", log_lines($standby, 0, qr/outbox(?!\.)/)), '', '... and its log does not mention us');
$standby->promote;
ok($standby->poll_query_until('postgres', q{
		SELECT count(*) = 3 FROM outbox.attempts WHERE state = 'ZOMBIE_REQUEUE' AND recorded_by = 'outbox worker'}),
	'after promotion the leases of before are repaired');
foreach my $database (qw(postgres late))
{
	wait_for_worker($standby, database => $database);
	serves($standby, $database, "after promotion, in $database");
}
is(join("\n", log_lines($standby, 0, qr/outbox(?!\.)/)), '', '... and nothing is said in the log');
consistent($standby, 'nothing lost, nothing twice after promotion');
$standby->stop('fast');

done_testing();
