# A streaming standby, and read-only transactions.
#
# Proves: on a standby the tables and views can be read and every function that writes
# says 25006, at once and without a crash; the same in a read-only transaction; after
# promotion everything works on, open leases included, and those of dead workers are
# repaired. (B39)
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', streaming => 1, conf => 'autovacuum = off');

$primary->safe_psql('postgres', q{
	SELECT outbox.create_queue('numbered', ordering => 'numbered');
	SELECT outbox.create_queue('empty');
	SELECT outbox.alter_queue('default', repair_delay => '1 hour');
	SELECT outbox.enqueue('m' || g, '1') FROM generate_series(1, 6) g;
	SELECT outbox.enqueue('n', '1', 'numbered', partition_key => 'p', idempotency_key => 'n');
	SELECT outbox.maintain();
	CREATE TABLE held AS SELECT event_type, outbox_id, lease_token FROM outbox.claim('holder', 4, '1 day');
	SELECT outbox.complete(outbox_id, lease_token, 'holder', 'FAILED') FROM held WHERE event_type = 'm4';
	UPDATE outbox.pending p SET lease_expires_at = clock_timestamp() - interval '1 second'
	FROM held WHERE held.outbox_id = p.outbox_id AND held.event_type = 'm3';
});
$primary->safe_psql('postgres', 'SELECT outbox.seal()');
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
$primary->safe_psql('postgres', q{SELECT outbox.enqueue('streamed', '1')});
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));

# ---------------------------------------------------------------- reading

is_deeply(checksums($standby, 'postgres'), checksums($primary, 'postgres'), 'the standby shows the same rows');
is($standby->safe_psql('postgres', q{
		SELECT due_unleased_count, leased_count, expired_lease_count, scheduled_count, dead_count FROM outbox.status WHERE queue = 'default'}),
	'3|2|1|0|1', 'status');
is($standby->safe_psql('postgres', q{SELECT string_agg(state, ' ' ORDER BY outbox_id) FROM outbox.operational_status WHERE queue = 'default'}),
	'leased leased expired due due due', 'operational_status');
is($standby->safe_psql('postgres', q{SELECT event_type FROM outbox.messages JOIN outbox.dead_letters USING (outbox_id, event_type)}), 'm4', 'dead_letters');
is($standby->safe_psql('postgres', q{SELECT next_sequence_id FROM outbox.sequences}), '2', 'sequences');
is($standby->safe_psql('postgres', q{SELECT outbox.backoff('default', 3)}), '00:00:04', 'backoff()');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM outbox.check() WHERE severity = 'error'}), '0', 'check()');
like($standby->safe_psql('postgres', 'SELECT outbox.prometheus()'), qr/^outbox_pending_depth\{queue="default"\} 6$/m, 'prometheus()');
is($standby->safe_psql('postgres', q{SELECT event, matching FROM outbox.replay_many('default')}), 'm4|1', 'replay_many() shows what it would replay');
like($standby->safe_psql('postgres', q{SELECT outbox.explain(outbox_id) FROM outbox.messages WHERE event_type = 'm1'}), qr/is held by worker 'holder'/, 'explain()');

sub explained
{
	my ($type) = @_;

	return $standby->safe_psql('postgres', "SELECT outbox.explain(outbox_id) FROM outbox.messages WHERE event_type = '$type'");
}

like(explained('m3'), qr/This is a standby: the primary takes it back\./, 'explain(): a lease that has expired');
like(explained('streamed'), qr/This is a standby: workers claim on the primary\./, 'explain(): a message that is due');
like(explained('m4'), qr/is a dead letter: attempt 1, FAILED by 'holder'.*outbox\.replay\(\) delivers it again/, 'explain(): a dead letter');
unlike(explained('streamed'), qr/in use/, 'explain(): nobody has its row');

my $locker = session($primary);

