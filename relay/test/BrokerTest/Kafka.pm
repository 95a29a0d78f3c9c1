# Apache Kafka for tests: KRaft, one node or three, each broker and controller in one process.
#
# start_kafka(OPTION => VALUE, ...):
#   nodes          1 or 3
#   auto_create    true: topics come into being when they are used. Default: not
#   tls            1: clients speak TLS; 'other', 'expired': to such a certificate of test_ca
#   clients        1 (with tls): those without a certificate of test_ca are refused
#   user, password clients log in by SASL PLAIN
#   proxy          true: clients are led through a proxy for each node: $kafka->node(1)->proxy
#   config         a hash of settings of the brokers that come after ours
#
#   bootstrap                        host:port,... for clients
#   client_config                    a hash of librdkafka's properties that a client needs besides
#   create_topic(NAME, partitions => 1, replication => 1, config => {})
#   topic(NAME)                      its metadata as kcat tells it, or undef
#   produce(NAME, VALUE, key =>, headers => {})
#   records(NAME, count => N)        all records, once there are so many: topic, partition, offset, key, value
#                                    (characters; undef = null), headers (hash), ts
#   deliveries(NAME)                 what a relay put there by now, without bodies, which is fast: partition, offset, key,
#                                    outbox_id, sequence_id
#   console_records(NAME, count => N)  values, as Kafka's own console consumer prints them
#   kcat(ARGUMENT...)                kcat's output
#   run(CLASS, ARGUMENT...)          the output of one of Kafka's own programs
#   start, stop, kill9, restart      all nodes
#   node(N)                          one node from 1 on: what BrokerTest::Process says, and port, proxy
#   leader(TOPIC, PARTITION)         the number of the node that leads it, 0 for none
#
# Guarantees: what the tools above do goes to listeners of their own, not through proxies, TLS or a login; start
# returns when clients see every node. kafka_unavailable() says why Kafka cannot be had, or is empty.
#
# Shape: the jars are in the cache of the tests, put there by test/run once their checksums were right.
package BrokerTest::Kafka;

use strict;
use warnings;

use BrokerTest::Base qw($here new_folder free_port wait_for write_file from_json json_lines tool slurp);
use BrokerTest::CA qw(test_ca server_files);
use BrokerTest::Process;
use BrokerTest::Proxy;

my @java = qw(java -Xms64m -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Dorg.slf4j.simpleLogger.showDateTime=true);
my %fast = (
	'auto.leader.rebalance.enable' => 'true',
	'broker.heartbeat.interval.ms' => 200,
	'broker.session.timeout.ms' => 2000,
	'controller.quorum.election.timeout.ms' => 500,
	'controller.quorum.fetch.timeout.ms' => 1000,
	'group.initial.rebalance.delay.ms' => 0,
	'leader.imbalance.check.interval.seconds' => 5,
	'log.cleaner.enable' => 'false',
	'num.io.threads' => 2,
	'num.network.threads' => 2,
	'offsets.topic.num.partitions' => 1,
	'replica.lag.time.max.ms' => 2000,
	'transaction.state.log.num.partitions' => 1);

sub folder
{
	return $ENV{OUTBOX_KAFKA} // '';
}

sub kafka_unavailable
{
	return folder() && -d folder() ? '' : $ENV{OUTBOX_KAFKA_MISSING} || 'test/run has not got Kafka from Maven Central: OUTBOX_KAFKA is not set';
}

sub new
{
	my ($class, %options) = @_;
	my $self = bless { options => \%options, folder => new_folder('kafka') }, $class;
	my $count = $options{nodes} // 1;

	die kafka_unavailable() if kafka_unavailable();
	$self->{nodes} = [ map { { number => $_, map { $_ => free_port() } qw(client internal controller) } } 1 .. $count ];
	foreach my $node (@{ $self->{nodes} })
	{
		my $name = "kafka$node->{number}";

		$node->{proxy} = BrokerTest::Proxy->new(port => $node->{client}) if $options{proxy};
		$node->{config} = write_file("$self->{folder}/$name.properties", $self->properties($node));
		$node->{process} = BrokerTest::Kafka::Node->new(
			name => $name, port => $node->{client}, proxy => $node->{proxy}, folder => $self->{folder},
			command => [ @java, '-cp', folder() . '/*', 'kafka.Kafka', $node->{config} ],
			ready => sub { $_[0]->log =~ /Kafka Server started/ && $self->sees($node) });
		$self->run('kafka.tools.StorageTool', 'format', '-t', 'b3V0Ym94LXRlc3RzLTAwMQ', '-c', $node->{config});
	}
	return $self;
}

