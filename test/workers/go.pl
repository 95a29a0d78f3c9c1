# The examples in examples/go: WorkerTest.pm says what is tried.
use strict;
use warnings;

use WorkerTest;

try_examples('go');
