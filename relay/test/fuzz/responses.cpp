// Feeds any bytes to the sink http as what a server says, and as the URL of a message.
//
// Proves that nothing crashes, leaks or overflows (it is built with sanitizers), that each response gives an answer
// within its bounds whose code is in the table, and that a URL without an objection has an endpoint.
//
// The connection is one end of a pair of sockets, whose other end holds the response before the request is made: one
// thread, and no network.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../unit/message.h"
#include "core/taxonomy.h"
#include "expect.h"
#include "sinks/http_codes.h"
#include "sinks/http_request.h"
#include "sinks/http_target.h"

// In place of the C library's, for libcurl: the socket is connected already.
extern "C" int
connect(int, const sockaddr *, socklen_t)
{
	return 0;
}

namespace {

using namespace relay;
using namespace std::chrono_literals;

int server = -1; // the other end

curl_socket_t
connected(void *response, curlsocktype, curl_sockaddr *)
{
	int ends[2];
	const auto *bytes = static_cast<const std::string_view *>(response);

	expect(server < 0 && ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "there are sockets");
	server = ends[1];
	expect(::fcntl(server, F_SETFL, O_NONBLOCK) == 0, "a socket need not block");
	(void)::send(server, bytes->data(), bytes->size(), MSG_NOSIGNAL); // as much as goes in
	(void)::shutdown(server, SHUT_WR);
	return ends[0];
}

void
check(const Answer &answer)
{
	static const Taxonomy taxonomy(http_codes());

	expect(answer.accepted == answer.code.empty(), "a code for a failure, and for nothing else");
	expect(answer.accepted || taxonomy.known(answer.code), "the code is in the table");
	expect(!answer.accepted || answer.response_code.front() == '2', "accepted is 2xx");
	expect(answer.text.size() <= 4096 && answer.reference.size() <= 256, "what was said is cut");
	expect(!answer.retry_after || (*answer.retry_after > 0ms && *answer.retry_after <= 24h), "a pause is bounded");
}

void
fuzz_response(std::string_view bytes)
{
	static HttpSettings settings{.timeout = 10s, .connect_timeout = 1s, .reference_header = "X-Request-Id"};
	HttpRequest request(settings);
	auto delivery = std::make_unique<Delivery>();

	delivery->message = test::message();
	delivery->to.topic = "http://127.0.0.1/";
	delivery->body = "{}";
	request.prepare(std::move(delivery), HttpRequest::Clock::now() + settings.timeout);
	curl_easy_setopt(request.handle(), CURLOPT_OPENSOCKETFUNCTION, connected);
	curl_easy_setopt(request.handle(), CURLOPT_OPENSOCKETDATA, &bytes);
	curl_easy_setopt(request.handle(), CURLOPT_FORBID_REUSE, 1L);
	check(request.answer(curl_easy_perform(request.handle())));
	if (server >= 0)
		::close(server);
	server = -1;
}

void
fuzz_url(const std::string &url)
{
	const std::string endpoint = url_endpoint(url);

	if (url_problem(url))
		return;
	expect(endpoint.starts_with("http://") || endpoint.starts_with("https://"), "an endpoint has its scheme");
	expect(endpoint.find_last_of(':') > endpoint.find("://") + 2, "an endpoint has a host and a port");
	expect(std::ranges::none_of(endpoint, [](unsigned char c) { return c <= ' ' || c == 0x7f; }),
		   "an endpoint is a word");
	expect(!url_problem(endpoint) && url_endpoint(endpoint) == endpoint, "an endpoint is its own endpoint");
}

} // namespace

extern "C" int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const std::string_view text(reinterpret_cast<const char *>(data), size);

	if (text.starts_with('u'))
		fuzz_url(std::string(text.substr(1)));
	else if (!text.empty())
		fuzz_response(text.substr(1));
	return 0;
}