sub properties
{
	my ($self, $node) = @_;
	my $options = $self->{options};
	my $count = @{ $self->{nodes} };
	my $copies = $count < 3 ? 1 : 3;
	my $port = $node->{proxy} ? $node->{proxy}->port : $node->{client};
	my $host = $options->{tls} ? 'localhost' : '127.0.0.1';
	my $protocol = ($options->{user} ? 'SASL_' : '') . ($options->{tls} ? 'SSL' : 'PLAINTEXT');
	my %settings = (
		%fast,
		'process.roles' => 'broker,controller',
		'node.id' => $node->{number},
		'controller.quorum.voters' => join(',', map { "$_->{number}\@127.0.0.1:$_->{controller}" } @{ $self->{nodes} }),
		'listeners' => "CLIENT://127.0.0.1:$node->{client},INTERNAL://127.0.0.1:$node->{internal},CONTROLLER://127.0.0.1:$node->{controller}",
		'advertised.listeners' => "CLIENT://$host:$port,INTERNAL://127.0.0.1:$node->{internal}",
		'listener.security.protocol.map' => "CLIENT:$protocol,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		'inter.broker.listener.name' => 'INTERNAL',
		'controller.listener.names' => 'CONTROLLER',
		'log.dirs' => "$self->{folder}/data$node->{number}",
		'auto.create.topics.enable' => $options->{auto_create} ? 'true' : 'false',
		'default.replication.factor' => $copies,
		'offsets.topic.replication.factor' => $copies,
		'transaction.state.log.replication.factor' => $copies,
		'transaction.state.log.min.isr' => $copies == 1 ? 1 : 2,
		'min.insync.replicas' => $copies == 1 ? 1 : 2);

	if ($options->{tls})
	{
		@settings{ 'ssl.keystore.type', 'ssl.keystore.location' } = ('PEM', server_files($options->{tls})->{both});
		@settings{ 'listener.name.client.ssl.client.auth', 'ssl.truststore.type', 'ssl.truststore.location' } = ('required', 'PEM', test_ca()->{ca}) if $options->{clients};
	}
	if ($options->{user})
	{
		$settings{'listener.name.client.sasl.enabled.mechanisms'} = 'PLAIN';
		$settings{'listener.name.client.plain.sasl.jaas.config'} =
			qq{org.apache.kafka.common.security.plain.PlainLoginModule required user_$options->{user}="$options->{password}";};
	}
	%settings = (%settings, %{ $options->{config} // {} });
	return join '', map { "$_=$settings{$_}\n" } sort keys %settings;
}

sub client_config
{
	my ($self) = @_;
	my $options = $self->{options};
	my %config;

	$config{'security.protocol'} = lc(($options->{user} ? 'SASL_' : '') . ($options->{tls} ? 'SSL' : 'PLAINTEXT'))
		if $options->{user} || $options->{tls};
	$config{'ssl.ca.location'} = test_ca()->{ca} if $options->{tls};
	@config{ 'ssl.certificate.location', 'ssl.key.location' } = @{ test_ca()->{client} }{ 'cert', 'key' } if $options->{clients};
	@config{ 'sasl.mechanism', 'sasl.username', 'sasl.password' } = ('PLAIN', @$options{ 'user', 'password' }) if $options->{user};
	return \%config;
}

sub bootstrap
{
	my ($self) = @_;
	my $host = $self->{options}{tls} ? 'localhost' : '127.0.0.1';

	return join ',', map { "$host:" . ($_->{proxy} ? $_->{proxy}->port : $_->{client}) } @{ $self->{nodes} };
}

sub internal
{
	my ($self) = @_;

	return join ',', map { "127.0.0.1:$_->{internal}" } grep { $_->{process}->running } @{ $self->{nodes} };
}

# Whether each node that runs knows of this one.
sub sees
{
	my ($self, $node) = @_;

	foreach my $other (grep { $_->{process}->running && $_->{process}->log =~ /Kafka Server started/ } @{ $self->{nodes} })
	{
		my ($out, undef, $status) = tool([ 'kcat', '-b', "127.0.0.1:$other->{internal}", qw(-L -J -m 1) ], may_fail => 1);

		return 0 if $status || !grep { $_->{id} == $node->{number} } @{ from_json($out)->{brokers} };
	}
	return 1;
}

sub node { my ($self, $number) = @_; return $self->{nodes}[ $number - 1 ]{process}; }

# A quorum takes two of three, so that they are started at once.
sub start
{
	my ($self) = @_;
	my @stopped = map { $_->{process} } grep { !$_->{process}->running } @{ $self->{nodes} };

	$_->spawn foreach @stopped;
	$_->wait_ready foreach @stopped;
	return $self;
}

sub stop
{
	my ($self) = @_;

	$_->{process}->signal('TERM') foreach @{ $self->{nodes} };
	$_->{process}->stop foreach @{ $self->{nodes} };
	return;
}

sub kill9 { my ($self) = @_; $_->{process}->kill9 foreach @{ $self->{nodes} }; return; }
sub restart { my ($self) = @_; $self->stop; return $self->start; }

sub run
{
	my ($self, $class, @arguments) = @_;

	return tool([ @java, '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn', '-cp', folder() . '/*', $class, @arguments ]);
}

sub kcat
{
	my ($self, @arguments) = @_;

	return tool([ 'kcat', '-b', $self->internal, @arguments ]);
}

sub create_topic
{
	my ($self, $name, %options) = @_;
	my $config = $options{config} // {};

	$self->run('org.apache.kafka.tools.TopicCommand', '--bootstrap-server', $self->internal, '--create', '--topic', $name,
		'--partitions', $options{partitions} // 1, '--replication-factor', $options{replication} // 1,
		map { ('--config', "$_=$config->{$_}") } sort keys %$config);
	return wait_for(sub { $self->leader($name, 0) }, "topic $name to have a leader");
}

sub topic
{
	my ($self, $name) = @_;
	my ($topic) = grep { $_->{topic} eq $name } @{ from_json($self->kcat(qw(-L -J)))->{topics} };
	return $topic;
}

sub leader
{
	my ($self, $name, $partition) = @_;
	my $topic = $self->topic($name) or return 0;
	my ($found) = grep { $_->{partition} == $partition } @{ $topic->{partitions} };

	return $found && $found->{leader} > 0 ? $found->{leader} : 0;
}

sub produce
{
	my ($self, $topic, $value, %options) = @_;
	my $headers = $options{headers} // {};
	my @arguments = (defined $options{key} ? ('-k', $options{key}) : (), map { ('-H', "$_=$headers->{$_}") } sort keys %$headers);

	utf8::encode($_) foreach $value, @arguments;
	$self->kcat('-P', '-t', $topic, qw(-X acks=all), @arguments, write_file(new_folder('record') . '/value', $value));
	return;
}

sub records
{
	my ($self, $topic, %options) = @_;
	my @records;

	wait_for(sub {
		my ($out) = $self->topic($topic) ? $self->kcat('-C', '-t', $topic, qw(-o beginning -e -q -J -X fetch.wait.max.ms=50)) : '';

		@records = json_lines($out);
		return @records >= ($options{count} // 0);
	}, ($options{count} // 0) . " records in $topic");
	foreach my $record (@records)
	{
		$record->{value} = delete $record->{payload};
		$record->{headers} = { @{ $record->{headers} // [] } };
	}
	return sort { $a->{partition} <=> $b->{partition} || $a->{offset} <=> $b->{offset} } @records;
}

sub deliveries
{
	my ($self, $topic) = @_;
	my $out = $self->kcat('-C', '-t', $topic, qw(-o beginning -e -q -X fetch.wait.max.ms=50 -f), '%p %o %h %k\n');

	return map {
		my ($partition, $offset, $headers, $key) = split / /, $_, 4;
		my ($outbox_id, $sequence_id) = map { $headers =~ /(?:^|,)$_=([^,]*)/ } qw(outbox_id sequence_id);

		{ partition => $partition, offset => $offset, key => $key, outbox_id => $outbox_id, sequence_id => $sequence_id };
	} split /\n/, $out;
}

sub console_records
{
	my ($self, $topic, %options) = @_;

	my $out = $self->run('org.apache.kafka.tools.consumer.ConsoleConsumer', '--bootstrap-server', $self->internal,
		'--topic', $topic, '--from-beginning', '--max-messages', $options{count});

	utf8::decode($out);
	return split /\n/, $out;
}

package BrokerTest::Kafka::Node;

use parent -norequire, 'BrokerTest::Process';

sub port { my ($self) = @_; return $self->{port}; }
sub proxy { my ($self) = @_; return $self->{proxy}; }

1;
