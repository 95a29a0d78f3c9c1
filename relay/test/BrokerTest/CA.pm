# Certificates for tests, made by openssl when one asks for them first.
#
#   test_ca()->{...}   paths of PEM files:
#     ca                           the authority; localhost and 127.0.0.1 are certified by it
#     cert, key, both              of the servers of a test (both: certificate and key in one file)
#     other_cert, other_key        the same authority, for other.example: a wrong name
#     client_cert, client_key      for a client named "relay"
#     stranger_ca                  another authority, which has certified nothing
#
# Keys are PKCS #8, which Kafka wants, readable by whoever runs the test only.
package BrokerTest::CA;

use strict;
use warnings;

use BrokerTest::Base qw(new_folder slurp tool write_file);
use Exporter 'import';

our @EXPORT_OK = qw(test_ca);

my $ca;

sub authority
{
	my ($folder, $name) = @_;

	tool([ qw(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2), '-subj', "/CN=$name",
		'-keyout', "$folder/$name.key", '-out', "$folder/$name.pem" ]);
	return "$folder/$name.pem";
}

sub certificate
{
	my ($folder, $name, $names) = @_;

	write_file("$folder/$name.ext", "subjectAltName=$names\nbasicConstraints=CA:FALSE\n");
	tool([ qw(openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes), '-subj', "/CN=$name",
		'-keyout', "$folder/$name.key", '-out', "$folder/$name.csr" ]);
	tool([ qw(openssl x509 -req -days 2), '-in', "$folder/$name.csr", '-extfile', "$folder/$name.ext",
		'-CA', "$folder/ca.pem", '-CAkey', "$folder/ca.key", '-CAcreateserial', '-out', "$folder/$name.pem" ]);
	return ("$folder/$name.pem", "$folder/$name.key");
}

sub test_ca
{
	return $ca if $ca;
	my $folder = new_folder('ca');
	my %files = (ca => authority($folder, 'ca'), stranger_ca => authority($folder, 'stranger'));

	@files{ 'cert', 'key' } = certificate($folder, 'localhost', 'DNS:localhost,IP:127.0.0.1');
	@files{ 'other_cert', 'other_key' } = certificate($folder, 'other', 'DNS:other.example');
	@files{ 'client_cert', 'client_key' } = certificate($folder, 'relay', 'DNS:relay.example');
	$files{both} = write_file("$folder/both.pem", slurp($files{key}) . slurp($files{cert}));
	return $ca = \%files;
}

1;
