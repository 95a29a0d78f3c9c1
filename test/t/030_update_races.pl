# ALTER EXTENSION outbox UPDATE: what it leaves, and while everybody works.
#
# Proves: each version that was ever released, updated step by step to the present one, and
# a step that is made here, leave what CREATE EXTENSION makes: by the catalogues and by
# pg_dump --binary-upgrade, which writes out what belongs to an extension; what users have
# built on it survives; and an update under load waits for whoever has claimed, disturbs
# nobody (no deadlock, no error, no lost or doubled message, no lease lost), and the worker
# that served the old version serves the new one. (B31)
#
# A library that knows a column which the database lacks, because it has an older version, does
# there what it does in the new one.
#
# The library with stop points serves version 0.2.0next as well, which is made of 0.2.0 here:
# it adds columns to tables that sessions remember, a function, and a column of a view. The library
# knows the columns (src/rows/shapes.cpp).
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed();
my $node = new_node('main', preload => 1, extension => 0, conf => 'autovacuum = off');
my $folder = $node->config_data('--sharedir') . '/extension';
my ($old, $new) = ('0.2.0', '0.2.0next');
my ($whole, $step) = map { "$folder/outbox--$_.sql" } $new, "$old--$new";

plan skip_all => "$folder cannot be written to" unless -w $folder;
END { unlink grep { defined } $whole, $step }

# ---------------------------------------------------------------- a step

unlink $whole, $step;
# In the step, and in the script of the whole version.
my $made = <<'SQL';
VIEW outbox.sequences AS
	SELECT queue, partition_key, max(upto) + 1 AS next_sequence_id, count(*) AS versions
	FROM outbox.key_numbers GROUP BY queue, partition_key;
COMMENT ON COLUMN outbox.sequences.versions IS 'rows behind it';
CREATE FUNCTION outbox.note(queue text) RETURNS text LANGUAGE sql STABLE
	BEGIN ATOMIC SELECT q.note FROM outbox.queues q WHERE q.queue = note.queue; END;
COMMENT ON FUNCTION outbox.note(text) IS 'the note of a queue';
SQL

# As docs/internals.md asks: strong locks first, all at once, giving way to who holds them.
append_to_file($step, <<'SQL');
DO LANGUAGE plpgsql $locks$
DECLARE
	usual text := pg_catalog.current_setting('lock_timeout');
BEGIN
	PERFORM pg_catalog.set_config('lock_timeout', '50ms', true);
	LOOP
		BEGIN
			LOCK TABLE outbox.queues, outbox.pending IN ACCESS EXCLUSIVE MODE;
			EXIT;
		EXCEPTION WHEN lock_not_available THEN
			PERFORM pg_catalog.pg_sleep(0.01);
		END;
	END LOOP;
	PERFORM pg_catalog.set_config('lock_timeout', usual, true);
