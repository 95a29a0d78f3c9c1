# A database in the middle of its work moves: by pg_dump and psql, by pg_restore in parallel,
# whole and section by section, by pg_upgrade, and its schema alone; within its cluster, and
# into one that has not even the roles and whose background worker looks on.
#
# Proves: the new database equals the old one, in every table by checksum, and in every index,
# trigger, constraint, comment and grant of the schema. It then goes on working: leases that
# have run out are taken back by the settings that were moved, where a worker runs with no
# client connected; open leases are completed under their tokens, in each extension; keys are
# known, numbers go on, and history can be changed on no partition, dated and detached ones
# included. (B14, B30)
#
# Shape: two databases. The dated partitions of `source` are made when it holds messages, so
# that DEFAULT ones hold history; those of `dated`, which has all extensions, before that.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $event = '00000000-0000-4000-8000-0000000000e1';
my $payment = q{'{"amount": 12.5, "currency": "EUR", "destination": "DE02"}'};
my $worker_conf = "outbox.poll_interval = '100ms'\nlog_min_messages = warning\nmax_worker_processes = 20";
my $main = new_node('main', extension => 0);
my $fresh = new_node('fresh', preload => 1, extension => 0, conf => $worker_conf);
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
		FROM unnest(ARRAY['default', 'extra', 'fifo', 'it''s "q"']) q;
		SELECT outbox.enqueue('scheduled', 'null', deliver_at => clock_timestamp() + interval '1 year');
		SELECT outbox.enqueue('big', (SELECT jsonb_agg(md5(g::text)) FROM generate_series(1, 5000) g));
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
		-- A dead head, leases that were lost at the ceiling and below it, one that is born open.
		SELECT outbox.complete(c.outbox_id, c.lease_token, 'w', 'FAILED') FROM outbox.claim('w', 1, queues => '{fifo}') c;
		SELECT outbox.claim('w', 1, queues => '{numbered}');
		UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE claimed_by = 'w';
		SELECT outbox.repair_expired_leases();
		UPDATE outbox.pending SET release_count = 7 WHERE outbox_id IN (SELECT outbox_id FROM outbox.messages WHERE event_type = 'scheduled');
		SELECT outbox.enqueue_and_claim('holds', 'born leased', '1', lease => '1 day');
	});
	return;
}

# In each of these queues a lease that has run out, which `gone` holds, one that is open, which
# `holds` holds, and a message that was sent. One of them was tried more often than the ceiling
# of the install script allows.
sub lease
{
	my ($db, @queues) = @_;

	$main->safe_psql($db, q{
		SELECT outbox.enqueue('often tried', '1', priority => 15);
		DO $$
		BEGIN
			FOR n IN 1 .. 25 LOOP
				PERFORM outbox.complete(c.outbox_id, c.lease_token, 'w', 'RETRYABLE', retry_delay => '0') FROM outbox.claim('w', 1) c;
			END LOOP;
		END
		$$});
	foreach my $worker (qw(gone sent holds))
	{
		# The ids of m10 are given by its own claims.
		$main->safe_psql($db, $_ eq 'm10' ? "SELECT m10_recovery.claim_outbox_events('$worker', 1)" : "SELECT outbox.claim('$worker', 1, '1 day', '{$_}')") foreach @queues;
	}
	$main->safe_psql($db, q{
		SELECT outbox.complete(outbox_id, lease_token, 'sent', 'DISPATCHED') FROM outbox.pending WHERE claimed_by = 'sent';
		UPDATE outbox.pending SET lease_expires_at = claimed_at + CASE claimed_by WHEN 'gone' THEN interval '1 ms' ELSE interval '1 day' END
		WHERE claimed_by IS NOT NULL});
	return;
}

