# A database with all extensions, in the middle of its work, moves to a cluster whose
# background worker runs: by a pipe from pg_dump to psql, by pg_restore in parallel, whole
# and section by section, by pg_upgrade; and its schema alone.
#
# Proves: nothing is lost and no setting, also while the worker looks on; what it repairs,
# it judges by the settings that were moved; afterwards it goes on by itself, with nobody
# connected; open leases are completed under their tokens, in each extension, keys are
# known, numbers go on, and history can be changed on no partition. (B14, B30)
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $dumps = PostgreSQL::Test::Utils::tempdir();
my $payment = q{'{"amount": 12.5, "currency": "EUR", "destination": "DE02"}'};
my $worker_conf = "outbox.poll_interval = '100ms'\nlog_min_messages = warning";
my $errors = qr/^(?:ERROR|PANIC|FATAL(?!.*(?:administrator command|connection to client lost))):|terminated by signal/;
my $main = new_node('main', extension => 0);
my $fresh = new_node('fresh', preload => 1, extension => 0, conf => $worker_conf);

# ---------------------------------------------------------------- the database

# Dated leaves from the beginning, and a message of another age in the DEFAULT ones.
$main->safe_psql('postgres', 'CREATE DATABASE source');
$main->safe_psql('source', q{
	CREATE EXTENSION outbox;
	CREATE EXTENSION outbox_payment;
	CREATE EXTENSION outbox_m10;
	SELECT outbox.alter_queue('default', max_attempts => NULL, repair_delay => '1 year');
	SELECT outbox.alter_queue('payment', max_attempts => 1, repair_delay => '1 year', backoff_base => '7 s');
	SELECT outbox.alter_queue('m10', max_attempts => 5, repair_delay => '1 year');
	SELECT outbox.create_queue('numbered', ordering => 'numbered', max_attempts => 1);
	SET outbox.partition_interval = '1 hour';
	SELECT outbox.maintain();
	INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, priority, payload, headers, created_at)
	VALUES ('017f22e2-79b0-7cc3-98c4-dc0c0c07398f', 'default', gen_random_uuid(), 'of another age', 0, '1', '{}', '2022-02-22');
	INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at)
	VALUES ('017f22e2-79b0-7cc3-98c4-dc0c0c07398f', 1, 'DISPATCHED', '2022-02-23');
});
# More tries than the ceiling that the install script sets.
$main->safe_psql('source', q{
	SELECT outbox.enqueue('often tried', '1', priority => 15);
	DO $$
	BEGIN
		FOR n IN 1 .. 25 LOOP
			PERFORM outbox.complete(c.outbox_id, c.lease_token, 'w', 'RETRYABLE', retry_delay => '0') FROM outbox.claim('w', 1) c;
		END LOOP;
	END
	$$});
# Of each queue: one message that was delivered, one whose lease will have run out, one whose
# lease is open, and some that wait.
$main->safe_psql('source', qq{
	SELECT outbox.enqueue('plain', to_jsonb(n), idempotency_key => 'k' || n) FROM generate_series(1, 10) n;
	SELECT outbox.enqueue('numbered', to_jsonb(n), 'numbered', partition_key => 'p') FROM generate_series(1, 10) n;
	SELECT enqueue_payment_outbox('i ' || n, 'p', 'k', 'rail', $payment) FROM generate_series(1, 10) n;
	SELECT m10_recovery.publish_outbox('a', n::text, 'event', '1') FROM generate_series(1, 10) n});
my @queues = qw(default m10 numbered payment);

foreach my $worker (qw(gone sent holds))
{
	# The ids of m10 are given by its own claims.
	$main->safe_psql('source', qq{
		SELECT outbox.claim('$worker', 1, '1 day', ARRAY[q]) FROM unnest(ARRAY['default', 'numbered', 'payment']) q;
		SELECT m10_recovery.claim_outbox_events('$worker', 1)});
}
$main->safe_psql('source', q{
	SELECT outbox.complete(outbox_id, lease_token, 'sent', 'DISPATCHED') FROM outbox.pending WHERE claimed_by = 'sent';
	UPDATE outbox.pending SET lease_expires_at = claimed_at + CASE claimed_by WHEN 'gone' THEN interval '1 ms' ELSE interval '1 day' END
	WHERE claimed_by IS NOT NULL});
