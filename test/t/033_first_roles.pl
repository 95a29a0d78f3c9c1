# The first CREATE EXTENSION of a server, in two databases at once.
#
# Proves: the roles are of the whole server, and both want to make them; the second waits for the
# first, and takes over what it made, or makes them where the first fails. So do the contracts, the sagas and the inbox.
use strict;
use warnings;

use OutboxTest;
use Test::More;

my $node = new_node('main', extension => 0);
my @extensions = ('outbox', 'outbox_payment', 'outbox_m10', 'outbox_saga', 'outbox_inbox');
my $roles = q{SELECT string_agg(rolname, ' ' ORDER BY rolname) FROM pg_roles WHERE rolname ~ '^(outbox|symphony|m10|inbox)_'};
my $memberships = q{SELECT count(*) FROM pg_auth_members WHERE pg_get_userbyid(member) ~ '^(symphony|m10)_'};

foreach my $end ('COMMIT', 'ROLLBACK')
{
	$node->safe_psql('postgres', "CREATE DATABASE $_") foreach qw(one two);
	foreach my $extension (@extensions)
	{
		my ($one, $two) = (session($node, database => 'one'), session($node, database => 'two'));

		$one->query_safe("BEGIN; CREATE EXTENSION $extension");
		start_query($two, "CREATE EXTENSION $extension");
		wait_until_blocked($node, $two, "$extension: the second");
		$one->query_safe($end);
		is((result_of($two))[1], '', "$extension: the second is made after $end of the first");
		$one->query_safe("CREATE EXTENSION $extension") if $end eq 'ROLLBACK';
		$_->quit foreach $one, $two;
	}
	is($node->safe_psql('one', 'SELECT count(*) FROM outbox.check()'), $node->safe_psql('two', 'SELECT count(*) FROM outbox.check()'), "$end: both are sound");
	is($node->safe_psql('two', q{SELECT count(*) FROM outbox.check() WHERE severity = 'error'}), '0', "$end: no errors");
	is($node->safe_psql('postgres', $memberships), '9', "$end: memberships");
	$node->safe_psql('postgres', "DROP DATABASE $_") foreach qw(one two);
	$node->safe_psql('postgres', 'DROP ROLE ' . $node->safe_psql('postgres', $roles) =~ s/ /, /gr);
}
$node->stop;
done_testing();
