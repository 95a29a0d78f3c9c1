# The server's clock steps back while a claim is at work.
#
# Proves: no claim takes its own leases for expired ones: it leases no message twice, and records no loss.
#
# Needs a library made with STOP_POINTS=1.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'no libfaketime' unless faketime();

my $node = new_node('main', preload => 1, conf => "outbox.worker = off\nautovacuum = off");

$node->stop('fast');
start_with_false_clock($node);
make_stop_points($node);

my $worker = session($node);
my $pid = $worker->query_safe('SELECT pg_backend_pid()');

# One of the three that the claim meets first ends, so that it looks for another.
$node->safe_psql('postgres', q{
	SELECT outbox.enqueue('ends', '1', max_attempts => 1);
	SELECT outbox.claim('lost', 1, '1 s');
	SELECT outbox.enqueue(e, '1') FROM unnest('{a,b}'::text[]) e});
set_clock($node, 7200);
arm($node, 'raise_before_taken', $pid);
start_query($worker, q{SELECT string_agg(event_type, ' ' ORDER BY event_type) FROM outbox.claim('w', 3)});
stands_at($node, 'raise_before_taken', $pid);
set_clock($node, 3600);
release($node, 'raise_before_taken');
is(join("\n", result_of($worker)), "a b\n", 'a claim during which the clock steps back leases each message once');
is($node->safe_psql('postgres', q{SELECT event_type, state, error_code FROM outbox.attempts JOIN outbox.messages USING (outbox_id)}), 'ends|FAILED|LEASE_EXPIRED',
	'... and records no loss of its own leases');
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.claim('x')}), '0', '... which are held');
$worker->quit;
$node->stop('fast');
done_testing();
