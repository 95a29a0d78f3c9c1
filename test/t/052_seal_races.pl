# Seals, with writers and sealers stopped between each two of their steps.
#
# Proves: a writer that is stopped between its id and its record delays the seal or records after it, never in a window
# that is closed; two sealers make two seals or one; a sealer that is killed between its floor and its seal leaves
# neither a gap nor a record that no seal has; a verification says how far it is.
#
# Needs a library made with STOP_POINTS=1.
use strict;
use warnings;

use OutboxTest;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.worker = off\nautovacuum = off\nrestart_after_crash = on");

make_stop_points($node);
my ($writer, $sealer, $other) = map { session($node) } 1 .. 3;
my ($writer_pid, $sealer_pid) = map { $_->query_safe('SELECT pg_backend_pid()') } $writer, $sealer;
my $seal = q{SELECT count(*) FROM outbox.seal()};
my $good = q{SELECT coalesce(string_agg(seal_no || ': ' || problem, '; ') FILTER (WHERE NOT ok), 'good') FROM outbox.verify_seals()};
# The seal of a message; empty: none yet.
my $number = q{SELECT coalesce(max(seal_no)::text, 'none') FROM outbox.messages JOIN outbox.seals ON created_at >= from_at AND created_at < to_at WHERE event_type = };

foreach my $point ('record_before_floor', 'record_before_clock', 'row_written', 'commit_before_flag')
{
	arm($node, $point, $writer_pid);
	start_query($writer, "SELECT outbox.enqueue('$point', '1')");
	stands_at($node, $point, $writer_pid);
	$other->query_safe($seal) for 1 .. 2;
	release($node, $point);
	result_of($writer);
	$other->query_safe($seal) for 1 .. 2;
	isnt($other->query_safe("${number}'$point'"), 'none', "a writer that stood at $point is sealed");
	is($other->query_safe($good), 'good', '... in a window that was open');
}
# A writer that begins while a sealer stands.
foreach my $point ('seal_after_floor', 'seal_after_mark', 'seal_before_rows', 'seal_before_store')
{
	arm($node, $point, $sealer_pid);
	start_query($sealer, $seal);
	stands_at($node, $point, $sealer_pid);
	$other->query_safe("SELECT outbox.enqueue('$point', '1')");
	release($node, $point);
	result_of($sealer);
	$other->query_safe($seal) for 1 .. 2;
	isnt($other->query_safe("${number}'$point'"), 'none', "what comes while a sealer stands at $point is sealed");
	is($other->query_safe($good), 'good', '... in a window that was open');
}
# How far a verification is.
arm($node, 'verify_reports', $sealer_pid);
start_query($sealer, $good);
stands_at($node, 'verify_reports', $sealer_pid);
like($other->query_safe("SELECT query FROM pg_stat_activity WHERE pid = $sealer_pid"), qr/^outbox\.verify_seals: partition \w+, 1 of \d+, 0 rows read$/, 'pg_stat_activity says how far a verification is');
release($node, 'verify_reports');
like(result_of($sealer), qr/^good$/m, '... which goes on');
# Two sealers.
arm($node, 'seal_before_store', $sealer_pid);
start_query($sealer, $seal);
stands_at($node, 'seal_before_store', $sealer_pid);
start_query($writer, $seal);
wait_until_blocked($node, $writer, "the second sealer");
release($node, 'seal_before_store');
like(result_of($sealer), qr/^1$/m, 'of two sealers the first seals');
like(result_of($writer), qr/^1$/m, '... and the second goes on from there');
is($other->query_safe($good), 'good', '... in one chain');
# A crash.
foreach my $point ('seal_after_floor', 'seal_before_store')
{
	$other->query_safe("SELECT outbox.enqueue('crash at $point', '1')");
	arm($node, $point, $sealer_pid);
	start_query($sealer, $seal);
	stands_at($node, $point, $sealer_pid);
	$node->stop('immediate');
	$node->start;
	($sealer, $other) = map { session($node) } 1 .. 2;
	$sealer_pid = $sealer->query_safe('SELECT pg_backend_pid()');
	$other->query_safe("SELECT outbox.enqueue('after $point', '1')");
	$other->query_safe($seal) for 1 .. 2;
	isnt($other->query_safe("${number}'after $point'"), 'none', "seals go on after a crash at $point");
	is($other->query_safe($good), 'good', '... without a gap');
}
$node->stop;
done_testing();
