// What a fuzz target says of a promise that does not hold: it ends there.
#pragma once

#include <cstdio>
#include <cstdlib>

inline void
expect(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s\n", what);
	abort();
}
