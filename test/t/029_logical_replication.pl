# Logical replication to other databases whose background worker runs.
#
# Proves: as docs/reference.md sets it up, messages, attempts and replays arrive in a database
# that is read for reports, whatever partitions each side has, and what the publisher
# retires stays there; and all tables together move an outbox to another server in the
# middle of its work: once the subscription is dropped, the worker there goes on by itself,
# open leases are completed under their tokens, keys are known and numbers go on. As long as
# a subscription is there, the worker leaves the database alone, and history is append-only.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $publisher = new_node('publisher', preload => 1, extension => 0, conf => "wal_level = logical\nmax_wal_senders = 10");
my $subscriber = new_node('subscriber', preload => 1, extension => 0, conf => "autovacuum = off\noutbox.poll_interval = '100ms'\nmax_worker_processes = 16");
# As a restore does, which makes no partitions: each database gets those that a test says.
my $create = 'SET xmloption = content; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; CREATE EXTENSION outbox';

# ---------------------------------------------------------------- work

# Each verb that writes, with batches, and a payload that is kept out of line.
sub work
{
	$publisher->safe_psql('source', q{
		SELECT count(*) FROM outbox.enqueue_batch('default', (SELECT jsonb_agg(jsonb_build_object('event_type', 'batch', 'payload', g)) FROM generate_series(1, 50) g));
		SELECT outbox.enqueue('big', (SELECT jsonb_agg(md5(g::text)) FROM generate_series(1, 20000) g), priority => 1);
		SELECT outbox.enqueue('numbered', '1', 'numbered', partition_key => p, idempotency_key => p) FROM unnest(ARRAY['p', 'q']) p;
		SELECT outbox.enqueue('numbered', '1', 'numbered', partition_key => p) FROM unnest(ARRAY['p', 'q', 'p']) p});
	$publisher->safe_psql('source', q{
		WITH held AS MATERIALIZED (SELECT *, row_number() OVER () AS n FROM outbox.claim('w', 20, queues => ARRAY['numbered', 'default'])), these AS MATERIALIZED (
			SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens, array_agg((ARRAY['DISPATCHED', 'RETRYABLE', 'FAILED'])[1 + n % 3]) AS states,
				array_agg(CASE n % 3 WHEN 1 THEN interval '0' END) AS delays
			FROM held)
		SELECT count(c.attempt_no) FROM these, outbox.complete_batch('w', ids, tokens, states, retry_delays => delays) c;
		SELECT outbox.enqueue_and_claim('gone', 'gone', '1', lease => '1 ms');
		SELECT outbox.replay(outbox_id) FROM outbox.dead_letters d WHERE NOT EXISTS (SELECT FROM outbox.messages m WHERE m.replay_of = d.outbox_id) LIMIT 1;
		SELECT outbox.cancel(outbox_id, 'no') FROM outbox.pending WHERE queue = 'default' AND claimed_by IS NULL ORDER BY outbox_id LIMIT 1;
		SELECT count(*) FROM outbox.repair_expired_leases();
		SELECT outbox.alter_queue('default', backoff_cap => backoff_cap + interval '1 min') FROM outbox.queues WHERE queue = 'default'});
	return;
}

sub dated_leaves
{
	my ($node, $db) = @_;

	return $node->safe_psql($db, q{SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relname ~ '_p\d{8}'
		AND relkind = 'r'});
}

# Equal rows, of these tables.
sub same_rows
{
	my ($db, $name, @tables) = @_;

	$publisher->wait_for_catchup($db, 'replay', $publisher->lsn('insert'));
	my ($here, $there) = (checksums($publisher, 'source'), checksums($subscriber, $db));

	unlike($here->{"outbox.$_"}, qr/^0 /, "$name: there are $_") foreach @tables;
	return is_deeply({ map { $_ => $there->{"outbox.$_"} } @tables }, { map { $_ => $here->{"outbox.$_"} } @tables }, "$name: equal rows");
}

$publisher->safe_psql('postgres', 'CREATE DATABASE source');
$publisher->safe_psql('source', $create);
$publisher->safe_psql('source', q{
	SELECT outbox.alter_queue('default', max_attempts => 7, repair_delay => '1 year');
	SELECT outbox.create_queue('numbered', ordering => 'numbered', max_attempts => 3)});
work();
# Rows in the DEFAULT partitions, and, as of now, in dated ones.
$publisher->safe_psql('source', q{SET outbox.partition_interval = '1 week'; SELECT * FROM outbox.maintain()});

# ---------------------------------------------------------------- to subscribe

$publisher->safe_psql('source', q{
	CREATE PUBLICATION outbox_history FOR TABLE outbox.messages, outbox.attempts, outbox.replays, outbox.dead WITH (publish = 'insert, update, delete', publish_via_partition_root = true);
	CREATE PUBLICATION outbox_all FOR TABLES IN SCHEMA outbox WITH (publish_via_partition_root = true)});
my %publications = (reports => 'outbox_history', moved => 'outbox_all');
my $conninfo = $publisher->connstr('source') =~ s/'/''/gr;

