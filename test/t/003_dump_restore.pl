# Dump and restore of a database in the middle of its work.
#
# Proves: pg_dump, plain and custom (restored in parallel), of the whole database, as schema
# and data, or of the extension and its schema alone (-n outbox -e outbox), into another
# database of the cluster and into a cluster that has not even the roles, gives an equal
# database: every table by checksum, every index, trigger, constraint, comment and grant
# of the schema. It then goes on working: duplicates are known, numbers go on, open leases
# are completed under their tokens, history cannot be changed on any partition, dated and
# detached ones included, and maintain() finds its way. (B14, B30)
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $event = '00000000-0000-4000-8000-0000000000e1';
my $main = new_node('main', extension => 0);
my $fresh = new_node('fresh', extension => 0);
my $dumps = PostgreSQL::Test::Utils::tempdir();

# ---------------------------------------------------------------- a database at work

# One round of everything that can happen to messages.
sub fill
{
	my ($db, $round) = @_;

	$main->safe_psql($db, qq{
		-- Due, scheduled, in each queue, with all that a message can carry.
		SELECT outbox.enqueue('due', '{"text": "\\u00e4\\n\\t\\\\ \\"quoted\\"", "n": 1e10}', q, 'order', 'o-1', 'key',
			routing_key => 'r', headers => '{"h": [1, null]}', priority => 5, max_attempts => 3)
		FROM unnest(ARRAY['default', 'extra', 'it''s "q"']) q;
		SELECT outbox.enqueue('scheduled', 'null', deliver_at => clock_timestamp() + interval '1 year');
		SELECT outbox.enqueue('big', (SELECT jsonb_agg(md5(g::text)) FROM generate_series(1, 20000) g));
		-- Keys, of messages that are pending and that have ended.
		SELECT outbox.enqueue('keyed', '1', idempotency_key => 'k$round');
		SELECT outbox.enqueue('keyed', '1', idempotency_key => 'k$round', aggregate_id => 'a');
		SELECT outbox.enqueue('keyed', '1', 'extra', idempotency_key => repeat('k$round', 5000));
		SELECT outbox.enqueue('event', '1', 'extra', event_id => '$event') WHERE $round = 1;
		-- Numbers, also in one transaction.
		SELECT outbox.enqueue('numbered', '1', 'numbered', partition_key => p) FROM unnest(ARRAY['p', 'q', 'p', 'r', repeat('long', 5000)]) p;
		-- History of each kind.
		SELECT outbox.enqueue(e, '1', priority => 15) FROM unnest(ARRAY['sent', 'failed', 'retried', 'cancelled', 'replayed', 'lost']) e;
	});
	$main->safe_psql($db, q{
		WITH held AS MATERIALIZED (SELECT * FROM outbox.claim('w', 6)), ended AS MATERIALIZED (
			SELECT held.event_type, held.outbox_id, c.recorded
			FROM held, outbox.complete(held.outbox_id, held.lease_token, 'w',
				CASE event_type WHEN 'sent' THEN 'DISPATCHED' WHEN 'retried' THEN 'RETRYABLE' ELSE 'FAILED' END,
				reference => 'ref', response_code => '200', error_code => 'E', error_message => E'line\nline', latency_ms => 3,
				retry_delay => CASE event_type WHEN 'retried' THEN interval '1 year' END) c
			WHERE held.event_type IN ('sent', 'failed', 'retried', 'replayed'))
		SELECT outbox.replay(outbox_id, clock_timestamp() + interval '1 year') FROM ended WHERE event_type = 'replayed';
	});
	$main->safe_psql($db, q{
		SELECT outbox.cancel(outbox_id, 'not wanted', force => true)
		FROM outbox.pending JOIN outbox.messages USING (outbox_id) WHERE event_type = 'cancelled';
		-- A lease that has run out, one that was lost and is free again, one that is open,
		-- and one that was born so.
		UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE claimed_by = 'w';
		SELECT outbox.repair_expired_leases();
		SELECT outbox.claim('runs out', 1, queues => ARRAY['numbered']);
		UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE claimed_by = 'runs out';
		SELECT outbox.claim('holds', 2, '1 day');
		UPDATE outbox.pending SET release_count = 7 WHERE outbox_id IN (SELECT outbox_id FROM outbox.messages WHERE event_type = 'scheduled');
		SELECT outbox.enqueue_and_claim('holds', 'born leased', '1', lease => '1 day');
	});
	return;
}

