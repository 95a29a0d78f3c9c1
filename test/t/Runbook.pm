# A page of docs/runbooks, run as it is printed: each block of code in its order, in the state that the test has brought about.
#
#   my $runbook = Runbook->new(folder => PATH, sessions => { '' => SESSION, superuser => SESSION, ... }, env => { NAME => VALUE });
#   $runbook->run($page, before => { 'Heading' => sub { ... } }, after => { ... }, rewrite => { 'Heading' => sub { ... } });
#   Runbook::pages(with_relay => BOOL)  the names of the pages that call the relay, or of the others, without suffix
#
# A block of `sql` goes to the psql session of the role that its first line names (`-- superuser`), or that has no name; a block of
# `sh` to bash, in the folder. A block without a language behind it is what must come out, but for the width of columns, ids and times;
# `…` stands for anything. `\watch` repeats until no row is left. `before` and `after` are called at the first and behind the last block
# under a heading; 'Heading#2' is its second block. `rewrite` changes the text of its blocks, in $_, where a state cannot be as old as the page says.
#
# Guarantees: a command that fails, output that differs, and a name of a heading that the page lacks, fail the test. So does a
# \gset that would keep the id of another block where no row comes, or several. What shell commands have left in the background ends
# with the object.
package Runbook;

use strict;
use warnings;
use utf8;

use Cwd ();
use POSIX ();
use Test::More;

my $root = Cwd::abs_path($INC{'Runbook.pm'} =~ s{[^/]*$}{../..}r);

# with_relay: those that call the relay, or those that do not.
sub pages
{
	my (%options) = @_;
	my @pages = sort grep { $_ ne 'README' } map { m{([^/]+)\.md$} } glob "$root/docs/runbooks/*.md";

	return grep { my $page = $_; !!$options{with_relay} == !!grep { $_->{text} =~ /\boutbox-relay\b|\$RELAY/ } blocks($page) } @pages;
}

sub new
{
	my ($class, %options) = @_;

	$_->query('\pset format aligned') foreach values %{ $options{sessions} };
	$_->query('\pset tuples_only off') foreach values %{ $options{sessions} };
	return bless { groups => [], %options }, $class;
}

# Blocks: hashes of heading, number under it, language, text, and `shown`, what must come out.
sub blocks
{
	my ($page) = @_;
	my ($heading, %count, $open, @blocks) = ('');

	open my $file, '<:encoding(UTF-8)', "$root/docs/runbooks/$page.md" or die "$page: $!";
	while (my $line = <$file>)
	{
		if ($open)
		{
			if ($line =~ /^```$/) { undef $open; }
			else { $$open .= $line; }
		}
		elsif ($line =~ /^#+ (.+)$/) { $heading = $1; }
		elsif ($line =~ /^```(\w+)$/)
		{
			push @blocks, { heading => $heading, number => ++$count{$heading}, language => $1, text => '' };
			$open = \$blocks[-1]{text};
		}
		elsif ($line =~ /^```$/)
		{
			die "$page: output without a command under $heading" if !@blocks || defined $blocks[-1]{shown};
			$blocks[-1]{shown} = '';
			$open = \$blocks[-1]{shown};
		}
	}
	return @blocks;
}

# Without what differs from case to case.
sub normal
{
	my ($text) = @_;
	my @lines = grep { !/^\s*(?:[-+]*|\((?!0 rows)\d+ rows?\))\s*$/ } split /\n/, $text;

	s/^\s+|\s+$//g, s/\s+/ /g foreach @lines;
	$text = join "\n", @lines;
	$text =~ s/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{4}…/<id>/g;
	$text =~ s/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?:[-+]\d\d)?/<time>/g;
	$text =~ s/\b\d\d:\d\d:\d\d(?:\.\d+)?\b/<interval>/g;
	return $text;
}

sub is_as_shown
{
	my ($got, $shown, $test) = @_;
	my $pattern = join '.*', map { quotemeta } split /…/, normal($shown), -1;

	$got = normal($got);
	return ok($got =~ /\A$pattern\z/s, "$test: as shown") || diag("came:\n$got\nshown:\n", normal($shown));
}

sub run_sql
{
	my ($self, $text, $test) = @_;
	my $role = $text =~ s/\A-- (\w+)\n// ? $1 : '';
	my $session = $self->{sessions}{$role} or die "$test: no session as $role";
	my ($out, $errors) = ('', '');

	foreach my $part (split /^(?<=\\watch 1\n)/m, $text)
	{
		my $repeated = $part =~ s/ \\watch 1$/;/m;
		my ($rounds, $came) = (0);

		do
		{
			$session->{stderr} = '';
			$came = $session->query($part);
			utf8::decode($came);
			$errors .= $session->{stderr};
		} while ($repeated && $came !~ /\(0 rows\)/ && ++$rounds < 100);
		$out .= "$came\n";
	}
	unlike($errors, qr/ERROR|FATAL|PANIC|no rows returned|invalid|error:/, "$test: works");
	return $out;
}

sub run_sh
{
	my ($self, $text, $test) = @_;
	my $output = "$self->{folder}/output";
	my $child = fork // die;

	if ($child == 0)
	{
		POSIX::setsid();
		chdir $self->{folder};
		%ENV = (%ENV, %{ $self->{env} });
		open STDIN, '<', '/dev/null';
		open STDOUT, '>', $output;
		open STDERR, '>', "$output.errors";
		exec 'bash', '-euo', 'pipefail', '-c', $text or POSIX::_exit(127);
	}
	push @{ $self->{groups} }, $child;
	waitpid $child, 0;
	is($?, 0, "$test: works") || diag(map { contents($_) } $output, "$output.errors");
	return contents($output);
}

sub contents
{
	my ($name) = @_;

	open my $file, '<:encoding(UTF-8)', $name or return '';
	return join '', <$file>;
}

sub run
{
	my ($self, $page, %options) = @_;
	my @blocks = blocks($page);
	my %there = map { ($_->{heading} => 1, "$_->{heading}#$_->{number}" => 1) } @blocks;
	my $call = sub { my ($when, $name) = @_; $options{$when}{$name}->() if $options{$when}{$name}; };

	foreach my $i (0 .. $#blocks)
	{
		my $block = $blocks[$i];
		my $test = "$page, $block->{heading}, $block->{number}";
		my $rewrite = $options{rewrite}{ $block->{heading} };
		my $out;

		unlike($block->{text}, qr/\A(?!.*^\\unset )(?=.*\\gset$)|(?<!LIMIT 1) \\gset$/ms, "$test: \\gset keeps no old value");
		$call->('before', $block->{heading}) if $block->{number} == 1;
		$call->('before', "$block->{heading}#$block->{number}");
		$rewrite->() foreach $rewrite ? $block->{text} : ();
		$out = $block->{language} eq 'sql' ? $self->run_sql($block->{text}, $test)
			: $block->{language} eq 'sh' ? $self->run_sh($block->{text}, $test) : die "$test: a block of $block->{language}";
		is_as_shown($out, $block->{shown}, $test) if defined $block->{shown};
		$call->('after', "$block->{heading}#$block->{number}");
		$call->('after', $block->{heading}) if $i == $#blocks || $blocks[ $i + 1 ]{heading} ne $block->{heading};
	}
	is_deeply([ grep { !$there{$_} } map { keys %{ $options{$_} // {} } } qw(before after rewrite) ], [], "$page: it has the headings that the test knows");
	return;
}

sub DESTROY
{
	my ($self) = @_;

	kill 'TERM', -$_ foreach @{ $self->{groups} };
	return;
}

1;
