# Leases, limits, signals and secrets, with a receiver that holds what it is sent.
#
# Proves: leases of what the sink holds are renewed for as long as it takes; a delivery that is not answered in time is
# TIMEOUT, and a late answer changes nothing; what has lost its lease is not recorded; never more is under way
# than max_in_flight; a sink that holds its messages delays no other; behind the head of a key whose delivery fails
# nothing overtakes; what becomes free by a report is claimed with it. TERM gives back what was not handed over, and
# within the grace nothing arrives twice; after it what was handed over is recorded as not known; a second signal ends at
# once. HUP under load loses and doubles nothing. While there is nothing to do, the relay does nothing. No secret is seen
# anywhere.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use RelayTest;
use Test::More;

# Nothing is claimed because time has passed: each poll interval here is an hour.
my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $receiver = start_receiver();
my $file = new_folder('lines') . '/lines';

$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('held', backoff_base => '1 ms', backoff_cap => '1 ms', repair_delay => '0');
	SELECT outbox.create_queue('ordered', ordering => 'fifo', backoff_base => '1 ms', backoff_cap => '1 ms')});

# `sink` and `relay`: more keys; `source`: of the source.
sub config
{
	my (%options) = @_;

	return relay_config($node, qq{
[sink.receiver]
type = "http"
allow_private = true
} . ($options{sink} // '') . qq{
[sink.lines]
type = "file"
path = "$file"
[[route]]
event_type = "line"
sink = "lines"
[[route]]
sink = "receiver"
topic = "} . $receiver->url('/{event_type}') . qq{"
} . ($options{more} // ''), queues => '["held", "default", "ordered"]', poll_interval => '"1h"', %{ $options{source} // {} }) =~ s/\[relay\]\n/[relay]\n$options{relay}\n/r;
}

sub enqueue
{
	my ($event_type, $queue, $count, $key) = @_;

	$key = $key ? "'$key'" : 'NULL';
	return $node->safe_psql('postgres', qq{
		SELECT outbox_id FROM generate_series(1, $count) n, outbox.enqueue('$event_type', to_jsonb(n), '$queue', partition_key => $key)});
}

# Of the messages of a type: state and code of each attempt.
sub attempts
{
	my ($event_type) = @_;

	return $node->safe_psql('postgres', qq{
		SELECT coalesce(string_agg(concat_ws(' ', a.state, a.error_code), ', ' ORDER BY m.outbox_id, attempt_no), '')
		FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id) WHERE event_type = '$event_type'});
}

sub arrived
{
	my ($event_type) = @_;

	return $receiver->requests("/$event_type");
}

# Each message that was enqueued as that arrived once, and the ledger says so.
sub once
{
	my ($event_type, $count, $test) = @_;

	wait_until_done($node, "event_type = '$event_type'");
	is(scalar(arrived($event_type)), $count, "$test: each message arrived once");
	return proven($node, $test, [ map { $_->{headers}{outbox_id} } arrived($event_type) ], where => "event_type = '$event_type'");
}

sub ended
{
	my ($relay, $test, $status) = @_;

	is($relay->wait_end, $status // 0, "$test: exit status " . ($status // 0));
	return;
}

sub leased
{
	return $node->safe_psql('postgres', 'SELECT count(*) FROM outbox.pending WHERE claimed_by IS NOT NULL');
}

# Ticks of processor time that a process has used.
sub ticks
{
	my ($relay) = @_;
	my @stat = split ' ', slurp('/proc/' . $relay->pid . '/stat') =~ s/^.*\) //r;

	return $stat[11] + $stat[12];
}

# ---------------------------------------------------------------- leases

my $relay = start_relay(config(relay => '', sink => "timeout = \"1h\"\nmax_in_flight = 4\n", source => { lease => '"1s"' }));

$receiver->answer('/slow', { hold => 'head' });
enqueue('slow', 'held', 4);
$receiver->wait_held('/slow', 4);
my $claimed = $node->safe_psql('postgres', 'SELECT max(claimed_at) FROM outbox.pending');
my $before = ticks($relay);

# Some leases later, and the sink that is full keeps no other waiting.
$node->poll_query_until('postgres', "SELECT min(lease_expires_at) > '$claimed'::timestamptz + '4 s' FROM outbox.pending");
is($node->safe_psql('postgres', 'SELECT max(claimed_at) FROM outbox.pending'), $claimed, 'leases are renewed');
cmp_ok(ticks($relay) - $before, '<', 100, '... by a relay that sleeps meanwhile');
enqueue('slow', 'held', 100);
enqueue('line', 'default', 100);
wait_until_done($node, "event_type = 'line'");
is($receiver->held('/slow'), 4, 'a sink that is full does not delay another one');
$receiver->answer('/slow', {});
$receiver->release('/slow');
once('slow', 104, 'held');
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.attempts WHERE state <> 'DISPATCHED'}), 0, '... and no lease was lost');
my ($most) = sort { $b <=> $a } map { $_->{concurrent} } arrived('slow');
is($most, 4, '... at most max_in_flight at a time');

