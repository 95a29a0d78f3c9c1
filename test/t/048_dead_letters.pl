# Notices of dead letters where processes of the extension end messages, and where servers and databases end:
# queues.dead_letter_queue.
#
# Proves: the background worker that takes back a lease at the ceiling, and the process that runs a handler, tell in the
# same transaction, and the queue that is told is notified, or handled; while that queue is being changed, the worker
# leaves the message, repairs others, and tells later; a crash keeps death and notice together or neither, and so does a
# prepared transaction; a dump is restored whatever the order of the queues, and what dies in the copy is told there once.
use strict;
use warnings;

use OutboxTest;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.poll_interval = '1 s'");
my $do = sub { $node->safe_psql('postgres', shift) };
my $until = sub {
	my ($sql, $what) = @_;
	ok($node->poll_query_until('postgres', $sql), $what) or diag($do->('SELECT kind, state, last_error FROM outbox.workers'));
};
# What was told of messages of that type: queue of the message, error_code, whether it is pending.
my $told = sub {
	my ($type, $database) = @_;
	return $node->safe_psql($database // 'postgres', qq{
		SELECT string_agg(concat_ws(' ', n.payload ->> 'queue', n.payload ->> 'error_code', a.state), ', ' ORDER BY n.outbox_id)
		FROM outbox.messages n LEFT JOIN outbox.attempts a USING (outbox_id)
		WHERE n.event_type = 'outbox.dead_letter' AND n.payload ->> 'event_type' = '$type'});
};
my $ended = sub { return "SELECT NOT EXISTS (SELECT FROM outbox.pending JOIN outbox.messages USING (outbox_id) WHERE event_type = '$_[0]')" };

$do->(q{
	SELECT outbox.create_queue('told');
	SELECT outbox.create_queue('q', max_attempts => 1, repair_delay => '0', dead_letter_queue => 'told');
	SELECT outbox.create_queue('plain', max_attempts => 1, repair_delay => '0');
	SELECT outbox.maintain()});
wait_for_worker($node);
my $listener = listener($node);

# ---- the background worker
my $lose = sub {
	my ($queue, $type) = @_;
	$do->("SELECT outbox.enqueue('$type', '1', '$queue'); SELECT outbox.claim('w', 1, '1 ms', '{$queue}')");
};
$lose->('q', 'lost');
hear($listener, 'told');
pass('the worker notifies the queue that is told');
is($told->('lost'), 'q LEASE_EXPIRED', '... of a lease that was lost at the ceiling');

my $changing = session($node);
$changing->query_safe("BEGIN; SELECT count(outbox.cancel(outbox_id, 'read')) FROM outbox.pending WHERE queue = 'told'; SELECT outbox.alter_queue('told', ordering => 'fifo')");
$lose->('q', 'waits');
$lose->('plain', 'passes');
$until->($ended->('passes'), 'the queue that is told is being changed: the worker repairs others');
$until->("SELECT last_error ~ 'queue \"told\" is being changed' FROM outbox.workers WHERE kind = 'worker'", '... and says why it leaves one');
is($do->($ended->('waits')), 'f', '... which stays');
is($told->('waits'), '', '... untold');
$changing->query_safe('COMMIT');
$until->($ended->('waits'), 'it ends when the change is over');
is($told->('waits'), 'q LEASE_EXPIRED', '... and is told of');
$until->("SELECT failures = 0 FROM outbox.workers WHERE kind = 'worker'", '... and all is well again');

