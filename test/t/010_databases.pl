# The workers and what is done to whole databases; maintenance; restores.
#
# Proves: commands that want a database for themselves (DROP, WITH (FORCE) too, RENAME, SET
# TABLESPACE, CREATE ... TEMPLATE) succeed for an owner who may not terminate a worker, and
# the worker is back under the new name, in the copy too, and when the command fails;
# databases that accept no connections, templates and others' commands cost nothing; CREATE
# EXTENSION is noticed at once, whatever else its transaction does;
# DROP and ALTER EXTENSION are not held up by a worker in the middle of its work.
# Partitions appear ahead of time once somebody has enqueued, not before, and neither they
# nor a repair happen while a restore or a subscription fills the tables; a lock in their
# way makes them come later. A dump, restored piece by piece with the worker going round in
# between, meets no error, and its expired leases are repaired.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# The log would tell what autovacuum was at when somebody wants a table or database for himself.
my $node = new_node('main', preload => 1, extension => 0,
	conf => "wal_level = logical\nmax_wal_senders = 4\nallow_in_place_tablespaces = on\nautovacuum = off");
my ($from, $pid);

$node->safe_psql('postgres', q{CREATE ROLE owner LOGIN CREATEDB; CREATE ROLE nobody LOGIN});
$node->safe_psql('postgres', q{CREATE TABLESPACE there LOCATION ''});
$node->safe_psql('postgres', q{GRANT CREATE ON TABLESPACE there TO owner});

# A database with a worker, that belongs to somebody who is no superuser.
sub database
{
	my ($name) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $name OWNER owner");
	$node->safe_psql($name, 'CREATE EXTENSION outbox');
	return wait_for_worker($node, database => $name);
}

