// The registry of secrets; see secret.h.
//
// Guarantees: a secret that was registered once is redacted until the program ends, also after a reload gave it up,
// since what was built with it may still speak. Longer ones are replaced first, so that one that contains another
// leaves no rest. Of a URI the password is registered as well, as it stands and decoded.
#include "core/secret.h"

#include <functional>
#include <mutex>
#include <set>
#include <shared_mutex>

namespace relay {

namespace {

// A shorter one occurs everywhere by chance, and would make the log illegible.
constexpr size_t shortest = 4;

struct LongerFirst {
	bool operator()(const std::string &left, const std::string &right) const
	{
		return left.size() != right.size() ? left.size() > right.size() : left < right;
	}
};

std::shared_mutex mutex;

std::set<std::string, LongerFirst> &
known()
{
	static auto *secrets = new std::set<std::string, LongerFirst>; // outlives the last log
	return *secrets;
}

int
hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = static_cast<char>(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::string
percent_decoded(std::string_view text)
{
	std::string result;

	for (size_t i = 0; i < text.size(); i++)
		if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0)
		{
			result += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
			i += 2;
		}
		else
			result += text[i];
	return result;
}

// scheme://user:PASSWORD@host
std::string_view
password_of(std::string_view uri)
{
	const size_t scheme = uri.find("://");

	if (scheme == std::string_view::npos)
		return {};
	std::string_view authority = uri.substr(scheme + 3);
	authority = authority.substr(0, authority.find_first_of("/?#"));
	const size_t at = authority.rfind('@');
	if (at == std::string_view::npos)
		return {};
	const size_t colon = authority.substr(0, at).find(':');
	return colon == std::string_view::npos ? std::string_view{} : authority.substr(colon + 1, at - colon - 1);
}

void
remember(std::string_view secret)
{
	if (secret.size() >= shortest)
		known().emplace(secret);
}

} // namespace

Secret::Secret(std::string value) : value(std::move(value))
{
	const std::string_view password = password_of(this->value);
	const std::unique_lock lock(mutex);

	remember(this->value);
	remember(password);
	remember(percent_decoded(password));
}

std::string
redact(std::string_view text)
{
	std::string result(text);
	const std::shared_lock lock(mutex);

	for (const std::string &secret : known())
		for (size_t at = 0; (at = result.find(secret, at)) != std::string::npos; at += 3)
			result.replace(at, secret.size(), "***");
	return result;
}

} // namespace relay
