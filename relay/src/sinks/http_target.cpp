#include "sinks/http_target.h"

#include <algorithm>
#include <memory>

#include <curl/curl.h>

namespace relay {

namespace {

class Url {
public:
	explicit Url(const std::string &url) : handle(curl_url())
	{
		error = curl_url_set(handle.get(), CURLUPART_URL, url.c_str(), CURLU_NON_SUPPORT_SCHEME);
	}

	// Empty if it is not there.
	[[nodiscard]] std::string part(CURLUPart part) const
	{
		char *text = nullptr;
		if (curl_url_get(handle.get(), part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK)
			return {};
		std::string result(text);
		curl_free(text);
		return result;
	}

	CURLUcode error;

private:
	struct Free {
		void operator()(CURLU *url) const { curl_url_cleanup(url); }
	};
	std::unique_ptr<CURLU, Free> handle;
};

// libcurl decodes %XX in a host, into anything.
bool
is_host(std::string_view host)
{
	bool is_ipv6 = host.starts_with('[');
	return !host.empty() && std::ranges::none_of(host, [&](unsigned char c) {
		return c <= 0x20 || c == 0x7f || std::string_view("\"#%/<>?@\\^`{|}").find(c) != std::string_view::npos ||
			   (!is_ipv6 && (c == ':' || c == '[' || c == ']'));
	});
}

} // namespace

Text
url_problem(const std::string &text)
{
	// libcurl's parser takes bytes that a request line cannot carry.
	if (!std::ranges::all_of(text, [](unsigned char c) { return c > 0x20 && c != 0x7f; }))
		return "the URL has a space or a control character";
	Url url(text);
	if (url.error != CURLUE_OK)
		return std::string("not a URL: ") + curl_url_strerror(url.error);
	std::string scheme = url.part(CURLUPART_SCHEME);
	if (scheme != "http" && scheme != "https")
		return "the URL begins with neither http:// nor https://";
	if (!is_host(url.part(CURLUPART_HOST)))
		return "the URL has no host, or one that cannot be";
	if (!url.part(CURLUPART_USER).empty() || !url.part(CURLUPART_PASSWORD).empty())
		return "the URL has a user or a password, which are settings of the sink";
	return {};
}

std::string
url_endpoint(const std::string &text)
{
	Url url(text);
	if (url.error != CURLUE_OK)
		return {};
	std::string host = url.part(CURLUPART_HOST);
	std::ranges::transform(host, host.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c; });
	return url.part(CURLUPART_SCHEME) + "://" + host + ":" + url.part(CURLUPART_PORT);
}

} // namespace relay