# A claim that is refused takes no outcome with it.
$receiver->answer('/refused', { hold => 'head' });
enqueue('refused', 'held', 4);
$receiver->wait_held('/refused', 4);
configure($node, 'outbox.max_batch' => 100);
enqueue('line', 'default', 1);
$relay->wait_log(qr/could not claim.*outbox\.max_batch/);
$receiver->answer('/refused', {});
$receiver->release('/refused');
once('refused', 4, 'while claims are refused');
configure($node, 'outbox.max_batch' => undef);
wait_until_done($node);

# A lease that an operator breaks: the answer is logged, and the message goes out once more.
$receiver->answer('/broken', { hold => 'head' });
my $id = enqueue('broken', 'held', 1);
$receiver->wait_held('/broken', 1);
$node->safe_psql('postgres', "SELECT outbox.break_lease('$id', 'test')");
$relay->wait_log(qr/a lease was lost.*$id/);
$receiver->wait_held('/broken', 2);
$receiver->answer('/broken', {});
$receiver->release('/broken');
$relay->wait_log(qr/outcome of a message whose lease was lost.*$id/);
wait_until_done($node);
is(attempts('broken'), 'ZOMBIE_REQUEUE LEASE_BROKEN, DISPATCHED', 'a broken lease');
proven($node, '...', [ map { $_->{headers}{outbox_id} } arrived('broken') ], where => "event_type = 'broken'");

# One that is cancelled meanwhile stays cancelled.
$receiver->answer('/cancelled', { hold => 'head' });
$id = enqueue('cancelled', 'held', 1);
$receiver->wait_held('/cancelled', 1);
$node->safe_psql('postgres', "SELECT outbox.cancel('$id', 'test', force => true)");
$relay->wait_log(qr/a lease was lost.*$id/);
$receiver->release('/cancelled');
$relay->wait_log(qr/outcome of a message whose lease was lost.*$id/);
unlike(attempts('cancelled'), qr/DISPATCHED/, 'a message that was cancelled');
$node->safe_psql('postgres', "SELECT outbox.acknowledge_dead('$id', 'test')");

# ---------------------------------------------------------------- keys in order

$receiver->answer('/key', { hold => 'head', status => 503 }, {});
enqueue('key', 'ordered', 1, 'k');
$receiver->wait_held('/key', 1);
enqueue('key', 'ordered', 9, 'k');
enqueue('line', 'default', 1);    # the claim that brings it saw the others
wait_until_done($node, "event_type = 'line'");
$receiver->release('/key');
wait_until_done($node);
is(join(' ', map { $_->{headers}{sequence_id} } arrived('key')), '1 1 2 3 4 5 6 7 8 9 10', 'a key whose head fails, and its order');
is(attempts('key'), 'RETRYABLE HTTP_503, ' . join(', ', ('DISPATCHED') x 10), '... and those behind it are untried');

# What waits behind a key that is under way goes on when it ends, and not at the next poll.
$receiver->answer('/next', { hold => 'head' }, {});
enqueue('next', 'ordered', 1, 'n');
$receiver->wait_held('/next', 1);
enqueue('next', 'ordered', 1, 'n');
enqueue('line', 'default', 1);
wait_until_done($node, "event_type = 'line'");
$receiver->release('/next');
once('next', 2, 'the next of a key');
$relay->signal('TERM');
ended($relay, 'TERM');

