# NATS with JetStream for tests.
#
# start_nats(OPTION => VALUE, ...):
#   tls              1: clients must speak TLS; 'other', 'expired': to such a certificate of test_ca
#   clients          1 (with tls): those without a certificate of test_ca are refused
#   user, password   or token: what clients log in with
#   jetstream        0: without it
#   config           lines of the configuration that come after ours
#
#   port, url (nats:// or tls://, without a login)
#   stream(NAME, subjects => ['a.>'], ...)    creates a stream: fields of JetStream's API
#   api(SUBJECT, REQUEST)        asks JetStream: $JS.API.SUBJECT; the answer, whatever that says
#   publish(SUBJECT, BODY, headers => {})     to a stream: its acknowledgement
#   info(STREAM)                 what JetStream says of it; ->{state}{messages}
#   messages(STREAM, count => N) all messages, once there are so many: subject, seq, body, hex (its bytes), headers (hash), time
#   start, stop, kill9, restart, pause ... as BrokerTest::Process says
#
# Guarantees: an acknowledged message outlives kill9 (the server syncs each to disk only if told; the kernel keeps it).
package BrokerTest::NATS;

use strict;
use warnings;

use BrokerTest::Base qw(new_folder free_port wait_for write_file python_tool);
use BrokerTest::CA qw(test_ca server_files);
use BrokerTest::Process;

our @ISA = ('BrokerTest::Process');

sub new
{
	my ($class, %options) = @_;
	my $folder = new_folder('nats');
	my $port = free_port();
	my $jetstream = $options{jetstream} // 1 ? '' : '# ';
	my $conf = <<"END";
host: "127.0.0.1"
port: $port
server_name: outbox$port
${jetstream}jetstream { store_dir: "$folder/data", max_memory_store: 64MB, max_file_store: 1GB }
END

	if ($options{tls})
	{
		my $files = server_files($options{tls});

		my $clients = $options{clients} ? qq(ca_file: "${\ test_ca()->{ca}}", verify: true,) : '';

		$conf .= qq(tls { cert_file: "$files->{cert}", key_file: "$files->{key}", $clients timeout: 10 }\n);
	}
	$conf .= qq(authorization { user: "$options{user}", password: "$options{password}" }\n) if $options{user};
	$conf .= qq(authorization { token: "$options{token}" }\n) if $options{token};
	write_file("$folder/nats.conf", $conf . ($options{config} // ''));
	return $class->SUPER::new(
		name => 'nats', folder => $folder, port => $port, options => \%options, command => [ 'nats-server', '-c', "$folder/nats.conf" ],
		ready => sub { $_[0]->log =~ /Server is ready/ });
}

sub port { my ($self) = @_; return $self->{port}; }
sub url { my ($self) = @_; return ($self->{options}{tls} ? 'tls://localhost:' : 'nats://127.0.0.1:') . $self->{port}; }

# Requests, each a subject, a body and headers, on one connection: the answers.
sub ask
{
	my ($self, @requests) = @_;
	my $options = $self->{options};
	my %login = map { $options->{$_} ? ($_ => $options->{$_}) : () } qw(user password token);

	$login{pass} = delete $login{password} if $login{password};
	$login{auth_token} = delete $login{token} if $login{token};
	return python_tool('nats', { port => $self->{port}, login => \%login, ca => $options->{tls} ? test_ca()->{ca} : undef,
			client => $options->{clients} ? [ @{ test_ca()->{client} }{ 'cert', 'key' } ] : undef, requests => \@requests });
}

sub api
{
	my ($self, $subject, $request) = @_;
	my ($answer) = $self->ask([ "\$JS.API.$subject", $request // {}, {} ]);

	return $answer;
}

sub stream
{
	my ($self, $name, %options) = @_;
	my $answer = $self->api("STREAM.CREATE.$name", { name => $name, storage => 'file', num_replicas => 1, %options });

	die "stream $name: $answer->{error}{description}" if $answer->{error};
	return $answer;
}

sub publish
{
	my ($self, $subject, $body, %options) = @_;
	my ($answer) = $self->ask([ $subject, $body, $options{headers} // {} ]);

	return $answer;
}

sub info { my ($self, $stream) = @_; return $self->api("STREAM.INFO.$stream"); }

sub messages
{
	my ($self, $stream, %options) = @_;
	my $count = $options{count} // 0;
	my $state;

	wait_for(sub { $state = $self->info($stream)->{state}; $state && $state->{messages} >= $count }, "$count messages in $stream");
	return unless $state->{messages};
	return $self->ask(map { [ "\$JS.API.STREAM.MSG.GET.$stream", { seq => $_ }, {} ] } $state->{first_seq} .. $state->{last_seq});
}

1;