consistent($main, 'source: consistent', 'source');

my $gone = $main->safe_psql('source', q{SELECT quote_literal(array_agg(outbox_id)) FROM outbox.pending WHERE claimed_by = 'gone'});
my %held = map { my ($queue, @rest) = split /\|/; $queue => \@rest } split /\n/,
	$main->safe_psql('source', q{SELECT queue, outbox_id, lease_token FROM outbox.pending WHERE claimed_by = 'holds'});
my $event = $main->safe_psql('source', q{SELECT id FROM m10_recovery.outbox WHERE claimed_by = 'holds'});
my @leaves = split /\n/, $main->safe_psql('source', q{
	SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass) ORDER BY 1::text});

is(join(' ', sort keys %held), "@queues", 'source: an open lease of each queue');
is($main->safe_psql('source', "SELECT count(*), max(attempt_count) FROM outbox.pending WHERE outbox_id = ANY ($gone)"), '4|25', '... and one that has run out');
cmp_ok(scalar(@leaves), '>=', 6, "... dated leaves: @leaves");

# What no worker changes.
sub rows
{
	my ($node, $db) = @_;

	return $node->safe_psql($db, join ' UNION ALL ', map {
		my ($name, $from) = @$_;
		"SELECT '$name', count(*), md5(string_agg(t::text, ' ' ORDER BY t::text COLLATE \"C\")) FROM $from"
	} [ queues => 'outbox.queues t' ], [ messages => 'outbox.messages t' ], [ pending => "outbox.pending t WHERE outbox_id <> ALL ($gone)" ],
		[ attempts => q{outbox.attempts t WHERE recorded_by IS DISTINCT FROM 'outbox worker'} ], [ keys => 'outbox.idempotency_keys t' ],
		[ numbers => 'outbox.key_numbers t' ], [ events => 'm10_recovery.event_ids t' ]);
}

my $rows = rows($main, 'source');
my $catalogue = catalogue($main, 'source');
my $sums = checksums($main, 'source');
my %members = map { $_ => membership($main, 'source', $_) } qw(outbox outbox_payment outbox_m10);

# ---------------------------------------------------------------- what must be so in the new place

# A row is made for each, in a transaction that is given up.
sub append_only
{
	my ($node, $db) = @_;
	my %refused = map { split /\|/ } split /\n/, $node->safe_psql($db, q{
		CREATE FUNCTION pg_temp.refusal(leaf regclass, statement text) RETURNS text LANGUAGE plpgsql AS $$
		DECLARE
			lower_id text := coalesce(substring((SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = leaf) FROM 'FROM \(''([0-9a-f-]{36})'''),
				'01000000-0000-7000-8000-000000000000');
		BEGIN
			PERFORM set_config('session_replication_role', 'replica', true);
			EXECUTE format(CASE WHEN leaf::text ~ 'attempts' THEN 'INSERT INTO %s (outbox_id, attempt_no, state) VALUES (%L, 99, ''RETRYABLE'')'
				ELSE 'INSERT INTO %s (outbox_id, queue, event_id, event_type, priority, payload, headers, created_at)
					VALUES (%L, ''default'', gen_random_uuid(), ''e'', 0, ''1'', ''{}'', now())' END, leaf, left(lower_id, 24) || 'ffffffffffff');
			EXECUTE format(statement, leaf);
			RETURN 'done';
		EXCEPTION WHEN OTHERS THEN
			RETURN SQLSTATE;
		END
		$$;
		SELECT c.oid::regclass, string_agg(pg_temp.refusal(c.oid, s), ' ')
		FROM pg_class c, unnest(ARRAY['UPDATE %s SET outbox_id = outbox_id', 'DELETE FROM %s', 'TRUNCATE %s']) s
		WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname ~ '^(messages|attempts)'
		GROUP BY 1});

	# With those that were made meanwhile.
	return is_deeply(\%refused, { map { $_ => 'P0001 P0001 P0001' } 'outbox.messages', 'outbox.attempts', @leaves, keys %refused },
		"$db: history is append-only on each leaf");
}

# The lost leases are taken back with nobody here but this question.
sub goes_on
{
	my ($node, $db) = @_;

	ok($node->poll_query_until($db, q{SELECT count(*) = 4 FROM outbox.attempts WHERE recorded_by = 'outbox worker'}), "$db: leases that have run out are taken back");
	is($node->safe_psql($db, q{
			SELECT m.queue, a.attempt_no, a.state, a.worker_id, p.next_attempt_at > now() + interval '300 days'
			FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id) LEFT JOIN outbox.pending p USING (outbox_id)
			WHERE a.recorded_by = 'outbox worker' ORDER BY 1}),
		"default|26|ZOMBIE_REQUEUE|gone|t\nm10|1|ZOMBIE_REQUEUE|gone|t\nnumbered|1|FAILED|gone|\npayment|1|FAILED|gone|", '... by the settings of their queues');
	is(rows($node, $db), $rows, "$db: nothing else has changed");
	return;
}

