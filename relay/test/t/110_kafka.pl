# A relay and a real Kafka: what arrives, what is refused, and who is let in.
#
# Proves: topic, key, headers and body are those that the documentation names, byte for byte, also by Kafka's own consumer; CloudEvents
# in both modes; a route with templates; the ledger's reference is where the record lies; a topic that does not exist is waited
# for; what is too large, or has an illegal topic, is refused alone; a wrong certificate or password is the fault of the sink, and costs
# no message; --check sees that a topic is missing, makes none, and says what it cannot see; the password is in no log, ledger or process list.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use RelayTest;
use Test::More;

skip_without_kafka();

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $kafka = start_kafka();
my $brokers = $kafka->bootstrap;

$node->safe_psql('postgres', q{SELECT outbox.alter_queue('default', backoff_base => '100 ms', backoff_cap => '500 ms', payload_kind => 'any', max_attempts => NULL)});
$kafka->create_topic('events.order.placed', partitions => 3);
$kafka->create_topic($_) foreach qw(chosen order-made ce);
$kafka->create_topic('small', config => { 'max.message.bytes' => 20000 });
my $relay = start_relay(relay_config($node, qq{
[sink.kafka]
type = "kafka"
brokers = "$brokers"
timeout = "3s"
[[route]]
event_type = "ce.binary"
topic = "ce"
body = "cloudevents-binary"
source = "/orders"
[[route]]
event_type = "ce.structured"
topic = "ce"
body = "cloudevents-structured"
[[route]]
event_type = "routed"
topic = "{aggregate_type|event_type}-{header:verb}"
key = "{header:tenant}/{aggregate_id|'none'}"
header.region = "eu"
[[route]]
}));

sub enqueue
{
	my ($arguments) = @_;

	return $node->safe_psql('postgres', "SELECT outbox_id FROM outbox.enqueue($arguments)");
}

sub ledger_of
{
	my ($id, $columns) = @_;

	return $node->safe_psql('postgres', "SELECT $columns FROM outbox.attempts WHERE outbox_id = '$id' ORDER BY attempt_no");
}

sub raw
{
	my ($topic) = @_;

	return $kafka->kcat('-C', '-t', $topic, qw(-o beginning -e -q -D), '', '-f', '%s');
}

# ---------------------------------------------------------------- what arrives

my $id = enqueue(q{'Order_Placed', '{"b": 1.50, "a": "grün \u0001 \"x\""}', aggregate_type => 'Order', aggregate_id => 'a1', partition_key => 'p1',
	headers => '{"tenant": "acme", "n": 7, "deep": {"x": [1]}}'});