# SQLSTATE of a statement given by a role, and the message.
sub by
{
	my ($role, $sql, $database) = @_;
	my ($ret, $out, $err) = $node->psql($database // 'postgres', $sql, extra_params => [ '-U', $role, '-v', 'VERBOSITY=verbose', '-v', 'SHOW_CONTEXT=never' ]);

	return $ret == 0 && $err eq '' ? 'done' : $err =~ /(?:ERROR|FATAL):\s+(.*)/ ? $1 : "unexpected: $err";
}

# ---------------------------------------------------------------- the database for oneself

$from = log_size($node);
database('d');
is(by('owner', 'ALTER DATABASE d RENAME TO "e E"'), 'done', 'RENAME');
wait_for_worker($node, database => 'e E');
serves($node, 'e E', 'after RENAME');
is($node->safe_psql('e E', q{SELECT string_agg(DISTINCT database, ' ') FROM outbox.workers}), 'e E', 'outbox.workers shows the new name');
is(by('owner', 'ALTER DATABASE "e E" SET TABLESPACE there'), 'done', 'SET TABLESPACE');
wait_for_worker($node, database => 'e E');
serves($node, 'e E', 'after SET TABLESPACE');
is(by('owner', 'CREATE DATABASE copy TEMPLATE "e E"'), 'done', 'CREATE DATABASE ... TEMPLATE');
wait_for_worker($node, database => 'e E');
is(by('owner', 'CREATE DATABASE copy2 TEMPLATE "e E"', 'e E'), 'done', '... by a session of that database');
foreach my $database ('e E', 'copy', 'copy2')
{
	wait_for_worker($node, database => $database);
	serves($node, $database, "original and copy: $database");
}
is(by('owner', 'DROP DATABASE copy2'), 'done', 'DROP DATABASE of a copy');
is(by('owner', 'DROP DATABASE copy WITH (FORCE)'), 'done', 'DROP DATABASE ... WITH (FORCE)');
ok($node->poll_query_until('e E', q{SELECT string_agg(DISTINCT coalesce(database, '?'), ' ') FROM outbox.workers WHERE kind <> 'launcher'}, 'e E'),
	'outbox.workers forgets a dropped database');
is(by('owner', 'DROP DATABASE "e E"'), 'done', 'DROP DATABASE');
$node->safe_psql('postgres', 'CREATE DATABASE d');
database('fence');
# Who has looked into it may still be going.
wait_for_no_worker($node, 'd');
is($node->safe_psql('postgres', q{SELECT string_agg(datname, ' ') FROM pg_stat_activity WHERE backend_type ~ '^outbox' AND datname IS NOT NULL}), 'fence',
	'a database of an old name, without the extension, has no worker');
$node->safe_psql('postgres', "DROP DATABASE $_") foreach qw(d fence);
logged($node, $from, 'the database for oneself');

# ---------------------------------------------------------------- ... that fail

$from = log_size($node);
$pid = database('d');
foreach my $sql ('DROP DATABASE d', 'DROP DATABASE d WITH (FORCE)', 'ALTER DATABASE d RENAME TO e', 'ALTER DATABASE d SET TABLESPACE there',
	'CREATE DATABASE e TEMPLATE d')
{
	like(by('nobody', $sql), qr/^42501: /, "no right: $sql");
	like(by('owner', "BEGIN; $sql"), qr/^25001: /, "in a transaction: $sql") unless $sql =~ /RENAME/;
}
is(worker_says($node, 'pid', 'd'), $pid, 'a command that could never succeed does not disturb the worker');
$node->safe_psql('postgres', 'CREATE DATABASE taken');
foreach my $sql ('ALTER DATABASE d RENAME TO taken', 'CREATE DATABASE taken TEMPLATE d')
{
	like(by('owner', $sql), qr/^42P04: /, "a name that is taken: $sql");
	wait_for_worker($node, database => 'd');
}
serves($node, 'd', 'after names that were taken');

# Of one's own database.
foreach my $sql ('DROP DATABASE d', 'DROP DATABASE d WITH (FORCE)', 'ALTER DATABASE d RENAME TO e', 'ALTER DATABASE d SET TABLESPACE there')
{
	$pid = worker_says($node, 'pid', 'd');
	like(by('owner', $sql, 'd'), qr/^(?:55006|0A000): /, "one's own database: $sql");
	is(worker_says($node, 'pid', 'd'), $pid, '... which does not disturb the worker');
}

# RENAME may be given in a transaction.
is(by('owner', 'BEGIN; ALTER DATABASE d RENAME TO e; ROLLBACK'), 'done', 'RENAME in a transaction');
wait_for_worker($node, database => 'd');
serves($node, 'd', 'RENAME was rolled back');
is(by('owner', 'DO $$ BEGIN ALTER DATABASE d RENAME TO e; END $$'), 'done', 'RENAME in a DO block');
wait_for_worker($node, database => 'e');
is(by('owner', 'BEGIN; ALTER DATABASE e RENAME TO d; COMMIT'), 'done', 'RENAME in a transaction');
wait_for_worker($node, database => 'd');
serves($node, 'd', 'RENAME in transactions');

my $session = session($node, database => 'd');
foreach my $sql ('DROP DATABASE d', 'ALTER DATABASE d RENAME TO e', 'ALTER DATABASE d SET TABLESPACE there', 'CREATE DATABASE e TEMPLATE d')
{
	like(by('owner', $sql), qr/^55006: .*"d" is being accessed by other users/, "another session: $sql");
	wait_for_worker($node, database => 'd');
	serves($node, 'd', "after failing: $sql");
}
like(by('owner', 'DROP DATABASE d WITH (FORCE)'), qr/^42501: (?:must be a superuser to terminate superuser process|permission denied to terminate process)/, 'a superuser\'s session, that the owner may not end');
wait_for_worker($node, database => 'd');
serves($node, 'd', 'after failing: WITH (FORCE)');

# The session that gave the command ends while it waits for the other one.
my $dropping = session($node);
start_query($dropping, 'DROP DATABASE d');
wait_for_no_worker($node, 'd');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($dropping->{outbox_pid})");
wait_for_worker($node, database => 'd');
serves($node, 'd', 'whoever dropped the database has gone');
$dropping->{run}->kill_kill;
$session->quit;
logged($node, $from, 'commands that fail');

# ---------------------------------------------------------------- not for workers

$from = log_size($node);
foreach my $option ([ 'ALLOW_CONNECTIONS', 'false', 'true' ], [ 'IS_TEMPLATE', 'true', 'false' ])
{
	my ($name, $off, $on) = @$option;

	$node->safe_psql('postgres', "ALTER DATABASE d WITH $name $off");
	wait_for_no_worker($node, 'd');
	database('fence');
	wait_for_no_worker($node, 'd');
	pass("$name $off: no worker");
	$node->safe_psql('postgres', 'DROP DATABASE fence');
	$node->safe_psql('postgres', "ALTER DATABASE d WITH $name $on");
	wait_for_worker($node, database => 'd');
	serves($node, 'd', "$name $on");
}
$pid = worker_says($node, 'pid', 'd');
$node->safe_psql('postgres', 'ALTER DATABASE d CONNECTION LIMIT 0');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
wait_for_worker($node, database => 'd', other => $pid);
serves($node, 'd', 'CONNECTION LIMIT 0');
$node->safe_psql('postgres', 'ALTER DATABASE d CONNECTION LIMIT -1');

# A database that was looked at, and then gets the extension beside a command on databases, which
# tells of less.
foreach my $sql ('CREATE EXTENSION outbox; ALTER DATABASE late CONNECTION LIMIT 50', 'ALTER DATABASE late CONNECTION LIMIT 60; CREATE EXTENSION outbox')
{
	$node->safe_psql('postgres', 'CREATE DATABASE late');
	database('fence');
	wait_for_no_worker($node, 'late');
	$node->safe_psql('late', "BEGIN; $sql; COMMIT");
	wait_for_worker($node, database => 'late');
	serves($node, 'late', $sql);
	$node->safe_psql('postgres', "DROP DATABASE $_") foreach qw(late fence);
}

# A template with the extension: what is made from it has it too.
$node->safe_psql('template1', 'CREATE EXTENSION outbox');
$node->safe_psql('postgres', 'CREATE DATABASE born_with');
wait_for_worker($node, database => 'born_with');
serves($node, 'born_with', 'a database that came with the extension');
wait_for_no_worker($node, 'template1');
$node->safe_psql('template1', 'DROP EXTENSION outbox');
$node->safe_psql('postgres', 'DROP DATABASE born_with');
logged($node, $from, 'databases that have no worker');

# ---------------------------------------------------------------- a busy worker

# So many expired leases that the repair takes a while, and lasts while others work.
sub backlog
{
	my ($database) = @_;

	configure($node, 'outbox.worker' => 'off');
	wait_for_no_worker($node, $database);
	$node->safe_psql($database, q{
		SELECT outbox.alter_queue('default', repair_delay => '1 year', max_attempts => NULL);
		SELECT count(*) FROM outbox.enqueue_batch('default',
			(SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', g)) FROM generate_series(1, 20000) g))});
	$node->safe_psql($database, q{SELECT count(*) FROM outbox.claim('gone', 20000, '1 ms')});
	my $before = $node->safe_psql($database, 'SELECT count(*) FROM outbox.attempts');
	configure($node, 'outbox.worker' => undef);
	return $node->poll_query_until($database, "SELECT count(*) > $before FROM outbox.attempts") || die 'no repair began';
}

$from = log_size($node);
database('busy');
backlog('busy');
is(by('owner', 'CREATE DATABASE other'), 'done', 'CREATE DATABASE while a worker is busy elsewhere');
is(by('owner', 'CREATE DATABASE other2 TEMPLATE d'), 'done', '... of a template with a worker');
is(by('owner', 'DROP DATABASE other'), 'done', '... and DROP DATABASE');
is(by('owner', 'DROP DATABASE other2'), 'done', '... of one with a worker');
note('repaired by then: ' . $node->safe_psql('busy', 'SELECT count(*) FROM outbox.attempts'));
ok($node->poll_query_until('busy', q{SELECT count(*) = 20000 FROM outbox.attempts}), 'the backlog is repaired');
consistent($node, 'nothing lost, nothing twice', 'busy');
backlog('busy');
$node->safe_psql('busy', q{SET lock_timeout = '1min'; DROP EXTENSION outbox CASCADE});
pass('DROP EXTENSION of a busy worker');
wait_for_no_worker($node, 'busy');
$node->safe_psql('busy', 'CREATE EXTENSION outbox');
wait_for_worker($node, database => 'busy');
backlog('busy');
is(by('owner', 'DROP DATABASE busy'), 'done', 'DROP DATABASE of a busy worker');

# A worker that is long busy in a CHECK, which is one of the server's own functions.
database('stuck');
$node->safe_psql('stuck', q{
	SELECT format('ALTER TABLE outbox.pending ADD CHECK (attempt_count = 0 OR %s 0 > 0)',
		repeat('factorial(32000 + attempt_count) + ', 1000)) \gexec
	SELECT outbox_id FROM outbox.enqueue_and_claim('gone', 'e', '1', lease => '2 s')});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'outbox worker' AND datname = 'stuck'
	AND xact_start < clock_timestamp() - interval '1 s'}),
	'a worker is stuck in a CHECK');
is(by('owner', 'CREATE DATABASE other'), 'done', '... which does not hold up CREATE DATABASE');
is(by('owner', 'DROP DATABASE other'), 'done', '... nor DROP DATABASE of another one');
is(by('owner', 'DROP DATABASE stuck'), 'done', '... nor that of its own');
logged($node, $from, 'a busy worker');

# ---------------------------------------------------------------- ALTER EXTENSION UPDATE

# A version that this library does not support, and the way back.
my $version = $node->safe_psql('postgres', q{SELECT default_version FROM pg_available_extensions WHERE name = 'outbox'});
my $folder = $node->config_data('--sharedir') . '/extension';
my @scripts = map { "$folder/outbox--$_.sql" } "$version--99.9test", "99.9test--$version";

END { unlink @scripts if @scripts }
SKIP:
{
	skip "$folder cannot be written to", 6 unless -w $folder;
	append_to_file($_, "SELECT 1;\n") foreach @scripts;
	$from = log_size($node);
	backlog('d');
	$node->safe_psql('d', q{SET lock_timeout = '1min'; ALTER EXTENSION outbox UPDATE TO '99.9test'});
	pass('ALTER EXTENSION UPDATE of a busy worker');
	wait_for_no_worker($node, 'd');
	pass('the worker goes, for its library does not serve that version');
	# The launcher says so a moment later, if there still is something to say.
	ok($node->wait_for_log(qr/version of the extension that this library does not support/, $from), '... as the log says');
	$node->safe_psql('d', "ALTER EXTENSION outbox UPDATE TO '$version'");
	wait_for_worker($node, database => 'd');
	serves($node, 'd', 'after the update to a version that is served');
	ok($node->poll_query_until('d', q{SELECT count(*) = 20000 FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id) WHERE event_type = 'e'}),
		'... and the repair goes on');
	logged($node, $from, 'updates', qr/version of the extension that this library does not support/, qr/^HINT:  .*ALTER EXTENSION outbox UPDATE/);
}
$node->safe_psql('postgres', 'DROP DATABASE d');

# ---------------------------------------------------------------- partitions ahead of time

# Dated partitions of a table that begin no earlier than an hour ago, in order.
sub partitions
{
	my ($table) = @_;

	return $node->safe_psql('m', qq{
		SELECT string_agg(substr(relname, length('${table}_p') + 1), ' ' ORDER BY relname) FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
		WHERE inhparent = 'outbox.$table'::regclass AND relname ~ '^${table}_p\\d'});
}

# The periods that follow the one of now, as names of partitions have it.
sub periods
{
	my (@ahead) = @_;

	return join ' ', split /\n/, $node->safe_psql('m', join ' UNION ALL ', map {
		"SELECT to_char(date_trunc('hour', now()) + interval '$_ hours', 'YYYYMMDD') || CASE WHEN extract(hour FROM now() + interval '$_ hours') = 0
			THEN '' ELSE to_char(now() + interval '$_ hours', '_HH24\"00\"') END" } @ahead);
}

sub maintenance_is
{
	my ($condition) = @_;

	return $node->poll_query_until('m', "SELECT $condition FROM outbox.workers WHERE kind = 'maintenance' AND database = 'm'");
}

$from = log_size($node);
configure($node, 'outbox.poll_interval' => '100ms', 'outbox.partition_interval' => '1 hour');
# As a restore does, which brings its own partitions.
$node->safe_psql('postgres', 'CREATE DATABASE m OWNER owner');
$node->safe_psql('m', 'SET xmloption = content; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; CREATE EXTENSION outbox');
$pid = wait_for_worker($node, database => 'm');
wait_for_rounds($node, 'worker', 'm', 3);
is(partitions($_), '', "no partition of $_ before anybody enqueued") foreach qw(messages attempts);

# A lock that attaching needs.
$session = session($node, database => 'm');
$session->query_safe('BEGIN; LOCK TABLE ONLY outbox.messages IN SHARE UPDATE EXCLUSIVE MODE');
$node->safe_psql('m', q{SELECT outbox.enqueue('e', '1')});
ok(maintenance_is(q{state = 'in trouble' AND failures >= 2 AND last_error ~ 'lock timeout'}), 'a lock in the way: maintenance tries again');
is(partitions('messages'), '', '... and could do nothing');
serves($node, 'm', 'while maintenance waits');
my $before = periods(1, 2);
$session->query_safe('COMMIT');
ok(maintenance_is(q{state = 'idle' AND failures = 0}), '... until the lock is gone');
logged($node, $from, 'a lock in the way', qr/^LOG:  outbox maintenance of database "[^"]*" could not make partitions: .*lock timeout/,
	qr/^LOG:  outbox maintenance of database "[^"]*" can make partitions again/);
# The first message lies in the DEFAULT partition, which keeps its period. One that has begun
# since has its own.
my $made = partitions('messages');
ok((grep { $made eq $_ } $before, periods(1, 2), periods(0, 1, 2)), 'partitions of messages for the next two periods') or diag("$made, not $before");
is(partitions('attempts'), $made, '... and of attempts');
is($node->safe_psql('m', q{SELECT count(*) FROM outbox.check() WHERE severity = 'error'}), '0', '... are as they must be');
is(worker_says($node, 'pid', 'm'), $pid, 'the worker did not end for that');

# A lock on everything: the worker waits, without a word, and goes on.
$from = log_size($node);
$session->query_safe('BEGIN; LOCK TABLE outbox.messages, outbox.attempts, outbox.pending, outbox.queues');
ok($node->poll_query_until('m', q{SELECT state = 'waiting for a lock' AND failures >= 2 FROM outbox.workers WHERE kind = 'worker' AND database = 'm'}),
	'all tables are locked: the worker waits');
$session->query_safe('COMMIT');
ok($node->poll_query_until('m', q{SELECT state = 'running' AND failures = 0 FROM outbox.workers WHERE kind = 'worker' AND database = 'm'}),
	'... and goes on');
$session->quit;
serves($node, 'm', 'after a lock on everything');
logged($node, $from, 'a lock on everything');

# DROP EXTENSION in a transaction that stays open: the worker waits for its locks longer than
# it would believe that something is missing, and when it is gone, it goes.
$from = log_size($node);
database('dropping');
$session = session($node, database => 'dropping');
$session->query_safe('BEGIN; DROP EXTENSION outbox');
ok($node->poll_query_until('m', q{SELECT state = 'waiting for a lock' AND failures >= 8 FROM outbox.workers WHERE kind = 'worker' AND database = 'dropping'}),
	'DROP EXTENSION is not yet committed: the worker waits');
$session->query_safe('COMMIT');
$session->quit;
wait_for_no_worker($node, 'dropping');
logged($node, $from, 'a DROP EXTENSION that took long');
$node->safe_psql('postgres', 'DROP DATABASE dropping');

# A worker that is replaced while it is in trouble.
$from = log_size($node);
my $index = $node->safe_psql('m', q{SELECT pg_get_indexdef('outbox.pending_lease'::regclass)});
$node->safe_psql('m', 'DROP INDEX outbox.pending_lease');
ok($node->poll_query_until('m', q{SELECT state = 'in trouble' AND failures >= 2 FROM outbox.workers WHERE kind = 'worker' AND database = 'm'}),
	'an index is missing: the worker is in trouble');
$node->safe_psql('m', "SELECT pg_terminate_backend($pid)");
$pid = wait_for_worker($node, database => 'm', other => $pid);
$node->safe_psql('m', $index);
ok($node->poll_query_until('m', q{SELECT state = 'running' AND failures = 0 FROM outbox.workers WHERE kind = 'worker' AND database = 'm'}),
	'... its successor gets out of it');
serves($node, 'm', 'after the trouble');
logged($node, $from, 'a trouble that began under one worker and ended under the next',
	qr/^LOG:  outbox worker of database "[^"]*" could not repair expired leases: .* has no valid index pending_lease /,
	qr/^LOG:  outbox worker of database "[^"]*" can repair expired leases again/,
	qr/^LOG:  outbox worker of database "[^"]*" could not look for due messages: .* has no valid index pending_lease /,
	qr/^LOG:  outbox worker of database "[^"]*" can look for due messages again/);

