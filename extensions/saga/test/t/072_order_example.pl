# examples/order, run as a reader would: it proves by itself that each order was done once or undone.
use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use IPC::Run;
use OutboxTest;
use Test::More;

my $said = '';
my $ended = IPC::Run::run([ abs_path("$FindBin::RealBin/../../../..") . '/examples/order/run', seed() ], '<', \undef, '>', \$said, '2>&1');
note($said);
ok($ended, 'it ends well') or diag($said);
like($said, qr/^a participant was killed with SIGKILL; it held [1-9]\d* commands, and 1 answer /m, 'a participant dies in the middle');
is(scalar(() = $said =~ /^true: /mg), 16, 'all that it claims is true');
like($said, qr/^\d+ orders, each done once or undone;/m, '... and it says so');

done_testing();
