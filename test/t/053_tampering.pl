# Random single changes of what is sealed, by a superuser who has replaced the guards, and on disk.
#
# Proves: verify_seals() finds each, in its seal and partition, and names no other; the same rows written
# again as they were are no problem. What it cannot find without an anchor (the last seals removed, a chain that was
# computed anew) does not agree with the message of the seal.
#
# CHANGES=10000 makes so many; on disk, where each takes a restart, a hundredth of that.
use strict;
use warnings;

use Digest::SHA 'sha256';
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $changes = $ENV{CHANGES} // 200;
my $windows = 10;
my $node = new_node('main', preload => 1, conf => "outbox.worker = off\nautovacuum = off\noutbox.partition_interval = '1 day'\noutbox.seal_interval = '1 h'");

seed();

# ---------------------------------------------------------------- a history

# Rows of three dated partitions and the default one: copies, with the times of their ids moved.
$node->safe_psql('postgres', q{
	SELECT FROM outbox.maintain();
	SELECT outbox.create_queue('q', ordering => 'numbered', audit_events => true), outbox.create_queue('outbox_seals');
	CREATE FUNCTION moved(id uuid, days int) RETURNS text LANGUAGE sql AS $$
		SELECT lpad(to_hex(('x' || left(hex, 12))::bit(48)::bigint + days * 86400000::bigint), 12, '0') || substr(hex, 13) FROM (SELECT replace(id::text, '-', '') AS hex) h
	$$;
	CREATE FUNCTION copy() RETURNS void LANGUAGE sql AS $$
		INSERT INTO outbox.messages SELECT (jsonb_populate_record(m, jsonb_build_object('outbox_id', moved(outbox_id, days), 'created_at', clock_timestamp()))).*
		FROM outbox.messages m, unnest('{1,2,-10000}'::int[]) days WHERE queue = 'q' AND created_at >= (SELECT coalesce(max(to_at), '-infinity') FROM outbox.seals) AND outbox_id::text ~ '[01234567]$';
		INSERT INTO outbox.attempts SELECT (jsonb_populate_record(a, jsonb_build_object('outbox_id', moved(outbox_id, days), 'created_at', clock_timestamp()))).*
		FROM outbox.attempts a, unnest('{1,2,-10000}'::int[]) days WHERE created_at >= (SELECT coalesce(max(to_at), '-infinity') FROM outbox.seals);
		INSERT INTO outbox.events SELECT (jsonb_populate_record(e, jsonb_build_object('event_id', moved(event_id, days), 'at', clock_timestamp()))).*
		FROM outbox.events e, unnest('{1,2,-10000}'::int[]) days WHERE at >= (SELECT coalesce(max(to_at), '-infinity') FROM outbox.seals);
	$$});
foreach my $window (1 .. $windows)
{
	$node->safe_psql('postgres', qq{
		SELECT count(*) FROM generate_series(1, 10) i, outbox.enqueue('type ' || i, jsonb_build_object('number', i * $window, 'text', 'Text ' || i || 'ABC', 'nothing', NULL, 'price', 12.50), 'q',
			aggregate_id => CASE WHEN i % 2 = 0 THEN 'a' || i END, partition_key => 'k' || i % 3, headers => jsonb_build_object('h', i % 4));
		SELECT outbox.enqueue('bytes', queue => 'q', partition_key => 'b', payload_bytes => '\\x00ff0a', content_type => 'a/b');
		SELECT count(*) FROM outbox.claim('w', 8, queues => '{q}') c, outbox.complete(c.outbox_id, c.lease_token, 'w', (ARRAY['DISPATCHED', 'RETRYABLE', 'FAILED'])[1 + c.sequence_id % 3]::outbox.attempt_state,
			error_code => 'E', latency_ms => 7, retry_delay => CASE WHEN c.sequence_id % 3 = 1 THEN interval '0 s' END);
		SELECT copy();
		SELECT count(*) FROM outbox.seal()});
}
my @rows = map { my %row; @row{qw(table partition id attempt seal path us)} = split /\|/; \%row } split /\n/, $node->safe_psql('postgres', q{
	SELECT r."table", relname, id, attempt_no, seal_no, pg_relation_filepath(tableoid), (extract(epoch FROM created_at - '2000-01-01Z') * 1000000)::bigint
	FROM (SELECT 'messages' AS "table", tableoid, outbox_id AS id, NULL AS attempt_no, created_at FROM outbox.messages
		UNION ALL SELECT 'attempts', tableoid, outbox_id, attempt_no, created_at FROM outbox.attempts
		UNION ALL SELECT 'events', tableoid, event_id, NULL, at FROM outbox.events) r
	JOIN pg_class c ON c.oid = r.tableoid JOIN outbox.seals ON created_at >= from_at AND created_at < to_at
	ORDER BY 1, 2, 3, 4});
