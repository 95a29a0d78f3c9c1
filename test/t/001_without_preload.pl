# Without shared_preload_libraries, through session_preload_libraries, after LOAD, and
# with shared_preload_libraries: every function works as the first thing a session does.
#
# Proves: no function takes shared memory, a worker or an earlier call for granted; a
# setting made before the library is loaded counts, and a wrong one stops no producer. (B35)
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', extension => 0);

my @first;

# Answers of a call in a new session; dies when it fails.
sub call
{
	my ($sql, $database) = @_;

	return $node->safe_psql($database // 'postgres', join(";\n", @first, $sql));
}

# A new database in which the calls of test/sql/calls.inc can be made.
sub prepare
{
	my ($database) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, "CREATE EXTENSION outbox;\n" . slurp_file('test/sql/setup.inc') =~ s/^\\set.*\n//mgr);
	wait_for_worker($node, database => $database) if $node->safe_psql('postgres', 'SHOW shared_preload_libraries');
	return $database;
}

my @calls = grep { /^[A-Z]/ } split /\n/, slurp_file('test/sql/calls.inc');

# Each function answers the same in a session of its own as it does in one with the others.
sub every_function
{
	my ($name) = @_;
	my $round = lc $name =~ s/\W+/_/gr;
	my $together = call(join("\n", @calls), prepare("${round}_together"));
	my $database = prepare($round);

	is(join("\n", grep { $_ ne '' } map { call($_, $database) } @calls), $together =~ s/^\n+|\n\K\n+//gr, "$name: each call");
	foreach my $statement ('UPDATE outbox.messages SET payload = NULL', 'DELETE FROM outbox.attempts', 'TRUNCATE outbox.pending')
	{
		is(sqlstate($node, join(";\n", @first, $statement), database => $database), 'P0001', "$name: $statement");
	}
	is(call("INSERT INTO outbox.queues (queue, lease) VALUES ('default', '31 seconds'); SELECT lease FROM outbox.queues WHERE queue = 'default'", $database),
		'00:00:31', "$name: merge_queue");
	is(call("BEGIN; INSERT INTO outbox.pending (outbox_id, queue) VALUES (gen_random_uuid(), '$round'); SELECT 'fired'; ROLLBACK", $database),
		'fired', "$name: pending_changed");
	$node->safe_psql('postgres', "DROP DATABASE $_") foreach $database, "${round}_together";
	return;
}

is($node->safe_psql('postgres', 'SHOW shared_preload_libraries'), '', 'nothing is preloaded');
is($node->safe_psql('postgres', 'CREATE EXTENSION outbox; SELECT 1'), '1', 'CREATE EXTENSION in a fresh session');
is($node->safe_psql('postgres', 'DROP EXTENSION outbox; CREATE EXTENSION outbox; SELECT created FROM outbox.enqueue($$e$$, $$1$$)'),
	't', 'dropped and made again in one session, and used');
my @missing = grep { my $object = $_; !grep { /\boutbox\.\Q$object\E\b/ } @calls } split /\n/, $node->safe_psql('postgres', q{
	SELECT proname FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace AND prorettype <> 'trigger'::regtype
	UNION SELECT relname FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'v'});
is_deeply(\@missing, [], 'test/sql/calls.inc has every function and view');
every_function('fresh session');

@first = ("LOAD 'outbox'");
every_function('after LOAD');
@first = ("LOAD 'outbox'", "LOAD 'outbox'");
is(call("SELECT created FROM outbox.enqueue('e', '1')"), 't', 'LOAD twice');
@first = ();

# Settings of a library that is not there yet.
my ($ret, $out, $err) = $node->psql('postgres',
	"SET outbox.no_such_setting = 'x'; SET outbox.partition_interval = 'nonsense'; SELECT created FROM outbox.enqueue('e', '1')");
is($out, 't', 'a wrong setting made before the library is loaded stops no producer');
like($err, qr/WARNING: .*outbox\.no_such_setting/, '... an unknown one is reported');
like($err, qr/WARNING: .*outbox\.partition_interval/, '... a wrong one too');
is($node->safe_psql('postgres', "SET outbox.partition_interval = 'nonsense'; SELECT count(*) >= 0 FROM outbox.maintain(); SHOW outbox.partition_interval"),
	"t\n1 week", '... and the default holds');
is(sqlstate($node, "LOAD 'outbox'; SET outbox.partition_interval = 'nonsense'"), '22023', 'afterwards it is refused');
is($node->safe_psql('postgres', "SET outbox.partition_interval = '3 days'; SELECT created FROM outbox.enqueue('e', '1'); SHOW outbox.partition_interval"),
	"t\n3 days", 'a right one counts');

$node->append_conf('postgresql.conf', "session_preload_libraries = 'outbox'");
$node->reload;
every_function('session_preload_libraries');
$node->adjust_conf('postgresql.conf', 'session_preload_libraries', "''");

# No safety poll, the first one included, comes between a lease that is let expire by hand and its repair.
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'outbox'\noutbox.poll_interval = '1 h'");
$node->restart;
wait_for_worker($node);
every_function('shared_preload_libraries');
is($node->safe_psql('postgres', 'CREATE DATABASE empty'), '', 'a database without the extension');
is($node->safe_psql('empty', 'SELECT 1'), '1', '... can be used');
is(sqlstate($node, "SELECT outbox.claim('w')", database => 'empty'), '3F000', '... and has no function of it');

# Two databases, one session after the other: nothing is remembered by name or OID.
is($node->safe_psql('empty', "CREATE EXTENSION outbox; SELECT created FROM outbox.enqueue('e', '1'); SELECT count(*) FROM outbox.claim('w')"),
	"t\n1", 'a second database');

$node->stop('fast');
my $log = slurp_file($node->logfile);
unlike($log, qr/terminated by signal|PANIC|TRAP/, 'no crash');

done_testing();
