# What the TAP tests share: clusters with the extension in them, sessions that wait,
# seeds, and the questions that every test asks in the end.
package OutboxTest;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(@undone new_node seed session start_query wait_until_blocked
	result_of sqlstate checksums catalogue membership consistent undamaged
	without_checksums configure worker_says wait_for_worker listener hear heard
	wait_for_no_worker wait_for_rounds serves log_size log_lines logged
	faketime start_with_false_clock set_clock
	make_stop_points arm act_at stands_at release make_load load_is_told claim_at_once
	leases_make_room seal_all);

# What a transaction that undid some of its enqueues tells, with a background worker and
# without: the queues, a name, the script, its errors.
our @undone = (
	[ '', 'rollback', q{BEGIN; SELECT outbox.enqueue('e', '1'); ROLLBACK} ],
	[ '', 'rollback, and an empty transaction after it', q{BEGIN; SELECT outbox.enqueue('e', '1'); ROLLBACK; BEGIN; SELECT 1; COMMIT} ],
	[ '', 'an error later in the transaction', q{BEGIN; SELECT outbox.enqueue('e', '1'); SELECT 1 / 0; COMMIT}, '22012' ],
	[ '', 'a rolled-back savepoint', q{BEGIN; SAVEPOINT s; SELECT outbox.enqueue('e', '1'); ROLLBACK TO s; COMMIT} ],
	[ 'b', 'a rolled-back savepoint takes only its own', q{BEGIN; SELECT outbox.enqueue('e', '1', 'b'); SAVEPOINT s; SELECT outbox.enqueue('e', '1', 'a'); ROLLBACK TO s; COMMIT} ],
	[ 'b', 'the same queue before and in a rolled-back savepoint', q{BEGIN; SELECT outbox.enqueue('e', '1', 'b'); SAVEPOINT s; SELECT outbox.enqueue('e', '1', 'b'); ROLLBACK TO s; COMMIT} ],
	[ 'a', 'a released savepoint', q{BEGIN; SAVEPOINT s; SELECT outbox.enqueue('e', '1', 'a'); RELEASE s; COMMIT} ],
	[ '', 'a released savepoint within a rolled-back one', q{BEGIN; SAVEPOINT o; SAVEPOINT s; SELECT outbox.enqueue('e', '1', 'a'); RELEASE s; ROLLBACK TO o; COMMIT} ],
);

# A started cluster with the extension in database postgres. Options: conf (lines),
# streaming, extension => 0, preload => 1 (with background workers, whose intervals are
# so long that nothing happens but what somebody is told of).
sub new_node
{
	my ($name, %options) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(
		extra => [ '--encoding=UTF8', '--locale=C.UTF-8' ],
		$options{streaming} ? (allows_streaming => 1) : ());
	$node->append_conf('postgresql.conf', "log_statement = none");
	$node->append_conf('postgresql.conf', "timezone = 'UTC'");
	$node->append_conf('postgresql.conf', "max_prepared_transactions = 20");
	$node->append_conf('postgresql.conf', "max_connections = 40");
	# Whatever a test makes, it may take at once.
	$node->append_conf('postgresql.conf', "outbox.max_batch = 2147483647");
	$node->append_conf('postgresql.conf', "shared_buffers = '32MB'");
	$node->append_conf('postgresql.conf', "outbox.master_key_command = 'echo " . '7' x 64 . "'");
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'outbox'\n"
			. "outbox.discovery_interval = '1 d'\noutbox.poll_interval = '1 h'") if $options{preload};
	$node->append_conf('postgresql.conf', $options{conf}) if $options{conf};
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION outbox')
		unless defined $options{extension} && !$options{extension};
	return $node;
}

# The seed of a random test: printed, and taken from OUTBOX_TEST_SEED.
sub seed
{
	my $seed = $ENV{OUTBOX_TEST_SEED} // int(rand(2**31));

	die "OUTBOX_TEST_SEED must be a number" unless $seed =~ /^\d+$/;
	diag("seed $seed (OUTBOX_TEST_SEED=$seed repeats it)");
	srand($seed);
	return $seed;
}

