// The status page and its server: that nothing from outside becomes markup, and what is answered to whom.
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

#include <curl/curl.h>
#include <nlohmann/json.hpp>

#include "core/secret.h"
#include "seen/html.h"
#include "seen/page.h"
#include "seen/server.h"

namespace {

using namespace relay;
using namespace std::chrono_literals;

const std::string hostile = "<script>alert(1)</script>\"'&";

PageData
hostile_data()
{
	PageData data;
	SourceState source;
	SinkState sink;
	QueueState queue;

	queue.queue = source.problem = sink.type = hostile;
	queue.paused = true;
	source.queues = {queue};
	sink.endpoints = {{hostile, hostile, {}}};
	sink.errors = {{{}, hostile, hostile}};
	data.problem = hostile;
	data.sources[hostile] = data.sources["other"] = source;
	data.sinks[hostile] = sink;
	data.claimed[hostile] = Rates(History::length, 2.5);
	data.rates[hostile] = {Rates(History::length), Rates(History::length, 1)};
	return data;
}

TEST(Page, EscapesEverything)
{
	const auto html = page(hostile_data());

	EXPECT_EQ(html.find("<script>alert"), std::string::npos);
	EXPECT_EQ(html.find("\"'"), std::string::npos) << "quotes of an attribute";
	EXPECT_NE(html.find("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"), std::string::npos);
}

TEST(Page, HasNoStyleOrScriptOfItsOwn)
{
	const auto html = page(hostile_data());

	for (const auto *inlined : {"<style", " style=", "<script>", " onclick=", " onload="})
	{
		EXPECT_EQ(html.find(inlined), std::string::npos) << inlined;
	}
	EXPECT_NE(html.find(R"(<script src="page.js" defer></script>)"), std::string::npos);
}

TEST(Page, RedactsSecrets)
{
	const Secret secret("hunter-two");
	auto data = hostile_data();

	data.problem = data.sources["other"].problem = "wrong password hunter-two";
	data.sinks[hostile].errors.front().text = data.sinks[hostile].endpoints.front().endpoint = "hunter-two";
	EXPECT_EQ(page(data).find("hunter-two"), std::string::npos);
	EXPECT_EQ(status_json(data).find("hunter-two"), std::string::npos);
}

TEST(Page, SaysWhatIsBlocked)
{
	PageData data;
	auto &bank = data.sources["bank"];
	auto &kafka = data.sinks["kafka"];

	bank.connected = bank.listening = true;
	bank.last_claim = std::chrono::steady_clock::now() + 1h;
	kafka.type = "kafka";
	EXPECT_NE(page_content(data).find("Nothing is blocked."), std::string::npos);

	bank.unrecorded = 1;
	bank.queues.resize(2);
	bank.queues[0].queue = "mail";
	bank.queues[0].paused = true;
	bank.queues[1].queue = "orders";
	bank.queues[1].blocked_keys = 2;
	kafka.blocked = true;
	kafka.endpoints = {{"", "open", data.now + 30s}};
	const auto html = page_content(data);
	for (const auto *words :
		 {"Source <b>bank</b>: 1 outcome waits for the database.", "Queue <b>mail</b> of bank is paused.",
		  "Queue <b>orders</b> of bank: 2 keys are blocked.", "Sink <b>kafka</b>: the breaker is open, next probe",
		  ">in 30 s</time>", "Sink <b>kafka</b> takes no messages for now"})
	{
		EXPECT_NE(html.find(words), std::string::npos) << words << html;
	}
}

TEST(Page, JsonHasTheNumbers)
{
	auto data = hostile_data();

	data.sources["other"].claimed = 12;
	data.sources["other"].queues[0].queue = "not UTF-8: \xff";
	const auto json = nlohmann::json::parse(status_json(data));
	EXPECT_EQ(json["ready"], false);
	EXPECT_EQ(json["sources"]["other"]["claimed"], 12);
	EXPECT_EQ(json["sources"]["other"]["last_claim_seconds"], nullptr);
	EXPECT_EQ(json["sources"]["other"]["queues"][0]["queue"], "not UTF-8: \xef\xbf\xbd");
	EXPECT_EQ(json["sources"][hostile]["claimed_per_second"], 2.5);
	EXPECT_EQ(json["sinks"][hostile]["failed_per_second"], 1);
	EXPECT_EQ(json["sinks"][hostile]["errors"][0]["code"], hostile);
}

TEST(Html, Numbers)
{
	EXPECT_EQ(html::count(0), "0");
	EXPECT_EQ(html::count(999), "999");
	EXPECT_EQ(html::count(1000), "1,000");
	EXPECT_EQ(html::count(1234567), "1,234,567");
	EXPECT_EQ(html::rate(0), "0");
	EXPECT_EQ(html::rate(.04), "0.1") << "something is not nothing";
	EXPECT_EQ(html::rate(9.94), "9.9");
	EXPECT_EQ(html::rate(9.96), "10");
	EXPECT_EQ(html::rate(12345.6), "12,346");
	EXPECT_EQ(html::age(-3), "0 s");
	EXPECT_EQ(html::age(119), "119 s");
	EXPECT_EQ(html::age(120), "2 min");
	EXPECT_EQ(html::age(7200), "2 h");
	EXPECT_EQ(html::age(86400 * 3), "3 days");
}

TEST(Html, TimesHaveTheirExactTime)
{
	const std::chrono::system_clock::time_point at{1'000'000'000s};

	EXPECT_EQ(html::ago(at, at + 5min),
			  R"(<time datetime="2001-09-09T01:46:40Z" title="2001-09-09 01:46:40 UTC">5 min ago</time>)");
}

TEST(Html, ALineHasGaps)
{
	Rates rates(History::length);

	rates[3] = 5;
	rates[4] = 10;
	rates[6] = 0;
	const auto svg = html::chart("title", "claimed", rates);
	EXPECT_NE(svg.find(R"(<path class="first" d="M3 50.0L4 0.0M6 100.0"/>)"), std::string::npos) << svg;
	EXPECT_EQ(svg.find("class=\"second\""), std::string::npos);
}

// ---------------------------------------------------------------- the server

size_t
append(const char *data, size_t, size_t size, void *to)
{
	static_cast<std::string *>(to)->append(data, size);
	return size;
}

class Server : public testing::Test {
protected:
	Server() { curl_global_init(CURL_GLOBAL_DEFAULT); }
	~Server() override { curl_global_cleanup(); }

	struct Reply {
		long status = 0;
		std::string head, body;
	};

	Reply ask(const std::string &path, const char *method = "GET")
	{
		const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(), curl_easy_cleanup);
		const auto url = "http://127.0.0.1:" + std::to_string(server.port()) + path;
		Reply reply;

		curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
		curl_easy_setopt(curl.get(), CURLOPT_CUSTOMREQUEST, method);
		curl_easy_setopt(curl.get(), CURLOPT_NOBODY, std::string_view(method) == "HEAD" ? 1L : 0L);
		curl_easy_setopt(curl.get(), CURLOPT_PATH_AS_IS, 1L);
		curl_easy_setopt(curl.get(), CURLOPT_PROXY, "");
		curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, append);
		curl_easy_setopt(curl.get(), CURLOPT_HEADERFUNCTION, append);
		curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &reply.body);
		curl_easy_setopt(curl.get(), CURLOPT_HEADERDATA, &reply.head);
		EXPECT_EQ(curl_easy_perform(curl.get()), CURLE_OK);
		curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &reply.status);
		return reply;
	}

	Metrics metrics;
	Board board;
	History history{board};
	StatusServer server{"127.0.0.1:0", metrics, board, history};
};

