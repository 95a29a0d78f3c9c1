// The two ways in which a check ends early. Both are caught in main().
#pragma once

#include <stdexcept>
#include <string>

namespace outbox::verify {

// Something that the file claims does not hold: exit status 1.
struct Refused : std::runtime_error {
	using runtime_error::runtime_error;
};

// Nothing was checked, because the input cannot be read at all: exit status 2.
struct Unreadable : std::runtime_error {
	using runtime_error::runtime_error;
};

inline void
require(bool holds, const std::string &otherwise)
{
	if (!holds)
		throw Refused(otherwise);
}

} // namespace outbox::verify
