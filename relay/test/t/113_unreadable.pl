# Messages that the database cannot send, because a text in them has no form in UTF-8.
#
# Proves: such a message fails alone, as UNREADABLE, and is a dead letter after its attempts; those around it are delivered, those
# of its key after it, in a database in SQL_ASCII and in one from whose encoding the server converts.
use strict;
use warnings;

use BrokerTest;
use OutboxTest;
use RelayTest;
use Test::More;

my $node = new_node('main', preload => 1, conf => "outbox.notify_gather = '1ms'\nclient_encoding = 'SQL_ASCII'");
my %databases = (WIN1252 => '\x81', SQL_ASCII => '\xe9');
my %sources;
my $file = new_folder('lines') . '/lines';
my $config = relay_config($node, qq{[sink.lines]\ntype = "file"\npath = "$file"\n}, queues => '["default", "ordered"]');

foreach my $encoding (sort keys %databases)
{
	my $name = lc $encoding;

	$node->safe_psql('postgres', "CREATE DATABASE $name ENCODING '$encoding' LOCALE 'C' TEMPLATE template0");
	$node->safe_psql($name, qq{
		CREATE EXTENSION outbox;
		SELECT outbox.alter_queue('default', max_attempts => 2, backoff_base => '10ms', backoff_cap => '10ms', backoff_jitter => 0);
		SELECT outbox.create_queue('ordered', ordering => 'fifo', max_attempts => 2, backoff_base => '10ms', backoff_cap => '10ms', backoff_jitter => 0);
		SELECT outbox.enqueue(CASE WHEN n % 100 = 50 THEN 'unreadable' ELSE 'good' END,
			to_jsonb(CASE WHEN n % 100 = 50 THEN convert_from('$databases{$encoding}', getdatabaseencoding()) ELSE n::text END),
			CASE WHEN n % 2 = 0 THEN 'ordered' ELSE 'default' END, partition_key => 'k' || n % 10)
		FROM generate_series(1, 400) n;
		SELECT outbox.enqueue('unreadable', '1', aggregate_id => convert_from('$databases{$encoding}', getdatabaseencoding()))});
	$sources{$name} = qq{[[source]]\nname = "$name"} . ($config =~ /\n(dsn.*?)\n\[sink/s)[0] =~ s/dbname='?postgres'?/dbname=$name/r . "\n";
	$sources{$name} =~ s/"dsn/"\ndsn/;
}

my $relay = start_relay($config =~ s/\[\[source\]\]\n.*?(?=\[sink)/join '', map { $sources{$_} } sort keys %sources/esr);

foreach my $name (sort keys %sources)
{
	wait_for(sub { $node->safe_psql($name, 'SELECT count(*) FROM outbox.pending') eq '0' }, "everything of $name to be done");
	is($node->safe_psql($name, q{
			SELECT DISTINCT event_type, (SELECT string_agg(a.state || ' ' || coalesce(a.error_code, ''), ', ' ORDER BY attempt_no)
				FROM outbox.attempts a WHERE a.outbox_id = m.outbox_id)
			FROM outbox.messages m WHERE event_type = 'unreadable'}),
		'unreadable|RETRYABLE UNREADABLE, FAILED UNREADABLE', "$name: what cannot be read fails alone");
	is($node->safe_psql($name, q{
			SELECT count(*) FROM outbox.messages m WHERE event_type = 'good'
				AND EXISTS (SELECT FROM outbox.attempts a WHERE a.outbox_id = m.outbox_id AND a.state = 'DISPATCHED')}),
		'396', '... and what can is delivered');
}
is(scalar(() = slurp($file) =~ /"event_type":"good"/g), 2 * 396, 'once');
$relay->signal('TERM');
is($relay->wait_end, 0, 'TERM: exit status 0');

done_testing();
