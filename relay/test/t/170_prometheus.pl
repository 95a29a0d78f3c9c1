# A real Prometheus scrapes a relay that serves the metrics of its database as well.
#
# Proves: the relay's /metrics has what outbox.prometheus() says, under the label `database`, as promtool wants it, and loses it
# while the database is away, but answers; what is no longer configured has no gauges; a configuration that is refused is seen; the rules of ops/prometheus are evaluated; every query of the dashboard in
# ops/grafana returns a number; the container of ops has the libraries that the relay is linked with.
#
# PICTURES=FOLDER: writes there what each panel's queries return over a minute, in which a queue is paused for a while, for
# ops/grafana/draw.py.
use strict;
use warnings;

use BrokerTest;
use BrokerTest::Base '$here';
use Cwd 'realpath';
use HTTP::Tiny;
use OutboxTest;
use RelayTest;
use Test::More;

my $root = "$here/../..";
plan(skip_all => 'no prometheus (Debian: prometheus)') unless grep { -x "$_/prometheus" } split /:/, $ENV{PATH};

# ---------------------------------------------------------------- all of it

my $node = new_node('main', preload => 1, conf => 'outbox.notify_gather = 0');
my ($listen, $at) = (free_port(), free_port());
my $config = relay_config($node, <<'END', queues => '["default", "keys"]', database_metrics => 'true', poll_interval => '"100ms"') =~ s/listen = ""/listen = "127.0.0.1:$listen"/r;
[sink.well]
type = "discard"

[sink.away]
type = "http"
allow_private = true

[[route]]
event_type = "refused"
sink = "away"
url = "http://127.0.0.1:1/"

[[route]]
sink = "well"
END

$node->safe_psql('postgres', q{SELECT outbox.create_queue('keys', ordering => 'fifo')});
wait_for_worker($node);
$node->safe_psql('postgres', 'GRANT outbox_readonly TO relay');
my $relay = start_relay($config, ready => qr/connected/);

my $http = HTTP::Tiny->new(timeout => 60);

sub metrics
{
	return $http->get("http://127.0.0.1:$listen/metrics")->{content};
}

