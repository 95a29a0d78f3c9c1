# A hundred databases with handlers, and a few free slots of max_worker_processes.
#
# Proves: databases whose handlers never run out of work do not keep the slots from the others: each of a hundred
# databases gets its messages handled, once each, while those are still busy; workers keep theirs, and the log says once when a database lacks a slot, and once when it has one again.
use strict;
use warnings;

use OutboxTest;
use Test::More;

my $databases = 100;
my $busy = 5;    # these take what they may: two slots each
my $free = 8;
# Beside them the launcher, that of logical replication, and a worker for each database.
my $node = new_node('main', preload => 1, extension => 0, conf => sprintf(q{
	max_worker_processes = %d
	max_connections = 50
	autovacuum = off
	fsync = off
	outbox.databases = 'none_yet'
}, 2 + $databases + $free));

$node->safe_psql('postgres', 'CREATE DATABASE form');
$node->safe_psql('form', q{
	CREATE EXTENSION outbox;
	CREATE TABLE effects (n int PRIMARY KEY);
	CREATE FUNCTION handle(m outbox.claimed) RETURNS void LANGUAGE sql AS
		'INSERT INTO public.effects VALUES (m.event_type::int); SELECT pg_catalog.pg_sleep(0.005)';
	SELECT outbox.create_queue('h', handler => 'public.handle', max_attempts => NULL);
});
my @names = map { "d$_" } 1 .. $databases;
$node->safe_psql('postgres', join(";\n", map { "CREATE DATABASE $_ TEMPLATE form STRATEGY file_copy" } @names));
sub fill
{
	my ($database, $many) = @_;

	return $node->safe_psql($database, "SELECT count(*) FROM generate_series(1, $many) n, outbox.enqueue(n::text, '1', 'h')");
}
fill($_, 100_000) for @names[ 0 .. $busy - 1 ];
fill($_, 5) for @names[ $busy .. $#names ];

my $from = log_size($node);
configure($node, 'outbox.databases' => join(',', @names));

my @left = @names[ $busy .. $#names ];
for (my $try = 0; @left && $try < 600; $try++)
{
	@left = grep { $node->safe_psql($_, 'SELECT count(*) < 5 FROM effects') eq 't' } @left;
	select(undef, undef, undef, 0.5) if @left;
}
is("@left", '', 'each database gets its messages handled');
is(join(' ', grep { $node->safe_psql($_, 'SELECT EXISTS (SELECT FROM outbox.pending)') eq 'f' } @names[ 0 .. $busy - 1 ]), '',
	'... while some are still busy');
is(join(' ', grep { $node->safe_psql($_, 'SELECT count(*), sum(n) FROM effects') ne '5|15' } @names[ $busy .. $#names ]), '', 'each message was handled once');
is($node->safe_psql('d1', "SELECT count(*) FROM outbox.workers WHERE kind = 'worker' AND state = 'running'"), $databases, 'each database kept its worker');
my (%troubled, $repeated, $told);
foreach my $line (log_lines($node, $from, 'start handlers'))
{
	my ($database) = $line =~ /database "(\w+)"/;

	$told = 1;
	$repeated = $line if ($line =~ /could not/) == ($troubled{$database} // 0);
	$troubled{$database} = $line =~ /could not/ ? 1 : 0;
}
ok($told, 'the log says that slots are missing');
is($repeated, undef, '... one line when that begins in a database, and one when it ends');
is(scalar(log_lines($node, $from, 'outbox launcher: .*no free slot')), 0, 'the launcher did not lack one');
$node->stop;

done_testing();
