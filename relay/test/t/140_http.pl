# A relay and HTTP endpoints that are slow, wrong, away or not who they say.
#
# Proves: 64 requests are under way at once and no more, on connections that are kept, by HTTP/2 on a single one; each is signed; a
# response that is wrong, broken, missing or a redirect ends as the table of codes says; Retry-After is waited for; a certificate
# that is wrong, of the endpoint or of the relay, sends nothing and loses nothing; a host that is away, and one that never answers, holds up no other;
# a private address is not connected to unless it is allowed; --check names a host that does not exist. After each: every committed message was accepted as
# often as the ledger says, and at least once. (DNS rebinding is in unit/http_test.cpp, where names resolve as the test wants.)
use strict;
use warnings;

use BrokerTest;
use Digest::SHA 'hmac_sha256_base64';
use MIME::Base64;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use RelayTest;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $receiver = start_receiver();
my $other = start_receiver();
my $secure = start_receiver(tls => 1);
my @secrets = map { encode_base64($_ x 32, '') } 'a', 'b';

$node->safe_psql('postgres', q{SELECT outbox.alter_queue('default', backoff_base => '10ms', backoff_cap => '100ms')});

# Events go to the path of their name: tls.* where that is said, old.* there by HTTP/1.1, other.* to the second receiver, the rest to the first.
sub config
{
	my (%options) = @_;
	my $tls = $options{tls} // $secure;
	my $ca = $options{ca} // test_ca()->{ca};
	my $client = $options{client} ? qq{client_certificate = "$options{client}{cert}"\nclient_key = "$options{client}{key}"\n} : '';
	my $common = qq{type = "http"\nallow_networks = [ "127.0.0.0/8", "::1" ]\nca_file = "$ca"\nmax_in_flight = 64\nmax_per_endpoint = 64\n$client}
		. "signing_secrets = [ \"whsec_$secrets[0]\", \"$secrets[1]\" ]\n";
	my $url = sub { my ($to, $sink, $match) = @_; return qq{[[route]]\nsink = "$sink"\nevent_type = "$match"\ntopic = "} . $to->url('/{event_type}') . qq{"\n} };

	return relay_config($node, "[sink.hooks]\n${common}[sink.quick]\n${common}timeout = \"1s\"\n[sink.old]\n${common}http_version = \"1.1\"\n[sink.public]\ntype = \"http\"\n"
			. $url->($tls, 'hooks', 'tls.*') . $url->($tls, 'old', 'old.*') . $url->($other, 'hooks', 'other.*') . $url->($other, 'quick', 'hang.*')
			. $url->($receiver, 'quick', 'never') . $url->($receiver, 'public', 'private') . $url->($receiver, 'hooks', '*'));
}

sub enqueue
{
	my ($type, $count) = @_;

	return $node->safe_psql('postgres', "SELECT outbox.enqueue('$type', to_jsonb(n)) FROM generate_series(1, " . ($count // 1) . ') n');
}

sub ids { return map { $_->{headers}{'outbox_id'} } @_; }

# How the attempts of the messages of a type ended, in order.
sub attempts
{
	my ($type) = @_;

	return $node->safe_psql('postgres', qq{
		SELECT concat_ws(' ', a.state, a.error_code, a.response_code) FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id)
		WHERE m.event_type = '$type' ORDER BY outbox_id, attempt_no}) =~ s/\n/, /gr;
}

my $relay = start_relay(config());

# ---------------------------------------------------------------- many at once

$receiver->answer('/many', ({ hold => 'head' }) x 64, { headers => { 'X-Request-Id' => 'r-17' } });
enqueue('many', 500);
$receiver->wait_held('/many', 64);
is(scalar(my @now = $receiver->requests('/many')), 64, '64 requests are under way at once, and no more');
$receiver->release('/many');
wait_until_done($node);
my @many = $receiver->requests('/many', count => 500);
my %connections = map { $_->{connection} => 1 } @many;

is(scalar(keys %connections), 64, '... on connections that are kept');
is(scalar(grep { my $r = $_; my $h = $r->{headers};
		$h->{'webhook-signature'} ne join ' ', map { 'v1,' . hmac_sha256_base64("$h->{'webhook-id'}.$h->{'webhook-timestamp'}.$r->{body}", $_ x 32) . '=' } 'a', 'b' } @many),
	0, '... each signed with both secrets');
is(scalar(grep { $_->{headers}{'webhook-id'} ne $_->{headers}{'idempotency-key'} || $_->{method} ne 'POST' || $_->{headers}{'content-type'} ne 'application/json' } @many),
	0, '... with its key');
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.attempts WHERE reference = 'r-17' AND response_code = '200'}), '436', '... the reference is in the ledger');
proven($node, 'many', [ ids(@many) ]);

# ---------------------------------------------------------------- HTTP/2

