# outbox_payment, outbox_m10 and plain use of the core in one database.
#
# Proves: each sees and touches its own queue only; each can be dropped, and the other
# two go on as if it had never been there; pg_dump, plain and custom, into the same
# cluster and into one without the roles, gives an equal database: every table of the
# core, the map of ids and where its ids go on, views, grants, owners, comments and
# triggers of both, and with open claims that are completed there; and a database from
# which both were dropped can still be dumped and restored when their roles are gone.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $main = new_node('main', extension => 0);
my $fresh = new_node('fresh', extension => 0);
my $dumps = PostgreSQL::Test::Utils::tempdir();
my $payment = q{'{"amount": 12.5, "currency": "EUR", "destination": "DE02"}'};

# ---------------------------------------------------------------- one database

$main->safe_psql('postgres', 'CREATE DATABASE source');
$main->safe_psql('source', q{
	CREATE EXTENSION outbox;
	CREATE EXTENSION outbox_payment;
	CREATE EXTENSION outbox_m10;
});
is($main->safe_psql('source', q{SELECT string_agg(queue, ' ' ORDER BY queue) FROM outbox.queues}), 'default m10 payment', 'a queue each');

# Five messages each, of which all are claimed by who may: by their own.
sub publish
{
	my ($db, $round) = @_;

	$main->safe_psql($db, qq{
		SELECT outbox.enqueue('plain', to_jsonb(n), partition_key => 'p', idempotency_key => 'plain $round ' || n) FROM generate_series(1, 5) n;
		SELECT enqueue_payment_outbox('i $round ' || n, 'p', 'k', 'rail', $payment) FROM generate_series(1, 5) n;
		SELECT m10_recovery.publish_outbox('a', n::text, 'event', '1') FROM generate_series(1, 4) n;
		SELECT outbox.enqueue('event', '1', 'm10');
	});
	return;
}

sub queues
{
	my ($db, $claim) = @_;

	return $main->safe_psql($db, "WITH c AS MATERIALIZED ($claim) SELECT string_agg(DISTINCT p.queue, ' '), count(*) FROM c JOIN outbox.messages p USING (outbox_id)");
}
my %claims = (
	default => q{SELECT outbox_id FROM outbox.claim('plain', 3)},
	payment => q{SELECT outbox_id FROM claim_outbox_batch(3, 'payer', 3600)});

publish('source', 1);
is(queues('source', $claims{$_}), "$_|3", "$_: claims its own") foreach sort keys %claims;
# In statements of their own: ids are given by the claim.
$main->safe_psql('source', q{SELECT m10_recovery.claim_outbox_events('processor', 5)});
is($main->safe_psql('source', q{SELECT queue, count(*) FROM outbox.pending WHERE claimed_by = 'processor' GROUP BY queue}), 'm10|5', 'm10: claims its own');
is($main->safe_psql('source', q{SELECT count(*), count(*) FILTER (WHERE queue = 'm10') FROM m10_recovery.event_ids JOIN outbox.messages USING (outbox_id)}), '5|5',
	'ids for its own, and for all of them');
is($main->safe_psql('source', 'SELECT count(*) FROM m10_recovery.outbox'), '5', 'the view of events has events');
is($main->safe_psql('source', 'SELECT count(*), max(sequence_id) FROM payment_outbox_pending'), '5|5', 'the view of payments has payments');
is($main->safe_psql('source', q{SELECT count(*) FROM outbox.messages WHERE sequence_id IS NOT NULL AND queue <> 'payment'}), '0', 'only payments are numbered');

# Each mends what it lost, and nothing else.
my $lost = q{SELECT string_agg(DISTINCT queue, ' ' ORDER BY queue) FROM outbox.pending WHERE lease_expires_at < clock_timestamp()};
$main->safe_psql('source', q{UPDATE outbox.pending SET lease_expires_at = claimed_at});
is($main->safe_psql('source', $lost), 'default m10 payment', 'all have lost their leases');
is($main->safe_psql('source', q{SELECT count(*) FROM repair_expired_leases(10, 'repairer')}), '3', 'payment repairs its own');
is($main->safe_psql('source', $lost), 'default m10', 'and no others');
is($main->safe_psql('source', q{SELECT count(*) FROM m10_recovery.claim_outbox_events('another')}), '5', 'm10 takes over its own');
is($main->safe_psql('source', $lost), 'default', 'and no others');
is($main->safe_psql('source', q{SELECT count(*) FROM outbox.claim('plain', 10)}), '5', 'and so does the core');
is($main->safe_psql('source', q{SELECT queue, count(*) FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE state = 'ZOMBIE_REQUEUE' GROUP BY 1 ORDER BY 1}),
	"default|3\nm10|5\npayment|3", 'each lost lease once');
