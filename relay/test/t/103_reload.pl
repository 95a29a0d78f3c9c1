# The configuration is read again while messages are in flight and something is away.
#
# Proves: what waits for a sink that was replaced goes to the new one at once, in the order of its key, though the old one
# answers nothing; a source that was replaced, and goes on looking for its database, is not seen in the place of the new one.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use RelayTest;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $receiver = start_receiver();
my $proxy = start_proxy(to => $node->host . '/.s.PGSQL.' . $node->port);
my $listen = free_port();

$node->safe_psql('postgres', q{SELECT outbox.create_queue('ordered', ordering => 'fifo')});

sub config
{
	my ($path, %source) = @_;
	my $port = delete $source{port};
	my $url = $receiver->url($path);
	my $config = relay_config($node, qq{
[sink.hooks]
type = "http"
allow_private = true
timeout = "1h"
max_in_flight = 2
headers = { to = "$path" }
[[route]]
url = "$url"
}, queues => '["default", "ordered"]', %source) =~ s/listen = ""/listen = "127.0.0.1:$listen"\ngrace = "10m"/r;

	return $port ? $config =~ s/dsn = "[^"]*"/dsn = "host=127.0.0.1 port=$port user=relay dbname=postgres"/r : $config;
}

sub page
{
	my ($path) = @_;

	return (tool([ 'curl', '-sS', '-m', '10', "http://127.0.0.1:$listen$path" ]))[0];
}

sub bodies
{
	my ($path, $count) = @_;

	return [ map { $_->{body} } $receiver->requests($path, count => $count) ];
}

# ---------------------------------------------------------------- a sink

$receiver->answer('/old', { never => 1 });
my $relay = start_relay(config('/old'));

$node->safe_psql('postgres', q{SELECT outbox.enqueue('e', '"held"') FROM generate_series(1, 2)});
$receiver->requests('/old', count => 2);
# Two may wait: the head of a key, and the one behind it.
$node->safe_psql('postgres', q{SELECT outbox.enqueue('e', to_jsonb(n), 'ordered', partition_key => 'k') FROM generate_series(1, 3) n});
wait_for(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM outbox.pending WHERE lease_token IS NOT NULL}) > 2 }, 'the next to wait for the sink');
reload($relay, config('/new'));
is_deeply(bodies('/new', 3), [ 1, 2, 3 ], 'what waits for a sink that was replaced goes to the new one, in order');
is_deeply(bodies('/old', 2), [ ('"held"') x 2 ], '... and what the old one has in its hands stays there');
$relay->kill9;

# ---------------------------------------------------------------- a source

$receiver->answer('/held', { never => 1 });
$relay = start_relay(config('/held', port => $proxy->port));
$node->safe_psql('postgres', q{SELECT outbox.enqueue('e', '"again"')});
$receiver->requests('/held', count => 1);
$proxy->to('127.0.0.1', free_port());
$proxy->cut;
wait_for(sub { page('/metrics') =~ /^outbox_source_up\{source="main"\} 0$/m }, 'the database to be away');
reload($relay, config('/held'));
wait_for(sub { page('/metrics') =~ /^outbox_source_up\{source="main"\} 1$/m }, 'the new source to be up');
wait_for(sub { page('/health/ready') =~ /^ready$/ }, '... and ready');
my $accepted = $proxy->stats->{accepted};
# Two connections an attempt: the one before has failed when the next one begins.
$proxy->wait_stats(sub { $_[0]{accepted} > $accepted + 2 });
like(page('/metrics'), qr/^outbox_source_up\{source="main"\} 1$/m, 'a source that was replaced is not seen in the place of the new one: metrics');
like(page('/health/ready'), qr/^ready$/, '... health');
$relay->kill9;

done_testing();
