#!/usr/bin/perl
# Prints what a benchmark noted (see measure.sh), as text or as JSON.
#
#	report.pl conditions|results|json FOLDER
#
# A figure of each round becomes its median, with the least and the greatest; samples of
# all rounds together become quantiles. A ratio is made of the figures of one round, which
# were measured one after the other, and its median is taken: so what slows the machine down
# for a while slows both. A figure that is compared is followed by that ratio, "x": how many
# times as much (more), or how many times less (less), as the variant it is compared with.
use strict;
use warnings;

use JSON::PP;
use List::Util qw(max);

my ($what, $folder) = @ARGV;

sub lines_of
{
	my ($name) = @_;

	open my $file, '<:encoding(UTF-8)', "$folder/$name" or return ();
	my @lines = map { chomp; [ split /\t/, $_, -1 ] } <$file>;
	return @lines;
}

my @conditions = lines_of('conditions');
my (@results, %results);

# A result for each (set, case, variant, metric), in the order they came.
for my $line (lines_of('figures'))
{
	my ($kind, $set, $case, $variant, $round, $metric, $value) = @$line;
	my $key = join "\t", $set, $case, $variant, $metric;

	push @results, $results{$key} = { set => $set, case => $case, variant => $variant,
		metric => $metric, kind => $kind, rounds => {} } unless $results{$key};
	push @{ $results{$key}{rounds}{$round} }, $value + 0;
}

sub quantile
{
	my ($q, @values) = @_;

	@values = sort { $a <=> $b } @values;
	my $at = $q * $#values;
	my $low = int $at;
	my $high = $low < $#values ? $low + 1 : $low;
	return $values[$low] + ($at - $low) * ($values[$high] - $values[$low]);
}

sub by_round { my ($result) = @_; return sort { $a <=> $b } keys %{ $result->{rounds} } }
sub values_of { my ($result) = @_; return map { @{ $result->{rounds}{$_} } } by_round($result) }

sub summary
{
	my ($result) = @_;
	my @values = values_of($result);
	my %summary = (n => scalar @values, min => quantile(0, @values), max => quantile(1, @values),
		median => quantile(0.5, @values));

	$summary{p99} = quantile(0.99, @values) if $result->{kind} eq 'sample';
	return \%summary;
}

sub result
{
	my $key = join "\t", @_;

	return $results{$key} // die "there is no result for a target: $key\n";
}

# ---------------------------------------------------------------- targets

sub ratio
{
	my ($one, $other) = @_;

	return quantile(0.5, map { $one->{rounds}{$_}[0] / $other->{rounds}{$_}[0] }
		grep { $other->{rounds}{$_} } by_round($one));
}

sub judged
{
	my ($kind, $set, $case, $metric, $variant, $other, $sign, $value) = @_;
	my $one = result($set, $case, $variant, $metric);
	my $is = $kind eq 'ratio'
		? ratio($one, result($set, $case, $other, $metric)) : quantile($other, values_of($one));

	return { kind => $kind, set => $set, case => $case, metric => $metric, variant => $variant,
		($kind eq 'ratio' ? 'other' : 'quantile') => $other, sign => $sign, target => $value + 0,
		is => $is, reached => ($sign eq '>=' ? $is >= $value : $is <= $value) ? JSON::PP::true : JSON::PP::false };
}

my @targets = $what eq 'conditions' ? () : map { judged(@$_) } lines_of('targets');

# ---------------------------------------------------------------- comparisons

my %comparisons;
push @{ $comparisons{"$_->[0]\t$_->[2]"} }, { other => $_->[1], direction => $_->[3] } for lines_of('comparisons');