# ---- handlers, of the queue that fails and of the queue that is told
$do->(q{
	SELECT count(outbox.cancel(outbox_id, 'read')) FROM outbox.pending WHERE queue = 'told';
	CREATE SCHEMA app;
	CREATE TABLE app.heard (event_type text);
	CREATE FUNCTION app.refuse(m outbox.claimed) RETURNS void LANGUAGE plpgsql AS $$ BEGIN INSERT INTO app.heard VALUES ('undone'); RAISE 'no' USING ERRCODE = 'P8001'; END $$;
	CREATE FUNCTION app.hear(m outbox.claimed) RETURNS void LANGUAGE sql AS $$ INSERT INTO app.heard VALUES (m.payload ->> 'event_type') $$;
	SELECT outbox.create_queue('h', handler => 'app.refuse', dead_letter_queue => 'told');
	SELECT outbox.alter_queue('told', handler => 'app.hear');
	SELECT outbox.enqueue('refused', '1', 'h')});
$until->("SELECT EXISTS (SELECT FROM app.heard)", 'a handler is told of what another one refused');
is($do->('SELECT string_agg(event_type, $$ $$) FROM app.heard'), 'refused', '... once, and what the other one did is undone');
$until->("SELECT NOT EXISTS (SELECT FROM outbox.pending WHERE queue = 'told')", '... in its own transaction');
is($told->('refused'), 'h P8001 DISPATCHED', '... with its outcome');
$do->(q{SELECT outbox.alter_queue('told', handler => '')});

# ---- crashes and prepared transactions
$do->(q{SELECT outbox.enqueue('kept', '1', 'q'), outbox.enqueue('gone', '1', 'q')});
$do->(q{SELECT outbox.cancel(outbox_id, 'no') FROM outbox.messages WHERE event_type = 'gone'});
my $open = session($node);
$open->query_safe(q{BEGIN; SELECT outbox.cancel(outbox_id, 'no') FROM outbox.messages WHERE event_type = 'kept'});
$node->stop('immediate');
$node->start;
wait_for_worker($node);
is($told->('gone'), 'q CANCELLED', 'after a crash what has died is told of');
is($told->('kept') . $do->($ended->('kept')), 'f', '... and what an open transaction ended is alive, and not told of');
$do->(q{BEGIN; SELECT outbox.cancel(outbox_id, 'no') FROM outbox.messages WHERE event_type = 'kept'; PREPARE TRANSACTION 'death'});
is($told->('kept'), '', 'a prepared transaction tells nothing');
is(sqlstate($node, q{SELECT outbox.alter_queue('q', dead_letter_queue => ''); SELECT outbox.drop_queue('told')}), '55006', '... and holds the queue');
$do->(q{SELECT outbox.alter_queue('q', dead_letter_queue => 'told')});
$do->(q{COMMIT PREPARED 'death'});
is($told->('kept') . $do->($ended->('kept')), 'q CANCELLEDt', '... until it is committed');

# ---- dump and restore
$do->(q{SELECT outbox.enqueue('moved', '1', 'q'); CLUSTER outbox.queues USING queues_pkey});
$do->(q{CREATE DATABASE copy TEMPLATE template0});
is($do->(q{SELECT string_agg(queue, ' ' ORDER BY ctid) FROM outbox.queues}), 'default h plain q told', 'the queue that is told comes after those that name it');
my $dump = $node->basedir . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, 'postgres' ], 'a dump');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', 'copy', $dump ], '... is restored');
wait_for_worker($node, database => 'copy');
is($node->safe_psql('copy', q{SELECT string_agg(queue || ' ' || dead_letter_queue, ', ' ORDER BY queue) FROM outbox.queues WHERE dead_letter_queue IS NOT NULL}),
	'h told, q told', '... with the names');
is($node->safe_psql('copy', q{SELECT count(*) FROM outbox.check() WHERE severity = 'error'}), '0', '... and without errors');
is($told->('gone', 'copy'), 'q CANCELLED', 'what has died is not told of again');
$node->safe_psql('copy', q{SELECT outbox.cancel(outbox_id, 'no') FROM outbox.messages WHERE event_type = 'moved'});
is($told->('moved', 'copy'), 'q CANCELLED', 'what dies in the copy is told of there');
is($told->('moved'), '', '... and not in the original');

undamaged($node, 'the tables are whole');
done_testing();
