# What the relay holds in memory.
#
# Proves: it does not grow with the number of messages that were delivered or refused, nor with the number of those that wait while the
# sink refuses connections or takes them and never answers. bench/relay_memory does the same with millions.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use RelayTest;
use Test::More;

plan skip_all => 'a sanitizer keeps what was freed' if ($ENV{OUTBOX_RELAY} // '') =~ m{/build-[^/]+/outbox-relay$};

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'\nsynchronous_commit = off\nfsync = off\nmax_wal_size = '4GB'");
my $receiver = start_receiver();
my $closed = free_port();

$node->safe_psql('postgres', q{
	SELECT outbox.alter_queue('default', backoff_base => '1 s', backoff_cap => '1 s', max_attempts => NULL);
	CREATE FUNCTION enqueue_many(first int, last int) RETURNS bigint LANGUAGE sql AS $$
		SELECT count(*) FROM generate_series(first, last, 5000) s, outbox.enqueue_batch('default', (
			SELECT jsonb_agg(jsonb_build_object('event_type', 'type' || n % 300, 'aggregate_id', 'a' || n % 1000, 'payload', n,
				'headers', jsonb_build_object('traceparent', '00-' || md5(n::text) || '-' || left(md5(n::text), 16) || '-01',
					CASE n % 1000 WHEN 0 THEN 'outbox_id' ELSE 'tenant' END, 't' || n % 100)))
			FROM generate_series(s, s + 4999) n))
	$$});

# In kB, what is its own.
sub memory
{
	my ($relay) = @_;

	return slurp('/proc/' . $relay->pid . '/status') =~ /^RssAnon:\s+(\d+) kB/m ? $1 : die 'no RssAnon';
}

# ---------------------------------------------------------------- many that are delivered

my $chunk = 20_000;
my $relay = start_relay(relay_config($node, qq{[sink.nowhere]\ntype = "discard"\n}) =~ s/"debug"/"error"/r);
my @memory;

foreach my $number (0 .. 9)
{
	$node->safe_psql('postgres', "SELECT enqueue_many($number * $chunk + 1, ($number + 1) * $chunk)");
	wait_until_done($node);
	push @memory, memory($relay);
}
note("kB after each $chunk messages: @memory");
is($node->safe_psql('postgres', q{SELECT state, count(*) FROM outbox.attempts GROUP BY 1 ORDER BY 1}), "DISPATCHED|199800\nFAILED|200", 'each was delivered or refused');
# 24 bytes a message would be too much.
cmp_ok($memory[9] - $memory[2], '<', 24 * 7 * $chunk / 1024, 'the last 140,000 messages of 200,000 leave nothing behind');
$relay->signal('TERM');
is($relay->wait_end, 0, 'TERM: exit status 0');

# ---------------------------------------------------------------- many that wait

# 20 kB each, so 400 MB in all; 2,000 of them, which is max_in_flight, are 40 MB.
$node->safe_psql('postgres', qq{SELECT count(*) FROM generate_series(1, $chunk) n, outbox.enqueue('waits', to_jsonb(n || repeat('x', 20000)))});
$receiver->answer('*', { never => 1 });

foreach my $away ([ "http://127.0.0.1:$closed/" => 'refuses connections' ], [ $receiver->url('/') => 'never answers' ])
{
	my ($url, $what) = @$away;
	my $most = 0;

	$relay = start_relay(relay_config($node, qq{[sink.away]\ntype = "http"\nallow_private = true\ntimeout = "1s"\n[[route]]\nurl = "$url"\n}));
	wait_for(sub {
		my $now = memory($relay);

		$most = $now if $now > $most;
		return (() = $relay->log =~ /the sink is (?:still )?away/g) >= 3;
	}, 'the sink to be away');
	note("a sink that $what: $most kB");
	cmp_ok($most, '<', 100_000, "a sink that $what: of 400 MB that wait, few are in memory");
	$relay->signal('TERM');
	is($relay->wait_end, 0, '... TERM: exit status 0');
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.pending}), $chunk, '... and all of them wait');

consistent($node, 'consistent');
$node->stop('fast');
done_testing();