sub works
{
	my ($node, $db) = @_;

	foreach my $queue (qw(default numbered))
	{
		is($node->safe_psql($db, "SELECT attempt_no FROM outbox.complete('$held{$queue}[0]', '$held{$queue}[1]', 'holds', 'DISPATCHED')"), '1', "$db: a lease of $queue is completed");
	}
	is(sqlstate($node, "SELECT complete_outbox_attempt('$held{payment}[0]', '$held{payment}[1]', 'holds', 'DISPATCHED')", database => $db), '00000', "$db: ... of payment");
	is(sqlstate($node, "SELECT m10_recovery.complete_outbox_event($event, 'holds', true)", database => $db), '00000', "$db: ... of m10");
	is($node->safe_psql($db, q{SELECT created FROM outbox.enqueue('plain', '1', idempotency_key => 'k1')}), 'f', "$db: a key is known");
	is($node->safe_psql($db, q{SELECT sequence_id FROM outbox.enqueue('numbered', '1', 'numbered', partition_key => 'p')}), '11', "$db: numbers go on");
	is($node->safe_psql($db, "SELECT sequence_id FROM enqueue_payment_outbox('i 1', 'p', 'k', 'rail', $payment)"), '1', "$db: a payment is known");
	is($node->safe_psql($db, "SELECT sequence_id FROM enqueue_payment_outbox('new', 'p', 'k', 'rail', $payment)"), '11', "$db: ... and payments' numbers go on");
	is($node->safe_psql($db, q{SELECT m10_recovery.publish_outbox('a', 'a', 'event', '1')}), '11', "$db: events' ids go on");
	serves($node, $db, $db);
	return consistent($node, "$db: consistent", $db);
}

# ---------------------------------------------------------------- dumps, into a cluster at work

$main->command_ok([ 'pg_dump', '-Fc', '-f', "$dumps/custom.dump", '-d', 'source' ], 'pg_dump, custom');
is($fresh->safe_psql('postgres', q{SELECT count(*) FROM pg_roles WHERE rolname ~ '^(outbox|symphony|m10)_'}), '0', 'the fresh cluster has none of the roles');
$fresh->safe_psql('postgres', "CREATE DATABASE $_ TEMPLATE template0") foreach qw(piped parallel sections schema_only);

