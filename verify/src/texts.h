// Bytes and times as text for a reader.
//
// Guarantee: printable() gives one line in which nothing acts on a terminal or hides what follows: what is not plain
// text is shown by its number. So what a database contains cannot look like a sentence of the verifier.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/canonical.h"

namespace outbox::verify {

std::string printable(std::string_view bytes);

std::string to_hex(std::string_view bytes);
std::string to_hex(const core::Hash &hash);
// Lower-case digits, two a byte; else none.
std::optional<std::string> from_hex(std::string_view text);

int64_t read_number(std::string_view bytes); // big-endian, 1 to 8 bytes, two's complement

// Microseconds since 2000-01-01 00:00 UTC, as 2026-11-30T01:02:03.456789Z, -infinity, infinity. Years before 1 are
// counted as astronomers do.
std::string time_text(int64_t microseconds);

std::string uuid_text(std::string_view bytes);

// The bytes of a column, read as its type says; none if they are no value of it.
std::optional<std::string> value_text(core::ColumnType type, std::string_view bytes);

} // namespace outbox::verify
