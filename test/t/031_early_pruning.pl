# A server with old_snapshot_threshold removes row versions though a snapshot is
# older, and gives their places to other rows, while a batch that read them waits.
#
# Proves: a batch of completions that has waited touches no row but those of its messages.
#
# A minute is the least threshold: the server's clock is set.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'no libfaketime' unless faketime();
plan skip_all => 'no old_snapshot_threshold from 17 on' if `postgres --version` =~ /(\d+)/ && $1 >= 17;

my $node = new_node('main', conf => "old_snapshot_threshold = '1min'\nautovacuum = off");

$node->stop('fast');
start_with_false_clock($node);

my ($holder, $worker, $heart) = map { session($node) } 1 .. 3;
my $reported = q{(SELECT array_agg(id) AS ids, array_agg(token) AS tokens, array_agg('DISPATCHED'::text) AS states FROM lease WHERE n % 2 = 1) r};
my $renewed = q{(SELECT array_agg(id) AS ids, array_agg(token) AS tokens FROM lease WHERE n > 1) r};

# Of every two messages that lie side by side one is reported.
$node->safe_psql('postgres', q{
	SELECT count(*) FROM outbox.enqueue_batch('default', (SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', n)) FROM generate_series(1, 200) n));
	CREATE TABLE lease AS SELECT payload::int AS n, outbox_id AS id, lease_token AS token FROM outbox.claim('w', 200, '1 hour');
	CREATE TABLE place AS SELECT n, p.ctid AS at FROM lease JOIN outbox.pending p ON outbox_id = id;
});

# What ends while an older transaction is open is not removed: the renewals begin first.
$heart->query_safe('BEGIN; SELECT pg_current_xact_id()');
$holder->query_safe('BEGIN; SELECT 1 FROM outbox.pending JOIN lease ON outbox_id = id WHERE n = 1 FOR UPDATE OF pending');
start_query($worker, "SELECT count(*), c.error FROM $reported, outbox.complete_batch('w', ids, tokens, states) c GROUP BY 2");
wait_until_blocked($node, $worker, 'a batch whose first message is locked');
is($heart->query_safe("SELECT count(*) FROM $renewed, outbox.renew('w', ids, tokens, '2 hours') WHERE error IS NULL"), 199, 'all but the first are renewed');
$heart->query_safe('COMMIT');
foreach my $minute (1 .. 5)
{
	set_clock($node, 60 * $minute);
	$node->safe_psql('postgres', 'SELECT pg_current_xact_id()');
}
# Until a row has come to lie where another was: how many fit on a page is not the point.
my $moved = 0;

for (my $i = 0; $i < 100 && $moved == 0; $i++)
{
	$node->safe_psql('postgres', q{
		VACUUM outbox.pending;
		UPDATE outbox.pending SET lease_expires_at = lease_expires_at + interval '1 minute' FROM lease WHERE outbox_id = id AND n % 2 = 0;
	});
	$moved = $node->safe_psql('postgres', q{SELECT count(*) FROM place JOIN outbox.pending p ON p.ctid = at JOIN lease l ON l.id = outbox_id WHERE place.n % 2 = 1 AND l.n % 2 = 0});
}
cmp_ok($moved, '>', 0, 'where reported messages were read lie others');

$holder->query_safe('ROLLBACK');
is(join("\n", result_of($worker)), "100|\n", 'all that was reported is recorded');
is($node->safe_psql('postgres', q{SELECT n % 2, count(p.outbox_id), count(a.outbox_id) FROM lease LEFT JOIN outbox.pending p ON p.outbox_id = id LEFT JOIN outbox.attempts a ON a.outbox_id = id GROUP BY 1 ORDER BY 1}),
	"0|100|0\n1|0|100", 'the reported messages have ended, and no others');
$_->quit foreach $holder, $worker, $heart;
$node->stop('fast');
done_testing();
