# Seals beside many short transactions: no false alarm, and nothing that no seal has.
#
# Proves: while clients enqueue (in transactions that stay open, with savepoints, rolled back, prepared), claim and
# complete, several sealers seal, and the server is stopped at once or a backend is killed, each record lies in the
# window of one seal, and verify_seals() finds nothing.
#
# OUTBOX_SOAK=1000000 does so many: an enqueue, a claim and a completion count as one each, if they were committed. By
# default some thousand, in three rounds: one to its end, one with a stop, one with a kill.
use strict;
use warnings;

use IPC::Run;
use OutboxTest;
use Test::More;

my $operations = $ENV{OUTBOX_SOAK} // 4000;
my $clients = 12;
my $seed = seed();
my $node = new_node('main', preload => 1, conf => "outbox.seal_interval = '1 s'\nautovacuum = on\nrestart_after_crash = on\nmax_wal_size = '4GB'");
my $do = sub { $node->safe_psql('postgres', shift) };

$do->(q{SELECT outbox.create_queue('a', ordering => 'numbered'), outbox.create_queue('b', audit_events => true), outbox.create_queue('c', protect => '{"subject": "s", "fields": ["f"]}'), outbox.create_queue('outbox_seals')});

# ---------------------------------------------------------------- what clients do, and how often

my $enqueue = q{SELECT outbox.enqueue('e', '{"s": "x", "f": "y"}', (ARRAY['a', 'b', 'c'])[:q], partition_key => 'k' || :k);};
my %scripts = (
	enqueue => [ 30, $enqueue ],
	open => [ 6, "BEGIN; $enqueue\n\\sleep :ms ms\n$enqueue COMMIT;" ],
	savepoints => [ 6, "BEGIN; $enqueue SAVEPOINT s; $enqueue ROLLBACK TO s; $enqueue SAVEPOINT t; $enqueue RELEASE t; COMMIT;" ],
	undone => [ 4, "BEGIN; $enqueue\n\\sleep :ms ms\nROLLBACK;" ],
	prepared => [ 4, "BEGIN; $enqueue PREPARE TRANSACTION 'p:client_id';\n\\sleep :ms ms\nCOMMIT PREPARED 'p:client_id';" ],
	work => [ 45, q{SELECT count(*) FROM outbox.claim('w:client_id', 2, queues => '{a,b,c}') c, outbox.complete(c.outbox_id, c.lease_token, 'w:client_id',
		(CASE WHEN :k % 5 = 0 THEN 'RETRYABLE' ELSE 'DISPATCHED' END)::outbox.attempt_state, retry_delay => CASE WHEN :k % 5 = 0 THEN interval '0 s' END);} ],
	claims => [ 2, q{BEGIN; SELECT count(*) FROM outbox.claim('w:client_id', 1, interval '1 ms', queues => '{b,c}'); ROLLBACK;} ],
	seal => [ 1, 'SELECT count(*) FROM outbox.seal();' ],
);
my @files;
foreach my $name (sort keys %scripts)
{
	my ($weight, $statements) = @{ $scripts{$name} };
	my $path = $node->basedir . "/$name.sql";

	$statements =~ s/;(?=\s*\S)/;\n/g;
	PostgreSQL::Test::Utils::append_to_file($path, "\\set q random(1, 3)\n\\set k random(1, 20)\n\\set ms random(0, 20)\n$statements\n");
	push @files, '-f', "$path\@$weight";
}

sub done
{
	return $do->(q{SELECT (SELECT count(*) FROM outbox.messages WHERE queue <> 'outbox_seals') + 2 * (SELECT count(*) FROM outbox.attempts)});
}

# Bytes of WAL, from the beginning.
sub written
{
	return $do->(q{SELECT pg_current_wal_insert_lsn() - pg_lsn('0/0')});
}

