// The sink http against servers on loopback that say anything: what is sent, and what is made of what comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <dlfcn.h>
#include <netdb.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <unistd.h>

#include "raw_server.h"
#include "../../../test/unit/seed.h"
#include "sink_bench.h"
#include "sinks/http_codes.h"
#include "sinks/http_target.h"
#include "sinks/kinds.h"
#include "sinks/signature.h"

namespace {

using namespace relay;
using test::RawServer;
using test::response;
using test::SinkBench;
using namespace std::chrono_literals;

// What rebind.test resolves to.
std::vector<std::string> rebind_to; // NOLINT

using Resolve = int(const char *, const char *, const addrinfo *, addrinfo **);

} // namespace

// In place of the C library's, also for libcurl: a name server that an attacker has in his hands.
extern "C" int
getaddrinfo(const char *name, const char *service, const addrinfo *hints, addrinfo **result)
{
	static auto *const real = reinterpret_cast<Resolve *>(::dlsym(RTLD_NEXT, "getaddrinfo"));
	if (name == nullptr || std::string_view(name) != "rebind.test")
		return real(name, service, hints, result);
	for (*result = nullptr; const std::string &address : rebind_to)
	{
		addrinfo **end = result;
		while (*end != nullptr)
			end = &(*end)->ai_next;
		if (int error = real(address.c_str(), service, hints, end); error != 0)
			return error;
	}
	return *result == nullptr ? EAI_NONAME : 0;
}

namespace {

constexpr auto local = "allow_private = true\n";

RawServer::Respond
always(std::string bytes, bool close = false)
{
	return [=](const std::string &) { return RawServer::Reply{bytes, close}; };
}

// The value of a header of a request.
std::string
header(const std::string &request, const std::string &name)
{
	size_t at = request.find("\r\n" + name + ":");
	if (at == request.npos)
		return "(none)";
	size_t begin = request.find_first_not_of(' ', at + 3 + name.size());
	return request.substr(begin, request.find("\r\n", begin) - begin);
}

// A port that takes no connection and refuses none: its queue is full.
class BlackHole {
public:
	BlackHole() : listener(::socket(AF_INET, SOCK_STREAM, 0))
	{
		name.sin_family = AF_INET;
		name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		socklen_t size = sizeof name;
		EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr *>(&name), size), 0);
		EXPECT_EQ(::listen(listener, 0), 0);
		EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr *>(&name), &size), 0);
		for (int &fd : waiting)
		{
			fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
			(void)::connect(fd, reinterpret_cast<sockaddr *>(&name), size);
		}
	}
	~BlackHole()
	{
		for (int fd : waiting)
			::close(fd);
		::close(listener);
	}
	[[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(ntohs(name.sin_port)) + "/"; }

private:
	int listener;
	int waiting[4]{};
	sockaddr_in name{};
};

TEST(Http, Request)
{
	std::string seen;
	RawServer server([&](const std::string &request) {
		seen = request;
		return RawServer::Reply{response(200, "fine", "X-Request-Id: r-17\r\n")};
	});
	SinkBench bench(http_kind, std::string(local) +
								   "signing_secrets = ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', "
								   "'whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA']\nheaders = { X-Tenant = 'seven' }\n"
								   "username = 'me'\npassword = 'secret'");
	auto delivery = SinkBench::delivery(server.url("/hook?a=b"), R"({"b": 1.10})");
	delivery->headers = {{"outbox_id", "17"}, {"empty", ""}, {"traceparent", "00-1-2-01"}};
	Answer answer = bench.answer_to(bench.deliver(std::move(delivery)));

	EXPECT_TRUE(answer.accepted);
	EXPECT_EQ(answer.response_code, "200");
	EXPECT_EQ(answer.reference, "r-17");
	EXPECT_EQ(seen.substr(0, seen.find("\r\n")), "POST /hook?a=b HTTP/1.1");
	EXPECT_TRUE(seen.ends_with("\r\n\r\n{\"b\": 1.10}"));
	EXPECT_EQ(header(seen, "Content-Type"), "application/json");
	EXPECT_EQ(header(seen, "Idempotency-Key"), test::message().event_id);
	EXPECT_EQ(header(seen, "webhook-id"), test::message().event_id);
	EXPECT_EQ(header(seen, "X-Tenant"), "seven");
	EXPECT_EQ(header(seen, "outbox_id"), "17");
	EXPECT_EQ(header(seen, "empty"), "");
	EXPECT_EQ(header(seen, "traceparent"), "00-1-2-01");
	EXPECT_EQ(header(seen, "Authorization"), "Basic bWU6c2VjcmV0");
	EXPECT_EQ(header(seen, "Expect"), "(none)");
	WebhookSigner signer(
		{Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), Secret("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")});
	EXPECT_EQ(header(seen, "webhook-signature"),
			  signer.sign(header(seen, "webhook-id"), std::stoll(header(seen, "webhook-timestamp")), R"({"b": 1.10})"));
}

