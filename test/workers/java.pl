# The examples in examples/java: WorkerTest.pm says what is tried.
use strict;
use warnings;

use WorkerTest;

try_examples('java');
