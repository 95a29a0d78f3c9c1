# Seals by the background process, and what happens to them: keys, anchors, crashes, promotion, dumps, prepared
# transactions, steps of the clock, damaged pages, no preloading.
#
# Proves: each is followed by seals that go on, and by no false alarm; and what was changed on disk or in the
# seals is found.
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', preload => 1, streaming => 1, conf => "autovacuum = off\nfull_page_writes = on");

# good NODE: no problem, and the number of seals
sub good
{
	my ($of, $database) = @_;

	return $of->safe_psql($database // 'postgres', q{SELECT coalesce(string_agg(seal_no || ': ' || problem, '; ') FILTER (WHERE NOT ok), 'good') FROM outbox.verify_seals()});
}

sub problems
{
	my ($of) = @_;

	return $of->safe_psql('postgres', q{SELECT string_agg(seal_no || ': ' || problem, E'\n') FROM outbox.verify_seals() WHERE NOT ok});
}

sub seals
{
	my ($of) = @_;

	return $of->safe_psql('postgres', q{SELECT count(*) FROM outbox.seals});
}

# Until there are so many more.
sub wait_for_seals
{
	my ($of, $more) = @_;
	my $now = seals($of);

	$of->poll_query_until('postgres', "SELECT count(*) >= $now + $more FROM outbox.seals") or die 'no seals';
	return;
}

sub unsealed
{
	my ($of) = @_;

	return $of->safe_psql('postgres', q{SELECT count(*) FROM outbox.messages WHERE queue = 'default' AND created_at >= (SELECT max(to_at) FROM outbox.seals)});
}

# ---------------------------------------------------------------- the background process

$node->safe_psql('postgres', q{SELECT outbox.create_queue('outbox_seals')});
configure($node, 'outbox.seal_interval' => '1 s');
$node->safe_psql('postgres', q{SELECT count(*) FROM generate_series(1, 100) i, outbox.enqueue('e' || i, to_jsonb(i))});
$node->poll_query_until('postgres', q{SELECT sum(messages) >= 100 FROM outbox.seals}) or die;
wait_for_seals($node, 2);
is(good($node), 'good', 'the background process seals');
is($node->safe_psql('postgres', q{SELECT count(*) >= 3 AND bool_and(event_type = 'outbox.seal' AND payload -> 'seal_no' IS NOT NULL) FROM outbox.messages WHERE queue = 'outbox_seals'}),
	't', '... and each seal is a message');
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.seals WHERE signature IS NOT NULL OR key_id IS NOT NULL}), '0', '... unsigned');

# ---------------------------------------------------------------- the key