# Rows in every dated leaf, also in those whose time is long past or has not come.
my $history = q{
	INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, priority, payload, headers, created_at)
	VALUES ('017f22e2-79b0-7cc3-98c4-dc0c0c07398f', 'default', gen_random_uuid(), 'of another age', 0, '1', '{}', '2022-02-22');
	INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at)
	VALUES ('017f22e2-79b0-7cc3-98c4-dc0c0c07398f', 1, 'DISPATCHED', '2022-02-23');
	INSERT INTO outbox.events (event_id, event, at, actor, detail) VALUES ('017f22e2-79b0-7cc3-98c4-dc0c0c07398f', 'BY_HAND', '2022-02-22', 'a', '{}');
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
				INSERT INTO outbox.events (event_id, event, at, actor, outbox_ids, attempt_nos, detail)
				VALUES (id, 'BY_HAND', clock_timestamp(), 'a', ARRAY[id], '{1}', '{"a": 1}');
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
	$$};

# Number of rows and checksum of each table and view; without what is pending under these ids,
# and what becomes of it.
sub rows
{
	my ($node, $db, $gone) = @_;

	return checksums($node, $db, also => 'm10_recovery.event_ids', rows => $gone && sub {
		return $_[0] =~ /attempts/ ? "worker_id IS DISTINCT FROM 'gone'" : $_[0] =~ /\.(?:pending|dead)/ ? "outbox_id <> ALL ($gone)" : 'true' });
}

