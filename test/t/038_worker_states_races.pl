# What an operator is told of the background processes: outbox.workers, check(), and the log.
#
# Proves: after CREATE EXTENSION no error is shown, also if the extension was dropped before; CREATE
# and DROP EXTENSION, whatever the processes are at, leave no line in the log; each reason for which
# no worker runs, and each trouble of one that does, is a state of its own and a warning of
# check() that says what to do. One that is over is shown no more.
#
# Needs a library made with STOP_POINTS=1, to end the maintenance process while it works.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', preload => 1, conf => "autovacuum = off\noutbox.poll_interval = '100ms'");
my $from = log_size($node);
# As a restore does, without partitions: the first enqueue makes maintenance work.
my $create = 'SET xmloption = content; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; CREATE EXTENSION outbox';

make_stop_points($node);
$node->safe_psql('postgres', 'CREATE DATABASE d');

# The state of the worker, or of maintenance, of database d.
sub state_of
{
	my ($kind, $expression) = @_;

	return $node->safe_psql('postgres', "SELECT $expression FROM outbox.workers WHERE kind = '$kind' AND database = 'd'");
}

sub comes_to
{
	my ($kind, $condition, $name) = @_;

	return ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM outbox.workers WHERE kind = '$kind' AND database = 'd' AND $condition"), $name);
}

# What check() says of the processes of database d.
sub check_says
{
	my ($expected, $name, $schema) = @_;

	$schema //= 'outbox';
	return like($node->safe_psql('d', "SELECT object || ': ' || problem FROM $schema.check() WHERE object ~ '^background'"), $expected, $name);
}

sub shows_no_error
{
	my ($name) = @_;

	return is($node->safe_psql('postgres', q{SELECT kind, database, last_error FROM outbox.workers WHERE last_error IS NOT NULL OR last_error_at IS NOT NULL OR failures > 0}),
		'', $name);
}

# ---------------------------------------------------------------- the extension comes and goes

my $made = q{SELECT count(*) > 1 FROM pg_inherits WHERE inhparent = 'outbox.messages'::regclass};

foreach my $round (1 .. 3)
{
	$node->safe_psql('d', $create);
	wait_for_worker($node, database => 'd');
	$node->safe_psql('d', q{SELECT outbox.enqueue('e', '1')});
	ok($node->poll_query_until('d', $made), "installation $round: maintenance makes partitions");
	shows_no_error('... and no error is shown');
	check_says(qr/^$/, '... nor by check()');
	$node->safe_psql('d', 'DROP EXTENSION outbox');
	wait_for_no_worker($node, 'd');
	is(state_of('worker', '1'), '', '... and nothing once it is dropped');
}

# The process is in the middle of its work.
$node->safe_psql('d', $create);
wait_for_worker($node, database => 'd');
arm($node, 'maintenance_before_work');
$node->safe_psql('d', q{SELECT outbox.enqueue('e', '1')});
stands_at($node, 'maintenance_before_work');
$node->safe_psql('d', 'DROP EXTENSION outbox');
wait_for_no_worker($node, 'd');
pass('DROP EXTENSION ends a maintenance process that works');
release($node, 'maintenance_before_work');

# ... is being started: it is asked to end before it can hear of it.
$node->safe_psql('d', $create);
wait_for_worker($node, database => 'd');
arm($node, 'maintenance_before_connect');
$node->safe_psql('d', q{SELECT outbox.enqueue('e', '1')});
ok($node->poll_query_until('postgres', q{SELECT reached('maintenance_before_connect') > 0}), 'a maintenance process is being started');
$node->safe_psql('d', 'DROP EXTENSION outbox');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'outbox worker' AND datname = 'd' AND wait_event ~* '^BgWorkerShutdown$'}),
	'... for whose end the worker waits');
release($node, 'maintenance_before_connect');
wait_for_no_worker($node, 'd');

# ... or is anywhere.
for (1 .. 10)
{
	$node->safe_psql('d', $create);
	wait_for_worker($node, database => 'd');
	$node->safe_psql('d', q{SELECT outbox.enqueue('e', '1')});
	$node->safe_psql('d', 'DROP EXTENSION outbox');
}
wait_for_no_worker($node, 'd');
is(join("\n", log_lines($node, $from, qr/outbox/)), '', 'the log says nothing of all that');

# ---------------------------------------------------------------- no worker

$node->safe_psql('d', 'CREATE EXTENSION outbox');
wait_for_worker($node, database => 'd');
$node->safe_psql('d', q{UPDATE pg_extension SET extversion = '99.9' WHERE extname = 'outbox'});
comes_to('worker', q{state = 'other version'}, 'a version that the library does not serve');
check_says(qr/^background worker: none: the library does not serve this version of the extension: use ALTER EXTENSION outbox UPDATE$/, '... check()');
$node->safe_psql('d', q{UPDATE pg_extension SET extversion = (SELECT default_version FROM pg_available_extensions WHERE name = 'outbox') WHERE extname = 'outbox'});
$node->safe_psql('d', 'ALTER EXTENSION outbox UPDATE');
wait_for_worker($node, database => 'd');
check_says(qr/^$/, '... until it is updated');

