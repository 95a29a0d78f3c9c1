# The examples in examples/ruby: WorkerTest.pm says what is tried.
use strict;
use warnings;

use WorkerTest;

try_examples('ruby');
