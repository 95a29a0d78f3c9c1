// See taxonomy.h.
#include "core/taxonomy.h"

#include <array>

namespace relay {

namespace {

constexpr std::array codes = {
	Code{"TIMEOUT", Fault::moment,
		 "the sink did not answer in time; whether it has the message is unknown, and the next try may succeed"},
	Code{"SINK_STOPPED", Fault::moment,
		 "the sink was stopped with the message in its hands, by a reload or the end of the relay"},
	Code{"NO_ROUTE_CONFIGURED", Fault::message,
		 "no [[route]] matches; trying again changes nothing before the configuration does"},
	Code{"ILLEGAL_DESTINATION", Fault::message,
		 "the templates of the route yield no topic, or one that the sink cannot have, for this message"},
	Code{"ILLEGAL_HEADER", Fault::message,
		 "a header would replace one of the relay's own, or the protocol cannot carry its name or value"},
	Code{"ILLEGAL_ATTRIBUTE", Fault::message,
		 "CloudEvents allows no control characters in an attribute, and no empty type"},
	Code{
		"UPCAST_FAILED", Fault::moment,
		"inbox.upcast could not lift the payload to the version that the route wants; its upcaster may come, or be mended"},
	Code{"UNREADABLE", Fault::moment,
		 "the database cannot send the message: a text in it has no form in UTF-8, or it is too large for a row"},
	Code{"PAYLOAD_NOT_EXPRESSIBLE", Fault::message, "the sink or the mapping has no form for a payload of this kind"},
};

} // namespace

std::span<const Code>
common_codes()
{
	return codes;
}

Taxonomy::Taxonomy(std::span<const Code> codes)
{
	for (const Code &code : codes)
		faults.emplace(code.code, code.fault);
	for (const Code &code : common_codes())
		faults.emplace(code.code, code.fault);
}

bool
Taxonomy::change(std::string_view code, Fault fault)
{
	const auto found = faults.find(code);

	if (found == faults.end())
		return false;
	found->second = fault;
	return true;
}

Fault
Taxonomy::of(std::string_view code) const
{
	const auto found = faults.find(code);

	return found == faults.end() ? Fault::moment : found->second;
}

bool
Taxonomy::known(std::string_view code) const
{
	return faults.find(code) != faults.end();
}

} // namespace relay