# A database in the middle of its work, and what a copy of it will be asked.
sub build
{
	my ($db, $dated, @queues) = @_;
	my %facts = (queues => \@queues);

	$main->safe_psql('postgres', "CREATE DATABASE $db");
	# After what a dump begins with, the extension makes no dated leaves.
	$main->safe_psql($db, ($dated ? '' : 'SET xmloption = content; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0;') . q{
		CREATE EXTENSION outbox;
		SELECT outbox.alter_queue('default', max_attempts => 40, lease => '45 seconds', repair_delay => '1 year', backoff_jitter => 0.5);
		SELECT outbox.create_queue('extra', max_attempts => NULL, repair_delay => '0', backoff_cap => '1 hour', paused => true, max_releases => 3);
		SELECT outbox.create_queue('numbered', ordering => 'numbered', max_attempts => 1);
		SELECT outbox.create_queue('fifo', ordering => 'fifo', on_dead_head => 'block');
		SELECT outbox.create_queue('it''s "q"');
		UPDATE outbox.queues SET created_at = created_at - interval '1 year' WHERE queue = 'default'});
	fill($db, 1);
	$main->safe_psql($db, q{SET outbox.partition_interval = '1 hour'; SELECT * FROM outbox.maintain()}) unless $dated;
	fill($db, 2);
	$main->safe_psql($db, qq{
		CREATE EXTENSION outbox_payment;
		CREATE EXTENSION outbox_m10;
		SELECT outbox.alter_queue('payment', max_attempts => 1, repair_delay => '1 year', backoff_base => '7 s');
		SELECT outbox.alter_queue('m10', max_attempts => 5, repair_delay => '1 year');
		SELECT enqueue_payment_outbox('i ' || n, 'p', 'k', 'rail', $payment) FROM generate_series(1, 10) n;
		SELECT m10_recovery.publish_outbox('a', n::text, 'event', '1') FROM generate_series(1, 10) n}) if $dated;
	lease($db, @queues);
	$main->safe_psql($db, $history);

	# An archived pair: the last dated leaves, detached with their rows.
	$facts{leaves} = [ split /\n/, $main->safe_psql($db, q{
		SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass, 'outbox.events'::regclass) ORDER BY 1::text}) ];
	cmp_ok(scalar(@{ $facts{leaves} }), '>=', 6, "$db: dated leaves: @{ $facts{leaves} }");
	($facts{archive}) = grep { /attempts_p/ } reverse @{ $facts{leaves} };
	my ($messages) = grep { /messages_p/ } reverse @{ $facts{leaves} };
	my ($events) = grep { /events_p/ } reverse @{ $facts{leaves} };
	$main->safe_psql($db, qq{
		BEGIN;
		ALTER TABLE outbox.pending DISABLE TRIGGER pending_changed;
		DELETE FROM outbox.pending WHERE outbox_id IN (SELECT outbox_id FROM $messages);
		ALTER TABLE outbox.pending ENABLE ALWAYS TRIGGER pending_changed;
		ALTER TABLE outbox.messages DETACH PARTITION $messages;
		ALTER TABLE outbox.attempts DETACH PARTITION $facts{archive};
		ALTER TABLE outbox.events DETACH PARTITION $events;
		COMMIT});
	consistent($main, "$db: consistent", $db);

	# Who holds what under which token, which key stands for which message.
	is($main->safe_psql($db, q{SELECT string_agg(queue, ' ' ORDER BY queue), max(attempt_count) FROM outbox.pending WHERE claimed_by = 'gone'}), "@queues|25",
		"$db: leases that have run out");
	$facts{gone} = $main->safe_psql($db, q{SELECT quote_literal(array_agg(outbox_id)) FROM outbox.pending WHERE claimed_by = 'gone'});
	$facts{held} = [ map { [ split /\|/ ] } split /\n/, $main->safe_psql($db,
		q{SELECT queue, outbox_id, lease_token FROM outbox.pending WHERE claimed_by = 'holds' ORDER BY 1, 2}) ];
	is(join(' ', map { $_->[0] } @{ $facts{held} }), "default default @queues", "$db: open leases");
	$facts{event} = $main->safe_psql($db, q{SELECT id FROM m10_recovery.outbox WHERE claimed_by = 'holds'}) if $dated;
	$facts{first} = { map { split /\|/ } split /\n/, $main->safe_psql($db, qq{
		SELECT queue || '/' || coalesce(aggregate_id, '') || '/' || left(idempotency_key, 2), outbox_id
		FROM outbox.messages WHERE idempotency_key LIKE 'k%'
		UNION ALL SELECT 'event', outbox_id FROM outbox.messages WHERE event_id = '$event'}) };
	$facts{replayed} = $main->safe_psql($db, q{SELECT outbox_id FROM outbox.replays ORDER BY 1 LIMIT 1});
	$facts{catalogue} = catalogue($main, $db);
	$facts{members} = members($main, $db);
	$facts{all} = rows($main, $db);
	$facts{kept} = rows($main, $db, $facts{gone});
	is($main->safe_psql($db, q{SELECT DISTINCT tableoid = 'outbox.messages_default'::regclass FROM outbox.messages WHERE idempotency_key ~ '^k1'}),
		$dated ? 'f' : 't', "$db: where its history is");
	is(join(' ', grep { $facts{all}{$_} =~ /^0 / } sort keys %{ $facts{all} }), 'outbox.erasures outbox.rate_spending outbox.retention outbox.retired_numbers outbox.seal_marks outbox.seals outbox.subject_hash_key outbox.subject_keys outbox.subject_messages outbox.subjects',
		"$db: every other table holds something");
	return \%facts;
}

# ---------------------------------------------------------------- what must be so in the new place

sub members
{
	my ($node, $db) = @_;

	return { map { $_ => membership($node, $db, $_) } split /\n/, $node->safe_psql($db, q{SELECT extname FROM pg_extension WHERE extname ~ '^outbox'}) };
}

# A worker may have begun to take back what has run out.
sub equal
{
	my ($node, $db, $facts, $name) = @_;
	my ($which, $gone) = $node->name eq 'fresh' ? ('kept', $facts->{gone}) : 'all';

	$name //= $db;
	is_deeply(rows($node, $db, $gone), $facts->{$which}, "$name: equal rows in every table and view");
	return is_deeply(catalogue($node, $db), $facts->{catalogue}, "$name: equal catalogue");
}