# A delay here is none there.
is($main->safe_psql('source', q{
		SELECT m10_recovery.complete_outbox_event(1, 'another', false);
		SELECT string_agg(queue, ' ' ORDER BY queue) FROM outbox.queues WHERE lease = '5 minutes' OR repair_delay = '0' OR max_attempts IS NULL}), "\nm10",
	'policies are each its own');
consistent($main, 'consistent', 'source');

# ---------------------------------------------------------------- at work

# History of each kind, gaps in the ids, and claims that are open: one each.
publish('source', 2);
$main->safe_psql('source', q{
	UPDATE outbox.pending SET next_attempt_at = created_at, lease_expires_at = claimed_at WHERE queue = 'm10';
	BEGIN;
	SELECT m10_recovery.publish_outbox('a', 'a', 'gap', '1');
	ROLLBACK;
	SELECT m10_recovery.complete_outbox_event(id, 'p', id % 2 = 0, 'error of ' || id) FROM m10_recovery.claim_outbox_events('p', 6);
	SELECT bump_participant_outbox_seq('p');
	SELECT c.outbox_id, complete_outbox_attempt(c.outbox_id, c.lease_token, 'payer', 'DISPATCHED', 'reference') FROM claim_outbox_batch(2, 'payer', 60) c;
	SELECT c.outbox_id, complete_outbox_attempt(c.outbox_id, c.lease_token, 'payer', 'RETRYABLE', p_error_code => 'E') FROM claim_outbox_batch(1, 'payer', 60) c;
	-- An event that has no id yet.
	SELECT outbox.enqueue('event', '1', 'm10');
	UPDATE outbox.pending SET lease_expires_at = clock_timestamp() + interval '1 day' WHERE queue = 'default' AND claimed_by IS NOT NULL;
	SELECT claim_outbox_batch(1, 'holder', 86400);
	SELECT m10_recovery.claim_outbox_events('holder', 1);
	UPDATE outbox.pending SET lease_expires_at = clock_timestamp() + interval '1 day' WHERE claimed_by = 'holder';
});

# What a contract consists of, as the catalogue describes it, and what is in its relations, by
# checksum.
my %rows = (
	outbox_m10 => q{
		SELECT 'ids', md5(string_agg(i::text, ' ' ORDER BY id)), count(*)::text, max(id)::text FROM m10_recovery.event_ids i
		UNION ALL SELECT 'next id', last_value::text, is_called::text, '' FROM m10_recovery.event_ids_id_seq
		UNION ALL SELECT 'events', md5(string_agg(o::text, ' ' ORDER BY o::text)), count(*)::text, count(id)::text FROM m10_recovery.outbox o},
	outbox_payment => q{
		SELECT 'payments', md5(string_agg(p::text, ' ' ORDER BY p::text)), count(*)::text, '' FROM payment_outbox_pending p
		UNION ALL SELECT 'attempts', md5(string_agg(p::text, ' ' ORDER BY p::text)), count(*)::text, '' FROM payment_outbox_attempts p
		UNION ALL SELECT 'sequences', md5(string_agg(p::text, ' ' ORDER BY p::text)), count(*)::text, '' FROM participant_outbox_sequences p
		UNION ALL SELECT 'status', pending_depth::text, leased_count::text, dispatched_count::text FROM supervisor_outbox_status});

sub contract
{
	my ($node, $db, $extension) = @_;

	return [ @{ membership($node, $db, $extension) }, split /\n/, $node->safe_psql($db, qq{
		SELECT 'member of', g.roleid::regrole::text, g.member::regrole::text, g.admin_option::text FROM pg_auth_members g
		WHERE g.member::regrole::text ~ CASE '$extension' WHEN 'outbox_m10' THEN '^m10_' ELSE '^symphony_' END
		UNION ALL
		$rows{$extension}
		ORDER BY 1, 2, 3, 4}) ];
}

my $sums = checksums($main, 'source');
my $catalogue = catalogue($main, 'source');
my $catalogue_without_payment = [ grep { !/pending_payment_participant/ } @$catalogue ];
my %contracts = map { $_ => contract($main, 'source', $_) } sort keys %rows;
my $held = $main->safe_psql('source', q{SELECT outbox_id, lease_token FROM outbox.pending WHERE queue = 'payment' AND claimed_by = 'holder'});
my $event = $main->safe_psql('source', q{SELECT id FROM m10_recovery.outbox WHERE claimed_by = 'holder'});
my $next = 1 + $main->safe_psql('source', 'SELECT last_value FROM m10_recovery.event_ids_id_seq');