my %partitions = map { ("$_->{table} $_->{partition}" => 1) } @rows;
my %seals_of;	# that have rows of a partition

$seals_of{ $_->{partition} }{ $_->{seal} } = 1 foreach @rows;
cmp_ok(scalar(@rows), '>=', 300, 'hundreds of rows are sealed');
cmp_ok(scalar(keys %partitions), '>=', 9, '... in several partitions');

# What the relay carried away: the messages of the seals, and their export.
my $exported = $node->safe_psql('postgres', 'SELECT outbox.export_seals()');
my %anchors = map { split /\|/ } split /\n/, $node->safe_psql('postgres', q{SELECT payload ->> 'seal_no', payload ->> 'hash' FROM outbox.claim('relay', 1000, queues => '{outbox_seals}')});
is(scalar(keys %anchors), $windows, 'each seal is a message');

# ---------------------------------------------------------------- a change, and what is expected

my %columns = map { my ($table, @types) = split /\|/; ($table => [ map { [ split /:/ ] } @types ]) } split /\n/, $node->safe_psql('postgres', q{
	SELECT attrelid::regclass::text || '|' || string_agg(attname || ':' || format_type(atttypid, NULL) || ':' || NOT attnotnull, '|' ORDER BY attnum) FROM pg_attribute
	WHERE attrelid IN ('outbox.messages'::regclass, 'outbox.attempts'::regclass, 'outbox.events'::regclass, 'outbox.seals'::regclass) AND attnum > 0 GROUP BY attrelid});

sub pick { return $_[ int rand @_ ] }
sub place { my ($seal, $row) = @_; return "$seal: partition $row->{partition} of $row->{table}: " }
sub id_of { return $_[0]{table} eq 'events' ? 'event_id' : 'outbox_id' }
sub time_of { return $_[0]{table} eq 'events' ? 'at' : 'created_at' }

sub where
{
	my ($row) = @_;

	return id_of($row) . " = '$row->{id}'" . ($row->{attempt} eq '' ? '' : " AND attempt_no = $row->{attempt}");
}

# A time in that window, other than the row's.
sub time_in
{
	my ($row, $seal) = @_;

	return "(SELECT CASE WHEN chosen = " . time_of($row) . " THEN to_at - interval '1 us' ELSE chosen END
		FROM (SELECT to_at, greatest(from_at, to_at - interval '1 min' * ${\ rand}) AS chosen FROM outbox.seals WHERE seal_no = $seal) s)";
}