TEST_F(Server, Pages)
{
	EXPECT_EQ(ask("/health/live").status, 200);
	EXPECT_NE(ask("/metrics").body.find("outbox_spans_dropped_total 0\n"), std::string::npos);
	EXPECT_FALSE(board.watched()) << "a scrape is no look";
	EXPECT_EQ(nlohmann::json::parse(ask("/status.json").body)["ready"], false);
	EXPECT_TRUE(board.watched());
	EXPECT_NE(ask("/").body.find("<main>"), std::string::npos);
	EXPECT_EQ(ask("/content").body.find("<main>"), std::string::npos);
	EXPECT_EQ(ask("/page.css").body, page_style);
	EXPECT_EQ(ask("/page.js").body, page_script);
}

TEST_F(Server, Readiness)
{
	const Secret secret("hunter-three");
	SourceState source;

	EXPECT_EQ(ask("/health/ready").status, 503);
	source.problem = "password hunter-three";
	board.put("bank", source);
	EXPECT_EQ(ask("/health/ready").body, "not ready\nsource bank: the database is not connected: password ***\n");
	source.connected = source.listening = true;
	source.last_claim = std::chrono::steady_clock::now();
	source.poll_interval = 1h;
	board.put("bank", source);
	const auto reply = ask("/health/ready");
	EXPECT_EQ(reply.status, 200);
	EXPECT_EQ(reply.body, "ready\n");
}

TEST_F(Server, OnlyReads)
{
	for (const auto *method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
	{
		const auto reply = ask("/", method);
		EXPECT_EQ(reply.status, 405) << method;
		EXPECT_NE(reply.head.find("Allow: GET, HEAD\r\n"), std::string::npos) << method;
	}
	const auto head = ask("/", "HEAD");
	EXPECT_EQ(head.status, 200);
	EXPECT_EQ(head.body, "");
}

TEST_F(Server, ServesNoFiles)
{
	for (const auto *path : {"/etc/passwd", "/../../../../etc/passwd", "/%2e%2e/etc/passwd", "/x/", "/page.css/x"})
	{
		EXPECT_EQ(ask(path).status, 404) << path;
	}
}

TEST_F(Server, EveryAnswerHasTheSecurityHeaders)
{
	for (const auto *path : {"/", "/metrics", "/health/ready", "/nothing"})
	{
		const auto head = ask(path).head;
		for (const auto *header :
			 {"Content-Security-Policy: default-src 'none'; style-src 'self'; script-src 'self';",
			  "X-Content-Type-Options: nosniff\r\n", "Referrer-Policy: no-referrer\r\n", "Cache-Control: no-store\r\n"})
		{
			EXPECT_NE(head.find(header), std::string::npos) << path << ": " << header;
		}
	}
}

TEST_F(Server, ATakenPortIsAnError)
{
	const auto taken = "127.0.0.1:" + std::to_string(server.port());

	try
	{
		const StatusServer second(taken, metrics, board, history);
		FAIL() << "it listens";
	}
	catch (const std::runtime_error &error)
	{
		EXPECT_NE(std::string(error.what()).find("could not listen on \"" + taken + "\": "), std::string::npos);
		EXPECT_NE(std::string(error.what()).find("Address already in use"), std::string::npos) << error.what();
	}
	EXPECT_THROW(StatusServer("nonsense", metrics, board, history), std::runtime_error);
}

TEST_F(Server, Addresses)
{
	for (const auto *listen : {"0.0.0.0:0", "127.0.0.2:0"})
	{
		EXPECT_GT(StatusServer(listen, metrics, board, history).port(), 0) << listen;
	}
}

} // namespace
