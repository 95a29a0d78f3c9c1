# A server of tools/ that is told what to do while it runs: requests and answers are lines of JSON
# on a Unix socket in its folder.
package BrokerTest::Control;

use strict;
use warnings;

use BrokerTest::Base qw($here from_json to_json);
use BrokerTest::Process;
use IO::Socket::UNIX;

our @ISA = ('BrokerTest::Process');

# tell(NAME => VALUE ...): the answer; dies where that is an error
sub tell
{
	my ($self, %request) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => "$self->{folder}/control") or die "$self->{name} does not listen: $!";

	print $socket to_json(\%request) . "\n";
	$socket->flush;
	my $line = <$socket> // die "$self->{name} does not answer, see $self->{logfile}";
	my $answer = from_json($line);

	die "$self->{name}: $answer->{error}" if ref $answer eq 'HASH' && $answer->{error};
	return $answer;
}

sub spawn
{
	my ($self) = @_;

	unlink "$self->{folder}/control";
	return $self->SUPER::spawn;
}

1;
