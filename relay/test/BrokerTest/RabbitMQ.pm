# RabbitMQ for tests, with an epmd of its own.
#
# start_rabbitmq(OPTION => VALUE, ...):
#   tls          1: a second port speaks TLS; 'other', 'expired': to such a certificate of test_ca
#   clients      1 (with tls): those without a certificate of test_ca are refused
#   user, password   instead of relay, secret
#   config       lines of rabbitmq.conf that come after ours
#
#   port, tls_port, user, password, url (amqp://...), vhost is /
#   exchange(NAME, type => 'topic', ...), queue(NAME, arguments => {...}, ...), bind(QUEUE, EXCHANGE, KEY)
#                                as python3-pika's exchange_declare, queue_declare take them; durable by default
#   publish(EXCHANGE, KEY, BODY, properties => {})   persistent, and confirmed
#   messages(QUEUE, count => N, keep => 1)  takes (keep: reads and gives back) what is in a queue, once it is that
#                                many: body, hex (its bytes), exchange, routing_key, redelivered, properties (hash; headers in it)
#   depth(QUEUE)                 messages that are ready
#   alarm(1), alarm(0)           the alarm for the disk goes off, and ends
#   ctl(ARGUMENT...)             rabbitmqctl's output
#   start, stop, kill9, restart, pause ... as BrokerTest::Process says
#
# Guarantees: node name, ports, cookie, data and configuration are this test's; nothing listens but on
# loopback; data outlives kill9 as the broker promises it.
package BrokerTest::RabbitMQ;

use strict;
use warnings;

use BrokerTest::Base qw(new_folder free_port wait_for write_file tool python_tool);
use BrokerTest::CA qw(test_ca server_files);
use BrokerTest::Process;

our @ISA = ('BrokerTest::Process');
my $bin = '/usr/lib/rabbitmq/bin';
my $epmd;

# One for all brokers of this test.
sub epmd
{
	return $epmd if $epmd && $epmd->running;
	my $port = free_port();

	$epmd = BrokerTest::Process->new(name => 'epmd', port => $port, command => [ qw(epmd -address 127.0.0.1 -port), $port ],
		ready => sub { !(tool([ qw(epmd -port), $port, '-names' ], may_fail => 1))[2] });
	return $epmd->start;
}

