#!/usr/bin/perl
#
# outbox.so exports what the install scripts ask for, what a server needs to load it and the main functions of
# background processes, and nothing else. Run in the root of the built tree.

use strict;
use warnings;

use File::Temp qw(tempdir);
use Test::More;

sub slurp
{
	my ($name) = @_;
	open my $file, '<', $name or die "$name: $!\n";
	local $/;
	return scalar <$file>;
}

open my $nm, '-|', qw(nm -D --defined-only --format=posix outbox.so) or die "nm: $!\n";
my %exported = map { my ($name) = split; $name =~ s/@.*//; $name => 1 } <$nm>;
ok(close($nm), 'nm reads outbox.so');

my %entry;
foreach my $script (glob 'sql/*.sql contracts/*/sql/*.sql extensions/*/sql/*.sql')
{
	my @symbols = slurp($script) =~ /'(?:MODULE_PATHNAME|\$libdir\/outbox)'\s*,\s*'(\w+)'/g;
	$entry{$_} = 1 foreach @symbols;
}
my %known = map { $_ => 1 } 'Pg_magic_func', '_PG_init', map { $_, "pg_finfo_$_" } keys %entry;
is_deeply([ grep { !$exported{$_} } sort keys %known ], [], 'every function of the install scripts is exported, with its pg_finfo_');
is_deeply([ grep { !$known{$_} && !/^outbox_\w*_main$/ } sort keys %exported ], [], '... and nothing else, but for background processes');

# Of OpenSSL 1.1 and 3 alike: digests and ciphers, compiled for 1.1, ask for functions that 1.1 has and 3 still has.
my %of_1_1 = (
	'core/sha256' => [qw(EVP_sha256 EVP_MD_CTX_new EVP_DigestInit_ex EVP_DigestUpdate EVP_DigestFinal_ex)],
	'server/cipher' => [
		qw(EVP_sha256 EVP_aes_256_gcm EVP_CIPHER_CTX_new EVP_CIPHER_CTX_reset EVP_CIPHER_CTX_ctrl EVP_EncryptInit_ex EVP_EncryptUpdate EVP_EncryptFinal_ex
			EVP_DecryptInit_ex EVP_DecryptUpdate EVP_DecryptFinal_ex EVP_EncodeBlock EVP_DecodeBlock)
	]);
my $dir = tempdir(CLEANUP => 1);
open my $header, '>', "$dir/openssl_1_1.h" or die $!;
print $header "#include <openssl/evp.h>\n#undef OPENSSL_VERSION_NUMBER\n#define OPENSSL_VERSION_NUMBER 0x1010100fL\n";
close $header or die $!;
foreach my $module (sort keys %of_1_1)
{
	my ($compile) = grep { m{ -c .*src/\Q$module\E\.cpp} } split /\n/, `make -n -W src/$module.cpp src/$module.o`;
	ok($compile && $compile =~ s{ -MMD -MP -c -o \S+}{ -include $dir/openssl_1_1.h -c -o $dir/module.o} && system($compile) == 0, "$module compiles for OpenSSL 1.1");
	my %imported = map { map { $_ => 1 } grep { /^EVP_/ } split } `nm --undefined-only --format=posix $dir/module.o`;
	is_deeply([ sort keys %imported ], [ sort @{ $of_1_1{$module} } ], '... and needs what it has');
}
my %allowed = map { $_ => 1 } (map { @$_ } values %of_1_1), qw(EVP_MD_fetch EVP_CIPHER_fetch);
# Of signatures, all since 1.1.1, but for one that has another name in 3.
@allowed{qw(EVP_Digest EVP_DigestSign EVP_DigestSignInit EVP_DigestVerify EVP_DigestVerifyInit EVP_MD_CTX_free EVP_PKEY_free
	  EVP_PKEY_get_id EVP_PKEY_get_raw_public_key EVP_PKEY_new_raw_public_key)} = (1) x 10;
my %imported = map { /^((?:EVP|OSSL|SSL|CRYPTO|RAND|SHA)_\w+)/ ? ($1 => 1) : () } `nm -D --undefined-only --format=posix outbox.so`;
is_deeply([ grep { !$allowed{$_} } sort keys %imported ], [], 'nothing else of OpenSSL is used, but for EVP_MD_fetch and EVP_CIPHER_fetch, which 3 has');

done_testing();
