# Priorities that rise while messages wait, with scan floors, other sessions, old snapshots and crashes.
# (Without shared memory: test/sql/priorities.sql, which has the same helpers.)
#
# Proves: claims return messages exactly in the order of the effective priority, in all transactions, whatever the floors
# are; without those that another session holds, or that the snapshot does not see, which come later; after a crash, too.
# A claim reads about as many index entries as it leases messages: neither the backlog of other priorities nor
# finished rows that an old snapshot keeps. What becomes claimable below a floor is found.
use strict;
use warnings;

use FindBin;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed() % 1_000_000_000;
my $node = new_node('main', preload => 1, conf => "outbox.worker = off\nautovacuum = off");

$node->safe_psql('postgres', 'CREATE SCHEMA t');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', "$FindBin::RealBin/../sql/priorities.inc" ], 'helpers');
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('strict'), outbox.create_queue('aged', priority_aging => '1 hour', repair_delay => '0'),
		outbox.create_queue('fifo', ordering => 'fifo', priority_aging => '1 hour'), outbox.create_queue('found', priority_aging => '1 min')});

my ($one, $two) = (session($node), session($node));

# Claims until nothing is left, each in a transaction of its own. Returns the ids as an array literal.
sub drain
{
	my ($session, $queue, $batch) = @_;
	my @ids;

	while ((my $part = $session->query_safe("SELECT array_to_string(t.taken('$queue', $batch), ',')")) ne '')
	{
		push @ids, $part;
	}
	return '{' . join(',', @ids) . '}';
}

sub in_order
{
	my ($name, $queue, $batch) = @_;

	return is($one->query_safe("SELECT t.judge('" . drain($one, $queue, $batch) . "')"), 'in order', $name);
}

# What is leased, or waits for later, is done with.
sub clear
{
	$one->query_safe(q{SELECT count(outbox.cancel(outbox_id, 'done', force => true)) FROM outbox.pending});
	return;
}

# ---------------------------------------------------------------- the order

foreach my $queue (qw(strict aged fifo))
{
	foreach my $round (1 .. 3)
	{
		$one->query_safe("SELECT t.fill('$queue', 300, " . ($seed + $round) . ')');
		cmp_ok($one->query_safe("SELECT t.expect('$queue')"), '>', 100, "$queue, round $round: messages are due");
		in_order('... each comes when it should', $queue, (7, 50, 1000)[ $round - 1 ]);
		clear() if $round == 2;
	}
	clear();
}

# What another session holds comes when it lets go.
$one->query_safe("SELECT t.fill('aged', 300, $seed)");
$two->query_safe(q{BEGIN; SELECT count(*) FROM (SELECT FROM outbox.pending WHERE queue = 'aged' AND random() < 0.4 FOR UPDATE) l});
$one->query_safe(q{SELECT t.expect('aged')});
in_order('the rest comes in order while another session holds messages', 'aged', 20);
$two->query_safe('ROLLBACK');
cmp_ok($one->query_safe(q{SELECT t.expect('aged')}), '>', 50, 'when it lets go, they are due');
in_order('... and come in order', 'aged', 20);
clear();

# What the snapshot does not see comes later: a claim reads more rows than it takes, and goes back.
$two->query_safe("SELECT t.fill('aged', 100, $seed + 8)");
$one->query_safe(q{SELECT t.expect('aged')});
$one->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$two->query_safe("SELECT t.fill('aged', 400, $seed + 9)");
$two->query_safe("UPDATE outbox.pending SET next_attempt_at = next_attempt_at - interval '2 h' WHERE queue = 'aged' AND outbox_id IN (SELECT outbox_id FROM outbox.messages WHERE payload = to_jsonb($seed + 9))");
my $seen = drain($one, 'aged', 30);
$one->query_safe('COMMIT');
is($one->query_safe("SELECT t.judge('$seen')"), 'in order', 'only what the snapshot sees comes, in order');
cmp_ok($one->query_safe(q{SELECT t.expect('aged')}), '>', 200, 'the rest is due');
in_order('... and comes in order', 'aged', 30);
clear();