like($held, qr/^[0-9a-f-]{36}\|[0-9a-f-]{36}$/, 'a payment is held');
like($event, qr/^\d+$/, 'an event is held');
is($main->safe_psql('source', 'SELECT count(*) - count(id) FROM m10_recovery.outbox'), '2', 'events without an id');
cmp_ok(scalar(@{ $contracts{$_} }), '>', 40, "$_ is described") foreach sort keys %contracts;
cmp_ok($next - 1, '>', $main->safe_psql('source', 'SELECT count(*) FROM m10_recovery.event_ids'), 'ids have gaps');

# ---------------------------------------------------------------- parts that go on working

sub core_works
{
	my ($node, $db, $name) = @_;

	is($node->safe_psql($db, q{SELECT created FROM outbox.enqueue('plain', '1', idempotency_key => 'plain 1 1')}), 'f', "$name: the core knows its keys");
	is($node->safe_psql($db, q{
			WITH c AS MATERIALIZED (SELECT * FROM outbox.claim('works', 1))
			SELECT x.recorded FROM c, outbox.complete(c.outbox_id, c.lease_token, 'works', 'DISPATCHED') x}), 'DISPATCHED', "$name: the core delivers");
	return;
}

sub payment_works
{
	my ($node, $db, $name) = @_;
	my ($id, $token) = split /\|/, $held;

	is($node->safe_psql($db, "SELECT sequence_id FROM enqueue_payment_outbox('i 1 1', 'p', 'k', 'rail', $payment)"), '1', "$name: a payment is known");
	is($node->safe_psql($db, "SELECT sequence_id FROM enqueue_payment_outbox('i 3 1', 'p', 'k', 'rail', $payment)"), '12', "$name: numbers go on");
	is(sqlstate($node, qq{SELECT enqueue_payment_outbox('i 3 2', 'p', 'k', 'rail', '{"amount": 0}')}, database => $db), '22023', "$name: payments are validated");
	is(sqlstate($node, "SELECT complete_outbox_attempt('$id', gen_random_uuid(), 'holder', 'DISPATCHED')", database => $db), 'P7002', "$name: another token does not");
	is(sqlstate($node, "SELECT complete_outbox_attempt('$id', '$token', 'holder', 'DISPATCHED')", database => $db), '00000', "$name: the payment that was held is completed");
	return;
}

sub m10_works
{
	my ($node, $db, $name) = @_;

	is(sqlstate($node, "SELECT m10_recovery.complete_outbox_event($event, 'another', true)", database => $db), 'P7002', "$name: another does not");
	is(sqlstate($node, "SELECT m10_recovery.complete_outbox_event($event, 'holder', true)", database => $db), '00000', "$name: the event that was held is completed");
	is($node->safe_psql($db, qq{SELECT processed_at IS NOT NULL FROM m10_recovery.outbox WHERE id = $event}), 't', "$name: ... and seen so");
	is($node->safe_psql($db, q{SELECT m10_recovery.publish_outbox('a', 'a', 'event', '1')}), $next, "$name: ids go on");
	is($node->safe_psql($db, q{SELECT count(DISTINCT c.id) = count(*) AND count(c.id) = count(*) AND bool_or(c.id > } . $next . q{) FROM m10_recovery.claim_outbox_events('works', 100) c}), 't',
		"$name: the rest is claimed, and what has no id gets one");
	foreach my $statement ('UPDATE m10_recovery.event_ids SET outbox_id = outbox_id', 'DELETE FROM m10_recovery.event_ids', 'TRUNCATE m10_recovery.event_ids')
	{
		is(sqlstate($node, "SET session_replication_role = replica; $statement", database => $db), 'P0001', "$name: $statement is refused");
	}
	return;
}

# ---------------------------------------------------------------- without one of them