# Each kind: statement, places where it must be found, and (else: nowhere else) where it may be, too.
my %kinds = (
	'a column' => sub {
		my ($row) = @_;
		my ($column, $type, $nullable) = @{ pick(grep { $_->[0] ne time_of($row) } @{ $columns{"outbox.$row->{table}"} }) };

		return ("UPDATE outbox.$row->{table} SET $column = other($column\::text, '$type', '$nullable', ${\ rand})::$type WHERE ${\ where($row)}",
			[ place($row->{seal}, $row) ], $column eq id_of($row) ? qr/^$row->{seal}: partition \w+ of $row->{table}: / : undef);
	},
	'a row deleted' => sub {
		my ($row) = @_;

		return ("DELETE FROM outbox.$row->{table} WHERE ${\ where($row)}", [ place($row->{seal}, $row) ]);
	},
	'a row added' => sub {
		my ($row) = @_;
		my $seal = 1 + int rand $windows;
		my $new = $row->{id} =~ s/.{12}$//r . sprintf '%012x', int rand 2**48;

		return ("INSERT INTO outbox.$row->{table} SELECT (jsonb_populate_record(r, jsonb_build_object('${\ id_of($row)}', '$new', '${\ time_of($row)}', ${\ time_in($row, $seal)}))).*
			FROM outbox.$row->{table} r WHERE ${\ where($row)}", [ place($seal, $row) ]);
	},
	'two payloads swapped' => sub {
		my ($row) = pick(grep { $_->{table} eq 'messages' } @rows);
		my $other = pick(grep { $_->{table} eq 'messages' && $_ != $row } @rows);

		return ("UPDATE outbox.messages a SET payload = b.payload, payload_bytes = b.payload_bytes, headers = '{\"swapped\": 1}' FROM outbox.messages b
			WHERE (a.outbox_id, b.outbox_id) IN (('$row->{id}', '$other->{id}'), ('$other->{id}', '$row->{id}'))", [ place($row->{seal}, $row), place($other->{seal}, $other) ]);
	},
	'another time of the window' => sub {
		my ($row) = @_;

		return ("UPDATE outbox.$row->{table} SET ${\ time_of($row)} = ${\ time_in($row, $row->{seal})} WHERE ${\ where($row)}", [ place($row->{seal}, $row) ]);
	},
	'a time of another window' => sub {
		my ($row) = @_;
		my $seal = pick(grep { $_ != $row->{seal} } 1 .. $windows);

		return ("UPDATE outbox.$row->{table} SET ${\ time_of($row)} = ${\ time_in($row, $seal)} WHERE ${\ where($row)}", [ place($row->{seal}, $row), place($seal, $row) ]);
	},
	'a time that is not sealed' => sub {
		my ($row) = @_;

		return ("UPDATE outbox.$row->{table} SET ${\ time_of($row)} = clock_timestamp() + interval '1 d' WHERE ${\ where($row)}", [ place($row->{seal}, $row) ]);
	},
	'a column of a seal' => sub {
		my $seal = 1 + int rand $windows;
		my ($column, $type, $nullable) = @{ pick(grep { $_->[0] ne 'seal_no' } @{ $columns{'outbox.seals'} }) };

		return ("UPDATE outbox.seals SET $column = other($column\::text, '$type', '$nullable', ${\ rand})::$type WHERE seal_no = $seal", ["$seal: "], qr//);
	},
	'the number of a seal' => sub {
		my $seal = 1 + int rand $windows;

		return ("UPDATE outbox.seals SET seal_no = seal_no + 100 WHERE seal_no = $seal", [ $seal + 100 . ': ' ], qr//);
	},
	'a seal deleted' => sub {
		my $seal = 1 + int rand $windows - 1;

		return ("DELETE FROM outbox.seals WHERE seal_no = $seal", [ $seal + 1 . ': ' ], qr//);
	},
	'a partition emptied, renamed or removed' => sub {
		my ($row) = @_;

		# The default ones belong to the extension, which does not let them go.
		return (pick("TRUNCATE outbox.$row->{partition}", "ALTER TABLE outbox.$row->{partition} RENAME TO other",
			"ALTER TABLE outbox.$row->{table} DETACH PARTITION outbox.$row->{partition}", $row->{partition} =~ /default/ ? () : "DROP TABLE outbox.$row->{partition}"),
			[ map { place($_, $row) } keys %{ $seals_of{ $row->{partition} } } ], qr/: partition other of $row->{table}: \d+ rows? (?:was|were) added$/);
	},
	'two partitions swapped' => sub {
		my ($row) = @_;
		my $other = pick(grep { $_->{table} eq $row->{table} && $_->{partition} ne $row->{partition} } @rows);

		return ("ALTER TABLE outbox.$row->{partition} RENAME TO swapped; ALTER TABLE outbox.$other->{partition} RENAME TO $row->{partition}; ALTER TABLE outbox.swapped RENAME TO $other->{partition}",
			[ map { my $each = $_; map { place($_, $each) } keys %{ $seals_of{ $each->{partition} } } } $row, $other ], qr/: partition (?:$row->{partition}|$other->{partition}) of /);
	},
);
my @weighted = map { my ($kind, $weight) = @$_; ($kind) x $weight } [ 'a column', 40 ], [ 'a row deleted', 10 ], [ 'a row added', 10 ], [ 'two payloads swapped', 6 ],
	[ 'another time of the window', 8 ], [ 'a time of another window', 8 ], [ 'a time that is not sealed', 2 ], [ 'a column of a seal', 10 ], [ 'the number of a seal', 2 ], [ 'a seal deleted', 2 ],
	[ 'a partition emptied, renamed or removed', 1 ], [ 'two partitions swapped', 1 ];

# judge FOUND PLACES ELSEWHERE: undef, or what is wrong with what was found
sub judge
{
	my ($found, $places, $elsewhere) = @_;
	my @found = split /\n/, $found;

	foreach my $place (@$places)
	{
		return "not found: $place, but: $found" unless grep { index($_, $place) == 0 } @found;
	}
	foreach my $problem (@found)
	{
		return "but nothing is wrong there: $problem" unless grep { index($problem, $_) == 0 } @$places or defined $elsewhere && $problem =~ $elsewhere;
	}
	return undef;
}

sub good
{
	my ($name) = @_;

	return is($node->safe_psql('postgres', 'SELECT problems()'), '', $name);
}

# problems(): what verify_seals finds. found_after(CONTROL, CHANGE): what it finds after each; both are undone.
# other(): another value, one character or bit away where that is possible.
$node->safe_psql('postgres', q{
	CREATE FUNCTION problems() RETURNS text LANGUAGE sql AS $$
		SELECT coalesce(string_agg(seal_no || ': ' || problem, E'\n'), '') FROM outbox.verify_seals() WHERE NOT ok
	$$;
	CREATE FUNCTION found_after(control text, change text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		before text;
	BEGIN
		BEGIN
			EXECUTE control;
			before := problems();
			EXECUTE change;
			RAISE EXCEPTION USING errcode = 'UTEST', message = CASE WHEN before = '' THEN '' ELSE 'false alarm: ' END || before || problems();
		EXCEPTION WHEN OTHERS THEN
			RETURN encode(convert_to(SQLERRM, 'UTF8'), 'hex');
		END;
	END
	$$;
	CREATE FUNCTION other_character(value text, class text, r float8) RETURNS text LANGUAGE sql AS $$
		SELECT overlay(value PLACING CASE c WHEN '7' THEN '3' WHEN 'C' THEN 'D' WHEN 'b' THEN 'a' ELSE CASE WHEN c ~ '\d' THEN '7' WHEN c ~ '[A-Z]' THEN 'C' ELSE 'b' END END FROM i::int)
		FROM (SELECT i, c, count(*) OVER () AS all, row_number() OVER (ORDER BY i) AS n FROM regexp_split_to_table(value, '') WITH ORDINALITY t(c, i) WHERE c ~ class) p
		WHERE n = 1 + floor(r * p.all)
	$$;
	CREATE FUNCTION other(value text, type text, nullable boolean, r float8) RETURNS text LANGUAGE sql AS $$
		SELECT CASE
			WHEN value IS NULL THEN CASE type WHEN 'uuid' THEN '00000000-0000-7000-8000-000000000000' WHEN 'timestamp with time zone' THEN '2020-01-01Z' WHEN 'bytea' THEN '\x' || repeat('00', 32)
				WHEN 'text' THEN '' WHEN 'jsonb' THEN 'null' WHEN 'uuid[]' THEN '{}' WHEN 'integer[]' THEN '{}' ELSE '0' END
			WHEN nullable AND r < 0.1 THEN NULL
			WHEN type = 'outbox.attempt_state' THEN CASE value WHEN 'FAILED' THEN 'DISPATCHED' ELSE 'FAILED' END
			WHEN type = 'timestamp with time zone' THEN CASE WHEN isfinite(value::timestamptz) THEN (value::timestamptz + interval '1 us' * (1::bigint << (r * 40)::int))::text ELSE '2020-01-01Z' END
			WHEN type IN ('smallint', 'integer', 'bigint') THEN (value::bigint # (1::bigint << (r * CASE type WHEN 'smallint' THEN 14 WHEN 'integer' THEN 30 ELSE 62 END)::int))::text
			WHEN type = 'uuid' THEN other_character(value, '[0-9a-f]', r)
			WHEN type = 'bytea' AND value <> '\x' THEN '\x' || other_character(substr(value, 3), '[0-9a-f]', r)
			WHEN type IN ('jsonb', 'uuid[]', 'integer[]') THEN coalesce(other_character(value, CASE type WHEN 'jsonb' THEN '[1-9A-Z]' ELSE '[1-9]' END, r), CASE type WHEN 'jsonb' THEN '{"x": 1}' ELSE NULL END)
			ELSE coalesce(other_character(value, '.', r), 'x') END
	$$});
good('nothing is wrong before');

# ---------------------------------------------------------------- on disk

# What the file has of each row, once: its id. A byte of it is changed, or of the time, which is found after it.
sub write_at
{
	my ($path, $at, $bytes) = @_;

	open my $file, '+<:raw', $path or die;
	seek $file, $at, 0 or die;
	print $file $bytes;
	return close $file || die;
}

my @disk_faults;
my $on_disk = int($changes / 100) || 1;
my ($undo_path, $undo_at, $undo_bytes);

$node->safe_psql('postgres', 'CHECKPOINT');
foreach my $n (1 .. $on_disk)
{
	my $row = pick(@rows);

	$node->stop;
	without_checksums($node) if $n == 1;
	write_at($undo_path, $undo_at, $undo_bytes) if defined $undo_path;
	$undo_path = $node->data_dir . "/$row->{path}";
	my $file = slurp_file($undo_path);
	my $id = pack 'H*', $row->{id} =~ s/-//gr;
	# Attempts of one message have the same.
	my @ids = grep { substr($file, $_, 16) eq $id } map { $_ * 8 } 0 .. length($file) / 8;
	my $time = index $file, pack('q<', $row->{us});

	die "no row $row->{id} in $row->{path}" unless @ids && $time >= 0;
	$undo_at = @ids == 1 && rand() < 0.5 ? $ids[0] + int rand 16 : $time + int rand 8;
	$undo_bytes = substr $file, $undo_at, 1;
	write_at($undo_path, $undo_at, chr(ord($undo_bytes) ^ 1 << int rand 8));
	$node->start;
	my $fault = judge($node->safe_psql('postgres', 'SELECT problems()'), [ place($row->{seal}, $row) ], qr/: partition $row->{partition} of $row->{table}: /);
	push @disk_faults, "byte $undo_at of $row->{path}, row $row->{id} of $row->{partition}: $fault" if defined $fault;
}
is(join("\n", @disk_faults), '', "on disk: $on_disk changes are found");
$node->stop;
write_at($undo_path, $undo_at, $undo_bytes);
$node->start;
good('... and nothing is wrong after them');

# ---------------------------------------------------------------- by SQL

$node->safe_psql('postgres', q{
	CREATE OR REPLACE FUNCTION outbox.append_only() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN coalesce(NEW, OLD); END';
	DO $$
	DECLARE
		c record;
	BEGIN
		FOR c IN SELECT conrelid::regclass AS t, conname FROM pg_constraint WHERE contype IN ('c', 'u') AND conrelid::regclass::text ~ '^outbox.(messages|attempts|events|seals)'
			OR contype = 'p' AND conrelid::regclass::text ~ '^outbox.attempts_' LOOP
			EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.t, c.conname);
		END LOOP;
		FOR c IN SELECT indexrelid::regclass AS i FROM pg_index WHERE indrelid::regclass::text ~ '^outbox.attempts_' AND indpred IS NOT NULL LOOP
			EXECUTE format('DROP INDEX %s', c.i);
		END LOOP;
	END
	$$});

my (@faults, %made);
my $made = 0;

while ($made < $changes)
{
	my $batch = $changes - $made < 100 ? $changes - $made : 100;
	my (@changes, $script);

	foreach (1 .. $batch)
	{
		my ($kind, $row, $control) = (pick(@weighted), pick(@rows), pick(@rows));
		my ($statement, $places, $elsewhere) = $kinds{$kind}->($row);

		push @changes, [ $kind, $statement, $places, $elsewhere ];
		$script .= "SELECT found_after(\$c\$UPDATE outbox.$control->{table} SET ${\ id_of($control)} = ${\ id_of($control)} WHERE ${\ where($control)}\$c\$, \$c\$$statement\$c\$);\n";
	}
	my @found = split /\n/, $node->safe_psql('postgres', $script), -1;

	is(scalar(@found), $batch, 'answers') if @found != $batch;
	foreach my $i (0 .. $#changes)
	{
		my ($kind, $statement, $places, $elsewhere) = @{ $changes[$i] };
		my $fault = judge(pack('H*', $found[$i] // ''), $places, $elsewhere);

		$made{$kind}++;
		push @faults, "$kind: $statement: $fault" if defined $fault;
	}
	$made += $batch;
	$node->safe_psql('postgres', 'VACUUM outbox.messages, outbox.attempts, outbox.events, outbox.seals') if $made % 1000 == 0;
}
note("$made changes: " . join ', ', map { "$_ $made{$_}" } sort keys %made);
is(join("\n", map { $_ // () } @faults[ 0 .. 9 ]), '', "$made changes are found, each where it is");
good('... and nothing is wrong after them');

# ---------------------------------------------------------------- what needs an anchor

# The seals whose hash is not that which was carried away.
sub against_anchors
{
	my %hashes = map { split /\|/ } split /\n/, $node->safe_psql('postgres', q{SELECT seal_no, encode(hash, 'hex') FROM outbox.seals});

	return join ' ', grep { ($hashes{$_} // '') ne $anchors{$_} } sort { $a <=> $b } keys %anchors;
}

sub value { return defined $_[0] ? pack 'N/a*', $_[0] : pack 'l>', -1 }
sub form { my ($tag, @values) = @_; return value($tag) . pack('N', scalar @values) . join '', map { value($_) } @values }

sub root_of
{
	my @leaves = @_;
	my $half = 1;

	return $leaves[0] // sha256('') if @leaves < 2;
	$half *= 2 while $half * 2 < @leaves;
	return sha256("\x01" . root_of(@leaves[ 0 .. $half - 1 ]) . root_of(@leaves[ $half .. $#leaves ]));
}

# A seal made again of what the tables have now, after that hash; its own is returned.
sub rewrite_seal
{
	my ($seal, $previous) = @_;
	my (@parts, %leaves);

	foreach (split /\n/, $node->safe_psql('postgres', qq{SELECT "table", partition, encode(leaf, 'hex') FROM outbox.seal_leaves($seal) ORDER BY id, attempt_no}))
	{
		my ($table, $partition, $leaf) = split /\|/;

		push @{ $leaves{$table}{$partition} }, pack 'H*', $leaf;
	}
	foreach my $table (qw(messages attempts events))
	{
		push @parts, map { [ $table, $_, scalar @{ $leaves{$table}{$_} }, root_of(@{ $leaves{$table}{$_} }) ] } sort keys %{ $leaves{$table} };
	}
	my $root = root_of(map { sha256("\0" . form('outbox part 1', $_->[0], $_->[1], pack('q>', $_->[2]), $_->[3])) } @parts);
	my ($window, @counts) = split /\|/, $node->safe_psql('postgres', "SELECT encode(timestamptz_send(from_at) || timestamptz_send(to_at), 'hex'), messages, attempts, events FROM outbox.seals WHERE seal_no = $seal");
	my @times = unpack 'a8 a8', pack 'H*', $window;
	my $hash = sha256("\x02" . form('outbox seal 1', pack('q>', $seal), @times, (map { pack 'q>', $_ } @counts), $root, $previous, undef));
	my $json = join ', ', map { sprintf '{"table": "%s", "partition": "%s", "rows": %d, "root": "%s"}', @$_[ 0 .. 2 ], unpack 'H*', $_->[3] } @parts;

	$node->safe_psql('postgres', sprintf q{UPDATE outbox.seals SET parts = '[%s]', root = '\x%s', previous = %s, hash = '\x%s' WHERE seal_no = %d},
		$json, unpack('H*', $root), defined $previous ? sprintf(q{'\x%s'}, unpack 'H*', $previous) : 'NULL', unpack('H*', $hash), $seal);
	return $hash;
}

sub rewrite_seals
{
	my ($hash) = @_;

	$hash = rewrite_seal($_, $hash) foreach 1 .. $windows;
	return;
}

is(against_anchors(), '', 'the seals are those that were carried away');
rewrite_seals();
is(against_anchors(), '', '... also when they are made again');
is(pack('H*', $node->safe_psql('postgres', "SELECT found_after('SELECT 1', 'DELETE FROM outbox.seals WHERE seal_no = $windows; DELETE FROM outbox.events WHERE event = ''SEALED'' AND detail ->> ''seal_no'' = ''$windows''')")), '',
	'that the last seal is gone with its event is not seen');
$node->safe_psql('postgres', "UPDATE outbox.messages SET event_type = 'forged' WHERE outbox_id = '${\ +(grep { $_->{table} eq 'messages' && $_->{seal} == 4 } @rows)[0]->{id}}'");
isnt($node->safe_psql('postgres', 'SELECT problems()'), '', 'a forged row is found');
rewrite_seals();
good('... but not after all seals from there on were rewritten');
is(against_anchors(), join(' ', 4 .. $windows), '... unless they are compared with what was carried away');

done_testing();
