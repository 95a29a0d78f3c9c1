# A reload of the configuration while a process of the background starts.
#
# Proves: a setting that changes after the server has made the process, and before the process can be told of it, is
# obeyed all the same. Else the launcher of a server on which outbox.worker was switched on just then would sleep until
# the next reload.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', preload => 1, conf => 'outbox.worker = off');
my $hold = $node->basedir . '/hold';

sub wait_for_file
{
	my ($file) = @_;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return 1 if -e $file;
		select undef, undef, undef, 0.1;
	}
	die "no $file";
}

PostgreSQL::Test::Utils::system_or_bail('cc', '-shared', '-fPIC', '-o', $node->basedir . '/late_reload.so', 'test/late_reload.c');
$node->stop;
{
	local $ENV{LD_PRELOAD} = $node->basedir . '/late_reload.so';
	local $ENV{HOLD_FILE} = $hold;
	$node->start;
}
my $launcher = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox launcher'};

ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM ($launcher) l"), 'a launcher');
append_to_file($hold, '');
$node->safe_psql('postgres', "SELECT pg_terminate_backend(($launcher))");
wait_for_file("$hold.held");
configure($node, 'outbox.worker' => 'on');
ok($node->poll_query_until('postgres', 'SHOW outbox.worker', 'on'), 'a reload while the next launcher starts');
unlink $hold or die;
ok(wait_for_worker($node), '... is obeyed');
$node->stop('fast');
done_testing();
