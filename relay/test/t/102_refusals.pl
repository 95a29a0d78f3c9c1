# A database that is there and refuses the relay, when it connects and later on.
#
# Proves: --check, the log and /health/ready name the SQLSTATE and what to do, and do not call such a database away; of a
# server that cannot be reached they say just that; the log does not repeat the same refusal at each attempt; once the
# cause is gone, the relay goes on by itself, and says so.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use PostgreSQL::Test::Cluster;
use RelayTest;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'");
my $listen = free_port();
my $config = relay_config($node, qq{[sink.nowhere]\ntype = "discard"\n}, poll_interval => '"100ms"') =~ s/listen = ""/listen = "127.0.0.1:$listen"/r;

sub health
{
	return (tool([ 'curl', '-sS', '-m', '10', "http://127.0.0.1:$listen/health/ready" ]))[0];
}

# ---------------------------------------------------------------- when it connects

my $where = "host='" . $node->host . "' port=" . $node->port;

$node->safe_psql('postgres', q{
	CREATE ROLE locked LOGIN PASSWORD 'right' IN ROLE outbox_executor;
	CREATE ROLE outside NOLOGIN;
	CREATE ROLE single LOGIN CONNECTION LIMIT 1 IN ROLE outbox_executor;
	CREATE ROLE reading LOGIN IN ROLE outbox_executor;
	ALTER ROLE reading SET default_transaction_read_only = on;
	CREATE DATABASE closed;
	REVOKE CONNECT ON DATABASE closed FROM PUBLIC;
	CREATE DATABASE shut ALLOW_CONNECTIONS false});
my $hba = $node->data_dir . '/pg_hba.conf';
write_file($hba, "local all locked scram-sha-256\n" . slurp($hba));
$node->reload;

# Its code, what to do, and the connection string.
my %wrong = (
	password => [ '28P01', qr/password of dsn/, "$where dbname=postgres user=locked password=wrong" ],
	silent => [ '28P01', qr/set password in dsn/, "$where dbname=postgres user=locked" ],
	stranger => [ '28000', qr/user of dsn/, "$where dbname=postgres user=stranger" ],
	outside => [ '28000', qr/LOGIN/, "$where dbname=postgres user=outside" ],
	nowhere => [ '3D000', qr/dbname of dsn/, "$where dbname=nowhere user=relay" ],
	full => [ '53300', qr/CONNECTION LIMIT/, "$where dbname=postgres user=single" ],
	closed => [ '42501', qr/GRANT CONNECT/, "$where dbname=closed user=relay" ],
	shut => [ '55000', qr/ALLOW_CONNECTIONS/, "$where dbname=shut user=relay" ],
	reading => [ '25006', qr/default_transaction_read_only/, "$where dbname=postgres user=reading" ]);
my $unreachable = "host=127.0.0.1 port=${\ free_port() } dbname=postgres user=relay";

# All of them, and one that cannot be reached, in one relay.
my $sources = join '', map { qq{[[source]]\nname = "$_->[0]"\ndsn = "$_->[1]"\n} } [ away => $unreachable ], map { [ $_ => $wrong{$_}[2] ] } sort keys %wrong;
my $many = $config =~ s/\[\[source\]\]\n.*?(?=\[sink)/$sources/sr;

my ($status, $out) = check($many);
is($status, 1, '--check: exit status 1');
foreach my $name (sort keys %wrong)
{
	my ($code, $remedy) = @{ $wrong{$name} };

	like($out, qr/^source $name: it refuses the relay \($code\): .*$remedy/m, "--check names $code of $name, and says what to do");
}
like($out, qr/^source away: cannot be reached: .*port \d+ failed/m, '... and calls what cannot be reached that');

my $relay = start_relay($many);

foreach my $name (sort keys %wrong)
{
	my ($code, $remedy) = @{ $wrong{$name} };

	$relay->wait_log(qr/error the database refuses the relay source=$name code=$code error=".*$remedy/);
	unlike($relay->log, qr/database is away source=$name /, "$name: the log names $code, says what to do, and does not call the database away");
	wait_for(sub { health() =~ /^source $name: the database is not connected: it refuses the relay \($code\): .*$remedy/m }, "/health/ready to name $code of $name");
}
$relay->wait_log(qr/warning the database is away source=away error=/);
unlike(health(), qr/^source away: .*refuses/m, 'a server that cannot be reached refuses nothing');

# It comes right while the relay runs. Meanwhile it has tried often.
my $refused = sub { return scalar(() = slurp($node->logfile) =~ /FATAL:  database "nowhere" does not exist/g) };
my $before = $refused->();
wait_for(sub { $refused->() >= $before + 4 }, 'more attempts');
cmp_ok(scalar(() = $relay->log =~ /refuses the relay source=nowhere/g), '<', 3, 'the log has it, and not at each attempt');
$node->safe_psql('postgres', q{ALTER ROLE single CONNECTION LIMIT 2});
$relay->wait_log(qr/connected; listening source=full/);
wait_for(sub { health() !~ /^source full/m }, '/health/ready to have nothing against it');
$relay->signal('TERM');
is($relay->wait_end, 0, 'exit status 0');

# ---------------------------------------------------------------- later on

$relay = start_relay($config);
wait_for(sub { health() =~ /^ready/ }, 'the relay to be ready');

foreach my $case (
	[ '42501', qr/GRANT outbox_executor/, 'REVOKE outbox_executor FROM relay', 'GRANT outbox_executor TO relay' ],
	[ '25006', qr/default_transaction_read_only/, q{ALTER SYSTEM SET default_transaction_read_only = on}, q{ALTER SYSTEM RESET default_transaction_read_only} ])
{
	my ($code, $remedy, $break, $mend) = @$case;
	my $again = () = $relay->log =~ /claims are answered again/g;

	$node->safe_psql('postgres', $break);
	$node->reload;
	$relay->wait_log(qr/could not claim source=main code=$code error=".*$remedy/);
	wait_for(sub { health() =~ /^not ready\nsource main: .*$remedy/m }, "$code: /health/ready to say what to do");
	pass("$code: the log and /health/ready name it, and say what to do");
	$node->safe_psql('postgres', $mend);
	$node->reload;
	wait_for(sub { (() = $relay->log =~ /claims are answered again/g) > $again }, "$code: the log to say that it is over");
	wait_for(sub { health() =~ /^ready\n\z/ }, "$code: the relay to be ready again");
}
$node->safe_psql('postgres', q{SELECT outbox.enqueue('late', '1')});
wait_until_done($node);
is($node->safe_psql('postgres', q{SELECT string_agg(state::text, ' ') FROM outbox.attempts}), 'DISPATCHED', '... and delivers');
$relay->signal('TERM');
is($relay->wait_end, 0, 'exit status 0');

$node->stop('fast');
done_testing();
