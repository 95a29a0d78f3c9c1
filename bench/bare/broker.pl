# A broker for bench/relay_sinks, as the relay's tests start them. Prints what a client needs in one line, and ends with
# its standard input.
#
#	perl broker.pl kafka        brokers of a node with the topics bare and relay
#	perl broker.pl rabbitmq     port, user, password; with the queues bare and relay
use strict;
use warnings;

use BrokerTest;

$| = 1;
if ($ARGV[0] eq 'kafka')
{
	my $kafka = start_kafka();

	$kafka->create_topic($_) foreach qw(bare relay);
	print $kafka->bootstrap, "\n";
	<STDIN>;
}
else
{
	my $rabbitmq = start_rabbitmq();

	$rabbitmq->queue($_) foreach qw(bare relay);
	print join(' ', $rabbitmq->port, $rabbitmq->{user}, $rabbitmq->{password}), "\n";
	<STDIN>;
}
