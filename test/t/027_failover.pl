# Failover in the middle of work: the standby is promoted while the primary lives.
#
# Proves: with a synchronous standby, whatever was acknowledged is on the promoted server,
# its business row and its message together; there the background worker starts,
# leases of before are completed under their tokens or expire and are delivered again; the
# old primary acknowledges no commit from then on, but for what need not be durable
# (outbox.async_claim), and a lease that it gave out so is void on the new one; made a
# standby by pg_rewind, it answers its clients 25006, and shows what the new one says.
# All views can be read on a standby that preloads the library. (B39)
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed();
my $primary = new_node('primary', preload => 1, streaming => 1, conf => "wal_log_hints = on\nwal_keep_size = '512MB'");

$primary->safe_psql('postgres', q{
	SELECT outbox.create_queue('load', ordering => 'numbered', lease => '1 second', repair_delay => '0');
	SELECT outbox.create_queue('split');
	SELECT outbox.create_queue('held');
	SELECT outbox.enqueue('split', '1', 'split');
	SELECT outbox.enqueue('held', '1', 'held');
	CREATE TABLE held AS SELECT outbox_id, lease_token FROM outbox.claim('holder', 1, '1 day', ARRAY['held']);
});
make_load($primary, 'postgres', 'load');
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
configure($primary, synchronous_standby_names => 'standby');
$primary->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'}) or die 'no synchronous standby';

# ---------------------------------------------------------------- reading

sub views_can_be_read
{
	my ($node, $name) = @_;
	my $views = $node->safe_psql('postgres', q{
		SELECT string_agg(format('SELECT %L WHERE (SELECT count(*) FROM %s) >= 0', relname, oid::regclass), ' UNION ALL ' ORDER BY relname)
		FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'v'});

	return is($node->safe_psql('postgres', $views), "blocked_keys\ndead_letters\noperational_status\nsequences\nstats\nstatus\nworkers", "$name: views can be read");
}

views_can_be_read($standby, 'standby');

# ---------------------------------------------------------------- work, and the promotion

sub start_load
{
	my ($name, $script) = @_;
	my $load = { out => '', err => '' };

	append_to_file($primary->basedir . "/$name.sql", $script);
	local $ENV{PGAPPNAME} = $name;
	$load->{run} = IPC::Run::start(
		[ 'pgbench', '-n', '-c', '2', '-j', '1', '-T', '600', '--random-seed', $seed, '-f', $primary->basedir . "/$name.sql", $primary->connstr('postgres') ],
		'<', \undef, '>', \$load->{out}, '2>', \$load->{err});
	return $load;
}

my $produced = 'SELECT count(*) FROM business';
my $producers = start_load('producers', q{
\set key random(1, 5)
SELECT produce('key ' || :key);
});
my $workers = start_load('workers', q{
\set n random(1, 4)
\set outcome random(0, 1000)
SELECT work('w' || :client_id, :n, :outcome);
SELECT outbox.claim('leaves it', 1, queues => ARRAY['load']);
});
$primary->poll_query_until('postgres', "SELECT ($produced) >= 200 AND count(*) >= 100 FROM outbox.attempts") or die "no load: $producers->{err} $workers->{err}";
$standby->promote;

# The old primary lives, unfenced; whoever commits there waits for a standby that is gone, and
# keeps the lock of the key that it numbered, for which the other may wait.
ok($primary->poll_query_until('postgres', q{
		SELECT bool_or(wait_event = 'SyncRep') AND count(*) FILTER (WHERE wait_event = 'SyncRep' OR pg_blocking_pids(pid) <> '{}') = 2
		FROM pg_stat_activity WHERE application_name = 'producers'}),
	'the old primary: no commit is acknowledged');
my $split = $primary->safe_psql('postgres', q{SET outbox.async_claim = on; SELECT outbox_id, lease_token FROM outbox.claim('old', 1, '1 day', ARRAY['split'])});
like($split, qr/^[0-9a-f-]{36}\|[0-9a-f-]{36}$/, '... but a claim that need not be durable is');

