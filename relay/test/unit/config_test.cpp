// The configuration: what it means, and each way to get it wrong.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <regex>

#include "kinds.h"
#include "message.h"

namespace {

using namespace relay;
using std::chrono::milliseconds;

const std::string source = "[[source]]\ndsn = \"host=db\"\n";
const std::string kafka = "[sink.events]\ntype = \"kafka\"\n";

// For the time of a test.
class Variable {
public:
	Variable(const char *name, const char *value) : name(name) { setenv(name, value, 1); }
	~Variable() { unsetenv(name); }
	Variable(const Variable &) = delete;
	Variable &operator=(const Variable &) = delete;

private:
	const char *name;
};

class File {
public:
	explicit File(std::string_view text)
	{
		const int file = mkstemp(path.data());
		EXPECT_EQ(write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
		close(file);
	}
	~File() { unlink(path.c_str()); }
	File(const File &) = delete;
	File &operator=(const File &) = delete;
	std::string path = "/tmp/relay_unit_XXXXXX";
};

Config
parsed(const std::string &text)
{
	return parse_config(text, test::kinds(), test::missing());
}

std::string
problem(const std::string &text)
{
	try
	{
		parsed(text);
	}
	catch (const ConfigError &error)
	{
		return error.what();
	}
	return "";
}

#define EXPECT_PROBLEM(text, part) EXPECT_PRED2(contains, problem(text), part)

bool
contains(const std::string &text, const std::string &part)
{
	return text.find(part) != std::string::npos;
}

TEST(Config, Defaults)
{
	const Config config = parsed(source + kafka);

	EXPECT_EQ(config.listen, "127.0.0.1:9188");
	EXPECT_TRUE(config.worker_id.starts_with("outbox-relay ")) << config.worker_id;
	EXPECT_TRUE(config.worker_id.ends_with(":" + std::to_string(getpid()))) << config.worker_id;
	EXPECT_EQ(config.grace, milliseconds(25'000));
	EXPECT_EQ(config.log, LogSettings{});
	EXPECT_EQ(config.tracing, TracingSettings{});
	ASSERT_EQ(config.sources.size(), 1);
	EXPECT_EQ(config.sources[0].name, "main");
	EXPECT_EQ(config.sources[0].dsn.reveal(), "host=db");
	EXPECT_EQ(config.sources[0].queues, std::vector<std::string>{"default"});
	EXPECT_EQ(config.sources[0].lease, std::nullopt);
	EXPECT_EQ(config.sinks.at("events").settings.timeout, milliseconds(30'000));
	EXPECT_EQ(config.sinks.at("events").settings.max_in_flight, 1000);
	EXPECT_EQ(config.sinks.at("events").binding, Binding::kafka);
	EXPECT_EQ(config.routes->of(test::message())->sink, "events");
}

TEST(Config, Everything)
{
	const Config config = parsed(R"(
[relay]
listen = ""
worker_id = "me"
grace = "1m"
[log]
format = "json"
level = "debug"
[tracing]
endpoint = "http://127.0.0.1:4318/v1/traces"
headers = { authorization = "Bearer x" }
service = "s"
[[source]]
name = "a"
dsn = "postgresql://u@h/d"
queues = ["x", "y"]
weights = [4, 1]
batch = 7
max_in_flight = 8
poll_interval = "250ms"
lease = "1h"
[[source]]
name = "b"
dsn = "dbname=b"
queues = ["*"]
[sink.k]
type = "kafka"
timeout = "5s"
max_in_flight = 9
properties = { "compression.type" = "zstd" }
[sink.h]
type = "http"
[[route]]
queue = "x"
event_type = "order.*"
aggregate_type = "Order"
headers = { tenant = "acme-*" }
sink = "k"
topic = "{queue}"
key = "{aggregate_id}"
body = "envelope"
header.tenant = "{header:tenant}"
header.a.b = "c"
[[route]]
sink = "h"
url = "https://example.com/{event_type}"
method = "PUT"
body = "cloudevents-structured"
source = "urn:x"
[[override]]
sink = "k"
code = "X_TOO_LARGE"
class = "try_again"
[[override]]
code = "X_AWAY"
class = "refused"
)");

	EXPECT_EQ(config.listen, "");
	EXPECT_EQ(config.worker_id, "me");
	EXPECT_EQ(config.grace, milliseconds(60'000));
	EXPECT_TRUE(config.log.json);
	EXPECT_EQ(config.log.level, Level::debug);
	EXPECT_EQ(config.tracing.headers.at("authorization"), "Bearer x");
	ASSERT_EQ(config.sources.size(), 2);
	EXPECT_EQ(config.sources[0].queues, (std::vector<std::string>{"x", "y"}));
	EXPECT_EQ(config.sources[0].weights, (std::vector<int64_t>{4, 1}));
	EXPECT_EQ(config.sources[0].batch, 7);
	EXPECT_EQ(config.sources[0].max_in_flight, 8);
	EXPECT_EQ(config.sources[0].poll_interval, milliseconds(250));
	EXPECT_EQ(config.sources[0].lease, milliseconds(3'600'000));
	EXPECT_EQ(config.sinks.at("k").settings.timeout, milliseconds(5000));
	EXPECT_EQ(config.sinks.at("h").settings.max_per_endpoint, 10);

	const Route &first = config.routes->all().at(0), &second = config.routes->all().at(1);
	EXPECT_EQ(first.match.headers.at("tenant"), "acme-*");
	EXPECT_EQ(first.topic.source(), "{queue}");
	EXPECT_EQ(first.key->source(), "{aggregate_id}");
	EXPECT_EQ(first.body, Body::envelope);
	ASSERT_EQ(first.headers.size(), 2);
	EXPECT_EQ(first.headers[0].first, "a.b");
	EXPECT_EQ(first.headers[1].second.source(), "{header:tenant}");
	EXPECT_EQ(second.topic.source(), "https://example.com/{event_type}");
	EXPECT_EQ(second.method.source(), "PUT");
	EXPECT_EQ(second.body, Body::cloudevents_structured);

	EXPECT_EQ(config.sinks.at("k").taxonomy().of("X_TOO_LARGE"), Fault::moment);
	EXPECT_EQ(config.sinks.at("h").taxonomy().of("X_TOO_LARGE"), Fault::message);
	EXPECT_EQ(config.sinks.at("k").taxonomy().of("X_AWAY"), Fault::message);
	EXPECT_EQ(config.sinks.at("h").taxonomy().of("X_AWAY"), Fault::message);
}

TEST(Config, TopicOfTheKind)
{
	const Config config = parsed(source + "[sink.p]\ntype = \"postgres\"\n");
	EXPECT_EQ(config.routes->all().at(0).topic.source(), "outbox_inbox.receive");
}

TEST(Config, WrongSections)
{
	EXPECT_PROBLEM("", "\"source\" is missing");
	EXPECT_PROBLEM(source, "\"sink\" is missing");
	EXPECT_PROBLEM("sinks = 1\n" + source + kafka, "line 1: unknown key \"sinks\"; did you mean \"sink\"?");
	EXPECT_PROBLEM(source + kafka + "tiemout = \"1s\"", "line 5: unknown key \"sink.events.tiemout\"");
	EXPECT_PROBLEM(source + "quues = []\n" + kafka, "line 3: unknown key \"source.1.quues\"; did you mean \"queues\"?");
	EXPECT_PROBLEM(source + kafka + "[route]\nsink = \"events\"", "must be an array of tables: [[route]]");
	EXPECT_PROBLEM(source + "[[sink]]\ntype = \"kafka\"", "\"sink\" must be a table");
	EXPECT_PROBLEM(source + "[sink.\"a b\"]\ntype = \"kafka\"", "letters, digits, _ and - only");
	EXPECT_PROBLEM("[relay]\n[relay]\n", "line 2");
	EXPECT_PROBLEM("x = \xff", "line 1");
	// What toml++ would abort at, or has no definite answer to.
	for (const char *text : {"[=", "[a.", "[[#", "é = 1", "\u038b?", "a é", "x = {=}"})
		EXPECT_NE(problem(text), "") << text;
}

TEST(Config, WrongValues)
{
	const auto relay = [](const std::string &line) { return problem("[relay]\n" + line + "\n" + source + kafka); };
	const auto of_source = [](const std::string &line) { return problem(source + line + "\n" + kafka); };
	const auto sink = [](const std::string &line) { return problem(source + kafka + line); };
	const std::string long_name(64, 'q');

	EXPECT_PRED2(contains, relay("grace = 5"), "line 2: \"relay.grace\" must be a string");
	EXPECT_PRED2(contains, relay("grace = \"5\""), "must be a duration");
	EXPECT_PRED2(contains, relay("grace = \"-5s\""), "must be a duration");
	EXPECT_PRED2(contains, relay("grace = \"99999999999999999h\""), "must be a duration");
	EXPECT_PRED2(contains, relay("grace = \"2h\""), "from 0 to 3600000 ms");
	for (const char *listen : {"9188", "host:", ":1", "host:x", "host:70000", "host:123456"})
		EXPECT_PRED2(contains, relay("listen = \"" + std::string(listen) + "\""), "HOST:PORT");
	EXPECT_PRED2(contains, relay("worker_id = \"\""), "1 to 512 bytes");
	EXPECT_PRED2(contains, of_source("queues = [\"\"]"), "1 to 63 bytes");
	EXPECT_PRED2(contains, of_source("queues = [\"" + long_name + "\"]"), "1 to 63 bytes");
	EXPECT_EQ(of_source("queues = [\"" + long_name.substr(1) + "\"]"), "");
	EXPECT_PRED2(contains, of_source("queues = []"), "is empty");
	EXPECT_PRED2(contains, of_source("queues = [\"a\", \"a\"]"), "twice");
	EXPECT_PRED2(contains, of_source("queues = [\"*\", \"a\"]"), "nothing beside");
	EXPECT_PRED2(contains, of_source("queues = [1]"), "must be a string");
	EXPECT_PRED2(contains, of_source("weights = [1, 2]"), "one number for each queue");
	EXPECT_PRED2(contains, of_source("weights = [0]"), "at least 1");
	EXPECT_PRED2(contains, of_source("weights = [\"x\"]"), "whole numbers");
	EXPECT_PRED2(contains, of_source("batch = 0"), "from 1 to");
	EXPECT_PRED2(contains, of_source("batch = 1.5"), "a whole number, not of type float");
	EXPECT_PRED2(contains, of_source("lease = \"10ms\""), "from 1000");
	EXPECT_PRED2(contains, sink("max_in_flight = -1"), "from 1 to");
	EXPECT_PRED2(contains, sink("timeout = \"0s\""), "from 1 to");
	EXPECT_PRED2(contains, sink("servers = [\"a\"]"), "must be a string");
	EXPECT_PRED2(contains, sink("properties = { a = [1] }"), "a string, a number or a boolean");
	EXPECT_PROBLEM(source + "[log]\nlevel = \"loud\"\n" + kafka, "one of debug, info, warning, error");
	EXPECT_PROBLEM(source + "[tracing]\nendpoint = \"collector\"\n" + kafka, "http://");
	EXPECT_PROBLEM(source + source + kafka, "\"source.1.name\" is missing");
	EXPECT_PROBLEM(source + "name = \"a\"\n" + source + "name = \"a\"\n" + kafka, "as of another");
}

TEST(Config, WrongSinks)
{
	EXPECT_PROBLEM(source + "[sink.a]\n", "\"sink.a.type\" is missing");
	EXPECT_PROBLEM(source + "[sink.a]\ntype = \"kafak\"", "must be one of kafka, rabbitmq");
	EXPECT_PROBLEM(source + "[sink.a]\ntype = \"pulsar\"", "built without");
	EXPECT_PROBLEM(source + kafka + "[sink.b]\ntype = \"kafka\"\n", "\"route\" is missing: with several sinks");
}

TEST(Config, WrongRoutes)
{
	const auto route = [](const std::string &lines) { return problem(source + kafka + "[[route]]\n" + lines); };

	EXPECT_PRED2(contains, route("sink = \"event\""), "did you mean \"events\"?");
	EXPECT_PRED2(contains, route("topic = \"{evnt_type}\""), "line 6: \"route.1.topic\" is wrong");
	EXPECT_PRED2(contains, route("topic = \"\""), "is empty");
	EXPECT_PRED2(contains, route("schema_version = 0"), "schema_version");
	EXPECT_PRED2(contains, route("subject = \"x\""), "not for a sink of type kafka");
	EXPECT_PRED2(contains, route("exchange = \"x\""), "not for a sink of type kafka");
	EXPECT_PRED2(contains, route("method = \"x\""), "not for a sink of type kafka");
	EXPECT_PRED2(contains, route("source = \"x\""), "is for CloudEvents");
	EXPECT_PRED2(contains, route("body = \"xml\""), "must be one of");
	EXPECT_PRED2(contains, route("preset = \"debezium\"\nbody = \"envelope\""), "must be payload");
	EXPECT_PRED2(contains, route("preset = \"debezum\""), "did you mean \"debezium\"?");
	EXPECT_PRED2(contains, route("header.event_type = \"x\""), "replace one of the relay's own");
	EXPECT_PRED2(contains, route("header.x = \"{\""), "is wrong");
	EXPECT_PRED2(contains, route("queue = \"x\"\ntopc = \"y\""), "did you mean \"topic\"?");
	EXPECT_PRED2(contains, route("[[route]]\nqueue = \"x\""), "has no use after the one that matches everything");
	EXPECT_EQ(route("queue = \"x\"\n[[route]]\nevent_type = \"*\""), "");
	EXPECT_PROBLEM(source + "[sink.h]\ntype = \"http\"\n[[route]]\nheader.\"a b\" = \"x\"", "not a token");
	EXPECT_PROBLEM(source + "[sink.n]\ntype = \"nats\"\n[[route]]\ntopic = \"a\"\nsubject = \"b\"", "another word");
}

TEST(Config, WrongOverrides)
{
	const auto over = [](const std::string &lines) { return problem(source + kafka + "[[override]]\n" + lines); };

	EXPECT_PRED2(contains, over("code = \"X_TO_LARGE\"\nclass = \"away\""), "did you mean \"X_TOO_LARGE\"?");
	EXPECT_PRED2(contains, over("code = \"X_AWAY\"\nclass = \"gone\""), "refused, try_again, away");
	EXPECT_PRED2(contains, over("code = \"X_AWAY\""), "must be one of");
	EXPECT_PRED2(contains, over("class = \"away\""), "\"override.1.code\" is missing");
	EXPECT_PRED2(contains, over("sink = \"x\"\ncode = \"X_AWAY\"\nclass = \"away\""), "no [sink.x]");
	EXPECT_EQ(over("code = \"TIMEOUT\"\nclass = \"away\""), "");
}

TEST(Config, Environment)
{
	const Variable listen("OUTBOX_RELAY__RELAY__LISTEN", "127.0.0.1:1");
	const Variable timeout("OUTBOX_RELAY__SINK__EVENTS__TIMEOUT", "7s");
	const Variable batch("OUTBOX_RELAY__SOURCE__1__BATCH", "3");
	const Variable queues("OUTBOX_RELAY__SOURCE__1__QUEUES", "a, b");
	const Config config = parsed(source + kafka + "timeout = \"1s\"\n");

	EXPECT_EQ(config.listen, "127.0.0.1:1");
	EXPECT_EQ(config.sinks.at("events").settings.timeout, milliseconds(7000));
	EXPECT_EQ(config.sources[0].batch, 3);
	EXPECT_EQ(config.sources[0].queues, (std::vector<std::string>{"a", "b"}));
	{
		const Variable wrong("OUTBOX_RELAY__SOURCE__1__BATCH", "many");
		EXPECT_PROBLEM(source + kafka, "OUTBOX_RELAY__SOURCE__1__BATCH: \"source.1.batch\" must be a whole number");
	}
	const Variable unknown("OUTBOX_RELAY__SINK__EVENTS__TIEMOUT", "7s");
	EXPECT_PROBLEM(source + kafka, "unknown environment variable OUTBOX_RELAY__SINK__EVENTS__TIEMOUT");
}

TEST(Config, FromElsewhere)
{
	const File file("host=db password=secret-of-a-file\n");
	const Variable variable("RELAY_UNIT_DSN", "host=other");
	const auto dsn = [](const std::string &value) { return "[[source]]\ndsn = " + value + "\n" + kafka; };

	EXPECT_EQ(parsed(dsn("{ file = \"" + file.path + "\" }")).sources[0].dsn.reveal(),
			  "host=db password=secret-of-a-file");
	EXPECT_EQ(redact("secret-of-a-file"), "***");
	EXPECT_EQ(parsed(dsn("{ env = \"RELAY_UNIT_DSN\" }")).sources[0].dsn.reveal(), "host=other");
	EXPECT_PROBLEM(dsn("{ env = \"RELAY_UNIT_NONE\" }"), "RELAY_UNIT_NONE, which is not set");
	EXPECT_PROBLEM(dsn("{ file = \"/nowhere\" }"), "\"/nowhere\", which cannot be read");
	EXPECT_PROBLEM(dsn("{ file = \"/tmp\" }"), "\"/tmp\", which cannot be read");
	EXPECT_PROBLEM(dsn("{ env = 1 }"), "must name env, file or credential by a string");
	EXPECT_PROBLEM(dsn("{ credential = \"dsn\" }"), "\"dsn\", but CREDENTIALS_DIRECTORY is not set");
	const size_t slash = file.path.rfind('/');
	const Variable credentials("CREDENTIALS_DIRECTORY", file.path.substr(0, slash).c_str());
	EXPECT_EQ(parsed(dsn("{ credential = \"" + file.path.substr(slash + 1) + "\" }")).sources[0].dsn.reveal(),
			  "host=db password=secret-of-a-file");
	EXPECT_PROBLEM(dsn("{ credential = \"nowhere\" }"), "/nowhere\", which cannot be read");
	EXPECT_PROBLEM(dsn("{ env = \"A\", file = \"B\" }"), "must be a string");
	EXPECT_PROBLEM(dsn("{ evn = \"A\" }"), "must be a string");
}

TEST(Config, ErrorsShowNoSecret)
{
	const std::string secret = "Unsaid-8271";
	const Variable dsn("OUTBOX_RELAY__SOURCE__1__DSN", ("host=db password='" + secret).c_str());
	const Variable password("RELAY_UNIT_PASSWORD", secret.c_str());

	EXPECT_PROBLEM(source + kafka, "not a connection string");
	unsetenv("OUTBOX_RELAY__SOURCE__1__DSN");
	for (const std::string &text : {
			 "[[source]]\ndsn = \"host=db " + secret + "\"\n" + kafka,
			 "[[source]]\ndsn = [\"" + secret + "\"]\n" + kafka,
			 source + kafka + "password = [\"" + secret + "\"]",
			 source + kafka + "password = { evn = \"" + secret + "\" }",
			 source + kafka + "properties = { p = { env = \"RELAY_UNIT_PASSWORD\" } }\n\"" + secret + "\" = 1",
			 source + kafka + "password = \"" + secret + "\"\n\"" + secret + "\" = 1",
			 source + kafka + "password = " + secret,
		 })
	{
		EXPECT_NE(problem(text), "") << text;
		EXPECT_FALSE(contains(problem(text), secret)) << problem(text);
	}
	const std::string digits = "98765432109876543210987";
	EXPECT_FALSE(contains(problem(source + kafka + "password = " + digits), digits));
	EXPECT_PROBLEM(source + kafka + "password = " + digits, "line 5");
}

TEST(Config, Fingerprints)
{
	const auto fingerprint = [](const std::string &lines) {
		return parsed(source + kafka + lines).sinks.at("events").fingerprint;
	};
	const std::string one = fingerprint("password = \"abcdef\"");
	const Variable password("RELAY_UNIT_PASSWORD", "abcdef");

	EXPECT_EQ(fingerprint("password = \"abcdef\" # a comment"), one);
	EXPECT_EQ(fingerprint("password = { env = \"RELAY_UNIT_PASSWORD\" }"), one);
	EXPECT_NE(fingerprint("password = \"abcdeg\""), one);
	EXPECT_NE(fingerprint("password = \"abcdef\"\ntimeout = \"5s\""), one);
	EXPECT_NE(fingerprint("password = \"abcdef\"\nproperties = { a = 1 }"), one);
	EXPECT_NE(fingerprint("password = \"abcdef\"\n[[override]]\ncode = \"TIMEOUT\"\nclass = \"away\""), one);
	EXPECT_EQ(one.find("abcdef"), std::string::npos);
	EXPECT_EQ(
		parsed("[relay]\ngrace = \"1s\"\n" + source + kafka + "password = \"abcdef\"").sinks.at("events").fingerprint,
		one);
}

TEST(Config, File)
{
	const File file("[[source]]\ndsn = 1\n");

	EXPECT_THROW(read_config("/nowhere"), ConfigError);
	EXPECT_THROW(read_config("/tmp"), ConfigError);
	try
	{
		read_config(file.path);
		FAIL();
	}
	catch (const ConfigError &error)
	{
		EXPECT_PRED2(contains, error.what(), file.path + ": line 2: ");
	}
}

// Until a user names a sink, the relay claims nothing, so it counts nothing as delivered.
TEST(Config, SampleIsToBeEdited)
{
	const std::string sample = *contents_of("../../outbox-relay.toml");
	const std::string with_dsn = std::regex_replace(sample, std::regex("\n# dsn"), "\ndsn");

	EXPECT_PROBLEM(sample, "\"source.1.dsn\" is missing");
	EXPECT_PROBLEM(with_dsn, "\"sink\" is missing: [sink.NAME] says where messages go");
	EXPECT_EQ(problem(with_dsn + "\n" + kafka), "");
}

} // namespace
