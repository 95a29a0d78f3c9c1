# The kind of the tables that the extension makes: an access method that the functions can write
# by hand, in the tablespace of the parent.
#
# Proves: CREATE EXTENSION, also of the contracts, the sagas and the inbox, a new consumer of the inbox,
# maintain() and the maintenance process make ordinary heap tables in the database's own tablespace, whatever default_table_access_method and default_tablespace
# are for the caller or the database, also where that names the database's own tablespace; and in the
# parent's, once it was given one.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', preload => 1, extension => 0, conf => "allow_in_place_tablespaces = on\noutbox.poll_interval = '100ms'");

$node->safe_psql('postgres', "CREATE TABLESPACE $_ LOCATION ''") foreach qw(here there);
$node->safe_psql('template1', 'CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler');

# How many tables and sequences of ours, and indexes, fulfil a condition.
sub tables
{
	my ($database, $condition, $what) = @_;

	$what //= 'count(*)';
	return $node->safe_psql($database, qq{
		SELECT $what FROM pg_class c LEFT JOIN pg_am a ON a.oid = c.relam LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace
		WHERE relnamespace::regnamespace::text IN ('outbox', 'm10_recovery', 'saga', 'inbox') AND relkind IN ('r', 'p', 'i', 'S') AND ($condition)});
}

sub are_usual
{
	my ($database, $name) = @_;

	cmp_ok(tables($database, q{relkind = 'r' AND amname = 'heap' AND spcname IS NULL}), '>', 10, "$name: heap tables where the database is");
	return is(tables($database, q{relkind = 'r' AND amname <> 'heap' OR spcname IS NOT NULL}, q{coalesce(string_agg(relname, ' '), 'none')}), 'none', '... and no other');
}

# ---------------------------------------------------------------- CREATE EXTENSION, and maintain()

foreach my $tablespace ('here', 'there', 'pg_default')
{
	my $settings = "SET default_table_access_method = other; SET default_tablespace = $tablespace;";

	$node->safe_psql('postgres', 'CREATE DATABASE d TABLESPACE here');
	$node->safe_psql('d', "$settings CREATE EXTENSION outbox; CREATE EXTENSION outbox_payment; CREATE EXTENSION outbox_m10;
		CREATE EXTENSION outbox_saga; CREATE EXTENSION outbox_inbox");
	is($node->safe_psql('d', "$settings SELECT inbox.receive('c', gen_random_uuid(), 's', 't')"), 't', "default_tablespace = $tablespace, a new consumer");
	are_usual('d', "default_tablespace = $tablespace, CREATE EXTENSION");
	cmp_ok($node->safe_psql('d', "$settings SET outbox.partition_interval = '365 days'; SELECT count(*) FROM outbox.maintain() WHERE action = 'partition made'"),
		'>', 0, '... maintain() makes partitions');
	are_usual('d', '... of maintain()');
	is($node->safe_psql('d', q{SELECT count(*) FROM outbox.check() WHERE severity = 'error'}), '0', '... check() finds nothing');
	$node->safe_psql('postgres', 'DROP DATABASE d');
}

# ---------------------------------------------------------------- the maintenance process

foreach my $whom ('DATABASE d', 'ROLE ALL')
{
	my $name = "settings of $whom";

	$node->safe_psql('postgres', 'CREATE DATABASE d TABLESPACE here');
	$node->safe_psql('postgres', "ALTER $whom SET default_table_access_method = other; ALTER $whom SET default_tablespace = there");
	$node->safe_psql('d', 'SET xmloption = content; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; CREATE EXTENSION outbox');
	wait_for_worker($node, database => 'd');
	is(tables('d', q{relname ~ '_p[0-9]{8}$'}), '0', "$name: no partition yet");
	$node->safe_psql('d', q{SELECT outbox.enqueue('e', '1')});
	ok($node->poll_query_until('d', q{SELECT count(*) >= 4 FROM pg_class WHERE relkind = 'r' AND relname ~ '_p[0-9]{8}$'}), '... the worker has them made');
	are_usual('d', '... of maintenance');
	$node->safe_psql('postgres', "ALTER $whom RESET default_table_access_method; ALTER $whom RESET default_tablespace");
	$node->safe_psql('postgres', 'DROP DATABASE d') if $whom eq 'DATABASE d';
}

# ---------------------------------------------------------------- the parent's

$node->safe_psql('postgres', 'GRANT CREATE ON TABLESPACE there TO outbox_owner');
$node->safe_psql('d', 'ALTER TABLE outbox.messages SET TABLESPACE there');
my $before = tables('d', q{relkind = 'r' AND relname ~ '^messages_p'});
$node->safe_psql('d', q{SET default_tablespace = here; SET outbox.partition_interval = '365 days'; SELECT outbox.maintain()});
is(tables('d', q{relkind = 'r' AND relname ~ '^messages_p' AND spcname = 'there'}), tables('d', q{relkind = 'r' AND relname ~ '^messages_p'}) - $before,
	'the parent is in another tablespace: so are its new partitions');
cmp_ok(tables('d', q{relkind = 'r' AND relname ~ '^messages_p' AND spcname = 'there'}), '>', 0, '... which there are');
is(tables('d', q{relkind = 'r' AND relname ~ '^attempts_p' AND spcname IS NOT NULL}), '0', '... and not those of the other table');
$node->stop('fast');

done_testing();
