# The database goes: killed, cut off in the middle of a frame, mute, refusing, replaced by its standby.
#
# Proves: whatever happens to the connections, each committed message is accepted as often as the ledger says; the relay goes
# on by itself; an outcome that could not be recorded is recorded afterwards, if the lease still holds, and otherwise the
# log and a metric say so and the message is delivered again; a server that does not answer is left after the
# relay's patience, which costs no processor time; one that answers slowly is not, and less is claimed from it at once, so that the
# leases do not run out on the way; with several hosts the primary is found; on a standby the relay waits for its promotion; a source that is away delays
# no other.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use RelayTest;
use Test::More;

seed();

my $node = new_node('main', preload => 1, streaming => 1, conf => "outbox.notify_gather = '1ms'");
my $receiver = start_receiver();
my $proxy = start_proxy(to => $node->host . '/.s.PGSQL.' . $node->port);
my $file = new_folder('lines') . '/lines';
my $listen = free_port();

$node->safe_psql('postgres', q{CREATE DATABASE other});
$node->safe_psql('other', q{CREATE EXTENSION outbox});

sub sinks
{
	return qq{
[sink.lines]
type = "file"
path = "$file"
[sink.receiver]
type = "http"
allow_private = true
[[route]]
event_type = "held*"
sink = "receiver"
topic = "} . $receiver->url('/{event_type}') . qq{"
[[route]]
sink = "lines"
};
}

# What was claimed by a connection that broke comes back soon.
my $direct = relay_config($node, sinks(), poll_interval => '"1h"', lease => '"1s"');
my $through = through($proxy, sinks(), lease => '"1s"') =~ s/listen = ""/listen = "127.0.0.1:$listen"/r;

sub through
{
	my ($to, @what) = @_;

	return relay_config($node, @what) =~ s/dsn = "[^"]*"/dsn = "host=127.0.0.1 port=${\ $to->port } user=relay dbname=postgres"/r;
}

sub enqueue
{
	my ($event_type, $count, $database) = @_;

	return $node->safe_psql($database // 'postgres', qq{
		SELECT outbox_id FROM generate_series(1, $count) n, outbox.enqueue('$event_type', to_jsonb(n))});
}

sub lines
{
	my ($event_type) = @_;

	return grep { $_->{headers}{event_type} eq $event_type } map { from_json($_) } -e $file ? split /\n/, slurp($file) : ();
}

sub count_lines
{
	my ($event_type) = @_;

	return -e $file ? scalar(() = slurp($file) =~ /"event_type":"$event_type"/g) : 0;
}

sub written
{
	my ($event_type, $test, $where) = @_;

	wait_until_done($where // $node, "event_type = '$event_type'");
	return proven($where // $node, $test, [ map { $_->{headers}{outbox_id} } lines($event_type) ], where => "event_type = '$event_type'");
}

sub attempts
{
	my ($event_type) = @_;

	return $node->safe_psql('postgres', qq{
		SELECT coalesce(string_agg(a.state::text, ' ' ORDER BY attempt_no), '')
		FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id) WHERE event_type = '$event_type'});
}

sub ended
{
	my ($relay, $test) = @_;

	$relay->signal('TERM');
	return is($relay->wait_end, 0, "$test: exit status 0");
}

sub ticks
{
	my ($relay) = @_;
	my @stat = split ' ', slurp('/proc/' . $relay->pid . '/stat') =~ s/^.*\) //r;

	return $stat[11] + $stat[12];
}

# ---------------------------------------------------------------- killed

my $relay = start_relay($direct);

foreach my $round (1 .. 3)
{
	enqueue('crash', 300);
	my $lines = int rand 300;
	wait_for(sub { count_lines('crash') >= $lines }, 'some lines');
	$node->stop('immediate');
	$node->start;
}
enqueue('crash', 1);
written('crash', 'a server that is killed');
ended($relay, '...');

# ---------------------------------------------------------------- cut off

# Beside it a claim whose answer takes longer than the relay's patience with a server that is silent.
my $patient_proxy = start_proxy(to => $node->host . '/.s.PGSQL.' . $node->port);
$patient_proxy->slow(100_000);
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('patient', lease => '10 min');
	SELECT outbox.create_queue('large', max_attempts => NULL, backoff_base => '1 ms', backoff_cap => '1 ms');
	SELECT outbox.enqueue('patient', to_jsonb(repeat('x', 100000)), 'patient') FROM generate_series(1, 32)});
my $patient = start_relay(through($patient_proxy, sinks(), queues => '["patient"]'));

$relay = start_relay($through);
foreach my $round (1 .. 15)
{
	$proxy->cut_after(int rand 30_000, rand(2) < 1 ? 'up' : 'down');
	enqueue('cut', 100);
	$proxy->wait_stats(sub { $_[0]{cuts} >= $round || $node->safe_psql('postgres', 'SELECT count(*) FROM outbox.pending WHERE claimed_by IS NULL') == 0 });
}
$proxy->resume;
written('cut', 'connections that are cut');

