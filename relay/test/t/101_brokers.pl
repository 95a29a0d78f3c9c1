# That the ground is firm on which the relay's tests stand: brokers, the proxy, what ends with a test.
#
# Proves: nothing listens but on loopback; each broker starts, takes a message by its own tools, is killed with kill -9, starts again with its data, and gives the
# message back whole; alarms go off and end; the proxy forwards, holds back, refuses and cuts where it is told to; the receiver records
# requests and answers as it is told to, by HTTP/1.1 and HTTP/2; a test does not wait for what has died, and leaves no process behind if it is killed.
use strict;
use warnings;
use utf8;

use BrokerTest;
use IO::Socket::INET;
use POSIX ();
use PostgreSQL::Test::Utils ();
use Test::More;

# Where a process and its children listen otherwise than on loopback: addresses as the kernel writes them.
sub open_to_others
{
	my ($process) = @_;
	my %session = map { readlink =~ /^socket:\[(\d+)\]$/ ? ($1 => 1) : () }
		map { glob "/proc/$_/fd/*" } grep { (eval { slurp("/proc/$_/stat") } // '') =~ /\) \S \d+ \d+ $process->{pid} / } map { m{(\d+)$} } glob '/proc/[0-9]*';
	my @listening = grep { $_->[3] eq '0A' && $session{ $_->[9] } } map { [ split ' ' ] } map { split /\n/, slurp($_) } '/proc/net/tcp', '/proc/net/tcp6';

	die "$process->{name} does not listen at all" unless @listening;
	return join ' ', grep { !/^(?:0100007F|0000000000000000FFFF00000100007F|0{31}1):/ } map { $_->[1] } @listening;
}

# ---------------------------------------------------------------- NATS

my $nats = start_nats();

is(open_to_others($nats), '', 'NATS listens on loopback');
$nats->stream('EVENTS', subjects => ['events.>']);
is($nats->publish('events.a', 'grün', headers => { 'Nats-Msg-Id' => 'm1' })->{seq}, 1, '... a stream takes a message');
ok($nats->publish('events.a', 'grün', headers => { 'Nats-Msg-Id' => 'm1' })->{duplicate}, '... and knows it the second time');
$nats->kill9;
ok(!$nats->running, '... is dead');
$nats->start;
my ($message) = $nats->messages('EVENTS', count => 1);

is_deeply([ @$message{ 'subject', 'seq', 'body', 'headers' } ], [ 'events.a', 1, 'grün', { 'Nats-Msg-Id' => 'm1' } ], '... has it after kill -9');
my $guarded = start_nats(tls => 1, token => 'secret');

ok($guarded->stream('S', subjects => ['s'])->{created}, 'NATS: TLS and a token');
eval { BrokerTest::NATS::ask({ %$guarded, options => { tls => 1, token => 'wrong' } }, [ 's', '', {} ]) };
like($@, qr/Authorization Violation/, '... and not with another one');
is($guarded->stop, 1, '... is stopped');

# ---------------------------------------------------------------- RabbitMQ

my $rabbitmq = start_rabbitmq(tls => 1);

is(open_to_others($rabbitmq), '', 'RabbitMQ listens on loopback');
$rabbitmq->exchange('events', type => 'topic');
$rabbitmq->queue('all');
$rabbitmq->bind('all', 'events', '#');
$rabbitmq->publish('events', 'order.made', 'grün', properties => { message_id => 'm1', type => 'order', headers => { tenant => 'ä' } });
$rabbitmq->kill9;
$rabbitmq->start;
($message) = $rabbitmq->messages('all', count => 1, keep => 1);
is_deeply(
	[ @$message{ 'body', 'exchange', 'routing_key' }, @{ $message->{properties} }{qw(message_id type delivery_mode headers)} ],
	[ 'grün', 'events', 'order.made', 'm1', 'order', 2, { tenant => 'ä' } ],
	'... has a message after kill -9');
is($rabbitmq->depth('all'), 1, '... and keeps what was only read');
is(scalar($rabbitmq->messages('all')), 1, '... until it is taken');
is($rabbitmq->depth('all'), 0, '... and then not');
$rabbitmq->alarm(1);
my $publisher = fork // die;

if (!$publisher)
{
	$rabbitmq->publish('events', 'late', 'late');
	POSIX::_exit(0);
}
wait_for(sub { $rabbitmq->ctl('list_connections', 'state') =~ /^blocked$/m }, 'the publisher to be blocked');
is($rabbitmq->depth('all'), 0, '... takes nothing when its disk is full');
$rabbitmq->alarm(0);
waitpid $publisher, 0;
is($rabbitmq->depth('all'), 1, '... and all when it is not any more');
my $ca = test_ca();

like((tool([ qw(openssl s_client -verify_return_error -CAfile), $ca->{ca}, '-verify_hostname', 'localhost', '-connect', '127.0.0.1:' . $rabbitmq->tls_port ],
	may_fail => 1))[0], qr/Verify return code: 0 \(ok\)/, '... speaks TLS');
is($rabbitmq->stop, 0, '... is stopped');

# ---------------------------------------------------------------- Kafka

SKIP:
{
	my $reason = kafka_unavailable();

	if ($reason)
	{
		die $reason if ($ENV{CI} // '') eq 'true';
		skip $reason, 1;
	}
	my $kafka = start_kafka();

	is(open_to_others($kafka->node(1)), '', 'Kafka listens on loopback');
	$kafka->create_topic('events', partitions => 2);
	$kafka->produce('events', 'grün', key => 'k', headers => { tenant => 'ä' });
	$kafka->kill9;
	$kafka->start;
	my ($record) = $kafka->records('events', count => 1);

	is_deeply([ @$record{qw(topic offset key value headers)} ], [ 'events', 0, 'k', 'grün', { tenant => 'ä' } ], '... has a record after kill -9');
	is_deeply([ $kafka->console_records('events', count => 1) ], ['grün'], '... and shows it by its own consumer');
	is($kafka->topic('unknown'), undef, '... makes no topic that was not asked for');
	$kafka->kill9;
	is(BrokerTest::Kafka::internal($kafka), '', '... is dead');
	$kafka = start_kafka(nodes => 3, tls => 1, user => 'relay', password => 'secret', proxy => 1);
	$kafka->create_topic('events', partitions => 1, replication => 3);
	my @client = map { ('-X', "$_=" . $kafka->client_config->{$_}) } keys %{ $kafka->client_config };

	tool([ 'kcat', '-P', '-b', $kafka->bootstrap, @client, qw(-t events -X acks=all) ], input => 'one');
	my $leader = $kafka->leader('events', 0);

	ok($kafka->node($leader)->proxy->stats->{up} > 0, 'three nodes of Kafka: TLS, a login, through a proxy');
	$kafka->node($leader)->kill9;
	wait_for(sub { my $other = $kafka->leader('events', 0); $other && $other != $leader }, 'another leader');
	$kafka->produce('events', 'two');
	$kafka->node($leader)->start;
	is(join(' ', map { $_->{value} } $kafka->records('events', count => 2)), 'one two', '... one of which may die');
	$kafka->kill9;
}

# ---------------------------------------------------------------- the proxy

# A server that answers each line with itself.
my $echo = BrokerTest::Process->new(
	name => 'echo', port => free_port(), ready => sub { IO::Socket::INET->new("127.0.0.1:$_[0]{port}") });

$echo->{command} = [ '/usr/bin/python3', '-c', <<'END', $echo->{port} ];
import socketserver, sys
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        while line := self.rfile.readline():
            self.wfile.write(line)
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
END
$echo->start;
my $proxy = start_proxy(port => $echo->{port});

sub client
{
	return IO::Socket::INET->new('127.0.0.1:' . $proxy->port) || "$!";
}

# What comes back for these bytes, or how it ended.
sub said
{
	my ($socket, $bytes) = @_;

	defined syswrite $socket, $bytes or return "write: $!";
	my $size = sysread $socket, my $answer, 100;

	return !defined $size ? "$!" : $size ? $answer : 'end';
}

my $client = client();

is(said($client, "one\n"), "one\n", 'the proxy forwards');
$proxy->hole('down');
syswrite $client, "two\n";
$proxy->wait_stats(sub { $_[0]{up} == 8 });
is($proxy->stats->{down}, 4, '... holds answers back');
$proxy->resume;
is(said($client, ''), "two\n", '... and lets them go');
$proxy->refuse;
is(client(), 'Connection refused', '... refuses');
$proxy->resume;
my $other = client();

is(said($other, "four\n"), "four\n", '... and no more');
my $up = $proxy->stats->{up};

$proxy->cut_after(3);
is(said($other, "seven\n"), 'Connection reset by peer', '... cuts in the middle');
is($proxy->stats->{up} - $up, 3, '... after so many bytes');
is($proxy->stats->{open}, 0, '... all connections');
# Its own control socket, since that is a Unix one as PostgreSQL has.
$proxy->to("$proxy->{folder}/control");
like(said(client(), qq({"do": "stats"}\n)), qr/"accepted": 3/, '... leads to a Unix socket, too');
$echo->kill9;
ok(!IO::Socket::INET->new("127.0.0.1:$echo->{port}"), 'a server that is killed is gone');

# ---------------------------------------------------------------- the receiver

# What curl says of a request: status and version of HTTP, or its error's number.
sub curl
{
	my ($receiver, $path, @options) = @_;
	my ($out, $err, $status) = tool([ qw(curl -s -o /dev/null -w), '%{http_code} %{http_version} %{size_download}', '--cacert', test_ca()->{ca}, @options, $receiver->url($path) ],
		may_fail => 1);

	return $status ? "error $status" : $out;
}

# The same in the background: its end.
sub curl_later
{
	my (@arguments) = @_;
	my $pid = open(my $pipe, '-|') // die;

	if (!$pid)
	{
		syswrite STDOUT, curl(@arguments);
		POSIX::_exit(0);
	}
	return sub { <$pipe> };
}

foreach my $tls (0, 1)
{
	my $receiver = start_receiver(tls => $tls);
	my ($http, $name) = $tls ? ('2', 'HTTP/2') : ('1.1', 'HTTP/1.1');

	is(curl($receiver, '/a?b=c', qw(-d x=y -H), 'X-Test: 1'), "200 $http 2", "$name: an answer");
	my ($request) = $receiver->requests('/a', count => 1);

	is_deeply([ @$request{qw(method path body http concurrent)}, $request->{headers}{'x-test'} ], [ 'POST', '/a?b=c', 'x=y', $http, 1, 1 ], '... and the request');
	$receiver->answer('/a', { status => 503, headers => { 'Retry-After' => 7 } }, { redirect => $receiver->url('/b') }, { size => 1000000 });
	is(join(', ', map { curl($receiver, '/a') } 1 .. 4), "503 $http 2, 302 $http 2, 200 $http 1000000, 200 $http 1000000", '... one answer after the other');
	$receiver->answer('/a', { close => 'before' }, { close => 'middle', size => 100 });
	is(join(', ', map { curl($receiver, '/a') } 1 .. 2), $tls ? 'error 92, error 92' : 'error 52, error 18', '... broken answers');
	$receiver->answer('*', { hold => 'head' });
	my @waiting = map { curl_later($receiver, "/$_") } 1 .. 3;

	$receiver->wait_held(undef, 3);
	is($receiver->release('/2'), 1, '... is slow');
	is($waiting[1]->(), "200 $http 2", '... until it is released');
	$receiver->release;
	is($waiting[2]->(), "200 $http 2", '... with others');
	is((sort { $b <=> $a } map { $_->{concurrent} } $receiver->requests)[0], 3, '... knows how many came at once');
	$receiver->answer('*', { never => 1 });
	is(curl($receiver, '/never', '-m', '0.2'), 'error 28', '... never answers');
	$receiver->accept('reset');
	like(curl($receiver, '/'), qr/^error (?:7|16|35|52|55|56)$/, '... resets connections');
	$receiver->accept('serve');
	$receiver->answer('*', {});
	is(curl($receiver, '/'), "200 $http 2", '... and serves again');
	next unless $tls;
	is(curl($receiver, '/', '--http1.1'), '200 1.1 2', '... speaks HTTP/1.1 with those who want that');
	is(curl($receiver, '/', '--cacert', test_ca()->{stranger_ca}), 'error 60', '... is not known to strangers');
	is(curl(start_receiver(tls => $_), '/'), 'error 60', "... has a wrong certificate: $_") foreach 'other', 'expired';
}

# ---------------------------------------------------------------- what ends before its time

my $short = BrokerTest::Process->new(name => 'short', ready => sub { 1 },
	command => [ 'sh', '-c', 'while [ ! -e go ]; do sleep 0.01; done; echo last words; exit 7' ])->start;
write_file("$short->{folder}/go", '');
eval { wait_for(sub { 0 }, 'rain') };
like($@, qr/short ended by itself with status 7, waiting for rain:\nlast words/, 'a process that ends by itself fails what waits');
is(wait_for(sub { 'dry' }, 'rain'), 'dry', '... once');

# ---------------------------------------------------------------- what ends with a test

# A test that starts a server with a child in a session of its own, and dies.
my $folder = new_folder('victim');
my $victim = fork // die;

if (!$victim)
{
	exec $^X, '-MBrokerTest', '-e', <<'END', $folder;
BrokerTest::Process->new(name => 'deep', ready => sub { -s "$ARGV[0]/pid" },
	command => [ 'sh', '-c', 'setsid sh -c \'echo $$ >"$0/new"; mv "$0/new" "$0/pid"; exec sleep 1000\' "$0" & sleep 1000', $ARGV[0] ])->start;
kill 'KILL', $$;
END
}
waitpid $victim, 0;
is($? & 127, 9, 'a test is killed');
my $pid = slurp("$folder/pid") + 0;

ok(wait_for(sub { !kill 0, $pid }, 'it to be gone'), '... and nothing stays of what it started');
done_testing();
