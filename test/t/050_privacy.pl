# The master key of protected fields: where it comes from, where it is not, and what happens without it.
#
# Proves: neither a master key, nor the key of hashes, nor the key of a subject is in a log, a dump, any file of the cluster, what
# pg_stat_statements keeps, or a core file, raw, in hex or in base64, and no error names one; fields in each kind of encoding
# come back, also in a database of another one; a file that others may read is refused, and so is a source that has no
# key; another master key changes nothing, whatever is called; a command works as a file does, and one that fails or never
# ends says so; the master key is changed while producers work, and no value is lost; what was erased after a backup
# comes back with a restore, check() says so, and reapply_erasures() takes it away; a standby reveals, and its promotion
# is noticed; a prepared transaction holds off an erasure.
use strict;
use warnings;

use Digest::SHA 'hmac_sha256_hex';
use IPC::Run;
use MIME::Base64;
use OutboxTest;
use POSIX ();
use Test::More;

my ($first, $second, $wrong) = map { my $n = $_; join '', map { chr(($_ * $_ * $n + 7 * $_ + $n) % 251 + 1) } 1 .. 32 } 3, 5, 11;

my $node = new_node('main', streaming => 1, preload => 1, conf => "shared_preload_libraries = 'outbox,pg_stat_statements'\npg_stat_statements.track = all\nrestart_after_crash = on\noutbox.master_key_command = ''\nlog_statement = all\nlog_min_duration_statement = 0\nlog_min_messages = debug1");
my $do = sub { $node->safe_psql('postgres', shift) };
my $file = $node->basedir . '/master.key';
my $write = sub {
	my ($mode, @keys) = @_;

	# As an editor does: another file in its place.
	open my $out, '>', "$file.new" or die $!;
	print $out @keys;
	close $out or die $!;
	chmod $mode, "$file.new" or die $!;
	rename "$file.new", $file or die $!;
};
my $answer = sub {
	my ($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$_[0]");

	return $err =~ /ERROR:  (.*?\n.*?)(?:\nLOCATION|\z)/s ? $1 =~ s/\n/ /r : $err || $out;
};
$do->('CREATE EXTENSION pg_stat_statements');

my $protect = q{SELECT outbox.protect('{"a": "hidden value"}', 'alice', '{a}')};

# ---- the source
like($answer->($protect), qr/^55000: there is no master key DETAIL:  Cause: neither/, 'no setting: 55000');
configure($node, 'outbox.master_key_file' => $file);
like($answer->($protect), qr/^55000: .* cannot be opened: No such file/, 'no file');
foreach (
	[ 0644, unpack('H*', $first), qr/group or world access/, 'a file that the world may read' ],
	[ 0640, unpack('H*', $first), qr/group or world access/, 'or the group' ],
	[ 0600, '', qr/has no key in it/, 'an empty one' ],
	[ 0600, "# no key\n\n", qr/has no key in it/, 'comments alone' ],
	[ 0600, unpack('H*', $first) . "\n" . 'x' x 64, qr/line 2 of the master keys: is neither/, 'a line that is no key' ],
	[ 0600, substr(unpack('H*', $first), 2), qr/line 1 of the master keys: is neither/, 'a key that is too short' ],
	[ 0600, encode_base64("${first}x", ''), qr/line 1 of the master keys: is neither/, 'or too long' ],
	[ 0600, '#' x 5000, qr/longer than 4095 bytes/, 'a file that is too long' ])
{
	my ($mode, $text, $refused, $what) = @$_;

	$write->($mode, $text);
	like($answer->($protect), $refused, "refused: $what");
}
POSIX::mkfifo("$file.pipe", 0600) or die;
configure($node, 'outbox.master_key_file' => "$file.pipe");
like(($node->psql('postgres', $protect, timeout => $PostgreSQL::Test::Utils::timeout_default))[2], qr/is not a regular file/, 'refused: a pipe, whose writer is not waited for');
configure($node, 'outbox.master_key_file' => $file);
is($do->('SELECT count(*) FROM outbox.subject_hash_key'), '0', 'nothing was made of any');

$write->(0600, "# the first\n\n  " . encode_base64($first));
my $stored = $do->($protect);
is($do->("SELECT outbox.reveal('$stored')"), '{"a": "hidden value"}', 'in base64');
$write->(0600, uc unpack('H*', $first));
is($do->("SELECT outbox.reveal('$stored')"), '{"a": "hidden value"}', 'the same in hex');

# ---- another one
my @calls = ($protect, q{SELECT outbox.protect('{"a": 1}', 'bob', '{a}')}, "SELECT outbox.reveal('$stored')", q{SELECT outbox.erase_subject('alice', 'r', 'b')}, q{SELECT outbox.erase_subject('bob', 'r', 'b')},
	q{SELECT outbox.rotate_master_key()}, q{SELECT outbox.export_erasures()}, q{SELECT outbox.reapply_erasures('{}')}, q{SELECT * FROM outbox.subject_report('alice')},
	q{SELECT outbox.enqueue('e', '{"s": "carol", "a": 1}', 'p')}, q{SELECT outbox.enqueue_batch('p', '[{"event_type": "e", "payload": {"s": "alice", "a": 1}}]')});
$do->(q{SELECT outbox.create_queue('p', protect => '{"subject": "s", "fields": ["a"]}'); SELECT outbox.erase_subject('nobody', 'r', 'b')});
my $sums = checksums($node, 'postgres');
$write->(0600, unpack('H*', $wrong));
like($answer->($_), qr/^22023: AUTHENTICATION_FAILED: the master key is another one/, "another master key: $_") foreach @calls;
$write->(0600, unpack('H*', $wrong) . "\n" . unpack('H*', $second));
like($answer->('SELECT outbox.rotate_master_key()'), qr/^22023: AUTHENTICATION_FAILED/, 'not one of those that are there');
unlink $file or die $!;
like($answer->($_), qr/^55000: there is no master key/, "none: $_") foreach @calls;
is_deeply(checksums($node, 'postgres'), $sums, 'nothing was written or destroyed');
is($do->(q{SELECT severity, object FROM outbox.check() WHERE object ~ 'master'}), 'error|outbox.master_key_file', 'check() says so');
is($do->(q{SELECT created FROM outbox.enqueue('plain', '{"a": 1}')}), 't', 'a queue that does not protect goes on');

# ---- a command
# The server logs what a setting is changed to, so the key is not in it.
my $key_of_command = $node->basedir . '/of_command';
PostgreSQL::Test::Utils::append_to_file($key_of_command, unpack('H*', $first));
configure($node, 'outbox.master_key_command' => "cat $key_of_command");
like($answer->($protect), qr/^55000: .*both outbox/, 'not both');
configure($node, 'outbox.master_key_file' => undef);
is($do->("SELECT outbox.reveal('$stored')"), '{"a": "hidden value"}', 'a command');
configure($node, 'outbox.master_key_command' => "cat $key_of_command; exit 3");
like($answer->($protect), qr/^55000: .*ended with exit code 3/, 'one that fails');
configure($node, 'outbox.master_key_command' => 'kill -9 $$');
like($answer->($protect), qr/^55000: .*ended by signal 9/, 'one that is killed');
configure($node, 'outbox.master_key_command' => 'sleep 1000 & wait');
my $hangs = session($node);
start_query($hangs, $protect);
ok($node->poll_query_until('postgres', qq{SELECT query ~ 'protect' AND state = 'active' FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query ~ 'hidden value'}), 'one that hangs');
$do->(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query ~ 'hidden value'});
like((result_of($hangs))[1], qr/canceling statement/, '... can be canceled');
$hangs->quit;
$write->(0600, unpack('H*', $first));
configure($node, 'outbox.master_key_command' => undef, 'outbox.master_key_file' => $file);
is($do->("SELECT outbox.reveal('$stored')"), '{"a": "hidden value"}', 'the file again');

