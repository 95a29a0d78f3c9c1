# The relay with a real RabbitMQ: what arrives, and faults of single messages and of the login.
#
# Proves: exchange, routing key, properties, headers and body arrive as the message has them, byte for byte, and CloudEvents in both
# modes; a message that no queue takes is retried, and arrives once a queue is bound, or is refused where the configuration
# says so; where an exchange is missing only its own messages wait; one that is too large ends as refused, and
# those beside it arrive; without the right certificate or password nothing is sent and nothing ends, until the configuration is right; passwords are nowhere
# to be read; --check sees which queue or exchange is missing, makes none, and says what it cannot see. In the end each message was accepted as often as the ledger says.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use RelayTest;
use Test::More;

my ($right, $wrong) = ('Pa55-that-is-right', 'Pa55-that-is-wrong');
my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $rabbitmq = start_rabbitmq(tls => 1, clients => 1, password => $right, config => "max_message_size = 100000\n");
my $expired = start_receiver(tls => 'expired');    # TLS comes first, so any server will do
my $ca = test_ca();
my $queues = '"default", ' . join ', ', map { qq{"$_"} } my @all = qw(tls name stranger expired rootless nobody login);

sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql); }
sub wait_sql { my ($sql, $what) = @_; return wait_for(sub { sql($sql) eq 't' }, $what // $sql); }

# Messages of a kind that were accepted: their ids. Each kind has a queue of the broker, where none but these arrive.
sub ids { my ($queue) = @_; return [ map { $_->{properties}{headers}{outbox_id} } $rabbitmq->messages($queue) ]; }

sub bind_queue
{
	my ($queue, $key, $exchange) = @_;

	$rabbitmq->queue($queue);
	$rabbitmq->bind($queue, $exchange // 'events', $key);
	return;
}

# A sink with TLS that is right or wrong in one way.
sub secured
{
	my ($name, %options) = @_;
	my $host = $options{host} // 'localhost';
	my $ca_file = $options{ca} // $ca->{ca};
	my $port = $options{port} // $rabbitmq->tls_port;
	my $client = $options{nobody} ? '' : qq{cert = "$ca->{client}{cert}"\nkey = "$ca->{client}{key}"};
	my $variable = $options{password} // 'RIGHT_PASSWORD';

	return <<"END";
[sink.$name]
type = "rabbitmq"
hosts = ["$host:$port"]
tls = true
ca = "$ca_file"
$client
user = "relay"
password = { env = "$variable" }
exchange = "events"
connect_timeout = "10s"
[[route]]
queue = "$name"
sink = "$name"
END
}

sub sinks
{
	my (@secured) = @_;
	my $plain = <<"END";
type = "rabbitmq"
hosts = ["127.0.0.1:${\ $rabbitmq->port}"]
user = "relay"
password = { env = "RIGHT_PASSWORD" }
END

	return qq{
[sink.rabbitmq]
${plain}exchange = "events"
[sink.strict]
${plain}exchange = "events"
[[override]]
sink = "strict"
code = "AMQP_NO_ROUTE"
class = "refused"
@secured
[[route]]
event_type = "strict.*"
sink = "strict"
[[route]]
event_type = "own.*"
sink = "rabbitmq"
exchange = "{aggregate_type}"
routing_key = "{header:region|'nowhere'}.{aggregate_id}"
header.shop = "{partition_key}"
[[route]]
event_type = "binary.*"
sink = "rabbitmq"
body = "cloudevents-binary"
source = "/shop"
[[route]]
event_type = "structured.*"
sink = "rabbitmq"
body = "cloudevents-structured"
[[route]]
sink = "rabbitmq"
};
}

sub config
{
	my (@secured) = @_;

	return relay_config($node, sinks(@secured), queues => "[$queues]", poll_interval => '"100ms"');
}

$rabbitmq->exchange('events', type => 'topic');
$rabbitmq->exchange('Order', type => 'topic');
sql(q{
	SELECT outbox.alter_queue('default', max_attempts => NULL, backoff_base => '50 ms', backoff_cap => '200 ms');
	SELECT outbox.create_queue(q, backoff_base => '50 ms', backoff_cap => '200 ms') FROM unnest('{tls, name, stranger, expired, rootless, nobody, login}'::text[]) q});

# 127.1 is 127.0.0.1, but not what the certificate says.
my @tls = (secured('tls'), secured('name', host => '127.1'), secured('stranger', ca => $ca->{stranger_ca}),
	secured('expired', port => $expired->port), secured('rootless', ca => $ca->{empty}), secured('nobody', nobody => 1), secured('login', password => 'WRONG_PASSWORD'));
my $relay = start_relay(config(@tls), env => { RIGHT_PASSWORD => $right, WRONG_PASSWORD => $wrong });

# ---------------------------------------------------------------- what arrives

bind_queue('plain', 'events.plain.#');
bind_queue('bytes', 'events.bytes.#');
sql(q{
	SELECT outbox.enqueue('plain.Made_Now', '{"b": "gr\u00fcn\u2028 \"", "a": 1.50}', aggregate_type => 'Order', aggregate_id => '7', partition_key => 'shop 1',
		headers => '{"tenant": "\u00e4", "n": 1, "deep": {"x": [1, 2]}}', content_type => 'application/json; charset=utf-8');
	SELECT outbox.enqueue('bytes.x', payload_bytes => '\x00ff0d0a80ce00', content_type => 'image/x-test')});
wait_until_done($node);

my ($message) = $rabbitmq->messages('plain', count => 1);
my ($id, $event, $created, $seconds, $body) = split /\|/,
	sql(q{SELECT outbox_id, event_id, to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), floor(extract(epoch FROM created_at)), encode(convert_to(payload::text, 'UTF8'), 'hex')
		FROM outbox.messages WHERE event_type = 'plain.Made_Now'});

is_deeply([ @$message{ 'exchange', 'routing_key', 'hex' } ], [ 'events', 'events.plain.made.now', $body ], 'exchange, routing key, and body byte for byte');
is_deeply($message->{properties}, {
		message_id => $event, type => 'plain.Made_Now', timestamp => $seconds + 0, delivery_mode => 2, content_type => 'application/json; charset=utf-8',
		headers => {
			message_id => $event, outbox_id => $id, event_type => 'plain.Made_Now', aggregate_type => 'Order', aggregate_id => '7', attempt => '1', created_at => $created,
			tenant => "\x{e4}", n => '1', deep => '{"x": [1, 2]}' } }, '... properties and headers');
($message) = $rabbitmq->messages('bytes', count => 1);
is_deeply([ $message->{hex}, $message->{properties}{content_type} ], [ '00ff0d0a80ce00', 'image/x-test' ], '... and bytes that are no text');
like(sql(qq{SELECT reference FROM outbox.attempts WHERE outbox_id = '$id' AND state = 'DISPATCHED'}), qr{^\d+/\d+$}, '... channel and delivery tag are in the ledger');

bind_queue('own', '#', 'Order');
sql(q{SELECT outbox.enqueue('own.x', '{}', aggregate_type => 'Order', aggregate_id => '8', partition_key => 'p', headers => '{"region": "eu"}')});
($message) = $rabbitmq->messages('own', count => 1);
is_deeply([ @$message{ 'exchange', 'routing_key' }, $message->{properties}{headers}{shop} ], [ 'Order', 'eu.8', 'p' ], 'exchange, routing key and header of a route');

bind_queue('cloud', 'events.binary.#');
bind_queue('cloud', 'events.structured.#');
sql(q{SELECT outbox.enqueue('binary.x', '{"a": 1}', aggregate_id => '9')});
($message) = $rabbitmq->messages('cloud', count => 1);
($event, $created) = @{ $message->{properties}{headers} }{qw(message_id created_at)};
is_deeply([ $message->{body}, $message->{properties}{content_type}, map { $message->{properties}{headers}{"cloudEvents:$_"} } qw(specversion id source type subject time) ],
	[ '{"a": 1}', 'application/json', '1.0', $event, '/shop', 'binary.x', '9', $created ], 'CloudEvents, binary');
sql(q{SELECT outbox.enqueue('structured.x', '{"a": 1}', aggregate_id => '9')});
($message) = $rabbitmq->messages('cloud', count => 1);
($event, $created) = @{ $message->{properties}{headers} }{qw(message_id created_at)};
is($message->{properties}{content_type}, 'application/cloudevents+json', 'CloudEvents, structured');
is_deeply(from_json($message->{body}), {
		specversion => '1.0', id => $event, source => 'outbox/default', type => 'structured.x', subject => '9', time => $created, partitionkey => '9',
		datacontenttype => 'application/json', data => { a => 1 } }, '... the same attributes, and the data');

# ---------------------------------------------------------------- faults of single messages

bind_queue('steady', 'events.steady.#');

# What happened to the messages of a kind before they were done: state and code, without how often.
sub outcomes
{
	my ($like) = @_;

	return sql(qq{SELECT string_agg(DISTINCT concat_ws(' ', a.state, a.error_code), ', ') FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id) WHERE m.event_type LIKE '$like'});
}

# Enqueues messages of a kind among others that nothing is wrong with, which arrive meanwhile.
sub among_others
{
	my ($type) = @_;

	sql(qq{SELECT outbox.enqueue(CASE WHEN n % 10 = 0 THEN '$type' ELSE 'steady.$type' END, to_jsonb(n), aggregate_type => 'Missing', aggregate_id => 'a') FROM generate_series(1, 200) n});
	wait_until_done($node, "event_type = 'steady.$type'");
	return proven($node, "beside $type", ids('steady'), where => "event_type = 'steady.$type'");
}

among_others('homeless');
wait_sql(q{SELECT count(*) = 20 FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = 'homeless' AND attempt_no = 2});
is(outcomes('homeless'), 'RETRYABLE AMQP_NO_ROUTE', 'no queue takes them: try again');
like(sql(q{SELECT DISTINCT error_message FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = 'homeless' AND attempt_no = 1}),
	qr/^NO_ROUTE: no queue is bound in exchange "\w+" for routing key "events\.homeless"$/, '... and the ledger says where');
bind_queue('homeless', 'events.homeless');
wait_until_done($node);
proven($node, 'a queue was bound', ids('homeless'), where => "event_type = 'homeless'");

among_others('strict.homeless');
wait_until_done($node);
is(outcomes('strict.%'), 'FAILED AMQP_NO_ROUTE', 'no queue takes them: refused, since the configuration says so');
is(sql(q{SELECT DISTINCT response_code FROM outbox.dead_letters}), '312', '... with the number that the broker gave');
sql(q{SELECT outbox.acknowledge_dead(outbox_id, 'seen') FROM outbox.dead_letters});

among_others('own.missing');
wait_sql(q{SELECT count(*) = 20 FROM outbox.operational_status WHERE last_error_code = 'AMQP_NOT_FOUND'});
like(outcomes('own.missing'), qr/^RETRYABLE AMQP_NOT_FOUND$/, 'the exchange is missing: try again');
$rabbitmq->exchange('Missing', type => 'topic');
bind_queue('missing', '#', 'Missing');
wait_until_done($node);
proven($node, 'the exchange was declared', ids('missing'), where => "event_type = 'own.missing'");

bind_queue('large', 'events.large');
sql(q{SELECT outbox.enqueue(CASE WHEN n % 100 = 0 THEN 'large' ELSE 'steady.large' END, to_jsonb(repeat('x', CASE WHEN n % 100 = 0 THEN 100000 ELSE 10 END))) FROM generate_series(1, 300) n});
wait_until_done($node);
# Which of those on the channel was too large, the broker does not say: each of them goes once more, alone.
like(outcomes('large'), qr/^FAILED AMQP_PRECONDITION_FAILED(?:, RETRYABLE AMQP_CHANNEL_CLOSED)?$/, 'a message is too large: refused');
proven($node, 'too large', ids('large'), where => "event_type = 'large'", failed => 3);
proven($node, 'beside one that is too large', ids('steady'), where => "event_type = 'steady.large'");

# ---------------------------------------------------------------- TLS and login

my %refused = (
	name => 'AMQP_STATUS_SSL_HOSTNAME_VERIFY_FAILED',
	stranger => 'AMQP_STATUS_SSL_PEER_VERIFY_FAILED',
	expired => 'AMQP_STATUS_SSL_PEER_VERIFY_FAILED',
	rootless => 'AMQP_STATUS_SSL_ERROR',
	nobody => 'AMQP_STATUS_SSL_ERROR',
	login => 'AMQP_LOGIN_REFUSED');

check_names(config(@tls), { RIGHT_PASSWORD => $right, WRONG_PASSWORD => $wrong }, %refused);
sql(qq{SELECT outbox.enqueue('$_.x', to_jsonb(n), '$_') FROM generate_series(1, 20) n}) foreach @all;
bind_queue($_, "events.$_.#") foreach @all;
wait_until_done($node, "queue = 'tls'");
proven($node, 'TLS', ids('tls'), where => "queue = 'tls'");
foreach my $kind (sort keys %refused)
{
	$relay->wait_log(qr/cannot connect.*sink=$kind/);
	wait_sql(qq{SELECT count(*) > 0 FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE queue = '$kind'});
	is(outcomes("$kind.x"), "RETRYABLE $refused{$kind}", "$kind: the sink is away");
	is($rabbitmq->depth($kind), '0', '... and nothing was sent');
}
reload($relay, config(map { secured($_) } @all));
wait_until_done($node);
proven($node, "$_ was made right", ids($_), where => "queue = '$_'") foreach sort keys %refused;

# ---------------------------------------------------------------- what --check looks for

my $plain = qq{type = "rabbitmq"\nhosts = ["127.0.0.1:${\ $rabbitmq->port}"]\nuser = "relay"\npassword = { env = "RIGHT_PASSWORD" }\n};

$rabbitmq->queue('here');
check_destinations($node, qq{
[sink.direct]
$plain
[sink.topics]
${plain}exchange = "events"
[[route]]
event_type = "a"
sink = "direct"
routing_key = "here"
[[route]]
event_type = "b"
sink = "direct"
routing_key = "{aggregate_type}"
[[route]]
event_type = "c"
sink = "direct"
exchange = "{aggregate_type}"
[[route]]
event_type = "d"
sink = "direct"
[[route]]
sink = "topics"
routing_key = "x"
}, 0, [
	'queue "here": there',
	'queue {aggregate_type}: not looked for; it depends on the message',
	'exchange {aggregate_type}: not looked for; it depends on the message',
	q{queue the message's routing_key, else its event_type: not looked for; it depends on the message},
	'exchange "events": there',
	'binding of exchange "events" for x: not looked for; only a message shows whether a queue is bound' ], RIGHT_PASSWORD => $right);

# Twice: nothing comes into being by that.
check_destinations($node, qq{
[sink.direct]
$plain
[[route]]
event_type = "a"
routing_key = "gone"
[[route]]
exchange = "away"
routing_key = "x"
}, 1, [
	q{queue "gone": missing; NOT_FOUND - no queue 'gone' in vhost '/': declare it},
	q{exchange "away": missing; NOT_FOUND - no exchange 'away' in vhost '/': declare it},
	'binding of exchange "away" for x: not looked for' ], RIGHT_PASSWORD => $right) foreach 1, 2;

# ---------------------------------------------------------------- in the end

ok(-1 == index(slurp("/proc/$relay->{pid}/cmdline"), 'Pa55'), 'no password in the list of processes');
$relay->signal('TERM');
is($relay->wait_end, 0, 'TERM: exit status 0');
ok(-1 == index($relay->log, 'Pa55'), '... in the log');
is(sql(q{SELECT count(*) FROM outbox.attempts a WHERE a::text LIKE '%Pa55%'}), '0', '... in the ledger');
consistent($node, 'consistent');
$node->stop('fast');
done_testing();
