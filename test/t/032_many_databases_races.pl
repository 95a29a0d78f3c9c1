# More databases than have a place in shared memory: four, in this build.
#
# Proves: each database is looked at once, however many there are, and then no more: no
# process is started for those that are known to have no extension. Each that has it gets
# its worker, wherever it stands in the list, and at once when it gets the extension,
# with a place or without, also in the moments in which another one is given its place. The log
# says so once when there are more than can have a worker, and not before.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', preload => 1, extension => 0, conf => 'log_min_messages = debug1');
my @placed = qw(postgres a b c);
my $from = log_size($node);

make_stop_points($node);

# Workers that were started since then.
sub starts
{
	my ($since) = @_;

	return scalar log_lines($node, $since, qr/^DEBUG:  starting background worker process "outbox worker"/);
}

sub crowded
{
	return scalar log_lines($node, $from, qr/^LOG:  outbox launcher: no more than 4 databases can have a worker/);
}

# The launcher starts nobody who is not needed: whatever wakes it, and when nothing does.
sub starts_are
{
	my ($since, $expected, $name) = @_;

	wait_for_rounds($node, 'launcher', 'last', 1, sub { $node->reload }) for 1 .. 20;
	return is(starts($since), $expected, $name);
}

sub until_started
{
	my ($since, $expected) = @_;

	for (1 .. 1800)
	{
		return if starts($since) >= $expected;
		select(undef, undef, undef, 0.1);
	}
	die "not $expected workers were started";
}

# ---------------------------------------------------------------- a place that goes to another

# The launcher has chosen a database without the extension, whose place another one gets; there
# the extension is made. Which one it has chosen is not seen from here: so in all of them.
$node->safe_psql('postgres', "CREATE DATABASE $_") foreach qw(a b c);
foreach my $point (qw(launcher_before_eviction launcher_after_eviction))
{
	arm($node, $point);
	$node->safe_psql('postgres', 'CREATE DATABASE another');
	stands_at($node, $point);
	$node->safe_psql($_, 'CREATE EXTENSION outbox') foreach @placed;
	release($node, $point);
	wait_for_worker($node, database => $_) foreach @placed;
	pass("$point: all that have the extension get their worker");
	is(crowded(), 0, '... and there is room for them');
	$node->safe_psql('postgres', 'DROP DATABASE another');
	$node->safe_psql($_, 'DROP EXTENSION outbox') foreach @placed;
	wait_for_no_worker($node, $_) foreach @placed;
}

# ---------------------------------------------------------------- many

# All at once, by a launcher that knows of none.
$node->safe_psql('postgres', "CREATE DATABASE $_") foreach qw(d e f g h last);
$node->safe_psql('last', 'CREATE EXTENSION outbox');
$node->stop;
my $restarted = log_size($node);
$node->start;
wait_for_worker($node, database => 'last');
pass('the last of ten databases is served');
until_started($restarted, 10);
starts_are($restarted, 10, 'each was looked at, once');

# Which have a place is not seen from here: one of these has none.
foreach my $database (qw(a h))
{
	$node->safe_psql($database, 'CREATE EXTENSION outbox');
	wait_for_worker($node, database => $database);
	serves($node, $database, "the extension came to $database");
}
$node->safe_psql($_, 'DROP EXTENSION outbox') foreach qw(a h);

# ---------------------------------------------------------------- too many

$node->safe_psql($_, 'CREATE EXTENSION outbox') foreach qw(a b);
wait_for_worker($node, database => $_) foreach qw(a b last);
is(crowded(), 0, 'three databases have a worker, and all others are looked at by turns');
$node->safe_psql('c', 'CREATE EXTENSION outbox');
wait_for_worker($node, database => 'c');
$node->safe_psql('d', 'CREATE EXTENSION outbox');
$node->wait_for_log(qr/no more than 4 databases can have a worker/, $from);
is(crowded(), 1, 'five cannot have one, as the log says');
$node->safe_psql('b', 'DROP EXTENSION outbox');
wait_for_worker($node, database => 'd');
serves($node, 'd', 'until another one needs it no more');
is(crowded(), 1, 'the log says so once');
$node->stop('fast');

done_testing();