# ... and goes on from there, because some of what it wanted to take is refused. First come more than it wants that it does not see.
$one->query_safe(q{ALTER TABLE outbox.pending ADD CONSTRAINT refused CHECK (coalesce(claimed_by, '') <> 'w' OR partition_key !~ '[37]$'); SET client_min_messages = error});
$two->query_safe("SELECT t.fill('aged', 300, $seed + 20)");
$two->query_safe(q{UPDATE outbox.pending SET next_attempt_at = now() - interval '90 min' WHERE next_attempt_at < '2000-01-01'});
$one->query_safe(q{SELECT t.expect('aged')});
$one->query_safe(q{DELETE FROM t.expected USING outbox.pending WHERE outbox_id = id AND partition_key ~ '[37]$'});
$one->query_safe(q{UPDATE t.expected e SET place = r.place FROM (SELECT id, rank() OVER (ORDER BY place) AS place FROM t.expected) r WHERE r.id = e.id});
$one->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$two->query_safe("SELECT t.fill('aged', 170, $seed + 21)");
$two->query_safe("UPDATE outbox.pending SET next_attempt_at = now() - interval '100 h' WHERE queue = 'aged' AND claimed_by IS NULL AND outbox_id IN (SELECT outbox_id FROM outbox.messages WHERE payload = to_jsonb($seed + 21))");
$seen = $one->query_safe(q{SELECT t.taken('aged', 100)});
$one->query_safe('COMMIT');
$one->query_safe(q{DELETE FROM t.expected WHERE place > 100});
is($one->query_safe("SELECT t.judge('$seen')"), 'in order', 'nothing is passed by when it goes back');
$one->query_safe('ALTER TABLE outbox.pending DROP CONSTRAINT refused; RESET client_min_messages');
clear();

# A claim that is undone, half of it or all.
$one->query_safe("SELECT t.fill('aged', 200, $seed + 10)");
$one->query_safe(q{SELECT t.expect('aged')});
$one->query_safe(q{BEGIN; SELECT t.taken('aged', 40); SAVEPOINT s; SELECT t.taken('aged', 40); ROLLBACK TO s});
my $half = $one->query_safe(q{SELECT array_to_string(t.taken('aged', 30), ',')});
$one->query_safe(q{ROLLBACK});
in_order('after a rollback all come in order', 'aged', 20);
isnt($half, '', '... as within it');
clear();

# After a crash no floor is known.
$one->query_safe("SELECT t.fill('aged', 200, $seed + 11)");
$one->query_safe(q{SELECT t.taken('aged', 20)});
$_->quit foreach $one, $two;
$node->stop('immediate');
$node->start;
($one, $two) = (session($node), session($node));
$one->query_safe(q{SELECT t.expect('aged')});
in_order('after a crash', 'aged', 30);
clear();

# ---------------------------------------------------------------- what becomes claimable

my %later = (
	'a message' => q{SELECT outbox.enqueue('x', '1', 'found')},
	'a message of the highest priority' => q{SELECT outbox.enqueue('x', '1', 'found', priority => 15)},
	'a message that was due long ago' => q{SELECT outbox.enqueue('x', '1', 'found'); UPDATE outbox.pending SET next_attempt_at = '2001-01-01' WHERE queue = 'found'},
	'another priority' => q{SELECT outbox.enqueue('x', '1', 'found', deliver_at => 'tomorrow'); SELECT outbox.reschedule(outbox_id, now(), 9) FROM outbox.pending WHERE queue = 'found'},
	'a lease that is undone' => q{SELECT outbox.enqueue('x', '1', 'found', priority => 3); BEGIN; SELECT outbox.claim('w', queues => '{found}'); ROLLBACK},
	'a lease that is given back' => q{SELECT outbox.enqueue('x', '1', 'found', priority => 3);
		SELECT outbox.release('w', ARRAY[outbox_id], ARRAY[lease_token]) FROM outbox.claim('w', queues => '{found}')},
	'a lost lease' => q{SELECT outbox.enqueue('x', '1', 'found'); SELECT outbox.claim('w', queues => '{found}');
		UPDATE outbox.pending SET lease_expires_at = claimed_at WHERE queue = 'found'},
	'a prepared transaction' => q{BEGIN; SELECT outbox.enqueue('x', '1', 'found'); PREPARE TRANSACTION 'p'; SELECT outbox.claim('w', queues => '{found}'); COMMIT PREPARED 'p'},
);