# ---------------------------------------------------------------- tables that others fill

# Nothing is repaired while that lasts, and no partition is made, though longer periods
# reach beyond those that there are.
my $hours = 1;

sub left_alone
{
	my ($name, $begin, $end) = @_;
	my $id;

	$node->safe_psql('m', $begin);
	ok($node->poll_query_until('m', q{SELECT state = 'left alone' FROM outbox.workers WHERE kind = 'worker' AND database = 'm'}), "$name: left alone");
	$id = $node->safe_psql('m', q{SELECT outbox_id FROM outbox.enqueue_and_claim('gone', 'e', '1', lease => '1 ms')});
	my $starts = $node->safe_psql('m', q{SELECT starts FROM outbox.workers WHERE kind = 'maintenance' AND database = 'm'});
	my $leaves = partitions('messages');
	$hours *= 3;
	configure($node, 'outbox.partition_interval' => "$hours hours");
	wait_for_rounds($node, 'worker', 'm', 5);
	is($node->safe_psql('m', "SELECT count(*) FROM outbox.attempts WHERE outbox_id = '$id'"), '0', '... no lease is repaired');
	is(partitions('messages'), $leaves, '... no partition is made');
	is($node->safe_psql('m', q{SELECT starts FROM outbox.workers WHERE kind = 'maintenance' AND database = 'm'}), $starts, '... nor tried');
	$node->safe_psql('m', $end);
	# Before somebody else uses the tables: what holds it up for 50 ms it tells the log.
	ok(maintenance_is("starts > $starts AND pid IS NULL"), '... until it is over');
	ok($node->poll_query_until('m', qq{SELECT count(*) = 1 FROM outbox.attempts WHERE outbox_id = '$id' AND recorded_by = 'outbox worker'}),
		'... then the lease is');
	return serves($node, 'm', "after $name");
}