$locker->query(q{BEGIN; SAVEPOINT s; SELECT FROM outbox.pending p JOIN outbox.messages USING (outbox_id) WHERE event_type = 'streamed' FOR UPDATE OF p; RELEASE s});
$primary->safe_psql('postgres', 'CREATE TABLE flushed ()');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
like(explained('streamed'), qr/Another transaction has its row in use, and claims pass it by until that ends\./, 'explain(): a transaction of the primary has its row');
is($standby->safe_psql('postgres', q{SELECT h.pid IS NULL FROM outbox.messages m, outbox.row_holders(m.outbox_id) h WHERE event_type = 'streamed'}), 't', 'row_holders(): which is no process here');
$locker->query('COMMIT');
$locker->quit;
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
unlike(explained('streamed'), qr/in use/, 'explain(): it has ended');
like($standby->safe_psql('postgres', q{SELECT outbox.state_diagram()}), qr/^digraph/, 'state_diagram()');

# ---------------------------------------------------------------- writing

my $id = $primary->safe_psql('postgres', q{SELECT outbox_id FROM held WHERE event_type = 'm1'});
my $token = $primary->safe_psql('postgres', q{SELECT lease_token FROM held WHERE event_type = 'm1'});
my $dead = $primary->safe_psql('postgres', q{SELECT outbox_id FROM held WHERE event_type = 'm4'});
# What only reads, or changes nothing but shared memory.
my @reads = ('prometheus', 'queue_stats', 'queue_status', 'reset_stats', 'rewrapped_key', 'worker_status', 'verify_seals', 'export_seals', 'prove', 'seal_leaves');

my %volatile = map { $_ => 1 } split /\n/, $primary->safe_psql('postgres', q{
	SELECT proname FROM pg_proc
	WHERE pronamespace = 'outbox'::regnamespace AND provolatile = 'v' AND prokind = 'f' AND prorettype <> 'trigger'::regtype});
delete @volatile{@reads};

sub is_refused
{
	my ($call, $database) = @_;

	is(sqlstate($primary, "BEGIN READ ONLY; $call", database => $database), '25006', "read-only transaction: $call");
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
	return is(sqlstate($standby, $call, database => $database), '25006', "standby: $call");
}

