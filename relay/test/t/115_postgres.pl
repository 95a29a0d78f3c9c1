# The sink postgres, and what a role or a database may have set for its sessions.
#
# Proves: with array_nulls off, NULL stays NULL, in the ledger and for the function; idle_session_timeout ends no session of the
# relay; operators that another role made in a schema of the search path are not called; what is more than a server takes in one statement is handed over in several; a server that does not take what it is sent keeps the
# relay from ending no longer than it says.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use RelayTest;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $do = sub { return $node->safe_psql('postgres', shift) };
my $config = relay_config($node, q{
[sink.nowhere]
type = "discard"
[sink.database]
type = "postgres"
function = "public.take"
dsn = "} . $node->connstr('postgres') . q{ user=relay application_name=sink"
[[route]]
event_type = "discarded"
sink = "nowhere"
[[route]]
sink = "database"
}, poll_interval => '"1h"') =~ s/(\[relay\])/$1\ngrace = "1s"/r;

$do->(q{
	CREATE TABLE taken (event_id uuid PRIMARY KEY, event_type text, aggregate_id text, partition_key text, transaction xid8);
	CREATE FUNCTION take(event_ids uuid[], event_types text[], aggregate_types text[], aggregate_ids text[], partition_keys text[],
		sequence_ids bigint[], bodies jsonb[], headers jsonb[], created_at timestamptz[]) RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
		INSERT INTO public.taken SELECT id, type, aggregate, key, pg_current_xact_id()
		FROM unnest(event_ids, event_types, aggregate_ids, partition_keys) AS event(id, type, aggregate, key)
	$$;
	CREATE TABLE lured (who text);
	CREATE ROLE guest;
	GRANT INSERT ON lured TO PUBLIC;
	GRANT CREATE, USAGE ON SCHEMA public TO guest;
	SET ROLE guest;
	CREATE FUNCTION lure(oid, regprocedure) RETURNS boolean LANGUAGE sql AS 'INSERT INTO public.lured VALUES (current_user); SELECT $1 OPERATOR(pg_catalog.=) $2::oid';
	CREATE FUNCTION lure(oid, regnamespace) RETURNS boolean LANGUAGE sql AS 'INSERT INTO public.lured VALUES (current_user); SELECT $1 OPERATOR(pg_catalog.=) $2::oid';
	CREATE OPERATOR = (LEFTARG = oid, RIGHTARG = regprocedure, FUNCTION = lure);
	CREATE OPERATOR = (LEFTARG = oid, RIGHTARG = regnamespace, FUNCTION = lure);
	RESET ROLE;
	ALTER ROLE relay SET array_nulls = off;
	ALTER ROLE relay SET idle_session_timeout = '200ms'});

# ---------------------------------------------------------------- settings

my $relay = start_relay($config);

$do->(q{SELECT outbox.enqueue('few', to_jsonb(n), aggregate_id => nullif(n % 2, 0)::text) FROM generate_series(1, 10) n});
wait_until_done($node);
is($do->(q{SELECT count(*), count(aggregate_id), count(partition_key) FROM taken}), '10|5|0', 'array_nulls off: NULL is NULL for the function');
# Every other one is refused.
$do->(q{
	SELECT outbox.enqueue('discarded', to_jsonb(n), headers => jsonb_build_object(CASE n % 2 WHEN 0 THEN 'outbox_id' ELSE 'tenant' END, 't'))
	FROM generate_series(1, 300) n});
wait_until_done($node);
is($do->(q{
		SELECT a.state, error_code, count(*) FROM outbox.attempts a JOIN outbox.messages USING (outbox_id)
		WHERE event_type = 'discarded' GROUP BY 1, 2 ORDER BY 1}), "DISPATCHED||150\nFAILED|ILLEGAL_HEADER|150", '... and in the ledger');
is($do->('SELECT string_agg(DISTINCT who, \',\') FROM lured'), '', 'no operator of another role is called');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 3 FROM pg_stat_activity WHERE usename = 'relay' AND clock_timestamp() - state_change > '1 s'}),
	'idle_session_timeout ends no session');

# ---------------------------------------------------------------- large

$do->(q{SELECT outbox.enqueue('large', to_jsonb(repeat('x', 6000000))) FROM generate_series(1, 4) n});
wait_until_done($node);
is($do->(q{SELECT count(*), count(DISTINCT transaction) > 1 FROM taken WHERE event_type = 'large'}), '4|t', '24 MB are handed over by more than one statement');

# ---------------------------------------------------------------- a server that stops in the middle

my $pid = $do->(q{SELECT pid FROM pg_stat_activity WHERE application_name = 'sink'});

kill 'STOP', $pid;
$do->(q{SELECT outbox.enqueue('stopped', to_jsonb(repeat('x', 6000000))) FROM generate_series(1, 2) n});
wait_for(sub { $do->(q{SELECT count(*) FROM outbox.pending WHERE lease_token IS NOT NULL}) == 2 }, 'them to be claimed');
$relay->signal('TERM');
is($relay->wait_end, 0, 'a server that does not take what it is sent: TERM ends the relay');
kill 'CONT', $pid;
is($do->(q{SELECT string_agg(DISTINCT error_code, ',') FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = 'stopped'}), 'SINK_STOPPED', '... and the ledger has it');
$relay = start_relay($config);
wait_until_done($node);
is($do->(q{SELECT count(*) FROM taken WHERE event_type = 'stopped'}), '2', '... and another one delivers it');
$relay->signal('TERM');
is($relay->wait_end, 0, 'TERM: exit status 0');

consistent($node, 'consistent');
$node->stop('fast');
done_testing();
