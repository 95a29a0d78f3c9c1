// Spans: their OTLP, and a collector that takes, refuses, is away or never answers.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <civetweb.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "seen/otlp.h"
#include "seen/tracing.h"

namespace {

using namespace relay;
using namespace std::chrono_literals;
using nlohmann::json;

Span
span(bool sampled = true)
{
	Span result;

	result.parent = *parse_traceparent(std::string("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0") +
									   (sampled ? "1" : "0"));
	result.context = result.parent;
	result.context.span_id = {1, 2, 3, 4, 5, 6, 7, 0xab};
	result.destination = "events.order.placed";
	result.system = "kafka";
	result.event_id = "4d47e190-0402-4048-bc2c-89dd54343cdc";
	result.outbox_id = "01900000-0000-7000-8000-000000000001";
	result.queue = "orders";
	result.key = "customer-4";
	result.body_size = 300;
	result.began = std::chrono::system_clock::time_point(1'700'000'000'123'456'789ns);
	result.ended = result.began + 5ms;
	return result;
}

json
first_span(const std::string &request)
{
	return json::parse(request)["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
}

// An attribute's value object, or null.
json
attribute(const json &of, const std::string &key)
{
	for (const auto &it : of["attributes"])
	{
		if (it["key"] == key)
		{
			return it["value"];
		}
	}
	return nullptr;
}

TEST(Otlp, IdsAreHexAndTimesAreStrings)
{
	const auto found = first_span(otlp_request("relay", {span()}));

	EXPECT_EQ(found["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
	EXPECT_EQ(found["spanId"], "01020304050607ab");
	EXPECT_EQ(found["parentSpanId"], "00f067aa0ba902b7");
	EXPECT_EQ(found["startTimeUnixNano"], "1700000000123456789");
	EXPECT_EQ(found["endTimeUnixNano"], "1700000000128456789");
	EXPECT_EQ(found["kind"], 4);
	EXPECT_EQ(found["flags"], 0x301);
	EXPECT_EQ(found["links"].size(), 1);
	EXPECT_EQ(found["links"][0]["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
	EXPECT_EQ(found["links"][0]["spanId"], "00f067aa0ba902b7");
	EXPECT_FALSE(found.contains("status"));
}

TEST(Otlp, AttributesOfMessaging)
{
	const auto request = otlp_request("relay", {span()});
	const auto found = first_span(request);

	EXPECT_EQ(attribute(json::parse(request)["resourceSpans"][0]["resource"], "service.name")["stringValue"], "relay");
	EXPECT_EQ(found["name"], "publish events.order.placed");
	for (const auto &[key, value] : std::vector<std::pair<std::string, std::string>>{
			 {"messaging.system", "kafka"},
			 {"messaging.operation.name", "publish"},
			 {"messaging.operation.type", "send"},
			 {"messaging.destination.name", "events.order.placed"},
			 {"messaging.message.id", "4d47e190-0402-4048-bc2c-89dd54343cdc"},
			 {"messaging.kafka.message.key", "customer-4"},
			 {"outbox.id", "01900000-0000-7000-8000-000000000001"},
			 {"outbox.queue", "orders"}})
	{
		EXPECT_EQ(attribute(found, key), json({{"stringValue", value}})) << key;
	}
	EXPECT_EQ(attribute(found, "messaging.message.body.size"), json({{"intValue", "300"}}));
	EXPECT_EQ(attribute(found, "error.type"), nullptr);
	EXPECT_EQ(attribute(found, "server.address"), nullptr);
}

TEST(Otlp, AFailureHasItsCode)
{
	auto failed = span();

	failed.error = "TIMEOUT";
	failed.server_address = "broker.example";
	failed.server_port = 9092;
	const auto found = first_span(otlp_request("relay", {failed}));
	EXPECT_EQ(found["status"], json({{"code", 2}, {"message", "TIMEOUT"}}));
	EXPECT_EQ(attribute(found, "error.type")["stringValue"], "TIMEOUT");
	EXPECT_EQ(attribute(found, "server.address")["stringValue"], "broker.example");
	EXPECT_EQ(attribute(found, "server.port")["intValue"], "9092");
}

TEST(Otlp, AQueryIsNoPartOfADestination)
{
	auto http = span();

	http.system = "http";
	http.destination = "https://a.example/hook?token=x";
	const auto request = otlp_request("relay", {http});
	EXPECT_EQ(first_span(request)["name"], "publish https://a.example/hook");
	EXPECT_EQ(request.find("token"), std::string::npos);
}

TEST(Otlp, BytesThatAreNotUtf8)
{
	auto odd = span();

	odd.key = "a\xff";
	EXPECT_EQ(attribute(first_span(otlp_request("relay", {odd})), "messaging.kafka.message.key")["stringValue"],
			  "a\xef\xbf\xbd");
}

TEST(Otlp, PartialSuccess)
{
	EXPECT_EQ(otlp_rejected(""), 0);
	EXPECT_EQ(otlp_rejected("{}"), 0);
	EXPECT_EQ(otlp_rejected("nonsense"), 0);
	EXPECT_EQ(otlp_rejected(R"({"partialSuccess":[]})"), 0);
	EXPECT_EQ(otlp_rejected(R"({"partialSuccess":{"rejectedSpans":"3","errorMessage":"x"}})"), 3);
	EXPECT_EQ(otlp_rejected(R"({"partialSuccess":{"rejectedSpans":4}})"), 4);
	EXPECT_EQ(otlp_rejected(R"({"partialSuccess":{"rejectedSpans":{"a":-1}}})"), 0);
}

// ---------------------------------------------------------------- collectors

// Takes requests and answers with a status.
class Collector {
public:
	explicit Collector(int status = 200, std::string answer = "{}") : status(status), answer(std::move(answer))
	{
		const char *options[] = {"listening_ports", "127.0.0.1:0", "num_threads", "1", nullptr};
		const mg_callbacks callbacks{};
		mg_server_port first{};

		context = mg_start(&callbacks, this, options);
		mg_set_request_handler(context, "/v1/traces", take, this);
		mg_get_server_ports(context, 1, &first);
		port = first.port;
	}
	~Collector()
	{
		// civetweb notices the end when a client connects.
		const std::jthread waking([this](const std::stop_token &stop) {
			while (!stop.stop_requested())
			{
				if (auto *client = mg_connect_client("127.0.0.1", port, 0, nullptr, 0))
				{
					mg_close_connection(client);
				}
			}
		});
		mg_stop(context);
	}
	Collector(const Collector &) = delete;
	Collector &operator=(const Collector &) = delete;

	[[nodiscard]] TracingSettings settings() const
	{
		return {.endpoint = "http://127.0.0.1:" + std::to_string(port) + "/v1/traces", .headers = {{"X-Key", "k"}}};
	}

	// Waits until so many spans have come, and returns the requests.
	std::vector<std::string> wait(size_t count)
	{
		std::unique_lock lock(mutex);
		came.wait(lock, [&] { return spans >= count; });
		return bodies;
	}

	std::string key, type; // of the last request

private:
	static int take(mg_connection *connection, void *self) { return static_cast<Collector *>(self)->take(connection); }

	int take(mg_connection *connection)
	{
		std::string body;
		char buffer[4096];
		int many;

		while ((many = mg_read(connection, buffer, sizeof buffer)) > 0)
		{
			body.append(buffer, static_cast<size_t>(many));
		}
		mg_printf(connection, "HTTP/1.1 %d x\r\nContent-Length: %zu\r\n\r\n%s", status, answer.size(), answer.c_str());

		const std::scoped_lock lock(mutex);
		key = mg_get_header(connection, "X-Key");
		type = mg_get_header(connection, "Content-Type");
		spans += json::parse(body)["resourceSpans"][0]["scopeSpans"][0]["spans"].size();
		bodies.push_back(std::move(body));
		came.notify_all();
		return status;
	}

	const int status;
	const std::string answer;
	mg_context *context;
	int port = 0;
	std::mutex mutex;
	std::condition_variable came;
	size_t spans = 0;
	std::vector<std::string> bodies;
};

// A port of loopback: nothing listens there, or something that never answers.
class Silence {
public:
	explicit Silence(bool listening) : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))
	{
		sockaddr_in address{};
		socklen_t length = sizeof address;

		address.sin_family = AF_INET;
		address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		EXPECT_EQ(bind(socket, reinterpret_cast<sockaddr *>(&address), length), 0);
		EXPECT_EQ(getsockname(socket, reinterpret_cast<sockaddr *>(&address), &length), 0);
		EXPECT_TRUE(!listening || listen(socket, 8) == 0);
		port = ntohs(address.sin_port);
	}
	~Silence() { close(socket); }
	Silence(const Silence &) = delete;
	Silence &operator=(const Silence &) = delete;

	[[nodiscard]] TracingSettings settings() const
	{
		return {.endpoint = "http://127.0.0.1:" + std::to_string(port) + "/v1/traces"};
	}

private:
	int socket, port;
};

size_t
dropped(const Metrics &metrics)
{
	const std::string name = "\noutbox_spans_dropped_total ";
	const auto text = metrics.exposition();

	return std::stoul(text.substr(text.find(name) + name.size()));
}

TEST(Tracer, OffWithoutAnEndpoint)
{
	Metrics metrics;
	Tracer tracer({}, metrics);

	EXPECT_FALSE(tracer.on());
	tracer.ended(span());
	EXPECT_EQ(dropped(metrics), 0);
}

TEST(Tracer, SendsBatches)
{
	Collector collector;
	Metrics metrics;
	Tracer tracer(collector.settings(), metrics);

	EXPECT_TRUE(tracer.on());
	for (int i = 0; i < 1300; i++)
	{
		tracer.ended(span());
	}
	const auto requests = collector.wait(1300);
	EXPECT_EQ(requests.size(), 3);
	EXPECT_EQ(first_span(requests[0])["name"], "publish events.order.placed");
	EXPECT_EQ(collector.key, "k");
	EXPECT_EQ(collector.type, "application/json");
	EXPECT_EQ(dropped(metrics), 0);
}

TEST(Tracer, SendsWhatWaitsAtItsEnd)
{
	Collector collector;
	Metrics metrics;
	{
		Tracer tracer(collector.settings(), metrics);
		tracer.ended(span());
	}
	EXPECT_EQ(collector.wait(1).size(), 1);
	EXPECT_EQ(dropped(metrics), 0);
}

// Its headers may be secret.
TEST(Tracer, UsesNoProxyOfTheEnvironment)
{
	Collector collector;
	Metrics metrics;

	setenv("http_proxy", "http://127.0.0.1:1", 1);
	{
		Tracer tracer(collector.settings(), metrics);
		tracer.ended(span());
	}
	unsetenv("http_proxy");
	ASSERT_EQ(dropped(metrics), 0);
	EXPECT_EQ(collector.wait(1).size(), 1);
}

TEST(Tracer, FollowsTheParentsFlag)
{
	Collector collector;
	Metrics metrics;
	{
		Tracer tracer(collector.settings(), metrics);
		tracer.ended(span(false));
		tracer.ended(span());
		tracer.ended(span(false));
	}
	const auto requests = collector.wait(1);
	EXPECT_EQ(json::parse(requests.at(0))["resourceSpans"][0]["scopeSpans"][0]["spans"].size(), 1);
	EXPECT_EQ(dropped(metrics), 0) << "a span that is not sampled is not missing";
}

TEST(Tracer, CountsWhatIsRefused)
{
	for (const auto &[status, answer, expected] : std::vector<std::tuple<int, std::string, size_t>>{
			 {503, "", 2}, {200, R"({"partialSuccess":{"rejectedSpans":"1"}})", 1}})
	{
		Collector collector(status, answer);
		Metrics metrics;
		{
			Tracer tracer(collector.settings(), metrics);
			tracer.ended(span());
			tracer.ended(span());
		}
		EXPECT_EQ(dropped(metrics), expected) << status;
	}
}

TEST(Tracer, CountsWhenTheCollectorIsAway)
{
	const Silence silence(false);
	Metrics metrics;
	Tracer tracer(silence.settings(), metrics);

	for (size_t i = 1; i <= 2; i++)
	{
		tracer.ended(span());
		while (dropped(metrics) < i)
		{
			std::this_thread::yield();
		}
	}
	EXPECT_EQ(dropped(metrics), 2);
}

TEST(Tracer, DropsWhatIsTooMuchForACollectorThatNeverAnswers)
{
	const Silence silence(true);
	Metrics metrics;
	{
		Tracer tracer(silence.settings(), metrics);
		for (int i = 0; i < 11'000; i++)
		{
			tracer.ended(span());
		}
		EXPECT_GE(dropped(metrics), 11'000 - 10'000 - 512) << "no more than these wait or are being sent";
	}
	EXPECT_EQ(dropped(metrics), 11'000);
}

} // namespace