$secure->answer('/tls.many', ({ hold => 'head' }) x 64, {});
enqueue('tls.many', 300);
$secure->wait_held('/tls.many', 64);
$secure->release('/tls.many');
wait_until_done($node);
@many = $secure->requests('/tls.many', count => 300);
is_deeply([ map { $_->{http} } grep { $_->{http} ne '2' } @many ], [], 'TLS: HTTP/2');
%connections = map { $_->{connection} => 1 } @many;
is(scalar(keys %connections), 1, '... 64 at once on one connection');
proven($node, 'HTTP/2', [ ids(@many) ], where => "event_type = 'tls.many'");

enqueue('old.many', 20);
wait_until_done($node);
@many = $secure->requests('/old.many', count => 20);
is_deeply([ map { $_->{http} } grep { $_->{http} ne '1.1' } @many ], [], 'http_version = "1.1": HTTP/1.1, though the receiver has HTTP/2');
proven($node, 'HTTP/1.1', [ ids(@many) ], where => "event_type = 'old.many'");

# ---------------------------------------------------------------- wrong responses

# Name; the first response; the first attempt. (When a kept connection ends without a response libcurl tries another one: the second receiver has none.)
foreach my $case (
	[ 'unavailable', { status => 503 }, 'RETRYABLE HTTP_503 503' ],
	[ 'odd', { status => 599 }, 'RETRYABLE HTTP_5XX 599' ],
	[ 'forbidden', { status => 403 }, 'RETRYABLE HTTP_403 403' ],
	[ 'login', { status => 401 }, 'RETRYABLE HTTP_401 401' ],
	[ 'moved', { redirect => $other->url('/elsewhere') }, 'RETRYABLE HTTP_302 302' ],
	[ 'other.nothing', { close => 'before' }, 'RETRYABLE CURL_GOT_NOTHING' ],
	[ 'middle', { close => 'middle', size => 1000 }, 'RETRYABLE CURL_PARTIAL_FILE' ],
	[ 'tls.nothing', { close => 'before' }, 'RETRYABLE CURL_HTTP2_STREAM' ],
	[ 'tls.middle', { close => 'middle', size => 1000 }, 'RETRYABLE CURL_HTTP2_STREAM' ],
	[ 'never', { never => 1 }, 'RETRYABLE TIMEOUT' ])
{
	my ($type, $first, $attempt) = @$case;
	my $to = $type =~ /^tls/ ? $secure : $type =~ /^other/ ? $other : $receiver;

	$to->answer("/$type", $first, {});
	enqueue($type);
	wait_until_done($node);
	is(attempts($type), "$attempt, DISPATCHED 200", $type);
	my @requests = $to->requests("/$type", count => 2);
	proven($node, $type, [ ids(@requests[ 1 .. $#requests ]) ], where => "event_type = '$type'");
}
foreach my $case (
	[ 'bad', { status => 400, body => 'no' }, 'FAILED HTTP_400 400' ],
	[ 'gone', { status => 410 }, 'FAILED HTTP_410 410' ],
	[ 'teapot', { status => 499 }, 'FAILED HTTP_4XX 499' ],
	[ 'moved.for.good', { status => 301, headers => { Location => $other->url('/elsewhere') } }, 'FAILED HTTP_301 301' ])
{
	my ($type, $first, $attempt) = @$case;

	$receiver->answer("/$type", $first);
	enqueue($type);
	wait_until_done($node);
	is(attempts($type), $attempt, $type);
	is(scalar(my @requests = $receiver->requests("/$type")), 1, '... once');
	proven($node, $type, [], where => "event_type = '$type'", failed => 1);
}
is($node->safe_psql('postgres', q{SELECT error_message FROM outbox.attempts WHERE error_code = 'HTTP_400'}), 'no', 'what was said is in the ledger');
is(scalar(my @followed = $other->requests('/elsewhere')), 0, 'no redirect was followed');

# A response of which only the beginning is read.
$receiver->answer('/endless', { size => 10_000_000 });
enqueue('endless');
wait_until_done($node);
is(attempts('endless'), 'DISPATCHED 200', 'a response that is too long');
proven($node, 'endless', [ ids($receiver->requests('/endless')) ], where => "event_type = 'endless'");

# By the database's clock; the queue itself would wait 100 ms at most.
$receiver->answer('/later', { status => 429, headers => { 'Retry-After' => 2 } }, {});
enqueue('later');
wait_until_done($node);
is($node->safe_psql('postgres', q{
		SELECT b.claimed_at - a.created_at > '1.9s' FROM outbox.attempts a JOIN outbox.attempts b USING (outbox_id) JOIN outbox.messages USING (outbox_id)
		WHERE event_type = 'later' AND a.error_code = 'HTTP_429' AND a.attempt_no = 1 AND b.state = 'DISPATCHED'}), 't', 'Retry-After is waited for');
proven($node, 'Retry-After', [ ids(($receiver->requests('/later', count => 2))[1]) ], where => "event_type = 'later'");

# ---------------------------------------------------------------- who it is

# TLS 1.3 lets a client without a certificate, or with a wrong one, finish its handshake: so --check, which sends nothing, cannot
# see the last two.
my $mutual = start_receiver(tls => 1, clients => 1);
my $client = test_ca()->{client};
my @strangers = (
	[ 'another name', 'PEER_FAILED_VERIFICATION', tls => start_receiver(tls => 'other') ],
	[ 'expired', 'PEER_FAILED_VERIFICATION', tls => start_receiver(tls => 'expired') ],
	[ 'another authority', 'PEER_FAILED_VERIFICATION', ca => test_ca()->{stranger_ca} ],
	[ 'no authority', 'SSL_CACERT_BADFILE', ca => test_ca()->{empty} ],
	[ 'the key of another', 'SSL_CERTPROBLEM', tls => $mutual, client => { cert => $client->{cert}, key => test_ca()->{key} } ],
	[ 'a certificate of strangers', 'SSL_CLIENTCERT', tls => $mutual, client => { cert => test_ca()->{stranger_ca}, key => test_ca()->{stranger_key} } ],
	[ 'no certificate', 'SSL_CLIENTCERT', tls => $mutual ]);
my $round = 0;

foreach my $stranger (@strangers)
{
	my ($name, $code, %wrong) = @$stranger;
	my $type = 'tls.' . ++$round;
	my $server = $wrong{tls} // $secure;
	my $away = qr/the sink is away.*endpoint=\S+:${\ $server->port} .*code=CURL_$code\b/;
	my $before = () = $relay->log =~ /$away/g;

	check_names(config(%wrong), {}, hooks => "CURL_$code") if $code ne 'SSL_CLIENTCERT';
	reload($relay, config(%wrong));
	enqueue($type, 20);
	wait_for(sub { (() = $relay->log =~ /$away/g) > $before }, 'the sink to be away');
	unlike(attempts($type), qr/\b(?:FAILED|DISPATCHED)\b/, "$name: no message ends");
	is(scalar(my @sent = $server->requests("/$type")), 0, '... nothing is sent');
	reload($relay, config(tls => $mutual, client => $client));
	wait_until_done($node);
	proven($node, $name, [ ids($mutual->requests("/$type")) ], where => "event_type = '$type'");
}

# A name that is none, and one that comes from messages.
{
	my ($status, $out) = check(relay_config($node, qq{
[sink.hooks]
type = "http"
[[route]]
event_type = "a"
url = "https://nowhere.invalid/x"
[[route]]
url = "https://{aggregate_type}.example/"
}));

	is($status, 1, '--check of a host that does not exist');
	like($out, qr{^sink hooks https://nowhere\.invalid(?::443)?: CURL_COULDNT_RESOLVE_HOST }m, '... names it') || diag($out);
	like($out, qr/^sink hooks: not tried, since its hosts come from messages$/m, '... and says what it does not try');
}

# ---------------------------------------------------------------- hosts that are away

$other->stop;
enqueue('other.away', 100);
wait_for(sub { attempts('other.away') =~ /CURL_COULDNT_CONNECT/ }, 'the host to be missed');
enqueue('alive', 200);
wait_until_done($node, "event_type = 'alive'");
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.pending JOIN outbox.messages USING (outbox_id) WHERE event_type = 'other.away'}), '100', 'a host that is away holds up no other');
proven($node, 'alive', [ ids($receiver->requests('/alive')) ], where => "event_type = 'alive'");
$other->start;
wait_until_done($node);
proven($node, 'away', [ ids($other->requests('/other.away')) ], where => "event_type = 'other.away'");

$other->accept('ignore');
enqueue('hang.on', 100);
enqueue('alive2', 200);
wait_for(sub { attempts('hang.on') =~ /TIMEOUT/ }, 'the host not to answer');
wait_until_done($node, "event_type = 'alive2'");
is(scalar(my @answered = $other->requests('/hang.on')), 0, 'a host that does not answer holds up no other');
proven($node, 'alive', [ ids($receiver->requests('/alive2')) ], where => "event_type = 'alive2'");
$other->accept('serve');
wait_until_done($node);
proven($node, 'hanging', [ ids($other->requests('/hang.on')) ], where => "event_type = 'hang.on'");

# ---------------------------------------------------------------- private addresses

enqueue('private');
wait_until_done($node);
is(attempts('private'), 'FAILED ADDRESS_REFUSED', 'a private address');
proven($node, 'private', [ ids($receiver->requests('/private')) ], where => "event_type = 'private'", failed => 1);

# ---------------------------------------------------------------- the end

$relay->signal('TERM');
is($relay->wait_end, 0, 'TERM: exit status 0');
unlike(slurp($relay->{logfile}), qr/\Q$secrets[0]\E|\Q$secrets[1]\E/, 'no secret is in the log');
is($node->safe_psql('postgres', q{SELECT count(*) FROM outbox.attempts WHERE state = 'ZOMBIE_REQUEUE'}), '0', 'no lease was lost');
consistent($node, 'consistent');
$node->stop('fast');
done_testing();
