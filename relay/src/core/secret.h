// Secrets, and how they stay out of what is written.
//
// Guarantees: a Secret has no operator that prints it. Each value is registered when it is made; redact() replaces all
// that are registered by ***, and whatever goes to a log, the ledger, a page or stderr goes through it, since a
// library's error message may repeat a connection string.
#pragma once

#include <string>
#include <string_view>

namespace relay {

class Secret {
public:
	Secret() = default;
	explicit Secret(std::string value); // registers it, unless it is empty
	[[nodiscard]] const std::string &reveal() const { return value; }
	[[nodiscard]] bool empty() const { return value.empty(); }
	bool operator==(const Secret &) const = default;

private:
	std::string value;
};

// Any thread.
std::string redact(std::string_view text);

} // namespace relay
