// See table.h. One line for each row of core's table, in its order.
#include "table.h"

#include "state.h"

namespace outbox::test {

namespace {

using core::Transition;

bool
has_ceiling_row(const Transition &row)
{
	return core::outcome(row.from, row.event, true)->at_ceiling;
}

const char *
ceiling(const Transition &row)
{
	if (row.at_ceiling)
		return "reached";
	return has_ceiling_row(row) ? "not reached" : "any";
}

std::string
line(const Transition &row)
{
	return std::string("| ") + name(row.from) + " | " + name(row.event) + " | " + ceiling(row) + " | " + name(row.to) +
		   " | " + name(row.record) + " |";
}

} // namespace

std::vector<std::string>
transition_table()
{
	std::vector<std::string> lines = {
		"| from | event | ceiling | to | ledger gets |",
		"|---|---|---|---|---|",
	};

	for (size_t i = 0; i < core::transition_count; i++)
		lines.push_back(line(core::transitions[i]));
	return lines;
}

std::string
diagram()
{
	std::string text(core::write_dot(nullptr, 0), '\0');

	core::write_dot(text.data(), text.size() + 1);
	return text;
}

} // namespace outbox::test
