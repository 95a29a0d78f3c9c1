# What the tests of the relay under load share: producers that go on while something dies, and whether keys came in order.
#
#   load_queues($node)               queues default and ordered (fifo), with leases and pauses as short as the tests want them
#   start_load($node, $type)         messages of that event_type into both, in order of five keys there, until stop_load($node)
#   wait_progress($node, $type, $n)  until so many more of them are accepted than are now
#   wait_leases($node, $since)       until each lease that was there at that time of the server has run out twice; without
#                                    $since, now. server_time($node) is one
#   kill_often($relay, $rounds)      so many times: it starts, works until it has written a random amount to its log, and is killed by
#                                    kill -9. The last one lives on. Wants seed()
#   in_order($node, $test, $type, @headers)  of the records of the ordered queue, in the order in which the broker has them: no
#                                    consumer sees k after k + 1 for the first time, whatever comes twice
#
# Guarantees: a machine that is busy carries the load; what waits, waits for the ledger or for the server's clock.
package RelayLoad;

use strict;
use warnings;

use BrokerTest;
use Exporter 'import';
use OutboxTest;
use Test::More;

our @EXPORT = qw(load_queues start_load stop_load wait_progress wait_leases server_time kill_often in_order);
my @producers;

sub load_queues
{
	my ($node) = @_;

	$node->safe_psql('postgres', q{
		SELECT outbox.alter_queue('default', lease => '2 s', backoff_base => '50 ms', backoff_cap => '200 ms', repair_delay => '0', max_attempts => 1000);
		SELECT outbox.create_queue('ordered', ordering => 'fifo', lease => '2 s', backoff_base => '50 ms', backoff_cap => '200 ms', repair_delay => '0', max_attempts => 1000);
		CREATE TABLE load_runs()});
	return;
}

sub start_load
{
	my ($node, $type) = @_;

	$node->safe_psql('postgres', 'INSERT INTO load_runs DEFAULT VALUES');
	foreach my $queue (qw(default ordered))
	{
		my $session = session($node);

		start_query($session, qq{
			DO \$\$
			DECLARE n int := 0;
			BEGIN
				WHILE EXISTS (SELECT FROM load_runs) LOOP
					PERFORM outbox.enqueue('$type', to_jsonb(n), '$queue', partition_key => 'k' || n % 5);
					n := n + 1;
					COMMIT;
					PERFORM pg_sleep(0.02);
				END LOOP;
			END \$\$});
		push @producers, $session;
	}
	return;
}

sub stop_load
{
	my ($node) = @_;

	$node->safe_psql('postgres', 'DELETE FROM load_runs');
	foreach my $session (splice @producers)
	{
		my ($output, $error) = result_of($session);

		is($error, '', 'a producer has met no error');
		$session->quit;
	}
	return;
}

sub wait_progress
{
	my ($node, $type, $count) = @_;
	my $accepted = "SELECT count(*) FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = '$type' AND state = 'DISPATCHED'";
	my $goal = $node->safe_psql('postgres', $accepted) + $count;

	return wait_for(sub { $node->safe_psql('postgres', $accepted) >= $goal }, "$count more of $type");
}

sub server_time { my ($node) = @_; return $node->safe_psql('postgres', 'SELECT clock_timestamp()'); }

sub wait_leases
{
	my ($node, $since) = @_;

	$since //= server_time($node);
	return wait_for(sub { $node->safe_psql('postgres', "SELECT clock_timestamp() > timestamptz '$since' + '4 s'") eq 't' }, 'leases to run out');
}

# At once, when it connects, or in the middle of its work: in its log, which tells of each delivery, no place is like another.
sub kill_often
{
	my ($relay, $rounds) = @_;

	foreach (1 .. $rounds)
	{
		my $work = int rand(rand() < 0.2 ? 500 : 40_000);

		wait_for(sub { length $relay->log >= $work }, 'some work');
		$relay->kill9;
		$relay->start;
	}
	return;
}

sub in_order
{
	my ($node, $test, $type, @headers) = @_;
	my (%last, @disorder);
	my %key = map { split /\|/ } split /\n/,
		$node->safe_psql('postgres', "SELECT outbox_id, partition_key FROM outbox.messages WHERE event_type = '$type' AND queue = 'ordered'");
	my %first = map { split /\|/ } split /\n/,
		$node->safe_psql('postgres', "SELECT partition_key, min(sequence_id) FROM outbox.messages WHERE event_type = '$type' AND queue = 'ordered' GROUP BY 1");

	foreach my $header (grep { defined $key{ $_->{outbox_id} } } @headers)
	{
		my ($key, $number) = ($key{ $header->{outbox_id} }, $header->{sequence_id});

		$last{$key} //= $first{$key} - 1;
		push @disorder, "$key: $number after $last{$key}" if $number > $last{$key} + 1;
		$last{$key} = $number if $number > $last{$key};
	}
	cmp_ok(scalar(keys %last), '==', 5, "$test: keys");
	return is(join("\n", splice @disorder, 0, 10), '', "$test: none of them sees k after k + 1 for the first time");
}

1;
