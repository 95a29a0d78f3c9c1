// See registry.h.
#include "sinks/kinds.h"

namespace relay {

// Built at the first call: the kinds are made before main, in no certain order.
std::span<const SinkKind>
sink_kinds()
{
	static const std::vector<SinkKind> kinds = {
		stdout_kind,
		file_kind,
		discard_kind,
#if __has_include("sinks/postgres.cpp")
		postgres_kind,
#endif
#if __has_include("sinks/http.cpp")
		http_kind,
#endif
#if defined(HAVE_KAFKA) && __has_include("sinks/kafka.cpp")
		kafka_kind,
#endif
#if defined(HAVE_RABBITMQ) && __has_include("sinks/rabbitmq.cpp")
		rabbitmq_kind,
#endif
#if defined(HAVE_NATS) && __has_include("sinks/nats.cpp")
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
