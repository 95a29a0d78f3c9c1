# Restores over an outbox at work, in a database with thousands of other tables.
#
# Proves: whatever reads the dump (pg_restore --clean, in parallel, in one transaction, in
# sections, psql), no partition of the extension's or of the background worker's is in its way:
# neither CREATE EXTENSION nor the worker makes any while the other tables are made, though
# messages were enqueued into the outbox that was there before. Afterwards the outbox works. (B1) The dump needs no
# superuser, but a member of pg_read_all_data.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $tables = 2000;
my $dumps = PostgreSQL::Test::Utils::tempdir();
my $node = new_node('main', preload => 1, extension => 0,
	conf => "fsync = off\nautovacuum = off\noutbox.poll_interval = '100ms'\nmax_locks_per_transaction = 1000");

# Other tables come first in a dump; the outbox's own ones are not yet there for long.
$node->safe_psql('postgres', 'CREATE DATABASE used TEMPLATE template0');
$node->safe_psql('used', qq{
	CREATE SCHEMA app;
	DO \$\$ BEGIN FOR i IN 1 .. $tables LOOP EXECUTE format('CREATE TABLE app.t%s (a int)', i); END LOOP; END \$\$});
# Longer periods than the worker would make now: what it made would overlap what is in the dump.
$node->safe_psql('used', q{SET outbox.partition_interval = '1 hour'; CREATE EXTENSION outbox});
wait_for_worker($node, database => 'used');
$node->safe_psql('used', q{SELECT outbox.enqueue('before', to_jsonb(n)) FROM generate_series(1, 20) n});
$node->poll_query_until('used', q{SELECT count(*) > 12 AND (SELECT state = 'idle' FROM outbox.workers WHERE kind = 'maintenance' AND database = 'used')
	FROM pg_inherits WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass, 'outbox.events'::regclass)})
	or die 'the worker makes no partitions';

my $leaves = q{SELECT string_agg(inhrelid::regclass::text, ' ' ORDER BY inhrelid::regclass::text) FROM pg_inherits
	WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass, 'outbox.events'::regclass)};
my $before = $node->safe_psql('used', $leaves);

$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dumps/custom.dump", '-d', 'used' ], 'pg_dump, custom');
# As docs/reference.md says, for those who are no superuser.
$node->safe_psql('postgres', 'CREATE ROLE dumps LOGIN IN ROLE pg_read_all_data');
$node->command_ok([ 'pg_dump', '-U', 'dumps', '-Fc', '-f', "$dumps/by_a_member.dump", '-d', 'used' ], 'pg_dump by a member of pg_read_all_data');
$node->command_ok([ 'pg_dump', '--clean', '--if-exists', '-f', "$dumps/plain.sql", '-d', 'used' ], 'pg_dump --clean, plain');

my @restore = ('pg_restore', '--exit-on-error', '-d', 'used');
my @clean = (@restore, '--clean', '--if-exists');

foreach my $form (
	[ 'pg_restore --clean', [ @clean, "$dumps/custom.dump" ] ],
	[ '... in parallel', [ @clean, '-j', '3', "$dumps/custom.dump" ] ],
	[ '... in one transaction', [ @clean, '-1', "$dumps/custom.dump" ] ],
	[ '... in sections', map { [ $_ eq 'pre-data' ? @clean : @restore, "--section=$_", "$dumps/custom.dump" ] } qw(pre-data data post-data) ],
	[ 'psql', [ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', 'used', '-f', "$dumps/plain.sql" ] ])
{
	my ($name, @commands) = @$form;

	# Somebody has enqueued into what is there.
	wait_for_worker($node, database => 'used');
	$node->safe_psql('used', q{SELECT outbox.enqueue('late', '1')});
	$node->command_ok($_, "$name: @{$_}[0 .. 3]") foreach @commands;
	is($node->safe_psql('used', q{SELECT count(*), count(DISTINCT payload), string_agg(DISTINCT event_type, ' ') FROM outbox.messages JOIN outbox.pending USING (outbox_id)}),
		'20|20|before', "$name: what was dumped is there, and nothing else");
	is($node->safe_psql('used', $leaves), $before, "$name: no partition more");
	is($node->safe_psql('used', q{SELECT * FROM outbox.check() WHERE severity = 'error'}), '', "$name: check() finds nothing");
	wait_for_worker($node, database => 'used');
	serves($node, 'used', $name);
}
$node->stop('fast');
done_testing();
