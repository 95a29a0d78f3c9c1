# What the parts of BrokerTest stand on: folders, ports, waiting, and running tools.
#
# Guarantees: a port that was handed out belongs to this process until it ends, among all tests on
# this machine, whichever user runs them; nothing waits without an end, or for a time instead of a
# condition.
#
# Shape: a port is reserved by an abstract Unix socket of its number, which the kernel frees
# with the process. The numbers are below those that the kernel gives to outgoing connections,
# so that a server which was stopped finds its port free when it starts again.
package BrokerTest::Base;

use strict;
use warnings;

use Cwd ();
use Exporter 'import';
use File::Basename ();
use File::Temp ();
use IPC::Run ();
use JSON::PP ();
use Socket;
use Time::HiRes ();

our @EXPORT_OK = qw($here new_folder log_file free_port wait_for write_file slurp from_json to_json json_lines tool python_tool);

our $here = File::Basename::dirname(File::Basename::dirname(Cwd::abs_path(__FILE__)));
my $json = JSON::PP->new->canonical->allow_nonref;
my $folder;
my $folders = 0;
my @reserved;
my $port = 10240 + $$ * 61 % 20000;

# Debian has the brokers there, where not every user looks.
$ENV{PATH} .= ':/usr/sbin';

our $guard = sub { };    # dies where waiting is in vain; set by BrokerTest::Process

# A new folder, gone with the process.
sub new_folder
{
	my ($name) = @_;

	$folder //= File::Temp->newdir('brokers.XXXXXX', TMPDIR => 1);
	my $path = "$folder/" . ++$folders . "_$name";

	mkdir $path or die "$path: $!";
	return $path;
}

# Where a process writes its log: beside that of the test, where this is run as one.
sub log_file
{
	my ($name) = @_;
	my ($test) = File::Basename::basename($0) =~ /^(.*?)(?:\.pl)?$/;
	my $logs = $ENV{TESTLOGDIR};

	return $logs && -d $logs ? "$logs/${test}_$name.log" : new_folder('log') . "/$name.log";
}

sub is_free
{
	my ($number) = @_;

	socket my $claim, AF_UNIX, SOCK_STREAM, 0 or die "socket: $!";
	bind $claim, pack_sockaddr_un("\0outbox-test-port-$number") or return 0;
	socket my $probe, AF_INET, SOCK_STREAM, 0 or die "socket: $!";
	bind $probe, pack_sockaddr_in($number, INADDR_LOOPBACK) or return 0;
	push @reserved, $claim;
	return 1;
}

sub free_port
{
	for (1 .. 20000)
	{
		$port = 10240 if ++$port >= 32000;
		return $port if is_free($port);
	}
	die 'no free port';
}

# Until the condition holds: what it returns. Dies after PG_TEST_TIMEOUT_DEFAULT seconds (180), and at once if a process has
# ended without being asked to.
sub wait_for
{
	my ($condition, $what) = @_;
	my $end = Time::HiRes::time() + ($ENV{PG_TEST_TIMEOUT_DEFAULT} || 180);

	while (1)
	{
		my $result = $condition->();

		return $result if $result;
		$guard->($what);
		die "waited in vain for $what" if Time::HiRes::time() > $end;
		Time::HiRes::sleep(0.02);
	}
}

sub write_file
{
	my ($path, $content) = @_;

	open my $out, '>', $path or die "$path: $!";
	print $out $content;
	close $out or die "$path: $!";
	return $path;
}

sub slurp
{
	my ($path, $from) = @_;

	open my $in, '<', $path or die "$path: $!";
	seek $in, $from // 0, 0;
	local $/ = undef;
	return <$in> // '';
}

# JSON texts are bytes (UTF-8), values are characters.
sub from_json { my ($text) = @_; return $json->utf8->decode($text); }
sub to_json { my ($value) = @_; return $json->utf8->encode($value); }
sub json_lines { my ($text) = @_; return map { from_json($_) } grep { /\S/ } split /\n/, $text; }

# Runs a program to its end: its output. Dies if it fails. Options: input, may_fail (then
# the list of output, errors and exit status).
sub tool
{
	my ($command, %options) = @_;
	my ($out, $err) = ('', '');
	my $timer = IPC::Run::timeout($ENV{PG_TEST_TIMEOUT_DEFAULT} || 180);

	eval { IPC::Run::run($command, '<', \($options{input} // ''), '>', \$out, '2>', \$err, $timer); 1 } or die "@$command: $@";
	my $status = $? >> 8 || $? & 127;

	return ($out, $err, $status) if $options{may_fail};
	die "@$command: status $status\n$err$out" if $status;
	return $out;
}

# One of tools/*.py with a request: its answers.
sub python_tool
{
	my ($name, $request) = @_;

	return json_lines(tool([ '/usr/bin/python3', "$here/tools/$name.py" ], input => to_json($request)));
}

1;
