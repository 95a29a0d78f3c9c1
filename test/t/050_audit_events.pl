# Reports that are refused by an ERROR, of audited queues: their own transaction cannot tell of them.
#
# Proves: the background worker writes each, whatever becomes of savepoints and of the transaction, also if audit_events is
# switched off meanwhile, with the actor of the session that reported; what finds no place is counted, in outbox.workers and in one
# row, and memory stays bounded; of an extension that was dropped the one that is created after it has none; a worker that ends or fails to write loses none; a crash loses no more than what was not yet
# written; without preloading, and where no queue is audited, there is none; other databases have their own.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', preload => 1, conf => 'restart_after_crash = on');

# n reports on one message, each refused.
my $helpers = q{
	CREATE OR REPLACE FUNCTION refuse(q text, n int) RETURNS bigint LANGUAGE plpgsql AS $$
	DECLARE
		id uuid := (SELECT outbox_id FROM outbox.messages WHERE queue = q LIMIT 1);
		refused bigint := 0;
	BEGIN
		FOR i IN 1 .. n LOOP
			BEGIN
				PERFORM outbox.complete(id, gen_random_uuid(), 'stale', 'DISPATCHED');
			EXCEPTION WHEN SQLSTATE 'P7002' THEN
				refused := refused + 1;
			END;
		END LOOP;
		RETURN refused;
	END $$;
	SELECT outbox.create_queue('audited', audit_events => true);
	SELECT outbox.create_queue('quiet');
	SELECT outbox.enqueue('a', '1', 'audited'), outbox.enqueue('q', '1', 'quiet');
};
my $refused = q{SELECT count(*) FROM outbox.events WHERE event = 'LEASE_LOST_REFUSED'};

