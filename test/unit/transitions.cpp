// Prints the table that belongs between the markers of docs/internals.md.
#include <cstdio>

#include "table.h"

int
main()
{
	for (const std::string &line : outbox::test::transition_table())
		puts(line.c_str());
}