# It goes down.
$primary->stop('immediate');
foreach my $load ($producers, $workers)
{
	$load->{run}->finish;
	unlike($load->{err}, qr/ERROR:/, 'no error but the loss of the server');
}
my ($acknowledged) = $producers->{out} =~ /^number of transactions actually processed: (\d+)/m or die "no count: $producers->{out}";
note("acknowledged: $acknowledged");

# ---------------------------------------------------------------- the new primary

my $there = $standby->safe_psql('postgres', $produced);
cmp_ok($there, '>=', $acknowledged, 'the new primary: all that was acknowledged is there');
cmp_ok($there, '<=', $acknowledged + 2, '... and of what was not, no more than was under way');
load_is_told($standby, '... each business row has its message, each message its row');
wait_for_worker($standby);
serves($standby, 'postgres', 'its worker starts by itself');
ok($standby->poll_query_until('postgres', q{SELECT count(*) = 0 FROM outbox.pending WHERE queue = 'load' AND claimed_by IS NOT NULL}),
	'leases of lost workers are taken back');
cmp_ok($standby->safe_psql('postgres', q{SELECT count(*) FROM outbox.attempts WHERE worker_id = 'leaves it' AND recorded_by = 'outbox worker'}), '>', 0,
	'... by the background worker');
my ($id, $token) = split /\|/, $standby->safe_psql('postgres', 'SELECT outbox_id, lease_token FROM held');
is($standby->safe_psql('postgres', "SELECT attempt_no FROM outbox.complete('$id', '$token', 'holder', 'DISPATCHED')"), '1', 'an open lease is completed under its token');
($id, $token) = split /\|/, $split;
is(sqlstate($standby, "SELECT outbox.complete('$id', '$token', 'old', 'DISPATCHED')"), 'P7002', 'a lease that the old primary gave out afterwards is void');
is($standby->safe_psql('postgres', qq{
		SELECT c.outbox_id = '$id', r.attempt_no FROM outbox.claim('new', queues => ARRAY['split']) c,
			outbox.complete(c.outbox_id, c.lease_token, 'new', 'DISPATCHED') r}), 't|1', '... its message is delivered by another');
$standby->safe_psql('postgres', q{SELECT produce('key ' || n % 5) FROM generate_series(1, 20) n});
ok($standby->poll_query_until('postgres', q{
		SELECT coalesce(sum(work('next', 100, n)), 0) < 0 FROM generate_series(1, 4) n;
		SELECT count(*) = 0 FROM outbox.pending WHERE queue = 'load'}, "f\nt"), 'everything goes on, to its end');
consistent($standby, 'consistent');
undamaged($standby, 'nothing damaged');

# ---------------------------------------------------------------- the old one becomes a standby

# What it has committed since the promotion, and nobody was told of, has to go.
$standby->safe_psql('postgres', 'CHECKPOINT');
my $conf = slurp_file($primary->data_dir . '/postgresql.conf');
command_ok([ 'pg_rewind', '--no-sync', '--target-pgdata', $primary->data_dir, '--source-server', $standby->connstr('postgres') ], 'pg_rewind');
unlink $primary->data_dir . '/postgresql.conf';
append_to_file($primary->data_dir . '/postgresql.conf', $conf);
$primary->enable_streaming($standby);
$primary->start;
$standby->wait_for_catchup('primary', 'replay', $standby->lsn('flush'));
is_deeply(checksums($primary, 'postgres'), checksums($standby, 'postgres'), 'rewound, the old primary shows the same rows');
views_can_be_read($primary, 'rewound');
is($primary->safe_psql('postgres', 'SELECT state FROM outbox.workers'), 'not running', '... runs no worker');
foreach my $call (q{outbox.enqueue('e', '1')}, q{outbox.claim('old')}, "outbox.complete('$id', '$token', 'old', 'DISPATCHED')",
	"outbox.renew('old', ARRAY['$id']::uuid[], ARRAY['$token']::uuid[])", q{outbox.repair_expired_leases()})
{
	is(sqlstate($primary, "SELECT $call"), '25006', "... and answers its clients 25006: $call");
}

$primary->stop('fast');
$standby->stop('fast');
unlike(slurp_file($_->logfile), qr/terminated by signal|PANIC|TRAP/, $_->name . ': no crash') foreach $primary, $standby;
done_testing();