enqueue(q{'Order_Placed', '[1, null]', aggregate_id => 'a2'});
enqueue(q{'Order_Placed', '"no key"'});
wait_until_done($node);
my @records = $kafka->records('events.order.placed', count => 3);
my ($record) = grep { $_->{headers}{outbox_id} eq $id } @records;
my ($event_id, $created_at) = split /\|/,
	$node->safe_psql('postgres', qq{SELECT event_id, to_char(created_at, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') FROM outbox.messages WHERE outbox_id = '$id'});

is_deeply($record->{headers}, {
	message_id => $event_id, outbox_id => $id, event_type => 'Order_Placed', aggregate_type => 'Order', aggregate_id => 'a1', attempt => '1',
	created_at => $created_at, 'content-type' => 'application/json', tenant => 'acme', n => '7', deep => '{"x": [1]}' }, 'headers, and no others');
is($record->{key}, 'p1', 'the key is partition_key');
is_deeply([ sort map { $_->{key} // 'none' } @records ], [ 'a2', 'none', 'p1' ], '... else aggregate_id, else none');
is(ledger_of($id, 'reference'), "events.order.placed/$record->{partition}/$record->{offset}", 'the reference is where it lies');
is(join("\n", sort $kafka->console_records('events.order.placed', count => 3)),
	join("\n", sort map { $_->{value} } @records), q{Kafka's own consumer reads the same});

$id = enqueue(q{'x', '{"z": 1, "a": [1.0, 1e3, "\ud83d\ude00"], "long": 123456789012345678901234567890.10}', routing_key => 'chosen'});
wait_until_done($node);
is(raw('chosen'), $node->safe_psql('postgres', "SELECT payload FROM outbox.messages WHERE outbox_id = '$id'"), 'JSON arrives as PostgreSQL prints it');
my $bytes = join '', map { chr } 0 .. 255, 10, 0, 13;

enqueue(q{'x', routing_key => 'chosen', content_type => 'image/png', payload_bytes => '\x} . unpack('H*', $bytes) . q{'});
wait_until_done($node);
is(substr(raw('chosen'), -length $bytes), $bytes, 'bytes arrive as they are');
like($kafka->kcat('-C', '-t', 'chosen', qw(-o 1 -e -q -f %h)), qr{(?:^|,)content-type=image/png(?:,|$)}, '... with their type');

enqueue(q{'routed', '1', aggregate_type => 'order', aggregate_id => '7', headers => '{"verb": "made", "tenant": "acme"}'});
wait_until_done($node);
($record) = $kafka->records('order-made', count => 1);
is_deeply([ $record->{key}, $record->{headers}{region} ], [ 'acme/7', 'eu' ], 'a route with templates');

enqueue(q{'ce.binary', '{"n": 1}', aggregate_id => 'a1'});
wait_until_done($node);
enqueue(q{'ce.structured', '{"n": 2}', aggregate_id => 'a1'});
wait_until_done($node);
my ($binary, $structured) = $kafka->records('ce', count => 2);

is_deeply([ $binary->{value}, @{ $binary->{headers} }{qw(ce_specversion ce_source ce_type ce_subject ce_partitionkey content-type)} ],
	[ '{"n": 1}', '1.0', '/orders', 'ce.binary', 'a1', 'a1', 'application/json' ], 'CloudEvents, binary');
is($binary->{headers}{ce_id}, $binary->{headers}{message_id}, '... with the id of the event');
is_deeply([ @{ from_json($structured->{value}) }{qw(specversion type subject source data)}, $structured->{headers}{'content-type'} ],
	[ '1.0', 'ce.structured', 'a1', 'outbox/default', { n => 2 }, 'application/cloudevents+json' ], '... and structured');

# ---------------------------------------------------------------- what is refused, and what is waited for

$node->safe_psql('postgres', q{
	SELECT outbox.enqueue('small', to_jsonb(CASE WHEN n = 50 THEN (SELECT string_agg(md5(n::text || i), '') FROM generate_series(1, 2000) i) ELSE repeat('x', 50) END),
		routing_key => 'small') FROM generate_series(1, 100) n});
wait_until_done($node);
is($node->safe_psql('postgres', q{SELECT error_code, response_code, count(*) FROM outbox.attempts a JOIN outbox.messages USING (outbox_id)
	WHERE event_type = 'small' GROUP BY 1, 2 ORDER BY 3}), "KAFKA_MSG_SIZE_TOO_LARGE|10|1\n||99", 'too large for the topic: refused, and the others are not');
proven($node, 'too large', [ map { $_->{outbox_id} } $kafka->deliveries('small') ], where => "event_type = 'small'", failed => 1);

my $large = enqueue(q{'large', (SELECT to_jsonb(string_agg(md5(i::text), '')) FROM generate_series(1, 40000) i)});
my $illegal = enqueue(q{'illegal', '1', routing_key => 'no topic/at all'});

wait_until_done($node);
is(ledger_of($large, 'state, error_code'), 'FAILED|KAFKA_MSG_SIZE_TOO_LARGE', 'too large for the client: refused');
is(ledger_of($illegal, 'state, error_code'), 'FAILED|ILLEGAL_DESTINATION', 'an illegal name: refused');

my $late = enqueue(q{'late', '1'});

wait_for(sub { ledger_of($late, 'state, error_code') =~ /^RETRYABLE\|KAFKA_/ }, 'a try without the topic');
$id = enqueue(q{'x', '2', routing_key => 'chosen'});
wait_until_done($node, "outbox_id = '$id'");
pass('a topic that does not exist delays no other');
$kafka->create_topic('events.late');
wait_until_done($node);
proven($node, 'a topic that was created late', [ map { $_->{outbox_id} } $kafka->deliveries('events.late') ], where => "event_type = 'late'");
unlike($relay->log, qr/the sink is away/, '... and the sink was never away');
my @ids = map { $_->{outbox_id} } map { $kafka->deliveries($_) } qw(events.order.placed chosen order-made ce small events.late);
proven($node, 'all of them', \@ids, failed => 3);

# The question is one that has other answers.
my $ledger = RelayTest::ledger($node, 'true');
foreach my $wrong ([ missing => @ids[ 1 .. $#ids ] ], [ 'too many' => @ids, $ids[0] ], [ unknown => @ids, 'x' ], [ 'no id' => @ids, undef ])
{
	my ($name, @wrong) = @$wrong;

	is(scalar(my @problems = RelayTest::unproven($ledger, \@wrong)), 1, "a record: $name");
}
$relay->signal('TERM');
is($relay->wait_end, 0, 'the relay ends');

# ---------------------------------------------------------------- what --check looks for

my $plain = qq{
[sink.kafka]
type = "kafka"
brokers = "$brokers"
[[route]]
event_type = "a"
topic = "ce"
};

check_destinations($node, qq{$plain
[[route]]
topic = "{event_type}"
}, 0, [ 'topic ce: there', 'topic {event_type}: not looked for; it depends on the message' ]);
check_destinations($node, qq{$plain
[[route]]
topic = "nowhere"
}, 1, [ 'topic ce: there', 'topic nowhere: missing; create it' ]);
is($kafka->topic('nowhere'), undef, '... and does not create it');

$kafka->kill9;

# ---------------------------------------------------------------- who is let in

my $password = 'q7Zw-very.secret';
my $files = new_folder('secrets');

# One that creates topics.
$kafka = start_kafka(auto_create => 1, tls => 1, clients => 1, user => 'relay', password => $password);
$brokers = $kafka->bootstrap;
$kafka->create_topic('events.secret');
write_file("$files/$_->[0]", $_->[1]) foreach [ right => $password ], [ wrong => "not $password" ];

my $ca = test_ca();
my $expired = start_receiver(tls => 'expired');    # TLS comes first, so any server will do

# Right, or wrong in one way.
sub guarded
{
	my (%wrong) = @_;
	my ($secret, $to) = ($wrong{secret} // 'right', $wrong{brokers} // $brokers);
	my $authority = $wrong{ca} // $ca->{ca};
	my $client = $wrong{nobody} ? '' : qq{"ssl.certificate.location" = "$ca->{client}{cert}"\n"ssl.key.location" = "$ca->{client}{key}"};

	return relay_config($node, qq{
[sink.kafka]
type = "kafka"
brokers = "$to"
timeout = "3s"
[sink.kafka.properties]
"broker.address.family" = "v4"    # the last error is told, and nothing listens on ::1
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "relay"
"sasl.password" = { file = "$files/$secret" }
"ssl.ca.location" = "$authority"
$client
debug = "security,broker,conf"
[[route]]
});
}

# 127.1 is 127.0.0.1, but not what the certificate says.
my @strangers = (
	[ 'another name', '_SSL', brokers => $brokers =~ s/localhost/127.1/r ],
	[ 'another authority', '_SSL', ca => $ca->{stranger_ca} ],
	[ 'expired', '_SSL', brokers => 'localhost:' . $expired->port ],
	[ 'no certificate', '_SSL', nobody => 1 ],
	[ 'a wrong password', '_AUTHENTICATION', secret => 'wrong' ]);

$node->safe_psql('postgres', q{SELECT outbox.enqueue('secret', to_jsonb(n)) FROM generate_series(1, 50) n});
$relay = start_relay(guarded());
wait_until_done($node);
my ($reached, $said) = check(guarded() . qq{topic = "nowhere"\n});
is($reached, 0, '--check of a topic that the brokers create');
like($said, qr/^  topic nowhere: not looked for; it does not exist, and the brokers create it with the first message$/m, '... says that');
is($kafka->topic('nowhere'), undef, '... and does not create it');
is((check(guarded(ca => $ca->{empty})))[0], 2, 'no authority: the configuration is refused');
foreach my $stranger (@strangers)
{
	my ($name, $code, %wrong) = @$stranger;
	my $away = () = $relay->log =~ /the sink is away/g;

	my $says = qr/KAFKA_(?:$code|_ALL_BROKERS_DOWN)\b/;    # where there is only one broker, both are true
	my ($status, $out) = check(guarded(%wrong));

	is($status, 1, "$name: --check fails");
	like($out, qr/^sink kafka: $says.*(?:certificate|authentication)/mi, '... and names it');
	reload($relay, guarded(%wrong));
	$node->safe_psql('postgres', q{SELECT outbox.enqueue('secret', to_jsonb(n)) FROM generate_series(1, 10) n});
	wait_for(sub { (() = $relay->log =~ /the sink is away/g) > $away }, 'the sink to be away');
	my ($said) = reverse grep { /the sink is away/ } split /\n/, $relay->log;
	like($said, qr/code=$says/, '... the sink is away');
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.attempts a JOIN outbox.messages USING (outbox_id) WHERE event_type = 'secret' AND state NOT IN ('RETRYABLE', 'DISPATCHED')}),
	'0', 'no message ends');
is(scalar(my @sent = $kafka->deliveries('events.secret')), 50, '... and none is sent');
reload($relay, guarded());
wait_until_done($node);
proven($node, 'TLS and a login', [ map { $_->{outbox_id} } $kafka->deliveries('events.secret') ], where => "event_type = 'secret'");

unlike($relay->log, qr/\Q$password\E/, 'the password is not in the log');
like($relay->log, qr/sasl/i, '... which tells of the login');
is($node->safe_psql('postgres', "SELECT count(*) FROM outbox.attempts a WHERE a::text LIKE '%$password%'"), '0', '... not in the ledger');
is(join(' ', grep { (eval { slurp("$_/cmdline") } // '') =~ /\Q$password\E/ } map { glob "/proc/$_" } $relay->pid, 'self'), '', '... not in the process list');
$relay->signal('TERM');
is($relay->wait_end, 0, 'the relay ends');

consistent($node, 'consistent');
$node->stop('fast');
done_testing;
