# --check and --dry-run, and what is never shown.
#
# Proves: both say what would be done, by their output and exit status, and claim nothing; a wrong configuration is
# refused with its place; secrets are in no output, log, metric, page, ledger or command line, whatever goes wrong; the
# relay runs as a user without rights in a folder where it may not write.
use strict;
use warnings;

use BrokerTest;
use BrokerTest::Base 'json_lines';
use OutboxTest;
use PostgreSQL::Test::Cluster;
use RelayTest;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $receiver = start_receiver();
my $program = $ENV{OUTBOX_RELAY} // "$BrokerTest::Base::here/../outbox-relay";
my $folder = new_folder('files');
my $listen = free_port();

my %secret = (dsn => 'sesame-of-the-database', bearer => 'sesame-of-the-receiver', signing => 'c2VzYW1lLW9mLWFsbC1zaWduYXR1cmVz', kafka => 'sesame-of-kafka');
my $rest = qq{
[sink.receiver]
type = "http"
allow_private = true
timeout = "5s"
connect_timeout = "1s"
bearer_token = { file = "$folder/bearer" }
signing_secrets = [ { env = "SIGNING" } ]
[sink.lines]
type = "file"
path = "$folder/lines"
[[route]]
event_type = "line"
sink = "lines"
[[route]]
event_type = "request"
sink = "receiver"
topic = "} . $receiver->url('/hook') . qq{"
};

write_file("$folder/bearer", "$secret{bearer}\n");
my $config = relay_config($node, $rest);

$node->safe_psql('postgres', qq{
	ALTER ROLE relay PASSWORD '$secret{dsn}';
	SELECT outbox.enqueue(e, to_jsonb(n)) FROM generate_series(1, 2) n, unnest(ARRAY['line', 'request', 'unknown']) e});

# Output, errors and status of the program with that configuration.
sub run
{
	my ($text, @options) = @_;
	my $file = write_file("$folder/relay.toml", $text);

	local $ENV{SIGNING} = "whsec_$secret{signing}";
	return tool([ $program, '--config', $file, @options ], may_fail => 1);
}

sub untouched
{
	my ($test) = @_;

	return is($node->safe_psql('postgres', q{
		SELECT (SELECT count(*) FROM outbox.pending WHERE claimed_by IS NULL AND attempt_count + release_count = 0), (SELECT count(*) FROM outbox.attempts)}),
		'6|0', "$test: nothing was claimed");
}

# ---------------------------------------------------------------- what would be done

my ($out, $err, $status) = run($config, '--dry-run');