# A psql that stays, whatever errors it meets. The time limit is a query's, not the
# session's.
sub session
{
	my ($node, %options) = @_;
	my $session = $node->background_psql($options{database} // 'postgres', on_error_stop => 0);

	$session->set_query_timer_restart;
	return bless $session, 'OutboxTest::Session';
}

{
	package OutboxTest::Session;
	our @ISA = ('PostgreSQL::Test::BackgroundPsql');

	# Nor is it that of all that went before.
	sub quit
	{
		my ($self) = @_;

		$self->{timeout}->start;
		return $self->SUPER::quit();
	}
}

# Sends a statement and does not wait for its end.
my $started = 0;

sub start_query
{
	my ($session, $sql) = @_;

	$session->{outbox_pid} = $session->query('SELECT pg_backend_pid()');
	$session->{outbox_tag} = 'query ' . ++$started;
	# What came together with the first line is the statement's already.
	$session->{stdout} = $session->query_until(qr/started\n/, "\\echo started\n$sql /* $session->{outbox_tag} */;\n") =~ s/^.*?started\n//sr;
	return;
}

# Until that statement waits for a lock; fails if it ends without having waited.
sub wait_until_blocked
{
	my ($node, $session, $name) = @_;
	my $row = "FROM pg_stat_activity WHERE pid = $session->{outbox_pid} AND query LIKE '%/* $session->{outbox_tag} */%'";

	$node->poll_query_until('postgres', "SELECT wait_event_type = 'Lock' OR state <> 'active' $row");
	# Its wait event ends for a moment when it looks for a deadlock; what it waits for does not.
	return is($node->safe_psql('postgres', "SELECT pg_blocking_pids(pid) <> '{}' $row"), 't', "$name: waits");
}

# The rest of what start_query began: output and errors.
sub result_of
{
	my ($session) = @_;
	my $output = $session->query('');
	my $error = $session->{stderr};

	$session->{stderr} = '';
	$output =~ s/^\s+|\s+$//g;
	return wantarray ? ($output, $error) : $output;
}

# The SQLSTATE of a statement in a session of its own, or 00000.
sub sqlstate
{
	my ($node, $sql, %options) = @_;
	my ($ret, $out, $err) = $node->psql(
		$options{database} // 'postgres', $sql,
		extra_params => [ '-v', 'VERBOSITY=sqlstate', '-v', 'SHOW_CONTEXT=never' ]);

	return '00000' if $ret == 0;
	return $1 if $err =~ /(?:ERROR|FATAL):\s+([0-9A-Z]{5})/;
	return "no SQLSTATE in: $err";
}

sub quoted
{
	my ($text) = @_;

	return "'" . $text =~ s/'/''/gr . "'";
}

# Of a node that is stopped: a page that is changed on disk can be read. From release 18 on initdb makes them.
sub without_checksums
{
	my ($node) = @_;

	run_log([ 'pg_checksums', '--disable', '--pgdata', $node->data_dir ]);
	return;
}

# Sets parameters (name => value; undef = back to the file's) and has all processes read them.
sub configure
{
	my ($node, %settings) = @_;

	foreach my $name (sort keys %settings)
	{
		my $value = $settings{$name};

		$node->safe_psql('postgres', defined $value ? "ALTER SYSTEM SET $name = '$value'" : "ALTER SYSTEM RESET $name");
	}
	$node->reload;
	return;
}

# A column, or an expression of several, of a database's worker in outbox.workers.
sub worker_says
{
	my ($node, $expression, $database) = @_;

	$database //= 'postgres';
	return $node->safe_psql($database,
		"SELECT $expression FROM outbox.workers WHERE kind = 'worker' AND database = " . quoted($database));
}

# Until a worker lives, other than the one of that process, and has nothing to do; its process.
sub wait_for_worker
{
	my ($node, %options) = @_;
	my $database = $options{database} // 'postgres';
	my $other = $options{other} // 0;

	$node->poll_query_until($database, qq{
		SELECT count(*) = 1 FROM outbox.workers w JOIN pg_stat_activity a USING (pid)
		WHERE kind = 'worker' AND database = ${\ quoted($database)} AND pid <> $other AND a.state = 'idle' AND w.next_wake > now()})
		or die "no worker in database $database";
	return worker_says($node, 'pid', $database);
}

# A session that listens, and remembers what it heard: [queue, process that sent it].
sub listener
{
	my ($node, %options) = @_;
	my $session = session($node, %options);

	$session->query_safe('LISTEN outbox_pending');
	return { node => $node, database => $options{database} // 'postgres', session => $session, heard => [] };
}

# Until one of these queues was heard of since `heard` was called last; that notification.
sub hear
{
	my ($listener, @queues) = @_;

	for (1 .. 1800)
	{
		my $output = $listener->{session}->query('SELECT');

		push @{ $listener->{heard} }, [ $1, $2 ]
			while $output =~ /"outbox_pending" with payload "(.*)" received from server process with PID (\d+)/g;
		foreach my $one (@{ $listener->{heard} })
		{
			return $one if grep { $_ eq $one->[0] } @queues;
		}
		select(undef, undef, undef, 0.1);
	}
	die 'not heard of: ' . join(', ', @queues);
}

# What was heard since the last time: queues, sorted. Complete, and without waiting for
# time to pass: a worker collects in rounds what commits have told it, so that what was
# committed before this call is sent with the first message here, or at the latest before
# the second. Only for listeners of a database with a live worker, that gathers for no
# longer than a moment, and a queue `end`.
my $marks = 0;

sub heard
{
	my ($listener) = @_;
	my $node = $listener->{node};
	my @others;

	for (1, 2)
	{
		$node->safe_psql($listener->{database}, q{SELECT outbox.enqueue('e', '1', 'end')});
		hear($listener, 'end');
		push @others, grep { $_->[0] ne 'end' } @{ $listener->{heard} };
		$listener->{heard} = [];
	}
	# Notifications arrive in their order: nothing that precedes this one is still under way.
	my $mark = 'mark ' . ++$marks;
	$node->safe_psql($listener->{database}, "NOTIFY outbox_pending, '$mark'");
	hear($listener, $mark);
	push @others, grep { $_->[0] ne 'end' && $_->[0] ne $mark } @{ $listener->{heard} };
	$listener->{heard} = [];
	return wantarray ? @others : join ' ', sort map { $_->[0] } @others;
}

# Table => number of rows and a checksum over them, for each table and view of the schema. Options:
# also (another table, if it is there), rows (gives the condition on those of a table that count).
sub checksums
{
	my ($node, $database, %options) = @_;
	my $also = $options{also} // '';
	my $rows = $options{rows} || sub { return 'true' };
	my $tables = $node->safe_psql($database, qq{
		SELECT c.oid::regclass FROM pg_class c
		WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'p')
			OR c.oid IN ('outbox.sequences'::regclass, 'outbox.dead_letters'::regclass, to_regclass(nullif('$also', '')))
		ORDER BY 1::text});
	my $sql = join "\nUNION ALL ", map {
		"SELECT '$_', count(*), md5(coalesce(string_agg(t::text, E'\\n' ORDER BY t::text COLLATE \"C\"), '')) FROM $_ t WHERE ${\ $rows->($_)}"
	} split /\n/, $tables;
	my %sums = map { my ($name, @rest) = split /\|/; $name => "@rest" }
		split /\n/, $node->safe_psql($database, $sql);

	return \%sums;
}

# Everything the catalogues say about the schema's relations that a user could notice.
sub catalogue
{
	my ($node, $database) = @_;

	return [ split /\n/, $node->safe_psql($database, q{
		WITH rel AS (SELECT * FROM pg_class WHERE relnamespace = 'outbox'::regnamespace)
		SELECT 'relation', relname, relkind::text, pg_get_userbyid(relowner), coalesce(array_to_string(reloptions, ','), ''),
			(SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(coalesce(relacl, acldefault((CASE relkind WHEN 'S' THEN 's' ELSE 'r' END)::"char", relowner))) a),
			coalesce(obj_description(oid, 'pg_class'), ''),
			coalesce(pg_get_expr(relpartbound, oid), ''),
			coalesce((SELECT inhparent::regclass::text FROM pg_inherits WHERE inhrelid = rel.oid), '')
		FROM rel
		UNION ALL
		SELECT 'column', r.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull::text,
			coalesce(pg_get_expr(d.adbin, d.adrelid), ''), coalesce(col_description(r.oid, a.attnum), ''), a.attstorage::text, ''
		FROM rel r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
			LEFT JOIN pg_attrdef d ON d.adrelid = r.oid AND d.adnum = a.attnum
		WHERE r.relkind IN ('r', 'p', 'v')
		UNION ALL
		SELECT 'index', r.relname, i.relname, pg_get_indexdef(i.oid), x.indisvalid::text, x.indisprimary::text, '', '', ''
		FROM rel r JOIN pg_index x ON x.indrelid = r.oid JOIN pg_class i ON i.oid = x.indexrelid
		UNION ALL
		SELECT 'constraint', r.relname, c.conname, pg_get_constraintdef(c.oid), c.convalidated::text,
			coalesce(obj_description(c.oid, 'pg_constraint'), ''), '', '', ''
		FROM rel r JOIN pg_constraint c ON c.conrelid = r.oid
		UNION ALL
		SELECT 'trigger', r.relname, t.tgname, pg_get_triggerdef(t.oid), t.tgenabled::text, (t.tgparentid <> 0)::text,
			coalesce(obj_description(t.oid, 'pg_trigger'), ''), '', ''
		FROM rel r JOIN pg_trigger t ON t.tgrelid = r.oid WHERE r.relkind IN ('r', 'p')
		ORDER BY 1, 2, 3, 4}) ];
}

# Everything that belongs to an extension, as the catalogues describe it: owners, rights, those
# of the beginning too, bodies, triggers, comments, dependencies.
sub membership
{
	my ($node, $database, $extension) = @_;

	return [ split /\n/, $node->safe_psql($database, qq{
		WITH extension AS (
			SELECT * FROM pg_extension WHERE extname = '$extension'
		), member AS (
			SELECT d.classid, d.objid FROM pg_depend d JOIN extension e ON e.oid = d.refobjid
			WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
		), owned AS (
			SELECT 'pg_class'::regclass AS classid, oid, relowner AS owner, coalesce(relacl, acldefault((CASE relkind WHEN 'S' THEN 's' ELSE 'r' END)::"char", relowner)) AS acl,
				concat(reloptions::text, CASE relkind WHEN 'v' THEN md5(pg_get_viewdef(oid)) END) AS rest FROM pg_class
			-- A body that was parsed anew names columns that it did not name before.
			UNION ALL SELECT 'pg_proc'::regclass, oid, proowner, proacl, md5(regexp_replace(pg_get_functiondef(oid), ' AS text\\M', '', 'g')) FROM pg_proc
			WHERE prokind IN ('f', 'p') AND oid IN (SELECT objid FROM member)
			UNION ALL SELECT 'pg_namespace'::regclass, oid, nspowner, nspacl, '' FROM pg_namespace
			UNION ALL SELECT 'pg_type'::regclass, oid, typowner, typacl,
				coalesce((SELECT string_agg(enumlabel, ' ' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = pg_type.oid), '') FROM pg_type
			UNION ALL SELECT 'pg_event_trigger'::regclass, oid, evtowner, NULL, evtenabled::text FROM pg_event_trigger
			UNION ALL SELECT 'pg_cast'::regclass, oid, NULL, NULL, concat(castcontext, castmethod) FROM pg_cast
		), rights AS (
			-- Without those of owners, which are there anyway.
			SELECT classoid AS classid, objoid AS objid, concat_ws(' ', privtype, objsubid, grantee::regrole, privilege_type, is_grantable) AS initial
			FROM pg_init_privs, aclexplode(initprivs) WHERE grantee <> grantor
		)
		SELECT pg_describe_object(m.classid, m.objid, 0), coalesce(pg_get_userbyid(o.owner), '') || ' ' || o.rest,
			coalesce((SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(o.acl) a), ''), coalesce(obj_description(m.objid, c.relname), '')
		FROM member m JOIN pg_class c ON c.oid = m.classid LEFT JOIN owned o ON o.classid = m.classid AND o.oid = m.objid
		UNION ALL
		SELECT 'trigger ' || t.tgname || ' ' || t.tgenabled::text, t.tgrelid::regclass::text, pg_get_triggerdef(t.oid), coalesce(obj_description(t.oid, 'pg_trigger'), '')
		FROM member m JOIN pg_trigger t ON m.classid = 'pg_class'::regclass AND t.tgrelid = m.objid AND t.tgconstraint = 0
		UNION ALL
		SELECT 'column ' || a.attrelid::regclass || '.' || a.attname, format_type(a.atttypid, a.atttypmod), coalesce(a.attacl::text, ''), coalesce(col_description(a.attrelid, a.attnum), '')
		FROM member m JOIN pg_attribute a ON m.classid = 'pg_class'::regclass AND a.attrelid = m.objid AND a.attnum > 0
		UNION ALL
		SELECT 'initial rights', pg_describe_object(m.classid, m.objid, 0), r.initial, '' FROM member m JOIN rights r USING (classid, objid)
		UNION ALL
		SELECT 'depends', pg_describe_object(d.classid, d.objid, d.objsubid), pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid), d.deptype::text
		FROM member m JOIN pg_depend d USING (classid, objid)
		UNION ALL
		SELECT 'goes with it', pg_describe_object(d.classid, d.objid, 0), '', '' FROM pg_depend d JOIN extension e ON e.oid = d.refobjid
		WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'x'
		UNION ALL
		SELECT 'dumped', c.oid::regclass::text, n::text, e.extcondition[n] FROM extension e, unnest(e.extconfig) WITH ORDINALITY u(oid, n) JOIN pg_class c USING (oid)
		UNION ALL
		SELECT 'extension', extversion, extrelocatable::text, extnamespace::regnamespace::text FROM extension
		ORDER BY 1, 2, 3, 4}) ];
}

# What holds in every quiet database: nothing lost, nothing twice, no gaps.
sub consistent
{
	my ($node, $name, $database) = @_;

	$node->safe_psql($database // 'postgres', 'ANALYZE');
	my $problems = $node->safe_psql($database // 'postgres', q{
		SELECT 'both pending and ended, or neither', count(*) FROM outbox.messages m
			LEFT JOIN outbox.pending p USING (outbox_id)
			LEFT JOIN (SELECT outbox_id FROM outbox.attempts WHERE state IN ('DISPATCHED', 'FAILED')) t USING (outbox_id)
		WHERE (p.outbox_id IS NULL) = (t.outbox_id IS NULL)
		UNION ALL
		SELECT 'pending without a message', count(*) FROM outbox.pending p
		WHERE NOT EXISTS (SELECT FROM outbox.messages m WHERE m.outbox_id = p.outbox_id)
		UNION ALL
		SELECT 'attempt without a message', count(*) FROM outbox.attempts a
		WHERE NOT EXISTS (SELECT FROM outbox.messages m WHERE m.outbox_id = a.outbox_id)
		UNION ALL
		SELECT 'attempts not 1, 2, 3 ... or not ending with the terminal one', count(*) FROM (
			SELECT outbox_id FROM outbox.attempts GROUP BY outbox_id
			HAVING max(attempt_no) <> count(*) OR min(attempt_no) <> 1
				OR count(*) FILTER (WHERE state IN ('DISPATCHED', 'FAILED')) > 1
				OR coalesce(max(attempt_no) FILTER (WHERE state IN ('DISPATCHED', 'FAILED')), max(attempt_no)) <> max(attempt_no)) a
		UNION ALL
		SELECT 'attempt_count not what the ledger says', count(*) FROM outbox.pending p
			LEFT JOIN (SELECT outbox_id, count(*) AS attempts FROM outbox.attempts GROUP BY 1) a USING (outbox_id)
		WHERE p.attempt_count <> coalesce(a.attempts, 0)
		UNION ALL
		SELECT 'numbers of a key with gaps', count(*) FROM (
			SELECT m.queue, m.partition_key FROM outbox.messages m WHERE m.sequence_id IS NOT NULL
			GROUP BY 1, 2 HAVING max(sequence_id) <> count(DISTINCT sequence_id) OR count(*) <> count(DISTINCT sequence_id)) m
		UNION ALL
		SELECT 'a key whose next number is not the last one + 1', count(*) FROM (
			SELECT m.queue, m.partition_key FROM outbox.messages m LEFT JOIN outbox.sequences s USING (queue, partition_key)
			WHERE m.sequence_id IS NOT NULL
			GROUP BY 1, 2, s.next_sequence_id HAVING s.next_sequence_id IS DISTINCT FROM max(sequence_id) + 1) m
		UNION ALL
		SELECT 'idempotency keys twice', count(*) FROM (
			SELECT FROM outbox.messages WHERE idempotency_key IS NOT NULL
			GROUP BY queue, coalesce(aggregate_id, ''), idempotency_key HAVING count(*) > 1) m
		UNION ALL
		SELECT 'tokens recorded twice', count(*) FROM (
			SELECT FROM outbox.attempts WHERE lease_token IS NOT NULL GROUP BY lease_token HAVING count(*) > 1) a
		UNION ALL
		SELECT 'check(): ' || object || ': ' || problem, 1 FROM outbox.check() WHERE severity = 'error'});

	$problems = join "\n", grep { !/\|0$/ } split /\n/, $problems;
	return is($problems, '', $name);
}

# Tables and indexes are whole, and every row has its entry in every index.
sub undamaged
{
	my ($node, $name, $database) = @_;
	local $ENV{PGOPTIONS} = '-c client_min_messages=warning';

	return $node->command_checks_all(
		[ 'pg_amcheck', '--install-missing', '--heapallindexed', '--parent-check', '--rootdescend', $database // 'postgres' ],
		0, [qr/\A\z/], [qr/\A\z/], $name);
}

# ---------------------------------------------------------------- background workers

# Until no process of ours is in a database.
sub wait_for_no_worker
{
	my ($node, $database) = @_;

	$node->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'outbox%' AND datname = " . quoted($database))
		or die "there is still a worker for $database";
	return;
}

# Until the worker of a database, or the launcher, has gone round so many times more: what
# it would have done, it has done. The database must have the extension. What wakes it for
# that, if it would sleep, is done in $wake.
sub wait_for_rounds
{
	my ($node, $kind, $database, $rounds, $wake) = @_;
	my $wakeups = "SELECT wakeups FROM outbox.workers WHERE kind = '$kind'"
		. ($kind eq 'launcher' ? '' : ' AND database = ' . quoted($database));
	my $before = $node->safe_psql($database, $wakeups);

	$wake->() if $wake;
	return $node->poll_query_until($database, "SELECT ($wakeups) >= $before + $rounds") || die "the $kind does not go round";
}

# The worker of a database notifies, at once, and repairs a lease when it expires.
my $served = 0;

sub serves
{
	my ($node, $database, $name) = @_;
	my $listener = listener($node, database => $database);
	my $queue = 'serves ' . ++$served;
	my $id;

	$node->safe_psql($database, qq{
		SELECT outbox.create_queue('$queue', repair_delay => '1 year');
		SELECT outbox.enqueue('serves', '1', '$queue')});
	is(hear($listener, $queue)->[1], worker_says($node, 'pid', $database), "$name: the worker notifies");
	$listener->{session}->quit;
	$id = $node->safe_psql($database, qq{
		SELECT outbox_id FROM outbox.enqueue_and_claim('gone', 'serves', '1', '$queue', lease => '1 ms')});
	return ok($node->poll_query_until($database, qq{
		SELECT count(*) = 1 FROM outbox.attempts
		WHERE outbox_id = '$id' AND state = 'ZOMBIE_REQUEUE' AND worker_id = 'gone' AND recorded_by = 'outbox worker'}),
		"$name: the worker repairs");
}

# What gives a server a false clock; undef where it is not installed.
sub faketime
{
	return (glob '/usr/lib/*/faketime/libfaketime.so.1')[0];
}

# Starts a cluster whose clock can be set: its processes read a file at each look at it.
sub start_with_false_clock
{
	my ($node) = @_;
	my $dir = $node->basedir;

	set_clock($node, 0);
	PostgreSQL::Test::Utils::system_or_bail('cc', '-shared', '-fPIC', '-o', "$dir/faketime_server.so", 'test/faketime_server.c');
	local $ENV{LD_PRELOAD} = "$dir/faketime_server.so " . faketime();
	local $ENV{FAKETIME_TIMESTAMP_FILE} = "$dir/clock";
	local $ENV{FAKETIME_NO_CACHE} = 1;
	local $ENV{FAKETIME_DONT_FAKE_MONOTONIC} = 1;
	$node->start;
	return;
}

# So many seconds before or behind the true time.
sub set_clock
{
	my ($node, $offset) = @_;
	my $file = $node->basedir . '/clock';

	append_to_file("$file.new", sprintf("%+d\n", $offset));
	rename "$file.new", $file or die;
	return;
}

# Stop points: a process (that one, or any) that comes to an armed place waits there until it
# is released. Shaken (microseconds, 0 = no more), processes stay for a while at every one.
sub make_stop_points
{
	my ($node) = @_;

	$node->safe_psql('postgres', q{
		CREATE FUNCTION arm(text, pid int = 0) RETURNS void LANGUAGE c AS 'outbox', 'outbox_stop_point_arm';
		CREATE FUNCTION act(text, text, pid int = 0) RETURNS void LANGUAGE c AS 'outbox', 'outbox_stop_point_act';
		CREATE FUNCTION reached(text) RETURNS int LANGUAGE c AS 'outbox', 'outbox_stop_point_reached';
		CREATE FUNCTION release(text) RETURNS void LANGUAGE c AS 'outbox', 'outbox_stop_point_release';
		CREATE FUNCTION shake(int) RETURNS void LANGUAGE c AS 'outbox', 'outbox_stop_point_shake'});
	return;
}

sub arm
{
	my ($node, $point, $pid) = @_;

	$node->safe_psql('postgres', "SELECT arm('$point', " . ($pid // 0) . ')');
	return;
}

# It does not wait there: it is asked to cancel (once, 'cancel'), or fails with that SQLSTATE.
sub act_at
{
	my ($node, $point, $what, $pid) = @_;

	$node->safe_psql('postgres', "SELECT act('$point', '$what', " . ($pid // 0) . ')');
	return;
}

# Until that process, or any other than the last one that was ended there, stands there.
sub stands_at
{
	my ($node, $point, $pid) = @_;

	$node->poll_query_until('postgres', defined $pid ? "SELECT reached('$point') = $pid"
		: "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = reached('$point')") or die "nobody comes to $point";
	return;
}

sub release
{
	my ($node, $point) = @_;

	$node->safe_psql('postgres', "SELECT release('$point')");
	return;
}

# Business that enqueues into a numbered queue, a key each, and workers for that: produce(key),
# and work(worker, number of messages, a number that chooses their outcomes).
sub make_load
{
	my ($node, $database, $queue) = @_;

	$node->safe_psql($database, qq{
		CREATE TABLE business (id bigint GENERATED ALWAYS AS IDENTITY, key text, number bigint);
		CREATE FUNCTION produce(chosen text) RETURNS void LANGUAGE sql AS \$\$
			INSERT INTO business (key, number) SELECT chosen, sequence_id FROM outbox.enqueue('load', '1', '$queue', partition_key => chosen)
		\$\$;
		CREATE FUNCTION work(who text, n int, outcome int) RETURNS bigint LANGUAGE sql AS \$\$
			WITH held AS MATERIALIZED (SELECT * FROM outbox.claim(who, n, queues => ARRAY['$queue'])), these AS MATERIALIZED (
				SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens,
					array_agg((ARRAY['DISPATCHED', 'RETRYABLE', 'FAILED'])[1 + (outcome + sequence_id) % 3]) AS states,
					array_agg(interval '0') AS delays
				FROM held HAVING count(*) > 0)
			SELECT count(c.attempt_no) FROM these, outbox.complete_batch(who, ids, tokens, states, retry_delays => delays) c
		\$\$});
	return;
}

# Each business row has its message, each message its row.
sub load_is_told
{
	my ($node, $name, $database) = @_;

	return is($node->safe_psql($database // 'postgres', q{
			SELECT count(*) FROM business b FULL JOIN (SELECT * FROM outbox.messages WHERE event_type = 'load') m
				ON m.partition_key = b.key AND m.sequence_id = b.number
			WHERE b.id IS NULL OR m.outbox_id IS NULL}),
		'0', $name);
}

# Where the server's log ends now.
sub log_size
{
	my ($node) = @_;

	return -s $node->logfile;
}

# What the log says from there on: [process, a line with its message or a part of that, without
# prefix]. Statements that the log repeats are left out.
sub logged_lines
{
	my ($node, $from) = @_;
	my @lines = split /\n/, PostgreSQL::Test::Utils::slurp_file($node->logfile, $from);

	return map { /\[(\d+)\] (?:\S+ )*?((?:LOG|FATAL|ERROR|WARNING|PANIC|DETAIL|HINT|CONTEXT|NOTICE|INFO|DEBUG\d?):  .*)/ ? [ $1, $2 ] : () } @lines;
}

# Those that match, in order.
sub log_lines
{
	my ($node, $from, $pattern) = @_;

	return grep { /$pattern/ } map { $_->[1] } logged_lines($node, $from);
}

# The log since then says of us what is expected, once each, in any order, and nothing else:
# but for what the server says of parameters that were changed and processes that were
# terminated, whatever these were at.
sub logged
{
	my ($node, $from, $name, @expected) = @_;
	my $others = qr/^LOG:  parameter "|terminating background worker "outbox \w+" due to administrator command|background worker "outbox \w+" \(PID \d+\) exited with exit code 1$/;
	my (%of_others, @lines);

	foreach my $line (logged_lines($node, $from))
	{
		my ($pid, $text) = @$line;

		$of_others{$pid} = $text =~ $others unless $text =~ /^(?:DETAIL|HINT|CONTEXT):/;
		push @lines, $text if $text =~ /outbox/ && !$of_others{$pid};
	}
	foreach my $pattern (@expected)
	{
		my @matching = grep { $_ =~ $pattern } @lines;

		is(scalar(@matching), 1, "$name: logs once: $pattern") or diag(join "\n", @matching);
		@lines = grep { $_ !~ $pattern } @lines;
	}
	# From 18 on an error in CREATE EXTENSION says with which statement.
	@lines = grep { !/^CONTEXT:  SQL statement "CREATE SCHEMA / } @lines;
	# Who is at the tables for longer than maintenance waits depends on the machine.
	@lines = grep { !/^LOG:  outbox maintenance (?:could not make partitions: .*lock timeout|has made partitions again)/ } @lines;
	return is(join("\n", @lines), '', "$name: logs nothing else");
}

# Eight sessions claim up to so many messages of queue l at a time, and report, renew, give back, roll back, or let the
# leases expire. holds: what must be true in each snapshot meanwhile. In the end no lease is left.
sub claim_at_once
{
	my ($node, $seed, $most, $transactions, $holds, $name) = @_;
	my $files = $node->basedir;
	my ($out, $err) = ('', '');

	$node->safe_psql('postgres', q{
	CREATE FUNCTION work(n int, outcome int) RETURNS int LANGUAGE plpgsql AS $$
	DECLARE
		ids uuid[];
		tokens uuid[];
	BEGIN
		SELECT array_agg(outbox_id), array_agg(lease_token) INTO ids, tokens
		FROM outbox.claim('w' || n, n, CASE outcome WHEN 5 THEN interval '20 ms' ELSE '1 hour' END, '{l}');
		IF ids IS NULL OR outcome = 5 THEN
			RETURN 0;
		END IF;
		IF outcome = 4 THEN
			PERFORM FROM outbox.renew('w' || n, ids, tokens, '2 hours');
			PERFORM FROM outbox.release('w' || n, ids, tokens);
		ELSIF outcome = 3 THEN
			BEGIN
				PERFORM FROM outbox.complete_batch('w' || n, ids, tokens, array_fill('DISPATCHED'::outbox.attempt_state, ARRAY[cardinality(ids)]));
				PERFORM FROM outbox.claim('w' || n, 9, queues => '{l}');
				RAISE division_by_zero;
			EXCEPTION WHEN division_by_zero THEN
				PERFORM FROM outbox.release('w' || n, ids[2:], tokens[2:]);
				PERFORM FROM outbox.complete(ids[1], tokens[1], 'w' || n, 'RETRYABLE');
			END;
		ELSIF outcome = 2 THEN
			RAISE EXCEPTION 'rolled back' USING ERRCODE = '40001';
		ELSE
			PERFORM FROM outbox.complete_and_claim('w' || n, ids, tokens, array_fill('DISPATCHED'::outbox.attempt_state, ARRAY[cardinality(ids)]),
				batch_size => n, queues => '{l}') c WHERE lease_token IS NOT NULL;
			PERFORM FROM outbox.enqueue_and_claim('w' || n, 'e', '1', 'l', partition_key => 'k' || n);
			PERFORM outbox.release('w' || n, a.ids, a.tokens)
			FROM (SELECT array_agg(p.outbox_id) AS ids, array_agg(p.lease_token) AS tokens FROM outbox.pending p WHERE p.claimed_by = 'w' || n AND p.queue = 'l') a
			WHERE a.ids IS NOT NULL;
		END IF;
		RETURN cardinality(ids);
	END
	$$});
	append_to_file("$files/work.sql", "\\set n random(1, $most)\n\\set outcome random(1, 5)\nSELECT work(:n, :outcome);\n");
	append_to_file("$files/look.sql", "SELECT 1 / ($holds)::int;\n");
	IPC::Run::run([ 'pgbench', '-n', '-c', '8', '-j', '1', '-t', $transactions, '--max-tries', '1', '--random-seed', $seed, '-f', "$files/work.sql\@3", '-f', "$files/look.sql\@1",
		$node->connstr('postgres') ], '<', \undef, '>', \$out, '2>', \$err);
	$err =~ s/^pgbench: (?:hint|setting random seed).*\n//mg;
	is($err, '', "many sessions: no error, and $name");
	like($out, qr/^number of transactions actually processed: [1-9]/m, '... of those that were not rolled back');
	$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM outbox.pending WHERE queue = 'l' AND lease_expires_at < clock_timestamp()});
	$node->safe_psql('postgres', q{SELECT outbox.break_lease(outbox_id, 'end') FROM outbox.pending WHERE claimed_by IS NOT NULL});
	return;
}

# Queue l is full, and leases end by finish(): what a prepared transaction did counts until it is over, and a session that
# waits is woken. take() and finish() are the test's.
sub leases_make_room
{
	my ($node) = @_;

	$node->safe_psql('postgres', 'SELECT finish(2)');
	$node->safe_psql('postgres', q{BEGIN; SELECT take(2); PREPARE TRANSACTION 'claim'});
	is($node->safe_psql('postgres', 'SELECT take(9)'), '0', 'a prepared claim counts');
	$node->safe_psql('postgres', q{ROLLBACK PREPARED 'claim'});
	is($node->safe_psql('postgres', 'SELECT take(9)'), '2', '... until it is rolled back');
	$node->safe_psql('postgres', q{BEGIN; SELECT finish(2); PREPARE TRANSACTION 'finish'});
	is($node->safe_psql('postgres', 'SELECT take(9)'), '0', 'a prepared completion makes no room');
	$node->safe_psql('postgres', q{COMMIT PREPARED 'finish'});
	is($node->safe_psql('postgres', 'SELECT take(9)'), '2', '... until it is committed');
	wait_for_worker($node);
	my $waits = session($node);
	my $from = log_size($node);
	$waits->query_safe('SET log_min_messages = debug1');
	start_query($waits, q{SELECT count(*) FROM outbox.claim('waits', 1, queues => '{l}', wait => '10 min')});
	$node->poll_query_until('postgres', "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $waits->{outbox_pid}");
	is($node->safe_psql('postgres', 'SELECT finish(1)'), '1', 'a lease ends');
	is(result_of($waits), '1', '... and a session that waits claims in its place');
	ok(log_lines($node, $from, qr/woken for work/), '... because it was woken');
	$waits->quit;
	return;
}

# Seals until what is recorded now is sealed: a transaction that runs, such as a background worker's, delays it.
sub seal_all
{
	my ($node, $database) = @_;
	my $now = $node->safe_psql($database, 'SELECT clock_timestamp()');

	$node->poll_query_until($database, qq{
		SELECT count(*) >= 0 AND coalesce((SELECT max(to_at) FROM outbox.seals) > '$now', false) FROM outbox.seal()}) or die;
	return;
}

1;