configure($node, 'outbox.databases' => 'postgres');
comes_to('worker', q{state = 'not wanted'}, 'outbox.databases does not name the database');
check_says(qr/^background worker: none: outbox.databases does not name this database$/, '... check()');
configure($node, 'outbox.databases' => undef, 'outbox.worker' => 'off');
comes_to('worker', q{state = 'stopped'}, 'outbox.worker is off');
check_says(qr/^background worker: none: outbox.worker is off, so call outbox.maintain\(\)$/, '... check()');
configure($node, 'outbox.worker' => undef);
wait_for_worker($node, database => 'd');
check_says(qr/^$/, '... until it is on again');

# ---------------------------------------------------------------- a worker in trouble

my $session = session($node, database => 'd');

$session->query_safe('BEGIN; LOCK TABLE outbox.pending IN SHARE MODE');
comes_to('worker', q{state = 'waiting for a lock' AND last_error ~ 'lock timeout$'}, 'another session locks a table');
check_says(qr/^background worker: waiting for a lock: could not .*: canceling statement due to lock timeout$/, '... check()');
$session->query_safe('COMMIT');
$session->quit;
comes_to('worker', q{state = 'running' AND failures = 0}, '... until it is gone');
check_says(qr/^$/, '... check()');

$from = log_size($node);
$node->safe_psql('d', 'ALTER SCHEMA outbox RENAME TO other');
comes_to('worker', q{state = 'in trouble' AND last_error ~ 'schema "outbox" of the extension has another name$'}, 'the schema is renamed');
ok($node->wait_for_log(qr/LOG: .*outbox worker of database "d" could not [^\n]*: schema "outbox" of the extension has another name/, $from), '... the log');
check_says(qr/^background worker: in trouble: could not .*: schema "outbox" of the extension has another name$/, '... check()', 'other');
is($node->safe_psql('d', q{SELECT object || ' ' || problem FROM other.check() WHERE severity = 'error'}),
	'schema other is the renamed schema of extension outbox: nothing works before ALTER SCHEMA other RENAME TO outbox', '... which says what to do');
is(sqlstate($node, q{SELECT other.enqueue('e', '1')}, database => 'd'), '3F000', '... what a caller is told');
$node->safe_psql('d', 'ALTER SCHEMA other RENAME TO outbox');
comes_to('worker', q{state = 'running' AND failures = 0}, '... until it has its name again');
check_says(qr/^$/, '... check()');

# An event trigger runs as who makes the partitions.
$node->safe_psql('d', q{
	CREATE SCHEMA audit;
	CREATE TABLE audit.log (tag text);
	CREATE FUNCTION audit.note() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit.log VALUES (tg_tag); END $$;
	CREATE EVENT TRIGGER audit ON ddl_command_end EXECUTE FUNCTION audit.note();
	SELECT outbox.enqueue('e', '1')});
configure($node, 'outbox.partition_interval' => '4 weeks');
comes_to('maintenance', q{state = 'in trouble' AND last_error ~ '^could not make partitions: permission denied for schema audit, in PL/pgSQL function audit.note\(\) line 1'},
	'an event trigger without the rights that it needs');
check_says(qr/^background maintenance: in trouble: could not make partitions: permission denied for schema audit, in PL\/pgSQL function audit.note\(\) /, '... check()');
like($node->safe_psql('d', q{SELECT detail FROM outbox.maintain() WHERE action = 'partition left for later'}),
	qr/^permission denied for schema audit, in PL\/pgSQL function audit.note\(\) /, '... maintain()');
$node->safe_psql('d', 'ALTER FUNCTION audit.note() SECURITY DEFINER');
comes_to('maintenance', q{state = 'idle' AND failures = 0}, '... until it is SECURITY DEFINER');
check_says(qr/^$/, '... check()');
$node->stop('fast');

# ---------------------------------------------------------------- no room for one

$node->append_conf('postgresql.conf', "max_worker_processes = 2\nmax_logical_replication_workers = 0");
$node->start;
comes_to('worker', q{state = 'no free slot'}, 'max_worker_processes is used up')
	if $node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM outbox.workers WHERE kind = 'worker' AND pid IS NOT NULL AND database = 'postgres'});
check_says(qr/^background worker: none: no background worker slot is free: increase max_worker_processes$/, '... check()');
$node->stop('fast');
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->start;
is($node->safe_psql('d', 'SELECT kind, state FROM outbox.workers'), 'launcher|not loaded', 'the library is not preloaded');
check_says(qr/^background worker: none: the library is not in shared_preload_libraries, so call outbox.maintain\(\)$/, '... check()');
$node->stop('fast');

done_testing();
