# Old data, with background workers: what is set for a database is done in it, by its own
# process, and what is changed is done after a reload.
#
# Proves that retirement is told of trouble once and of locks never; that sessions which know
# a retired leaf go on; that numbers go on and repeated enqueues are answered alike, also after
# dump and restore of what was retired and archived; and that keys which lapse are taken by one
# enqueue each, while maintenance deletes them.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('retention', preload => 1, extension => 0, conf => "autovacuum = off\noutbox.poll_interval = '100ms'");
my $aging = "$FindBin::RealBin/../sql/aging.inc";
my $dumps = PostgreSQL::Test::Utils::tempdir();

sub ask { my ($sql, $database) = @_; return $node->safe_psql($database // 'old', $sql); }

sub leaves { return ask(q{SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class
	WHERE relnamespace = 'outbox'::regnamespace AND relname ~ '^(messages|attempts)_p2020....$'}, @_); }

# Two pairs, of six and of five weeks ago.
sub make_pairs
{
	ask(q{SELECT t.make_pair('20200101', d - interval '42 days', d - interval '35 days'), t.make_pair('20200108', d - interval '35 days', d - interval '28 days')
		FROM date_trunc('day', now(), 'UTC') d}, @_);
	return;
}

sub make_database
{
	my ($database) = @_;

	ask("CREATE DATABASE $database", 'postgres');
	ask(q{CREATE EXTENSION outbox; SELECT FROM outbox.maintain(); SELECT FROM outbox.create_queue('n', ordering => 'numbered')}, $database);
	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $database, '-f', $aging ], "$database: helpers");
	make_pairs($database);
	return;
}

# A message of so long ago, delivered.
sub deliver
{
	my ($type, $days, $arguments) = @_;

	return ask(qq{
		SELECT FROM outbox.enqueue('$type', '1', 'n', partition_key => 'k', $arguments);
		SELECT FROM outbox.claim('w', queues => '{n}') c, outbox.complete(c.outbox_id, c.lease_token, 'w', 'DISPATCHED');
		SELECT FROM t.let_pass('$days days');
		SELECT outbox_id, sequence_id FROM outbox.messages WHERE event_type = '$type'});
}

# Sets things for the database, has everybody read them, and waits until maintenance has run
# twice more: the first may have begun before.
sub set_and_wait
{
	my ($settings, $database) = @_;
	my $starts = maintenance('starts');

	ask($_) foreach @$settings;
	foreach my $run (1, 2)
	{
		$node->reload;
		$node->poll_query_until('old', "SELECT starts >= $starts + $run AND pid IS NULL FROM outbox.workers WHERE kind = 'maintenance' AND database = 'old'")
			or die 'maintenance does not run';
	}
	return;
}

sub maintenance { my ($what) = @_; return ask("SELECT $what FROM outbox.workers WHERE kind = 'maintenance' AND database = 'old'"); }

$node->safe_psql('postgres', 'CREATE SCHEMA unused');
make_database($_) foreach qw(old other);
wait_for_worker($node, database => $_) foreach qw(old other);
my $from = log_size($node);

# ---------------------------------------------------------------- settings reach the process

my $both = 'attempts_p20200101 attempts_p20200108 messages_p20200101 messages_p20200108';
my ($id, $number) = split /\|/, deliver('first', 37, "idempotency_key => 'first'") =~ s/\s//gr;
my $again = q{SELECT outbox_id, sequence_id, created FROM outbox.enqueue('again', '1', 'n', partition_key => 'k', idempotency_key => 'first')};

is($number, '1', 'a numbered message');
is(ask(q{SELECT tableoid::regclass FROM outbox.messages}), 'outbox.messages_p20200101', '... of long ago');
# Sessions that know the leaves of old: one only answers, one has a snapshot, one wrote there.
my $knows = session($node, database => 'old');
is($knows->query_safe($again), "$id|1|f", 'a session has read the number there');
my $writes = session($node, database => 'old');
ask(q{INSERT INTO outbox.pending (outbox_id, queue, claimed_by, claimed_at, lease_token, lease_expires_at)
	VALUES ('} . $id . q{', 'n', 'x', now(), '00000000-0000-4000-8000-00000000000a', now() + interval '1 day')});
$writes->query("SELECT outbox.cancel('$id', 'no', true)");
like($writes->{stderr}, qr/ALREADY_TERMINAL/, 'a session has looked into the ledger there');
$writes->{stderr} = '';
ask("ALTER TABLE outbox.pending DISABLE TRIGGER pending_changed; DELETE FROM outbox.pending WHERE outbox_id = '$id'; ALTER TABLE outbox.pending ENABLE ALWAYS TRIGGER pending_changed");

wait_for_rounds($node, 'worker', 'old', 3);
is(leaves(), $both, 'nothing is set: nothing goes');

