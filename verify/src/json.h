// Reads JSON that may be made by an attacker.
//
// Guarantees: a key stands once in an object; nothing is nested deeper than `deepest`; each accessor gives a value of
// the type and form that it is asked for, or fails with a sentence that names the key.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/canonical.h"

namespace outbox::verify {

using Json = nlohmann::json;

constexpr int deepest = 16;

// Unreadable: no JSON, a key twice, too deep.
Json parse(std::string_view text);

// Refused: no object, or not exactly these keys.
void require_keys(const Json &object, const std::string &what, std::initializer_list<std::string_view> keys);

std::string text_of(const Json &object, const char *key);
int64_t number_of(const Json &object, const char *key); // an integer, and within 64 bits
const Json &array_of(const Json &object, const char *key);
core::Hash hash_of(const Json &object, const char *key);
std::optional<core::Hash> maybe_hash_of(const Json &object, const char *key); // null: none

// Of 64 lower-case digits; else Refused.
core::Hash read_hash(std::string_view hex, const std::string &what);
// None for JSON null; else bytes by lower-case digits, or Refused.
std::optional<std::string> maybe_bytes(const Json &value, const std::string &what);

} // namespace outbox::verify