# What has run out is taken back: by a worker, without a session but this question, or by hand.
sub goes_on
{
	my ($node, $db, $facts) = @_;
	my %becomes = (default => 'default|26|ZOMBIE_REQUEUE|gone|t', m10 => 'm10|1|ZOMBIE_REQUEUE|gone|t',
		numbered => 'numbered|1|FAILED|gone|', payment => 'payment|1|FAILED|gone|');
	my $count = @{ $facts->{queues} };

	ok($node->name eq 'main'
		? $node->safe_psql($db, 'SELECT count(*) FROM outbox.repair_expired_leases()') == $count
		: $node->poll_query_until($db, "SELECT count(*) = $count FROM outbox.attempts WHERE recorded_by = 'outbox worker'"),
		"$db: leases that have run out are taken back");
	is($node->safe_psql($db, q{
			SELECT m.queue, a.attempt_no, a.state, a.worker_id, p.next_attempt_at > now() + interval '300 days'
			FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id) LEFT JOIN outbox.pending p USING (outbox_id)
			WHERE a.worker_id = 'gone' ORDER BY 1}),
		join("\n", map { $becomes{$_} } @{ $facts->{queues} }), '... by the settings of their queues');
	return is_deeply(rows($node, $db, $facts->{gone}), $facts->{kept}, "$db: nothing else has changed");
}

# The SQLSTATE of a statement that is given up, of which the log does not hear.
my $refusal = q{
	CREATE FUNCTION pg_temp.refusal(statement text, role text = 'origin', first text = '') RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM set_config('session_replication_role', 'replica', true);
		EXECUTE first;
		PERFORM set_config('session_replication_role', role, true);
		EXECUTE statement;
		RETURN 'done';
	EXCEPTION WHEN OTHERS THEN
		RETURN SQLSTATE;
	END
	$$;};

# Each leaf holds a row when it is asked, also those that were made meanwhile.
sub append_only
{
	my ($node, $db, $facts) = @_;
	my %refused = map { split /\|/ } split /\n/, $node->safe_psql($db, $refusal . q{
		SELECT c.oid::regclass, string_agg(pg_temp.refusal(format(s, c.oid::regclass), role,
			format(CASE WHEN c.relname ~ 'attempts' THEN 'INSERT INTO %s (outbox_id, attempt_no, state) VALUES (%L, 99, ''RETRYABLE'')'
				WHEN c.relname ~ 'events' THEN 'INSERT INTO %s (event_id, event, at, actor, detail) VALUES (%L, ''TRIED'', now(), ''a'', ''{}'')'
				ELSE 'INSERT INTO %s (outbox_id, queue, event_id, event_type, priority, payload, headers, created_at)
					VALUES (%L, ''default'', gen_random_uuid(), ''e'', 0, ''1'', ''{}'', now())' END, c.oid::regclass,
				coalesce(substring(pg_get_expr(relpartbound, oid) FROM 'FROM \(''([0-9a-f-]{24})'), '01000000-0000-7000-8000-') || 'ffffffffffff')), ' ')
		FROM pg_class c, unnest(ARRAY['origin', 'replica', 'local']) role,
			unnest(ARRAY['UPDATE %s SET ' || CASE WHEN c.relname ~ '^events' THEN 'event = event' ELSE 'outbox_id = outbox_id' END, 'DELETE FROM %s', 'TRUNCATE %s', 'TRUNCATE %s CASCADE']) s
		WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname ~ '^(messages|attempts|events)'
		GROUP BY 1});

	return is_deeply(\%refused, { map { $_ => join(' ', ('P0001') x 12) } 'outbox.messages', 'outbox.attempts', 'outbox.events', @{ $facts->{leaves} }, keys %refused },
		"$db: history is append-only: parents, leaves and archived leaves");
}

