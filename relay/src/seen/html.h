// Pieces of HTML.
#pragma once

#include "seen/history.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace relay::html {

// Redacted and escaped, for text and for attributes in double quotes.
std::string text(std::string_view value);

std::string count(uint64_t value);                         // 12,345
std::string rate(double a_second);                         // 0.4, 12, 12,345
std::string age(double seconds);                           // 4 min
std::string utc(std::chrono::system_clock::time_point at); // 2026-11-29 14:20:05 UTC

// A relative time, whose title is the exact one.
std::string ago(std::chrono::system_clock::time_point at, std::chrono::system_clock::time_point now);
// A length of time, whose title has the seconds.
std::string lasting(double seconds);

// A word for a state; `kind`: good, warn, bad or idle.
std::string state(std::string_view word, std::string_view kind);

// Two lines, or one, over the last 15 minutes.
std::string chart(std::string_view title, std::string_view first_name, const Rates &first,
				  std::string_view second_name = {}, const Rates &second = {});

double newest(const Rates &rates); // 0 if there is none

} // namespace relay::html
