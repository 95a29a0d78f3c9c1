# The examples in examples/node: WorkerTest.pm says what is tried.
use strict;
use warnings;

use WorkerTest;

try_examples('node');
