# outbox.hold: a copy that must not deliver.
#
# Proves: with outbox.hold, in the configuration file or of the database, the background worker
# notifies nobody and claims return nothing; the worker goes on by itself once it is off.
use strict;
use warnings;

use OutboxTest;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.hold = on\noutbox.poll_interval = '100ms'");
my $listener = listener($node);

# What was heard until now, but for the mark that is sent after it.
sub heard_so_far
{
	my ($from) = @_;

	$node->safe_psql($from->{database}, "NOTIFY outbox_pending, 'mark'");
	hear($from, 'mark');
	return join ' ', grep { $_ ne 'mark' } map { $_->[0] } @{ $from->{heard} };
}

wait_for_worker($node);
$node->safe_psql('postgres', q{SELECT outbox.enqueue('e', '1')});
wait_for_rounds($node, 'worker', 'postgres', 3);
is(heard_so_far($listener), '', 'the worker notifies nobody');
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.claim('w', wait => '200 ms')}), '0', 'a claim returns nothing');
is($node->safe_psql('postgres', q{SELECT string_agg(object, ' ') FROM outbox.check()}), 'outbox.hold', 'check() says so');
configure($node, 'outbox.hold' => 'off');
ok(hear($listener, 'default'), 'once it is off, the worker notifies');
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.claim('w')}), '1', '... and a claim returns it');

# Of one database, whose worker begins after that.
$node->safe_psql('postgres', 'CREATE DATABASE copy');
$node->safe_psql('postgres', 'ALTER DATABASE copy SET outbox.hold = on');
$node->safe_psql('copy', q{CREATE EXTENSION outbox; SELECT outbox.enqueue('e', '1')});
wait_for_worker($node, database => 'copy');

my $other = listener($node, database => 'copy');

wait_for_rounds($node, 'worker', 'copy', 3);
is(heard_so_far($other), '', 'a database of its own: nobody is notified');
is($node->safe_psql('copy', q{SELECT count(*) FROM outbox.claim('w')}), '0', '... and nothing claimed');
# Without a worker, producers notify for themselves.
configure($node, 'outbox.worker' => 'off');
wait_for_no_worker($node, 'copy');
$node->safe_psql('copy', q{SELECT outbox.enqueue('e', '1')});
is(heard_so_far($other), '', '... nor by a producer, where there is no worker');
$node->safe_psql('postgres', 'ALTER DATABASE copy RESET outbox.hold');
is($node->safe_psql('copy', q{SELECT count(*) FROM outbox.claim('w')}), '2', '... until it is reset');
$_->{session}->quit foreach $listener, $other;
$node->stop;
done_testing();
