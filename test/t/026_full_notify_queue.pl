# A full notification queue fails no producer, with or without a background worker.
#
# It holds 8 GB, and so this is for releases: OUTBOX_FULL_QUEUE=1. A session that listens and
# stays in a transaction keeps all that is sent from then on.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'OUTBOX_FULL_QUEUE=1 fills 8 GB' unless $ENV{OUTBOX_FULL_QUEUE};

my $node = new_node('main', preload => 1, conf => "outbox.worker = off\nfsync = off\nautovacuum = off");
my $listener = session($node);

$listener->query_safe('LISTEN x');
$listener->query_safe('BEGIN');

# As much as one transaction can hold in memory, until the next does not fit.
sub fill
{
	my ($payload, $count) = @_;
	my $code = 0;

	while ($code == 0)
	{
		$code = $node->psql('postgres', "SELECT count(pg_notify('x', repeat('x', $payload) || g)) FROM generate_series(1, $count) g",
			on_error_die => 0);
	}
	return;
}

fill(7900, 20000);
fill(7900, 1);
my ($code, $out, $err) = $node->psql('postgres', 'NOTIFY outbox_pending');
like($err, qr/too many notifications in the NOTIFY queue/, 'the queue is full');

($code, $out, $err) = $node->psql('postgres', q{SELECT created FROM outbox.enqueue('e', '1')});
is("$code $out", '0 t', 'without a worker, a producer commits');
like($err, qr/WARNING:  workers are not notified of new messages/, '... and is told that nobody else is');
is($node->safe_psql('postgres', q{SELECT event_type FROM outbox.claim('w')}), 'e', '... its message is there');

configure($node, 'outbox.worker' => 'on');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM outbox.workers WHERE kind = 'worker' AND pid IS NOT NULL}), 'with a worker');
($code, $out, $err) = $node->psql('postgres', q{SELECT created FROM outbox.enqueue('f', '1')});
is("$code $out $err", '0 t ', '... a producer commits, and hears nothing');
ok($node->poll_query_until('postgres', q{SELECT last_error ~ 'too many notifications' FROM outbox.workers WHERE kind = 'worker'}),
	'... it is the worker that is in trouble');

# Ended, since its COMMIT would have it read the 8 GB. Polls are an hour apart: that room is
# made, although nobody is left who listens, is the work of the notification that is tried again.
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'});
ok($node->poll_query_until('postgres', q{SELECT failures = 0 AND notified > 0 FROM outbox.workers WHERE kind = 'worker'}),
	'... until there is room');
$listener->quit;
$node->stop('fast');
done_testing();
