# Partitions are made beside a large DEFAULT partition.
#
# Proves: the server reads no large DEFAULT partition while it attaches one (it says what it
# reads, and what it need not), by maintain() and by the background worker; producers whose
# messages go to DEFAULT are refused nothing and wait for nothing in between.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', preload => 1, extension => 0, conf => "fsync = off\nautovacuum = off\noutbox.worker = off");
my $reads = qr/verifying table "(?:messages|attempts)_default"/;
my $implied = qr/updated partition constraint for default partition "(\w+)" is implied by existing constraints/;

# As a restore does, so that there is no dated partition.
sub make
{
	$node->safe_psql('postgres', q{
		DROP EXTENSION IF EXISTS outbox;
		SET xmloption = content; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0;
		CREATE EXTENSION outbox;
		INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, priority, payload, headers, created_at)
		SELECT (lpad(to_hex(1600000000000 + g), 12, '0') || '70008000' || lpad(to_hex(g), 12, '0'))::uuid, 'default', gen_random_uuid(), 'e', 0, '1', '{}', now()
		FROM generate_series(1, 200000) g;
		INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) SELECT outbox_id, 1, 'DISPATCHED', now() FROM outbox.messages});
	return;
}

make();
my $producer = session($node);
my @did;

$producer->query_safe(q{SELECT outbox.enqueue('present', '1')});
for my $call (1 .. 3)
{
	my ($ret, $out, $err) = $node->psql('postgres', q{SET client_min_messages = debug1; SELECT action FROM outbox.maintain() WHERE object ~ 'messages' AND action <> 'partition not needed' LIMIT 1});

	push @did, $out;
	# While somebody's transaction is open that writes to DEFAULT, it is validated.
	$producer->query_safe(q{BEGIN; SELECT outbox.enqueue('open', '1')}) if $call == 1;
	$producer->query_safe('COMMIT') if $call == 2;
	next if $call < 3;
	unlike($err, $reads, 'no DEFAULT partition is read where the partition is attached');
	is(join(' ', sort($err =~ /$implied/g)), 'attempts_default messages_default', '... for a CHECK implies that there is nothing to be found');
}
is("@did", 'partition prepared partition prepared partition made', 'a CHECK is made, validated, used: a call each');

# The background worker takes the steps one after the other.
make();
my $from = log_size($node);

$node->safe_psql('postgres', q{SELECT outbox.enqueue('present', '1')});
configure($node, 'outbox.worker' => 'on', log_min_messages => 'debug1');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 6 FROM pg_inherits WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass)}),
	'the worker has made both pairs to come');
is(scalar(log_lines($node, $from, $reads)), 4, '... having read each DEFAULT partition once for each, to validate');
is(scalar(log_lines($node, $from, $implied)), 4, '... and not once more');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_constraint WHERE conname ~ 'excludes'}), '0', '... and no CHECK is left');
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.check() WHERE severity = 'error'}), '0', 'check() finds nothing');
$producer->quit;
$node->stop('fast');
done_testing();
