# What the tests of examples/migrate share: units of work, of which producers make one each, workers of both sides that leave an effect of
# each, a load of them, and a move that is killed.
package MigrateTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(make_units script install run_script call start_load stop_load move_and_kill redirect drain all_done_once
	start_node stop_node);

# However the test ends, these end with it.
my @running;

END
{
	foreach my $run (grep { $_->pumpable } @running)
	{
		$run->signal('KILL');
	}
}

# Tables of units and effects; a queue; what new producers and new workers do. Effects of one unit: one, if all is well.
sub make_units
{
	my ($node, %options) = @_;
	my $ordering = $options{in_order} ? 'fifo' : 'none';

	$node->safe_psql('postgres', qq{
		CREATE ROLE migrator LOGIN IN ROLE outbox_ingest;
		CREATE ROLE producer LOGIN;
		CREATE TABLE units (unit bigserial PRIMARY KEY, key text);
		CREATE TABLE effects (no bigserial PRIMARY KEY, unit bigint, side text, attempts int);
		GRANT ALL ON units, effects TO PUBLIC;
		GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO PUBLIC;
		SELECT outbox.create_queue('work', ordering => '$ordering', max_attempts => NULL, backoff_base => '1 ms', backoff_jitter => 0, payload_kind => 'any')});
	$node->safe_psql('postgres', q{
		CREATE FUNCTION make_unit(chosen text) RETURNS bigint LANGUAGE sql AS $$ INSERT INTO units (key) VALUES (chosen) RETURNING unit $$;
		CREATE FUNCTION produce_new(key text) RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
			SELECT FROM make_unit(key) u, outbox.enqueue('work', jsonb_build_object('unit', u), 'work', partition_key => key)
		$$;
		CREATE PROCEDURE work_new(worker text, outcome int) LANGUAGE plpgsql AS $$
		DECLARE
			m record;
		BEGIN
			FOR m IN SELECT * FROM outbox.claim(worker, 20, queues => '{work}') LOOP
				IF outcome = 0 THEN
					PERFORM outbox.release(worker, ARRAY[m.outbox_id], ARRAY[m.lease_token]);
				ELSE
					INSERT INTO effects (unit, side, attempts) VALUES ((m.payload ->> 'unit')::bigint, 'new', (m.headers ->> 'attempts_before')::int);
					PERFORM outbox.complete(m.outbox_id, m.lease_token, worker, 'DISPATCHED');
				END IF;
			END LOOP;
		END $$});
	script($node, 'produce_new', '\set key random(1, 10)', q{SELECT produce_new('new ' || :client_id || ' ' || :key);});
	script($node, 'work_new', '\set outcome random(0, 9)', q{CALL work_new('new ' || :client_id, :outcome);});
	return;
}

# A file of statements for pgbench.
sub script
{
	my ($node, $name, @lines) = @_;

	append_to_file($node->basedir . "/$name.sql", join "\n", @lines, '');
	return;
}

# Runs the script of an origin as the migrating role.
sub install
{
	my ($node, $origin, %variables) = @_;

	is(run_script($node, $origin, %variables), '', "$origin.sql runs without a word");
	return;
}

