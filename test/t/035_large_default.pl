# Partitions are made beside a large DEFAULT partition.
#
# Proves: the server reads no large DEFAULT partition while it attaches one (it says what it
# reads, and what it need not), by maintain() and by the background worker; producers whose
# messages go to DEFAULT are refused nothing and wait for nothing in between, also if the clock steps
# into the time that is kept out of DEFAULT, beyond it, or back.
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
	my ($rows) = @_;

	$node->safe_psql('postgres', qq{SET t.rows = $rows;} . q{
		DROP EXTENSION IF EXISTS outbox;
		SET xmloption = content; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0;
		CREATE EXTENSION outbox;
		INSERT INTO outbox.messages (outbox_id, queue, event_id, event_type, priority, payload, headers, created_at)
		SELECT (lpad(to_hex(1600000000000 + g), 12, '0') || '70008000' || lpad(to_hex(g), 12, '0'))::uuid, 'default', gen_random_uuid(), 'e', 0, '1', '{}', now()
		FROM generate_series(1, current_setting('t.rows')::int) g;
		INSERT INTO outbox.attempts (outbox_id, attempt_no, state, completed_at) SELECT outbox_id, 1, 'DISPATCHED', now() FROM outbox.messages});
	return;
}

make(200000);
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
make(200000);
my $from = log_size($node);

$node->safe_psql('postgres', q{SELECT outbox.enqueue('present', '1')});
configure($node, 'outbox.worker' => 'on', log_min_messages => 'debug1');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 9 FROM pg_inherits WHERE inhparent IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass, 'outbox.events'::regclass)}),
	'the worker has made both pairs to come');
is(scalar(log_lines($node, $from, $reads)), 4, '... having read each DEFAULT partition once for each, to validate');
is(scalar(log_lines($node, $from, $implied)), 4, '... and not once more');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_constraint WHERE conname ~ 'excludes'}), '0', '... and no CHECK is left');
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.check() WHERE severity = 'error'}), '0', 'check() finds nothing');
$producer->quit;

# ---------------------------------------------------------------- the clock steps

# One call of maintain(), and what it did with partitions; it read none where it attached one.
sub maintain
{
	my ($name) = @_;
	my ($ret, $out, $err) = $node->psql('postgres',
		q{SET client_min_messages = debug1; SELECT action FROM outbox.maintain() WHERE object ~ 'messages' AND action ~ '^partition (made|prepared|left)'});

	die $err if $ret != 0;
	# One that reads in order to validate attaches nothing.
	ok($out !~ /made/ || $out =~ /prepared/ || $err !~ $reads, "$name: what is attached is not read for") or diag("$out\n$err");
	return $out;
}

SKIP:
{
	skip 'faketime is not installed', 1 unless defined faketime();
	configure($node, 'outbox.worker' => undef, log_min_messages => undef);
	$node->stop('fast');
	start_with_false_clock($node);
	my $day = 24 * 60 * 60;

	# After the first step, which excludes a week that begins in at most seven days, and after the second.
	# To a Wednesday: on a Sunday the next week may begin meanwhile. Back by one week: the next one is that which DEFAULT keeps.
	my $monday = -(((gmtime)[6] + 6) % 7);
	foreach my $case (map { my $after = $_; map { [ $after, $monday + 2 + 7 * $_ ] } 2, 5, -1 } 1, 2)
	{
		my ($after, $days) = @$case;
		my $name = "the clock steps by $days days after step $after";
		my $sent = 0;
		my $did = '';

		set_clock($node, 0);
		make(30000);
		$producer = session($node);
		$producer->query_safe(q{SELECT outbox.enqueue('present', '1')});
		$sent++;
		like(maintain($name), qr/^partition prepared$/, "$name: step $_") for 1 .. $after;
		set_clock($node, $days * $day);
		for (1 .. 12)
		{
			# A session with ids of before, and a new one.
			is($producer->query(q{SELECT created FROM outbox.enqueue('after', '1')}), 't', "$name: an enqueue");
			is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.enqueue_batch('default', '[{"event_type": "a", "payload": 1}, {"event_type": "b", "payload": 1}]')}), '2', '... a batch');
			$sent += 3;
			$did = maintain($name);
			last if $did eq '';
		}
		is($did, '', "$name: maintain() comes to an end");
		is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_constraint WHERE conname ~ 'excludes'}), '0', "$name: and leaves no CHECK");
		cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox.messages'::regclass}), '>', 1, "$name: there are partitions");
		is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.check() WHERE severity = 'error'}), '0', '... check() finds nothing');
		set_clock($node, 60 * $day);
		is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.claim('w', 1000)}), $sent, "$name: all messages are claimed");
		$producer->quit;
	}
}
$node->stop('fast');
done_testing();