END
$locks$;
ALTER TABLE outbox.queues ADD COLUMN note text DEFAULT 'none';
COMMENT ON COLUMN outbox.queues.note IS 'a note';
ALTER TABLE outbox.pending ADD COLUMN note text;
COMMENT ON COLUMN outbox.pending.note IS 'a note';
SQL
append_to_file($step, "CREATE OR REPLACE $made" . <<'SQL');
ALTER FUNCTION outbox.note(text) OWNER TO outbox_owner;
REVOKE ALL ON FUNCTION outbox.note(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.note(text) TO outbox_operator;
SQL

# The same in the complete script, each thing in its place.
my $script = slurp_file("$folder/outbox--$old.sql");

sub edit
{
	my ($pattern, $replacement) = @_;

	$script =~ s/$pattern/$replacement->()/es or die "nothing like $pattern in the install script";
	return;
}

edit(qr/(CREATE TABLE outbox\.queues \(.*?\n)(?=\tCONSTRAINT )/s, sub { "$1\tnote text DEFAULT 'none',\n" });
edit(qr/(COMMENT ON COLUMN outbox\.queues\.created_at [^\n]*\n)/s, sub { "$1COMMENT ON COLUMN outbox.queues.note IS 'a note';\n" });
edit(qr/(CREATE TABLE outbox\.pending \(.*?\n)(?=\tCONSTRAINT )/s, sub { "$1\tnote text,\n" });
edit(qr/(COMMENT ON COLUMN outbox\.pending\.created_at [^\n]*\n)/s, sub { "$1COMMENT ON COLUMN outbox.pending.note IS 'a note';\n" });
edit(qr/CREATE VIEW outbox\.sequences AS\n.*?OFFSET 0;[^\n]*\n/s, sub { "CREATE $made" });
edit(qr/(outbox\.reset_stats\(\)[^;]*)\nTO outbox_operator;\n/s, sub { "$1, outbox.note(text)\nTO outbox_operator;\n" });
append_to_file($whole, $script);

# ---------------------------------------------------------------- what it leaves

# What pg_upgrade would make there: every object of the extension, without OIDs.
sub written_out
{
	my ($db) = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run([ 'pg_dump', '--binary-upgrade', '--schema-only', $node->connstr($db) ], '>', \$out, '2>', \$err) or die $err;
	return [ grep { /\S/ && !/^--|^\\(?:un)?restrict |binary_upgrade_(?:set_next|set_missing_value|create_empty_extension)|relfrozenxid|relminmxid|^WHERE oid = / } split /\n/, $out ];
}

# Updated, against made new.
sub compare
{
	my ($extension, $from, $to) = @_;
	my @other = $extension eq 'outbox' ? () : 'outbox';

	foreach my $db (qw(updated fresh))
	{
		$node->safe_psql('postgres', "CREATE DATABASE $db");
		$node->safe_psql($db, "CREATE EXTENSION $_") foreach @other;
	}
	$node->safe_psql('updated', "CREATE EXTENSION $extension VERSION '$from'; ALTER EXTENSION $extension UPDATE TO '$to'");
	$node->safe_psql('fresh', "CREATE EXTENSION $extension VERSION '$to'");
	is($node->safe_psql('updated', "SELECT extversion FROM pg_extension WHERE extname = '$extension'"), $to, "$extension, from $from: version $to");
	is_deeply(membership($node, 'updated', $extension), membership($node, 'fresh', $extension), '... as if made new, by what belongs to it');
	is_deeply(catalogue($node, 'updated'), catalogue($node, 'fresh'), '... by its tables');
	cmp_ok(scalar(@{ written_out('updated') }), '>', 1000, '... by pg_dump, which writes it all out');
	is_deeply(written_out('updated'), written_out('fresh'), '... equally');
	is($node->safe_psql('updated', q{SELECT object, problem FROM outbox.check() WHERE severity = 'error'}), '', '... and check() finds nothing');
	$node->safe_psql('postgres', "DROP DATABASE $_") foreach qw(updated fresh);
	return;
}

foreach my $extension (qw(outbox outbox_payment outbox_m10))
{
	my ($present) = slurp_file("$folder/$extension.control") =~ /^default_version = '(.*)'/m;
	my @released = sort map { m{/$extension--([\d.]+)\.sql$} ? $1 : () } glob "$folder/$extension--*.sql";

	ok((grep { $_ eq $present } @released), "$extension: versions @released, at present $present");
	compare($extension, $_, $present) foreach grep { $_ ne $present } @released;
}
compare('outbox', $old, $new);

# ---------------------------------------------------------------- a database that is older than the library

{
	my @calls = grep { /^[A-Z]/ } split /\n/, slurp_file('test/sql/calls.inc');
	my %said;

	foreach my $version ($old, $new)
	{
		my $db = "at_$version" =~ s/\W/_/gr;

		$node->safe_psql('postgres', "CREATE DATABASE $db");
		$node->safe_psql($db, "CREATE EXTENSION outbox VERSION '$version';\n" . slurp_file('test/sql/setup.inc') =~ s/^\\set.*\n//mgr);
		wait_for_worker($node, database => $db);
		$said{$version} = $node->safe_psql($db, join("\n", @calls));
		serves($node, $db, "version $version");
		is($node->safe_psql($db, q{SELECT object, problem FROM outbox.check() WHERE severity = 'error'}), '', '... check() finds nothing');
	}
	isnt($said{$old}, '', 'a column newer than the database: each function was called');
	is($said{$old}, $said{$new}, '... and answers as in a database that has it');
	is($node->safe_psql('at_0_2_0', q{SELECT count(*) FROM pg_attribute WHERE attname = 'note'}), '0', '... which it has not');
	# A database of the new version must have it.
	$node->safe_psql('at_0_2_0next', 'ALTER TABLE outbox.pending DROP COLUMN note');
	is(sqlstate($node, q{SELECT outbox.enqueue('e', '1')}, database => 'at_0_2_0next'), '42703', 'missing in a database of the new version: 42703');
	is($node->safe_psql('at_0_2_0next', q{SELECT object || ' ' || problem FROM outbox.check() WHERE severity = 'error'}), 'outbox.pending has no column note', '... check()');
	$node->safe_psql('postgres', "DROP DATABASE $_") foreach qw(at_0_2_0 at_0_2_0next);
}

# ---------------------------------------------------------------- under load

$node->safe_psql('postgres', 'CREATE DATABASE busy');
$node->safe_psql('busy', qq{
	CREATE EXTENSION outbox VERSION '$old';
	SELECT outbox.maintain();
	SELECT outbox.create_queue('load', ordering => 'numbered', lease => '1 second', repair_delay => '0');
	SELECT outbox.create_queue('held');
	SELECT outbox.enqueue('held', '1', 'held') FROM generate_series(1, 2);
	CREATE TABLE held AS SELECT outbox_id, lease_token FROM outbox.claim('holder', 1, '1 day', ARRAY['held']);
	CREATE VIEW mine AS SELECT outbox_id, event_type, next_attempt_at FROM outbox.messages JOIN outbox.pending USING (outbox_id)});
make_load($node, 'busy', 'load');
my $pid = wait_for_worker($node, database => 'busy');
my $from = log_size($node);
my $load_script = $node->basedir . '/load.sql';

append_to_file($load_script, q{
\set key random(1, 5)
\set n random(1, 4)
\set outcome random(0, 1000)
SELECT produce('key ' || :key), produce('key ' || :key);
SELECT work('w' || :client_id, :n, :outcome);
SELECT outbox.claim('leaves it', 1, '100 ms', ARRAY['load']);
SELECT count(*) FROM outbox.repair_expired_leases(10);
});
my ($out, $err) = ('', '');
my $load = IPC::Run::start(
	[ 'pgbench', '-n', '-c', '4', '-j', '1', '-T', '600', '--random-seed', $seed, '-f', $load_script, $node->connstr('busy') ],
	'<', \undef, '>', \$out, '2>', \$err);

# Until so many more have been produced.
sub load_goes_on
{
	my $wanted = 100 + $node->safe_psql('busy', 'SELECT count(*) FROM business');

	return $node->poll_query_until('busy', "SELECT count(*) >= $wanted FROM business") || die "no load: $err";
}

load_goes_on();
my $holder = session($node, database => 'busy');
my $updater = session($node, database => 'busy');

$holder->query_safe(q{BEGIN; SELECT outbox.claim('open', 1, '1 day', ARRAY['held'])});
start_query($updater, "ALTER EXTENSION outbox UPDATE TO '$new'");
$node->poll_query_until('busy', "SELECT count(*) > 0 FROM pg_locks WHERE pid = $updater->{outbox_pid} AND NOT granted") or die 'the update waits for nobody';
load_goes_on();
pass('an update that waits for an open claim lets the others work');
is($node->safe_psql('busy', q{SELECT extversion FROM pg_extension WHERE extname = 'outbox'}), $old, '... and has not happened yet');
$holder->query_safe('COMMIT');
is_deeply([ result_of($updater) ], [ '', '' ], 'it is made as soon as that ends');
is($node->safe_psql('busy', q{SELECT extversion FROM pg_extension WHERE extname = 'outbox'}), $new, '... under load');
load_goes_on();
$load->signal('INT');
$load->finish;
is(join("\n", $err =~ /^.*(?:ERROR|FATAL):.*$/mg), '', 'nobody noticed');
$_->quit foreach $holder, $updater;

is(worker_says($node, 'pid', 'busy'), $pid, 'the worker is the same');
serves($node, 'busy', 'the worker serves the new version');
load_is_told($node, 'each business row has its message, each message its row', 'busy');
is($node->safe_psql('busy', q{SELECT count(*) FROM held, outbox.complete(outbox_id, lease_token, 'holder', 'DISPATCHED')}), '1', 'a lease of before is completed');
is($node->safe_psql('busy', q{SELECT count(*) FROM outbox.pending p, outbox.complete(p.outbox_id, lease_token, 'open', 'DISPATCHED') WHERE claimed_by = 'open'}), '1',
	'... and one that the update waited for');
is($node->safe_psql('busy', q{SELECT count(*) > 0 FROM mine}), 't', 'a view of a user is there');
ok($node->poll_query_until('busy', q{
		SELECT coalesce(sum(work('next', 1000, n)), 0) < 0 FROM generate_series(1, 4) n;
		SELECT count(*) = 0 FROM outbox.pending WHERE queue = 'load'}, "f\nt"), 'everything goes on, to its end');
consistent($node, 'consistent', 'busy');
undamaged($node, 'nothing damaged', 'busy');
logged($node, $from, 'an update');

$node->stop('fast');
done_testing();
