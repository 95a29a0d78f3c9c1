# An HTTP receiver that records what it is sent, and is as slow, wrong or broken as a test wants it.
#
# start_receiver(OPTION => VALUE, ...):
#   tls        1: HTTPS, HTTP/2 for clients that ask for it (ALPN); 'other', 'expired': with such a certificate of test_ca
#   clients    1 (with tls): those without a certificate of test_ca are refused
#   http2      false (with tls): HTTP/1.1 only
#
#   port, url(PATH)              http://127.0.0.1:PORT/PATH, or https://localhost:PORT/PATH
#   answer(PATH, {...}, ...)     what requests for that path get (whatever the query), one after the other, the last one for
#                                all that follow; '*' is for all paths that have none. Without: 200, "{}"
#   accept(HOW)                  connections: 'serve'; 'close' and 'reset' (at once), 'ignore' (never read)
#   release(PATH)                lets those go that are held now, and how many these were; without a path, all
#   held(PATH)                   how many are held now
#   wait_held(PATH, N)           until so many are
#   requests(PATH, count => N)   what came, once there are so many: method, path (with the query), target_path (without), headers
#                                (hash, names in lower case; repeated ones joined by ", "), body (bytes), http ("1.1", "2"),
#                                connection (its number), concurrent (requests that were not answered yet, this one too)
#   forget                       forgets them
#
# An answer is a hash; all may be combined:
#   status => 200, headers => { 'Retry-After' => 1 }, body => '...', size => BYTES of body
#   redirect => URL              302 with a Location
#   hold => 'head' | 'body'      nothing, or nothing after the headers, until release
#   never => 1                   no answer
#   close => 'before'            the connection ends (in HTTP/2: the stream is reset) instead of an answer
#   close => 'middle'            ... after the headers and half of the body
#
# Guarantees: a request is recorded before it is answered, and once its body is whole.
package BrokerTest::Receiver;

use strict;
use warnings;

use BrokerTest::Base qw($here free_port json_lines new_folder slurp wait_for);
use BrokerTest::CA qw(test_ca server_files);
use BrokerTest::Control;

our @ISA = ('BrokerTest::Control');

sub new
{
	my ($class, %options) = @_;
	my $port = free_port();
	my @tls = $options{tls} ? (@{ server_files($options{tls}) }{ 'cert', 'key' }, $options{http2} // 1 ? 'h2' : 'http/1.1',
		$options{clients} ? test_ca()->{ca} : ()) : ();

	return $class->SUPER::new(
		name => 'receiver', folder => new_folder('receiver'), listens => $port, tls => scalar @tls,
		command => [ '/usr/bin/python3', "$here/tools/receiver.py", $port, @tls ], ready => sub { -S "$_[0]{folder}/control" });
}

sub port { my ($self) = @_; return $self->{listens}; }
sub url { my ($self, $path) = @_; return ($self->{tls} ? 'https://localhost:' : 'http://127.0.0.1:') . $self->{listens} . ($path // '/'); }
sub answer { my ($self, $path, @answers) = @_; return $self->tell(do => 'answer', path => $path, answers => \@answers); }
sub accept { my ($self, $how) = @_; return $self->tell(do => 'accept', how => $how); }
sub release { my ($self, $path) = @_; return $self->tell(do => 'release', path => $path)->{held}; }
sub held { my ($self, $path) = @_; return $self->tell(do => 'held', path => $path)->{held}; }
sub forget { my ($self) = @_; return $self->tell(do => 'forget'); }

sub wait_held
{
	my ($self, $path, $count) = @_;

	return wait_for(sub { $self->held($path) >= $count }, "$count requests to be held at $path");
}

sub requests
{
	my ($self, $path, %options) = @_;
	my $count = $options{count} // 0;
	my @requests;

	wait_for(sub {
		my $file = "$self->{folder}/requests";

		@requests = grep { !defined $path || $_->{target_path} eq $path } -e $file ? json_lines(slurp($file) =~ s/[^\n]+\z//r) : ();
		return @requests >= $count;
	}, "$count requests for " . ($path // 'any path'));
	return @requests;
}

1;
