# Scan floors, with a commit and a claim stopped between each two of their steps.
#
# Proves: a claim that raises a floor cannot leave behind what a commit makes claimable
# below it, wherever the two meet; one that ends in the middle leaves the floor for others
# to raise; one whose queue is dropped meanwhile raises no floor of another queue's.
#
# Needs a library made with STOP_POINTS=1. Without a background worker, so that nothing but
# these sessions touches the floors.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.worker = off\nautovacuum = off\noutbox.max_queues = 16");
my ($producer, $worker, $other) = map { session($node) } 1 .. 3;
my ($producer_pid, $worker_pid) = map { $_->query_safe('SELECT pg_backend_pid()') } $producer, $worker;

make_stop_points($node);
$node->safe_psql('postgres', q{SELECT outbox.create_queue('a', repair_delay => '0')});

my $claim = q{SELECT coalesce(string_agg(event_type, ' ' ORDER BY event_type), 'nothing') FROM outbox.claim('w', 10, queues => ARRAY['a'])};
# A message that is due before it was said.
sub due_at
{
	my ($type, $time) = @_;

	return qq{DO \$\$ BEGIN PERFORM outbox.enqueue('$type', '1', 'a');
		UPDATE outbox.pending p SET next_attempt_at = $time
		FROM outbox.messages m WHERE m.outbox_id = p.outbox_id AND m.event_type = '$type'; END \$\$};
}
my $small = due_at('small', q{'2001-01-01'});
my $great = q{SELECT outbox.enqueue('great', '1', 'a')};
# Due after the floor and before the great one.
my $middle = due_at('middle', q{(SELECT min(next_attempt_at) - interval '1 us' FROM outbox.pending)});

# The floor lies far above the small message and below the great one, with a finished one
# between the two: a claim raises it.
sub prepare
{
	my $end = q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending};

	$other->query_safe($end);
	$other->query_safe($claim) for 1 .. 2;
	$other->query_safe($great);
	$other->query_safe($end);
	$other->query_safe($great);
	return;
}

# What the worker's claim was to find, and what is found after it.
sub then_found
{
	my ($expected, $name) = @_;

	is(join(' ', sort grep { $_ ne 'nothing' } split(/ /, result_of($worker)), split(/ /, $other->query_safe($claim))), $expected, $name);
	return;
}

# ---------------------------------------------------------------- the commit stands still

# It is visible, and has not lowered the floor.
prepare();
arm($node, 'commit_before_lower', $producer_pid);
start_query($producer, $small);
stands_at($node, 'commit_before_lower', $producer_pid);
is($other->query_safe($claim), 'great', 'a claim that begins before a commit has lowered the floor does not see it');
$other->query_safe($claim) for 1 .. 2;
release($node, 'commit_before_lower');
result_of($producer);
is($other->query_safe($claim), 'small', '... once the commit has ended it is found');

# ---------------------------------------------------------------- the claim stands still

# A whole transaction falls into each gap of the claim that raises: the floor not yet taken, taken, about to be raised.
foreach my $point ('raise_before_taken', 'raise_taken', 'raise_before_set')
{
	prepare();
	arm($node, $point, $worker_pid);
	start_query($worker, $claim);
	stands_at($node, $point, $worker_pid);
	$producer->query_safe($small);
	release($node, $point);
	then_found('great small', "$point: a message is committed below the floor that is being raised");

	# The floor need not be lowered for this one: only the note tells of it.
	prepare();
	arm($node, $point, $worker_pid);
	start_query($worker, $claim);
	stands_at($node, $point, $worker_pid);
	$producer->query_safe($middle);
	# Whoever walks meanwhile must leave the note to the one who raises.
	$other->query_safe("BEGIN; $claim; ROLLBACK");
	release($node, $point);
	then_found('great middle', '... and one where it is to be raised over, which another claim took and gave back');
}

# Visible before the floor is taken, and lowered after it is raised.
prepare();
arm($node, 'commit_before_lower', $producer_pid);
start_query($producer, $small);
stands_at($node, 'commit_before_lower', $producer_pid);
arm($node, 'raise_before_set', $worker_pid);
start_query($worker, $claim);
stands_at($node, 'raise_before_set', $worker_pid);
release($node, 'raise_before_set');
result_of($worker);
release($node, 'commit_before_lower');
result_of($producer);
$other->query_safe($claim);
is($other->query_safe("SELECT count(*) FROM outbox.pending WHERE claimed_by IS NOT NULL"), '2', 'a commit lowers what was raised over its message');

# ---------------------------------------------------------------- the claim ends

prepare();
arm($node, 'raise_before_set', $worker_pid);
start_query($worker, $claim);
stands_at($node, 'raise_before_set', $worker_pid);
arm($node, 'raise_taken', $other->{outbox_pid});
start_query($other, "/* meanwhile */ $claim");
$node->poll_query_until('postgres', qq{SELECT reached('raise_taken') = pid OR state = 'idle' AND query ~ '^/. meanwhile'
	FROM pg_stat_activity WHERE pid = $other->{outbox_pid}}) or die;
is($node->safe_psql('postgres', "SELECT reached('raise_taken') = $other->{outbox_pid}"), 'f', 'while one raises, no other does');
release($node, 'raise_taken');
is(result_of($other), 'great', '... it claims');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker_pid)");
$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $worker_pid") or die;
release($node, 'raise_before_set');
$other->query_safe($_) foreach q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending}, $great;
arm($node, 'raise_before_set');
start_query($other, $claim);
stands_at($node, 'raise_before_set', $other->{outbox_pid});
pass('... and if it ends in the middle, the next one may raise');
release($node, 'raise_before_set');
result_of($other);

# ---------------------------------------------------------------- the slot becomes another queue's

my $other_pid = $other->query_safe('SELECT pg_backend_pid()');

$node->safe_psql('postgres', q{SELECT outbox.create_queue('last')});
$node->safe_psql('postgres', q{SELECT outbox.create_queue('filler ' || n) FROM generate_series(1, 16 - (SELECT count(*) FROM outbox.queue_stats())) n});
foreach my $point ('raise_before_taken', 'raise_taken', 'raise_before_set')
{
	arm($node, $point, $other_pid);
	start_query($other, $claim =~ s/'a'/'last'/r);
	stands_at($node, $point, $other_pid);
	$node->safe_psql('postgres', q{SELECT outbox.drop_queue('last')});
	$node->safe_psql('postgres', q{SELECT outbox.create_queue('next')});
	is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.queue_stats() WHERE queue = 'next'}), '1', "$point: a claim stands while its queue is dropped, whose slot another one gets");
	$producer->query_safe(q{SELECT outbox.enqueue('of ' || p, '1', 'next', priority => p) FROM generate_series(0, 15) p});
	release($node, $point);
	is(result_of($other), 'nothing', '... it finds nothing');
	is($other->query_safe(q{SELECT count(*) FROM outbox.claim('w', 99, queues => ARRAY['next'])}), '16', '... and hides nothing of the other queue');
	$node->safe_psql('postgres', q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending WHERE queue = 'next'});
	$node->safe_psql('postgres', q{SELECT outbox.drop_queue('next')});
	$node->safe_psql('postgres', q{SELECT outbox.create_queue('last')});
}

consistent($node, 'nothing lost, nothing twice');
$_->quit foreach $producer, $other;
$node->stop('fast');
done_testing();