my $count_lost = q{SELECT count(*) FROM outbox.attempts WHERE state = 'FAILED' AND error_code = 'LEASE_EXPIRED'};

# A database in the middle of its work, and what a copy of it will be asked. Its dated
# leaves are made before its first message, so that they hold its history, or after the
# first round, so that DEFAULT leaves do.
sub build
{
	my ($db, $dated_first) = @_;
	my %facts;

	$main->safe_psql('postgres', "CREATE DATABASE $db");
	$main->safe_psql($db, q{
		CREATE EXTENSION outbox;
		SELECT outbox.alter_queue('default', max_attempts => 7, lease => '45 seconds', repair_delay => '1 year', backoff_jitter => 0.5);
		SELECT outbox.create_queue('extra', max_attempts => NULL, repair_delay => '0', backoff_cap => '1 hour', paused => true, max_releases => 3);
		SELECT outbox.create_queue('numbered', ordering => 'numbered', max_attempts => 1);
		SELECT outbox.create_queue('it''s "q"');
		UPDATE outbox.queues SET created_at = created_at - interval '1 year' WHERE queue = 'default';
	});
	$main->safe_psql($db, q{SET outbox.partition_interval = '1 week'; SELECT * FROM outbox.maintain()}) if $dated_first;
	fill($db, 1);
	$main->safe_psql($db, q{SET outbox.partition_interval = '1 hour'; SELECT * FROM outbox.maintain()}) unless $dated_first;
	fill($db, 2);
	$facts{leaves} = [ split /\n/, $main->safe_psql($db, q{
		SELECT inhrelid::regclass FROM pg_inherits
		WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass) AND inhrelid::regclass::text ~ '_p\d{8}'
		ORDER BY 1::text}) ];
	cmp_ok(scalar(@{ $facts{leaves} }), '>=', 4, "$db: dated leaves: " . join(' ', @{ $facts{leaves} }));

	# History in every leaf, also in those whose time is long past or has not come.
	$main->safe_psql($db, q{
		INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, priority, payload, headers, created_at)
		VALUES ('017f22e2-79b0-7cc3-98c4-dc0c0c07398f', 'default', gen_random_uuid(), 'of another age', 0, '1', '{}', '2022-02-22');
		INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at)
		VALUES ('017f22e2-79b0-7cc3-98c4-dc0c0c07398f', 1, 'DISPATCHED', '2022-02-23');
		DO $$
		DECLARE
			leaf record;
			id uuid;
		BEGIN
			FOR leaf IN
				SELECT substring(pg_get_expr(c.relpartbound, c.oid) FROM 'FROM \(''([0-9a-f-]{36})''\)') AS lower
				FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
				WHERE i.inhparent = 'outbox.messages'::regclass AND c.relname ~ '_p\d{8}'
			LOOP
				FOR n IN 1 .. 3 LOOP
					id := left(leaf.lower, 24) || lpad(n::text, 12, '0');
					INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, priority, payload, headers, created_at)
					VALUES (id, 'default', id, 'by hand', 0, '1', '{}', clock_timestamp());
					IF n = 1 THEN
						INSERT INTO outbox.pending (outbox_id, queue, attempt_count) VALUES (id, 'default', 1);
						INSERT INTO outbox.attempts (outbox_id, attempt_no, state) VALUES (id, 1, 'RETRYABLE');
					ELSE
						INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at)
						VALUES (id, 1, CASE n WHEN 2 THEN 'DISPATCHED' ELSE 'FAILED' END, clock_timestamp());
					END IF;
				END LOOP;
			END LOOP;
		END
		$$
	});

	# An archived pair: the last dated leaves, detached with their rows.
	($facts{archive}) = grep { /attempts_p/ } reverse @{ $facts{leaves} };
	my ($messages) = grep { /messages_p/ } reverse @{ $facts{leaves} };
	$main->safe_psql($db, qq{
		BEGIN;
		ALTER TABLE outbox.pending DISABLE TRIGGER pending_changed;
		DELETE FROM outbox.pending WHERE outbox_id IN (SELECT outbox_id FROM $messages);
		ALTER TABLE outbox.pending ENABLE ALWAYS TRIGGER pending_changed;
		ALTER TABLE outbox.messages DETACH PARTITION $messages;
		ALTER TABLE outbox.attempts DETACH PARTITION $facts{archive};
		COMMIT;
	});
	consistent($main, "$db: consistent", $db);

	# Who holds what under which token, which key stands for which message.
	$facts{held} = [ split /\n/, $main->safe_psql($db,
		q{SELECT outbox_id, lease_token, claimed_by FROM outbox.pending WHERE claimed_by = 'holds' ORDER BY 1}) ];
	is(scalar(@{ $facts{held} }), 6, "$db: open leases");
	$facts{expired} = $main->safe_psql($db, q{SELECT count(*) FROM outbox.pending WHERE lease_expires_at < clock_timestamp()});
	cmp_ok($facts{expired}, '>', 0, "$db: leases that have run out");
	$facts{lost} = $main->safe_psql($db, $count_lost) + $facts{expired};
	$facts{first} = { map { split /\|/ } split /\n/, $main->safe_psql($db, q{
		SELECT queue || '/' || coalesce(aggregate_id, '') || '/' || left(idempotency_key, 2), outbox_id
		FROM outbox.messages WHERE idempotency_key IS NOT NULL
		UNION ALL SELECT 'event', outbox_id FROM outbox.messages WHERE event_type = 'event'}) };
	$facts{replayed} = $main->safe_psql($db, q{SELECT outbox_id FROM outbox.replays ORDER BY 1 LIMIT 1});
	$facts{sums} = checksums($main, $db);
	$facts{catalogue} = catalogue($main, $db);
	foreach my $table ('outbox.queues', 'outbox.messages', 'outbox.attempts', 'outbox.pending', 'outbox.idempotency_keys',
		'outbox.key_numbers', 'outbox.replays', 'outbox.dead_letters',
		'outbox.messages_default', 'outbox.attempts_default', @{ $facts{leaves} })
	{
		unlike($facts{sums}->{$table}, qr/^0 /, "$db: $table holds something");
	}
	return \%facts;
}