like($err, qr/permission denied/, '--dry-run needs the right to read');
is($status, 1, '... and fails without');
$node->safe_psql('postgres', 'GRANT outbox_readonly TO relay');
($out, $err, $status) = run($config, '--dry-run');
is("$status|$err", '0|', '--dry-run');
my @lines = json_lines($out);
is_deeply([ sort map { join ' ', $_->{event_type}, $_->{sink} // $_->{refused} } @lines ],
	[ ('line lines') x 2, ('request receiver') x 2, ('unknown NO_ROUTE_CONFIGURED') x 2 ], '... shows each message and its way');
is($lines[0]{body}, '1', '... with its body');
untouched('--dry-run');

($out, $err, $status) = run($config, '--check');
is($status, 0, '--check') or diag($out);
like($out, qr/^sink lines.*: reached$/m, '... reaches sinks');
like($out, qr/^source main: connected to PostgreSQL .* as relay$/m, '... and the database');
is(scalar(() = $out =~ /^  \{"outbox_id"/mg), 3, '... and shows three messages');
like($out, qr/^all is well\n\z/m, '... and says so');
is_deeply([ map { $_->{method} } $receiver->requests('/hook') ], [], '... and sends none');
untouched('--check');

$receiver->stop;
($out, $err, $status) = run($config =~ s/sink = "lines"/sink = "lines"\ntopic = "t"/r =~ s/name = "main"/name = "main"\nqueues = ["default", "nowhere"]/r, '--check');
is($status, 1, '--check without a sink, and with a queue that is not there');
like($out, qr/^sink receiver .*: CURL_COULDNT_CONNECT/m, '... says why') or diag($out);
like($out, qr/there is no queue nowhere/, '... both');
like($out, qr/^not all is well\n\z/m, '...');
$receiver->start;
($out, $err, $status) = run($config =~ s/dsn = "[^"]*"/dsn = "host=127.0.0.1 port=1 user=relay password=$secret{dsn}"/r, '--check');
is($status, 1, '--check without a database');
unlike("$out$err", qr/$secret{dsn}/, '... and no secret in it');

$node->safe_psql('postgres', 'CREATE DATABASE elsewhere; CREATE ROLE stranger LOGIN');
($out, $err, $status) = run($config =~ s/'postgres'/'elsewhere'/r, '--check');
is($status, 1, '--check of a database without the extension');
like($out, qr/database elsewhere does not have the extension: CREATE EXTENSION outbox\nnot all is well/, '... says so');
($out, $err, $status) = run($config =~ s/user=relay/user=stranger/r, '--check');
is($status, 1, '--check as a role without rights');
like($out, qr/may not claim: GRANT outbox_executor TO stranger/, '... says which it needs');

foreach my $call ([], [ '--config', "$folder/nowhere.toml" ], [ '--nonsense' ])
{
	is((tool([ $program, @$call ], may_fail => 1))[2], 2, "exit status 2: outbox-relay @$call");
}

foreach my $wrong (
	[ 'a sink that is not there', qq{[[route]]\nsink = "nowhere"\n}, qr/nowhere/ ],
	[ 'a key that is not known', qq{[[route]]\nsink = "lines"\nnonsense = 1\n}, qr/nonsense/ ],
	[ 'no TOML', "= $secret{kafka}\n", qr/line \d+/ ])
{
	my ($name, $more, $what) = @$wrong;

	($out, $err, $status) = run("$config$more", '--check');
	is($status, 2, "$name: refused");
	like($err, $what, '... with its place');
	unlike($err, qr/sesame/, '... and no secret');
}
untouched('a wrong configuration');

# ---------------------------------------------------------------- secrets, without rights

{
	my $dead = free_port();

	$config =~ s/dsn = "([^"]*)"/dsn = { env = "DSN" }/;
	my $dsn = "$1 password=$secret{dsn}";
	$config =~ s/listen = ""/listen = "127.0.0.1:$listen"/;
	my $program_of = $config . qq{
[sink.kafka]
type = "kafka"
brokers = "127.0.0.1:$dead"
timeout = "1s"
[sink.kafka.properties]
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "relay"
"sasl.password" = { env = "SASL" }
[[route]]
event_type = "record"
sink = "kafka"
[[route]]
event_type = "wrong"
sink = "receiver"
topic = "} . $receiver->url('/wrong') . qq{"
};
	# What it sends comes back as an error's text.
	$receiver->answer('/wrong', { status => 400, body => "Bearer $secret{bearer} whsec_$secret{signing}" });
	$node->safe_psql('postgres', q{SELECT outbox.enqueue(e, '1') FROM unnest(ARRAY['record', 'wrong']) e});
	my $relay = start_relay($program_of, env => { DSN => $dsn, SASL => $secret{kafka}, SIGNING => "whsec_$secret{signing}" });

	chmod 0555, $relay->{folder};
	$relay->wait_log(qr/the sink is away/);
	wait_for(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM outbox.dead_letters}) == 3 }, 'what is refused');
	my @requests = $receiver->requests('/hook', count => 2);
	is($requests[0]{headers}{authorization}, "Bearer $secret{bearer}", 'the receiver gets the token');
	like($requests[0]{headers}{'webhook-signature'}, qr/^v1,/, '... and the signature');
	my %seen = (
		log => $relay->log,
		'command line' => slurp('/proc/' . $relay->pid . '/cmdline'),
		ledger => $node->safe_psql('postgres', 'SELECT a FROM outbox.attempts a'),
		map { $_ => tool([ 'curl', '-sS', "http://127.0.0.1:$listen$_" ]) } '/metrics', '/status.json', '/');

	like($seen{'/metrics'}, qr/outbox_published_events_total/, 'metrics are there');
	like($seen{ledger}, qr/HTTP_400/, 'the refusal is in the ledger');
	foreach my $place (sort keys %seen)
	{
		is(join(' ', grep { index($seen{$place}, $secret{$_}) >= 0 } sort keys %secret), '', "no secret in: $place");
	}
	$relay->signal('TERM');
	is($relay->wait_end, 0, 'TERM: exit status 0');
	chmod 0755, $relay->{folder};
}

# ---------------------------------------------------------------- what is missing

foreach my $missing (
	[ 'the right to claim', qr/could not claim.*GRANT outbox_executor/, qr/permission denied/, relay_config($node, $rest) =~ s/user=relay/user=stranger/r ],
	[ 'the extension', qr/could not claim.*CREATE EXTENSION outbox/, qr/schema "outbox" does not exist/, relay_config($node, $rest) =~ s/'postgres'/'elsewhere'/r ])
{
	my ($what, $line, $refused, $text) = @$missing;
	my $before = () = slurp($node->logfile) =~ /$refused/g;
	my $relay = start_relay($text, env => { SIGNING => "whsec_$secret{signing}" });

	$relay->wait_log($line);
	wait_for(sub { (() = slurp($node->logfile) =~ /$refused/g) >= $before + 4 }, 'more claims');
	cmp_ok(scalar(() = $relay->log =~ /$line/g), '<', 4, "without $what the log says what to do, and not at each claim");
	$relay->signal('TERM');
	$relay->wait_end;
}

$node->stop('fast');
done_testing();
