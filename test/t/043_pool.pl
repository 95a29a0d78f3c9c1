# Behind PgBouncer in transaction mode, as Debian has it: claim with wait, and wait_for_work.
#
# Proves: both are woken; more clients than server connections get all messages, each once; while all server connections
# wait, another client waits for one of them, no longer; a client that dies while it waits gets no lease, and its server
# connection ends at once.
#
# PgBouncer has a Unix socket in the folder of the cluster, and runs as who runs the tests.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';

plan skip_all => 'PgBouncer is not installed' unless $pgbouncer;

my $connections = 3;
my $node = new_node('main', preload => 1);
my $dir = $node->basedir;
my $user = $node->safe_psql('postgres', 'SELECT current_user');
my ($out, $err) = ('', '');

append_to_file("$dir/pgbouncer.ini", <<"END");
[databases]
postgres = host=${\ $node->host} port=${\ $node->port} user=$user
[pgbouncer]
listen_port = 6432
unix_socket_dir = $dir
auth_type = any
pool_mode = transaction
default_pool_size = $connections
ignore_startup_parameters = extra_float_digits
END

my $bouncer = IPC::Run::start([ $pgbouncer, '-q', "$dir/pgbouncer.ini" ], '<', \undef, '>', \$out, '2>', \$err);
# Another way to the same cluster.
my $pool = bless { %$node, _host => $dir, _port => 6432 }, ref $node;

for (1 .. 1800)
{
	last if -S "$dir/.s.PGSQL.6432";
	$bouncer->pumpable or die "PgBouncer has ended: $err";
	select(undef, undef, undef, 0.1);
}
wait_for_worker($node);

sub do_sql
{
	my ($sql) = @_;

	return $node->safe_psql('postgres', $sql);
}

# A client of the pool; PgBouncer hands its name to the server connection that it has at the time.
sub client
{
	my ($name) = @_;
	local $ENV{PGAPPNAME} = $name;

	return session($pool);
}

# Sends a statement, and returns when it waits for work on some server connection: the process of that.
sub start_waiting
{
	my ($session, $name, $sql) = @_;

	$session->{stdout} = $session->query_until(qr/started\n/, "\\echo started\n$sql;\n") =~ s/^.*?started\n//sr;
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = '$name' AND state = 'active' AND wait_event_type = 'Extension'")
		or die "$name does not wait";
	return do_sql("SELECT pid FROM pg_stat_activity WHERE application_name = '$name' AND state = 'active'");
}

# ---------------------------------------------------------------- they are woken

do_sql(q{SELECT outbox.alter_queue('default', lease => '1 day')});
my $one = client('one');
my $two = client('two');

start_waiting($one, 'one', q{SELECT event_type FROM outbox.claim('one', wait => '1 day')});
is($two->query_safe(q{SELECT count(*) FROM outbox.enqueue('through the pool', '1')}), '1', 'another client enqueues');
is(scalar(result_of($one)), 'through the pool', '... which ends the wait of claim');
start_waiting($one, 'one', q{CALL outbox.wait_for_work('1 day')});
$two->query_safe(q{SELECT outbox.enqueue('work', '1')});
is((result_of($one))[1], '', '... and that of wait_for_work');
is($one->query_safe(q{SELECT event_type FROM outbox.claim('one')}), 'work', '... and there is work');
like(($one->query(q{BEGIN; CALL outbox.wait_for_work('1 day')}), result_of($one))[-1], qr/cannot run inside a transaction block/, 'wait_for_work is refused in a transaction');
$one->query_safe('ROLLBACK');

# ---------------------------------------------------------------- more clients than connections

my @waiters = map { client("waiter $_") } 1 .. $connections;
start_waiting($waiters[ $_ - 1 ], "waiter $_", q{SELECT event_type FROM outbox.claim('w', 1, wait => '1 day')}) foreach 1 .. $connections;
$two->{stdout} = $two->query_until(qr/started\n/, qq{\\echo started\nSELECT 'has waited';\n}) =~ s/^.*?started\n//sr;
my $admin = "host=$dir port=6432 dbname=pgbouncer";
my $in_queue = sub { (split /\|/, qx(psql -XAtq -d "$admin" -c "SHOW POOLS" | grep ^postgres))[3] };
for (1 .. 1800)
{
	last if $in_queue->() == 1;
	select(undef, undef, undef, 0.1);
}
is($in_queue->(), 1, 'while all server connections wait for work another client waits for one of them');
do_sql(q{SELECT outbox.enqueue('makes room', '1')});
is(scalar(result_of($two)), 'has waited', '... until one has work');
do_sql(q{SELECT outbox.enqueue('makes room', '1') FROM generate_series(2, 3)});
is(scalar(result_of($_)), 'makes room', '... as the others') foreach @waiters;
$_->quit foreach @waiters;

my $clients = 4 * $connections;
append_to_file("$dir/work.sql", q{CALL outbox.wait_for_work('100 ms');
SELECT count(r.attempt_no) FROM outbox.claim('w' || :client_id, 1, wait => '100 ms') c, outbox.complete(c.outbox_id, c.lease_token, 'w' || :client_id, 'DISPATCHED') r;
});
append_to_file("$dir/produce.sql", "SELECT outbox.enqueue('many', '1');\n");
my $producer = IPC::Run::start([ 'pgbench', '-n', '-c', 2, '-t', 100, '-f', "$dir/produce.sql", $pool->connstr('postgres') ], '<', \undef, '>', \my $produced, '2>', \my $trouble);
foreach my $mode ('simple', 'extended')
{
	$pool->command_like([ 'pgbench', '-n', '-M', $mode, '-c', $clients, '-j', 1, '-t', 10, '-f', "$dir/work.sql", $pool->connstr('postgres') ],
		qr/number of failed transactions: 0 /, "$clients clients work with $connections connections, by the $mode protocol");
}
$producer->finish;
is($trouble =~ s/^pgbench: .*\n//mgr, '', '... beside producers');
do_sql(q{SELECT outbox.complete(outbox_id, lease_token, 'rest', 'DISPATCHED') FROM outbox.claim('rest', 1000)});
is(do_sql(q{SELECT count(*) FROM outbox.messages m JOIN outbox.attempts a USING (outbox_id) WHERE event_type = 'many' AND state = 'DISPATCHED'}), '200', '... each message is delivered, once');

# ---------------------------------------------------------------- a client that dies

foreach my $wait (q{SELECT FROM outbox.claim('ghost', 10, wait => '1 day')}, q{CALL outbox.wait_for_work('1 day')})
{
	my $ghost = client('ghost');
	my $server = start_waiting($ghost, 'ghost', $wait);

	$ghost->{run}->signal('KILL');
	$ghost->{run}->finish;
	ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $server"), 'a client dies while it waits: its server connection ends');
}
$two->query_safe(q{SELECT outbox.enqueue('left', '1')});
is($one->query_safe(q{SELECT event_type FROM outbox.claim('one')}), 'left', '... and its message goes to another');

$_->quit foreach $one, $two;
$bouncer->signal('TERM');
$bouncer->finish;
consistent($node, 'nothing lost, nothing twice');
$node->stop('fast');
done_testing();
