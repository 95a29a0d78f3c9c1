# The loop of the relay, with a sink that writes lines into a file.
#
# Proves: what is enqueued is delivered and recorded once, by a role that may do nothing but work; a notification is enough
# to be woken, and the poll as well; a message without a route, and one with a header of ours, is refused alone;
# a key of an ordered queue arrives in order; relays side by side do each message once; a server that restarts, a server that is
# away at the start, a queue that does not exist, and a configuration that becomes wrong cost nothing but time; TERM ends it with
# nothing left under lease.
use strict;
use warnings;

use BrokerTest;
use JSON::PP;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $files = new_folder('lines');
my $relay;

$node->safe_psql('postgres', q{
	CREATE ROLE relay LOGIN IN ROLE outbox_executor;
	SELECT outbox.create_queue('ordered', ordering => 'fifo');
	SELECT outbox.create_queue('other')});

# A configuration with the file sink; what stands in `more` comes last.
sub config
{
	my (%options) = @_;
	my $dsn = $options{dsn} // $node->connstr('postgres') . ' user=relay';

	return qq{
[relay]
listen = ""
[log]
level = "debug"
[[source]]
name = "main"
dsn = "$dsn"
queues = [ "default", "ordered", "other" ]
} . ($options{source} // "poll_interval = \"1h\"\n") . qq{
[sink.lines]
type = "file"
path = "$files/$options{file}"
} . ($options{more} // '');
}

sub reload
{
	my ($config) = @_;

	write_file("$relay->{folder}/relay.toml", $config);
	return $relay->signal('HUP');
}

# What the sink has got: one hash a line.
sub lines
{
	my ($file) = @_;

	return -e "$files/$file" ? map { decode_json($_) } split /\n/, slurp("$files/$file") : ();
}

sub wait_until_done
{
	return wait_for(sub { $node->safe_psql('postgres', 'SELECT count(*) FROM outbox.pending') == 0 }, 'everything is done');
}

# Whatever was done to it: each message once, and the ledger says so.
sub delivered_once
{
	my ($file, $where, $test) = @_;
	my @expected = split /\n/, $node->safe_psql('postgres', "SELECT outbox_id FROM outbox.messages WHERE $where ORDER BY 1");

	is_deeply([ sort map { $_->{headers}{outbox_id} } lines($file) ], \@expected, "$test: each message once (" . @expected . ')');
	is($node->safe_psql('postgres', qq{
			SELECT count(*) FROM outbox.messages m WHERE $where
				AND (SELECT string_agg(a.state::text, ' ') FROM outbox.attempts a WHERE a.outbox_id = m.outbox_id) IS DISTINCT FROM 'DISPATCHED'}),
		'0', "$test: ... and in the ledger");
	return;
}

# ---------------------------------------------------------------- what lies there, and what comes

$node->safe_psql('postgres', q{
	SELECT outbox.enqueue('first', to_jsonb(n), (ARRAY['default', 'other', 'ordered'])[1 + n % 3],
		partition_key => 'k' || n % 7, headers => '{"mine": "yes"}') FROM generate_series(1, 2000) n});

$relay = start_relay(config(file => 'first'));

wait_until_done();
delivered_once('first', "event_type = 'first'", 'backlog');
is($node->safe_psql('postgres', q{
		SELECT count(*) FROM outbox.attempts
		WHERE worker_id IS NULL OR latency_ms IS NULL OR error_code IS NOT NULL}), '0', '... with worker and latency');
my %last;
my $disorder = 0;
foreach my $line (grep { defined $_->{headers}{sequence_id} } lines('first'))
{
	$disorder++ if $line->{headers}{sequence_id} != ($last{ $line->{key} } // 0) + 1;
	$last{ $line->{key} } = $line->{headers}{sequence_id};
}
is($disorder, 0, '... keys of the ordered queue in order: ' . keys(%last));

# It does not poll: a notification wakes it.
$node->safe_psql('postgres', q{SELECT outbox.enqueue('first', '"notified"')});
wait_until_done();
delivered_once('first', "event_type = 'first'", 'notified');

# ---------------------------------------------------------------- faults of single messages

$node->safe_psql('postgres', q{
	SELECT outbox.enqueue('first', '1', headers => '{"outbox_id": "forged"}');
	SELECT outbox.enqueue('first', '2')});
wait_until_done();
is($node->safe_psql('postgres', q{SELECT error_code FROM outbox.dead_letters}), 'ILLEGAL_HEADER', 'a header that is ours is refused');
$node->safe_psql('postgres', q{SELECT outbox.acknowledge_dead(outbox_id, 'seen') FROM outbox.dead_letters});

# ---------------------------------------------------------------- configuration

reload(config(file => 'second', more => qq{
[[route]]
event_type = "second*"
sink = "lines"
}));
$relay->wait_log(qr/configuration was read again/);
$node->safe_psql('postgres', q{SELECT outbox.enqueue(e, '1') FROM unnest(ARRAY['second', 'second.more', 'unknown']) e});
wait_until_done();
delivered_once('second', "event_type LIKE 'second%'", 'after a reload');
is($node->safe_psql('postgres', q{SELECT event_type, error_code FROM outbox.dead_letters WHERE acknowledged_at IS NULL}), 'unknown|NO_ROUTE_CONFIGURED', '... and without a route');

reload(config(file => 'second', more => "[sink.x]\ntype = \"nonsense\"\n"));
$relay->wait_log(qr/configuration is wrong.*nonsense/);
$node->safe_psql('postgres', q{SELECT outbox.enqueue('second', '1')});
wait_until_done();
delivered_once('second', "event_type LIKE 'second%'", 'after a wrong configuration');

# ---------------------------------------------------------------- the server goes

$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', q{SELECT outbox.enqueue('second', to_jsonb(n)) FROM generate_series(1, 100) n});
wait_until_done();
delivered_once('second', "event_type LIKE 'second%'", 'after a crash of the server');

# ---------------------------------------------------------------- the end

$relay->signal('TERM');
is($relay->wait_end, 0, 'TERM: exit status 0');

# The server is away at the start, and a queue does not exist.
$node->stop('fast');
$relay = start_relay(config(file => 'third', source => qq{poll_interval = "100ms"\n}) =~ s/"other"/"other", "missing"/r);
$relay->wait_log(qr/database is away/);
$node->start;
$relay->wait_log(qr/could not claim.*missing/s);
$node->safe_psql('postgres', q{SELECT outbox.enqueue('third', to_jsonb(n), (ARRAY['default', 'other'])[1 + n % 2]) FROM generate_series(1, 100) n});
wait_until_done();
delivered_once('third', "event_type = 'third'", 'a queue that does not exist');
$relay->signal('TERM');
is($relay->wait_end, 0, 'TERM: exit status 0');

# ---------------------------------------------------------------- many of them

my @relays = map { start_relay(config(file => 'fourth')) } 1 .. 3;

$_->wait_log(qr/listening/) foreach @relays;
# Until more than one of them was at work.
wait_for(sub {
	$node->safe_psql('postgres', q{
		SELECT outbox.enqueue('fourth', to_jsonb(n), (ARRAY['default', 'ordered'])[1 + n % 2], partition_key => 'l' || n % 5) FROM generate_series(1, 1000) n});
	return $node->safe_psql('postgres', q{
		SELECT count(DISTINCT a.worker_id) FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id) WHERE m.event_type = 'fourth'}) > 1;
}, 'two relays to share the work');
wait_until_done();
delivered_once('fourth', "event_type = 'fourth'", 'three relays');
$_->signal('TERM') foreach @relays;
is(join(' ', map { $_->wait_end } @relays), '0 0 0', '... which end');
consistent($node, 'consistent');
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.attempts WHERE state = 'ZOMBIE_REQUEUE'}), '0', 'no lease was lost');

unlike(slurp($node->logfile), qr/permission denied/, 'nothing was asked that the role may not read');

$node->stop('fast');
done_testing();