sub wait_for
{
	my ($count, $name, $query, $db) = @_;

	return ok($node->poll_query_until($db // 'postgres', ($query // $refused), $count), $name);
}

sub ask
{
	my ($query, $db) = @_;

	return $node->safe_psql($db // 'postgres', $query);
}

ask($helpers);
wait_for_worker($node);

# ---------------------------------------------------------------- one

ask(q{CREATE ROLE reporter LOGIN IN ROLE outbox_executor});
my $id = ask(q{SELECT outbox_id FROM outbox.messages WHERE queue = 'audited'});
is(sqlstate($node, qq{SELECT outbox.complete('$id', gen_random_uuid(), 'stale', 'DISPATCHED')}), 'P7002', 'a report is refused');
wait_for(1, '... and the worker writes an audit event');
is(ask(q{SELECT queue, worker_id, actor = current_user, array_length(outbox_ids, 1), attempt_nos, detail ->> 'application_name' <> 'outbox worker', detail ? 'client_addr', detail ? 'refused_at'
	FROM outbox.events WHERE event = 'LEASE_LOST_REFUSED'}), 'audited|stale|t|1||t|t|t', '... with the session that reported');
$node->psql('postgres', qq{SELECT outbox.complete('$id', gen_random_uuid(), repeat('ü', 200), 'DISPATCHED')}, extra_params => [ '-U', 'reporter' ]);
wait_for(2, 'by a role that may not write the table');
is(ask(q{SELECT worker_id = repeat('ü', 63) FROM outbox.events WHERE actor = 'reporter'}), 't', '... a long worker_id is cut between two characters');

# The ledger was written by hand.
ask(qq{INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) VALUES ('$id', 1, 'DISPATCHED', now())});
ask(q{SELECT outbox.claim('w', 1, '1 hour', '{audited}')});
is(sqlstate($node, qq{SELECT outbox.complete('$id', (SELECT lease_token FROM outbox.pending WHERE outbox_id = '$id'), 'w', 'DISPATCHED')}), 'P7001', 'a message that has ended');
wait_for(1, '... TERMINAL_BLOCKED', q{SELECT count(*) FROM outbox.events WHERE event = 'TERMINAL_BLOCKED' AND worker_id = 'w'});

# ---------------------------------------------------------------- savepoints, transactions, settings

my $before = ask($refused);
ask(q{BEGIN; SAVEPOINT s; SELECT refuse('audited', 3); ROLLBACK TO s; SELECT refuse('audited', 2); ROLLBACK});
wait_for($before + 5, 'whatever is rolled back');
ask(q{SELECT refuse('quiet', 5)});
is(sqlstate($node, q{BEGIN READ ONLY; SELECT refuse('audited', 1)}), '25006', 'a read-only transaction is refused as ever');
ask(q{BEGIN; SELECT refuse('audited', 1); SELECT outbox.alter_queue('audited', audit_events => false); SELECT refuse('audited', 1); COMMIT});
wait_for($before + 6, 'switched off: none from then on');
ask(q{SELECT outbox.alter_queue('audited', audit_events => true)});
is(ask(q{SELECT count(*) FROM outbox.events WHERE queue = 'quiet' AND event ~ 'REFUSED'}), '0', 'none of a queue that is not audited');

# ---------------------------------------------------------------- load

is(ask(q{SELECT refuse('audited', 20000)}), '20000', 'many reports are refused');
my $accounted = q{SELECT (SELECT count(*) FROM outbox.events WHERE event = 'LEASE_LOST_REFUSED') +
	(SELECT coalesce(sum((detail ->> 'count')::int), 0) FROM outbox.events WHERE event = 'REFUSALS_LOST')};
wait_for($before + 20006, 'each is written or counted', $accounted);
is(ask(q{SELECT unrecorded FROM outbox.workers WHERE kind = 'worker' AND database = 'postgres'}),
	ask(q{SELECT coalesce(sum((detail ->> 'count')::int), 0) FROM outbox.events WHERE event = 'REFUSALS_LOST'}), 'outbox.workers has the same count');

# No worker: they wait, and what finds no place is counted.
configure($node, 'outbox.worker' => 'off');
wait_for_no_worker($node, 'postgres');
my ($written, $lost) = (ask($refused), ask(q{SELECT unrecorded FROM outbox.workers WHERE kind = 'worker' AND database = 'postgres'}));
ask(q{SELECT refuse('audited', 1500)});
is(ask($refused), $written, 'no worker, no rows');
is(ask(q{SELECT unrecorded FROM outbox.workers WHERE kind = 'worker' AND database = 'postgres'}), $lost + 476, '... and 1,024 wait');
configure($node, 'outbox.worker' => 'on');
wait_for($written + 1024, '... for the worker');
is(ask(q{SELECT detail ->> 'count' FROM outbox.events WHERE event = 'REFUSALS_LOST' ORDER BY event_id DESC LIMIT 1}), '476', '... the others are one row');

# It cannot write for a while.
ask(q{CREATE RULE r AS ON INSERT TO outbox.events DO ALSO NOTHING});
ask(q{SELECT refuse('audited', 10)});
ok($node->poll_query_until('postgres', q{SELECT failures > 0 FROM outbox.workers WHERE kind = 'worker' AND database = 'postgres'}), 'the worker fails to write');
ask(q{DROP RULE r ON outbox.events});
wait_for($written + 1034, '... and does later');

# ---------------------------------------------------------------- another database, a dropped extension, a crash

ask(q{CREATE DATABASE other});
ask('CREATE EXTENSION outbox', 'other');
ask($helpers, 'other');
wait_for_worker($node, database => 'other');
ask(q{SELECT refuse('audited', 3)}, 'other');
wait_for(3, 'another database has its own', $refused, 'other');
configure($node, 'outbox.worker' => 'off');
wait_for_no_worker($node, 'postgres');

# Its successor has what it refused itself: that found no place.
ask(q{SELECT refuse('audited', 1030)}, 'other');
ask('DROP EXTENSION outbox; CREATE EXTENSION outbox', 'other');
ask($helpers, 'other');
ask(q{SELECT refuse('audited', 2)}, 'other');
configure($node, 'outbox.worker' => 'on');
wait_for(2, 'a new extension has the refusals that it lost itself', q{SELECT sum((detail ->> 'count')::int) FROM outbox.events WHERE event = 'REFUSALS_LOST'}, 'other');
ask(q{SELECT refuse('audited', 1)}, 'other');
wait_for(1, '... and has those that it kept', $refused, 'other');
configure($node, 'outbox.worker' => 'off');
wait_for_no_worker($node, $_) foreach qw(postgres other);

ask(q{SELECT refuse('audited', 3)}, 'other');
ask('DROP EXTENSION outbox', 'other');
ask(q{SELECT refuse('audited', 5)});
$written = ask($refused);
configure($node, 'outbox.worker' => 'on');
wait_for($written + 5, 'a dropped extension is in the way of none');

$node->stop('immediate');
$node->start;
wait_for_worker($node);
is(ask($refused), $written + 5, 'what was written is there after a crash');
my $worker = wait_for_worker($node);
my $holder = session($node);
my $pid = $holder->query_safe('SELECT pg_backend_pid()');
$holder->query_safe('BEGIN; LOCK TABLE outbox.events IN EXCLUSIVE MODE');
ask(q{SELECT refuse('audited', 5)});
kill 'KILL', $pid;
eval { $holder->quit };
ok($node->poll_query_until('postgres', 'SELECT 1', '1'), 'the server has crashed and is back');
wait_for_worker($node, other => $worker);
ask(q{SELECT refuse('audited', 1)});
wait_for($written + 6, 'a crash loses what was not yet written, and no more');
is(ask(q{SELECT count(*) FROM outbox.check() WHERE severity = 'error'}), '0', 'check() finds nothing');
$node->stop('fast');

# ---------------------------------------------------------------- without preloading

$node = new_node('bare', preload => 0);
ask($helpers);
ask(q{SELECT refuse('audited', 3)});
ask(qq{SELECT outbox.complete_batch('stale', ARRAY[outbox_id], ARRAY[gen_random_uuid()], '{DISPATCHED}') FROM outbox.messages WHERE queue = 'audited'});
ask('SELECT outbox.maintain()');
is(ask($refused), '1', 'without preloading those leave audit events that do not raise');
$node->stop('fast');
done_testing();
