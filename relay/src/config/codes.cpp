// See codes.h.
#include "config/codes.h"

#include "sinks/registry.h"

#include <string>

namespace relay {

namespace {

std::string_view
class_of(Fault fault)
{
	switch (fault)
	{
		case Fault::message:
			return "refused";
		case Fault::moment:
			return "try_again";
		case Fault::sink:
			break;
	}
	return "away";
}

void
print_table(std::ostream &out, const std::string &heading, std::span<const Code> codes)
{
	out << "\n## " << heading << "\n\n| code | class | why |\n|---|---|---|\n";
	for (const Code &code : codes)
		out << "| `" << code.code << "` | " << class_of(code.fault) << " | " << code.why << " |\n";
}

} // namespace

// Kinds that share a table stand together.
void
print_codes(std::ostream &out)
{
	const auto kinds = sink_kinds();

	out << "# Codes of outbox-relay\n\n"
		   "Printed by `outbox-relay --codes`. What the classes mean: [relay.md](relay.md#when-a-delivery-fails).\n";
	print_table(out, "All sinks", common_codes());
	for (size_t i = 0; i < kinds.size(); i++)
	{
		std::string heading;
		bool first = true;

		for (size_t j = 0; j < kinds.size(); j++)
			if (kinds[j].codes == kinds[i].codes)
			{
				first = first && j >= i;
				heading += (heading.empty() ? "" : ", ") + std::string(kinds[j].type);
			}
		if (first && !kinds[i].codes().empty())
			print_table(out, heading, kinds[i].codes());
	}
}

} // namespace relay
