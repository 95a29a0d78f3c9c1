# A server that a test starts: kept by tools/keep.py, so that it ends with the test.
#
#   start           starts it and returns when it is ready
#   stop            asks it to end (SIGTERM) and returns when it has; its exit status
#   kill9           kills it and all that it started; returns when they are gone
#   restart         stop and start
#   pause, resume   SIGSTOP, SIGCONT
#   running, pid
#   log             what it wrote since it was started last
#   wait_log(REGEX) until it has written that since then
#   signal(NAME), wait_end: a signal; until it ends: its exit status
#
# Guarantees: what start returned from is ready, by the condition of that server; whatever way the
# test ends, by kill -9 too, no process stays. Folder and ports stay the same from start to start.
# One that ends without having been asked to, by a signal or by wait_end, fails what waits for anything, with its log.
package BrokerTest::Process;

use strict;
use warnings;

use BrokerTest::Base qw($here wait_for slurp log_file new_folder);
use POSIX ();

my %kept;     # keeper => process
my %wanted;    # those that are to run
my $owner = $$;

# Of: name, command (array), env (hash), ready (of the process: true when it is).
sub new
{
	my ($class, %self) = @_;

	$self{folder} //= new_folder($self{name});
	$self{logfile} //= log_file($self{name});
	return bless \%self, $class;
}

sub start
{
	my ($self) = @_;

	die "$self->{name} runs already" if $self->running;
	$self->spawn;
	return $self->wait_ready;
}

sub wait_ready
{
	my ($self) = @_;

	wait_for(sub {
		$self->running or $self->fallen('did not start');
		return $self->{ready}->($self);
	}, "$self->{name} to be ready, see $self->{logfile}");
	return $self;
}

sub fallen
{
	my ($self, $how) = @_;

	delete $wanted{$self};
	die "$self->{name} $how:\n" . substr($self->log, -4000);
}

# A copy of the test, made by fork, has no processes of its own.
sub guard
{
	my ($what) = @_;

	return if $$ != $owner;
	$_->running || $_->fallen("ended by itself with status $_->{status}, waiting for $what") foreach values %wanted;
	return;
}
$BrokerTest::Base::guard = \&guard;

sub spawn
{
	my ($self) = @_;

	$self->{log_from} = -s $self->{logfile} // 0;
	pipe my $in, my $out or die "pipe: $!";
	my $parent = $$;
	my $keeper = fork // die "fork: $!";

	if (!$keeper)
	{
		eval {
			%ENV = (%ENV, %{ $self->{env} // {} });
			open STDIN, '<', '/dev/null';
			open STDOUT, '>&', $out;
			open STDERR, '>>', $self->{logfile};
			chdir $self->{folder};
			exec '/usr/bin/python3', "$here/tools/keep.py", $parent, $self->{logfile}, @{ $self->{command} };
		};
		POSIX::_exit(127);
	}
	close $out;
	$kept{$keeper} = $self;
	$wanted{$self} = $self;
	$self->{keeper} = $keeper;
	my $line = <$in> // '';

	$self->{pid} = $line =~ /^(\d+)$/ ? $1 : die "$self->{name} was not started: " . slurp($self->{logfile}, $self->{log_from});
	return;
}

# Notes that it has ended, if it has.
sub reap
{
	my ($self, $flags) = @_;

	return unless $self->{keeper} && waitpid($self->{keeper}, $flags) != 0;
	$self->{status} = $? >> 8;
	delete $kept{ delete $self->{keeper} };
	return;
}

sub running
{
	my ($self) = @_;

	$self->reap(POSIX::WNOHANG());
	return defined $self->{keeper};
}

sub pid { my ($self) = @_; return $self->{pid}; }

sub signal
{
	my ($self, $name) = @_;

	delete $wanted{$self} unless $name eq 'HUP';
	return $self->running && kill $name, $self->{pid};
}

sub wait_end
{
	my ($self) = @_;

	delete $wanted{$self};
	wait_for(sub { !$self->running }, "$self->{name} to end, see $self->{logfile}");
	return $self->{status};
}

sub stop
{
	my ($self) = @_;

	$self->resume;
	$self->signal('TERM') or return $self->{status};
	return $self->wait_end;
}

sub kill9
{
	my ($self) = @_;

	delete $wanted{$self};
	return unless $self->running;
	kill 'TERM', $self->{keeper};
	$self->reap(0);
	return;
}

sub restart { my ($self) = @_; $self->stop; return $self->start; }

# The whole session, which has one process group.
sub pause { my ($self) = @_; return $self->running && kill '-STOP', $self->{pid}; }
sub resume { my ($self) = @_; return $self->running && kill '-CONT', $self->{pid}; }

sub log
{
	my ($self) = @_;

	return -e $self->{logfile} ? slurp($self->{logfile}, $self->{log_from}) : '';
}

sub wait_log
{
	my ($self, $regex) = @_;

	return wait_for(sub { $self->log =~ $regex }, "$regex in $self->{logfile}");
}

sub end_all
{
	kill 'TERM', keys %kept;
	waitpid $_, 0 foreach keys %kept;
	%kept = ();
	return;
}

# The keepers end at once; with the test's own death they get the same signal from the kernel.
END
{
	local ($?, $!);
	end_all() if $$ == $owner;
}

foreach my $name (qw(INT TERM HUP))
{
	$SIG{$name} //= sub { exit 128 + { INT => 2, TERM => 15, HUP => 1 }->{$name} };
}

1;
