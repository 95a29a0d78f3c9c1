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

# Answers of one call in a new session; dies when it fails.
my @first;

sub call
{
	my ($sql) = @_;

	return $node->safe_psql('postgres', join(";\n", @first, $sql));
}

# Calls every function once, each in a session of its own, and judges what they say.
sub every_function
{
	my ($name) = @_;
	my $preloaded = $name eq 'shared_preload_libraries';
	my %called;
	my $round = $name =~ s/\W+/_/gr;

	my $check = sub {
		my ($function, $sql, $expected) = @_;

		$called{$function} = 1;
		my $answer = call($sql);
		if (ref $expected)
		{
			like($answer, $expected, "$name: $function");
		}
		else
		{
			is($answer, $expected, "$name: $function");
		}
		return split /\|/, $answer;
	};
	my $uuid = qr/[0-9a-f-]{36}/;

	$check->('create_queue', "SELECT outbox.create_queue('$round', ordering => 'numbered')", '');
	$check->('alter_queue', "SELECT outbox.alter_queue('$round', repair_delay => '0')", '');
	$check->('pause', "SELECT outbox.pause('$round')", '');
	$check->('resume', "SELECT outbox.resume('$round')", '');
	$check->('backoff', "SELECT outbox.backoff('$round', 3)", '00:00:04');
	$check->('enqueue', "SELECT * FROM outbox.enqueue('e', '1', '$round', partition_key => 'p')", qr/^$uuid\|1\|t$/);
	my ($id, $token) = $check->('claim',
		"SELECT outbox_id, lease_token, sequence_id FROM outbox.claim('w', queues => ARRAY['$round'])", qr/^$uuid\|$uuid\|1$/);
	$check->('renew', "SELECT outbox_id, error FROM outbox.renew('w', ARRAY['$id']::uuid[], ARRAY['$token']::uuid[])", "$id|");
	$check->('release', "SELECT outbox_id, error FROM outbox.release('w', ARRAY['$id']::uuid[], ARRAY['$token']::uuid[])", "$id|");
	($id, $token) = $check->('claim',
		"SELECT outbox_id, lease_token FROM outbox.claim('w', queues => ARRAY['$round'])", qr/^$id\|$uuid$/);
	$check->('complete', "SELECT attempt_no, recorded FROM outbox.complete('$id', '$token', 'w', 'DISPATCHED')", '1|DISPATCHED');
	$check->('enqueue_batch',
		qq{SELECT ordinality, sequence_id, created FROM outbox.enqueue_batch('$round', '[{"event_type": "e", "payload": 2, "partition_key": "p"}]')},
		'1|2|t');
	($id, $token) = $check->('enqueue_and_claim',
		"SELECT outbox_id, lease_token, sequence_id, created FROM outbox.enqueue_and_claim('w', 'e', '3', '$round', partition_key => 'p')",
		qr/^$uuid\|$uuid\|3\|t$/);
	$check->('complete_batch',
		"SELECT attempt_no, recorded, error FROM outbox.complete_batch('w', ARRAY['$id']::uuid[], ARRAY['$token']::uuid[], ARRAY['FAILED'])",
		'1|FAILED|');
	my ($next, $next_token) = $check->('complete_and_claim',
		"SELECT outbox_id, lease_token, kind FROM outbox.complete_and_claim('w', '{}', '{}', '{}', queues => ARRAY['$round'])", qr/^$uuid\|$uuid\|claimed$/);
	$check->('complete_and_claim',
		"SELECT kind, recorded FROM outbox.complete_and_claim('w', ARRAY['$next']::uuid[], ARRAY['$next_token']::uuid[], ARRAY['DISPATCHED'], queues => ARRAY['$round'])",
		'completed|DISPATCHED');
	$check->('take_number', "SELECT outbox.take_number('$round', 'another key')", '1');
	$check->('replay', "SELECT outbox.replay('$id')", qr/^$uuid$/);
	($id) = split /\|/, call("SELECT outbox_id FROM outbox.claim('lost', 1, queues => ARRAY['$round'])");
	$node->safe_psql('postgres',
		"UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE outbox_id = '$id'");
	$check->('repair_expired_leases',
		"SELECT outbox_id, attempt_no, state, lost_by FROM outbox.repair_expired_leases(queues => ARRAY['$round'])",
		"$id|1|ZOMBIE_REQUEUE|lost");
	$check->('cancel', "SELECT outbox.cancel('$id', 'not wanted')", '2');
	call("SELECT outbox.cancel(outbox_id, 'not wanted') FROM outbox.pending WHERE queue = '$round'");
	$check->('drop_queue', "SELECT outbox.drop_queue('$round')", '');
	$check->('maintain', "SELECT count(*) >= 0 FROM outbox.maintain()", 't');
	$check->('check', "SELECT count(*) FROM outbox.check() WHERE severity = 'error'", '0');
	$check->('lost_messages', 'SELECT count(*) FROM outbox.lost_messages()', '0');
	$check->('restore_pending', 'SELECT outbox.restore_pending()', '0');
	$check->('wait_for_work', "CALL outbox.wait_for_work('0')", '');
	$check->('prometheus', 'SELECT outbox.prometheus()', qr/^outbox_pending_depth\{queue="default"\} \d+$/m);
	$check->('queue_stats', 'SELECT count(*) > 0 FROM outbox.queue_stats()', $preloaded ? 't' : 'f');
	$check->('worker_status', "SELECT state FROM outbox.worker_status() WHERE kind = 'launcher'", $preloaded ? 'running' : 'not loaded');
	$check->('reset_stats', 'SELECT outbox.reset_stats()', '');
	$check->('state_diagram', "SELECT outbox.state_diagram()", qr/^digraph/);
	$check->('key_digest', "SELECT length(outbox.key_digest('q', 'k'))", '32');
	foreach my $statement ('UPDATE outbox.messages SET payload = NULL', 'DELETE FROM outbox.attempts', 'TRUNCATE outbox.pending')
	{
		is(sqlstate($node, join(";\n", @first, $statement)), 'P0001', "$name: $statement");
	}
	$called{append_only} = 1;
	$called{merge_queue} = 1;
	is(call("INSERT INTO outbox.queues (queue, lease) VALUES ('default', '31 seconds'); SELECT lease FROM outbox.queues WHERE queue = 'default'"),
		'00:00:31', "$name: merge_queue");
	$called{pending_changed} = 1;
	is(call("BEGIN; INSERT INTO outbox.pending (outbox_id, queue) VALUES (gen_random_uuid(), '$round'); SELECT 'fired'; ROLLBACK"),
		'fired', "$name: pending_changed");
	foreach my $view ('status', 'operational_status', 'dead_letters', 'sequences', 'stats', 'workers')
	{
		is(call("SELECT count(*) >= 0 FROM outbox.$view"), 't', "$name: view $view");
	}

	my $functions = call(q{
		SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace ORDER BY 1});
	is(join("\n", sort keys %called), $functions, "$name: no function was left out");
	return;
}

is($node->safe_psql('postgres', 'SHOW shared_preload_libraries'), '', 'nothing is preloaded');
is($node->safe_psql('postgres', 'CREATE EXTENSION outbox; SELECT 1'), '1', 'CREATE EXTENSION in a fresh session');
is($node->safe_psql('postgres', 'DROP EXTENSION outbox; CREATE EXTENSION outbox; SELECT created FROM outbox.enqueue($$e$$, $$1$$)'),
	't', 'dropped and made again in one session, and used');
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