my @restore = ('pg_restore', '--exit-on-error');
my ($out, $err) = ('', '');
ok(IPC::Run::run([ 'pg_dump', $main->connstr('source') ], '|', [ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', $fresh->connstr('piped') ], '>', \$out, '2>', \$err), 'pg_dump | psql')
	or diag($err);
$fresh->command_ok([ @restore, '-j', '2', '-d', 'parallel', "$dumps/custom.dump" ], 'pg_restore -j 2');
$fresh->command_ok([ @restore, '--schema-only', '-d', 'schema_only', "$dumps/custom.dump" ], 'pg_restore --schema-only');
# In the worst order, with the worker looking on: what is pending before what it is judged by.
$main->command_ok([ 'sh', '-c', "pg_restore --section=data -l $dumps/custom.dump >$dumps/list" ], 'what there is to restore');
my @items = grep { /^\d/ } split /\n/, slurp_file("$dumps/list");
my @pending = grep { /TABLE DATA outbox pending / } @items;
my @queues_last = grep { /TABLE DATA outbox queues / } @items;
my @rest = grep { !/TABLE DATA outbox (?:pending|queues) / } @items;

is(scalar(@pending) . scalar(@queues_last), '11', '... among it the tables in question');
foreach my $part ('--section=pre-data', \@pending, \@rest, \@queues_last, '--section=post-data')
{
	my @what = ($part);

	if (ref $part)
	{
		unlink "$dumps/list";
		append_to_file("$dumps/list", join("\n", @$part) . "\n");
		@what = ('-j', '2', '-L', "$dumps/list");
	}
	$fresh->command_ok([ @restore, @what, '-d', 'sections', "$dumps/custom.dump" ], "pg_restore @what");
	wait_for_worker($fresh, database => 'sections');
	wait_for_rounds($fresh, 'worker', 'sections', 3);
}
foreach my $db (qw(piped parallel sections))
{
	is_deeply(catalogue($fresh, $db), $catalogue, "$db: equal catalogue");
	goes_on($fresh, $db);
	append_only($fresh, $db);
}
works($fresh, 'parallel');

# An empty outbox, with the partitions of the old one and the queues that install scripts make.
is($fresh->safe_psql('schema_only', q{SELECT string_agg(queue, ' ' ORDER BY queue), (SELECT count(*) FROM outbox.messages) FROM outbox.queues}), 'default m10 payment|0',
	'schema_only: empty');
is_deeply(catalogue($fresh, 'schema_only'), $catalogue, 'schema_only: equal catalogue');
append_only($fresh, 'schema_only');
serves($fresh, 'schema_only', 'schema_only');
consistent($fresh, 'schema_only: consistent', 'schema_only');

is(join("\n", log_lines($fresh, 0, $errors)), '', 'no error in the log');
$fresh->stop('fast');

# ---------------------------------------------------------------- pg_upgrade

# From a server that preloads to one that does, whose worker waits until all was compared.
my $new = new_node('upgraded', preload => 1, extension => 0, conf => "$worker_conf\noutbox.worker = off");

$new->stop('fast');
$main->append_conf('postgresql.conf', "shared_preload_libraries = 'outbox'\n$worker_conf\noutbox.worker = off");
$main->stop('fast');
chdir($dumps) or die;
command_ok(
	[ 'pg_upgrade', '--no-sync', '-d', $main->data_dir, '-D', $new->data_dir, '-b', $main->config_data('--bindir'),
		'-B', $new->config_data('--bindir'), '-s', $new->host, '-p', $main->port, '-P', $new->port ],
	'pg_upgrade, with the checks of pg_upgrade --check');
$new->start;
is_deeply(checksums($new, 'source'), $sums, 'upgraded: equal rows in every table and view');
is_deeply(catalogue($new, 'source'), $catalogue, 'upgraded: equal catalogue');
is_deeply(membership($new, 'source', $_), $members{$_}, "upgraded: equal $_") foreach sort keys %members;
undamaged($new, 'upgraded: nothing damaged', 'source');
configure($new, 'outbox.worker' => 'on');
wait_for_worker($new, database => 'source');
goes_on($new, 'source');
append_only($new, 'source');
works($new, 'source');
is(join("\n", log_lines($new, 0, $errors)), '', 'no error in the log');
$new->stop('fast');

done_testing();