# A list of [other variant, ratio].
sub compared
{
	my ($result) = @_;
	my @compared;

	for my $comparison (@{ $comparisons{"$result->{set}\t$result->{metric}"} // [] })
	{
		my $other = $results{ join "\t", $result->{set}, $result->{case}, $comparison->{other}, $result->{metric} };
		next unless $other && $other != $result;
		push @compared, [ $comparison->{other},
			$comparison->{direction} eq 'more' ? ratio($result, $other) : ratio($other, $result) ];
	}
	return @compared;
}

# ---------------------------------------------------------------- text

# Four digits that count, and no more.
sub shown
{
	my ($value) = @_;
	my $digits = $value == 0 ? 1 : int(log(abs $value) / log(10) + 1e-9) + 1;

	return $value =~ /[^-0-9.e]/ ? $value : sprintf '%.*f', abs($value) < 1 ? 3 : max(0, 4 - $digits), $value;
}

sub print_table
{
	my (@rows) = @_;
	my @width;

	for my $row (@rows)
	{
		$width[$_] = max($width[$_] // 0, length $row->[$_]) for 0 .. $#$row;
	}
	for my $row (@rows)
	{
		my @cells = map { sprintf $_ < 2 ? '%-*s' : '%*s', $width[$_], $row->[$_] } 0 .. $#$row;

		print join('  ', @cells) =~ s/ +$//r, "\n";
	}
	return;
}

sub unique { my %seen; return grep { !$seen{$_}++ } @_ }

# One line a case and variant, one column a metric.
sub figures_table
{
	my (@of_set) = @_;
	my @metrics = unique(map { $_->{metric} } @of_set);
	my @rows = unique(map { "$_->{case}\t$_->{variant}" } @of_set);

	return [ '', '', @metrics ], map {
		my $row = $_;
		[ split(/\t/, $row), map { my $r = $results{"$of_set[0]{set}\t$row\t$_"}; $r ? cell($r) : '' } @metrics ]
	} @rows;
}

sub cell
{
	my ($result) = @_;
	my $summary = summary($result);
	my $range = $summary->{n} == 1 ? '' : sprintf ' (%s..%s)', map { shown($summary->{$_}) } qw(min max);

	return shown($summary->{median}) . $range . join '', map { sprintf ' %.2fx', $_->[1] } compared($result);
}

sub samples_table
{
	my (@of_set) = @_;

	return [ '', '', qw(n p50 p99 min max unit) ], map {
		my $summary = summary($_);
		[ $_->{case}, $_->{variant}, $summary->{n}, (map { shown($summary->{$_}) } qw(median p99 min max)), $_->{metric} ]
	} @of_set;
}

sub print_results
{
	for my $set (unique(map { $_->{set} } @results))
	{
		my @of_set = grep { $_->{set} eq $set } @results;

		print "\n== $set\n";
		print_table($of_set[0]{kind} eq 'sample' ? samples_table(@of_set) : figures_table(@of_set));
	}
	return;
}

sub print_targets
{
	print "\n== Targets\n";
	print_table([ '', '', '', 'is', 'target', '' ], map {
		[ "$_->{set}, $_->{case}",
			$_->{kind} eq 'ratio' ? "$_->{variant} / $_->{other}" : sprintf('%s p%g', $_->{variant}, 100 * $_->{quantile}),
			$_->{metric}, shown($_->{is}), "$_->{sign} $_->{target}", $_->{reached} ? 'reached' : 'MISSED' ]
	} @targets) if @targets;
	return;
}

# ---------------------------------------------------------------- JSON

sub print_json
{
	my @shown = map {
		my $result = $_;
		my %ratios = map { @$_ } compared($result);
		+{ (map { ($_ => $result->{$_}) } qw(set case variant metric kind)), %{ summary($result) },
			(%ratios ? (ratios => \%ratios) : ()),
			rounds => [ map { $result->{kind} eq 'sample' ? $result->{rounds}{$_} : $result->{rounds}{$_}[0] } by_round($result) ] }
	} @results;

	print JSON::PP->new->canonical->pretty->encode({ conditions => { map { $_->[0] => $_->[1] } @conditions },
		results => \@shown, targets => \@targets });
	return;
}

binmode STDOUT, $what eq 'json' ? ':raw' : ':encoding(UTF-8)';
if ($what eq 'json') { print_json() }
elsif ($what eq 'conditions') { print_table(map { [ $_->[0], $_->[1] ] } @conditions) }
else { print_results(); print_targets() }
