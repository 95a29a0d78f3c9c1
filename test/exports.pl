#!/usr/bin/perl
#
# outbox.so exports what exports.txt lists and nothing else, and that is all that
# the install scripts ask for. Run in the root of the built tree.

use strict;
use warnings;

use Test::More;

sub slurp
{
	my ($name) = @_;
	open my $file, '<', $name or die "$name: $!\n";
	local $/;
	return scalar <$file>;
}

my @lines = grep { !/^\s*(?:#|$)/ } split /\n/, slurp('exports.txt');
my %listed = map { (split)[0] => 1 } @lines;
is(scalar(keys %listed), scalar(@lines), 'exports.txt lists nothing twice');

open my $nm, '-|', qw(nm -D --defined-only --format=posix outbox.so) or die "nm: $!\n";
my %exported = map { my ($name) = split; $name =~ s/@.*//; $name => 1 } <$nm>;
ok(close($nm), 'nm reads outbox.so');

is_deeply([ grep { !$listed{$_} } sort keys %exported ], [], 'nothing outside exports.txt is exported');
is_deeply([ grep { !$exported{$_} } sort keys %listed ], [], 'everything in exports.txt is exported');

my %entry;
foreach my $script (glob 'sql/*.sql contracts/*/sql/*.sql')
{
	my @symbols = slurp($script) =~ /'(?:MODULE_PATHNAME|\$libdir\/outbox)'\s*,\s*'(\w+)'/g;
	$entry{$_} = 1 foreach @symbols;
}
is_deeply([ grep { !$exported{$_} || !$exported{"pg_finfo_$_"} } sort keys %entry ], [],
	'every function of the install scripts is exported, with its pg_finfo_');
# Background workers are entered by name, too, and no script says so.
my %known = map { $_ => 1, "pg_finfo_$_" => 1 } keys %entry;
is_deeply([ grep { !$known{$_} && !/^(?:Pg_magic_func|_PG_init|outbox_\w*_main)$/ } sort keys %listed ], [],
	'no entry point that no install script uses');

done_testing();