foreach my $what (sort keys %later)
{
	$two->query_safe(q{SELECT t.taken('found', 10)}) for 1 .. 2;
	$one->query_safe("$_;") foreach split /;/, $later{$what};
	is($two->query_safe(q{SELECT event_type FROM outbox.claim('w', 10, queues => '{found}')}), 'x', "found: $what");
	clear();
}

# ---------------------------------------------------------------- what a claim reads

# Of the statement of a session, which must run in a transaction of its own.
sub entries
{
	my ($sql) = @_;

	return $one->query_safe(qq{SELECT t.entries(\$\$$sql\$\$)});
}

my $backlog = q{SELECT count(*) FROM generate_series(1, 20) b, LATERAL outbox.enqueue_batch('aged',
	(SELECT jsonb_agg(jsonb_build_object('event_type', 'low', 'payload', b * 1000 + g, 'priority', 5)) FROM generate_series(1, 1000) g)) e};

$one->query_safe($backlog);
$one->query_safe(q{SELECT t.taken('aged', 1)}) for 1 .. 2;
$one->query_safe(q{SELECT count(*) FROM generate_series(1, 20) g, unnest('{9, 3}'::int[]) p, LATERAL outbox.enqueue('high', to_jsonb(p * 100 + g), 'aged', priority => p)});
cmp_ok(entries(q{SELECT outbox.claim('w', 10, queues => '{aged}')}), '<=', 12, 'a claim does not read the backlog of a lower priority');
$one->query_safe(q{UPDATE outbox.pending SET next_attempt_at = now() - interval '9 h' WHERE queue = 'aged' AND priority = 3});
cmp_ok(entries(q{SELECT outbox.claim('w', 10, queues => '{aged}')}), '<=', 12, '... nor that of a higher one, behind what has risen above it');
$one->query_safe(q{SELECT t.taken('aged', 1000000)});
clear();

# The oldest of each of 16 priorities in turn: one look at each.
$one->query_safe(q{SELECT count(*) FROM generate_series(0, 15) p, generate_series(1, 40) g, LATERAL outbox.enqueue('all', to_jsonb(p * 100 + g), 'aged', priority => p)});
$one->query_safe(q{UPDATE outbox.pending SET next_attempt_at = now() - (15 - priority) * interval '1 h' - interval '30 min' WHERE queue = 'aged'});
$one->query_safe('VACUUM outbox.pending');
$one->query_safe(q{SELECT t.taken('aged', 1)}) for 1 .. 2;
cmp_ok(entries(q{SELECT outbox.claim('w', 100, queues => '{aged}')}), '<=', 106, 'messages of 16 priorities that all rank the same');
clear();

# Finished rows of all priorities, which an old snapshot keeps: 6,000 entries. A look at an empty priority reads up to 64.
my $holder = session($node);
$holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$one->query_safe(q{DO $$
	BEGIN
		FOR i IN 1 .. 30 LOOP
			PERFORM outbox.enqueue('done', to_jsonb(n), 'aged', priority => n % 16) FROM generate_series(1, 100) n;
			PERFORM outbox.complete(outbox_id, lease_token, 'w', 'DISPATCHED') FROM outbox.claim('w', 100, queues => '{aged}');
			COMMIT;
		END LOOP;
	END $$});
$one->query_safe(q{SELECT t.taken('aged', 10)}) for 1 .. 2;
cmp_ok(entries(q{SELECT outbox.claim('w', 10, queues => '{aged}')}), '<', 1100, 'a claim does not walk over 3,000 finished messages');
$one->query_safe(q{SELECT count(*) FROM generate_series(0, 15) p, LATERAL outbox.enqueue('more', to_jsonb(p), 'aged', priority => p)});
cmp_ok(entries(q{SELECT outbox.claim('w', 16, queues => '{aged}')}), '<', 1100, '... nor one that finds something in each priority');
$holder->query_safe('COMMIT');
$_->quit foreach $holder, $one, $two;
consistent($node, 'all is consistent');
$node->stop;
done_testing();
