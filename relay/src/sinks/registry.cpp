// See registry.h.
#include "sinks/kinds.h"
#include "sinks/registry.h"

namespace relay {

// Built at the first call: the kinds are made before main, in no certain order.
std::span<const SinkKind>
sink_kinds()
{
	static const std::vector<SinkKind> kinds = {
		stdout_kind,   file_kind, discard_kind, postgres_kind, http_kind,
#ifdef HAVE_KAFKA
		kafka_kind,
#endif
#ifdef HAVE_RABBITMQ
		rabbitmq_kind,
#endif
#ifdef HAVE_NATS
		nats_kind,
#endif
	};
	return kinds;
}

std::span<const std::string_view>
missing_kinds()
{
	static const std::vector<std::string_view> missing = {
#ifndef HAVE_KAFKA
		"kafka",
#endif
#ifndef HAVE_RABBITMQ
		"rabbitmq",
#endif
#ifndef HAVE_NATS
		"nats",
#endif
	};
	return missing;
}

} // namespace relay