sub works
{
	my ($node, $db, $facts) = @_;
	my $ask = sub { return $node->safe_psql($db, $_[0]); };
	my $refusals = sub { return "$refusal SELECT pg_temp.refusal(s) FROM unnest(ARRAY[" . join(', ', map { "\$s\$$_\$s\$" } @_) . ']) s'; };

	is($ask->(q{
			SELECT max_attempts, lease, backoff_jitter FROM outbox.queues WHERE queue = 'default';
			SELECT count(*) FROM outbox.claim('x', queues => '{extra, fifo}');
			SELECT outbox.unblock('fifo', 'key') IS NOT NULL}),
		"40|00:00:45|0.5\n0\nt", "$db: settings of queues; a paused queue is paused, a blocked key is blocked");

	# Keys.
	my %known = (
		'default//k1' => q{idempotency_key => 'k1'},
		'default/a/k2' => q{idempotency_key => 'k2', aggregate_id => 'a'},
		'extra//k1' => q{queue => 'extra', idempotency_key => repeat('k1', 5000)},
		'event' => "queue => 'extra', event_id => '$event'");
	is($ask->(join ' UNION ALL ', map { "SELECT outbox_id, created FROM outbox.enqueue('again', '1', $known{$_})" } sort keys %known),
		join("\n", map { "$facts->{first}{$_}|f" } sort keys %known), "$db: keys are known");
	is($ask->("SELECT created FROM outbox.enqueue('new', '1', idempotency_key => 'k3')"), 't', "$db: a new key is new");

	# Numbers.
	is($ask->(q{
			SELECT string_agg(sequence_id::text, ' ' ORDER BY n)
			FROM unnest(ARRAY['p', 'q', 'r', repeat('long', 5000), 'new', 'p']) WITH ORDINALITY u(p, n),
				outbox.enqueue('numbered', '1', 'numbered', partition_key => p)}),
		'5 3 3 3 1 6', "$db: numbers go on");

	# Leases.
	my (undef, $id, $token) = @{ $facts->{held}[0] };
	my @completions = map {
		my ($queue, $id, $token) = @$_;
		my $complete = $queue eq 'payment' ? 'complete_outbox_attempt' : 'outbox.complete';
		'SELECT count(*) FROM ' . ($queue eq 'm10' ? "m10_recovery.complete_outbox_event($facts->{event}, 'holds', true)" : "$complete('$id', '$token', 'holds', 'DISPATCHED')")
	} @{ $facts->{held} };
	is($ask->(join ";\n", $refusals->("SELECT outbox.complete('$id', '$token', 'other', 'DISPATCHED')"), @completions,
			"SELECT pg_temp.refusal(\$s\$SELECT outbox.complete('$id', '$token', 'holds', 'DISPATCHED')\$s\$)"),
		join("\n", 'P7002', (1) x @completions, 'P7002'), "$db: open leases are completed by their worker, once");

	# Dead letters, and a message of a dated leaf.
	is($ask->(q{SELECT outbox.replay(outbox_id) IS NOT NULL FROM outbox.dead_letters WHERE event_type = 'failed' LIMIT 1}), 't', "$db: a dead letter is replayed");
	is($ask->(q{
			UPDATE outbox.pending p SET priority = 15 FROM outbox.messages m WHERE m.outbox_id = p.outbox_id AND m.event_type = 'by hand';
			WITH held AS MATERIALIZED (SELECT * FROM outbox.claim('late', 1))
			SELECT held.event_type, c.attempt_no FROM held, outbox.complete(held.outbox_id, held.lease_token, 'late', 'DISPATCHED') c}),
		'by hand|2', "$db: a message of a dated leaf is claimed and completed");

	# Contracts.
	is($ask->(qq{
			SELECT sequence_id FROM enqueue_payment_outbox('i 1', 'p', 'k', 'rail', $payment);
			SELECT sequence_id FROM enqueue_payment_outbox('new', 'p', 'k', 'rail', $payment);
			SELECT m10_recovery.publish_outbox('a', 'a', 'event', '1')}),
		"1\n11\n11", "$db: a payment is known, numbers of payments and ids of events go on") if $facts->{event};

	# What must not be done.
	append_only($node, $db, $facts);
	is($ask->($refusals->(
				'TRUNCATE outbox.pending', "SELECT outbox.replay('$facts->{replayed}')", "INSERT INTO $facts->{archive} SELECT * FROM $facts->{archive} LIMIT 1",
				"INSERT INTO $facts->{archive} (outbox_id, attempt_no, state, completed_at) SELECT outbox_id, 2, 'FAILED', now() FROM $facts->{archive} WHERE state = 'DISPATCHED'")),
		"P0001\nP7005\n23505\n23505", "$db: pending is not emptied, a dead letter not replayed again; the archived ledger keeps its key, and one terminal attempt a message");

	# Upkeep.
	is($ask->(q{
			SET outbox.partition_interval = '1 hour';
			SELECT count(*) >= 0 FROM outbox.maintain();
			SELECT created FROM outbox.enqueue('after', '1')}), "t\nt", "$db: enqueue after maintain()");
	serves($node, $db, $db) unless $node->name eq 'main';
	return consistent($node, "$db: consistent in the end", $db);
}

