# The relay with a real NATS server and JetStream: what arrives, and faults of single messages and of the login.
#
# Proves: subject, headers and body arrive as the message has them, byte for byte, and CloudEvents in both modes; what comes twice under one
# Nats-Msg-Id is stored once; messages that no stream takes are retried, and stored once one is created; one that is too
# large, for the server or the stream, ends as refused, and those beside it arrive; without the right certificate or password nothing is sent
# and nothing ends, until the configuration is right; passwords are nowhere to be read; --check sees that no stream takes a subject, and says what it cannot see. In the end each message was accepted as often as the ledger says.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use RelayTest;
use Test::More;

my ($right, $wrong) = ('Pa55-that-is-right', 'Pa55-that-is-wrong');
my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $nats = start_nats(user => 'relay', password => $right, config => "max_payload: 100000\n");
my $secured = start_nats(tls => 1, clients => 1, user => 'relay', password => $right);
my $other = start_nats(tls => 'other', user => 'relay', password => $right);
my $expired = start_nats(tls => 'expired', user => 'relay', password => $right);
my $ca = test_ca();
my @all = qw(tls name stranger expired rootless nobody login);

sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql); }
sub wait_sql { my ($sql, $what) = @_; return wait_for(sub { sql($sql) eq 't' }, $what // $sql); }
sub ids { my ($stream, $server) = @_; return [ map { $_->{headers}{outbox_id} } ($server // $nats)->messages($stream) ]; }

# What happened to the messages of a kind before they were done: state and code, without how often.
sub outcomes
{
	my ($like) = @_;

	return sql(qq{SELECT string_agg(DISTINCT concat_ws(' ', a.state, a.error_code), ', ') FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id) WHERE m.event_type LIKE '$like'});
}

# A sink with TLS that is right or wrong in one way.
sub secured
{
	my ($name, %options) = @_;
	my $url = ($options{server} // $secured)->url;
	my $ca_file = $options{ca} // $ca->{ca};
	my $variable = $options{password} // 'RIGHT_PASSWORD';
	my $client = $options{nobody} ? '' : qq{cert = "$ca->{client}{cert}"\nkey = "$ca->{client}{key}"};

	return <<"END";
[sink.$name]
type = "nats"
url = "$url"
ca = "$ca_file"
$client
user = "relay"
password = { env = "$variable" }
connect_timeout = "10s"
[[route]]
queue = "$name"
sink = "$name"
END
}

sub config
{
	my (@secured) = @_;

	return relay_config($node, qq{
[sink.nats]
type = "nats"
url = "${\ $nats->url}"
user = "relay"
password = { env = "RIGHT_PASSWORD" }
@secured
[[route]]
event_type = "own.*"
sink = "nats"
subject = "own.{header:region|'nowhere'}.{aggregate_id}"
header.shop = "{partition_key}"
[[route]]
event_type = "binary.*"
sink = "nats"
body = "cloudevents-binary"
source = "/shop"
[[route]]
event_type = "structured.*"
sink = "nats"
body = "cloudevents-structured"
[[route]]
sink = "nats"
}, queues => '[' . join(', ', map { qq{"$_"} } 'default', 'patient', @all) . ']', poll_interval => '"100ms"');
}

sql(q{
	SELECT outbox.create_queue(q, backoff_base => '50 ms', backoff_cap => '200 ms') FROM unnest('{patient, tls, name, stranger, expired, rootless, nobody, login}'::text[]) q;
	SELECT outbox.alter_queue('patient', max_attempts => NULL)});
$nats->stream($_, subjects => ["events.$_.>"]) foreach qw(plain bytes steady);
$nats->stream('own', subjects => ['own.>']);
$nats->stream('twice', subjects => ['events.twice']);
$nats->stream('small', subjects => ['events.small'], max_msg_size => 10000);
$nats->stream('large', subjects => ['events.large']);
$nats->stream('clouds', subjects => [ 'events.binary.>', 'events.structured.>' ]);
$secured->stream('events', subjects => ['events.>']);

my @tls = (secured('tls'), secured('name', server => $other), secured('stranger', ca => $ca->{stranger_ca}), secured('expired', server => $expired),
	secured('rootless', ca => $ca->{empty}), secured('nobody', nobody => 1), secured('login', password => 'WRONG_PASSWORD'));
my $relay = start_relay(config(@tls), env => { RIGHT_PASSWORD => $right, WRONG_PASSWORD => $wrong });

# ---------------------------------------------------------------- what arrives

sql(q{
	SELECT outbox.enqueue('plain.Made_Now', '{"b": "gr\u00fcn\u2028 \"", "a": 1.50}', aggregate_type => 'Order', aggregate_id => '7', partition_key => 'shop 1',
		headers => '{"tenant": "\u00e4", "n": 1, "deep": {"x": [1, 2]}}', content_type => 'application/json; charset=utf-8');
	SELECT outbox.enqueue('bytes.x', payload_bytes => '\x00ff0d0a80ce00', content_type => 'image/x-test')});
wait_until_done($node, "queue = 'default'");

my ($message) = $nats->messages('plain', count => 1);
my ($id, $event, $created, $body) = split /\|/,
	sql(q{SELECT outbox_id, event_id, to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), encode(convert_to(payload::text, 'UTF8'), 'hex')
		FROM outbox.messages WHERE event_type = 'plain.Made_Now'});

is_deeply([ @$message{ 'subject', 'hex' } ], [ 'events.plain.made.now', $body ], 'subject, and body byte for byte');
is_deeply($message->{headers}, {
		'Nats-Msg-Id' => $event, 'content-type' => 'application/json; charset=utf-8',
		message_id => $event, outbox_id => $id, event_type => 'plain.Made_Now', aggregate_type => 'Order', aggregate_id => '7', attempt => '1', created_at => $created,
		tenant => "\x{e4}", n => '1', deep => '{"x": [1, 2]}' }, '... headers');
($message) = $nats->messages('bytes', count => 1);
is_deeply([ $message->{hex}, $message->{headers}{'content-type'} ], [ '00ff0d0a80ce00', 'image/x-test' ], '... and bytes that are no text');
is(sql(qq{SELECT reference FROM outbox.attempts WHERE outbox_id = '$id' AND state = 'DISPATCHED'}), 'plain/1', '... stream and sequence are in the ledger');

sql(q{SELECT outbox.enqueue('own.x', '{}', aggregate_id => '8', partition_key => 'p', headers => '{"region": "eu"}')});
($message) = $nats->messages('own', count => 1);
is_deeply([ $message->{subject}, $message->{headers}{shop} ], [ 'own.eu.8', 'p' ], 'subject and header of a route');

# A subject for which the server would close the connection costs no other message an attempt; a shorter one arrives.
sql(q{
	SELECT outbox.enqueue('own.long', '1', aggregate_id => 'x', headers => jsonb_build_object('region', repeat('x', length)))
	FROM unnest(ARRAY[3894, 3895, 5000]) length;
	SELECT outbox.enqueue('plain.beside', to_jsonb(n)) FROM generate_series(1, 50) n});
wait_until_done($node, "queue = 'default'");
is(sql(q{
		SELECT event_type, length(headers ->> 'region'), a.state, a.error_code, count(*) FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id)
		WHERE event_type IN ('own.long', 'plain.beside') GROUP BY 1, 2, 3, 4 ORDER BY 1, 2}),
	"own.long|3894|DISPATCHED||1\nown.long|3895|FAILED|ILLEGAL_DESTINATION|1\nown.long|5000|FAILED|ILLEGAL_DESTINATION|1\nplain.beside||DISPATCHED||50",
	'a subject that is too long is refused alone');

sql(q{SELECT outbox.enqueue('binary.x', '{"a": 1}', aggregate_id => '9')});
($message) = $nats->messages('clouds', count => 1);
($event, $created) = @{ $message->{headers} }{qw(message_id created_at)};
is_deeply([ $message->{body}, map { $message->{headers}{"ce-$_"} } qw(specversion id source type subject time datacontenttype) ],
	[ '{"a": 1}', '1.0', $event, '/shop', 'binary.x', '9', $created, 'application/json' ], 'CloudEvents, binary');
sql(q{SELECT outbox.enqueue('structured.x', '{"a": 1}', aggregate_id => '9')});
(undef, $message) = $nats->messages('clouds', count => 2);
($event, $created) = @{ $message->{headers} }{qw(message_id created_at)};
is($message->{headers}{'content-type'}, 'application/cloudevents+json', 'CloudEvents, structured');
is_deeply(from_json($message->{body}), {
		specversion => '1.0', id => $event, source => 'outbox/default', type => 'structured.x', subject => '9', time => $created, partitionkey => '9',
		datacontenttype => 'application/json', data => { a => 1 } }, '... the same attributes, and the data');

# The same event in two queues.
sql(q{
	SELECT outbox.enqueue('twice', '1', q, event_id => '01890000-0000-7000-8000-000000000001') FROM unnest(ARRAY['default', 'patient']) q});
wait_until_done($node, "event_type = 'twice'");
is($nats->info('twice')->{state}{messages}, 1, 'what comes twice under one Nats-Msg-Id is stored once');
is(sql(q{SELECT string_agg(reference, ', ' ORDER BY reference) FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = 'twice'}), 'twice/1, twice/1 duplicate', '... and the ledger says so');

# ---------------------------------------------------------------- faults of single messages

sql(q{SELECT outbox.enqueue(CASE WHEN n % 10 = 0 THEN 'homeless' ELSE 'steady.homeless' END, to_jsonb(n), 'patient') FROM generate_series(1, 200) n});
wait_until_done($node, "event_type = 'steady.homeless'");
wait_sql(q{SELECT count(*) = 20 FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = 'homeless' AND attempt_no = 2});
is(outcomes('homeless'), 'RETRYABLE NATS_NO_RESPONDERS', 'no stream takes them: try again');
$nats->stream('homeless', subjects => ['events.homeless']);
wait_until_done($node, "event_type = 'homeless'");
proven($node, 'a stream was created', ids('homeless'), where => "event_type = 'homeless'");

foreach my $case ([ 'large', 'NATS_MAX_PAYLOAD' ], [ 'small', 'JSStreamMessageExceedsMaximumErr' ])
{
	my ($type, $code) = @$case;
	my $size = $type eq 'large' ? 100000 : 10000;

	sql(qq{SELECT outbox.enqueue(CASE WHEN n % 100 = 0 THEN '$type' ELSE 'steady.$type' END, to_jsonb(repeat('x', CASE WHEN n % 100 = 0 THEN $size ELSE 10 END))) FROM generate_series(1, 300) n});
	wait_until_done($node, "event_type LIKE '%$type'");
	is(outcomes($type), "FAILED $code", "too large for the ${\ ($type eq 'large' ? 'server' : 'stream')}: refused");
	proven($node, "... $type", ids($type), where => "event_type = '$type'", failed => 3);
}
proven($node, '... those beside them', ids('steady'), where => "event_type LIKE 'steady.%'");
sql(q{SELECT outbox.acknowledge_dead(outbox_id, 'seen') FROM outbox.dead_letters});

# ---------------------------------------------------------------- TLS and login

# By TLS 1.3 the server refuses a client's certificate once TLS stands: then what comes is not NATS, or for newer releases
# of the library nothing.
my %passwords = (RIGHT_PASSWORD => $right, WRONG_PASSWORD => $wrong);
my (undef, $said) = check(config(@tls), %passwords);
my ($closed) = $said =~ /^sink nobody: (NATS_CONNECTION_CLOSED)/m;
my %refused = ((map { $_ => 'NATS_SSL_ERROR' } qw(name stranger expired rootless)), nobody => $closed // 'NATS_PROTOCOL_ERROR', login => 'NATS_CONNECTION_AUTH_FAILED');

check_names(config(@tls), \%passwords, %refused);
sql(qq{SELECT outbox.enqueue('$_.x', to_jsonb(n), '$_') FROM generate_series(1, 20) n}) foreach @all;
wait_until_done($node, "queue = 'tls'");
proven($node, 'TLS', ids('events', $secured), where => "queue = 'tls'");
foreach my $kind (sort keys %refused)
{
	$relay->wait_log(qr/cannot connect.*sink=$kind/);
	wait_sql(qq{SELECT count(*) > 0 FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE queue = '$kind'});
	is(outcomes("$kind.x"), "RETRYABLE $refused{$kind}", "$kind: the sink is away");
}
is($secured->info('events')->{state}{messages}, 20, '... and nothing was sent');
reload($relay, config(map { secured($_) } @all));
wait_until_done($node, "queue = ANY ('{@{[ join ', ', @all ]}}')");
proven($node, 'all was made right', ids('events', $secured), where => "queue = ANY ('{@{[ join ', ', @all ]}}')");

# ---------------------------------------------------------------- what --check looks for

my $plain = qq{
[sink.nats]
type = "nats"
url = "${\ $nats->url}"
user = "relay"
password = { env = "RIGHT_PASSWORD" }
[[route]]
event_type = "a"
subject = "events.plain.x"
};
my $without = start_nats(jetstream => 0);

check_destinations($node, qq{$plain
[[route]]
subject = "events.{event_type}"
}, 0, [ 'stream for subject events.plain.x: there; ["plain"]', 'stream for subject events.{event_type}: not looked for; it depends on the message' ], %passwords);
check_destinations($node, qq{$plain
[[route]]
subject = "nowhere.x"
}, 1, [ 'stream for subject events.plain.x: there', 'stream for subject nowhere.x: missing; create a stream that takes this subject' ], %passwords);
check_destinations($node, qq{
[sink.nats]
type = "nats"
url = "${\ $without->url}"
[[route]]
subject = "nowhere.x"
}, 1, ['stream for subject nowhere.x: missing; JetStream is off']);

# ---------------------------------------------------------------- in the end

ok(-1 == index(slurp("/proc/$relay->{pid}/cmdline"), 'Pa55'), 'no password in the list of processes');
$relay->signal('TERM');
is($relay->wait_end, 0, 'TERM: exit status 0');
ok(-1 == index($relay->log, 'Pa55'), '... in the log');
is(sql(q{SELECT count(*) FROM outbox.attempts a WHERE a::text LIKE '%Pa55%'}), '0', '... in the ledger');
is(sql(q{SELECT count(*) FROM outbox.dead_letters WHERE acknowledged_at IS NULL}), '0', 'no other dead letters');
consistent($node, 'consistent');
$node->stop('fast');
done_testing();