# ---- rotation under load
my $script = $node->basedir . '/load.sql';
PostgreSQL::Test::Utils::append_to_file($script, q{\set s random(1, 50)
SELECT outbox.enqueue('load', jsonb_build_object('s', 's' || :s, 'a', :s), 'p');
});
my $load = IPC::Run::start([ 'pgbench', '-n', '-c', '4', '-t', '200', '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ], '>', \my $load_out, '2>', \my $load_err);
foreach my $round (1 .. 6)
{
	my ($new, $old) = $round % 2 ? ($second, $first) : ($first, $second);

	$write->(0600, unpack('H*', $new) . "\n" . unpack('H*', $old) . "\n");
	cmp_ok($do->('SELECT outbox.rotate_master_key()'), '>=', 1, "rotation $round");
}
IPC::Run::finish($load);
is($load_err =~ /ERROR|FATAL|aborted/ ? $load_err : '', '', 'no producer failed');
is($do->(q{SELECT count(*) || ' ' || count(*) FILTER (WHERE outbox.reveal(payload) = jsonb_build_object('s', 's' || (outbox.reveal(payload) ->> 'a'), 'a', outbox.reveal(payload) -> 'a')) FROM outbox.messages WHERE event_type = 'load'}),
	'800 800', 'every value can be read');
$do->('SELECT outbox.rotate_master_key()');
is($do->(q{SELECT count(*) FROM outbox.check(deep => true) WHERE object ~ 'subject'}), '0', 'no key is under a former master key');
$write->(0600, unpack('H*', $first));
is($do->(q{SELECT count(*) FROM outbox.messages WHERE event_type = 'load' AND outbox.reveal(payload) ? 'a'}), '800', '... which is needed no more');
is($do->(q{SELECT count(*) - count(DISTINCT payload #>> '{a,$enc,n}') FROM outbox.messages WHERE event_type = 'load'}), '0', 'no nonce twice');

# ---- a standby
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', "SELECT outbox.reveal('$stored')"), '{"a": "hidden value"}', 'a standby reveals');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM outbox.check() WHERE object ~ 'erasures'}), '0', '... and has nothing to say of erasures');

# ---- a prepared transaction
$do->(q{BEGIN; SELECT outbox.enqueue('prepared', '{"s": "dora", "a": 1}', 'p'); PREPARE TRANSACTION 'x'});
my $erasing = session($node);
start_query($erasing, q{SELECT outbox.erase_subject('dora', 'r', 'b') IS NOT NULL});
wait_until_blocked($node, $erasing, 'an erasure');
$do->(q{COMMIT PREPARED 'x'});
is(scalar result_of($erasing), 't', 'an erasure waits for a prepared transaction');
is($do->(q{SELECT messages FROM outbox.erasures ORDER BY erased_at DESC LIMIT 1}), '1', '... and counts its message');

$erasing->quit;

# ---- the keys themselves, as the test makes them out
# AES-256-GCM without its tag is CTR, from 2 on.
sub unsealed
{
	my ($key, $bytes) = @_;
	my $nonce = substr $bytes, 0, 12;
	my $text = substr $bytes, 12, -16;
	my $plain;

	IPC::Run::run([ 'openssl', 'enc', '-d', '-aes-256-ctr', '-K', unpack('H*', $key), '-iv', unpack('H*', $nonce) . '00000002' ], '<', \$text, '>', \$plain) or die;
	return $plain;
}

my $current = $first;
my $hash_key = unsealed($current, pack 'H*', $do->(q{SELECT encode(wrapped, 'hex') FROM outbox.subject_hash_key}));
my %key_of = map { my ($sid, $wrapped) = split /\|/; ($sid => unsealed($current, pack 'H*', $wrapped)) } split /\n/, $do->(q{SELECT sid, encode(wrapped, 'hex') FROM outbox.subject_keys});
my ($sid, $sealed) = split /\|/, $do->("SELECT p ->> 'sid', encode(decode(p ->> 'n', 'base64') || decode(p ->> 'c', 'base64'), 'hex') FROM (SELECT '$stored'::jsonb #> '{a,\$enc}') v(p)");
is($do->("SELECT encode(outbox.subject_hash('alice'), 'hex')"), hmac_sha256_hex('outbox subject 1alice', $hash_key), 'the key of hashes is known here');
is(unsealed($key_of{$sid}, pack 'H*', $sealed), '"hidden value"', '... and so are the keys of subjects');

# ---- erased after a backup
my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, 'postgres' ], 'a dump');
$node->wait_for_catchup($standby);
$standby->promote;
$do->(q{SELECT outbox.erase_subject('alice', 'r', 'b')});
like($do->("SELECT outbox.reveal('$stored')"), qr/\$erased/, 'erased after the backup');
my @exported = split /\n/, $do->('SELECT outbox.export_erasures()');
my $again = sub {
	my ($there, $what) = @_;
	my $ask = sub { $there->safe_psql($_[1] // 'postgres', $_[0]) };
	my $database = $what eq 'a dump' ? 'restored' : 'postgres';

	is($ask->("SELECT outbox.reveal('$stored')", $database), '{"a": "hidden value"}', "$what brings it back");
	is($ask->(q{SELECT severity FROM outbox.check() WHERE object = 'outbox.erasures'}, $database), 'warning', '... and check() warns');
	is($ask->('SELECT outbox.reapply_erasures(ARRAY[' . join(', ', map { OutboxTest::quoted($_) } @exported) . ']::jsonb[])', $database), '1', '... until the erasures were applied');
	is($ask->(q{SELECT count(*) FROM outbox.check() WHERE object = 'outbox.erasures'}, $database), '0', '... and no longer');
	like($ask->("SELECT outbox.reveal('$stored')", $database), qr/\$erased/, '... it is erased again');
	is($ask->(q{SELECT count(*) FROM outbox.messages WHERE event_type = 'load' AND outbox.reveal(payload) ? 'a'}, $database), '800', '... and others are not');
};
$do->('CREATE DATABASE restored');
$node->command_ok([ 'psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-f', $dump, 'restored' ], 'restored');
$again->($node, 'a dump');
$again->($standby, 'a promotion');

# ---- encodings
my %letters = (UTF8 => "\xc3\xa4\xe6\x97\xa5\xf0\x9f\x98\x80", LATIN1 => "\xc3\xa4\xc3\xbf", EUC_JP => "\xe6\x97\xa5\xe6\x9c\xac", SQL_ASCII => "\xc3\xa4\xe9\xff");

foreach my $encoding (sort keys %letters)
{
	my $database = lc $encoding;
	my $letters = $letters{$encoding};
	my $field = qq{{"$letters": "$letters", "s": "$letters", "list": [{"n$letters": ["$letters", 1]}]}};
	my $ask;

	$do->("CREATE DATABASE $database ENCODING '$encoding' LOCALE 'C' TEMPLATE template0");
	local $ENV{PGCLIENTENCODING} = $encoding eq 'SQL_ASCII' ? 'SQL_ASCII' : 'UTF8';
	$ask = sub { $node->safe_psql($database, $_[0]) };
	$ask->(qq{CREATE EXTENSION outbox; SELECT outbox.create_queue('q', protect => '{"subject": "s", "fields": ["$letters", "\$.list[*].n$letters"]}')});
	$ask->(qq{SELECT outbox.enqueue('e', '$field', 'q')});
	is($ask->(qq{SELECT count(*) FROM regexp_matches((SELECT payload::text FROM outbox.messages WHERE queue = 'q'), '[\$]enc', 'g')}), '2', "$encoding: protected");
	is($ask->(qq{SELECT outbox.reveal(payload) = '$field' FROM outbox.messages WHERE queue = 'q'}), 't', '... revealed');
	is($ask->(qq{SELECT payload = '$field' FROM outbox.subject_report('$letters')}), 't', '... reported');
	is($ask->(q{SELECT bool_and(outbox.reveal(outbox.protect(jsonb_build_object(v, v), v, ARRAY[v])) = jsonb_build_object(v, v)) FROM convert_from('\xa2af', 'EUC_JP') v}), 't', '... also a character without UTF-8 form')
		if $encoding eq 'EUC_JP';
	next if $encoding eq 'LATIN1';
	$ask->(qq{SELECT outbox.erase_subject('$letters', 'r$letters', 'b')});
	like($ask->(q{SELECT outbox.reveal(payload) FROM outbox.messages WHERE queue = 'q'}), qr/erased.*erased/, '... erased');
	is($ask->(q{SELECT outbox.reapply_erasures(array_agg(e)) FROM outbox.export_erasures() e}), '0', '... and applied again');
}
# Where no encoding is known, what is cut is read by a client of UTF-8 all the same.
{
	local $ENV{PGCLIENTENCODING} = 'UTF8';
	$node->safe_psql('sql_ascii', q{
		SELECT outbox.enqueue('cut', to_jsonb(n)) FROM generate_series(1, 3) n;
		SELECT outbox.cancel(outbox_id, repeat('x', (payload #>> '{}')::int) || repeat(E'\xe6\x97\xa5', 3000)) FROM outbox.messages WHERE event_type = 'cut'});
	like($node->safe_psql('sql_ascii', q{SELECT error_message FROM outbox.attempts}), qr/^(?:x+(?:\xe6\x97\xa5){2700,} \[cut: 900\d bytes\]\n?){3}$/, 'SQL_ASCII: texts are cut between characters of UTF-8');
}
# What was protected in one encoding is revealed and erased in another one.
$ENV{PGCLIENTENCODING} = 'UTF8';
$node->command_ok([ 'pg_dump', '-f', "$dump.latin1", 'latin1' ], 'a dump of LATIN1');
$do->(q{CREATE DATABASE as_utf8 ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0});
$node->command_ok([ 'psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-f', "$dump.latin1", 'as_utf8' ], 'restored into UTF8');
is($node->safe_psql('as_utf8', qq{SELECT outbox.reveal(payload) ->> '$letters{LATIN1}' FROM outbox.messages WHERE queue = 'q'}), $letters{LATIN1}, 'the field is that of the other encoding');
$node->safe_psql('latin1', qq{SELECT outbox.erase_subject('$letters{LATIN1}', 'r$letters{LATIN1}', 'b')});
my @certificates = split /\n/, $node->safe_psql('latin1', 'SELECT outbox.export_erasures()');
is($node->safe_psql('as_utf8', 'SELECT outbox.reapply_erasures(ARRAY[' . join(', ', map { OutboxTest::quoted($_) } @certificates) . ']::jsonb[])'), '1', '... and its erasure is applied there');
delete $ENV{PGCLIENTENCODING};

# ---- keys are nowhere
$do->('CHECKPOINT');
my @keys;
foreach my $key ($first, $second, $wrong, $hash_key, values %key_of)
{
	push @keys, $key, unpack('H*', $key), uc unpack('H*', $key), encode_base64($key, '') =~ s/=+\z//r;
}
my $pattern = join '|', map { quotemeta } @keys;
my @found;
my $statements = $node->basedir . '/statements';
PostgreSQL::Test::Utils::append_to_file($statements, $do->('SELECT query FROM pg_stat_statements'));
foreach my $path (grep { -f } $dump, $statements, $node->logfile, split /\0/, qx(find '@{[ $node->data_dir ]}' -type f -print0))
{
	# The server removes files meanwhile, such as its relation cache.
	my $content = eval { PostgreSQL::Test::Utils::slurp_file($path) } // do { die $@ if -e $path; '' };

	push @found, $path if $content =~ /$pattern/;
}
is_deeply(\@found, [], 'no key is in a log, a dump, what pg_stat_statements keeps, or a file of the cluster');
ok(-s $dump && PostgreSQL::Test::Utils::slurp_file($_) =~ /outbox\.protect/, "... which were looked at: $_") foreach $statements, $node->logfile;
is(join(', ', PostgreSQL::Test::Utils::slurp_file($statements) =~ /.*(?:hidden value|alice|dora).*/g), '', '... and pg_stat_statements keeps no plain text and no subject');
$do->('CREATE ROLE reader LOGIN');
like($node->psql('postgres', 'SHOW outbox.master_key_file', extra_params => [ '-U', 'reader' ]) ? 'refused' : 'shown', qr/refused/, 'the settings are for superusers to read');

# ---- memory
# What a core file of a process would have, and what it leaves out.
sub memory_of
{
	my ($pid) = @_;
	my (@areas, %memory);

	open my $maps, '<', "/proc/$pid/smaps" or return;
	while (<$maps>)
	{
		push @areas, [ hex $1, hex $2, $3 ] if /^([0-9a-f]+)-([0-9a-f]+) (\S+) (?!.*\[v)/;
		$areas[-1][3] = $1 =~ /\bdd\b/ ? 'left out' : 'dumped' if /^VmFlags: (.*)/ && @areas;
	}
	open my $memory, '<:raw', "/proc/$pid/mem" or return;
	foreach (grep { $_->[2] =~ /^r/ } @areas)
	{
		my ($from, $to, undef, $what) = @$_;
		my $bytes = '';

		sysseek $memory, $from, 0 or next;
		while (length $bytes < $to - $from)
		{
			last unless sysread $memory, $bytes, $to - $from - length $bytes, length $bytes;
		}
		$memory{$what} .= $bytes . "\n";
	}
	return \%memory;
}

my $works = session($node);
my $pid = $works->query_safe('SELECT pg_backend_pid()');
$works->query_safe($_) foreach $protect, q{SELECT outbox.enqueue('load', '{"s": "s1", "a": 1}', 'p')}, q{SELECT outbox.reveal(payload) FROM outbox.messages WHERE event_type = 'load'},
	q{SELECT outbox.erase_subject('erased in this session', 'r', 'b')}, q{SELECT count(*) FROM outbox.subject_report('s1')}, q{SELECT outbox.export_erasures()};
$write->(0600, unpack('H*', $second) . "\n" . unpack('H*', $first) . "\n");
$works->query_safe('SELECT outbox.rotate_master_key()');
SKIP:
{
	my $memory = memory_of($pid);

	skip 'the memory of other processes cannot be read here', 3 unless $memory;
	cmp_ok(length $memory->{dumped}, '>', 10_000_000, 'the memory of a session that has used the keys');
	like($memory->{'left out'} // '', qr/\Q$second\E/, '... has the master key where no core file has it');
	is(scalar(() = $memory->{dumped} =~ /$pattern/g), 0, '... and no key elsewhere');
}

# ---- a core file
SKIP:
{
	my $form = PostgreSQL::Test::Utils::slurp_file('/proc/sys/kernel/core_pattern');

	skip 'core files are not made here, or go elsewhere', 2
		unless $form =~ /^core/ && system("prlimit --core=unlimited:unlimited --pid $pid 2>/dev/null") == 0;
	kill 'ABRT', $pid;
	$node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)") or die;
	my ($core) = glob($node->data_dir . '/core*');

	ok(defined $core && -s $core > 1_000_000, 'a core file');
	is(defined $core ? scalar(() = PostgreSQL::Test::Utils::slurp_file($core) =~ /$pattern/g) : '', 0, '... has no key');
}

done_testing();