sub of_database
{
	my ($text) = @_;

	return { map { s/database="main",?//r =~ s/\{\}//r => 1 } $text =~ /^(outbox_\w+\{database="main"[^}]*\}) /mg };
}

wait_for(sub { metrics() =~ /^outbox_worker_up\{database="main"\} 1$/m }, 'the metrics of the database');
my $text = metrics();
is_deeply(of_database($text), { map { $_ => 1 } $node->safe_psql('postgres', 'SELECT outbox.prometheus()') =~ /^(outbox_\S+) /mg },
	'/metrics has the series of outbox.prometheus()');
like($text, qr/^outbox_in_flight\{source="main"\} /m, '... beside those of the relay');
SKIP:
{
	skip 'no promtool', 1 unless grep { -x "$_/promtool" } split /:/, $ENV{PATH};
	is_deeply([ tool([ 'promtool', 'check', 'metrics' ], input => $text, may_fail => 1) ], [ '', '', 0 ], '... as promtool wants them');
}

my $folder = new_folder('prometheus');
write_file("$folder/prometheus.yml", <<"END");
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [$root/ops/prometheus/rules.yml]
scrape_configs:
  - job_name: outbox
    static_configs:
      - targets: ["127.0.0.1:$listen"]
END
my $prometheus = BrokerTest::Process->new(
	name => 'prometheus', folder => $folder,
	command => [ 'prometheus', "--config.file=$folder/prometheus.yml", "--storage.tsdb.path=$folder/data", "--web.listen-address=127.0.0.1:$at", '--log.level=warn' ],
	ready => sub { $http->get("http://127.0.0.1:$at/-/ready")->{success} })->start;

# ---------------------------------------------------------------- something of everything

my $work = session($node);
sub some_work
{
	$work->query_safe(q{
		SELECT outbox.enqueue('placed', '{}', idempotency_key => 'k' || g % 2) FROM generate_series(1, 3) g;
		SELECT outbox.enqueue('placed', '{}', 'keys', partition_key => 'k' || g % 3) FROM generate_series(1, 20) g;
		SELECT outbox.enqueue('refused', '{}');
		SELECT outbox.enqueue_and_claim('producer', 'placed', '{}')});
	return;
}

my $api = "http://127.0.0.1:$at/api/v1";

# What a query returns now: labels and numbers.
sub answer
{
	my ($query) = @_;
	my $got = $http->post_form("$api/query", { query => $query });
	my $answer = eval { from_json($got->{content}) } // {};

	is($answer->{status}, 'success', "a query: $query") || diag($got->{content}) if ($answer->{status} // '') ne 'success';
	return grep { $_->{value}[1] =~ /^-?[\d.]/ } @{ $answer->{data}{result} // [] };
}

sub filled_in
{
	my ($query) = @_;

	return $query =~ s/\$__rate_interval/20s/gr =~ s/\$(?:database|queue)\b/.*/gr;
}

my $dashboard = from_json(slurp("$root/ops/grafana/outbox.json"));
my %variables = map { $_->{name} => $_ } @{ $dashboard->{templating}{list} };
my @panels = grep { $_->{type} ne 'row' } @{ $dashboard->{panels} };
my @queries = map { my $panel = $_; map { [ $panel->{title}, filled_in($_->{expr}) ] } @{ $panel->{targets} } } @panels;

is(join(' ', sort keys %variables), 'database datasource queue', 'the dashboard has variables for data source, database and queue');
cmp_ok(scalar(@queries), '>', 40, '... and queries');
my %waiting = map { $_->[1] => $_->[0] } @queries;
eval {
	wait_for(sub {
		some_work();
		delete @waiting{ grep { answer($_) } keys %waiting };
		return !%waiting;
	}, 'every query to return a number');
};
is_deeply(\%waiting, {}, 'every query of the dashboard returns a number');
is(scalar(() = answer('outbox_pending_depth{database="main",queue="keys"}')), 1, '... which names database and queue');
isnt(scalar(() = answer('outbox_pending_dept')), 1, '... and what is not there is found');
foreach my $name (qw(database queue))
{
	my ($series, $label) = filled_in($variables{$name}{query}{query}) =~ /^label_values\((.+), (\w+)\)$/;
	my %values = map { ($_->{metric}{$label} // '') => 1 } answer($series);

	is_deeply(\%values, $name eq 'database' ? { main => 1 } : { default => 1, keys => 1 }, "the values of the variable $name");
}
my $rules = from_json($http->get("$api/rules")->{content});
is(join(' ', map { $_->{name} } grep { $_->{health} ne 'ok' } map { @{ $_->{rules} } } @{ $rules->{data}{groups} }), '', 'the rules are evaluated');
wait_for(sub { answer('ALERTS{alertname="OutboxUnknownCode"}') || answer('outbox:due_age_threshold_seconds{queue="keys"} == 300') }, 'a rule');

# ---------------------------------------------------------------- pictures

if ($ENV{PICTURES})
{
	my $began = time;
	my ($paused, %drawn) = (0);

	while (time - $began < 80)
	{
		my $pause = time - $began >= 40 && time - $began < 55 ? 1 : 0;

		$node->safe_psql('postgres', $pause ? q{SELECT outbox.pause('keys')} : q{SELECT outbox.resume('keys')}) if $pause != $paused;
		$paused = $pause;
		some_work() foreach 1 .. 1 + int(4 * (1 + sin(time / 5)));
		select(undef, undef, undef, 0.2);
	}
	foreach my $panel (grep { $_->{type} eq 'timeseries' } @panels)
	{
		foreach my $target (@{ $panel->{targets} })
		{
			my $got = from_json($http->post_form("$api/query_range", { query => filled_in($target->{expr}), start => time - 60, end => time, step => 1 })->{content});

			push @{ $drawn{ $panel->{title} } }, { legend => $target->{legendFormat}, result => $got->{data}{result} };
		}
	}
	write_file("$ENV{PICTURES}/panels.json", to_json(\%drawn));
}

# ---------------------------------------------------------------- a sink is no longer wanted

like(metrics(), qr/^outbox_sink_up\{sink="away"\} /m, 'a sink has a gauge');
reload($relay, $config =~ s/^\[sink\.away\].+?\n\n//msr =~ s/^\[\[route\]\]\nevent_type.+?\n\n//msr);
my $gone = eval { wait_for(sub { metrics() !~ /^outbox_sink_up\{sink="away"\}/m }, 'its gauge to end') };
ok($gone, '... until the configuration has it no longer');
like(metrics(), qr/^outbox_sink_up\{sink="well"\} 1$/m, '... but the other is there');
reload($relay, $config =~ s/^\[sink\.away\].+?\n\n//msr =~ s/^\[\[route\]\]\nevent_type.+?\n\n//msr =~ s/"100ms"/"200ms"/r);
wait_for(sub { metrics() =~ /^outbox_source_up\{source="main"\} 1$/m && metrics() =~ /^outbox_worker_up\{/m }, 'a source with other settings');

# ---------------------------------------------------------------- a configuration that is wrong

like(metrics(), qr/^outbox_last_reload_successful 1$/m, 'the configuration is in force');
write_file("$relay->{folder}/relay.toml", "$config\n[nonsense]\n");
$relay->signal('HUP');
wait_for(sub { metrics() =~ /^outbox_last_reload_successful 0$/m }, 'the configuration to be refused');
like($http->get("http://127.0.0.1:$listen/health/ready")->{content}, qr/^ready\nconfiguration: wrong when it was read again.*nonsense/, '... /health/ready says why, and the relay is ready');
reload($relay, $config);
like(metrics(), qr/^outbox_last_reload_successful 1$/m, '... until it is right');

# ---------------------------------------------------------------- the database is away

$node->stop('immediate');
wait_for(sub { metrics() =~ /^outbox_source_up\{source="main"\} 0$/m }, 'the relay to see that');
is_deeply(of_database(metrics()), {}, 'without the database its metrics are not there');
$node->start;
wait_for(sub { metrics() =~ /^outbox_worker_up\{database="main"\}/m }, 'them to come again');
pass('... and come again with it');

# ---------------------------------------------------------------- the container

SKIP:
{
	skip 'not the Debian of ops/Containerfile', 1 unless slurp('/etc/os-release') =~ /^VERSION_ID="12"$/m && -x '/usr/bin/dpkg-query';
	skip 'the relay is sanitized', 1 if $ENV{RELAY_SANITIZE};
	my $program = $ENV{OUTBOX_RELAY} // "$here/../outbox-relay";
	my @needed = tool([ 'readelf', '-d', $program ]) =~ /\(NEEDED\).*\[(\S+)\]/g;
	my %path = tool([ 'ldd', $program ]) =~ /^\s*(\S+) => (\S+)/mg;
	my @files = map { '*' . realpath($_) =~ s{^/usr}{}r } grep { $_ } @path{@needed};
	my %packages = map { $_ => 1 } tool([ 'dpkg-query', '-S', @files ]) =~ /^([\w.+-]+):/mg;
	my ($installed) = slurp("$root/ops/Containerfile") =~ /ca-certificates \\\n\t(.+?) \\\n\t&&/s;

	delete @packages{ grep { /^(libc6|libgcc-s1|libstdc\+\+6)$/ } keys %packages };
	is($installed, join(' ', sort keys %packages), 'the container has the libraries that the relay needs');
}

done_testing();