# A server that says nothing.
$proxy->hole;
enqueue('mute', 100);
my $ticks = ticks($relay);
$relay->wait_log(qr/has not answered for \d+ s/);
cmp_ok(ticks($relay) - $ticks, '<', 300, 'a mute server: the relay sleeps');
$proxy->resume;
written('mute', '... and goes on when it is left');
ended($relay, '...');

# An outcome that comes while the database is away.
$relay = start_relay($through =~ s/lease = "1s"\n//r);
foreach my $lost (0, 1)
{
	my $type = "held$lost";

	$receiver->answer("/$type", { hold => 'head' });
	my $id = enqueue($type, 1);
	$receiver->wait_held("/$type", 1);
	$proxy->refuse;
	$proxy->cut;
	$relay->wait_log(qr/database is away.*\z/s);
	$node->safe_psql('postgres', "SELECT outbox.break_lease('$id', 'test')") if $lost;
	$receiver->answer("/$type", {});
	$receiver->release("/$type");
	$relay->wait_log(qr/delivery source=main outbox_id=$id.*class=accepted/);
	is(attempts($type), $lost ? 'ZOMBIE_REQUEUE' : '', 'an outcome is kept while the database is away');
	$proxy->resume;
	wait_until_done($node);
	is(attempts($type), $lost ? 'ZOMBIE_REQUEUE DISPATCHED' : 'DISPATCHED', '... and recorded afterwards' . ($lost ? ' by the next delivery' : ''));
	proven($node, '...', [ map { $_->{headers}{outbox_id} } $receiver->requests("/$type") ], where => "event_type = '$type'");
	is(scalar($receiver->requests("/$type")), 1 + $lost, '... arrived');
}
like($relay->log, qr/an outcome was not recorded, since the lease was lost/, '... and the log says so');
like(tool([ 'curl', '-sS', "http://127.0.0.1:$listen/metrics" ]), qr/^outbox_outcomes_unrecorded_total\S* 1$/m, '... and a metric');
ended($relay, '...');

# ---------------------------------------------------------------- slow

written('patient', 'a claim whose answer takes more than 30 s');
unlike($patient->log, qr/database is away/, '... by a server that is not given up');
ended($patient, '...');

# 3 s for a lease of one.
$patient_proxy->slow(1_000_000);
$node->safe_psql('postgres', q{SELECT outbox.enqueue('large', to_jsonb(repeat('x', 100000)), 'large') FROM generate_series(1, 30)});
$relay = start_relay(through($patient_proxy, sinks(), queues => '["large"]', lease => '"1s"'));
written('large', 'messages whose leases would run out on the way');
ended($relay, '...');

# ---------------------------------------------------------------- two of them

$proxy->refuse;
$relay = start_relay($direct . qq{
[[source]]
name = "other"
dsn = "host=127.0.0.1 port=${\ $proxy->port } user=relay dbname=other"
poll_interval = "1h"
});
$relay->wait_log(qr/database is away source=other/);
enqueue('first', 1000);
enqueue('second', 1000, 'other');
written('first', 'a source beside one that is away');
is(scalar(lines('second')), 0, '... which is away');
$proxy->resume;
wait_for(sub { $node->safe_psql('other', 'SELECT count(*) FROM outbox.pending') == 0 }, 'the other source');
is(scalar(lines('second')), 1000, '... and comes back');
ended($relay, '...');

# ---------------------------------------------------------------- replaced

my $standby = PostgreSQL::Test::Cluster->new('standby');

$node->backup('backup');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
my ($hosts, $ports) = map { my $what = $_; join ',', map { $_->$what } $standby, $node } qw(host port);

$relay = start_relay($direct =~ s/dsn = "[^"]*"/dsn = "host=$hosts port=$ports user=relay dbname=postgres"/r);
enqueue('failover', 500);
wait_for(sub { count_lines('failover') > 100 }, 'some lines');
# One whose dsn takes what it gets.
my $any = start_relay($direct =~ s/dsn = "[^"]*"/dsn = "${\ $standby->connstr('postgres') } user=relay target_session_attrs=any"/r);
$any->wait_log(qr/could not listen source=main code=25006 error=".*; the server is a standby or read-only: promote it/);
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
$node->stop('fast');
$standby->promote;
$standby->safe_psql('postgres', q{SELECT outbox.enqueue('failover', '1') FROM generate_series(1, 500)});
written('failover', 'a failover', $standby);
ended($relay, '...');
$any->wait_log(qr/connected; listening/);
ended($any, 'a relay that waited for a standby to be promoted');

consistent($standby, 'consistent');
$standby->stop('fast');
done_testing();
