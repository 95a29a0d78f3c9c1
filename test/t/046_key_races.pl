# A claim that fails at a key whose leases are limited, while another session waits for the key.
#
# Proves: who met the key while it was locked is woken when the claim that locked it is canceled, also where the error is
# caught in a subtransaction. Meanwhile it sleeps, and does not look again and again.
#
# Needs a library made with STOP_POINTS=1.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.poll_interval = '1h'");

make_stop_points($node);
$node->safe_psql('postgres', q{SELECT outbox.create_queue('l', max_in_flight_per_key => 1)});
wait_for_worker($node);

my %claims = (
	'a claim' => q{SELECT event_type FROM outbox.claim('first', 9, queues => '{l}')},
	'a claim in a subtransaction' => q{BEGIN; DO $$
		BEGIN
			PERFORM outbox.claim('first', 9, queues => '{l}');
		EXCEPTION WHEN query_canceled THEN
			NULL;
		END $$});

foreach my $name (sort keys %claims)
{
	my ($first, $second) = (session($node), session($node));

	$node->safe_psql('postgres', qq{SELECT outbox.enqueue('$name', '1', 'l', partition_key => '$name')});
	arm($node, 'key_counted', $first->{outbox_pid});
	start_query($first, $claims{$name});
	stands_at($node, 'key_counted');
	$second->query_safe('SET client_min_messages = debug1');
	start_query($second, q{SELECT event_type FROM outbox.claim('second', queues => '{l}', wait => '1 day')});
	$node->poll_query_until('postgres', "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $second->{outbox_pid}") or die;
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($first->{outbox_pid})");
	release($node, 'key_counted');
	my ($output, $messages) = result_of($second);
	my $looks = () = $messages =~ /looking for work/g;
	is($output, $name, "$name is canceled: who waits for its key gets the message");
	# One before it sleeps, one when it is woken, and perhaps one for the enqueue.
	cmp_ok($looks, '<=', 3, '... and has slept meanwhile');
	$_->quit foreach $first, $second;
}

consistent($node, 'nothing lost, nothing twice');
$node->stop('fast');
done_testing();