# What a crash left prepared ends one way or the other.
sub resolve
{
	foreach my $name (split /\n/, $do->('SELECT gid FROM pg_prepared_xacts'))
	{
		$do->((rand() < 0.5 ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$name'");
	}
	return;
}

# A backend of a client that is at work, if one is.
sub kill_backend
{
	my ($pid) = split /\n/, $do->(q{SELECT pid FROM pg_stat_activity WHERE application_name = 'pgbench' AND state <> 'idle' ORDER BY random() LIMIT 1});

	return defined $pid && kill('KILL', $pid);
}

# ---------------------------------------------------------------- rounds

my $checked = 0;
my %rounds;
my @problems;

# verify(FROM): what is found in the seals from there on
sub verify
{
	return $do->("SELECT coalesce(string_agg(seal_no || ': ' || problem, '; '), '') FROM outbox.verify_seals($_[0]) WHERE NOT ok");
}

for (my $round = 1, my $done = 0; $round <= 3 || $done < $operations; $round++)
{
	my $kind = $round <= 3 ? (qw(end stop kill))[ $round - 1 ] : rand() < 0.6 ? 'end' : rand() < 0.5 ? 'stop' : 'kill';
	my $each = int($operations / 4 / $clients);
	my $err = '';

	$each = $each < 30 ? 30 : $each > 1500 ? 1500 : $each;
	my $run = IPC::Run::start([ 'pgbench', '-n', '-c', $clients, '-j', 2, '-t', $each, '--random-seed', $seed + $round, @files, '-h', $node->host, '-p', $node->port, 'postgres' ],
		'<', \undef, '>', \my $out, '2>', \$err);
	if ($kind ne 'end')
	{
		my $least = written() + (0.1 + rand() * 0.6) * $each * $clients * 500;

		# So much was written, or it has ended before.
		$run->pump_nb while $run->pumpable && written() < $least;
		$kind eq 'stop' ? $node->stop('immediate') : kill_backend();
	}
	IPC::Run::finish($run);
	$node->start if $kind eq 'stop';
	$node->poll_query_until('postgres', 'SELECT true') or die 'the server does not come back';
	push @problems, "round $round: $1" if $kind eq 'end' && $err =~ /^(.*ERROR.*)$/m;
	resolve();
	$do->('SELECT count(*) FROM outbox.seal()') foreach 1 .. 2;
	my $found = verify($checked + 1);
	push @problems, "round $round ($kind): $found" if $found ne '';
	$checked = $do->('SELECT max(seal_no) FROM outbox.seals');
	$rounds{$kind}++;
	$done = done();
	note("round $round ($kind): $done operations, $checked seals");
}
is(join("\n", @problems), '', 'no client failed, and no round has a false alarm');
is(verify(1), '', 'nor has the whole, in the end');
# In one snapshot: the background process goes on.
is($do->(q{SELECT (SELECT count(*) FROM outbox.messages WHERE created_at < to_at) - messages || ' ' || (SELECT count(*) FROM outbox.attempts WHERE created_at < to_at) - attempts || ' ' || (SELECT count(*) FROM outbox.events WHERE at < to_at) - events
		FROM (SELECT max(to_at) AS to_at, sum(messages) AS messages, sum(attempts) AS attempts, sum(events) AS events FROM outbox.seals) s}), '0 0 0', 'each record is in one seal');
is($do->(q{SELECT count(*) FROM outbox.messages WHERE queue <> 'outbox_seals' AND created_at >= (SELECT max(to_at) FROM outbox.seals)}), '0', '... all of them');
my $counts = $do->(q{SELECT (SELECT count(*) FROM outbox.messages) || ' messages, ' || (SELECT count(*) FROM outbox.attempts) || ' attempts, ' || (SELECT count(*) FROM outbox.events) || ' events, ' || (SELECT count(*) FROM outbox.seals) || ' seals'});
diag(done() . " operations in rounds (" . join(', ', map { "$_ $rounds{$_}" } sort keys %rounds) . "): $counts");
cmp_ok(done(), '>=', $operations, "$operations operations were done");
done_testing();