# ---------------------------------------------------------------- timeouts

$relay = start_relay(config(relay => '', sink => "timeout = \"500ms\"\n"));
$receiver->answer('/late', { hold => 'head' }, {});
enqueue('late', 'held', 1);
$receiver->wait_held('/late', 1);
wait_for(sub { attempts('late') =~ /TIMEOUT/ }, 'the timeout');
$receiver->release('/late');
wait_until_done($node);
is(attempts('late'), 'RETRYABLE TIMEOUT, DISPATCHED', 'a late answer changes nothing');
proven($node, '...', [ map { $_->{headers}{outbox_id} } arrived('late') ], where => "event_type = 'late'");
$relay->signal('TERM');
ended($relay, 'TERM');

# ---------------------------------------------------------------- the end, at load

# TERM: the four that are held may finish; what waits goes back, and to the next one.
$relay = start_relay(config(relay => '', sink => "max_in_flight = 4\n"));
$receiver->answer('/term', { hold => 'head' });
enqueue('term', 'held', 500);
enqueue('term', 'ordered', 50, 'k');
$receiver->wait_held('/term', 4);
$relay->signal('TERM');
wait_for(sub { leased() == 4 }, 'the rest to be given back');
$receiver->answer('/term', {});
$receiver->release('/term');
ended($relay, 'TERM at load');
is(leased(), 0, '... and nothing is under lease');
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.pending}), 546, '... or was tried after it');
$relay = start_relay(config(relay => ''));
once('term', 550, '... and the next one');

# Under load, with a fast sink.
enqueue('fast', 'held', 1000);
wait_for(sub { arrived('fast') > 100 }, 'some to arrive');
$relay->signal('TERM');
ended($relay, 'TERM at full speed');
is(leased(), 0, '... and nothing is under lease');
$relay = start_relay(config(relay => ''));
once('fast', 1000, '... and the next one');
$relay->signal('TERM');
ended($relay, '...');

# The grace is over.
$relay = start_relay(config(relay => 'grace = "200ms"', sink => "max_in_flight = 4\n"));
$receiver->answer('/over', { hold => 'head' });
enqueue('over', 'held', 100);
$receiver->wait_held('/over', 4);
$relay->signal('TERM');
ended($relay, 'after the grace');
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.pending WHERE claimed_by IS NULL}), 100, '... nothing is under lease');
is(attempts('over'), join(', ', ('RETRYABLE SINK_STOPPED') x 4), '... and what was handed over is not known');
$receiver->answer('/over', {});
$receiver->release('/over');

# Twice.
$relay = start_relay(config(relay => ''));
$receiver->answer('/twice', { hold => 'head' });
enqueue('twice', 'held', 1);
$receiver->wait_held('/twice', 1);
$relay->signal('TERM');
$relay->wait_log(qr/stopping/);
$relay->signal('INT');
ended($relay, 'a second signal', 1);
$receiver->answer('/twice', {});
$receiver->release('/twice');
$node->safe_psql('postgres', q{SELECT outbox.break_lease(outbox_id, 'test') FROM outbox.pending WHERE claimed_by IS NOT NULL});

# ---------------------------------------------------------------- HUP at load

$relay = start_relay(config(relay => ''));
wait_until_done($node);
foreach my $round (1, 2)
{
	foreach my $changed (
		config(relay => ''),
		config(relay => '', source => { batch => 7 }),
		config(relay => '', sink => "max_in_flight = $round\n"),
		config(relay => '', more => qq{[sink.more]\ntype = "discard"\n}),
		config(relay => '') =~ s/event_type = "line"/event_type = "nothing"/r)
	{
		enqueue('hup', 'held', 100);
		enqueue('hup', 'ordered', 20, "k$round");
		reload($relay, $changed);
	}
}
reload($relay, config(relay => ''));
once('hup', 1200, 'HUP at load');
$relay->signal('TERM');
ended($relay, '...');

consistent($node, 'consistent');
$node->stop('fast');
done_testing();