# Somebody reads the old leaf: it is tried, left, and nothing is said.
my $reader = session($node, database => 'old');
$reader->query_safe('BEGIN; SELECT FROM outbox.attempts_p20200101');
set_and_wait([ "SELECT outbox.set_retention('20 days')" ]);
is(leaves(), 'attempts_p20200101 messages_p20200101', 'a pair that somebody reads stays, the next goes');
is(maintenance('state'), 'idle', '... which is no trouble');
$reader->query_safe('COMMIT');
set_and_wait([]);
is(leaves(), '', 'the pair goes, with the setting of the database');
is(leaves('other'), $both, '... and of no other database');
logged($node, $from, 'retired');

# ---------------------------------------------------------------- what remains

is($knows->query_safe($again), "$id|1|f", 'a session that knew the leaf: the first one\'s id and number');
is(ask($again), "$id|1|f", 'a new one likewise');
is(sqlstate($node, "SELECT outbox.cancel('$id', 'no')", database => 'old'), 'P7005', 'the message itself is gone');
is($writes->query_safe(q{SELECT sequence_id, created FROM outbox.enqueue('second', '1', 'n', partition_key => 'k')}), '2|t', 'numbers of a quiet key go on');
is($writes->query_safe(q{SELECT recorded FROM outbox.claim('w', queues => '{n}') c, outbox.complete(c.outbox_id, c.lease_token, 'w', 'DISPATCHED')}), 'DISPATCHED',
	'a session that knew the leaf delivers');
consistent_but_for_gaps('after retirement');

# A transaction whose snapshot is older than the retirement.
make_pairs();
my $old_snapshot = session($node, database => 'old');
deliver('third', 35, "idempotency_key => 'third'");
$old_snapshot->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
set_and_wait([]);
is(leaves(), '', 'a snapshot alone does not keep a pair');
like($old_snapshot->query_safe(q{SELECT sequence_id, created FROM outbox.enqueue('again', '1', 'n', partition_key => 'k', idempotency_key => 'third')}), qr/^3\|f$/,
	'... and its transaction is told the number');
$old_snapshot->query_safe('COMMIT');

# ---------------------------------------------------------------- trouble is told once

make_pairs();
deliver('fourth', 37, "event_id => '00000000-0000-4000-8000-000000000004'");
$from = log_size($node);
set_and_wait([ q{SELECT outbox.set_retention('20 days', archive_schema => 'attic')} ]);
is(leaves(), $both, 'an archive that is missing: nothing goes');
# Of both; of the last one unless somebody had it open.
like(maintenance(q{state || ' ' || last_error}), qr/^in trouble could not retire partitions: messages_p2020010[18]: schema "attic" does not exist$/, '... and maintenance says why');
ask('CREATE SCHEMA attic AUTHORIZATION outbox_owner');
set_and_wait([]);
is(leaves(), '', 'it is there: both go');
is(maintenance(q{state || ' ' || failures}), 'idle 0', '... and all is well');
logged($node, $from, 'the archive is missing', qr/^LOG:  outbox maintenance of database "[^"]*" could not retire partitions: messages_p2020010[18]: schema "attic" does not exist$/,
	qr/^LOG:  outbox maintenance of database "[^"]*" can retire partitions again$/);
is(ask(q{SELECT string_agg(event_type, ' ') FROM attic.messages_p20200101 JOIN attic.attempts_p20200101 USING (outbox_id) WHERE state = 'DISPATCHED'}), 'fourth', 'the archive holds the message');

# ---------------------------------------------------------------- no policy, and another database's

make_pairs();
set_and_wait([ q{ALTER DATABASE old SET outbox.idempotency_window = '3000 days'}, q{SELECT outbox.set_retention(NULL, archive_schema => 'attic')} ]);
is(leaves(), $both, 'no policy: pairs stay');
ask(q{SELECT FROM outbox.enqueue('e', '1', 'default')}, 'other');
ask(q{SELECT outbox.set_retention('20 days')}, 'other');
ask(q{SELECT outbox.set_retention('20 days', archive_schema => 'attic')});
$node->reload;
ok($node->poll_query_until('other', q{SELECT count(*) = 0 FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relname ~ '_p2020....$'}),
	'a policy of each database: the pairs of the other one go');
ok($node->poll_query_until('old', q{SELECT count(*) = 6 FROM pg_class WHERE relnamespace = 'attic'::regnamespace AND relkind = 'r'}),
	'... but where the archive holds tables of these names');
# Whoever has read the retention is gone, before there is no archive.
set_and_wait([ q{SELECT outbox.set_retention(NULL)} ]);
is(leaves(), $both, '... these stay');

# ---------------------------------------------------------------- dump and restore

