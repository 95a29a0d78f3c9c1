# What the tests of the relay with real brokers share: its configuration, and the one question that each of them asks in the end.
#
#   relay_config($node, $sinks, %source)   a configuration: the database of that node as role relay, which is made and may do
#                                          nothing but work; %source are more keys of [[source]], values as TOML has them; $sinks
#                                          is what comes after it
#   reload($relay, $config)                gives a running relay another configuration, and has it read
#   check($config, NAME => VALUE, ...)        --check, with these variables: its exit status and output
#   check_names($config, $env, SINK => CODE, ...)  --check fails, and says of each of these sinks that
#   check_destinations($node, $sinks, $status, \@lines, NAME => VALUE, ...)  --check with that after its source and these variables
#                                          has that exit status, and says of destinations lines that begin so
#   make_producer($node)                   then there are
#   start_producing($node, $kind, %what)   a session that commits ten messages each 20 ms until stop_producing($node, $it): event_type
#                                          and partition_key are $kind, or keys => N: $kind and a number; queue => 'default'
#   wait_until_delivered($node, $kind, $n) until so many more of these are DISPATCHED
#   wait_until_done($node, $where)         until no message waits or is leased (of those for which that holds in outbox.messages)
#   proven($node, $test, $accepted, where => SQL, failed => 0)
#
# proven: every committed message was accepted exactly as often as the ledger says, and at least once. $accepted is what the
# broker has, counted by the test that reads it: an array of outbox_ids, one for each record, or a hash of outbox_id => number of
# records. `where` chooses messages of outbox.messages; what was accepted must be of these. `failed` is the number of
# dead letters among them.
#
# Guarantees: it fails if a message has another number of ends than one, if one that the ledger calls DISPATCHED is not
# there, if one is there that was not committed, and if one is there more often than attempts may have brought it.
# Those are the DISPATCHED one, and the RETRYABLE and the lost ones (ZOMBIE_REQUEUE), of which it is not known. So a message that was
# released untried, or refused, and arrived nevertheless is found too. In a queue that keeps keys in order a lost lease counts for
# the messages of the key behind it as well: they were claimed together and are given back without a row of their own.
package RelayTest;

use strict;
use warnings;

use BrokerTest;
use Exporter 'import';
use OutboxTest ();
use Test::More;

our @EXPORT = qw(relay_config reload check check_names check_destinations make_producer start_producing stop_producing wait_until_delivered wait_until_done proven);

sub relay_config
{
	my ($node, $sinks, %source) = @_;
	my $dsn = $node->connstr('postgres') . ' user=relay';

	$node->safe_psql('postgres', q{
		DO $$ BEGIN
			CREATE ROLE relay LOGIN IN ROLE outbox_executor;
		EXCEPTION WHEN duplicate_object THEN NULL;
		END $$});
	return join "\n", '[relay]', 'listen = ""', '[log]', 'level = "debug"', '[[source]]', 'name = "main"', qq{dsn = "$dsn"},
		(map { "$_ = $source{$_}" } sort keys %source), $sinks, '';
}

sub reload
{
	my ($relay, $config) = @_;
	my $before = () = $relay->log =~ /configuration was read again/g;

	write_file("$relay->{folder}/relay.toml", $config);
	$relay->signal('HUP');
	return wait_for(sub { (() = $relay->log =~ /configuration was read again/g) > $before }, 'the configuration to be read');
}

sub check
{
	my ($config, %env) = @_;
	local %ENV = (%ENV, %env);
	my $program = $ENV{OUTBOX_RELAY} // "$BrokerTest::Base::here/../outbox-relay";
	my ($out, undef, $status) = tool([ $program, '--config', write_file(new_folder('check') . '/relay.toml', $config), '--check' ], may_fail => 1);

	return ($status, $out);
}

sub check_names
{
	my ($config, $env, %codes) = @_;
	my ($status, $out) = check($config, %$env);
	my %said = $out =~ /^sink (\w+)(?: \S+)?: (?!reached)(\w+)/mg;

	is($status, 1, '--check: exit status 1');
	return is_deeply({ map { $_ => $said{$_} } keys %codes }, \%codes, '--check names it') || diag($out);
}