# ---------------------------------------------------------------- dump, restore, compare

sub dump_of
{
	my ($node, $db, $facts) = @_;

	$node->command_ok([ 'pg_dump', '-f', "$dumps/plain.sql", '-d', $db ], "$db: pg_dump, plain");
	$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dumps/custom.dump", '-d', $db ], "$db: pg_dump, custom");
	$node->command_ok([ 'pg_dump', '-s', '-f', "$dumps/schema.sql", '-d', $db ], "$db: pg_dump, schema only");
	$node->command_ok([ 'pg_dump', '-a', '-f', "$dumps/data.sql", '-d', $db ], "$db: pg_dump, data only");
	$node->command_ok([ 'pg_dump', '-n', 'outbox', '-e', 'outbox', '-f', "$dumps/alone.sql", '-d', $db ], "$db: pg_dump, the extension and its schema alone");
	is_deeply(checksums($node, $db), $facts->{sums}, "$db: dumping changed nothing");
	return;
}

sub restore
{
	my ($node, $db, $how, $facts) = @_;
	my @psql = ('psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $db, '-f');

	$node->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE template0");
	if ($how eq 'plain')
	{
		$node->command_ok([ @psql, "$dumps/plain.sql" ], "$db: psql");
	}
	elsif ($how eq 'alone')
	{
		$node->command_ok([ @psql, "$dumps/alone.sql" ], "$db: psql, the extension and its schema alone");
	}
	elsif ($how eq 'custom')
	{
		$node->command_ok([ 'pg_restore', '--exit-on-error', '-j', '2', '-d', $db, "$dumps/custom.dump" ], "$db: pg_restore -j 2");
	}
	else
	{
		$node->command_ok([ @psql, "$dumps/schema.sql" ], "$db: schema");
		$node->command_ok([ @psql, "$dumps/data.sql" ], "$db: data");
	}
	is_deeply(checksums($node, $db), $facts->{sums}, "$db: equal rows in every table and view");
	is_deeply(catalogue($node, $db), $facts->{catalogue}, "$db: equal catalogue");
	consistent($node, "$db: consistent", $db);
	return;
}

# ---------------------------------------------------------------- it goes on working

sub works
{
	my ($node, $db, $facts) = @_;
	my @held = @{ $facts->{held} };
	my $ask = sub { return $node->safe_psql($db, $_[0]); };

	# Policies.
	is($ask->("SELECT max_attempts, lease, backoff_jitter FROM outbox.queues WHERE queue = 'default'"), '7|00:00:45|0.5',
		"$db: settings of queue default");
	is($ask->("SELECT count(*) FROM outbox.claim('x', queues => ARRAY['extra'])"), '0', "$db: a paused queue is paused");

	# Keys.
	foreach my $case (
		[ 'default//k1', "idempotency_key => 'k1'" ],
		[ 'default/a/k2', "idempotency_key => 'k2', aggregate_id => 'a'" ],
		[ 'extra//k1', "queue => 'extra', idempotency_key => repeat('k1', 5000)" ],
		[ 'event', "queue => 'extra', event_id => '$event'" ])
	{
		my ($key, $arguments) = @$case;

		is($ask->("SELECT outbox_id, created FROM outbox.enqueue('again', '1', $arguments)"), "$facts->{first}{$key}|f", "$db: $key is known");
	}
	is($ask->("SELECT created FROM outbox.enqueue('new', '1', idempotency_key => 'k3')"), 't', "$db: a new key is new");

	# Numbers.
	is($ask->(q{
			SELECT string_agg(sequence_id::text, ' ' ORDER BY n)
			FROM unnest(ARRAY['p', 'q', 'r', repeat('long', 5000), 'new', 'p']) WITH ORDINALITY u(p, n),
				outbox.enqueue('numbered', '1', 'numbered', partition_key => p)}),
		'5 3 3 3 1 6', "$db: numbers go on");

	# Leases.
	is($ask->('SELECT count(*) FROM outbox.repair_expired_leases()'), $facts->{expired}, "$db: what had run out is repaired");
	is($ask->($count_lost), $facts->{lost}, "$db: ... at its queue's ceiling");
	my $wrong = $held[0] =~ s/\|holds$/|other/r;
	foreach my $lease ($wrong, @held, $held[0])
	{
		my ($id, $token, $worker) = split /\|/, $lease;
		my $expected = $worker eq 'other' || ($lease eq $held[0] && $ask->("SELECT count(*) FROM outbox.pending WHERE outbox_id = '$id'") == 0)
			? 'P7002' : '00000';

		is(sqlstate($node, "SELECT outbox.complete('$id', '$token', '$worker', 'DISPATCHED')", database => $db),
			$expected, "$db: a lease of $worker: $expected");
	}

	# Dead letters.
	is(sqlstate($node, "SELECT outbox.replay('$facts->{replayed}')", database => $db), 'P7005', "$db: replayed before");
	is($ask->(q{SELECT outbox.replay(outbox_id) IS NOT NULL FROM outbox.dead_letters WHERE event_type = 'failed' LIMIT 1}), 't',
		"$db: a dead letter is replayed");

	# The message in a dated leaf.
	is($ask->(q{
		UPDATE outbox.pending p SET priority = 15 FROM outbox.messages m WHERE m.outbox_id = p.outbox_id AND m.event_type = 'by hand';
		WITH held AS MATERIALIZED (SELECT * FROM outbox.claim('late', 1))
		SELECT held.event_type, c.attempt_no FROM held, outbox.complete(held.outbox_id, held.lease_token, 'late', 'DISPATCHED') c}),
		'by hand|2', "$db: a message of a dated leaf is claimed and completed");

	# History.
	my %refused = map { split /\|/ } split /\n/, $ask->(q{
		CREATE FUNCTION pg_temp.refusal(statement text, role text) RETURNS text LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM set_config('session_replication_role', role, true);
			EXECUTE statement;
			RETURN 'done';
		EXCEPTION WHEN OTHERS THEN
			RETURN SQLSTATE;
		END
		$$;
		SELECT c.oid::regclass, string_agg(pg_temp.refusal(format(s, c.oid::regclass), role), ' ')
		FROM pg_class c, unnest(ARRAY['origin', 'replica', 'local']) role,
			unnest(ARRAY['UPDATE %s SET outbox_id = outbox_id', 'DELETE FROM %s', 'TRUNCATE %s', 'TRUNCATE %s CASCADE']) s
		WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname ~ '^(messages|attempts)'
		GROUP BY 1 ORDER BY 1});

	is_deeply(\%refused, { map { $_ => join(' ', ('P0001') x 12) } 'outbox.messages', 'outbox.attempts', 'outbox.messages_default',
			'outbox.attempts_default', @{ $facts->{leaves} } }, "$db: history is append-only: parents, leaves and archived leaves");
	is(sqlstate($node, 'TRUNCATE outbox.pending', database => $db), 'P0001', "$db: pending cannot be emptied");
	is(sqlstate($node, "INSERT INTO $facts->{archive} SELECT * FROM $facts->{archive} LIMIT 1", database => $db), '23505',
		"$db: the archived ledger keeps its key");
	is(sqlstate($node, "INSERT INTO $facts->{archive} (outbox_id, attempt_no, state, completed_at) SELECT outbox_id, 2, 'FAILED', now() FROM $facts->{archive} WHERE state = 'DISPATCHED'",
			database => $db), '23505', "$db: ... and its one terminal attempt a message");

	# Upkeep.
	is($ask->(q{SET outbox.partition_interval = '1 hour'; SELECT count(*) >= 0 FROM outbox.maintain()}), 't', "$db: maintain()");
	is($ask->('SELECT * FROM outbox.check() WHERE severity = $$error$$'), '', "$db: check() finds nothing");
	is($ask->("SELECT created FROM outbox.enqueue('after', '1')"), 't', "$db: enqueue after maintain()");
	consistent($node, "$db: consistent in the end", $db);
	return;
}

# History in DEFAULT leaves: plain within the cluster, custom into another; below, in dated leaves, the other way round.
my $facts = build('source', 0);

dump_of($main, 'source', $facts);
is($fresh->safe_psql('postgres', q{SELECT count(*) FROM pg_roles WHERE rolname LIKE 'outbox%'}), '0',
	'the fresh cluster has none of the roles');
foreach my $case ([ $main, 'main_plain', 'plain' ], [ $fresh, 'fresh_custom', 'custom' ], [ $fresh, 'fresh_parts', 'parts' ])
{
	my ($node, $db, $how) = @$case;

	restore($node, $db, $how, $facts);
	works($node, $db, $facts);
}

# A restored one, in the middle of its own work, can be dumped and restored again.
my %second = (sums => checksums($main, 'main_plain'), catalogue => catalogue($main, 'main_plain'));

dump_of($main, 'main_plain', \%second);
restore($fresh, 'second', 'custom', \%second);

# The source never noticed.
works($main, 'source', $facts);

# History in dated leaves.
$facts = build('dated', 1);
dump_of($main, 'dated', $facts);
restore($fresh, 'dated_plain', 'plain', $facts);
works($fresh, 'dated_plain', $facts);
restore($main, 'dated_custom', 'custom', $facts);
works($main, 'dated_custom', $facts);
restore($fresh, 'dated_alone', 'alone', $facts);
works($fresh, 'dated_alone', $facts);

$main->stop('fast');
$fresh->stop('fast');
done_testing();