my $key = $node->basedir . '/seal.key';
my $pem = do { system_or_bail('openssl', 'genpkey', '-algorithm', 'ed25519', '-out', $key); slurp_file($key) };
my ($secret) = $pem =~ /\n(\S+)\n/;
chmod 0644, $key or die;
configure($node, 'outbox.seal_key_file' => $key);
is(sqlstate($node, 'SELECT outbox.seal()'), '42501', 'a key that others may read is refused');
chmod 0600, $key or die;
wait_for_seals($node, 1);
$node->poll_query_until('postgres', q{SELECT count(*) >= 2 FROM outbox.seals WHERE length(signature) = 64}) or die;
is(good($node), 'good', 'seals are signed from then on');
is($node->safe_psql('postgres', q{SELECT count(DISTINCT key_id) FROM outbox.seals WHERE key_id ~ '^[0-9a-f]{16}$'}), '1', '... by one key');
{
	my ($last, $hash, $signature) = split /\|/, $node->safe_psql('postgres', q{SELECT seal_no, encode(hash, 'hex'), encode(signature, 'hex') FROM outbox.seals ORDER BY seal_no DESC LIMIT 1});
	my $dir = $node->basedir;

	foreach ([ hash => $hash ], [ signature => $signature ])
	{
		open my $file, '>:raw', "$dir/$_->[0]" or die;
		print $file pack('H*', $_->[1]);
		close $file or die;
	}
	system_or_bail('openssl', 'pkey', '-in', $key, '-pubout', '-out', "$dir/public.pem");
	ok(run_log([ 'openssl', 'pkeyutl', '-verify', '-pubin', '-inkey', "$dir/public.pem", '-rawin', '-in', "$dir/hash", '-sigfile', "$dir/signature" ]),
		'... which OpenSSL finds right');
}
is(sqlstate($node, q{SET outbox.seal_key_file = '/etc/passwd'}), '55P02', 'no session sets the key');
foreach ([ 'is no key' => "no key\n", '55000' ], [ 'is of another kind' => undef, '55000' ], [ 'is empty' => '', '55000' ])
{
	my ($what, $contents, $state) = @$_;
	my $other = $node->basedir . '/other.key';

	unlink $other;
	if (defined $contents) { append_to_file($other, $contents) }
	else { system_or_bail('openssl', 'genpkey', '-algorithm', 'rsa', '-out', $other) }
	chmod 0600, $other or die;
	configure($node, 'outbox.seal_key_file' => $other);
	is(sqlstate($node, 'SELECT outbox.seal()'), $state, "a file that $what");
}
configure($node, 'outbox.seal_key_file' => '/nowhere/key');
is(sqlstate($node, 'SELECT outbox.seal()'), '55000', 'a file that is not there');
like(($node->psql('postgres', 'SELECT outbox.seal()'))[2], qr/HINT:  outbox.seal_key_file must name a file/, '... with a hint');
# What can be verified without the key is verified.
like(problems($node), qr/\A\d+: no signature was checked: could not open the key file "\/nowhere\/key": No such file or directory\z/, '... is a problem that verify_seals tells of');
configure($node, 'outbox.seal_key_file' => $node->basedir . '/other.key');
like(problems($node), qr/\A\d+: no signature was checked: ".*" holds no Ed25519 private key/, '... and so is one without a key');
chmod 0644, $key or die;
configure($node, 'outbox.seal_key_file' => $key);
like(problems($node), qr/\A\d+: no signature was checked: .* may be read or written by others/, '... or that others may read');
chmod 0600, $key or die;
is(sqlstate($node, 'SELECT outbox.seal()'), '00000', 'the right one again');
is(good($node), 'good', '... with which all is well');
unlike(slurp_file($node->logfile), qr/\Q$secret\E/, 'the log does not have the key');

# What a superuser signs with another key, or not at all: a pattern for each seal that is changed, or all that is found.
configure($node, 'outbox.seal_interval' => undef);
seal_all($node, 'postgres') foreach 1 .. 3;
my ($first, $last) = split /\|/, $node->safe_psql('postgres', 'SELECT min(seal_no), max(seal_no) FROM outbox.seals WHERE signature IS NOT NULL');
my $unsigned_tail = qr/^$last: from seal \d+ on no signature stands for the seals, though outbox.seal_key_file is set$/m;
foreach (
	[ "signature = decode(repeat('00', 64), 'hex') WHERE seal_no = $last", [ qr/^$last: the signature is not that of its key$/m, $unsigned_tail ], 'a wrong signature' ],
	[ "signature = NULL WHERE seal_no = $last", [ qr/^$last: the signature is missing$/m, $unsigned_tail ], 'one that is missing' ],
	[ "signature = NULL, key_id = NULL WHERE seal_no = $last", [ qr/^$last: hash is not that of the seal$/m, $unsigned_tail ], 'one that is missing with its key' ],
	[ "key_id = NULL WHERE seal_no = $last", [ qr/^$last: key_id of its signature is missing$/m, qr/^$last: hash is not that of the seal$/m ], 'a key that is not named' ],
	[ "key_id = '0123456789abcdef' WHERE seal_no = $last", [ qr/^$last: hash is not that of the seal$/m, qr/^$last: it is signed by the key 0123456789abcdef, which the file of outbox.seal_key_file does not have$/m ], 'another key' ],
	[ "key_id = key_id || '0' WHERE seal_no = $first", [ qr/^$first: a hash, the signature, key_id or parts have not their form$/m ], 'a key_id that is too long' ],
	[ 'signature = NULL, key_id = NULL WHERE signature IS NOT NULL', [ (map { qr/^$_: hash is not that of the seal$/m } $first .. $last), qr/^$last: from seal 1 on no signature stands/m ], 'all signatures gone' ])
{
	my ($change, $patterns, $what) = @$_;
	my $found = $node->safe_psql('postgres', qq{BEGIN; ALTER TABLE outbox.seals DISABLE TRIGGER USER; UPDATE outbox.seals SET $change;
		SELECT seal_no || ': ' || problem FROM outbox.verify_seals() WHERE NOT ok; ROLLBACK});

	is_deeply([ grep { $found !~ $_ } @$patterns ], [], "$what is found") or diag($found);
}