# What the script of an origin says.
sub run_script
{
	my ($node, $origin, %variables) = @_;
	my ($out, $err);

	IPC::Run::run([ 'psql', '-Xq', (map { ('-v', "$_=$variables{$_}") } sort keys %variables), '-f', "examples/migrate/$origin.sql",
			'-d', $node->connstr('postgres') . ' user=' . ($variables{role} // 'migrator') ], '<', \undef, '>', \$out, '2>', \$err);
	return "$out$err";
}

# start_load(node, script => [clients, transactions a second], ...), which goes on until it is stopped.
sub start_load
{
	my ($node, $seed, %scripts) = @_;
	my @load;

	foreach my $name (sort keys %scripts)
	{
		my ($clients, $rate, $role) = @{ $scripts{$name} };
		my $one = { name => $name, out => '', err => '' };

		$one->{run} = IPC::Run::start([ 'pgbench', '-n', '-c', $clients, '-T', '600', '-R', $rate, '--random-seed', $seed, '-f', $node->basedir . "/$name.sql",
				$node->connstr('postgres') . ($role ? " user=$role" : '') ], '<', \undef, '>', \$one->{out}, '2>', \$one->{err});
		push @load, $one;
		push @running, $one->{run};
	}
	return \@load;
}

# SIGINT lets pgbench end in the middle of a transaction, which the server undoes. An error before that fails the test.
sub stop_load
{
	my ($load, $name) = @_;

	foreach my $one (@$load)
	{
		is($one->{run}->pumpable ? 'runs' : $one->{err}, 'runs', "$name: $one->{name} still works");
		$one->{run}->signal('INT');
		$one->{run}->finish;
		is(join("\n", grep { /ERROR|aborted/ } split /\n/, $one->{err}), '', "$name: $one->{name} met no error");
	}
	return;
}

# A program of test/migrate, which connects as that user, with the packages that cluster_old_queues() has fetched.
sub start_node
{
	my ($node, $user, $program, @arguments) = @_;
	my $one = { name => "$program @arguments", out => '', err => '' };
	local $ENV{NODE_PATH} = $ENV{OUTBOX_OLD_QUEUES};

	$one->{run} = IPC::Run::start([ 'node', "test/migrate/$program.js", 'postgres:///postgres?host=' . $node->host . '&port=' . $node->port . "&user=$user", @arguments ],
		'<', \undef, '>', \$one->{out}, '2>', \$one->{err});
	push @running, $one->{run};
	return $one;
}

# It finishes what it holds.
sub stop_node
{
	my ($one, $signal) = @_;

	$one->{run}->signal('TERM') if ($signal // 1) && $one->{run}->pumpable;
	$one->{run}->finish;
	return is("$one->{out}$one->{err}", '', "$one->{name} had no trouble");
}

# call(node, statement): as the migrating role; its SQLSTATE or what it said.
sub call
{
	my ($node, $statement, %options) = @_;
	my ($ret, $out, $err) = $node->psql('postgres', $statement, connstr => $node->connstr('postgres') . ' user=' . ($options{role} // 'migrator'),
		extra_params => [ '-v', 'VERBOSITY=verbose' ]);

	return $err =~ /(?:ERROR|FATAL):  ([0-9A-Z]{5})/ ? $1 : $err;
}

# Moves, and is killed in the middle of a batch: its backend, then its client by SIGKILL, whose backend goes on. Then it is called again, to the end.
# What it waits for in the middle is a message under the key of a row that it has deleted already: all rows of the second half have one,
# because old workers may take some of them first.
sub move_and_kill
{
	my ($node, %options) = @_;
	my $table = $node->safe_psql('postgres', 'SELECT old_table FROM migration.origin');
	my $arguments = join ', ', 'batch => 40', $options{in_order} ? 'in_order => true' : ();
	my $connstr = $node->connstr('postgres') . ' user=' . ($options{role} // 'migrator') . ' application_name=move';

	foreach my $how ('backend', 'client')
	{
		my $keeper = session($node);
		$keeper->query_safe(q{
			BEGIN;
			SELECT FROM (SELECT * FROM migration.pending WHERE movable ORDER BY place, id OFFSET (SELECT count(*) / 2 FROM migration.pending)) p,
				outbox.enqueue('keep', '1', p.queue, aggregate_id => p.aggregate_id, idempotency_key => p.idempotency_key)});
		my $move = IPC::Run::start([ 'psql', '-Xq', '-d', $connstr, '-c', "CALL migration.move($arguments)" ], '<', \undef, '>', \my $out, '2>', \my $err);

		until ($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'move' AND wait_event_type = 'Lock' AND wait_event = 'transactionid'}))
		{
			$move->pump_nb;
			last if $err =~ /moved|ERROR/ || !$move->pumpable;
		}
		# Its 40, and what old workers hold or finish meanwhile.
		cmp_ok($node->safe_psql('postgres', "SELECT (SELECT count(*) FROM $table) - (SELECT count(*) FROM (SELECT FROM $table FOR UPDATE SKIP LOCKED) free)"), '<', 100, 'a batch locks its own rows only');
		$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'move'}) if $how eq 'backend';
		$move->signal('KILL') if $how eq 'client';
		$move->finish;
		unlike($err, qr/moved/, "a move is killed ($how)");
		$keeper->query_safe('ROLLBACK');
		$keeper->quit;
	}
	like(call($node, "CALL migration.move($arguments)", %options), qr/NOTICE:  00000: \d+ rows moved, \d+ left/, 'a move comes to its end');
	return;
}

# Until producers let it in.
sub redirect
{
	my ($node, %options) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my $said;

	do
	{
		$said = call($node, 'CALL migration.redirect(' . ($options{in_order} ? 'in_order => true' : '') . ')', %options);
	} while ($said =~ /^(?:55P03|55006)$/ && time < $end);
	is($said, '', 'the redirection is made');
	return;
}

# Until nothing is left on either side. The workers run, and moves are called again.
sub drain
{
	my ($node, %options) = @_;

	$node->poll_query_until('postgres', $options{until}) or die if $options{until};
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my $left;

	do
	{
		call($node, 'CALL migration.move()', %options);
		$left = $node->safe_psql('postgres', 'SELECT count(*) FROM migration.pending');
	} while ($left > 0 && time < $end);
	is($left, '0', 'nothing is left in the old place');
	$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM outbox.pending WHERE queue = 'work'}) or die 'messages remain';
	return;
}

# Each unit has one effect; in_order: the effects of each key come in the order of its units. Both sides had work.
sub all_done_once
{
	my ($node, %options) = @_;

	is($node->safe_psql('postgres', q{SELECT count(*) FROM units u WHERE NOT EXISTS (SELECT FROM effects e WHERE e.unit = u.unit)}), '0', 'no unit is lost');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT FROM effects GROUP BY unit HAVING count(*) > 1) e}), '0', '... none is done twice');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM effects WHERE unit NOT IN (SELECT unit FROM units)}), '0', '... and no other');
	is($node->safe_psql('postgres', q{SELECT string_agg(side, ' ' ORDER BY side) FROM (SELECT side FROM effects GROUP BY side HAVING count(*) >= 20) e}), 'new old', 'both sides had work');
	is($node->safe_psql('postgres', q{
			SELECT count(*) FROM (SELECT no < lag(no) OVER (PARTITION BY key ORDER BY unit) AS wrong FROM effects JOIN units USING (unit)) e WHERE wrong}),
		'0', 'each key was served in its order') if $options{in_order};
	diag($node->safe_psql('postgres', q{SELECT string_agg(format('%s: %s', side, n), ', ') FROM (SELECT side, count(*) AS n FROM effects GROUP BY side) e}));
	consistent($node, 'the outbox is consistent');
	return;
}

1;
