// A UUID: 16 bytes, which cost no memory of their own, and the text of it where people or brokers read it.
#pragma once

#include <array>
#include <string>

namespace relay {

using Uuid = std::array<unsigned char, 16>;

std::string text_of(const Uuid &uuid);

} // namespace relay
