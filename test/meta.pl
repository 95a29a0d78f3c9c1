#!/usr/bin/perl
#
# The rules of the tree that need no server.
#
# META.json obeys the PGXN Meta Spec 1.0.0, and agrees with the control files, the packages of Debian and the programs.
# The tests that test/public-bugs.md and docs/guarantees.md name are there, and so is the code that the mutants of the
# history checker break. The documentation has the settings, events, metrics, SQLSTATEs and packages that the code has,
# its links lead somewhere, and its words are allowed. Includes follow the layers, and C++ files are formatted.
# test/run says when it was interrupted. Run in the root of the tree.

use strict;
use warnings;

use Digest::SHA;
use JSON::PP;
use Test::More;

sub slurp
{
	my ($name) = @_;
	open my $file, '<:raw', $name or die "$name: $!\n";
	local $/;
	return scalar <$file>;
}

# headings FILE: the anchors that its headings get
sub headings
{
	my ($file) = @_;
	my %anchors;

	foreach my $heading (slurp($file) =~ /^#+ (.+)$/mg)
	{
		$heading = lc $heading =~ s/`//gr;
		$anchors{ $heading =~ s/[^\w \-]//gr =~ s/ /-/gr } = 1;
	}
	return \%anchors;
}

my $text = qr/\A[^\x00-\x1f\x7f]+\z/;
my $term = qr{\A[^\s/\\\x00-\x1f\x7f]{2,}\z};
my $version = qr/\A(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-?[A-Za-z][0-9A-Za-z-]*)?\z/;

my $meta = eval { JSON::PP->new->utf8->decode(slurp('META.json')) };
is(ref $meta, 'HASH', 'META.json is a JSON object') or BAIL_OUT($@);

my %allowed = map { $_ => 1 } qw(abstract maintainer license name provides version meta-spec
  description generated_by no_index prereqs release_status resources tags);
is_deeply([ grep { !$allowed{$_} && !/\Ax_/i } sort keys %$meta ], [], 'no unknown field');

like($meta->{name}, $term, 'name is a term');
like($meta->{version}, $version, 'version is a semantic version');
like($meta->{$_}, $text, "$_ is a string") foreach qw(abstract maintainer);
is($meta->{license}, 'postgresql', 'license is postgresql');
is($meta->{'meta-spec'}{version}, '1.0.0', 'meta-spec version is 1.0.0');
like($meta->{'meta-spec'}{url}, qr{\Ahttps?://pgxn\.org/(?:meta/spec\.txt|spec/1\.0\.0/)\z},
	'meta-spec url');
like($meta->{release_status} // 'stable', qr/\A(?:stable|testing|unstable)\z/, 'release_status');
is_deeply([ grep { length > 255 || $_ !~ $text } @{ $meta->{tags} // [] } ], [], 'tags are short strings');

is(ref $meta->{provides}, 'HASH', 'provides is an object');
is_deeply([ sort keys %{ $meta->{provides} } ], [ sort map { m{([^/]+)\.control\z} } glob '*.control contracts/*/*.control extensions/*/*.control' ],
	'provides each extension that has a control file, and no other');
ok($meta->{provides}{ $meta->{name} }, 'among them the one that names the distribution');
foreach my $name (sort keys %{ $meta->{provides} })
{
	my $part = $meta->{provides}{$name};
	like($part->{version}, $version, "$name: version");
	my ($folder) = map { s{[^/]+\z}{}r } grep { -e } "$name.control", glob "contracts/*/$name.control extensions/*/$name.control";
	my ($default) = slurp("$folder$name.control") =~ /^\s*default_version\s*=\s*'([^']*)'/m;
	is($part->{version}, $default, "$name: version is the control file's default_version");
	is($part->{file}, "${folder}sql/$name--$default.sql", "$name: file is the install script");
	ok(-f $part->{file}, "$name: file exists");
	ok(!defined $part->{docfile} || -f $part->{docfile}, "$name: docfile exists, if there is one");
}

my @bad;
foreach my $phase (sort keys %{ $meta->{prereqs} // {} })
{
	push @bad, $phase if $phase !~ /\A(?:configure|build|test|runtime|develop|x_.+)\z/i;
	foreach my $relation (sort keys %{ $meta->{prereqs}{$phase} })
	{
		push @bad, "$phase $relation" if $relation !~ /\A(?:requires|recommends|suggests|conflicts|x_.+)\z/i;
		my $wanted = $meta->{prereqs}{$phase}{$relation};
		foreach my $name (sort keys %$wanted)
		{
			push @bad, "$phase $relation $name" if $name !~ $term;
			foreach my $range (split /\s*,\s*/, $wanted->{$name})
			{
				(my $bare = $range) =~ s/\A(?:[<>]=?|[!=]=)\s*//;
				push @bad, "$phase $relation $name $range" if $bare ne '0' && $bare !~ $version;
			}
		}
	}
}
is_deeply(\@bad, [], 'prereqs: phases, relations, names and versions');

is($meta->{version}, $meta->{provides}{ $meta->{name} }{version}, 'version is that of the extension it names');

# Of Debian 13, with PostgreSQL 17; pg_buildext makes it for another release.
is(slurp('debian/control'), slurp('debian/control.in') =~ s/PGVERSION/17/gr, 'debian/control is made of control.in');
like(slurp('debian/changelog'), qr/\Aoutbox \(\Q$meta->{version}\E-\d+\)/, 'debian/changelog has the version of META.json');
like(slurp($_), qr/"outbox-\w+ \Q$meta->{version}\E"/, "$_ has it") foreach qw(relay/src/main.cpp verify/src/main.cpp);

my %released = map { reverse /^([0-9a-f]{64})  (.+)$/ } split /\n/, slurp('sql/released.sha256');
is(Digest::SHA->new(256)->addfile("sql/$_")->hexdigest, $released{$_}, "$_ is as it was released") foreach sort keys %released;

my @reports = grep { /^\| B\d\d / } split /\n/, slurp('test/public-bugs.md');
is(join(' ', map { substr $_, 2, 3 } @reports), join(' ', map { sprintf 'B%02d', $_ } 1 .. 40), 'public-bugs.md: each report, once');
my @missing;
foreach my $report (@reports)
{
	my @named = $report =~ /`((?:test|bench|contracts|extensions|relay)\/[^`]+)`/g;
	my %checks;

	push @missing, "$report names no test" unless grep { m{^test|/test/} } @named;
	push @missing, grep { !-e } @named;
	push @{ $checks{$1} }, $2 while $report =~ /`((?:\w+\/)*test\/[^`]+)`: `([^`]+)`/g;
	foreach my $file (grep { -f } sort keys %checks)
	{
		my $text = slurp($file);

		push @missing, map { "$file: $_" } grep { index($text, $_) < 0 } @{ $checks{$file} };
	}
}
is_deeply(\@missing, [], '... with tests that are there, and checks that are in them');

my @mutants = map { [ split /\t/ ] } grep { !/^#/ } split /\n/, slurp('test/history/mutants');
cmp_ok(scalar(@mutants), '>', 10, 'test/history/mutants: there are some');
is_deeply([ map { $_->[0] } grep { index(slurp($_->[1]), $_->[2]) < 0 } @mutants ], [], '... each of which finds what it breaks');

my ($promised) = slurp('docs/guarantees.md') =~ /^## What is promised\n(.+?)^## /ms;
my @promises = split /\n\n+/, $promised =~ s/\A\n+|\n+\z//gr;
cmp_ok(scalar(@promises), '>', 10, 'guarantees.md: there are promises');
is_deeply([ grep { !/^\*\*.+^Tests: `(?:extensions\/\w+\/)?test\//ms } @promises ], [], '... each names the tests that prove it');
is_deeply([ grep { !-e } slurp('docs/guarantees.md') =~ /`((?:contracts|extensions|test|relay\/test|demo)\/[^`]+)`/g ], [], '... which are there');
my ($relayed) = slurp('docs/guarantees.md') =~ /^## The relay\n(.+?)^## /ms;
is_deeply([ grep { /^\*\*/ && !/^Tests: `/m } split /\n\n+/, $relayed ], [], '... those of the relay too');

# The transitions of sagas, in the install script and in docs/saga.md.
my ($made) = slurp('extensions/saga/sql/outbox_saga--0.2.0.sql') =~ /^INSERT INTO saga\.transitions (.+?;)$/ms;
my ($shown) = slurp('docs/saga.md') =~ /<!-- saga transitions -->\n.+?\n\|[-|]+\n(.+?)<!-- /s;
my @transitions = map { join ' | ', /'([^']+)'/g } grep { /^\t\('/ } split /\n/, $made;
cmp_ok(scalar(@transitions), '>', 10, 'sagas have transitions');
is_deeply([ map { s/\A\| | \|\z//gr } split /\n/, $shown ], \@transitions, '... which docs/saga.md shows');

# The audit events, in the code and in docs/audit.md; and tests see each of them.
my ($written) = slurp('src/message/audit_event.cpp') =~ /\bnames\[\] = \{(.+?)\};/s;
my @events = $written =~ /"(\w+)"/g;
my ($listed) = slurp('docs/audit.md') =~ /^### Written while(.+?)^### What it costs/ms;
my $seen = join '', map { slurp($_) } grep { !m{/(?:discard_caches|bad_input)\.out\z} } glob 'expected/*.out test/t/*.pl';
cmp_ok(scalar(@events), '>', 20, 'there are audit events');
is_deeply([ sort map { /`([A-Z_]+)`/g } $listed =~ /^\| (`[A-Z].*?) \|/mg ], [ sort @events ], '... which docs/audit.md lists, and no others');
is_deeply([ grep { $seen !~ /\b$_\b/ } @events ], [], '... and each is in a test');

# The settings of the relay, in the code and in docs/relay.md.
my $relay_docs = slurp('docs/relay.md');
my $asking = join '', map { slurp($_) } glob 'relay/src/config/*.cpp relay/src/sinks/*.cpp';
my %asked = map { $_ => 1 } $asking =~ /\bsection\.(?:maybe_text|text|secrets?|texts|numbers?|flag|duration|choice|free)\("(\w+)"/g,
  $asking =~ /\b(?:duration|count|read_template|read_for)\(section, "(\w+)"/g, $asking =~ /\{"(\w+)", Binding::\w+\}/g;
my %explained;
foreach my $row ($relay_docs =~ /^\| key \| default \| meaning \|\n\|[-|]+\n((?:\|.+\n)+)/mg)
{
	$explained{$_} = 1 foreach map { /`(\w+)`/g } $row =~ /^\| (.+?) \|/mg;
}
cmp_ok(scalar(keys %asked), '>', 60, 'the relay has settings');
is_deeply([ sort keys %explained ], [ sort keys %asked ], '... which docs/relay.md explains, and no others');

# The one vocabulary of metrics, docs/metrics.md, against what makes them, and what uses them.
my %vocabulary = map { my ($section) = /^(.+)/; ($section => [ /^\| `(\w+)` \| (?:gauge|counter|histogram)/mg ]) } split /^## /m, slurp('docs/metrics.md');
my %made_by = ('The relay' => [ slurp('relay/src/seen/metrics.cpp') =~ /"(outbox_\w+)"/g ]);
foreach my $part ([ 'The database', 'outbox', 'sql/outbox--0.2.0.sql' ], [ 'Sagas', 'saga', $meta->{provides}{outbox_saga}{file} ],
	[ 'The inbox', 'inbox', $meta->{provides}{outbox_inbox}{file} ])
{
	my ($section, $prefix, $file) = @$part;
	my ($body) = slurp($file) =~ /^CREATE FUNCTION $prefix\.prometheus\b(.+?)^END;/ms;

	$made_by{$section} = [ map { "${prefix}_$_" } $body =~ /'([a-z_]+)', (?:'(?:gauge|counter|histogram)',\s+)?'[A-Z0-9]/g ];
}
push @{ $made_by{'The database'} }, slurp('ops/prometheus/verify_seals') =~ /# TYPE (outbox_\w+)/g;
foreach my $section (sort keys %made_by)
{
	is_deeply([ sort @{ $vocabulary{$section} } ], [ sort @{ $made_by{$section} } ], "docs/metrics.md, $section: the metrics that are made");
}

my %known = map { $_ => 1 } 'saga_type', map { @$_ } values %vocabulary; # that one is a label
my @used = map { slurp($_) =~ /\b((?:outbox|saga|inbox)_\w+)(?=\\?[{\[)]| [*\/><=o]|$)/mg } glob 'ops/prometheus/rules*.yml ops/grafana/*.json ops/kubernetes/scaledobject.yaml';
cmp_ok(scalar(@used), '>', 200, 'rules and dashboard use metrics');
is_deeply([ grep { !$known{ s/_(?:bucket|sum|count)$//r } && !$known{$_} } @used ], [], '... which docs/metrics.md has');

my %titles = map { $_ => 1 } slurp('ops/grafana/outbox.json') =~ /"title": "([^"]+)"/g;
is_deeply([ grep { !$titles{$_} } slurp('docs/dashboard.svg') =~ m{font-weight="bold">(.+?)</text>}g ], [], 'docs/dashboard.svg shows panels that are in the dashboard');

# The errors that a client meets, in the code and in docs/reference.md. Sagas and the inbox have their own tables.
SKIP:
{
	my $codes = `\${PG_CONFIG:-pg_config} --includedir-server 2>/dev/null` =~ s/\s+\z//r . '/utils/errcodes.h';
	skip 'no headers of a server', 2 unless -f $codes;
	my %sqlstate = map { $_->[0] => $_->[1] =~ s/\W//gr } map { [ /(ERRCODE_\w+)\s+MAKE_SQLSTATE\((.+?)\)/ ] }
	  grep { /MAKE_SQLSTATE/ } split /\n/, slurp($codes) . slurp('src/server/errors.h');
	my %raised = map { $_ => 1 } grep { !/^ERRCODE_SAGA_/ } map { slurp($_) =~ /\berrcode\((ERRCODE_\w+)\)/g } grep { !m{^src/(?:saga|inbox|process)/} } glob 'src/*/*.cpp src/*/*.h';
	my ($table) = slurp('docs/reference.md') =~ /^## Errors\n(.+?)^## /ms;
	my ($explained) = join ' ', $table =~ /^\| ([^|]+) \|/mg;

	cmp_ok(scalar(keys %raised), '>', 20, 'src: errors are raised');
	is_deeply([ grep { index($explained, $_) < 0 } map { $sqlstate{$_} // "no SQLSTATE for $_" } sort keys %raised ], [], '... which docs/reference.md lists');
}

# What test/run installs, in the lists that it reads and in README.md.
my ($told) = slurp('README.md') =~ /(They install what is missing of: .+?)\n\n/s;
my @lists = map { split ' ' } slurp('test/cluster.sh') =~ /^cluster_(?:build|test)_packages=\((.+?)\)/msg;
push @lists, grep { !/^#/ } map { split /\n/, slurp($_) } 'test/ops/packages', 'test/workers/packages';
my %spelled = ('postgresql-NN' => 'the server', 'postgresql-server-dev-NN' => 'its development files', 'postgresql-NN-pgtap' => 'pgTAP', 'python3-yaml' => 'PyYAML',
	'ruby-activerecord' => 'Active Record', 'pgbouncer' => 'PgBouncer');
cmp_ok(scalar(@lists), '>', 15, 'test/run installs packages');
is_deeply([ grep { index($told, $spelled{$_} // s/^(?:python3|ruby)-//r) < 0 } @lists ], [], '... which README.md names');

# A run that is interrupted says so, and what did not run.
SKIP:
{
	skip 'this is that run', 1 if $ENV{OUTBOX_IS_INTERRUPTED};
	local @ENV{qw(OUTBOX_IS_INTERRUPTED PG_CONFIG)} = (1, $ENV{PG_CONFIG} // 'pg_config');
	local $SIG{INT} = 'DEFAULT';
	my $pid = open(my $run, '-|', 'test/run', 'model', 'meta') or die "test/run: $!";
	my $said = '';

	while (my $line = <$run>)
	{
		$said .= $line;
		kill 'INT', $pid if $line eq "== model\n";
	}
	close $run;
	like($said, qr/^interrupted in model; not run: meta\nseconds: .+\n0 passed, 0 failed\n\z/m, 'an interrupted test/run says what did not run');
}

my @broken;
my @pages = split /\n/, `git ls-files '*.md' 2>/dev/null` || join("\n", glob '*.md */*.md */*/*.md');
foreach my $page (@pages)
{
	my $text = slurp($page) =~ s/^```.*?^```$//msgr;
	my ($folder) = $page =~ m{^(.*/)};

	foreach my $link ($text =~ /\]\(([^)\s]+)\)/g)
	{
		my ($file, $anchor) = $link =~ /^([^#]*)#?(.*)/;

		next if $link =~ /^\w+:/;
		$file = $file eq '' ? $page : ($folder // '') . $file;
		1 while $file =~ s{[^/]+/\.\./}{};
		push @broken, "$page: $link" unless -e $file && ($anchor eq '' || headings($file)->{$anchor});
	}
}
is_deeply(\@broken, [], 'links in the documentation lead somewhere');

# What the documentation quotes of examples: a block of code whose first line is a comment with the name of the file.
my @quotes = map { [ /\A(\S+)\n(.+)/s ] } map { slurp($_) =~ m{^```\w+\n(?:--|#|//) (examples/\S+\n.+?)^```$}msg } @pages;
cmp_ok(scalar(@quotes), '>', 3, 'the documentation quotes examples');
is_deeply([ map { "$_->[0]: $_->[1]" } grep { index(slurp($_->[0]), $_->[1]) < 0 } @quotes ], [], '... as they are');

# Producers and workers are read on one screen.
my @examples = grep { !m{^examples/(?:order/|verify)} } split /\n/, `git ls-files 'examples/*.py' 'examples/*.js' 'examples/*.rb' 'examples/*.go' 'examples/*.java' 'examples/*.rs' 2>/dev/null`
	|| join("\n", glob 'examples/{python,node,ruby,rust}/{,*/}*.{py,js,rb,rs} examples/go/{,*/}*/*.go examples/java/src/main/java/shop/{,orm/}*.java');
my %shown = map { $_->[0] => $_->[1] } @quotes;
my @short = map { my $file = $_; my @lines = split /\n/, slurp($file) =~ s/\t/    /gr; @lines > 60 ? "$file: " . @lines . ' lines' : map { "$file: $_" } grep { length > 120 } @lines } @examples;
is_deeply(\@short, [], '... of at most 60 lines, in six languages');
is_deeply([ grep { m{(?:producer|worker)(?:/main)?\.\w+$}i && !m{/orm/} && ($shown{$_} // '') ne slurp($_) } @examples ], [], '... whose plain producers and workers docs/worker.md shows whole');

# Words that PostgreSQL's manual does without; see docs/contributing.md.
my %prose = map { $_ => slurp($_) =~ s/^```.*?^```$|`[^`\n]*`//msgr } @pages;
$prose{$_} = join '', slurp($_) =~ /^COMMENT ON .+?;\n/msg foreach glob 'sql/*.sql contracts/*/sql/*.sql extensions/*/sql/*.sql';
$prose{$_} = join "\n", slurp($_) =~ m{//(.+)}g foreach glob '{src,relay/src}/{*.cpp,*/*.cpp,*/*.h}';
my @words = map { my $file = $_; map { "$file: $_" } $prose{$file} =~ /(.{0,30}\b(?:nobody|somebody|whoever|anew|likewise)\b)/gi } sort keys %prose;
is_deeply(\@words, [], 'documentation and comments use plain words');

# The architecture: folders are layers, and an include names its own layer or one below. Of each tree: the
# modules with what they include, and the layer of that.
sub architecture
{
	my ($tree, $least, @layers) = @_;
	my %level = map { my $level = $_; map { $_ => $level } @{ $layers[$level] } } 0 .. $#layers;
	my @files = glob "$tree/*.cpp $tree/*/*.cpp $tree/*/*.h";
	my %include;

	foreach my $file (@files)
	{
		my $folder = $file =~ m{^$tree/(\w+)/} ? $1 : '';
		my ($module) = $file =~ m{^$tree/(.+)\.\w+$};

		foreach my $name (slurp($file) =~ /^#include "([^"]+)"/mg)
		{
			my ($to) = $name =~ m{^(\w+)/\w+\.h$};
			($to, $name) = ('core', "core/$name") if !$to && $folder eq 'core';
			next if $folder eq 'server' && $file =~ m{/pg\.h$};
			$include{$module}{ $name =~ s/\.h$//r } = $to // 'no layer';
		}
	}
	cmp_ok(scalar(keys %include), '>', $least, "$tree: there are modules");

	my (@up, @cycles, %seen);
	foreach my $module (sort keys %include)
	{
		my $from = $module =~ m{^(\w+)/} ? $1 : undef;
		push @up, map { "$module includes $_" } grep {
			my $to = $include{$module}{$_};
			!exists $level{$to} || (defined $from && $to ne $from && $level{$to} >= $level{$from})
		} sort keys %{ $include{$module} };
	}
	is_deeply(\@up, [], '... which include nothing from above or beside their own layer');

	my $visit;
	$visit = sub {
		my ($module, @path) = @_;

		if ($seen{$module})
		{
			my ($i) = grep { $path[$_] eq $module } 0 .. $#path;
			push @cycles, join ' -> ', @path[ $i .. $#path ], $module if defined $i;
			return;
		}
		$seen{$module} = 1;
		$visit->($_, @path, $module) foreach grep { $_ ne $module } sort keys %{ $include{$module} // {} };
	};
	$visit->($_) foreach sort keys %include;
	is_deeply([ grep { !m{^rows/} } @cycles ], [], '... and no cycle of modules');
	is_deeply([ grep { slurp($_) =~ tr/\n// > 600 } @files ], [], '... of at most 600 lines a file');
	return %include;
}

my %include = architecture('src', 50, [qw(core)], [qw(server)], [qw(rows)], [qw(commit privacy)], [qw(message upkeep inbox)], [qw(seals)], [qw(verbs saga)], [qw(process)]);
architecture('relay/src', 20, [qw(core)], [qw(toml seen db)], [qw(sinks)], [qw(config)], [qw(flow)]);

# A name says what a function does: it stands for one.
my %defined;
foreach my $file (glob 'src/*.cpp src/*/*.cpp')
{
	$defined{$_}{$file} = 1 foreach slurp($file) =~ /^([a-z]\w*)\((?=[^;]*?\)(?: noexcept)?\n\{)/mg;
}
cmp_ok(scalar(keys %defined), '>', 500, 'src: there are functions');
is_deeply([ map { "$_: " . join ' ', sort keys %{ $defined{$_} } } grep { keys %{ $defined{$_} } > 1 } sort keys %defined ],
	[], '... no name of which is defined in two modules');

my %drawn;
$drawn{ $_->[0] }{ $_->[1] } = 1 foreach map { [ split / -> / ] } slurp('docs/layers.dot') =~ /^\t(\w+ -> \w+);$/mg;
my %taken;
foreach my $module (grep { m{/} } keys %include)
{
	$taken{ $module =~ s{/.*}{}r }{$_} = 1 foreach values %{ $include{$module} };
}
# leads FROM TO: along the arrows
sub leads
{
	my ($from, $to) = @_;
	return $from eq $to || grep { leads($_, $to) } keys %{ $drawn{$from} // {} };
}
is_deeply([ map { my $from = $_; map { "$from -> $_" } grep { !leads($from, $_) } sort keys %{ $taken{$from} } } sort keys %taken ],
	[], 'docs/layers.dot: includes go along its arrows');
is_deeply([ map { my $from = $_; map { "$from -> $_" } grep { !$taken{$from}{$_} } sort keys %{ $drawn{$from} } } sort keys %drawn ],
	[], '... each of which some include takes');
is_deeply([ grep { index(slurp(s/\.dot$/.svg/r), "<!--\n" . slurp($_) . "-->\n") < 0 || slurp($_) =~ /--/ } glob 'docs/*.dot' ],
	[], 'docs/*.svg are made of docs/*.dot (make pictures)');

SKIP:
{
	my ($formatter) = grep { defined && `$_ --version 2>/dev/null` =~ /version 14\./ } qw(clang-format-14 clang-format);
	skip 'clang-format 14 is not installed', 1 unless $formatter;
	my @files = split /\n/, `git ls-files '*.cpp' '*.h' 2>/dev/null`;
	@files = glob 'src/*.cpp src/*/*.cpp src/*/*.h test/*/*.cpp test/*/*.h bench/*.cpp bench/*.h demo/*.cpp' unless @files;
	my %wrong = map { $_ => 1 } map { /^([^:]+):\d+:\d+: error/ ? $1 : () } split /\n/,
	  `$formatter --dry-run --Werror @{[ grep { -f } @files ]} 2>&1`;
	is_deeply([ sort keys %wrong ], [], 'C++ has the format of .clang-format');
}

done_testing();
