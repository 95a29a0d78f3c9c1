# Receivers of an event that are stopped between looking for it and inserting it.
#
# Proves: nothing comes between the two: not another receiver, though it knows a newer partition; not the end of a partition that is
# looked into. A partition to which one of them may still write is not taken for closed, and to one that was taken for closed none writes. One that fails there leaves neither a row nor a lock. And with processes that linger at each such place, while
# partitions are made, every event is processed once. A partition that is committed is found before the caches of the catalogs know it.
#
# Needs a library made with STOP_POINTS=1.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed();
my $node = new_node('main', preload => 1, conf => 'outbox.worker = off', extension => 0);
my $folder = PostgreSQL::Test::Utils::tempdir();
my $make = q{SELECT inbox.make_partition('c', (SELECT consumer_id FROM inbox.consumers WHERE consumer = 'c'))};

make_stop_points($node);
$node->safe_psql('postgres', q{
	CREATE EXTENSION outbox_inbox;
	SELECT inbox.set_window('c', '30 days');
	CREATE FUNCTION event(n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid $$;
	CREATE TABLE effects (event_id uuid);
});
my ($first, $second) = (session($node), session($node));
$_->query_safe('SELECT 1') foreach $first, $second;

# stopped N, CODE, PLACE: the first session stands before it looks for event N, or at another place, while the code runs
sub stopped
{
	my ($n, $code, $place) = (@_, 'inbox_looks');

	$first->{outbox_pid} = $first->query('SELECT pg_backend_pid()');
	arm($node, $place, $first->{outbox_pid});
	start_query($first, "SELECT inbox.receive('c', event($n), 's', 't')");
	stands_at($node, $place);
	$code->();
	release($node, $place);
	return result_of($first);
}

my ($answer) = stopped(1, sub {
	$node->safe_psql('postgres', $make);
	start_query($second, q{SELECT inbox.receive('c', event(1), 's', 't')});
	wait_until_blocked($node, $second, 'who knows a newer partition');
});
is($answer, 't', '... for the one that was there before, to which it is new');
is(scalar(result_of($second)), 'f', '... and to itself it is not');

($answer) = stopped(2, sub {
	is($node->safe_psql('postgres', q{SELECT inbox.receive('c', event(3), 's', 't')}), 't', 'another event does not wait');
	is($node->safe_psql('postgres', q{SELECT inbox.forget('c', '0')}), '0', 'a partition that is looked into is not dropped');
});
is($answer, 't', '... and the look ends');

act_at($node, 'row_written', '22012', $first->{outbox_pid});
my ($none, $error) = stopped(4, sub {
	start_query($second, q{SELECT inbox.receive('c', event(4), 's', 't')});
	wait_until_blocked($node, $second, 'another receiver');
});
like($error, qr/ERROR/, '... for one that fails after it has inserted');
is(scalar(result_of($second)), 't', '... and then the event is new to it');

# ---------------------------------------------------------------- a partition that is committed, and not yet told of

$node->safe_psql('postgres', 'CREATE EXTENSION outbox');
my $maker = session($node);
$maker->{outbox_pid} = $maker->query('SELECT pg_backend_pid()');
my $next = $node->safe_psql('postgres', 'SELECT last_value + 1 FROM inbox.numbers');
arm($node, 'commit_before_lower', $maker->{outbox_pid});
$maker->query_safe("BEGIN; SELECT outbox.enqueue('t', '{}'); $make");
is($second->query("SELECT to_regclass('inbox.events_$next') IS NULL"), 't', 'a session that knows that there is no such partition');
start_query($maker, 'COMMIT');
stands_at($node, 'commit_before_lower');
start_query($second, q{SELECT inbox.receive('c', event(5), 's', 't')});
wait_until_blocked($node, $second, '... until there is,');
release($node, 'commit_before_lower');
result_of($maker);
is(scalar(result_of($second)), 't', '... finds it');
is($node->safe_psql('postgres', "SELECT count(*) FROM inbox.events_$next"), '1', '... and writes there');

# ---------------------------------------------------------------- closed partitions

# What a session takes for closed, it no longer looks into for ids such as these, behind all that it has.
my $n = 1000;
sub received
{
	my ($session, $event) = @_;
	return $session->query("SELECT inbox.receive('c', event($event), 's', 't')");
}

foreach my $case ([ 'inbox_looks', 'has the lock to write' ], [ 'inbox_opens', 'has read which is the newest' ])
{
	my ($place, $title) = @$case;

	foreach my $who ('of a new session', 'that has received before')
	{
		my $event = $n++;
		if ($who eq 'of a new session')
		{
			$first->quit;
			$first = session($node);
		}
		($answer) = stopped($event, sub {
			$node->safe_psql('postgres', $make);
			# The first of these still has the lock to write to the older one.
			received($second, $n++) for 1 .. 2;
		}, $place);
		is($answer, 't', "a receiver $who, that $title when a newer partition is made");
		is(received($second, $event), 'f', '... is seen by one that knew the newer one meanwhile');
	}
}

# ---------------------------------------------------------------- a load that lingers

append_to_file("$folder/load.sql", q{
\set n random(100, 250)
BEGIN;
SELECT inbox.receive('c', event(:n), 's', 't')::int AS fresh \gset
\if :fresh
INSERT INTO effects VALUES (event(:n));
\endif
COMMIT;
});
append_to_file("$folder/make.sql", "$make;");
$node->safe_psql('postgres', 'SELECT shake(2000)');
my ($out, $err) = run_command([ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, "--random-seed=$seed", '-c', 8, '-t', 60,
	'-f', "$folder/load.sql\@30", '-f', "$folder/make.sql\@1", 'postgres' ]);
$node->safe_psql('postgres', 'SELECT shake(0)');
like($out, qr{processed: 480/480}, 'processes that linger: none fails') or diag($err);
is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT event_id FROM effects GROUP BY 1 HAVING count(*) > 1) t}), '0', '... and nothing is processed twice');
cmp_ok($node->safe_psql('postgres', q{SELECT count(DISTINCT tableoid) FROM inbox.events}), '>', 2, '... in several partitions');
is($node->safe_psql('postgres', q{SELECT count(*) FROM inbox.log GROUP BY event_id HAVING count(*) > 1}), '', '... nor received twice');
done_testing();
