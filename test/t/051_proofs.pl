# Proofs, exported seals and leaves of a server, checked by outbox-verify and examples/verify.py, which have no connection.
#
# Proves: both accept what a database of each kind of encoding gives (UTF8, LATIN1, EUC_JP, SQL_ASCII), whatever the
# messages contain, also a character that has no UTF-8 form; in the same values as the tables have; signed or
# not. Both refuse what was changed in the file, and seals that were rewritten in the database; what
# was changed in a table is told by comparing the leaves. A message that is too long for a proof is sealed, and prove() says that it is too long. What is sealed is not in memory all at once.
use strict;
use warnings;

use FindBin;
use JSON::PP;
use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = "$FindBin::RealBin/../..";
system_or_bail('make', '-s', '-C', "$root/verify");
my @verifiers = (["$root/verify/outbox-verify"], [ $ENV{PYTHON} // '/usr/bin/python3', "$root/examples/verify.py" ]);

my $node = new_node('main', preload => 1, conf => "outbox.worker = off\nautovacuum = off");
my $folder = $node->basedir;
my $key = "$folder/key.pem";
my ($out, $err);

$ENV{PGCLIENTENCODING} = 'UTF8';

# answers FILE...: what the verifiers say to it, by their exit statuses; the first one's text
my $text;

sub answers
{
	my ($command, @arguments) = @_;
	my @statuses;

	foreach my $verifier (@verifiers)
	{
		my ($said, $complained) = ('', '');

		IPC::Run::run([ @$verifier, $command, @arguments ], '<', \undef, '>', \$said, '2>', \$complained);
		push @statuses, $? >> 8;
		$text = $said if @statuses == 1;
		diag("$command: $said$complained") if $complained ne '';
	}
	return "@statuses";
}

# put NAME TEXT: a file
sub put
{
	my ($name, $text) = @_;
	my $file = "$folder/$name";

	open my $handle, '>:raw', $file or die;
	print $handle $text;
	close $handle;
	return $file;
}

# query DATABASE SQL: its output, as bytes, with a line feed
sub query
{
	my ($database, $sql) = @_;

	return $node->safe_psql($database, $sql) . "\n";
}

sub exported
{
	my ($database, $name) = @_;

	return put("$database.$name", query($database, 'SELECT outbox.export_seals()'));
}

sub last_hash
{
	my ($database) = @_;

	return $node->safe_psql($database, q{SELECT encode(hash, 'hex') FROM outbox.seals ORDER BY seal_no DESC LIMIT 1});
}

# Messages of every kind, one of which is tried three times, and some that have not ended.
sub fill
{
	my ($database, $letters) = @_;

	$node->safe_psql($database, qq{
		SELECT outbox.create_queue('q$letters');
		SELECT outbox.enqueue('e$letters', jsonb_build_object('a$letters', ARRAY[1.50, NULL], 'b', '"\\ \n' || '$letters'), queue => 'q$letters',
			aggregate_type => '', aggregate_id => '$letters', partition_key => 'k', idempotency_key => 'i$letters', routing_key => 'r',
			headers => '{"h": {"deep": [[[{}]]]}, "n": 1e30}', priority => 15, max_attempts => 7);
		SELECT outbox.enqueue('bytes', queue => 'q$letters', payload_bytes => '\\x00ff0a', content_type => 'a/b');
		SELECT count(*) FROM generate_series(1, 70) i, outbox.enqueue('many', to_jsonb(repeat('$letters', i)), queue => 'q$letters');
		SELECT outbox.enqueue('null', 'null', queue => 'q$letters');
		SELECT outbox.enqueue('long', to_jsonb(repeat('$letters', 20000)), queue => 'q$letters');
	});
	foreach my $outcome (q{'RETRYABLE', error_code => 'E', error_message => 'no$letters', latency_ms => 3, retry_delay => '0 s'},
		q{'RETRYABLE', response_code => '', retry_delay => '0 s'}, q{'DISPATCHED', reference => '$letters'})
	{
		$node->safe_psql($database, qq{
			SELECT count(*) FROM outbox.claim('w', 1, queues => ARRAY['q$letters']) c,
				outbox.complete(c.outbox_id, c.lease_token, 'w', ${\ $outcome =~ s/\$letters/$letters/gr})});
		$node->safe_psql($database, 'SELECT outbox.seal()');
	}
	$node->safe_psql($database, qq{
		SELECT count(*) FROM outbox.claim('w', 40, queues => ARRAY['q$letters']) c, outbox.complete(c.outbox_id, c.lease_token, 'w', 'FAILED')});
	$node->safe_psql($database, 'SELECT outbox.seal()');
	return;
}

# The proof of each message is accepted, and says what the tables say.
sub proved
{
	my ($database, $name, @given) = @_;
	my (%statuses, @wrong);

	foreach my $id (split /\n/, $node->safe_psql($database, 'SELECT outbox_id FROM outbox.messages ORDER BY random() LIMIT 12')
		. $node->safe_psql($database, q{SELECT E'\n' || outbox_id FROM outbox.attempts WHERE attempt_no = 3}))
	{
		my $proof = query($database, "SELECT outbox.prove('$id')");
		my $columns = JSON::PP->new->decode($proof)->{rows}[0]{columns};
		my %bytes = map { $_->[0] => $_->[2] } @$columns;

		$statuses{ answers('proof', put('proof', $proof), @given) } = 1;
		push @wrong, $id if ($bytes{payload} // '') ne $node->safe_psql($database,
			"SELECT encode(convert_to(payload::text, CASE getdatabaseencoding() WHEN 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END), 'hex') FROM outbox.messages WHERE outbox_id = '$id'");
	}
	is(join(' and ', keys %statuses), '0 0', "$name: both accept proofs");
	return is("@wrong", '', "$name: ... of what the table has");
}

# ---------------------------------------------------------------- each kind of encoding

my %letters = (UTF8 => "\xc3\xa4\xe6\x97\xa5\xf0\x9f\x98\x80", LATIN1 => "\xc3\xa4\xc3\xbf", EUC_JP => "\xe6\x97\xa5\xe6\x9c\xac", SQL_ASCII => "\xc3\xa4");

foreach my $encoding (sort keys %letters)
{
	my $database = lc $encoding;

	$node->safe_psql('postgres', "CREATE DATABASE $database ENCODING '$encoding' LOCALE 'C' TEMPLATE template0");
	$node->safe_psql($database, 'CREATE EXTENSION outbox');
	# Text comes as it is sent.
	$ENV{PGCLIENTENCODING} = $encoding eq 'SQL_ASCII' ? 'SQL_ASCII' : 'UTF8';
	fill($database, $letters{$encoding});
	my $chain = exported($database, 'chain');

	is(answers('chain', $chain, '--hash', last_hash($database)), '0 0', "$encoding: both accept the chain");
	proved($database, $encoding, '--hash', last_hash($database), '--chain', $chain);
	$ENV{PGCLIENTENCODING} = 'UTF8';
}

# A character that EUC_JP has, and UTF-8 has not.
$node->safe_psql('euc_jp', q{
	SELECT outbox.enqueue(convert_from('\xa2af', 'EUC_JP'), '1');
	SELECT outbox.seal()});
my $proof = query('euc_jp', q{SELECT outbox.prove(outbox_id) FROM outbox.messages WHERE event_type = convert_from('\xa2af', 'EUC_JP')});
my %column = map { $_->[0] => $_->[2] } @{ JSON::PP->new->decode($proof)->{rows}[0]{columns} };
is($column{event_type}, 'ffa2af', 'a character without UTF-8 form is sealed as it is');
is(answers('proof', put('proof', $proof), '--hash', last_hash('euc_jp')), '0 0', '... and proved');

# ---------------------------------------------------------------- what was changed

my $chain = exported('utf8', 'chain');
my $hash = last_hash('utf8');
my $tried = $node->safe_psql('utf8', q{SELECT outbox_id FROM outbox.attempts WHERE attempt_no = 3});
my $json = JSON::PP->new->canonical;

# changed CODE: the proof of what was tried three times, changed so
sub changed
{
	my ($change) = @_;
	my $proof = $json->decode(query('utf8', "SELECT outbox.prove('$tried')"));

	local $_ = $proof;
	$change->();
	return answers('proof', put('proof', $json->encode($proof)), '--hash', $hash, '--chain', $chain);
}

is(changed(sub { }), '0 0', 'a proof as it is');
like($text, qr/^PROVEN: the message ended as DISPATCHED with attempt 3\. All its attempts are here\.$/m, '... says how the message ended');
is(changed(sub { splice @{ $_->{rows} }, 2, 1 }), '1 1', 'without its second attempt');
is(changed(sub { splice @{ $_->{rows} }, 3, 1 }), '0 0', 'without its last attempt');
like($text, qr/^NOT PROVEN: how the message ended\./m, '... it is said that its end is not proven');
is(changed(sub { $_->{rows}[1]{columns}[2][2] = unpack 'H*', 'FAILED' }), '1 1', 'another state');
is(changed(sub { $_->{rows}[0]{seal_no}++ }), '1 1', 'another seal');

$node->safe_psql('utf8', q{SELECT outbox.enqueue('late', '1')});
is(answers('proof', put('proof', query('utf8', q{SELECT outbox.prove(outbox_id) FROM outbox.messages WHERE event_type = 'late'})), '--hash', $hash, '--chain', $chain),
	'1 1', 'a message that is not sealed yet is not proven');

my $leaves = q{SELECT "table", partition, id, attempt_no, leaf FROM outbox.seal_leaves(1)};
sub leaves
{
	my ($name) = @_;

	($out, $err) = ('', '');
	IPC::Run::run([ 'psql', '-XAt', '-F', "\t", '-d', $node->connstr('utf8'), '-c', $leaves ], '<', \undef, '>', \$out, '2>', \$err) or die $err;
	return put($name, $out);
}
my $before = leaves('before');
is(system("$root/verify/outbox-verify compare $before ${\ leaves('again')} >/dev/null") >> 8, 0, 'the leaves are the same as before');
$node->safe_psql('utf8', q{
	CREATE OR REPLACE FUNCTION outbox.append_only() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN coalesce(NEW, OLD); END';
	UPDATE outbox.messages SET payload = '2' WHERE event_type = 'null'});
my $said = `$root/verify/outbox-verify compare $before ${\ leaves('after')}`;
is($? >> 8, 1, 'a changed row is found');
like($said, qr/\ADIFFERS: messages, partition "messages_\w+", ${\ $node->safe_psql('utf8', q{SELECT outbox_id FROM outbox.messages WHERE event_type = 'null'})}\n/, '... and named');

# All seals made again, over what was changed: they agree with each other, but not with the hash that was printed.
$node->safe_psql('utf8', q{
	DELETE FROM outbox.seals;
	SELECT outbox.seal()});
$chain = exported('utf8', 'rewritten');
is(answers('chain', $chain), '0 0', 'a rewritten chain agrees with itself');
is(answers('chain', $chain, '--hash', $hash), '1 1', '... and not with the printed hash');

# ---------------------------------------------------------------- long messages

# 90 MB, six times that as text, and twice that again in a proof: more than a string of the server may have.
$node->safe_psql('postgres', 'CREATE DATABASE long');
$node->safe_psql('long', q{CREATE EXTENSION outbox});
$node->safe_psql('long', q{SELECT outbox.enqueue('huge', to_jsonb(repeat(E'\x01', 90000000)))});
is($node->safe_psql('long', 'SELECT messages FROM outbox.seal()'), '1', 'a huge message is sealed');
like(($node->psql('long', qq{\\set VERBOSITY verbose\nSELECT outbox.prove(outbox_id) FROM outbox.messages WHERE event_type = 'huge'}))[2],
	qr/ERROR:  54000: message \S+ is too long for a proof\n.*HINT:  outbox.seal_leaves\(1\) has the hash/s, '... and too long for a proof');

$node->safe_psql('postgres', q{SELECT count(*) FROM generate_series(1, 60) i, outbox.enqueue('long', to_jsonb(i || repeat('x', 2000000)))});
{
	my $session = session($node);
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	my $peak = sub { slurp_file("/proc/$pid/status") =~ /^VmHWM:\s+(\d+) kB/m ? $1 : die };

	$session->query_safe(q{SELECT count(*) FROM outbox.seal()});
	$session->query_safe(q{SELECT count(*) FROM outbox.verify_seals()});
	cmp_ok($peak->(), '<', 90_000, 'of 120 MB that are sealed and verified a small part is in memory');
	$session->quit;
}

# ---------------------------------------------------------------- signatures

foreach my $name ($key, "$folder/other.pem")
{
	system_or_bail('openssl', 'genpkey', '-algorithm', 'ed25519', '-out', $name);
	chmod 0600, $name;
	system_or_bail('openssl', 'pkey', '-in', $name, '-pubout', '-out', "$name.pub");
}
configure($node, 'outbox.seal_key_file' => $key);
fill('postgres', '');
$chain = exported('postgres', 'signed');
is(answers('chain', $chain, '--key', "$key.pub"), '0 0', 'both accept signatures');
is(answers('chain', $chain, '--key', "$folder/other.pem.pub"), '1 1', '... and refuse those of another key');
proved('postgres', 'signed', '--key', "$key.pub", '--chain', $chain);

done_testing();
