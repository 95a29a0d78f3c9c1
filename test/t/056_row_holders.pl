# row_holders() and explain(), where the number of a group of transactions that lock a row is also that of a transaction.
#
# Proves: they name the members of the group, and not the transaction of that number, which has nothing to do with the row.
# (Multixact ids and transaction ids are counted apart, so any two can be equal. Here both counters are set.)
use strict;
use warnings;

use OutboxTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => 'autovacuum = off');

$node->safe_psql('postgres', q{SELECT outbox.enqueue('e', '1')});
$node->stop;
# The first numbers of a page, which the server makes when it comes to them.
system_or_bail('pg_resetwal', '-x', 4096, '-m', '4096,1', '-D', $node->data_dir);
$node->start;

my @names = qw(bystander first second);
my %session = map { $_ => session($node) } @names;
my %pid = map { $_ => scalar $session{$_}->query('SELECT pg_backend_pid()') } @names;

$session{$_}->query('BEGIN') for @names;
my $xid = $session{bystander}->query('SELECT pg_current_xact_id()');
$session{$_}->query('SELECT FROM outbox.pending FOR KEY SHARE') for qw(first second);

is($node->safe_psql('postgres', 'SELECT xmax FROM outbox.pending'), $xid, 'the group has the number of a transaction');
is($node->safe_psql('postgres', q{SELECT string_agg(h.pid::text, ' ' ORDER BY h.pid) FROM outbox.pending p, outbox.row_holders(p.outbox_id) h}),
	join(' ', sort { $a <=> $b } @pid{qw(first second)}), 'row_holders() names its members');
like($node->safe_psql('postgres', 'SELECT outbox.explain(outbox_id) FROM outbox.pending'),
	qr/The transaction of process ($pid{first}|$pid{second}) has its row in use/, 'explain() names one of them');

$session{$_}->query('COMMIT') for qw(first second);
is($node->safe_psql('postgres', 'SELECT count(h) FROM outbox.pending p, outbox.row_holders(p.outbox_id) h'), '0', 'nobody, once they have ended');

$_->quit for values %session;
$node->stop;
done_testing();