# Another key: the file keeps the public half of the former one.
my $former = slurp_file($node->basedir . '/public.pem');
system_or_bail('openssl', 'genpkey', '-algorithm', 'ed25519', '-out', "$key.new");
chmod 0600, "$key.new" or die;
configure($node, 'outbox.seal_key_file' => "$key.new");
seal_all($node, 'postgres') foreach 1 .. 2;
like(problems($node), qr/^$last: it is signed by the key [0-9a-f]{16}, which the file of outbox.seal_key_file does not have$/m, 'the former key is not known');
unlike(problems($node), qr/no signature stands/, '... and the last seals are signed');
append_to_file("$key.new", $former);
is(good($node), 'good', '... until its public half is in the file');
configure($node, 'outbox.seal_key_file' => undef);
seal_all($node, 'postgres') foreach 1 .. 2;
configure($node, 'outbox.seal_key_file' => "$key.new");
like(problems($node), qr/\A\d+: from seal \d+ on no signature stands for the seals, though outbox.seal_key_file is set\z/, 'seals without a signature at the end are told of');
is($node->safe_psql('postgres', "SELECT count(*) FROM outbox.verify_seals(1, $last) WHERE NOT ok"), '0', '... not in a range before it');
seal_all($node, 'postgres') foreach 1 .. 2;
is(good($node), 'good', '... and covered by the next signature');
configure($node, 'outbox.seal_interval' => '1 s');

# ---------------------------------------------------------------- open writers

my $writer = session($node);
$writer->query_safe(q{BEGIN});
$writer->query_safe(q{SELECT outbox.enqueue('early', '1')});
$node->safe_psql('postgres', q{BEGIN; SELECT outbox.enqueue('prepared', '1'); PREPARE TRANSACTION 'p'});
$node->safe_psql('postgres', q{SELECT outbox.enqueue('other', '1')});
$node->poll_query_until('postgres', q{SELECT count(*) >= 3 FROM outbox.seal_marks}) or die;
isnt($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.messages WHERE event_type = 'other' AND created_at >= (SELECT max(to_at) FROM outbox.seals)}), '0', 'an open writer delays the seal');
$writer->query_safe(q{COMMIT});
$node->poll_query_until('postgres', q{SELECT count(*) >= 6 FROM outbox.seal_marks}) or die;
isnt($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.messages WHERE event_type = 'other' AND created_at >= (SELECT max(to_at) FROM outbox.seals)}), '0', '... and so does a prepared one');
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM outbox.messages WHERE event_type IN ('early', 'prepared', 'other') AND created_at >= (SELECT max(to_at) FROM outbox.seals)}) or die;
is(good($node), 'good', '... which holds what they wrote');

# ---------------------------------------------------------------- new partitions

is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_indexes WHERE schemaname = 'outbox' AND indexname ~ '_sealed$'}), '0', 'partitions from before have no index on the time');
isnt($node->safe_psql('postgres', q{SET outbox.partition_interval = '60 d'; SELECT FROM outbox.maintain() WHERE action = 'partition made';
	SELECT count(*) FROM pg_indexes WHERE schemaname = 'outbox' AND indexname ~ '_sealed$' AND indexdef ~ 'USING brin'}), '0', 'new ones have one');

# ---------------------------------------------------------------- a crash, a promotion

foreach my $round (1 .. 3)
{
	$node->safe_psql('postgres', q{SELECT outbox.enqueue('before a crash', '1')});
	$node->stop('immediate');
	$node->start;
	$node->safe_psql('postgres', q{SELECT outbox.enqueue('after it', '1')});
	wait_for_seals($node, 2);
}
is(good($node), 'good', 'seals go on after crashes');

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
wait_for_seals($node, 2);
$node->wait_for_catchup($standby, 'replay', $node->lsn('flush'));
is(good($standby), 'good', 'a standby verifies');
$node->stop('immediate');
$standby->promote;
$standby->safe_psql('postgres', q{SELECT outbox.enqueue('after the promotion', '1')});
wait_for_seals($standby, 3);
is(good($standby), 'good', '... and seals once it is promoted');

# ---------------------------------------------------------------- dump and restore

