# The payment interface in use: a producer and three workers, each a program of its own
# that knows nothing but that interface, while they are killed.
#
# Proves, with the background worker off: nothing is lost and nothing ends twice, though
# producers and workers die at any moment, by SIGKILL and by the loss of their session;
# a lost lease leaves one ZOMBIE_REQUEUE; an accepted report is in the ledger as it was
# made; a wake-up comes by NOTIFY, and workers that do not listen find the work by polling.
# A retry comes at the promised time and not before. A dump takes it all along, with the
# settings of the queue. When extension and roles are gone, the core dumps and restores.
#
# No time is waited for: times are set by UPDATE of the view.
use strict;
use warnings;

use IPC::Run;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = seed();
my $node = new_node('main', preload => 1, conf => 'outbox.worker = off');
my $instructions = 0;	# grows until there were kills enough
my ($least_kills, $least_lost) = (10, 2);

sub ask
{
	my ($sql, %options) = @_;

	return $node->safe_psql($options{database} // 'postgres', $sql);
}

ask(q{
	CREATE EXTENSION outbox_payment;
	CREATE ROLE producer LOGIN IN ROLE symphony_ingest;
	CREATE ROLE worker LOGIN IN ROLE symphony_executor;
	CREATE TABLE produced (instruction text, outbox_id uuid, sequence_id bigint, created_at timestamptz);
	CREATE TABLE rail (outbox_id uuid, token uuid, PRIMARY KEY (outbox_id, token));
	CREATE TABLE reported (token uuid, state text, answer text);
	GRANT SELECT, INSERT, UPDATE ON produced, rail, reported TO producer, worker;
	-- What a worker does with the answer of a completion: it keeps the number, or the error.
	CREATE FUNCTION report(id uuid, token uuid, worker text, state text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		answer text;
	BEGIN
		BEGIN
			SELECT attempt_no INTO answer FROM complete_outbox_attempt(id, token, worker, state);
		EXCEPTION WHEN OTHERS THEN
			answer := SQLSTATE;
		END;
		INSERT INTO reported VALUES (token, state, answer);
		RETURN answer;
	END
	$$});

# ---------------------------------------------------------------- programs

my $files = 0;

# Starts pgbench with a script, as a role, under a name by which its session is found.
sub start_program
{
	my ($name, $role, $script, @options) = @_;
	my $file = $node->basedir . '/' . ++$files . '.sql';
	my %program = (name => $name, out => '', err => '');

	append_to_file($file, $script);
	local $ENV{PGAPPNAME} = $name;
	$program{handle} = IPC::Run::start(
		[ 'pgbench', '-n', '-c', 1, '--random-seed', ++$seed, '-f', $file, @options, '-U', $role, $node->connstr('postgres') ],
		'<', \undef, '>', \$program{out}, '2>', \$program{err});
	return \%program;
}

sub produced
{
	return ask('SELECT count(DISTINCT instruction) FROM produced');
}

sub start_producer
{
	my ($name) = @_;

	$instructions += 100 if $instructions == produced();
	# Some instructions come again, some transactions are rolled back.
	return start_program($name, 'producer', qq{
\\set i random(1, $instructions)
\\set end random(1, 4)
BEGIN;
INSERT INTO produced SELECT 'i' || :i, e.*
FROM enqueue_payment_outbox('i' || :i, 'p' || :i % 7, 'k', 'SEPA', jsonb_build_object('amount', :i, 'currency', 'EUR', 'destination', 'x')) e;
\\if :end = 1
ROLLBACK;
\\else
COMMIT;
\\endif
}, '-t', 1000000, '-R', 1000);
}

# Claims one, delivers it, which takes its time, reports. It polls: it does not listen.
sub start_worker
{
	my ($name) = @_;

	return start_program($name, 'worker', qq{
SELECT count(*) AS found, coalesce(max(outbox_id::text), '') AS id, coalesce(max(lease_token::text), '') AS token
FROM claim_outbox_batch(1, '$name', 3600) \\gset
\\if :found = 1
\\set ms random(1, 20)
\\sleep :ms ms
INSERT INTO rail VALUES (':id', ':token');
\\sleep :ms ms
\\set outcome random(1, 10)
SELECT report(':id', ':token', '$name', CASE WHEN :outcome <= 6 THEN 'DISPATCHED' WHEN :outcome <= 9 THEN 'RETRYABLE' ELSE 'FAILED' END);
\\endif
}, '-t', 1000000, '-R', 50);
}

# Ends a program at whatever it is doing, and returns when its session is gone, too.
sub kill_program
{
	my ($program) = @_;
	my $session = "FROM pg_stat_activity WHERE application_name = '$program->{name}'";

	ask("SELECT pg_terminate_backend(pid) $session") if int(rand(2));
	$program->{handle}->signal('KILL');
	eval { $program->{handle}->finish };
	$node->poll_query_until('postgres', "SELECT count(*) = 0 $session") or die "$program->{name} lives on";
	return;
}

# ---------------------------------------------------------------- kills

# Makes every retry due, and says whether that many attempts were recorded, or whether
# the workers have nothing left to do.
ask(q{
	CREATE FUNCTION moved_on(attempts bigint) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() WHERE next_attempt_at > clock_timestamp() AND claimed_by IS NULL;
		RETURN (SELECT count(*) FROM payment_outbox_attempts) >= attempts OR NOT EXISTS (SELECT FROM payment_outbox_pending);
	END
	$$});

my $listener = listener($node);
my $producer = start_producer('producer 0');
is(hear($listener, 'payment')->[0], 'payment', 'a listener is woken, by the name of the queue');
$listener->{session}->quit;

my %workers = map { $_ => start_worker("worker $_.0") } 1 .. 3;
my $kills = 0;
my $enough = sub {
	return $kills >= $least_kills && ask(q{SELECT count(*) FROM payment_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE'}) >= $least_lost;
};

until (!$producer && $enough->() && ask('SELECT count(*) FROM payment_outbox_pending') == 0)
{
	my $attempts = ask('SELECT count(*) FROM payment_outbox_attempts');

	$node->poll_query_until('postgres', "SELECT moved_on($attempts + 10)") or die 'the workers do nothing';
	my $victim = 1 + int(rand(3));

	kill_program($workers{$victim});
	$kills++;
	# Its lease runs out; a repair finds it, or another worker does.
	ask("UPDATE payment_outbox_pending SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE claimed_by = '$workers{$victim}->{name}'");
	ask("SET ROLE worker; SELECT count(*) FROM repair_expired_leases(10, 'repairer')") if int(rand(2));
	$workers{$victim} = start_worker("worker $victim.$kills");

	# The producer is killed now and then, and in the end when it has said everything.
	next if $producer && $kills % 4 > 0 && produced() < $instructions;
	kill_program($producer) if $producer;
	$producer = !$enough->() || produced() < $instructions ? start_producer("producer $kills") : undef;
}
kill_program($_) foreach values %workers;

cmp_ok($kills, '>=', $least_kills, "workers were killed: $kills times");
note("$instructions instructions");
note('ledger: ' . ask(q{SELECT string_agg(r, ', ') FROM (SELECT state || ' ' || count(*) FROM payment_outbox_attempts GROUP BY state) x(r)}));
note('reports: ' . ask(q{SELECT string_agg(r, ', ') FROM (SELECT concat_ws(' ', state, substring(answer FROM '^P.*'), count(*)) FROM reported GROUP BY state, substring(answer FROM '^P.*')) x(r)}));

# Nothing lost: what the producers were told is there, and has ended.
is(ask(q{SELECT count(DISTINCT instruction), count(DISTINCT outbox_id) FROM produced}), "$instructions|$instructions", 'one id an instruction');
is(ask(q{
		SELECT instruction, count(DISTINCT (outbox_id, sequence_id, created_at)) FROM produced GROUP BY 1 HAVING count(DISTINCT (outbox_id, sequence_id, created_at)) > 1}),
	'', 'a duplicate was answered as the first one');
is(ask(q{
		SELECT p.instruction FROM produced p LEFT JOIN payment_outbox_attempts a ON a.outbox_id = p.outbox_id AND a.state IN ('DISPATCHED', 'FAILED')
		WHERE a.outbox_id IS NULL OR a.instruction_id <> p.instruction OR a.sequence_id <> p.sequence_id}),
	'', 'every payment has ended');
is(ask(q{SELECT count(*) FROM payment_outbox_attempts WHERE state IN ('DISPATCHED', 'FAILED')}), $instructions, '... once');
# Nothing double: each lease delivered at most once, and each is one row of the ledger.
is(ask(q{
		SELECT r.token FROM rail r LEFT JOIN outbox.attempts a ON a.outbox_id = r.outbox_id AND a.lease_token = r.token GROUP BY 1 HAVING count(a.lease_token) <> 1}),
	'', 'every delivery is one row of the ledger');
is(ask(q{
		SELECT a.outbox_id, a.attempt_no FROM outbox.attempts a LEFT JOIN rail r ON a.outbox_id = r.outbox_id AND a.lease_token = r.token
		WHERE a.state <> 'ZOMBIE_REQUEUE' AND r.token IS NULL}),
	'', 'and every result had its delivery');
is(ask(q{
		SELECT r.token, r.state, r.answer, a.state FROM reported r LEFT JOIN outbox.attempts a ON a.lease_token = r.token
		WHERE r.answer <> 'P7002' AND (a.state::text IS DISTINCT FROM r.state OR a.attempt_no::text IS DISTINCT FROM r.answer)}),
	'', 'an accepted report is in the ledger as it was made');
cmp_ok(ask(q{SELECT count(*) FROM payment_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE' AND error_code = 'LEASE_EXPIRED'}), '>=', $least_lost, 'leases were lost');
is(ask(q{SELECT participant_id, max(sequence_id) - count(DISTINCT sequence_id) FROM payment_outbox_attempts GROUP BY 1 HAVING max(sequence_id) <> count(DISTINCT sequence_id)}),
	'', 'the numbers of a participant have no gaps');
consistent($node, 'consistent after the kills');

# ---------------------------------------------------------------- retries

# The promised time lies between those that the clock showed before and after.
ask(q{SELECT enqueue_payment_outbox('r', 'r', 'k', 'SEPA', '{"amount": 1, "currency": "EUR", "destination": "x"}')});
foreach my $case ([ 'NULL', 5 ], [ 0, 0 ], [ 1, 1 ], [ 3600, 3600 ], [ 86400, 86400 ])
{
	my ($asked, $promised) = @$case;
	my ($id, $token) = split /\|/, ask(q{SELECT outbox_id, lease_token FROM claim_outbox_batch(1, 'w', 3600)});

	is(ask(qq{
			CREATE TEMP TABLE t AS SELECT clock_timestamp() AS before;
			SELECT count(*) FROM complete_outbox_attempt('$id', '$token', 'w', 'RETRYABLE', p_retry_delay_seconds => $asked);
			SELECT next_attempt_at BETWEEN before + interval '$promised s' AND clock_timestamp() + interval '$promised s' FROM t, payment_outbox_pending}),
		"1\nt", "a delay of $asked: due in $promised s");
	ask(q{UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() + interval '1 hour'});
	is(ask(q{SELECT count(*) FROM claim_outbox_batch(1, 'w', 3600)}), '0', '... not before');
	ask(q{UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp()});
}

# ---------------------------------------------------------------- dump and restore

my $dump = $node->basedir . '/payment.dump';
my $fresh = new_node('fresh', extension => 0);

ask(q{
	SELECT outbox.alter_queue('payment', lease => '77 seconds', max_attempts => 7, repair_delay => '9 seconds');
	CREATE SCHEMA payments;
	ALTER EXTENSION outbox_payment SET SCHEMA payments;
	DROP FUNCTION report, moved_on;
	SELECT payments.bump_participant_outbox_seq('r');
	SELECT count(*) FROM payments.claim_outbox_batch(1, 'holder', 3600)});
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, '-d', 'postgres' ], 'pg_dump');
foreach my $case ([ $node, 'copy' ], [ $fresh, 'fresh' ])
{
	my ($to, $db) = @$case;

	$to->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE template0");
	$to->safe_psql('postgres', 'CREATE ROLE producer LOGIN; CREATE ROLE worker LOGIN') if $to == $fresh;
	$to->command_ok([ 'pg_restore', '--exit-on-error', '-d', $db, $dump ], "$db: pg_restore");
	is_deeply(checksums($to, $db), checksums($node, 'postgres'), "$db: equal rows in every table");
	is($to->safe_psql($db, q{SELECT lease, max_attempts, repair_delay, ordering, validator FROM outbox.queues WHERE queue = 'payment'}),
		'00:01:17|7|00:00:09|numbered|payments.payment_outbox_validator', "$db: the settings of the queue");
	is($to->safe_psql($db, q{SELECT count(*) FROM pg_indexes WHERE indexname = 'pending_payment_participant'}), '1', "$db: the index, once");
	is($to->safe_psql($db, q{SELECT c.attempt_no FROM payments.payment_outbox_pending p, payments.complete_outbox_attempt(outbox_id, lease_token, 'holder', 'DISPATCHED') c}),
		'6', "$db: an open lease completes");
	is($to->safe_psql($db, q{SELECT sequence_id FROM payments.enqueue_payment_outbox('new', 'r', 'k', 'SEPA', '{"amount": 1, "currency": "EUR", "destination": "x"}')}),
		'3', "$db: numbers go on, behind the one that was used up");
	is($to->safe_psql($db, q{
			SELECT count(*) FROM pg_roles r, pg_proc p WHERE r.rolname = 'symphony_ingest' AND p.proname = 'enqueue_payment_outbox' AND has_function_privilege(r.oid, p.oid, 'EXECUTE')}),
		'1', "$db: rights");
	is(sqlstate($to, q{SELECT payments.enqueue_payment_outbox('bad', 'r', 'k', 'SEPA', '{"amount": 0}')}, database => $db), '22023', "$db: the validator is asked");
	is($to->safe_psql($db, q{SELECT object, problem FROM outbox.check() WHERE severity = 'error'}), '', "$db: check() finds nothing");
}

# ---------------------------------------------------------------- without it

# Extension and roles go; nothing in the core refers to them, so a dump restores.
$fresh->safe_psql('fresh', q{
	DROP EXTENSION outbox_payment;
	SELECT outbox.alter_queue('payment', validator => '');
	DROP OWNED BY symphony_control, symphony_ingest, symphony_executor, symphony_readonly, symphony_auditor;
	DROP ROLE symphony_control, symphony_ingest, symphony_executor, symphony_readonly, symphony_auditor});
$fresh->command_ok([ 'pg_dump', '-Fc', '-f', $dump, '-d', 'fresh' ], 'pg_dump without it');
$fresh->safe_psql('postgres', 'CREATE DATABASE without TEMPLATE template0');
$fresh->command_ok([ 'pg_restore', '--exit-on-error', '-d', 'without', $dump ], 'pg_restore without it');
is_deeply(checksums($fresh, 'without'), checksums($fresh, 'fresh'), 'equal rows without it');
is($fresh->safe_psql('without', q{SELECT count(*) FROM outbox.claim('w', queues => '{payment}')}), '1', 'the core goes on with its payments');

$node->stop('fast');
$fresh->stop('fast');
done_testing();