TEST(Http, Methods)
{
	std::string seen;
	RawServer server([&](const std::string &request) {
		seen = request.substr(0, request.find(' '));
		return RawServer::Reply{response(200)};
	});
	SinkBench bench(http_kind, local);
	for (const char *method : {"PUT", "", "DELETE", "PATCH", "POST"}) // the handle is used again
	{
		auto delivery = SinkBench::delivery(server.url());
		delivery->to.method = method;
		EXPECT_EQ(bench.sink().objection(*delivery), Text{});
		EXPECT_TRUE(bench.answer_to(bench.deliver(std::move(delivery))).accepted);
		EXPECT_EQ(seen, *method == '\0' ? "POST" : method);
	}
	auto delivery = SinkBench::delivery(server.url());
	for (const char *method : {"GET", "HEAD", "CONNECT", "post", "POST\r\n"})
	{
		delivery->to.method = method;
		EXPECT_NE(bench.sink().objection(*delivery), Text{}) << method;
	}
}

// Each status on one connection.
TEST(Http, EveryStatus)
{
	int status = 0;
	auto has_body = [&] { return status != 204 && status != 304; };
	RawServer server([&](const std::string &) { return RawServer::Reply{response(status, has_body() ? "said" : "")}; });
	SinkBench bench(http_kind, local);
	for (status = 200; status <= 599; status++)
	{
		Answer answer = bench.send(server.url());
		ASSERT_EQ(answer.accepted, status < 300) << status;
		EXPECT_EQ(answer.response_code, std::to_string(status));
		EXPECT_EQ(answer.code, status < 300 ? "" : http_status_code(status));
		EXPECT_EQ(answer.text, status < 300 || !has_body() ? "" : "said");
	}
	EXPECT_EQ(server.connections(), 1U);
}

TEST(Http, RetryAfter)
{
	auto date = [](std::chrono::seconds from_now) {
		char text[64];
		time_t at = time(nullptr) + from_now.count();
		(void)strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", gmtime(&at)); // NOLINT
		return std::string(text);
	};
	std::string value;
	RawServer server(
		[&](const std::string &) { return RawServer::Reply{response(503, "", "Retry-After: " + value + "\r\n")}; });
	SinkBench bench(http_kind, local);
	auto retry_after = [&](std::string text) {
		value = std::move(text);
		return bench.send(server.url()).retry_after;
	};
	EXPECT_EQ(retry_after("7"), 7s);
	EXPECT_EQ(retry_after("86400"), 24h);
	for (const char *longer : {"86401", "99999999999", "9223372036854775807"})
		EXPECT_EQ(retry_after(longer), 24h) << longer;
	EXPECT_EQ(retry_after("Fri, 31 Dec 2199 23:59:59 GMT"), 24h);
	EXPECT_EQ(retry_after("Friday, 31-Dec-60 23:59:59 GMT"), 24h);
	auto soon = retry_after(date(1h));
	ASSERT_TRUE(soon.has_value());
	EXPECT_LE(*soon, 1h);
	EXPECT_GT(*soon, 0s);
	for (const std::string &none :
		 {std::string("0"), std::string("-5"), std::string("soon"), std::string(""), date(-1h),
		  std::string("Sun, 06 Nov 1994 08:49:37 GMT"), std::string("99999999999999999999")})
		EXPECT_LE(retry_after(none).value_or(0ms), none.starts_with("99") ? 24h : 0h) << none;
}