# Nobody is connected to source: it can be a template.
foreach my $case ([ 'outbox_payment', 'm10' ], [ 'outbox_m10', 'payment' ], [ 'outbox_payment, outbox_m10', '' ])
{
	my ($dropped, $left) = @$case;
	my $name = "without $dropped";
	my $db = 'without_' . ($left || 'both');

	$main->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE source");
	$main->safe_psql($db, "DROP EXTENSION $dropped");
	is_deeply(checksums($main, $db), $sums, "$name: no row of the core has changed");
	is_deeply(catalogue($main, $db), $left eq 'payment' ? $catalogue : $catalogue_without_payment, "$name: the core has lost what was $dropped\'s, and nothing else");
	is_deeply(contract($main, $db, "outbox_$left"), $contracts{"outbox_$left"}, "$name: outbox_$left is as it was") if $left;
	core_works($main, $db, $name);
	m10_works($main, $db, $name) if $left eq 'm10';
	payment_works($main, $db, $name) if $left eq 'payment';
	# A validator that is gone with its extension is what check() must tell; nothing else.
	is($main->safe_psql($db, q{SELECT string_agg(object, ' ') FROM outbox.check() WHERE severity = 'error' AND object <> 'queue payment'}), '', "$name: nothing else to complain of");
	is($main->safe_psql($db, q{SELECT string_agg(objid::text, ' ') FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
		WHERE e.extname NOT IN ('plpgsql', 'outbox', 'outbox_payment', 'outbox_m10')}), '', "$name: nothing left behind");
	next unless $left eq '';

	# Made again, they find their messages.
	$main->safe_psql($db, 'CREATE EXTENSION outbox_m10; CREATE EXTENSION outbox_payment');
	payment_works($main, $db, 'made again');
	is($main->safe_psql($db, q{SELECT count(*) > 0, count(id) FROM m10_recovery.outbox}), 't|0', 'made again: events are there, and wait for ids');
	is($main->safe_psql($db, q{SELECT min(id) FROM m10_recovery.claim_outbox_events('works')}), '1', 'made again: ids begin anew');
	is($main->safe_psql($db, q{SELECT object FROM outbox.check() WHERE severity = 'error'}), '', 'made again: nothing to complain of');
}

# ---------------------------------------------------------------- dump and restore

sub dump_of
{
	my ($node, $db) = @_;

	$node->command_ok([ 'pg_dump', '-f', "$dumps/plain.sql", '-d', $db ], "$db: pg_dump, plain");
	$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dumps/custom.dump", '-d', $db ], "$db: pg_dump, custom");
	return;
}

sub restore
{
	my ($node, $db, $how) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE template0");
	return $node->command_ok(
		$how eq 'plain'
		? [ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $db, '-f', "$dumps/plain.sql" ]
		: [ 'pg_restore', '--exit-on-error', '-j', '2', '-d', $db, "$dumps/custom.dump" ],
		"$db: restored");
}

dump_of($main, 'source');
is($fresh->safe_psql('postgres', q{SELECT count(*) FROM pg_roles WHERE rolname ~ '^(outbox|symphony|m10)_'}), '0', 'the fresh cluster has none of the roles');
foreach my $case ([ $fresh, 'fresh_plain', 'plain' ], [ $fresh, 'fresh_custom', 'custom' ], [ $main, 'main_custom', 'custom' ])
{
	my ($node, $db, $how) = @$case;

	restore($node, $db, $how);
	is_deeply(checksums($node, $db), $sums, "$db: equal rows in the core");
	is_deeply(catalogue($node, $db), $catalogue, "$db: equal catalogue of the core");
	is_deeply(contract($node, $db, $_), $contracts{$_}, "$db: equal $_, with what its relations hold") foreach sort keys %contracts;
	is($node->safe_psql($db, q{SELECT object, problem FROM outbox.check() WHERE severity = 'error'}), '', "$db: nothing to complain of");
}
# A second generation, before anything has happened in the first.
dump_of($fresh, 'fresh_custom');
restore($fresh, 'second', 'plain');
is_deeply(contract($fresh, 'second', $_), $contracts{$_}, "second: equal $_, with what its relations hold") foreach sort keys %contracts;
foreach my $case ([ $fresh, 'fresh_plain' ], [ $fresh, 'second' ], [ $main, 'main_custom' ], [ $main, 'source' ])
{
	my ($node, $db) = @$case;

	core_works($node, $db, $db);
	payment_works($node, $db, $db);
	m10_works($node, $db, $db);
}

# ---------------------------------------------------------------- gone, with their roles

$fresh->safe_psql('postgres', "DROP DATABASE $_") foreach 'fresh_plain', 'second';
$fresh->safe_psql('fresh_custom', q{
	DROP EXTENSION outbox_payment, outbox_m10;
	SELECT outbox.alter_queue('payment', validator => '');
	DROP ROLE m10_recovery_owner, symphony_control, symphony_ingest, symphony_executor, symphony_readonly, symphony_auditor;
});
$sums = checksums($fresh, 'fresh_custom');
dump_of($fresh, 'fresh_custom');
restore($fresh, 'gone', 'plain');
is_deeply(checksums($fresh, 'gone'), $sums, 'gone: equal rows in the core');
is_deeply(catalogue($fresh, 'gone'), $catalogue_without_payment, 'gone: equal catalogue of the core');
is($fresh->safe_psql('gone', q{SELECT string_agg(extname, ' ') FROM pg_extension WHERE extname LIKE 'outbox_%'}), '', 'gone: without the contracts');
core_works($fresh, 'gone', 'gone');

$main->stop('fast');
$fresh->stop('fast');
done_testing();