sub new
{
	my ($class, %options) = @_;
	my $folder = new_folder('rabbitmq');
	my ($port, $dist) = (free_port(), free_port());
	my %self = (
		name => 'rabbitmq', folder => $folder, port => $port, user => $options{user} // 'relay', password => $options{password} // 'secret',
		tls_port => $options{tls} ? free_port() : undef, command => ["$bin/rabbitmq-server"],
		ready => sub { $_[0]->log =~ /Server startup complete|startup complete/ });
	my $conf = <<"END";
listeners.tcp.local = 127.0.0.1:$port
default_user = $self{user}
default_pass = $self{password}
log.console = true
log.console.level = info
log.file = false
disk_free_limit.absolute = 1MB
vm_memory_high_watermark.absolute = 1GB
loopback_users = none
END

	if ($options{tls})
	{
		my ($ca, $files) = (test_ca()->{ca}, server_files($options{tls}));

		$conf .= <<"END";
listeners.ssl.local = 127.0.0.1:$self{tls_port}
ssl_options.cacertfile = $ca
ssl_options.certfile = $files->{cert}
ssl_options.keyfile = $files->{key}
ssl_options.verify = ${\ ($options{clients} ? 'verify_peer' : 'verify_none')}
ssl_options.fail_if_no_peer_cert = ${\ ($options{clients} ? 'true' : 'false')}
END
	}
	write_file("$folder/rabbitmq.conf", $conf . ($options{config} // ''));
	write_file("$folder/enabled_plugins", "[].\n");
	write_file("$folder/rabbitmq-env.conf", '');
	write_file("$folder/erl_inetrc", "{file, hosts, \"/etc/hosts\"}.\n{lookup, [file, native]}.\n");
	$self{env} = {
		HOME => $folder, ERL_EPMD_PORT => epmd()->{port}, ERL_EPMD_ADDRESS => '127.0.0.1', RABBITMQ_NODENAME => "outbox$port\@localhost",
		RABBITMQ_NODE_IP_ADDRESS => '127.0.0.1', RABBITMQ_DIST_PORT => $dist, RABBITMQ_MNESIA_BASE => "$folder/data",
		RABBITMQ_LOG_BASE => "$folder/log", RABBITMQ_CONFIG_FILE => "$folder/rabbitmq.conf", RABBITMQ_ADVANCED_CONFIG_FILE => "$folder/advanced.config",
		RABBITMQ_CONF_ENV_FILE => "$folder/rabbitmq-env.conf", RABBITMQ_ENABLED_PLUGINS_FILE => "$folder/enabled_plugins",
		RABBITMQ_PID_FILE => "$folder/pid", RABBITMQ_SERVER_START_ARGS => '-start_epmd false',
		# Without delayed starts, and without the many schedulers of an idle machine.
		RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS => '+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}',
		# The script then becomes the server instead of waiting for it.
		RUNNING_UNDER_SYSTEMD => 'true' };
	return $class->SUPER::new(%self);
}

sub port { my ($self) = @_; return $self->{port}; }
sub tls_port { my ($self) = @_; return $self->{tls_port}; }
sub user { my ($self) = @_; return $self->{user}; }
sub password { my ($self) = @_; return $self->{password}; }
sub url { my ($self) = @_; return "amqp://$self->{user}:$self->{password}\@127.0.0.1:$self->{port}/"; }

sub spawn
{
	my ($self) = @_;

	epmd();
	return $self->SUPER::spawn;
}

sub ctl
{
	my ($self, @arguments) = @_;
	local %ENV = (%ENV, %{ $self->{env} });

	return tool([ "$bin/rabbitmqctl", '--quiet', @arguments ]);
}

# Runs requests, each the name of a method of pika's channel and its arguments, on one connection.
sub amqp
{
	my ($self, @calls) = @_;

	return python_tool('amqp', { url => $self->url, calls => \@calls });
}

sub exchange
{
	my ($self, $name, %options) = @_;

	return $self->amqp([ 'exchange_declare', { exchange => $name, exchange_type => delete $options{type} // 'topic', durable => \1, %options } ]);
}

sub queue
{
	my ($self, $name, %options) = @_;

	return $self->amqp([ 'queue_declare', { queue => $name, durable => \1, %options } ]);
}

sub bind
{
	my ($self, $queue, $exchange, $key) = @_;

	return $self->amqp([ 'queue_bind', { queue => $queue, exchange => $exchange, routing_key => $key // '#' } ]);
}

sub publish
{
	my ($self, $exchange, $key, $body, %options) = @_;

	return $self->amqp([ 'publish', { exchange => $exchange, routing_key => $key, body => $body, properties => $options{properties} // {} } ]);
}

sub depth
{
	my ($self, $queue) = @_;
	my ($answer) = $self->amqp([ 'queue_declare', { queue => $queue, passive => \1 } ]);

	return $answer->{message_count};
}

sub messages
{
	my ($self, $queue, %options) = @_;
	my $count = $options{count} // 0;

	wait_for(sub { $self->depth($queue) >= $count }, "$count messages in $queue");
	return $self->amqp([ 'get_all', { queue => $queue, keep => $options{keep} ? \1 : \0 } ]);
}

sub alarm
{
	my ($self, $on) = @_;
	my $alarms = $on ? qr/resource_limit,disk/ : qr/^\[\]/;

	$self->ctl('set_disk_free_limit', $on ? '1000000GB' : '1MB');
	return wait_for(sub { $self->ctl('eval', 'rabbit_alarm:get_alarms().') =~ $alarms }, 'the alarm to ' . ($on ? 'go off' : 'end'));
}

1;
