#!/usr/bin/perl
#
# Runs tests that speak TAP, shows what failed, and writes the counts to a file:
#
#   tap_count.pl COUNTS [--comments] [--jobs N] [--exec WORD]... FILE...
#   tap_count.pl COUNTS [--comments] --command NAME WORD...
#
# The first form runs each FILE with the words before it, N at a time, the second one command.
# First line of COUNTS: passed, failed, skipped; then the names of the files that
# did not succeed. A file that failed otherwise than by a test (no plan, too few
# tests, killed) counts one more failure.

use strict;
use warnings;

use TAP::Harness;

my $counts = shift or die "usage: $0 COUNTS ...\n";
my %options = (failures => 1, timer => 1, verbosity => $ENV{VERBOSE} ? 1 : 0);
my @exec;
my @tests;

while (@ARGV)
{
	my $word = shift;
	if ($word eq '--comments') { $options{comments} = 1; }
	elsif ($word eq '--jobs') { $options{jobs} = shift; }
	elsif ($word eq '--exec') { push @exec, shift; }
	elsif ($word eq '--command')
	{
		my $name = shift;
		my @command = splice @ARGV;
		$options{exec} = sub { return [@command]; };
		@tests = ($name);
	}
	else { push @tests, $word; }
}
$options{exec} = [@exec] if @exec;

my $total = TAP::Harness->new(\%options)->runtests(@tests);

my $skipped = $total->skipped;
my $passed = $total->passed - $skipped;
my $failed = $total->failed;
my @bad;

foreach my $parser ($total->parsers($total->descriptions))
{
	$skipped++ if defined $parser->skip_all;
	$failed++
	  if $parser->parse_errors || ((($parser->wait // 0) != 0) && !$parser->failed);
}
foreach my $name ($total->descriptions)
{
	my ($parser) = $total->parsers($name);
	push @bad, $name if $parser->has_problems;
}

open my $out, '>', $counts or die "$counts: $!\n";
print $out "$passed $failed $skipped\n", map { "$_\n" } @bad;
close $out or die "$counts: $!\n";

exit($failed ? 1 : 0);