sub check_destinations
{
	my ($node, $sinks, $status, $lines, %env) = @_;
	my ($is, $out) = check(relay_config($node, $sinks), %env);
	my @said = $out =~ /^  ([^{ ].*)$/mg;

	is($is, $status, "--check of destinations: exit status $status") || diag($out);
	foreach my $line (@$lines)
	{
		ok(scalar(grep { index($_, $line) == 0 } @said), "--check says: $line") || diag($out);
	}
	return is(scalar(grep { !/outbox_readonly/ } @said), scalar(@$lines), '... and nothing else');
}

sub make_producer
{
	my ($node) = @_;

	$node->safe_psql('postgres', q{
		CREATE TABLE stopped (kind text);
		CREATE PROCEDURE produce(kind text, queue text, keys int) LANGUAGE plpgsql AS $$
		BEGIN
			WHILE NOT EXISTS (SELECT FROM stopped s WHERE s.kind = produce.kind) LOOP
				PERFORM FROM generate_series(1, 10) n, outbox.enqueue(produce.kind, to_jsonb(repeat('x', 300)), produce.queue,
					partition_key => produce.kind || COALESCE((n % produce.keys)::text, ''));
				COMMIT;
				PERFORM pg_sleep(0.02);
			END LOOP;
		END
		$$});
	return;
}

sub start_producing
{
	my ($node, $kind, %what) = @_;
	my $session = OutboxTest::session($node);
	my $keys = $what{keys} // 'NULL';
	my $queue = $what{queue} // 'default';

	OutboxTest::start_query($session, "CALL produce('$kind', '$queue', $keys)");
	return { session => $session, kind => $kind };
}

sub stop_producing
{
	my ($node, $producer) = @_;

	$node->safe_psql('postgres', "INSERT INTO stopped VALUES ('$producer->{kind}')");
	my (undef, $error) = OutboxTest::result_of($producer->{session});
	is($error, '', "$producer->{kind}: the producer met no error");
	$producer->{session}->quit;
	return;
}

sub wait_until_delivered
{
	my ($node, $kind, $more) = @_;
	my $count = "SELECT count(*) FROM outbox.attempts JOIN outbox.messages USING (outbox_id) WHERE event_type = '$kind' AND state = 'DISPATCHED'";
	my $before = $node->safe_psql('postgres', $count);

	return wait_for(sub { $node->safe_psql('postgres', $count) >= $before + $more }, "$more of $kind to be delivered");
}

sub wait_until_done
{
	my ($node, $where) = @_;
	my $these = $where ? "WHERE outbox_id IN (SELECT outbox_id FROM outbox.messages WHERE $where)" : '';

	return wait_for(sub { $node->safe_psql('postgres', "SELECT count(*) FROM outbox.pending $these") == 0 }, 'everything to be done');
}

# By message: how many attempts ended how. After the last one of too many it is not known either.
sub ledger
{
	my ($node, $where) = @_;
	my %ledger;
	my $rows = $node->safe_psql('postgres', qq{
		SELECT m.outbox_id, count(*) FILTER (WHERE a.state = 'DISPATCHED'), count(*) FILTER (WHERE a.state = 'FAILED'),
			count(*) FILTER (WHERE a.state IN ('RETRYABLE', 'ZOMBIE_REQUEUE') OR a.error_code = 'RETRIES_EXHAUSTED') + max(m.lost_before)
		FROM (
			SELECT outbox_id, CASE ordering WHEN 'fifo' THEN COALESCE(sum(lost) OVER (PARTITION BY queue, partition_key ORDER BY sequence_id
				ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) ELSE 0 END AS lost_before
			FROM (SELECT * FROM outbox.messages WHERE $where) these JOIN outbox.queues USING (queue) LEFT JOIN (
				SELECT outbox_id, count(*) AS lost FROM outbox.attempts WHERE state = 'ZOMBIE_REQUEUE' GROUP BY 1) l USING (outbox_id)) m
			LEFT JOIN outbox.attempts a USING (outbox_id) GROUP BY 1});

	foreach my $row (split /\n/, $rows)
	{
		my ($id, @counts) = split /\|/, $row;

		@{ $ledger{$id} }{qw(dispatched failed unknown)} = @counts;
	}
	return \%ledger;
}

# What is wrong, one line for each message.
sub unproven
{
	my ($ledger, $accepted) = @_;
	my (%count, @problems);

	if (ref $accepted eq 'ARRAY')
	{
		$count{ $_ // 'a record without outbox_id' }++ foreach @$accepted;
	}
	else
	{
		%count = %$accepted;
	}
	foreach my $id (sort keys %$ledger)
	{
		my ($dispatched, $failed, $unknown) = @{ $ledger->{$id} }{qw(dispatched failed unknown)};
		my $there = delete $count{$id} // 0;

		push @problems, "$id: $there times there; $dispatched DISPATCHED, $failed FAILED, $unknown unknown"
			if $dispatched + $failed != 1 || $there < $dispatched || $there > $dispatched + $unknown;
	}
	return (@problems, map { "$_: there, and not committed" } sort keys %count);
}

sub proven
{
	my ($node, $test, $accepted, %options) = @_;
	my $ledger = ledger($node, $options{where} // 'true');
	my @problems = unproven($ledger, $accepted);
	my $failed = grep { $_->{failed} } values %$ledger;

	cmp_ok(scalar(keys %$ledger), '>', 0, "$test: messages were committed");
	is($failed, $options{failed} // 0, "$test: dead letters");
	return is(join("\n", splice @problems, 0, 10), '',
		"$test: each of " . keys(%$ledger) . ' messages was accepted as often as the ledger says, and at least once');
}

1;
