// Bytes and hashes as hexadecimal digits.
#pragma once

#include <string>

#include "sha256.h"

namespace outbox::test {

inline std::string
to_hex(const void *data, size_t size)
{
	const unsigned char *bytes = static_cast<const unsigned char *>(data);
	std::string text;

	for (size_t i = 0; i < size; i++)
		for (int digit : {bytes[i] >> 4, bytes[i] & 15})
			text += "0123456789abcdef"[digit];
	return text;
}

inline std::string
to_hex(const std::string &bytes)
{
	return to_hex(bytes.data(), bytes.size());
}

inline std::string
to_hex(const core::Hash &hash)
{
	return to_hex(hash.bytes, sizeof(hash.bytes));
}

inline std::string
from_hex(const std::string &text)
{
	std::string bytes;

	for (size_t i = 0; i + 1 < text.size(); i += 2)
		bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
	return bytes;
}

} // namespace outbox::test
