# Certificates for tests, made by openssl when one asks for them first.
#
#   test_ca()->{...}   paths of PEM files:
#     ca                           the authority; localhost and 127.0.0.1 are certified by it
#     cert, key, both              of the servers of a test (both: certificate and key in one file)
#     other                        hash of cert, key, both: by the same authority, for other.example: a wrong name
#     expired                      the same, for localhost, of yesterday
#     client                       the same, for a client named "relay"
#     stranger_ca                  another authority, which has certified nothing
#     stranger_key                 its key
#     empty                        a file without any
#
# server_files(TLS): the hash of cert, key, both for what a start_... function got as tls: 1, 'other' or 'expired'.
#
# Keys are PKCS #8, which Kafka wants, readable only by the user who runs the test.
package BrokerTest::CA;

use strict;
use warnings;

use BrokerTest::Base qw(new_folder slurp tool write_file);
use Exporter 'import';

our @EXPORT_OK = qw(test_ca server_files);

my $ca;

sub authority
{
	my ($folder, $name) = @_;

	tool([ qw(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -addext), 'keyUsage=critical,keyCertSign', '-subj', "/CN=$name",
		'-keyout', "$folder/$name.key", '-out', "$folder/$name.pem" ]);
	return "$folder/$name.pem";
}

sub certificate
{
	my ($folder, $name, $names, @as) = @_;

	write_file("$folder/$name.ext", "subjectAltName=$names\nbasicConstraints=CA:FALSE\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n");
	tool([ qw(openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes), '-subj', "/CN=$name",
		'-keyout', "$folder/$name.key", '-out', "$folder/$name.csr" ]);
	tool([ @as, qw(openssl x509 -req -days 2), '-in', "$folder/$name.csr", '-extfile', "$folder/$name.ext",
		'-CA', "$folder/ca.pem", '-CAkey', "$folder/ca.key", '-CAcreateserial', '-out', "$folder/$name.pem" ]);
	return {
		cert => "$folder/$name.pem", key => "$folder/$name.key",
		both => write_file("$folder/$name.both", slurp("$folder/$name.key") . slurp("$folder/$name.pem")) };
}

sub test_ca
{
	return $ca if $ca;
	my $folder = new_folder('ca');
	my $local = 'DNS:localhost,IP:127.0.0.1';
	my $authority = authority($folder, 'ca');

	$ca = {
		ca => $authority, stranger_ca => authority($folder, 'stranger'), stranger_key => "$folder/stranger.key", %{ certificate($folder, 'localhost', $local) },
		other => certificate($folder, 'other', 'DNS:other.example'),
		expired => certificate($folder, 'expired', $local, qw(faketime -f -3d)), client => certificate($folder, 'relay', 'DNS:relay.example'),
		empty => write_file("$folder/empty.pem", '') };
	return $ca;
}

sub server_files
{
	my ($tls) = @_;

	return $tls eq '1' ? test_ca() : test_ca()->{$tls} // die "no certificate $tls";
}

1;