TEST(Http, RedirectsAreNotFollowed)
{
	RawServer other(always(response(200)));
	RawServer server([&](const std::string &request) {
		std::string status = request.substr(request.find('/') + 1, 3);
		return RawServer::Reply{response(std::stoi(status), "", "Location: " + other.url() + "\r\n")};
	});
	SinkBench bench(http_kind, local);
	for (const char *status : {"301", "302", "303", "307", "308"})
	{
		Answer answer = bench.send(server.url(std::string("/") + status));
		EXPECT_EQ(answer.code, std::string("HTTP_") + status);
		EXPECT_EQ(answer.text, "Location: " + other.url());
	}
	EXPECT_EQ(other.connections(), 0U);
}

TEST(Http, LongResponses)
{
	const std::string endless(10'000'000, 'x');
	int status = 200;
	RawServer server([&](const std::string &) { return RawServer::Reply{response(status, endless)}; });
	SinkBench bench(http_kind, local);
	EXPECT_TRUE(bench.send(server.url()).accepted);
	status = 500;
	Answer answer = bench.send(server.url());
	EXPECT_EQ(answer.code, "HTTP_500");
	EXPECT_EQ(answer.text, endless.substr(0, 2048));
	EXPECT_EQ(server.connections(), 2U); // a cut connection is not used again
}

TEST(Http, EndlessHeaders)
{
	std::string lines;
	while (lines.size() < 10'000'000)
		lines += "X-Header: " + std::string(1000, 'x') + "\r\n";
	std::string bytes;
	RawServer server([&](const std::string &) { return RawServer::Reply{bytes, true}; });
	SinkBench bench(http_kind, local);
	bytes = "HTTP/1.1 200 OK\r\n" + lines;
	EXPECT_TRUE(bench.send(server.url()).accepted);
	bytes = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + lines; // as trailers
	EXPECT_TRUE(bench.send(server.url()).accepted);
	bytes = "HTTP/1.1 500 No\r\n" + lines;
	EXPECT_EQ(bench.send(server.url()).code, "HTTP_500");
}

