# What outbox.stats counts, and what outbox.prometheus() makes of it.
#
# Proves: each thing that is done moves exactly its own counters, by exactly as much as
# was done, once it is committed; what failed, was rolled back, to a savepoint too, or
# was prepared moves none. The text is what promtool accepts without complaint, whatever
# the queues' names; counters outlive the worker and only grow until reset_stats(), which
# is this database's own affair; gauges say what the tables, the worker and the server say.
#
# Each step compares all counters of all queues before and after it. The worker's own
# (notifications) have their time, and a section of their own.
use strict;
use warnings;

use IPC::Run 'run';
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', preload => 1, conf => 'outbox.notify_gather = 0');

wait_for_worker($node);

# ---------------------------------------------------------------- reading

# What is scraped: text, metric => type, series => value.
sub scrape
{
	my ($database) = @_;
	my $text = $node->safe_psql($database // 'postgres', 'SELECT outbox.prometheus()') . "\n";
	my (%types, %values);

	foreach (split /\n/, $text)
	{
		if (/^# TYPE (\S+) (\S+)$/)
		{
			$types{$1} = $2;
		}
		elsif (!/^# HELP /)
		{
			/^(\w+(?:\{.*\})?) (\S+)$/ or die "not a sample: $_";
			die "twice: $1" if exists $values{$1};
			$values{$1} = $2;
		}
	}
	return { text => $text, types => \%types, values => \%values };
}

sub value
{
	my ($series, $database) = @_;

	return scrape($database)->{values}{$series};
}

# Of all counters, histograms included, but those of notifications: those that differ.
sub growth
{
	my ($before, $after) = @_;
	my %growth;

	foreach my $series (sort keys %{ $after->{values} })
	{
		my ($metric) = $series =~ /^(\w+)/;

		$metric =~ s/_(bucket|sum|count)$// unless $after->{types}{$metric};
		next if $after->{types}{$metric} eq 'gauge' || $metric =~ /^outbox_(notify_wakeups_total|wakeup_delay_seconds)$/;
		my $grown = $after->{values}{$series} - ($before->{values}{$series} // 0);

		$growth{$series} = sprintf('%g', $grown) if abs($grown) > 1e-9;
	}
	return \%growth;
}

my @bounds = (5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000);

# Series => growth, of: queue => { counter => n, 'counter/label' => n, latencies => [ms] }.
sub series
{
	my (%expected) = @_;
	my %labels = (attempts => 'state', optimistic_outcomes => 'outcome');
	my %series;

	foreach my $queue (keys %expected)
	{
		my $latencies = $expected{$queue}{latencies} // [];
		my $latency = 'outbox_dispatch_latency_seconds';

		foreach my $key (grep { $_ ne 'latencies' } keys %{ $expected{$queue} })
		{
			my ($counter, $label) = split /\//, $key;
			my $labels = qq(queue="$queue") . (defined $label ? qq(,$labels{$counter}="$label") : '');

			$series{"outbox_${counter}_total{$labels}"} = $expected{$queue}{$key};
		}
		foreach my $ms (@$latencies)
		{
			$series{qq(${latency}_count{queue="$queue"})}++;
			$series{qq(${latency}_sum{queue="$queue"})} += $ms / 1000 if $ms > 0;
			$series{qq(${latency}_bucket{queue="$queue",le="$_"})}++ foreach (map { $_ / 1000 } grep { $ms <= $_ } @bounds), '+Inf';
		}
	}
	$series{$_} = sprintf('%g', $series{$_}) foreach keys %series;
	return \%series;
}

my $last = scrape();

sub has_grown
{
	my ($name, %expected) = @_;
	my $before = $last;

	$last = scrape();
	return is_deeply(growth($before, $last), series(%expected), $name);
}

# Runs a script in a session of its own; the counters grow by that much.
sub step
{
	my ($name, $sql, $expected, $errors) = @_;
	my ($ret, $out, $err) = $node->psql('postgres', $sql, on_error_stop => 0,
		extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);

	is(join(' ', $err =~ /ERROR:\s+(\S+)/g), $errors // '', "$name: errors") if $errors || $err;
	return has_grown($name, %$expected);
}

# promtool's exit status and complaints.
my $promtool = grep { -x "$_/promtool" } split /:/, $ENV{PATH};

sub complaints
{
	my ($text) = @_;
	my ($out, $err) = ('', '');

	run [ 'promtool', 'check', 'metrics' ], '<', \$text, '>', \$out, '2>', \$err;
	return join "\n", $? >> 8, grep { $_ } $out, $err;
}

sub is_clean
{
	my ($name, $text) = @_;

	SKIP:
	{
		skip 'no promtool (Debian: prometheus)', 1 unless $promtool;
		is(complaints($text), '0', "$name: promtool finds nothing");
	}
	return;
}

# ---------------------------------------------------------------- the text

is($node->safe_psql('postgres', q{SELECT outbox.prometheus() ~ '^[\x20-\x7e\n]*\n$'}), 't', 'ASCII, and ends with a line');
is_clean('at first', $last->{text});
SKIP:
{
	skip 'no promtool (Debian: prometheus)', 3 unless $promtool;
	# That it would: no help, a counter without _total, a label that is not escaped.
	isnt(complaints($last->{text} =~ s/^# HELP outbox_pending_depth.*\n//mr), '0', 'promtool wants help');
	isnt(complaints($last->{text} =~ s/outbox_enqueued_total/outbox_enqueued/gr), '0', 'promtool wants names by the conventions');
	isnt(complaints($last->{text} =~ s/queue="default"/queue="de"fault"/gr), '0', 'promtool wants labels to be escaped');
}
# The table of docs/metrics.md: metric => type.
my ($table) = slurp_file('docs/metrics.md') =~ /^## The database\n(.*?)^## /ms or die 'no table of metrics';

$table =~ s/^Whether seals.+//ms; # that is not in prometheus()
is_deeply($last->{types}, { $table =~ /^\| `(\w+)` \| (\w+)/mg }, 'metrics and their types are those that docs/metrics.md lists');
is(join(' ', map { $last->{text} =~ /^# HELP $_ \S.*\n# TYPE $_ /m ? () : $_ } keys %{ $last->{types} }), '', 'each has help');
is_deeply(growth({ values => {} }, $last), {}, 'at first all counters are 0');

# What docs/metrics.md does for the textfile collector.
my ($adds_label) = slurp_file('docs/metrics.md') =~ /sed -E -i '(.+?)' bank/ or die 'nothing adds the label';
my $file = PostgreSQL::Test::Utils::tempdir() . '/bank.prom';

PostgreSQL::Test::Utils::append_to_file($file, $last->{text});
PostgreSQL::Test::Utils::run_log([ 'sed', '-E', '-i', $adds_label, $file ]);
is(join("\n", grep { !/^#/ && !/^\w+\{database="bank"[,}]/ } split /\n/, slurp_file($file)), '', 'each sample gets the label database');
is_clean('with the label', slurp_file($file));

# ---------------------------------------------------------------- producers

# Leases last, and repairs and retries are due, when a step says so.
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue(q, lease => '1 day', repair_delay => '0', backoff_base => '0') FROM unnest(ARRAY['w', 'v', 'o']) q;
	SELECT outbox.create_queue('paused', paused => true);
});
has_grown('making queues counts nothing');

step('one message', q{SELECT outbox.enqueue('e', '1', 'w')}, { w => { enqueued => 1 } });
step('messages of two queues, one by one and by batch', q{
	BEGIN;
	SELECT outbox.enqueue('e', '1', 'w') FROM generate_series(1, 3);
	SELECT outbox.enqueue_batch('v', '[{"event_type": "e", "payload": 1}, {"event_type": "e", "payload": 2}]');
	SELECT outbox.enqueue('e', '1', 'v');
	COMMIT}, { w => { enqueued => 3 }, v => { enqueued => 3 } });
step('a scheduled one', q{SELECT outbox.enqueue('later', '1', 'w', deliver_at => clock_timestamp() + interval '1 year')}, { w => { enqueued => 1 } });
step('a key for the first time', q{SELECT outbox.enqueue('e', '1', 'w', idempotency_key => 'k')}, { w => { enqueued => 1 } });
step('duplicates', q{SELECT outbox.enqueue('e', '1', 'w', idempotency_key => 'k') FROM generate_series(1, 2)}, { w => { duplicates => 2 } });
step('a batch of one that is new, repeated in it, and one that is not',
	q{SELECT outbox.enqueue_batch('w', (SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', 1, 'idempotency_key', k)) FROM unnest(ARRAY['k', 'n', 'n']) k))},
	{ w => { enqueued => 1, duplicates => 2 } });
step('an empty batch', q{SELECT outbox.enqueue_batch('w', '[]')}, {});
step('into a paused queue', q{SELECT outbox.enqueue('e', '1', 'paused')}, { paused => { enqueued => 1 } });

# ---------------------------------------------------------------- workers

# w holds 6 due messages and a scheduled one, v 3.
my $report = sub {
	my ($queue, $n, $states, $rest) = @_;

	return qq{
		SELECT count(*) FROM (SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens FROM outbox.claim('w', $n, queues => ARRAY['$queue'])) c,
			LATERAL outbox.complete_batch('w', ids, tokens, $states $rest)};
};

step('a claim of more than there is, of two queues', q{
		CREATE TABLE held AS SELECT * FROM outbox.claim('w', 8, queues => ARRAY['v', 'w']);
		SELECT count(*) FROM outbox.claim('w', 1, queues => ARRAY['v'])},
	{ v => { claim_batches => 1, claimed => 3 }, w => { claim_batches => 1, claimed => 5 } });
step('a claim that a limit stops', q{
		SELECT outbox.alter_queue('w', max_in_flight => 5);
		SELECT count(*) FROM outbox.claim('w', 1, queues => ARRAY['w']);
		SELECT outbox.alter_queue('w', max_in_flight => NULL)},
	{ w => { limited => 1 } });
step('renewed, and given back', q{
		SELECT error FROM (SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens FROM held) h,
			LATERAL outbox.renew('w', ids, tokens) r;
		SELECT error FROM (SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens FROM held) h,
			LATERAL outbox.release('w', ids, tokens) r},
	{ v => { released => 3 }, w => { released => 5 } });
step('each state, with latencies at and beside the bounds', $report->('w', 6, q{'{DISPATCHED, RETRYABLE, FAILED, DISPATCHED, DISPATCHED, RETRYABLE}'},
		q{, latencies_ms => '{0, 5, 6, 30000, 30001, NULL}', retry_delays => '{NULL, 1 year, NULL, NULL, NULL, 1 year}'}),
	{ w => { claim_batches => 1, claimed => 6, 'attempts/DISPATCHED' => 3, 'attempts/RETRYABLE' => 2, 'attempts/FAILED' => 1,
			latencies => [ 0, 5, 6, 30000, 30001 ] } });
step('complete()', q{
		SELECT recorded FROM outbox.claim('w', 1, queues => ARRAY['v']) c, LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', 'DISPATCHED', latency_ms => 77) r},
	{ v => { claim_batches => 1, claimed => 1, 'attempts/DISPATCHED' => 1, latencies => [77] } });
step('retryable at the ceiling is a failure', q{
		SELECT outbox.enqueue('ceiling', '1', 'w', max_attempts => 1);
		SELECT recorded FROM outbox.claim('w', 1, queues => ARRAY['w']) c, LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', 'RETRYABLE') r},
	{ w => { enqueued => 1, claim_batches => 1, claimed => 1, 'attempts/FAILED' => 1 } });
step('a lease that is gone, in a batch and alone', q{
		SELECT error FROM (SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens, array_agg('DISPATCHED'::text) AS states FROM held) h,
			LATERAL outbox.complete_batch('w', ids, tokens, states, latencies_ms => (SELECT array_agg(1) FROM held)) r;
		SELECT outbox.complete(outbox_id, lease_token, 'w', 'DISPATCHED', latency_ms => 1) FROM held LIMIT 1},
	{}, 'P7002');
step('a batch with one good item', q{
		SELECT outbox.enqueue('good', '1', 'w');
		SELECT r.error FROM outbox.claim('w', 1, queues => ARRAY['w']) c,
			LATERAL outbox.complete_batch('w', ARRAY[c.outbox_id, gen_random_uuid(), c.outbox_id], ARRAY[c.lease_token, c.lease_token, c.lease_token],
				'{DISPATCHED, DISPATCHED, DISPATCHED}', latencies_ms => '{100, 100, 100}') r},
	{ w => { enqueued => 1, claim_batches => 1, claimed => 1, 'attempts/DISPATCHED' => 1, latencies => [100] } });
step('due again at once, and tried once more', q{
		SELECT outbox.enqueue('again', '1', 'w');
		SELECT recorded FROM outbox.claim('w', 1, queues => ARRAY['w']) c, LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', 'RETRYABLE', retry_delay => '0') r;
		SELECT recorded FROM outbox.claim('w', 1, queues => ARRAY['w']) c, LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', 'DISPATCHED') r},
	{ w => { enqueued => 1, claim_batches => 2, claimed => 2, 'attempts/RETRYABLE' => 1, 'attempts/DISPATCHED' => 1 } });

# ---------------------------------------------------------------- lost leases

# The worker is not told of times that are set by hand.
my $expire = q{UPDATE outbox.pending SET lease_expires_at = clock_timestamp() - interval '1 hour' WHERE claimed_by = 'lost'};

step('a lost lease, found by claim', qq{
		SELECT count(*) FROM outbox.claim('lost', 1, queues => ARRAY['v']); $expire;
		SELECT count(*) FROM outbox.claim('w', 1, queues => ARRAY['v']) WHERE attempt_count = 1;
		SELECT outbox.cancel(outbox_id, 'done', true) FROM outbox.pending WHERE queue = 'v' AND attempt_count = 1},
	{ v => { claim_batches => 2, claimed => 2, 'attempts/ZOMBIE_REQUEUE' => 1, leases_lost => 1, cancelled => 1, 'attempts/FAILED' => 1 } });
step('... by repair_expired_leases()', qq{
		SELECT count(*) FROM outbox.claim('lost', 1, queues => ARRAY['v']); $expire;
		SELECT state FROM outbox.repair_expired_leases(1)},
	{ v => { claim_batches => 1, claimed => 1, 'attempts/ZOMBIE_REQUEUE' => 1, leases_lost => 1, lease_repairs => 1 } });
step('... by maintain()', qq{
		SELECT count(*) FROM outbox.claim('lost', 1, queues => ARRAY['v']); $expire;
		SELECT count(*) >= 0 FROM outbox.maintain()},
	{ v => { claim_batches => 1, claimed => 1, 'attempts/ZOMBIE_REQUEUE' => 1, leases_lost => 1, lease_repairs => 1 } });
step('... by cancel()', qq{
		SELECT count(*) FROM outbox.claim('lost', 1, queues => ARRAY['v']); $expire;
		SELECT outbox.cancel(outbox_id, 'done') FROM outbox.pending WHERE claimed_by = 'lost'},
	{ v => { claim_batches => 1, claimed => 1, 'attempts/FAILED' => 1, leases_lost => 1, cancelled => 1 } });
step('... at the ceiling, by claim and by repair', qq{
		SELECT outbox.enqueue('last', '1', 'v', max_attempts => 1) FROM generate_series(1, 2);
		SELECT count(*) FROM outbox.claim('lost', 1, queues => ARRAY['v']); $expire;
		SELECT state FROM outbox.repair_expired_leases(1);
		SELECT count(*) FROM outbox.claim('lost', 1, queues => ARRAY['v']); $expire;
		SELECT count(*) FROM outbox.claim('w', 1, queues => ARRAY['v'])},
	{ v => { enqueued => 2, claim_batches => 2, claimed => 2, 'attempts/FAILED' => 2, leases_lost => 2, lease_repairs => 1 } });
step('given back once more than is allowed, and again in vain', q{
		SELECT outbox.create_queue('limited', max_releases => 0);
		SELECT outbox.enqueue('e', '1', 'limited', max_attempts => 1);
		CREATE TABLE tried AS SELECT * FROM outbox.claim('w', queues => ARRAY['limited']);
		SELECT error FROM tried, LATERAL outbox.release('w', ARRAY[outbox_id], ARRAY[lease_token]) r;
		SELECT error FROM tried, LATERAL outbox.release('w', ARRAY[outbox_id], ARRAY[lease_token]) r},
	{ limited => { enqueued => 1, claim_batches => 1, claimed => 1, released => 1, 'attempts/FAILED' => 1 } });
step('a queue is dropped', q{SELECT outbox.drop_queue('limited')}, {});
step('a claim that finds nothing', q{SELECT count(*) FROM outbox.claim('w', queues => ARRAY['v', 'paused'])}, {});

# ---------------------------------------------------------------- operators

step('cancelled while it was due', q{
		SELECT outbox.enqueue('unwanted', '1', 'v');
		SELECT outbox.cancel(outbox_id, 'no') FROM outbox.pending WHERE queue = 'v'},
	{ v => { enqueued => 1, cancelled => 1, 'attempts/FAILED' => 1 } });
step('a replay', q{SELECT outbox.replay(outbox_id) FROM outbox.dead_letters WHERE event_type = 'unwanted'}, { v => { enqueued => 1 } });
step('a ceiling that was lowered ends a message', q{
		SELECT recorded FROM outbox.claim('w', 1, queues => ARRAY['v']) c, LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', 'RETRYABLE', retry_delay => '0') r;
		SELECT outbox.alter_queue('v', max_attempts => 1);
		SELECT count(*) FROM outbox.claim('w', queues => ARRAY['v']);
		SELECT outbox.alter_queue('v', max_attempts => 20)},
	{ v => { claim_batches => 1, claimed => 1, 'attempts/RETRYABLE' => 1, 'attempts/FAILED' => 1 } });

# ---------------------------------------------------------------- optimistic sends

sub send_and
{
	my ($then, %options) = @_;

	return qq{
		CREATE TABLE sent AS SELECT * FROM outbox.enqueue_and_claim('lost', 'sent', '1', 'o'); $then;
		DROP TABLE sent};
}

sub reported
{
	my ($state, $more) = @_;

	return "SELECT recorded FROM sent, LATERAL outbox.complete(outbox_id, lease_token, 'lost', '$state' " . ($more // '') . ") r";
}

my $again = q{SELECT recorded FROM outbox.claim('w', 1, queues => ARRAY['o']) c, LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', 'DISPATCHED') r};
my %again = (claim_batches => 1, claimed => 1, 'attempts/DISPATCHED' => 1);
my %sent = (enqueued => 1, optimistic_sends => 1);

step('sent and delivered', send_and(reported('DISPATCHED', ', latency_ms => 12')),
	{ o => { %sent, 'attempts/DISPATCHED' => 1, 'optimistic_outcomes/delivered' => 1, latencies => [12] } });
step('sent, to be retried, and then delivered by another', send_and(reported('RETRYABLE', q{, retry_delay => '0'}) . "; $again"),
	{ o => { %sent, %again, 'attempts/RETRYABLE' => 1, 'optimistic_outcomes/retried' => 1 } });
step('sent and failed', send_and(reported('FAILED')), { o => { %sent, 'attempts/FAILED' => 1, 'optimistic_outcomes/failed' => 1 } });
step('sent and cancelled by force', send_and(q{SELECT outbox.cancel(outbox_id, 'no', true) FROM sent}),
	{ o => { %sent, cancelled => 1, 'attempts/FAILED' => 1, 'optimistic_outcomes/failed' => 1 } });
step('sent, the lease lost and repaired, and then delivered by another', send_and("$expire; SELECT state FROM outbox.repair_expired_leases(1); $again"),
	{ o => { %sent, %again, 'attempts/ZOMBIE_REQUEUE' => 1, leases_lost => 1, lease_repairs => 1, 'optimistic_outcomes/lost' => 1 } });
step('sent, the lease lost and found by claim', send_and("$expire; $again"),
	{ o => { %sent, %again, 'attempts/ZOMBIE_REQUEUE' => 1, leases_lost => 1, 'optimistic_outcomes/lost' => 1 } });
step('sent, the lease lost, and cancelled', send_and("$expire; SELECT outbox.cancel(outbox_id, 'no') FROM sent"),
	{ o => { %sent, cancelled => 1, 'attempts/FAILED' => 1, leases_lost => 1, 'optimistic_outcomes/lost' => 1 } });
step('sent, renewed and delivered', send_and(q{SELECT error FROM sent, LATERAL outbox.renew('lost', ARRAY[outbox_id], ARRAY[lease_token], '2 days') r; } . reported('DISPATCHED')),
	{ o => { %sent, 'attempts/DISPATCHED' => 1, 'optimistic_outcomes/delivered' => 1 } });
step('sent and given back: without an outcome, whoever delivers it then',
	send_and("SELECT error FROM sent, LATERAL outbox.release('lost', ARRAY[outbox_id], ARRAY[lease_token]) r; $again"), { o => { %sent, %again, released => 1 } });
step('a duplicate, and one that cannot be leased', q{
		SELECT recorded FROM outbox.enqueue_and_claim('w', 'e', '1', 'o', idempotency_key => 'k') c, LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', 'DISPATCHED') r;
		SELECT lease_token IS NULL FROM outbox.enqueue_and_claim('w', 'e', '1', 'o', idempotency_key => 'k');
		SELECT lease_token IS NULL FROM outbox.enqueue_and_claim('w', 'e', '1', 'paused')},
	{ o => { %sent, 'attempts/DISPATCHED' => 1, 'optimistic_outcomes/delivered' => 1, duplicates => 1 }, paused => { enqueued => 1 } });

# By the worker, when the lease runs out.
$node->safe_psql('postgres', q{SELECT outbox.enqueue_and_claim('gone', 'gone', '1', 'o', lease => '1 ms')});
$node->poll_query_until('postgres', qq{
	SELECT optimistic_lost > $last->{values}{'outbox_optimistic_outcomes_total{queue="o",outcome="lost"}'} FROM outbox.stats WHERE queue = 'o'});
has_grown('sent, the lease lost and repaired by the worker',
	o => { %sent, 'attempts/ZOMBIE_REQUEUE' => 1, leases_lost => 1, lease_repairs => 1, 'optimistic_outcomes/lost' => 1 });
step('... and delivered', $again, { o => \%again });

# ---------------------------------------------------------------- what did not happen

# Everything there is to count; some of it left over for the steps that follow.
$node->safe_psql('postgres', q{
	SELECT outbox.enqueue('x' || g, '1', 'o') FROM generate_series(1, 8) g;
	SELECT count(*) FROM outbox.claim('lost', 2, queues => ARRAY['o'])});
$last = scrape();
my $everything = qq{
	SELECT outbox.enqueue('gone', '1', 'o', idempotency_key => 'gone') FROM generate_series(1, 2);
	SELECT outbox.enqueue_and_claim('w', 'gone', '1', 'o');
	$expire AND queue = 'o';
	SELECT count(*) FROM outbox.repair_expired_leases(1);
	SELECT recorded FROM outbox.claim('w', 3, queues => ARRAY['o']) c, LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', 'FAILED', latency_ms => 1) r;
	SELECT outbox.cancel(outbox_id, 'no', true) FROM outbox.pending WHERE queue = 'o';
	SELECT outbox.replay(outbox_id) FROM outbox.dead_letters WHERE queue = 'o' LIMIT 1
};

step('rolled back', "BEGIN; $everything; ROLLBACK", {});
step('rolled back by an error', "BEGIN; $everything; SELECT 1 / 0; COMMIT", {}, '22012');
step('rolled back to a savepoint', "BEGIN; SAVEPOINT s; $everything; ROLLBACK TO s; COMMIT", {});
step('... released before', "BEGIN; SAVEPOINT o; SAVEPOINT i; $everything; RELEASE i; ROLLBACK TO o; COMMIT", {});
step('... beside what stays', "BEGIN; SELECT outbox.enqueue('e', '1', 'o'); SAVEPOINT s; $everything; ROLLBACK TO s; SELECT outbox.enqueue('e', '1', 'w'); COMMIT",
	{ o => { enqueued => 1 }, w => { enqueued => 1 } });
step('a savepoint that is released counts', "BEGIN; SAVEPOINT s; SELECT outbox.enqueue('e', '1', 'o'); SAVEPOINT i; SELECT outbox.enqueue('e', '1', 'o'); RELEASE i; RELEASE s; COMMIT",
	{ o => { enqueued => 2 } });
my $deliver = q{SELECT recorded FROM outbox.claim('w', 1, queues => ARRAY['o']) c, LATERAL outbox.complete(c.outbox_id, c.lease_token, 'w', 'DISPATCHED', latency_ms => 40) r};
step('... with what was counted before it', "BEGIN; $deliver; SAVEPOINT s; $deliver; SAVEPOINT i; $deliver; RELEASE i; RELEASE s; COMMIT",
	{ o => { claim_batches => 3, claimed => 3, 'attempts/DISPATCHED' => 3, latencies => [ 40, 40, 40 ] } });
step('a block with an exception handler', q{
	DO $$ BEGIN PERFORM outbox.enqueue('e', '1', 'o'); RAISE 'no'; EXCEPTION WHEN OTHERS THEN PERFORM outbox.enqueue('e', '1', 'o'); END $$}, { o => { enqueued => 1 } });
step('an error in the same statement', q{SELECT outbox.enqueue('e', '1', 'o'), 1 / (g - 3) FROM generate_series(1, 5) g}, {}, '22012');
step('a deferred constraint that fails at commit', qq{
	CREATE TABLE parent (id int PRIMARY KEY);
	CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
	BEGIN; INSERT INTO child VALUES (1); $everything; COMMIT}, {}, '23503');
step('prepared, and committed or rolled back: not counted', qq{
	BEGIN; SELECT outbox.enqueue('prepared', '1', 'o'); SELECT count(*) FROM outbox.claim('lost', 1, queues => ARRAY['o']); PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p';
	BEGIN; $everything; PREPARE TRANSACTION 'p'; ROLLBACK PREPARED 'p';
	BEGIN; SELECT 1; COMMIT}, {});
step('refused', q{
	SELECT outbox.enqueue('', '1', 'o'); SELECT outbox.enqueue_batch('o', '[{"event_type": "e", "payload": 1}, {"event_type": "e"}]');
	SELECT outbox.claim('w', 0, queues => ARRAY['o']); SELECT outbox.cancel(gen_random_uuid(), 'no')}, {}, '22023 22023 22023 P7005');

# ---------------------------------------------------------------- gauges

# The views say it in their own way, and tests of theirs that they are right.
$node->safe_psql('postgres', q{
	SELECT outbox.cancel(outbox_id, 'done', true) FROM outbox.pending;
	SELECT outbox.create_queue('g');
	SELECT outbox.enqueue(m, '1', 'g') FROM unnest(ARRAY['due', 'due', 'due', 'leased', 'leased', 'expired', 'dead']) m;
	SELECT outbox.enqueue('scheduled', '1', 'g', deliver_at => clock_timestamp() + interval '1 day') FROM generate_series(1, 4);
	SELECT outbox.cancel(outbox_id, 'dead') FROM outbox.messages JOIN outbox.pending USING (outbox_id) WHERE event_type = 'dead';
	UPDATE outbox.pending p SET claimed_by = 'w', claimed_at = clock_timestamp(), lease_token = gen_random_uuid(), lease_expires_at = clock_timestamp() + CASE event_type WHEN 'leased' THEN interval '1 day' ELSE '-1 s' END
	FROM outbox.messages m WHERE m.outbox_id = p.outbox_id AND event_type IN ('leased', 'expired');
	UPDATE outbox.pending SET created_at = clock_timestamp() - interval '1000 s', next_attempt_at = clock_timestamp() - interval '500 s' WHERE queue = 'g' AND next_attempt_at < clock_timestamp()});
my $now = scrape();
my %gauges = map { /^outbox_(\w+)\{queue="g"\}$/ && $now->{types}{"outbox_$1"} ? ($1 => $now->{values}{$_}) : () }
	grep { /^(\w+)/ && ($now->{types}{$1} // '') eq 'gauge' } keys %{ $now->{values} };
my ($age, $due_age) = (delete $gauges{oldest_pending_age_seconds}, delete $gauges{oldest_claimable_age_seconds});

is_deeply(\%gauges, { pending_depth => 10, pending_due => 3, pending_leased => 2, pending_expired => 1, pending_scheduled => 4, pending_waiting => 0, dead_letters => 1, blocked_keys => 0, counts_exact => 1, queue_paused => 0,
	queue_lease_seconds => 30, queue_backoff_cap_seconds => 900 },
	'gauges of a queue');
cmp_ok($age, '>=', 1000, 'age of the oldest');
cmp_ok($due_age, '>=', 500, 'age of the oldest that is due');
cmp_ok($due_age, '<', $age, '... which is another');
is($now->{values}{'outbox_queue_paused{queue="paused"}'}, 1, 'a paused queue');
is($now->{values}{'outbox_oldest_pending_age_seconds{queue="w"}'}, 0, 'no age where nothing is pending');
is_clean('with all of it', $now->{text});
$node->safe_psql('postgres', q{
	UPDATE outbox.pending SET (claimed_by, claimed_at, lease_token, lease_expires_at) = (NULL, NULL, NULL, NULL) WHERE lease_expires_at < clock_timestamp()});

# Partitions for times to come, and with one less.
is($node->safe_psql('postgres', q{
	BEGIN;
	SELECT substring(outbox.prometheus() FROM '\noutbox_partitions_ahead (\d+)');
	SELECT format('ALTER TABLE outbox.messages DETACH PARTITION outbox.%I', max(relname)) FROM pg_class
	WHERE relispartition AND relkind = 'r' AND relname ~ '^messages_p' \gexec
	SELECT substring(outbox.prometheus() FROM '\noutbox_partitions_ahead (\d+)');
	ROLLBACK}), "2\n1", 'partitions ahead');

# What is in the server's notification queue, because a listener does not read on.
{
	my $slow = session($node);

	$slow->query_safe('LISTEN something; BEGIN; SELECT 1');
	$node->safe_psql('postgres', q{SELECT pg_notify('something', repeat('x', 7000) || g) FROM generate_series(1, 20) g});
	is($node->safe_psql('postgres', q{
			SELECT usage > 0, substring(outbox.prometheus() FROM '\noutbox_notification_queue_usage_ratio (\S+)\n')::numeric = usage::numeric
			FROM pg_notification_queue_usage() usage}), 't|t', 'the share of the notification queue that is in use');
	$slow->query_safe('COMMIT');
	$slow->quit;
}

# ---------------------------------------------------------------- names

my @names = ("it's", '"', '\\', '\\n', "a\nb", "\n", "a\r\tb", ' ', ' x ', 'a="b",c="d"', '{}', '# TYPE x', '} 1', '\\"', 'ключ 鍵', 'q' x 63, '%', 'default', 'DEFAULT');

foreach my $name (grep { $_ ne 'default' } @names)
{
	$node->safe_psql('postgres', "SELECT outbox.create_queue('" . $name =~ s/'/''/gr . "'); SELECT outbox.enqueue('e', '1', '" . $name =~ s/'/''/gr . "')");
}
$now = scrape();
is_clean('any name', $now->{text});
{
	my %read = ('\\\\' => '\\', '\\"' => '"', '\\n' => "\n");
	my @found;

	while ($now->{text} =~ /^outbox_enqueued_total\{queue="((?:[^"\\\n]|\\[\\"n])*)"\} (\d+)$/mg)
	{
		my ($name, $n) = ($1, $2);

		$name =~ s/(\\.)/$read{$1}/g;
		push @found, $name if $n > 0 || $name eq 'default';
	}
	is_deeply([ sort grep { !/^([wvog]|paused)$/ } @found ], [ sort @names ], 'any name is read back as it is');
}
$node->safe_psql('postgres', q{
	SELECT outbox.cancel(outbox_id, 'done') FROM outbox.pending WHERE queue NOT IN ('default', 'w', 'v', 'o', 'g', 'paused');
	SELECT outbox.drop_queue(queue) FROM outbox.queues WHERE queue NOT IN ('default', 'w', 'v', 'o', 'g', 'paused')});
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.stats}), '6', 'dropped queues are not shown');
is(join(' ', grep { !/^\{queue="(default|w|v|o|g|paused)"/ } map { /(\{.*)/ } keys %{ scrape()->{values} }), '', '... nor scraped');
$node->safe_psql('postgres', q{SELECT outbox.create_queue('%'); SELECT outbox.enqueue('e', '1', '%')});
is(value('outbox_enqueued_total{queue="%"}'), 1, 'a queue of the same name as one before it begins at 0');
$node->safe_psql('postgres', q{SELECT outbox.cancel(outbox_id, 'done') FROM outbox.pending WHERE queue = '%'; SELECT outbox.drop_queue('%')});
$node->safe_psql('postgres', q{
	SELECT outbox.create_queue('%');
	BEGIN; SELECT outbox.drop_queue('%'); SELECT outbox.create_queue('%'); SELECT outbox.enqueue('e', '1', '%'); COMMIT});
cmp_ok(value('outbox_enqueued_total{queue="%"}'), '>', 0, '... also when that is done in one transaction');
$node->safe_psql('postgres', q{SELECT outbox.cancel(outbox_id, 'done') FROM outbox.pending WHERE queue = '%'; SELECT outbox.drop_queue('%')});

# ---------------------------------------------------------------- what the view says is what is scraped

is($node->safe_psql('postgres', q{
	WITH text AS MATERIALIZED (SELECT outbox.prometheus() AS text), shown AS (
		SELECT s.queue, e.key, e.value FROM outbox.stats s, LATERAL jsonb_each_text(to_jsonb(s)) e WHERE e.key !~ '_(ms|us|histogram|reset)$|^queue$'
	), wanted AS (
		SELECT format(E'\noutbox_%s{queue="%s"%s} %s\n',
			CASE WHEN key IN ('dispatched', 'failed', 'retryable', 'zombie_requeue') THEN 'attempts_total' WHEN key ~ 'optimistic_' THEN 'optimistic_outcomes_total'
				WHEN key = 'optimistic' THEN 'optimistic_sends_total' WHEN key = 'repaired' THEN 'lease_repairs_total' WHEN key = 'notified' THEN 'notify_wakeups_total'
				ELSE key || '_total' END,
			queue,
			CASE WHEN key IN ('dispatched', 'failed', 'retryable', 'zombie_requeue') THEN ',state="' || upper(key) || '"'
				WHEN key ~ 'optimistic_' THEN ',outcome="' || substr(key, 12) || '"' ELSE '' END,
			value) AS line
		FROM shown)
	SELECT string_agg(line, '') FROM wanted, text WHERE strpos(text, line) = 0}), '', 'outbox.stats shows the same counts');
is($node->safe_psql('postgres', q{
	SELECT count(*) FILTER (WHERE enqueued - dispatched - failed <> (SELECT count(*) FROM outbox.pending p WHERE p.queue = s.queue)),
		count(*) FILTER (WHERE (SELECT sum(n) FROM unnest(latency_histogram) n) <> (SELECT count(latency_ms) FROM outbox.attempts JOIN outbox.messages m USING (outbox_id) WHERE m.queue = s.queue)),
		count(*) FILTER (WHERE latency_sum_ms <> (SELECT coalesce(sum(latency_ms), 0) FROM outbox.attempts JOIN outbox.messages m USING (outbox_id) WHERE m.queue = s.queue))
	FROM outbox.stats s WHERE queue <> 'o'}), '0|0|0', 'and the tables too, where no transaction was prepared');

# ---------------------------------------------------------------- notifications

my $listener = listener($node);

$node->safe_psql('postgres', q{SELECT outbox.create_queue('end'), outbox.create_queue('n')});
heard($listener);

# How many notifications the worker has counted for the queue, once that is as many.
sub notified
{
	my ($n) = @_;

	$node->poll_query_until('postgres', "SELECT notified >= $n FROM outbox.stats WHERE queue = 'n'");
	return $node->safe_psql('postgres', q{SELECT notified FROM outbox.stats WHERE queue = 'n'});
}

is(value('outbox_notify_wakeups_total{queue="n"}'), 0, 'no notification');
for my $i (1 .. 5)
{
	$node->safe_psql('postgres', q{SELECT outbox.enqueue('e', '1', 'n') FROM generate_series(1, 10)});
	is(heard($listener), 'n', "notification $i");
	is(notified($i), $i, '... is counted');
}
$node->safe_psql('postgres', q{
	BEGIN; SELECT outbox.enqueue('e', '1', 'n'); ROLLBACK;
	SELECT outbox.enqueue('later', '1', 'n', deliver_at => clock_timestamp() + interval '1 day');
	SELECT count(*) FROM outbox.claim('w', 100, '1 day', ARRAY['n'])});
is(heard($listener), '', 'nobody is told');
$now = scrape()->{values};
is($now->{'outbox_notify_wakeups_total{queue="n"}'}, 5, '... and nothing counted');
is($now->{'outbox_wakeup_delay_seconds_count{queue="n"}'}, 5, 'as many delays');
is($now->{'outbox_wakeup_delay_seconds_bucket{queue="n",le="+Inf"}'}, 5, '... in the last bucket all of them');
my @buckets = map { $now->{qq(outbox_wakeup_delay_seconds_bucket{queue="n",le="$_"})} }
	'5e-05', '0.0001', '0.00025', '0.0005', '0.001', '0.0025', '0.005', '0.01', '0.025', '0.1', '1', '+Inf';
is(join(' ', @buckets), join(' ', sort { $a <=> $b } @buckets), '... and the others are cumulative');
cmp_ok($now->{'outbox_wakeup_delay_seconds_sum{queue="n"}'}, '>', 0, '... of some length');
is($node->safe_psql('postgres', q{
	SELECT format('%s|%s', trim_scale(wakeup_delay_sum_us / 1000000.0), (SELECT string_agg(sum::text, ' ' ORDER BY n) FROM (
		SELECT n, sum(v) OVER (ORDER BY n) FROM unnest(wakeup_delay_histogram) WITH ORDINALITY h(v, n)) h)) FROM outbox.stats WHERE queue = 'n'}),
	"$now->{'outbox_wakeup_delay_seconds_sum{queue=\"n\"}'}|@buckets", '... as outbox.stats says');
$listener->{session}->quit;

# ---------------------------------------------------------------- the worker comes and goes

is(value('outbox_worker_up'), 1, 'a worker');
$last = scrape();
{
	my $pid = worker_says($node, 'pid');

	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	isnt(wait_for_worker($node, other => $pid), $pid, 'another worker');
	my $after = scrape();

	is_deeply(growth($last, $after), {}, 'counters outlive the worker');
	is($after->{values}{$_}, $last->{values}{$_}, "... $_ too")
		foreach 'outbox_notify_wakeups_total{queue="n"}', 'outbox_wakeup_delay_seconds_sum{queue="n"}';
	step('and go on', q{SELECT outbox.enqueue('e', '1', 'w')}, { w => { enqueued => 1 } });
}
configure($node, 'outbox.worker' => 'off');
wait_for_no_worker($node, 'postgres');
is(value('outbox_worker_up'), 0, 'no worker');
step('without a worker it is counted all the same', q{SELECT outbox.enqueue('e', '1', 'n')}, { n => { enqueued => 1 } });
is(value('outbox_notify_wakeups_total{queue="n"}'), 5, '... but that the worker notified');
configure($node, 'outbox.worker' => undef);
wait_for_worker($node);
is(value('outbox_worker_up'), 1, 'a worker again');
is(value('outbox_worker_unrepaired_leases'), 0, 'it could repair all');
is(value('outbox_worker_failures'), 0, '... and is well');

# ---------------------------------------------------------------- two databases, reset

$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', q{CREATE EXTENSION outbox; SELECT outbox.create_queue('w'); SELECT outbox.enqueue('e', '1', 'w')});
wait_for_worker($node, database => 'other');
is(value('outbox_enqueued_total{queue="w"}', 'other'), 1, 'another database counts for itself');
is(value('outbox_worker_up', 'other'), 1, '... and shows its own worker');
has_grown('... which is nothing to this one');

my $reset = $node->safe_psql('postgres', q{SELECT stats_reset FROM outbox.stats WHERE queue = 'w'});

$node->safe_psql('postgres', 'SELECT outbox.reset_stats()');
$now = scrape();
is_deeply(growth({ values => {} }, $now), {}, 'after reset_stats() all counters are 0');
is(join(' ', grep { $now->{values}{$_} } grep { /wakeups|wakeup_delay/ } keys %{ $now->{values} }), '', '... those of notifications too');
is($node->safe_psql('postgres', "SELECT bool_and(stats_reset > '$reset'), count(DISTINCT stats_reset) FROM outbox.stats WHERE queue IN ('w', 'v', 'n')"), 't|1', '... since then');
is($now->{values}{'outbox_pending_depth{queue="g"}'}, 10, '... but not the gauges');
is(value('outbox_enqueued_total{queue="w"}', 'other'), 1, '... nor another database');
$last = $now;
step('counted anew', q{SELECT outbox.enqueue('e', '1', 'w')}, { w => { enqueued => 1 } });
$node->safe_psql('postgres', 'BEGIN; SELECT outbox.reset_stats(); ROLLBACK');
is(value('outbox_enqueued_total{queue="w"}'), 0, 'a rollback does not bring them back');
is_clean('in the end', scrape()->{text});

# ---------------------------------------------------------------- a lease that the worker cannot repair

$last = scrape();
$node->safe_psql('postgres', q{
	ALTER TABLE outbox.attempts ADD CONSTRAINT refused CHECK (worker_id <> 'refused') NOT VALID;
	SELECT outbox.enqueue_and_claim('refused', 'e', '1', 'w', lease => '1 ms')});
configure($node, 'outbox.poll_interval' => '100ms');
$node->poll_query_until('postgres', q{SELECT unrepaired = 1 FROM outbox.workers WHERE kind = 'worker' AND database = 'postgres'});
is(value('outbox_worker_unrepaired_leases'), 1, 'a lease that cannot be repaired');
$node->safe_psql('postgres', 'ALTER TABLE outbox.attempts DROP CONSTRAINT refused');
$node->poll_query_until('postgres', q{SELECT unrepaired = 0 FROM outbox.workers WHERE kind = 'worker' AND database = 'postgres'});
is(value('outbox_worker_unrepaired_leases'), 0, '... and could be, in the end');
has_grown('... counted once',
	w => { %sent, 'attempts/ZOMBIE_REQUEUE' => 1, leases_lost => 1, lease_repairs => 1, 'optimistic_outcomes/lost' => 1 });
configure($node, 'outbox.poll_interval' => undef);

# ---------------------------------------------------------------- more queues than have a place

$node->safe_psql('postgres', 'DROP DATABASE other');
$node->safe_psql('postgres', q{SELECT outbox.create_queue('many ' || g) FROM generate_series(1, 20) g});
$node->append_conf('postgresql.conf', 'outbox.max_queues = 16');
$node->restart;
wait_for_worker($node);
$now = scrape();
is_deeply(growth({ values => {} }, $now), {}, 'a server that has been restarted counts from 0');
$node->safe_psql('postgres', q{SELECT outbox.enqueue('e', '1', queue) FROM outbox.queues});
is($node->safe_psql('postgres', q{SELECT sum(enqueued), max(enqueued), count(*) > 20 FROM outbox.stats}), '16|1|t', 'only so many queues are counted');
is_clean('with queues that are not counted', scrape()->{text});

# ---------------------------------------------------------------- what is not compiled

# Their plans look expensive in a large catalog, and compiling one takes longer than many calls.
SKIP:
{
	skip 'this server has no JIT', 1 if $node->safe_psql('postgres', 'SELECT pg_jit_available()') ne 't';
	foreach my $call ('prometheus()', 'check()', 'check(deep => true)')
	{
		# Above the cost of the outer statement, which scans a function.
		my (undef, undef, $log) = $node->psql('postgres', qq{
			LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_analyze = on;
			SET auto_explain.log_nested_statements = on; SET jit_above_cost = 50; SET client_min_messages = log;
			SELECT * FROM outbox.$call});
		my $plans = () = $log =~ /Query Text:/g;

		cmp_ok($plans, '>', 1, "$call runs statements of its own");
		is(scalar(() = $log =~ /^\s*JIT:/mg), 0, '... none of which is compiled');
	}
}

consistent($node, 'consistent');
$node->stop('fast');
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC|TRAP|XX000|leak|still active|not closed/, 'no crash, no leak');
done_testing();