# ---------------------------------------------------------------- dumps

my @psql = ('psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d');
my @pg_restore = ('pg_restore', '--exit-on-error', '-d');
my $parallel = '--jobs=2';
my $source = build('source', 0, qw(default numbered));
my $dated = build('dated', 1, qw(default m10 numbered payment));

sub dump_of
{
	my ($db, $file, @options) = @_;

	return $main->command_ok([ 'pg_dump', '-f', "$dumps/$file", '-d', $db, @options ], "$db: pg_dump @options");
}

sub restore
{
	my ($node, $db, @commands) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE template0");
	$node->command_ok($_, "$db: $_->[0]") foreach @commands;
	return;
}

dump_of('source', 'plain.sql');
dump_of('source', 'schema.sql', '-s');
dump_of('source', 'data.sql', '-a');
dump_of('source', 'alone.sql', '-n', 'outbox', '-e', 'outbox');
dump_of('dated', 'dated.dump', '-Fc');

# Within the cluster. A restored one, in the middle of its own work, can be dumped again.
restore($main, 'main_plain', [ @psql, 'main_plain', '-f', "$dumps/plain.sql" ]);
restore($main, 'main_custom', [ @pg_restore, 'main_custom', $parallel, "$dumps/dated.dump" ]);
foreach my $case ([ 'main_plain', $source ], [ 'main_custom', $dated ])
{
	equal($main, @$case);
	goes_on($main, @$case);
	works($main, @$case);
}
my $second = { gone => $source->{gone}, kept => rows($main, 'main_plain', $source->{gone}), catalogue => catalogue($main, 'main_plain') };
dump_of('main_plain', 'second.dump', '-Fc');

# Into another, all before the first enqueue there: until then its workers know a restore.
is($fresh->safe_psql('postgres', q{SELECT count(*) FROM pg_roles WHERE rolname ~ '^(outbox|symphony|m10)_'}), '0', 'the fresh cluster has none of the roles');
restore($fresh, 'parts', map { [ @psql, 'parts', '-f', "$dumps/$_.sql" ] } qw(schema data));
restore($fresh, 'alone', [ @psql, 'alone', '-f', "$dumps/alone.sql" ]);
restore($fresh, 'second', [ @pg_restore, 'second', $parallel, "$dumps/second.dump" ]);
restore($fresh, 'piped', [ 'sh', '-c', "pg_dump -h ${\ $main->host} -p ${\ $main->port} dated | @psql piped" ]);
restore($fresh, 'parallel', [ @pg_restore, 'parallel', $parallel, "$dumps/dated.dump" ]);
restore($fresh, 'schema_only', [ @pg_restore, 'schema_only', '--schema-only', "$dumps/dated.dump" ]);
restore($fresh, 'sections');

