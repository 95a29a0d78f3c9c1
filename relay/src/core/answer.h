// What a sink says of a delivery, and what the relay makes of it.
//
// Guarantees: a sink tells facts, a code and what was said; the class follows from the code alone, by the
// sink's table (taxonomy.h) and the configuration, never from the words.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace relay {

// What a sink answers, once for each delivery.
struct Answer {
	bool accepted = false;
	std::string code{};          // of a failure: KAFKA_MSG_SIZE_TOO_LARGE, HTTP_422 ...; empty if accepted
	std::string response_code{}; // as the protocol has it: 200, 312 ...; may be empty
	std::string text{};          // what was said, for people
	std::string reference{};     // of what was accepted: topic/partition/offset ...
	std::optional<std::chrono::milliseconds> retry_after{};
};

// Whose fault a failure is.
enum class Fault {
	message, // refused: this message will never be accepted
	moment,  // try again
	sink,    // the sink is away: the breaker opens
};

// How a delivery ended.
enum class Verdict {
	accepted,
	refused,   // FAILED
	try_again, // RETRYABLE
	untried,   // never handed over: released
};

} // namespace relay
