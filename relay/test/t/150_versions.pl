# Routes that want a version of the payload: the relay has inbox.upcast lift older ones.
#
# Proves: what is older is lifted, with its header, and what is as new, or newer, goes as it is; what cannot be lifted fails
# alone, to be tried again, beside others of its claim; the order of a key is kept; without the extension or the right
# nothing is lost and no attempt is used, and it goes on when that is mended; --dry-run says what would be lifted.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use RelayTest;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $do = sub { return $node->safe_psql('postgres', shift) };
my $file = new_folder('lines') . '/lines';
my $config = relay_config($node, qq{
[sink.lines]
type = "file"
path = "$file"
[[route]]
event_type = "raw"
[[route]]
schema_version = 3
}, queues => '["default", "ordered"]', poll_interval => '"1h"');

$do->(q{
	SELECT outbox.alter_queue('default', backoff_base => '1 ms', backoff_cap => '1 ms', max_attempts => 2);
	SELECT outbox.create_queue('ordered', ordering => 'fifo', max_attempts => NULL, backoff_base => '1 ms', backoff_cap => '1 ms');
	CREATE FUNCTION second(payload jsonb, headers jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT payload || '{"second": 1}' $$;
	CREATE FUNCTION third(payload jsonb, headers jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF payload ? 'bad' THEN RAISE EXCEPTION 'it is bad'; END IF;
		RETURN payload || jsonb_build_object('third', headers -> 'schema_version');
	END $$;
	GRANT EXECUTE ON FUNCTION second, third TO PUBLIC});

sub enqueue
{
	my ($type, $payload, $version, $more) = @_;
	my $headers = defined $version ? qq{, headers => '{"schema_version": $version, "kept": "k"}'} : '';

	return $do->("SELECT outbox_id FROM outbox.enqueue('$type', '$payload'$headers" . ($more // '') . ')');
}

sub lines
{
	return map { from_json($_) } -e $file ? split /\n/, slurp($file) : ();
}

# By n: version and payload.
sub arrived
{
	return { map { my $body = $_->{body}; $body->{n} => [ $_->{headers}{schema_version}, $body ] } lines() };
}

# ---- before there is an extension
my $first = enqueue('e', '{"n": 1}');
my $relay = start_relay($config);
wait_for(sub { $relay->log =~ /could not lift a message.*3F000/ }, 'the relay to miss the extension');
enqueue('raw', '{"n": 2}');
wait_for(sub { lines() == 1 }, 'what needs no lift to arrive');
is($do->("SELECT count(*) FROM outbox.attempts WHERE outbox_id = '$first'"), '0', 'without the extension no attempt is used');
$do->(q{
	CREATE EXTENSION outbox_inbox;
	SELECT inbox.add_upcaster('e', 1, 'second');
	SELECT inbox.add_upcaster('e', 2, 'third')});
wait_for(sub { $relay->log =~ /could not lift a message.*42501/ }, 'the relay to miss the right');
is($do->("SELECT count(*) FROM outbox.attempts WHERE outbox_id = '$first'"), '0', '... nor without the right');
$do->('GRANT inbox_consumer TO relay');
wait_until_done($node);
ok(defined arrived()->{1}, '... and then it is lifted');

# ---- versions
$do->('BEGIN; ' . join('; ', map { "SELECT outbox.enqueue('e', '$_->[1]', headers => '$_->[0]')" }
	([ '{"kept": "k"}', '{"n": 10}' ], [ '{"schema_version": 2}', '{"n": 11}' ], [ '{"schema_version": "2"}', '{"n": 12}' ],
		[ '{"schema_version": 3}', '{"n": 13}' ], [ '{"schema_version": 4}', '{"n": 14}' ],
		[ '{"schema_version": 1}', '{"n": 15, "bad": 1}' ], [ '{"schema_version": "new"}', '{"n": 16}' ])) . "; SELECT outbox.enqueue('gap', '{\"n\": 17}'); COMMIT");
wait_until_done($node);
my $arrived = arrived();
is_deeply([ map { $_->{n} } sort { $a->{n} <=> $b->{n} } grep { $_->{n} >= 10 } map { $_->[1] } values %$arrived ], [ 10 .. 14 ], 'what can be lifted arrives');
is_deeply($arrived->{10}, [ 3, { n => 10, second => 1, third => 2 } ], '... by two steps, from no version');
is_deeply($arrived->{$_}, [ 3, { n => $_, third => 2 } ], '... by one') foreach 11, 12;
is_deeply($arrived->{13}, [ 3, { n => 13 } ], '... as it is');
is_deeply($arrived->{14}, [ 4, { n => 14 } ], '... also when it is newer');
is($do->(q{
		SELECT m.payload ->> 'n', string_agg(concat_ws(' ', a.state, a.error_code, a.response_code), ', ' ORDER BY attempt_no), bool_and(a.error_message ~ '.')
		FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id) WHERE m.payload ->> 'n' IN ('15', '16', '17') GROUP BY 1 ORDER BY 1}),
	"15|RETRYABLE UPCAST_FAILED P0001, FAILED UPCAST_FAILED P0001|t\n16|RETRYABLE UPCAST_FAILED, FAILED UPCAST_FAILED|t\n17|RETRYABLE UPCAST_FAILED 42883, FAILED UPCAST_FAILED 42883|t",
	'what cannot be lifted fails alone, is tried again, and says why');

# ---- order
$do->(q{SELECT outbox.enqueue('e', jsonb_build_object('n', n), 'ordered', partition_key => 'k', headers => jsonb_build_object('schema_version', 1 + n % 3)) FROM generate_series(101, 160) n});
wait_until_done($node);
is_deeply([ grep { $_ > 100 } map { $_->{body}{n} } lines() ], [ 101 .. 160 ], 'the order of a key is kept');

enqueue($_->[0], qq({"n": $_->[1]}), 1, ", queue => 'ordered', partition_key => 'm'") foreach [ e => 201 ], [ e => 202 ], [ late => 203 ], [ e => 204 ], [ e => 205 ];
wait_for(sub { $do->("SELECT count(*) > 1 FROM outbox.attempts a JOIN outbox.messages USING (outbox_id) WHERE event_type = 'late'") eq 't' }, 'one of a key to fail');
$do->(q{SELECT inbox.add_upcaster('late', 1, 'second'); SELECT inbox.add_upcaster('late', 2, 'third')});
wait_until_done($node);
is_deeply([ grep { $_ > 200 } map { $_->{body}{n} } lines() ], [ 201 .. 205 ], '... also when one cannot be lifted at first');

# ---- more than a server takes in one statement has to be divided
$do->(q{
	CREATE TABLE lifts (transaction xid8);
	CREATE FUNCTION large(payload jsonb, headers jsonb) RETURNS jsonb LANGUAGE sql VOLATILE SECURITY DEFINER AS
		'INSERT INTO public.lifts VALUES (pg_current_xact_id()); SELECT payload';
	GRANT EXECUTE ON FUNCTION large TO PUBLIC;
	SELECT inbox.add_upcaster('large', 1, 'large'); SELECT inbox.add_upcaster('large', 2, 'third');
	SELECT outbox.enqueue('large', jsonb_build_object('n', n, 'text', repeat('x', 6000000))) FROM generate_series(311, 314) n});
wait_until_done($node);
is($do->('SELECT count(*), count(DISTINCT transaction) > 1 FROM lifts'), '4|t', '24 MB are lifted by more than one statement');
ok(defined arrived()->{314}, '... and arrive');

# ---- the connection goes
my $holder = session($node);
my $waits = "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'advisory'";
$holder->query_safe('SELECT pg_advisory_lock(7)');
$do->(q{
	CREATE FUNCTION slow(payload jsonb, headers jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS 'SELECT payload FROM pg_advisory_xact_lock(7)';
	GRANT EXECUTE ON FUNCTION slow TO PUBLIC;
	SELECT inbox.add_upcaster('slow', 1, 'slow'); SELECT inbox.add_upcaster('slow', 2, 'third')});
my $slow = enqueue('slow', '{"n": 301}');
ok($node->poll_query_until('postgres', $waits), 'an upcaster waits');
is($do->(q{SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity WHERE wait_event = 'advisory'}), '1', '... and its connection is ended');
ok($node->poll_query_until('postgres', $waits), '... and it waits on the next one');
$holder->query_safe('SELECT pg_advisory_unlock(7)');
wait_until_done($node);
is(scalar(grep { $_->{body}{n} == 301 } lines()), 1, '... and the message arrives once');
is($do->("SELECT string_agg(state::text, ' ') FROM outbox.attempts WHERE outbox_id = '$slow'"), 'DISPATCHED', '... at its first attempt');

# ---- what would happen
is($relay->stop, 0, "the relay ends");
enqueue('e', '{"n": 20}', 2);
enqueue('e', '{"n": 21}', 3);
my ($out) = tool([ $ENV{OUTBOX_RELAY} // "$BrokerTest::Base::here/../outbox-relay", '--config', write_file(new_folder('dry') . '/relay.toml', $config =~ s/user=relay/user=$ENV{PGUSER}/r), '--dry-run' ], may_fail => 1);
is_deeply([ map { from_json($_)->{lifted_to} } grep { /^\{/ } split /\n/, $out ], [ 3, undef ], '--dry-run says what would be lifted');
$node->stop;
done_testing();