foreach my $db (sort keys %publications)
{
	$subscriber->safe_psql('postgres', "CREATE DATABASE $db");
	$subscriber->safe_psql($db, $create);
	$subscriber->safe_psql($db, q{SET outbox.partition_interval = '1 hour'; SELECT * FROM outbox.maintain()}) if $db eq 'reports';
	wait_for_worker($subscriber, database => $db);
	$subscriber->safe_psql($db, "CREATE SUBSCRIPTION $db CONNECTION '$conninfo' PUBLICATION $publications{$db}");
}
foreach my $db (sort keys %publications)
{
	$subscriber->poll_query_until($db, q{SELECT bool_and(srsubstate IN ('r', 's')) AND count(*) > 0 FROM pg_subscription_rel}) or die "$db: no copy";
}
isnt(dated_leaves($subscriber, 'reports'), dated_leaves($publisher, 'source'), 'both sides have partitions of their own');
isnt(dated_leaves($subscriber, 'moved'), dated_leaves($publisher, 'source'), '... or none');

my @history = qw(messages attempts replays);
my @all = (@history, qw(pending queues idempotency_keys key_numbers));

same_rows('reports', 'copied: reports', @history);
same_rows('moved', 'copied: all', @all);
work() foreach 1 .. 3;
same_rows('reports', 'streamed: reports', @history);
same_rows('moved', 'streamed: all', @all);
foreach my $db (sort keys %publications)
{
	ok($subscriber->poll_query_until($db, "SELECT state = 'left alone' FROM outbox.workers WHERE kind = 'worker' AND database = '$db'"), "$db: the worker leaves it alone");
	foreach my $sql ('UPDATE outbox.messages SET outbox_id = outbox_id', 'DELETE FROM outbox.attempts', 'TRUNCATE outbox.messages')
	{
		is(sqlstate($subscriber, $sql, database => $db), 'P0001', "$db: $sql");
	}
}
is($subscriber->safe_psql('reports', 'SELECT count(*) FROM outbox.dead_letters'), $publisher->safe_psql('source', 'SELECT count(*) FROM outbox.dead_letters'),
	'reports: dead letters are seen');
is($subscriber->safe_psql('reports', 'SELECT pending_count FROM outbox.status'), '0', '... and nothing there is pending');

# ---------------------------------------------------------------- the move

my $held = $publisher->safe_psql('source', q{
	SELECT outbox.enqueue('held', '1', priority => 15);
	SELECT outbox_id || '|' || lease_token FROM outbox.claim('holder', 1, '1 day')}) =~ s/.*\n//sr;
$publisher->safe_psql('source', q{SELECT outbox.enqueue_and_claim('lost', 'lost', '1', lease => '1 ms') FROM generate_series(1, 3)});
# The old worker is not to take them back.
configure($publisher, 'outbox.worker' => 'off');
wait_for_no_worker($publisher, 'source');
my $open = $publisher->safe_psql('source', q{
	SELECT count(*) FROM outbox.pending WHERE claimed_by IS NOT NULL AND lease_expires_at < clock_timestamp()});
same_rows('moved', 'before the move', @all);
my ($repaired) = $subscriber->safe_psql('moved', q{SELECT count(*) FROM outbox.attempts WHERE recorded_by = 'outbox worker'});
$subscriber->safe_psql('moved', 'DROP SUBSCRIPTION moved');
ok($subscriber->poll_query_until('moved', qq{
		SELECT (SELECT count(*) FROM outbox.attempts WHERE recorded_by = 'outbox worker') = $repaired + $open
			AND NOT EXISTS (SELECT FROM outbox.pending WHERE lease_expires_at < clock_timestamp())}),
	"moved: $open leases that have run out are taken back");
my ($id, $token) = split /\|/, $held;
is($subscriber->safe_psql('moved', "SELECT attempt_no FROM outbox.complete('$id', '$token', 'holder', 'DISPATCHED')"), '1', 'moved: an open lease is completed');
is($subscriber->safe_psql('moved', q{SELECT created FROM outbox.enqueue('numbered', '1', 'numbered', partition_key => 'p', idempotency_key => 'p')}), 'f', 'moved: keys are known');
is($subscriber->safe_psql('moved', q{SELECT sequence_id FROM outbox.enqueue('numbered', '1', 'numbered', partition_key => 'p')}),
	1 + $publisher->safe_psql('source', q{SELECT max(sequence_id) FROM outbox.messages WHERE partition_key = 'p'}), 'moved: numbers go on');
serves($subscriber, 'moved', 'moved');
consistent($subscriber, 'moved: consistent', 'moved');

# ---------------------------------------------------------------- old data

# What is dropped here is kept there.
my $count = 'SELECT count(*) FROM outbox.messages';
my $before = $publisher->safe_psql('source', $count);
my ($leaf) = split / /, dated_leaves($publisher, 'source') =~ s/.*?\b(messages_p\S+).*/$1/sr;

$publisher->safe_psql('source', qq{BEGIN; ALTER TABLE outbox.messages DETACH PARTITION outbox.$leaf; DROP TABLE outbox.$leaf; COMMIT});
$publisher->safe_psql('source', q{SELECT outbox.enqueue('after', '1')});
cmp_ok($publisher->safe_psql('source', $count), '<=', $before + 1, 'a partition of messages is dropped');
$publisher->wait_for_catchup('reports', 'replay', $publisher->lsn('insert'));
is($subscriber->safe_psql('reports', $count), $before + 1, '... which keeps its rows in reports');

is(join("\n", log_lines($subscriber, 0, qr/^PANIC|terminated by signal|^ERROR:  (?!append-only)/)), '', 'no error at the subscriber');
$subscriber->stop('fast');
$publisher->stop('fast');
done_testing();
