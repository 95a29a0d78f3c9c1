// See kinds.h.
#include "kinds.h"

namespace relay::test {

namespace {

constexpr Code codes[] = {{"X_TOO_LARGE", Fault::message, "why"}, {"X_AWAY", Fault::sink, "why"}};

std::span<const Code>
code_table()
{
	return codes;
}

std::function<std::unique_ptr<Sink>()>
read(Section &section, const SinkSettings &)
{
	section.secret("password");
	section.text("servers", "");
	section.free("properties");
	return [] { return std::unique_ptr<Sink>(); };
}

} // namespace

std::span<const SinkKind>
kinds()
{
	static const SinkKind all[] = {
		{"kafka", Binding::kafka, "", code_table, read, {}},
		{"rabbitmq", Binding::amqp, "", code_table, read, {}},
		{"nats", Binding::nats, "", code_table, read, {}},
		{"http", Binding::http, "", code_table, read, {.max_in_flight = 100, .max_per_endpoint = 10}},
		{"postgres", Binding::plain, "outbox_inbox.receive", code_table, read, {}},
	};
	return all;
}

std::span<const std::string_view>
missing()
{
	static constexpr std::string_view all[] = {"pulsar"};
	return all;
}

} // namespace relay::test
