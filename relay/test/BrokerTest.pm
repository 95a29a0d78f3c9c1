# Brokers, receivers and broken networks for the relay's tests: started by a test, on loopback, gone with it.
#
#   my $kafka = start_kafka(nodes => 3);              BrokerTest/Kafka.pm
#   my $rabbitmq = start_rabbitmq(tls => 1);          BrokerTest/RabbitMQ.pm
#   my $nats = start_nats(token => 'secret');         BrokerTest/NATS.pm
#   my $receiver = start_receiver();                  BrokerTest/Receiver.pm
#   my $proxy = start_proxy(port => $nats->port);     BrokerTest/Proxy.pm
#   my $browser = start_browser();                    BrokerTest/Browser.pm
#   my $relay = start_relay($config, env => {...}, ready => qr/.../, arguments => [...]);  the program itself
#   test_ca()->{ca}                                   BrokerTest/CA.pm
#   kafka_unavailable()                               why Kafka cannot be had here; skip_without_kafka() skips
#                                                     the whole file then, and fails instead where CI is true
#   wait_for(sub { ... }, 'what')                     until that is true; dies after minutes
#   free_port, new_folder, write_file, slurp, tool    BrokerTest/Base.pm
#
# The head of each of these files lists its options and methods. All of them are processes, with start, stop, kill9,
# restart, pause, resume, running, log, wait_log: BrokerTest/Process.pm. start_... returns when the server is ready.
#
# Guarantees: whatever way the test ends, by kill -9 too, nothing that it started stays; nothing listens but on loopback,
# on ports that no other test has; no file is written but in the test's folders. Needs no right, and runs as any user.
package BrokerTest;

use strict;
use warnings;

use BrokerTest::Base qw($here free_port new_folder slurp to_json from_json tool wait_for write_file);
use BrokerTest::Browser;
use BrokerTest::CA 'test_ca';
use BrokerTest::Kafka;
use BrokerTest::NATS;
use BrokerTest::Process;
use BrokerTest::Proxy;
use BrokerTest::RabbitMQ;
use BrokerTest::Receiver;
use Exporter 'import';
use POSIX ();
use Test::More ();

our @EXPORT = qw(start_kafka start_rabbitmq start_nats start_receiver start_proxy start_browser start_relay
	kafka_unavailable skip_without_kafka test_ca free_port new_folder slurp to_json from_json tool wait_for write_file);

sub start_kafka { my (%options) = @_; return BrokerTest::Kafka->new(%options)->start; }
sub start_rabbitmq { my (%options) = @_; return BrokerTest::RabbitMQ->new(%options)->start; }
sub start_nats { my (%options) = @_; return BrokerTest::NATS->new(%options)->start; }
sub start_receiver { my (%options) = @_; return BrokerTest::Receiver->new(%options)->start; }
sub start_proxy { my (%options) = @_; return BrokerTest::Proxy->new(%options); }
sub start_browser { return BrokerTest::Browser->new->start; }
sub kafka_unavailable { return BrokerTest::Kafka::kafka_unavailable(); }

sub skip_without_kafka
{
	my $reason = kafka_unavailable() or return;

	die $reason if ($ENV{CI} // '') eq 'true';
	Test::More::plan(skip_all => $reason);
	return;
}

# The relay: ready when it heeds signals, and its log matches. Its folder has the configuration, relay.toml.
my $relays = 0;

sub start_relay
{
	my ($config, %options) = @_;
	my $name = $options{name} // 'relay' . ++$relays;
	my $folder = new_folder($name);

	utf8::encode($config);
	my $file = write_file("$folder/relay.toml", $config);

	return BrokerTest::Process->new(
		name => $name, folder => $folder, env => $options{env} // {},
		command => [ $ENV{OUTBOX_RELAY} // "$here/../outbox-relay", '--config', $file, @{ $options{arguments} // [] } ],
		ready => sub { heeds_signals($_[0]->pid) && (!$options{ready} || $_[0]->log =~ $options{ready}) })->start;
}

# Whether HUP is blocked, as the relay has the signals that it reads. Before that they would end the program.
sub heeds_signals
{
	my ($pid) = @_;
	my ($blocked) = (eval { slurp("/proc/$pid/status") } // '') =~ /^SigBlk:\s*([0-9a-f]+)/m;

	return hex($blocked // 0) & 1 << POSIX::SIGHUP() - 1;
}

1;
