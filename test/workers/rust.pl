# The examples in examples/rust: WorkerTest.pm says what is tried.
use strict;
use warnings;

use WorkerTest;

try_examples('rust');
