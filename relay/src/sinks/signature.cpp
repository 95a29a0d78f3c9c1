#include "sinks/signature.h"

#include <array>
#include <stdexcept>

#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace relay {

namespace {

constexpr size_t least_key = 24, largest_key = 64;

// Nothing if it is not base64 with its padding.
std::string
decode(std::string_view text)
{
	size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
	bool legal = text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") ==
				 (padding == 0 ? text.npos : text.size() - padding);
	std::string bytes(text.size() / 4 * 3, '\0');
	if (!legal || text.empty() || text.size() % 4 != 0 ||
		EVP_DecodeBlock(reinterpret_cast<unsigned char *>(bytes.data()),
						reinterpret_cast<const unsigned char *>(text.data()), static_cast<int>(text.size())) < 0)
		return {};
	bytes.resize(bytes.size() - padding);
	return bytes;
}

std::string
encode(std::string_view bytes)
{
	std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0'); // and the NUL that OpenSSL adds
	int length = EVP_EncodeBlock(reinterpret_cast<unsigned char *>(text.data()),
								 reinterpret_cast<const unsigned char *>(bytes.data()), static_cast<int>(bytes.size()));
	text.resize(length);
	return text;
}

std::string
hmac(std::string_view key, std::string_view text)
{
	std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
	unsigned length = 0;
	if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
			 reinterpret_cast<const unsigned char *>(text.data()), text.size(), digest.data(), &length) == nullptr)
		throw std::runtime_error("OpenSSL has no HMAC-SHA256");
	return {reinterpret_cast<const char *>(digest.data()), length};
}

} // namespace

WebhookSigner::WebhookSigner(const std::vector<Secret> &secrets)
{
	for (const Secret &secret : secrets)
	{
		std::string_view text = secret.reveal();
		if (text.starts_with("whsec_"))
			text.remove_prefix(6);
		keys.push_back(decode(text));
		if (keys.back().empty())
			throw std::invalid_argument("a signing secret must be base64, with or without whsec_ before it");
		if (keys.back().size() < least_key || keys.back().size() > largest_key)
			throw std::invalid_argument("a signing secret must have 24 to 64 bytes");
	}
}

std::string
WebhookSigner::sign(std::string_view id, int64_t timestamp, std::string_view body) const
{
	std::string text;
	text.reserve(id.size() + body.size() + 24);
	text.append(id).append(1, '.').append(std::to_string(timestamp)).append(1, '.').append(body);
	std::string signatures;
	for (const std::string &key : keys)
		signatures.append(signatures.empty() ? "" : " ").append("v1,").append(encode(hmac(key, text)));
	return signatures;
}

} // namespace relay