# The calls of test/sql/calls.inc in their order, so that each has something to do, in a database of their own.
$primary->safe_psql('postgres', 'CREATE DATABASE calls');
my $made = "CREATE EXTENSION outbox;\n" . slurp_file('test/sql/setup.inc') =~ s/^\\set.*\n//mgr;
my %tried;
foreach my $call (grep { /^[A-Z]/ } split /\n/, slurp_file('test/sql/calls.inc'))
{
	my ($function) = $call =~ /\boutbox\.(\w+)\(/;

	if ($function && $volatile{$function})
	{
		$primary->safe_psql('calls', $made);
		is_refused($call, 'calls');
		$tried{$function} = 1;
		$made = '';
	}
	$made .= "$call\n";
}
is_deeply([ sort keys %tried ], [ sort keys %volatile ], 'every volatile function is tried');

# With nothing to do, too.
my $sums = checksums($primary, 'postgres');
is_refused("SELECT outbox.$_", 'postgres') foreach
  q{enqueue('e', '1', 'numbered', partition_key => 'p', idempotency_key => 'n')},
  q{enqueue_batch('default', '[]')},
  q{claim('w', queues => '{empty}')},
  q{complete_batch('w', '{}', '{}', '{}')},
  q{complete_and_claim('w', '{}', '{}', '{}')},
  q{renew('w', '{}', '{}')},
  q{release('w', '{}', '{}')},
  q{repair_expired_leases(queues => '{empty}')},
  q{cancel_batch('{}', 'no')},
  q{replay_batch('{}')};
foreach my $function (@reads)
{
	my %arguments = (queue_status => q{'default'}, rewrapped_key => 'NULL, NULL, NULL, NULL', prove => "'$id'", seal_leaves => 1);
	my $call = "outbox.$function(" . ($arguments{$function} // '') . ')';

	is(sqlstate($standby, "SELECT $call"), '00000', "standby: $call");
	is(sqlstate($primary, "BEGIN READ ONLY; SELECT $call"), '00000', "read-only transaction: $call");
}
is(sqlstate($standby, q{CALL outbox.wait_for_work('1 hour')}), '25006', 'standby: wait_for_work()');
# The session can go on at once.
is($standby->safe_psql('postgres', q{
		DO $$ BEGIN PERFORM outbox.claim('w'); EXCEPTION WHEN read_only_sql_transaction THEN NULL; END $$;
		SELECT count(*) FROM outbox.messages}), '8', 'the session can go on');

# A transaction that becomes read-only, and a server that is so for a while.
is(sqlstate($primary, q{BEGIN; SELECT outbox.enqueue('e', '1'); SET TRANSACTION READ ONLY; SELECT outbox.claim('w')}), '25006', 'read-only from here on');
$primary->append_conf('postgresql.conf', 'default_transaction_read_only = on');
$primary->reload;
$primary->poll_query_until('postgres', q{SELECT current_setting('default_transaction_read_only') = 'on'}) or die;
is(sqlstate($primary, q{SELECT outbox.claim('w')}), '25006', 'default_transaction_read_only');
$primary->adjust_conf('postgresql.conf', 'default_transaction_read_only', 'off');
$primary->reload;
$primary->poll_query_until('postgres', q{SELECT current_setting('default_transaction_read_only') = 'off'}) or die;
is_deeply(checksums($primary, 'postgres'), $sums, 'none of that changed anything');

# ---------------------------------------------------------------- promotion

# A session that stays on the standby across its promotion.
my $session = session($standby);
my ($out, $error) = $session->query(q{SELECT outbox.claim('early')});
is($error, 1, 'refused before');
$session->{stderr} = '';

$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
$primary->stop('immediate');
$standby->promote;

is_deeply(checksums($standby, 'postgres'), $sums, 'promoted: nothing lost');
is($standby->safe_psql('postgres', q{SELECT attempt_no, state, lost_by FROM outbox.repair_expired_leases()}), '1|ZOMBIE_REQUEUE|holder', 'a lease that had run out is repaired');
is($session->query(q{SELECT event_type FROM outbox.claim('early', 1)}), 'm5', 'that session works on, without a restart');
is($session->{stderr}, '', '... and without a complaint');
$session->quit;
is($standby->safe_psql('postgres', qq{SELECT attempt_no FROM outbox.complete('$id', '$token', 'holder', 'DISPATCHED')}), '1', 'an open lease is completed under its token');
is($standby->safe_psql('postgres', q{
		UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE claimed_by = 'holder';
		SELECT event_type, attempt_count FROM outbox.claim('next') ORDER BY 1}),
	"m2|1\nm6|0\nstreamed|0", 'one that runs out afterwards is claimed anew');
is($standby->safe_psql('postgres', q{SELECT created FROM outbox.enqueue('n', '1', 'numbered', partition_key => 'p', idempotency_key => 'n')}), 'f', 'keys are known');
is($standby->safe_psql('postgres', q{SELECT sequence_id FROM outbox.enqueue('n', '1', 'numbered', partition_key => 'p')}), '2', 'numbers go on');
is($standby->safe_psql('postgres', q{SELECT max(outbox_id::text) = (SELECT outbox_id::text FROM outbox.messages WHERE sequence_id = 2) FROM outbox.messages}), 't', 'ids go on');
is($standby->safe_psql('postgres', qq{SELECT outbox.replay('$dead') IS NOT NULL}), 't', 'a dead letter is replayed');
is(sqlstate($standby, 'DELETE FROM outbox.messages'), 'P0001', 'append-only');
is($standby->safe_psql('postgres', q{SELECT count(*) >= 0 FROM outbox.maintain()}), 't', 'maintain()');
consistent($standby, 'consistent');

$standby->stop('fast');
unlike(slurp_file($_->logfile), qr/terminated by signal|PANIC|TRAP/, $_->name . ': no crash') foreach $primary, $standby;
done_testing();
