# The examples in examples/python: WorkerTest.pm says what is tried.
use strict;
use warnings;

use WorkerTest;

try_examples('python');
