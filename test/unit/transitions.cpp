// Prints the table that belongs between the markers of docs/internals.md, or with
// an argument, docs/states.dot.
#include <cstdio>

#include "table.h"

int
main(int argc, char **)
{
	if (argc > 1)
		return fputs(outbox::test::diagram().c_str(), stdout) < 0;
	for (const std::string &line : outbox::test::transition_table())
		puts(line.c_str());
}