TEST(Http, BrokenResponses)
{
	struct {
		std::string bytes, code;
	} cases[] = {
		{"", "CURL_GOT_NOTHING"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "CURL_PARTIAL_FILE"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "CURL_RECV_ERROR"},
		{"SSH-2.0-OpenSSH_9.2\r\n", "CURL_UNSUPPORTED_PROTOCOL"},
		{"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "CURL_WEIRD_SERVER_REPLY"},
		{"HTTP/9.9 200 OK\r\n\r\n", "CURL_UNSUPPORTED_PROTOCOL"},
	};
	Taxonomy taxonomy(http_codes());
	for (const auto &one : cases)
	{
		RawServer server(always(one.bytes, true));
		SinkBench bench(http_kind, local);
		Answer answer = bench.send(server.url());
		EXPECT_FALSE(answer.accepted) << one.bytes;
		EXPECT_EQ(taxonomy.of(answer.code), Fault::moment) << one.bytes;
		EXPECT_TRUE(taxonomy.known(answer.code)) << answer.code;
		if (answer.code != "CURL_RECV_ERROR") // the end of a connection may come as a reset
		{
			EXPECT_EQ(answer.code, one.code) << one.bytes;
		}
	}
}

// A folded line where the first header belongs, after a response that had headers: libcurl 7.88 writes to freed memory
// if a handle is used again. The sanitizer sees it.
TEST(Http, FoldedFirstHeader)
{
	const std::string head = "X-Header-Of-Some-Length: a value of some length\r\n";
	std::string bytes;
	RawServer server([&](const std::string &) { return RawServer::Reply{bytes}; });
	SinkBench bench(http_kind, local);
	for (int round = 0; round < 10; round++)
	{
		bytes = response(200, "x", head);
		EXPECT_TRUE(bench.send(server.url()).accepted);
		bytes = response(200, "x", " folded" + std::string(round, 'x') + "\r\n\tfolded\r\n" + head);
		(void)bench.send(server.url());
	}
}

TEST(Http, Timeouts)
{
	RawServer silent(always(""));
	BlackHole hole;
	SinkBench bench(http_kind, std::string(local) + "connect_timeout = '100ms'", 400ms);
	EXPECT_EQ(bench.send(silent.url()).code, "TIMEOUT");
	EXPECT_EQ(bench.send(hole.url()).code, "CONNECT_TIMEOUT");
	EXPECT_EQ(bench.probe(hole.url()).code, "CONNECT_TIMEOUT");
}

// The ten minutes of the hosts that do not answer delay neither the others nor the end.
TEST(Http, HostsThatDoNotAnswerHoldUpNobody)
{
	RawServer silent(always("")), server(always(response(200)));
	BlackHole hole;
	SinkBench bench(http_kind, std::string(local) + "connect_timeout = '9m'");
	std::vector<uint64_t> stuck;
	for (int i = 0; i < 50; i++)
	{
		stuck.push_back(bench.deliver(silent.url()));
		stuck.push_back(bench.deliver(hole.url()));
	}
	for (int i = 0; i < 50; i++)
		EXPECT_TRUE(bench.send(server.url()).accepted);
	EXPECT_FALSE(std::ranges::any_of(stuck, [&](uint64_t ticket) { return bench.answered(ticket); }));
	bench.stop();
}

TEST(Http, ConnectionRefused)
{
	std::string url;
	{
		RawServer gone(always(""));
		url = gone.url();
	}
	SinkBench bench(http_kind, local);
	EXPECT_EQ(bench.send(url).code, "CURL_COULDNT_CONNECT");
	EXPECT_EQ(bench.probe(url).code, "CURL_COULDNT_CONNECT");
	EXPECT_EQ(bench.send("http://rebind.test/").code, "CURL_COULDNT_RESOLVE_HOST");
}

TEST(Http, ProbeSendsNothing)
{
	RawServer server(always(response(200)));
	SinkBench bench(http_kind, local);
	EXPECT_TRUE(bench.probe(bench.sink().endpoint(*SinkBench::delivery(server.url("/a")))).accepted);
	EXPECT_TRUE(bench.probe("").accepted);
	EXPECT_TRUE(bench.send(server.url()).accepted);
	EXPECT_EQ(server.requests(), 1U);
}

TEST(Http, PrivateAddressesInAllSpellings)
{
	RawServer server(always(response(200)));
	SinkBench bench(http_kind, "");
	const std::string port = ":" + std::to_string(server.port());
	for (const char *host :
		 {"127.0.0.1", "localhost", "LOCALHOST", "2130706433", "0x7f000001", "0177.1", "017700000001", "127.1",
		  "0x7f.1", "0", "0.0.0.0", "[::1]", "[::]", "[::ffff:7f00:1]", "[::ffff:127.0.0.1]",
		  "[0:0:0:0:0:ffff:7f00:0001]", "127.0.0.1.", "%31%32%37.0.0.1", "[::127.0.0.1]"})
	{
		std::string url = "http://" + std::string(host) + port + "/";
		auto delivery = SinkBench::delivery(url);
		if (bench.sink().objection(*delivery))
			continue; // not even a URL
		Answer answer = bench.send(url);
		EXPECT_FALSE(answer.accepted) << host;
		EXPECT_TRUE(answer.code == "ADDRESS_REFUSED" || answer.code == "CURL_COULDNT_RESOLVE_HOST")
			<< host << answer.code;
	}
	EXPECT_EQ(bench.send(server.url()).code, "ADDRESS_REFUSED");
	EXPECT_EQ(bench.probe(server.url()).code, "ADDRESS_REFUSED");
	EXPECT_EQ(server.connections(), 0U);
}

// Servers on 127.0.0.1 and 127.0.0.2 with one port, which another process may have on the second.
std::pair<std::unique_ptr<RawServer>, std::unique_ptr<RawServer>>
neighbours()
{
	for (;;)
	{
		auto inner = std::make_unique<RawServer>(always(response(200)));
		try
		{
			auto outer = std::make_unique<RawServer>(always(response(200), true), "127.0.0.2", inner->port());
			return {std::move(inner), std::move(outer)};
		}
		catch (const std::system_error &error)
		{
			if (error.code() != std::errc::address_in_use)
				throw;
		}
	}
}

// 127.0.0.2 stands for a public address.
TEST(Http, Rebinding)
{
	auto [inner_server, outer_server] = neighbours();
	RawServer &inner = *inner_server, &outer = *outer_server;
	const std::string url = "http://rebind.test:" + std::to_string(inner.port()) + "/";
	const auto *settings = "allow_networks = ['127.0.0.2']";

	rebind_to = {"127.0.0.2"};
	EXPECT_TRUE(SinkBench(http_kind, settings).send(url).accepted);
	rebind_to = {"127.0.0.1"};
	EXPECT_EQ(SinkBench(http_kind, settings).send(url).code, "ADDRESS_REFUSED");
	rebind_to = {"127.0.0.1", "127.0.0.2"}; // the refused one is passed over
	EXPECT_TRUE(SinkBench(http_kind, settings).send(url).accepted);
	rebind_to = {"127.0.0.3", "127.0.0.2", "127.0.0.1"};
	EXPECT_TRUE(SinkBench(http_kind, settings).send(url).accepted);
	EXPECT_EQ(inner.connections(), 0U);
	EXPECT_EQ(outer.connections(), 3U);
	rebind_to.clear();
}

TEST(Http, NothingComesFromTheEnvironment)
{
	RawServer server(always(response(200))), proxy(always(response(200)));
	for (const char *name : {"http_proxy", "all_proxy", "ALL_PROXY"})
		::setenv(name, proxy.url().c_str(), 1); // NOLINT
	EXPECT_TRUE(SinkBench(http_kind, local).send(server.url()).accepted);
	EXPECT_EQ(proxy.connections(), 0U);
	::setenv("no_proxy", "*", 1); // NOLINT
	// A proxy is the operator's word on where to connect to.
	EXPECT_TRUE(SinkBench(http_kind, "proxy = '" + proxy.url() + "'").send(server.url()).accepted);
	EXPECT_EQ(proxy.connections(), 1U);
	EXPECT_EQ(server.connections(), 1U);
	for (const char *name : {"http_proxy", "all_proxy", "ALL_PROXY", "no_proxy"})
		::unsetenv(name); // NOLINT
}

TEST(Http, Objections)
{
	SinkBench bench(http_kind, "headers = { X-Tenant = 'seven' }\nbearer_token = 'secret'");
	auto objects = [&](const std::string &url, const Headers &headers = {}) {
		auto delivery = SinkBench::delivery(url);
		delivery->headers = headers;
		return bench.sink().objection(*delivery).has_value();
	};
	for (const char *url : {"http://a.example", "https://a.example/b?c=d#e", "HTTP://A.example:8080/",
							"http://[::1]:80/", "http://a.example/%00",
							"http://b\xc3\xbc"
							"cher.example/"})
		EXPECT_FALSE(objects(url)) << url;
	for (const char *url : {"",
							"/",
							"a.example",
							"//a.example/",
							"ftp://a.example/",
							"file:///etc/passwd",
							"gopher://a.example/",
							"http://",
							"http://user@a.example/",
							"http://u:p@a.example/",
							"http://a.example:99999/",
							"http://a.example/ b",
							"http://a.example/\r\nX: y",
							"http://a.example\n",
							"http://a b/",
							"http://[::1/",
							"http://:80/",
							"http://a%7f.example/",
							"http://a%2fb.example/",
							"http://a%0d%0a.example/",
							"http://a.example%23/"})
		EXPECT_TRUE(objects(url)) << url;
	EXPECT_FALSE(objects("http://a.example/", {{"X-Other", "1"}}));
	EXPECT_TRUE(objects("http://a.example/", {{"x-tenant", "1"}}));
	EXPECT_TRUE(objects("http://a.example/", {{"authorization", "1"}}));
}

TEST(Http, Endpoints)
{
	EXPECT_EQ(url_endpoint("http://a.example/b"), "http://a.example:80");
	EXPECT_EQ(url_endpoint("HTTPS://A.Example/b"), "https://a.example:443");
	EXPECT_EQ(url_endpoint("https://a.example:443"), url_endpoint("https://a.example/"));
	EXPECT_EQ(url_endpoint("http://[::1]:8080/"), "http://[::1]:8080");
	EXPECT_EQ(url_endpoint("http://0x7f.1/"), "http://127.0.0.1:80");
	EXPECT_EQ(url_endpoint("no url"), "");
}

// Whatever servers do: each delivery has one answer.
TEST(Http, OneAnswerForEachDelivery)
{
	auto random = outbox::test::generator();
	std::mutex mutex;
	auto draw = [&](size_t below) {
		std::lock_guard lock(mutex);
		return random() % below;
	};
	RawServer server([&](const std::string &) -> RawServer::Reply {
		switch (draw(7))
		{
			case 0:
				return {"", true};
			case 1:
				return {response(200, "x").substr(0, draw(40)), true};
			case 2:
				return {"rubbish\r\n\r\n", true};
			case 3:
				return {response(429, "later", "Retry-After: 1\r\n")};
			case 4:
				return {response(200, std::string(70'000, 'x'))};
			case 5:
				return {response(200), true};
			default:
				return {response(200)};
		}
	});
	SinkBench bench(http_kind, local);
	std::vector<std::unique_ptr<Delivery>> deliveries;
	constexpr uint64_t first = 1'000'000, count = 2000;
	for (uint64_t i = 0; i < count; i += deliveries.size())
	{
		deliveries.clear();
		for (size_t n = 1 + draw(100); n > 0 && i + deliveries.size() < count; n--)
		{
			deliveries.push_back(SinkBench::delivery(server.url()));
			deliveries.back()->ticket = first + i + deliveries.size() - 1;
		}
		uint64_t last = deliveries.back()->ticket;
		size_t handed = deliveries.size();
		bench.sink().deliver(std::move(deliveries));
		(void)bench.answer_to(last);
		deliveries = std::vector<std::unique_ptr<Delivery>>(handed);
	}
	for (uint64_t i = 0; i < count; i++)
		(void)bench.answer_to(first + i);
	EXPECT_FALSE(bench.answered_twice());
}

TEST(Http, Configurations)
{
	for (const char *toml :
		 {"connect_timeout = '10m'", "allow_networks = ['10.0.0.0/33']", "signing_secrets = 'short'",
		  "headers = { 'X Y' = '1' }", "headers = { X = \"a\\nb\" }", "headers = { X = '' }", "http_version = '3'",
		  "client_key = 'a'", "username = 'a'\nbearer_token = 'b'", "verfiy = true"})
		EXPECT_THROW(SinkBench(http_kind, toml), ConfigError) << toml;
}

} // namespace