my $sums = checksums($node, 'old');
my $catalogue = catalogue($node, 'old');
my $archive = q{SELECT md5(string_agg(m::text, '' ORDER BY outbox_id)) FROM attic.messages_p20200101 m};
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dumps/old.dump", '-d', 'old' ], 'pg_dump');
ask('CREATE DATABASE restored', 'postgres');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-j', '2', '-d', 'restored', "$dumps/old.dump" ], 'pg_restore');
is_deeply(checksums($node, 'restored'), $sums, 'restored: the same rows');
is_deeply(catalogue($node, 'restored'), $catalogue, '... the same tables');
is(ask($archive, 'restored'), ask($archive), '... the same archive');
is(sqlstate($node, $_, database => 'restored'), 'P0001', "... where $_ is refused")
	foreach map { ("UPDATE $_ SET outbox_id = outbox_id", "DELETE FROM $_", "TRUNCATE $_") } 'attic.messages_p20200101', 'attic.attempts_p20200101';
is(ask($again, 'restored'), "$id|1|f", '... a repeated enqueue is answered as before');
is(ask(q{SELECT sequence_id, created FROM outbox.enqueue('again', '1', 'n', partition_key => 'k', event_id => '00000000-0000-4000-8000-000000000004')}, 'restored'), '4|f', '... by event_id too');
is(ask(q{SELECT sequence_id, created FROM outbox.enqueue('fifth', '1', 'n', partition_key => 'k')}, 'restored'), '5|t', '... and numbers go on');
is(ask(q{SELECT count(*) FROM outbox.check() WHERE severity = 'error'}, 'restored'), '0', '... check() finds nothing');
is(sqlstate($node, 'DROP EXTENSION outbox', database => 'restored'), '2BP01', '... and the extension stays while there is an archive');

# ---------------------------------------------------------------- keys that lapse

# Producers use keys again while maintenance deletes them: each becomes one message.
my $seed = seed();
my $keys = 300;
my $script = "$dumps/again.sql";

ask(qq{SELECT FROM outbox.enqueue_batch('n', (SELECT jsonb_agg(jsonb_build_object('event_type', 'old', 'payload', 1, 'idempotency_key', 'lapse ' || g,
		'event_id', ('00000000-0000-4000-8000-' || lpad(g::text, 12, '0'))) ) FROM generate_series(1001, 1000 + $keys) g));
	SELECT FROM outbox.claim('w', 1000, queues => '{n}') c, outbox.complete(c.outbox_id, c.lease_token, 'w', 'DISPATCHED');
	SELECT FROM t.let_pass('60 days');
	SELECT FROM outbox.enqueue('fresh', '1', idempotency_key => 'fresh')});
append_to_file($script, qq{
\\set key random(1001, 1000 + $keys)
SELECT outbox.enqueue('new', '1', 'n', idempotency_key => 'lapse :key', event_id => ('00000000-0000-4000-8000-' || lpad(:key::text, 12, '0'))::uuid);
});
ask(q{ALTER DATABASE old SET outbox.idempotency_window = '50 days'}, 'postgres');
my $deleting = session($node, database => 'old');
start_query($deleting, q{DO $$ BEGIN WHILE (SELECT count(*) FROM outbox.messages WHERE event_type = 'new') < 250 LOOP PERFORM outbox.maintain(); COMMIT; END LOOP; END $$});
$node->command_ok([ 'pgbench', '-n', '-c', '4', '-j', '2', '-t', '500', "--random-seed=$seed", '-f', $script, 'old' ], 'producers use lapsed keys while they are deleted');
result_of($deleting);
is(ask(q{SELECT count(*) - count(DISTINCT idempotency_key), count(*) - count(DISTINCT event_id) FROM outbox.messages WHERE event_type = 'new'}), '0|0', '... each key gave one message');
cmp_ok(ask(q{SELECT count(*) FROM outbox.messages WHERE event_type = 'new'}), '>=', 250, '... most keys were used');
set_and_wait([]);
is(ask(q{SELECT count(*) FROM outbox.idempotency_keys k WHERE outbox_id < t.first_id(now() - interval '50 days')}), '0', 'the worker deletes those that nobody used again');
is(ask(q{SELECT count(*) FROM outbox.retired_numbers WHERE outbox_id < t.first_id(now() - interval '50 days')}), '0', '... and the numbers that they led to');
is(ask(q{SELECT created FROM outbox.enqueue('fresh', '1', idempotency_key => 'fresh')}), 'f', '... and no other');

# ---------------------------------------------------------------- nobody is held up

is(sqlstate($node, 'DROP DATABASE other'), '00000', 'DROP DATABASE');
$_->quit foreach $knows, $writes, $reader, $old_snapshot, $deleting;
$node->stop('fast');
done_testing();

# Numbers of messages that were retired are gaps to whoever counts the messages that are left.
sub consistent_but_for_gaps
{
	my ($name) = @_;

	is(ask(q{SELECT count(*) FROM outbox.check() WHERE severity = 'error'}), '0', "$name: check() finds nothing");
	is(ask(q{SELECT count(*) FROM outbox.attempts a WHERE NOT EXISTS (SELECT FROM outbox.messages m WHERE m.outbox_id = a.outbox_id)}), '0', "$name: no attempt without its message");
	return;
}