# In the worst order, with the worker looking on: what is pending before what it is judged by. This fails if the worker makes partitions before
# the first enqueue. That it leaves alone the leases that it cannot judge yet is shown by 010_databases.pl: here it does not come to that.
my @items = grep { /^\d/ } split /\n/, (run_command([ 'pg_restore', '--section=data', '-l', "$dumps/dated.dump" ]))[0];
my @pending = grep { /TABLE DATA outbox pending / } @items;
my @queues = grep { /TABLE DATA outbox queues / } @items;
my @rest = grep { !/TABLE DATA outbox (?:pending|queues) / } @items;

is(scalar(@pending) . scalar(@queues), '11', 'sections: among the items are the tables in question');
foreach my $part ('--section=pre-data', \@pending, \@rest, \@queues, '--section=post-data')
{
	my @what = ($part);

	if (ref $part)
	{
		unlink "$dumps/list";
		append_to_file("$dumps/list", join("\n", @$part) . "\n");
		@what = ($parallel, '-L', "$dumps/list");
	}
	$fresh->command_ok([ @pg_restore, 'sections', @what, "$dumps/dated.dump" ], "sections: pg_restore @what");
	wait_for_worker($fresh, database => 'sections');
	wait_for_rounds($fresh, 'worker', 'sections', 3);
}

my @copies = ([ 'parts', $source ], [ 'alone', $source ], [ 'piped', $dated ], [ 'parallel', $dated ], [ 'sections', $dated ]);
equal($fresh, @$_) foreach @copies, [ 'second', $second ];
goes_on($fresh, @$_) foreach @copies;
works($fresh, @$_) foreach @copies;

# An empty outbox, with the partitions of the old one and the queues that install scripts make.
is($fresh->safe_psql('schema_only', q{SELECT string_agg(queue, ' ' ORDER BY queue), (SELECT count(*) FROM outbox.messages) FROM outbox.queues}), 'default m10 payment|0',
	'schema_only: empty');
is_deeply(catalogue($fresh, 'schema_only'), $dated->{catalogue}, 'schema_only: equal catalogue');
append_only($fresh, 'schema_only', $dated);
serves($fresh, 'schema_only', 'schema_only');
consistent($fresh, 'schema_only: consistent', 'schema_only');

my $errors = qr/^(?:ERROR|PANIC|FATAL(?!.*(?:administrator command|connection to client lost))):|terminated by signal/;
is(join("\n", log_lines($fresh, 0, $errors)), '', 'no error in the log');
$fresh->stop('fast');

# ---------------------------------------------------------------- pg_upgrade

# From a server that preloads to one that does, whose worker waits until all was compared. The
# databases that were dumped are as they were.
my $new = new_node('upgraded', preload => 1, extension => 0, conf => "$worker_conf\noutbox.worker = off");

$new->stop('fast');
$main->safe_psql('postgres', "DROP DATABASE $_") foreach qw(main_plain main_custom);
$main->append_conf('postgresql.conf', "shared_preload_libraries = 'outbox'\n$worker_conf\noutbox.worker = off");
$main->stop('fast');
chdir($dumps) or die;
command_ok(
	[ 'pg_upgrade', '--no-sync', $parallel, '-d', $main->data_dir, '-D', $new->data_dir, '-b', $main->config_data('--bindir'),
		'-B', $new->config_data('--bindir'), '-s', $new->host, '-p', $main->port, '-P', $new->port ],
	'pg_upgrade, with the checks of pg_upgrade --check');
$new->start;
my @upgraded = ([ 'source', $source ], [ 'dated', $dated ]);
foreach my $case (@upgraded)
{
	my ($db, $facts) = @$case;

	equal($new, $db, $facts, "upgraded $db");
	is_deeply(members($new, $db), $facts->{members}, "upgraded $db: equal extensions");
	undamaged($new, "upgraded $db: nothing damaged", $db);
}
configure($new, 'outbox.worker' => 'on');
foreach my $case (@upgraded)
{
	wait_for_worker($new, database => $case->[0]);
	goes_on($new, @$case);
	works($new, @$case);
}
is(join("\n", log_lines($new, 0, $errors)), '', 'no error in the log');
$new->stop('fast');

done_testing();
