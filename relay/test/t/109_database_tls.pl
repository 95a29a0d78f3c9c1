# TLS between the relay and PostgreSQL, as source and as sink.
#
# Proves: with a certificate for another name, one that has run out, one by an authority that is not trusted, without any authority,
# without the client's certificate that the server wants, and where the server has no TLS at all, --check fails and says
# so, and nothing is claimed from such a source, and nothing handed to such a sink; once it is right, each message is there
# exactly once.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use RelayTest;
use Test::More;

my $ca = test_ca();
my $node = new_node('main', preload => 1, conf => <<"END");
outbox.notify_gather = '1ms'
listen_addresses = '127.0.0.1'
ssl_ca_file = '$ca->{ca}'
END
my $port = $node->port;

write_file($node->data_dir . '/pg_hba.conf', "local all all trust\nhostssl all relay 127.0.0.1/32 trust clientcert=verify-ca\n");
serve('right');
$node->safe_psql('postgres', q{
	CREATE TABLE taken (event_id uuid PRIMARY KEY, outbox_id uuid);
	CREATE FUNCTION take(event_ids uuid[], event_types text[], aggregate_types text[], aggregate_ids text[], partition_keys text[],
		sequence_ids bigint[], bodies jsonb[], headers jsonb[], created_at timestamptz[]) RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
		INSERT INTO public.taken SELECT id, (h->>'outbox_id')::uuid FROM unnest(event_ids, headers) AS event(id, h)
	$$;
	SELECT outbox.alter_queue('default', max_attempts => NULL, backoff_base => '10ms', backoff_cap => '100ms')});

# The server's certificate for new connections: 'right', 'other', 'expired', or 'none' for no TLS.
sub serve
{
	my ($which) = @_;
	my $files = $ca->{$which} // $ca;
	my $mark = -s $node->logfile;

	$node->append_conf('postgresql.conf', "ssl_cert_file = '$files->{cert}'\nssl_key_file = '$files->{key}'\nssl = " . ($which eq 'none' ? 'off' : 'on'));
	$node->reload;
	# By the time it answers, a new connection has what was read.
	return wait_for(sub { slurp($node->logfile, $mark) =~ /parameter "ssl(?:_cert_file)?" changed/ }, 'the server to read its configuration');
}

# A connection string, right or wrong in one way. Each is another one, so that a reload connects again.
my $number = 0;

sub dsn
{
	my (%wrong) = @_;
	my $authority = $wrong{ca} // $ca->{ca};
	my ($cert, $key) = $wrong{nobody} ? ('/nowhere') x 2 : @{ $ca->{client} }{ 'cert', 'key' };

	$number++;
	return "host=localhost hostaddr=127.0.0.1 port=$port user=relay dbname=postgres sslmode=verify-full sslrootcert=$authority sslcert=$cert sslkey=$key application_name=relay$number";
}

sub config
{
	my (%options) = @_;
	my $sink = $options{sink} // dsn();
	my $config = relay_config($node, qq{[sink.database]\ntype = "postgres"\ndsn = "$sink"\nfunction = "public.take"\n}, poll_interval => '"100ms"');

	return $options{source} ? $config =~ s/dsn = "[^"]*"/dsn = "$options{source}"/r : $config;
}

sub count { my ($sql) = @_; return $node->safe_psql('postgres', "SELECT count(*) FROM $sql"); }

my @kinds = (
	[ 'another name', qr/server certificate for \W+other.example\W+ does not match host name/, serve => 'other' ],
	[ 'expired', qr/certificate verify failed/, serve => 'expired' ],
	[ 'another authority', qr/certificate verify failed/, ca => $ca->{stranger_ca} ],
	[ 'no authority', qr/could not read root certificate file/, ca => $ca->{empty} ],
	[ 'no certificate', qr/connection requires a valid client certificate/, nobody => 1 ],
	[ 'no TLS', qr/server does not support SSL/, serve => 'none' ]);
my $relay = start_relay(config(source => dsn()));

$node->safe_psql('postgres', q{SELECT outbox.enqueue('first', '1')});
wait_until_done($node);
foreach my $kind (@kinds)
{
	my ($name, $said, %wrong) = @$kind;
	my $wrong = dsn(%wrong);

	serve($wrong{serve}) if $wrong{serve};
	my ($status, $out) = check(config(source => $wrong));
	is($status, 1, "$name: --check of a source fails");
	like($out, qr/^source main: .*$said/m, '... and names it');
	my $before = () = $relay->log =~ /$said/g;
	reload($relay, config(source => $wrong));
	$node->safe_psql('postgres', q{SELECT outbox.enqueue('message', to_jsonb(n)) FROM generate_series(1, 10) n});
	wait_for(sub { (() = $relay->log =~ /$said/g) > $before }, 'it to be said');
	is(count('outbox.pending WHERE claimed_by IS NOT NULL OR attempt_count > 0'), '0', '... and nothing is claimed');

	check_names(config(sink => $wrong), {}, database => 'POSTGRES_CONNECTION_FAILED');
	reload($relay, config(sink => $wrong));
	wait_for(sub { count('outbox.pending WHERE attempt_count > 0') > 0 }, 'the sink to be away');
	my $last = $node->safe_psql('postgres', q{
		SELECT error_code || ' ' || error_message FROM outbox.attempts WHERE state = 'RETRYABLE' ORDER BY claimed_at DESC LIMIT 1});
	like($last, qr/^POSTGRES_CONNECTION_FAILED .*$said/s, '... nor handed over, which the ledger explains');
	is(count('taken JOIN outbox.pending USING (outbox_id)'), '0', '... and nothing arrives');
	serve('right') if $wrong{serve};
	reload($relay, config(source => dsn()));
	wait_until_done($node);
}
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT concat_ws(' ', state, error_code), ', ') FROM outbox.attempts}),
	'DISPATCHED, RETRYABLE POSTGRES_CONNECTION_FAILED', 'nothing else went wrong');
proven($node, 'in the end', [ split /\n/, $node->safe_psql('postgres', 'SELECT outbox_id FROM taken') ]);
$relay->signal('TERM');
is($relay->wait_end, 0, 'TERM: exit status 0');
consistent($node, 'consistent');
$node->stop('fast');
done_testing();