my $restored = new_node('restored', preload => 1, extension => 0, conf => "outbox.seal_interval = 1");
my $dump = $standby->basedir . '/dump.sql';
configure($standby, 'outbox.seal_interval' => undef);
$standby->command_ok([ 'pg_dump', '--file' => $dump, '--dbname' => $standby->connstr('postgres') ], 'dump');
$restored->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE template0');
$restored->command_ok([ 'psql', '--no-psqlrc', '--quiet', '--set' => 'ON_ERROR_STOP=1', '--file' => $dump, '--dbname' => $restored->connstr('copy') ], 'restore');
is(good($restored, 'copy'), 'good', 'what was restored is verified');
$restored->safe_psql('copy', q{SELECT outbox.enqueue('after the restore', '1')});
seal_all($restored, 'copy');
is(good($restored, 'copy'), 'good', '... and sealed on');
is($restored->safe_psql('copy', q{SELECT count(*) FROM outbox.messages JOIN outbox.seals ON created_at >= from_at AND created_at < to_at WHERE event_type = 'after the restore'}), '1', '... with what came since');
$restored->stop;

# ---------------------------------------------------------------- a damaged page

$standby->safe_psql('postgres', 'CHECKPOINT');
my ($file, $seal) = split /\|/, $standby->safe_psql('postgres', q{
	SELECT pg_relation_filepath(m.tableoid), seal_no FROM outbox.messages m JOIN outbox.seals ON created_at >= from_at AND created_at < to_at WHERE event_type = 'e1'});
my $path = $standby->data_dir . "/$file";
$standby->stop;
without_checksums($standby);
my $good_file = slurp_file($path);
{
	my $bytes = $good_file;
	my $place = index $bytes, 'e50';

	substr $bytes, $place, 3, 'e5x';
	open my $to, '+<:raw', $path or die;
	print $to $bytes;
	close $to or die;
}
$standby->start;
is($standby->safe_psql('postgres', q{SELECT seal_no, regexp_replace(problem, '_p\d+(_\d+)?', '') FROM outbox.verify_seals() WHERE NOT ok}), "$seal|partition messages of messages: a row was changed", 'a byte that was changed on disk is found');
$standby->stop;
{
	open my $to, '+<:raw', $path or die;
	print $to $good_file;
	seek $to, 0, 0;
	print $to 'damaged' x 3;
	close $to or die;
}
$standby->start;
like($standby->safe_psql('postgres', q{SELECT string_agg(problem, '; ') FROM outbox.verify_seals() WHERE NOT ok}), qr/partition messages_\w+ of messages cannot be read: invalid page/, 'a page that cannot be read is a problem');
$standby->stop;

# ---------------------------------------------------------------- without preloading

my $plain = new_node('plain', conf => 'autovacuum = off');
my $other = session($plain);
$plain->safe_psql('postgres', q{SELECT outbox.enqueue('a', '1'); SELECT outbox.seal()});
$other->query_safe(q{BEGIN; SELECT outbox.enqueue('open', '1')});
is($plain->safe_psql('postgres', q{SELECT count(*) FROM outbox.seal()}), '0', 'not preloaded: an open writer delays the seal');
$plain->safe_psql('postgres', q{SELECT outbox.enqueue('b', '1')});
$other->query_safe(q{COMMIT});
is($plain->safe_psql('postgres', q{SELECT count(*) FROM outbox.seal()}), '1', '... until it ends');
is(unsealed($plain), '0', '... and holds all');
is(good($plain), 'good', '... as it is');
$other->quit;
$plain->stop;

# ---------------------------------------------------------------- steps of the clock

SKIP:
{
	skip 'no libfaketime', 3 unless faketime();
	my $clock = new_node('clock', conf => 'autovacuum = off');

	$clock->stop('fast');
	start_with_false_clock($clock);
	foreach my $offset (3600, -3600, 7200, 0, -86400, 10)
	{
		set_clock($clock, $offset);
		$clock->safe_psql('postgres', "SELECT outbox.enqueue('at $offset', '1')");
		$clock->safe_psql('postgres', q{SELECT outbox.seal()});
	}
	is(good($clock), 'good', 'the clock may step');
	is($clock->safe_psql('postgres', q{SELECT count(*) FROM outbox.seals}), '6', '... and seals go on');
	is(unsealed($clock), '0', '... over all');
	$clock->stop;
}
done_testing();