$from = log_size($node);
left_alone("a partition of $_ without its indexes", qq{
	CREATE TABLE outbox.restored (LIKE outbox.${_}_default INCLUDING DEFAULTS INCLUDING CONSTRAINTS);
	ALTER TABLE outbox.$_ ATTACH PARTITION outbox.restored
	FOR VALUES FROM ('01000000-0000-7000-8000-000000000000') TO ('01100000-0000-7000-8000-000000000000')},
	'DROP TABLE outbox.restored') foreach qw(messages attempts);

$node->safe_psql('postgres', 'CREATE DATABASE publisher');
$node->safe_psql('publisher', 'CREATE EXTENSION outbox; CREATE PUBLICATION p FOR TABLE outbox.messages, outbox.attempts, outbox.pending WITH (publish_via_partition_root = true)');
left_alone('a subscription', "CREATE SUBSCRIPTION s CONNECTION '" . $node->connstr('publisher') =~ s/'/''/gr . "' PUBLICATION p
	WITH (create_slot = false, slot_name = NONE, enabled = false, copy_data = false)", 'DROP SUBSCRIPTION s');
logged($node, $from, 'tables that others fill');
consistent($node, 'nothing lost, nothing twice', 'm');
$node->safe_psql('postgres', 'DROP DATABASE m');
$node->safe_psql('postgres', 'DROP DATABASE publisher');
configure($node, 'outbox.partition_interval' => '1 hour');

# ---------------------------------------------------------------- a restore

# Messages in each state, some with history; leases that have run out, some of them at
# their ceiling.
my $content = q{
	SELECT outbox.create_queue('q', ordering => 'numbered', repair_delay => '1 year');
	SELECT outbox.alter_queue('default', repair_delay => '1 year');
	SELECT count(*) FROM generate_series(1, 30) g, outbox.enqueue('e', to_jsonb(g), idempotency_key => 'k' || g, max_attempts => 1 + g % 3);
	SELECT count(*) FROM generate_series(1, 30) g, outbox.enqueue('e', to_jsonb(g), 'q', partition_key => 'p' || g % 7);
	WITH held AS MATERIALIZED (SELECT * FROM outbox.claim('w', 20, queues => ARRAY['default', 'q']))
	SELECT count(*) FROM held, outbox.complete(outbox_id, lease_token, 'w',
		(ARRAY['DISPATCHED', 'FAILED', 'RETRYABLE', 'RETRYABLE']::outbox.attempt_state[])[1 + (payload::int % 4)],
		retry_delay => CASE WHEN payload::int % 4 > 1 THEN interval '0' END) c};

# A parallel restore may fill the tables in any order.
foreach my $kind ('DEFAULT partitions only', 'DEFAULT partitions only, the last table first', 'dated partitions')
{
	my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
	my ($expired, $attempts);

	$from = log_size($node);
	configure($node, 'outbox.worker' => 'off');
	$node->safe_psql('postgres', 'CREATE DATABASE source');
	# As a restore does, without dated partitions; or with those that CREATE EXTENSION makes.
	$node->safe_psql('source', ($kind eq 'dated partitions' ? '' : 'SET xmloption = content; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; ')
		. 'CREATE EXTENSION outbox');
	$node->safe_psql('source', $content);
	$node->safe_psql('source', q{SELECT count(*) FROM outbox.claim('gone', 15, '1 ms', queues => ARRAY['default', 'q'])});
	$expired = $node->safe_psql('source', q{SELECT count(*) FROM outbox.pending WHERE lease_expires_at < clock_timestamp()});
	$attempts = $node->safe_psql('source', 'SELECT count(*) FROM outbox.attempts');
	cmp_ok($expired, '>', 5, "$kind: expired leases");
	command_ok([ 'pg_dump', '--file', $dump, $node->connstr('source') ], "$kind: pg_dump");
	configure($node, 'outbox.worker' => undef);

	# One piece of the dump after the other, and the worker looks in between.
	my ($preamble, @pieces) = split /^--\n-- (?=(?:Data for )?Name: [^;]*; Type: (?:EXTENSION|TABLE|CONSTRAINT|INDEX))/m, slurp_file($dump);
	my @data = grep { /^Data for/ } @pieces;
	my @errors;

	@pieces = map { /^Data for/ ? pop @data : $_ } @pieces if $kind =~ /last table first/;
	$node->safe_psql('postgres', 'CREATE DATABASE target');
	foreach my $piece (@pieces)
	{
		my ($ret, $out, $err) = $node->psql('target', "$preamble\n--\n-- $piece", on_error_stop => 0);

		push @errors, $err =~ /(ERROR.*|FATAL.*)/g;
		next unless $node->safe_psql('target', q{SELECT count(*) FROM pg_extension WHERE extname = 'outbox'});
		wait_for_worker($node, database => 'target');
		wait_for_rounds($node, 'worker', 'target', 2);
	}
	cmp_ok(scalar(@pieces), '>', 6, "$kind: the dump was restored in pieces");
	is(join("\n", @errors), '', '... without an error');
	ok($node->poll_query_until('target', qq{
			SELECT (SELECT count(*) FROM outbox.pending WHERE lease_expires_at < clock_timestamp()) = 0
				AND (SELECT count(*) FROM outbox.attempts) = $attempts + $expired}), "... and then $expired leases are repaired");
	is($node->safe_psql('target', q{SELECT count(*) FROM outbox.attempts JOIN outbox.pending USING (outbox_id)
			WHERE recorded_by = 'outbox worker' AND next_attempt_at < now() + interval '300 days'}), '0', '... by the policy of their queues');
	consistent($node, "$kind: nothing lost, nothing twice", 'target');
	serves($node, 'target', "$kind: restored");
	# Rows wait for what they are judged by: their queues, which come last, or their ledger.
	my $missing = $kind =~ /last table first/ ? qr/its ledger holds fewer attempts than its attempt_count/ : qr/its queue ".*" is (?:missing|younger than it)/;
	logged($node, $from, "$kind: a restore", $kind =~ /DEFAULT/ ?
			($missing, qr/^DETAIL:  .*outbox\.workers/, qr/repaired all expired leases again/) : ());
	$node->safe_psql('postgres', "DROP DATABASE $_") foreach qw(source target);
}
$node->stop('fast');

done_testing();
