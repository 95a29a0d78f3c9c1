# A TCP proxy that breaks connections when it is told to, in front of any broker or PostgreSQL.
#
# start_proxy(port => PORT on loopback), start_proxy(to => [HOST, PORT]), start_proxy(to => PATH of a Unix socket):
# of a PostgreSQL node that is to => $node->host . '/.s.PGSQL.' . $node->port
#
#   port                         where it listens, on loopback
#   to(HOST, PORT), to(PATH)     where connections go from now on
#   refuse                       nothing listens any more: connection refused. Those that stand, stay
#   hole(DIRECTION)              connections are accepted, those that stand too, and nothing is forwarded;
#                                'up': nothing to the server, 'down': nothing to the client; else neither way
#   cut                          all connections are reset at once
#   cut_after(BYTES, DIRECTION)  after so many bytes more ('up', which is the default, or 'down'), counted over all
#                                connections together, all are reset; with that, once
#   swallow_after(BYTES, DIRECTION)  of each connection so many bytes pass ('up' or 'down'), and what comes then is dropped
#   slow(RATE)                   each connection carries so many bytes a second to the client
#   resume                       as in the beginning; what a hole held back is sent
#   stats                        accepted, open, up, down (bytes that were forwarded), cuts
#   wait_stats(SUB)              until SUB, of the stats, is true
#
# Guarantees: when a call returns, what it says is so; a cut ends with exactly that many bytes forwarded.
package BrokerTest::Proxy;

use strict;
use warnings;

use BrokerTest::Base qw($here free_port wait_for new_folder);
use BrokerTest::Control;

our @ISA = ('BrokerTest::Control');

sub new
{
	my ($class, %options) = @_;
	my $port = free_port();
	my $target = ref $options{to} ? $options{to} : $options{to} ? [ $options{to} ] : [ '127.0.0.1', $options{port} ];
	my $self = $class->SUPER::new(name => 'proxy', folder => new_folder('proxy'), listens => $port,
		command => [ '/usr/bin/python3', "$here/tools/proxy.py", $port, @$target ], ready => sub { -S "$_[0]{folder}/control" });

	return $self->start;
}

sub port { my ($self) = @_; return $self->{listens}; }
sub to { my ($self, @target) = @_; return $self->tell(do => 'to', target => \@target); }
sub refuse { my ($self) = @_; return $self->tell(do => 'refuse'); }
sub hole { my ($self, $direction) = @_; return $self->tell(do => 'hole', directions => $direction ? [$direction] : [ 'up', 'down' ]); }
sub cut { my ($self) = @_; return $self->tell(do => 'cut'); }
sub resume { my ($self) = @_; return $self->{pid} ? $self->tell(do => 'resume') : 1; }
sub stats { my ($self) = @_; return $self->tell(do => 'stats'); }
sub cut_after { my ($self, $bytes, $direction) = @_; return $self->tell(do => 'cut_after', bytes => $bytes, direction => $direction // 'up'); }
sub swallow_after { my ($self, $bytes, $direction) = @_; return $self->tell(do => 'swallow', bytes => $bytes, direction => $direction); }
sub slow { my ($self, $rate) = @_; return $self->tell(do => 'slow', rate => $rate); }

sub wait_stats
{
	my ($self, $condition) = @_;

	return wait_for(sub { $condition->($self->stats) }, 'the proxy to say so');
}

sub stop { my ($self) = @_; return $self->kill9; }

1;
