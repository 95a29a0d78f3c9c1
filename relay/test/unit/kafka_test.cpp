// The sink kafka against the cluster that librdkafka brings along for tests: what is answered, once each, when brokers
// go away, hang, refuse a batch, or end the idempotent producer.
#include "toml/section.h"
#include "core/taxonomy.h"
#include "sinks/kafka_codes.h"
#include "sinks/registry.h"

#include <gtest/gtest.h>

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>

using namespace relay;
using namespace std::chrono_literals;

namespace {

constexpr int16_t api_produce = 0, api_init_producer_id = 22;

// What a test waits for and does not get ends it, long after everything that may take its time.
constexpr auto at_most = 60s;

class Cluster {
public:
	explicit Cluster(int brokers = 1)
		: host(rd_kafka_new(RD_KAFKA_PRODUCER, quiet(), nullptr, 0)), mock(rd_kafka_mock_cluster_new(host, brokers))
	{
	}
	~Cluster()
	{
		rd_kafka_mock_cluster_destroy(mock);
		rd_kafka_destroy(host);
	}
	Cluster(const Cluster &) = delete;
	Cluster &operator=(const Cluster &) = delete;

	static rd_kafka_conf_t *quiet()
	{
		rd_kafka_conf_t *conf = rd_kafka_conf_new();
		rd_kafka_conf_set_log_cb(conf, nullptr);
		return conf;
	}
	[[nodiscard]] std::string bootstrap() const { return rd_kafka_mock_cluster_bootstraps(mock); }

	rd_kafka_t *host;
	rd_kafka_mock_cluster_t *mock;
};

class Collected final : public Answers {
public:
	void answer(std::vector<Answered> answered) override
	{
		std::lock_guard lock(mutex);
		for (Answered &one : answered)
			answers.emplace(one.ticket, std::move(one.answer));
		changed.notify_all();
	}
	void blocked(bool) override {}

	// Those that have come, at least so many.
	std::multimap<uint64_t, Answer> wait(size_t count)
	{
		std::unique_lock lock(mutex);
		changed.wait_for(lock, at_most, [&] { return answers.size() >= count; });
		return answers;
	}

private:
	std::mutex mutex;
	std::condition_variable changed;
	std::multimap<uint64_t, Answer> answers;
};

std::function<std::unique_ptr<Sink>()>
read(const std::string &text, std::chrono::milliseconds timeout = 30s)
{
	toml::table table = toml::parse(text);
	Section section(table, "sink.k");
	SinkSettings settings{.name = "k", .type = "kafka", .timeout = timeout};
	for (const SinkKind &kind : sink_kinds())
		if (kind.type == "kafka")
			return kind.read(section, settings);
	throw std::logic_error("built without the sink kafka");
}

struct Running {
	explicit Running(const std::string &bootstrap, std::chrono::milliseconds timeout = 30s,
					 const std::string &properties = "")
		: sink(read("brokers = '" + bootstrap + "'\n[properties]\n" + properties, timeout)())
	{
		sink->start(collected);
	}

	void deliver(int from, int to, const std::string &topic = "t", size_t size = 10)
	{
		std::vector<std::unique_ptr<Delivery>> all;
		for (int i = from; i < to; i++)
		{
			auto one = std::make_unique<Delivery>();
			one->ticket = i;
			one->to.topic = topic;
			one->to.key = "key";
			one->body = std::string(size, 'x');
			one->content_type = "application/json";
			one->headers = {{"message_id", std::to_string(i)}};
			all.push_back(std::move(one));
		}
		sink->deliver(std::move(all));
	}

	Answer probe()
	{
		std::mutex mutex;
		std::condition_variable changed;
		std::optional<Answer> got;
		sink->probe("", [&](Answer answer) {
			std::lock_guard lock(mutex);
			got = std::move(answer);
			changed.notify_all();
		});
		std::unique_lock lock(mutex);
		changed.wait(lock, [&] { return got.has_value(); });
		return *got;
	}

	Collected collected;
	std::unique_ptr<Sink> sink; // ends first
};

std::set<std::string>
codes_of(const std::multimap<uint64_t, Answer> &answers)
{
	std::set<std::string> codes;
	for (const auto &[ticket, answer] : answers)
		codes.insert(answer.accepted ? "accepted" : answer.code);
	return codes;
}

bool
once_each(const std::multimap<uint64_t, Answer> &answers, size_t count)
{
	for (uint64_t ticket = 0; ticket < count; ticket++)
		if (answers.count(ticket) != 1)
			return false;
	return answers.size() == count;
}

} // namespace

TEST(Kafka, EveryCodeOfTheLibraryThatRunsHasARow)
{
	const rd_kafka_err_desc *descs = nullptr;
	size_t count = 0;
	rd_kafka_get_err_descs(&descs, &count);
	Taxonomy taxonomy(kafka_codes());
	size_t named = 0;
	for (size_t i = 0; i < count; i++)
		if (descs[i].name && descs[i].desc)
		{
			named++;
			SCOPED_TRACE(descs[i].name);
			EXPECT_TRUE(taxonomy.known(std::string("KAFKA_") + descs[i].name));
			EXPECT_EQ(kafka_code(descs[i].code), std::string("KAFKA_") + descs[i].name);
			EXPECT_EQ(taxonomy.of(kafka_code(descs[i].code)), kafka_fault(descs[i].code));
		}
	EXPECT_GT(named, 140u);
}

TEST(Kafka, CodesAreToldApartAndExplained)
{
	std::set<std::string_view> seen;
	for (const Code &code : kafka_codes())
	{
		SCOPED_TRACE(code.code);
		EXPECT_TRUE(seen.insert(code.code).second);
		EXPECT_GT(code.why.size(), 10u);
	}
	EXPECT_EQ(kafka_fault(RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE), Fault::message);
	EXPECT_EQ(kafka_fault(RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION), Fault::message);
	EXPECT_EQ(kafka_fault(RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS), Fault::moment);
	EXPECT_EQ(kafka_fault(RD_KAFKA_RESP_ERR__MSG_TIMED_OUT), Fault::moment);
	EXPECT_EQ(kafka_fault(RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN), Fault::sink);
	EXPECT_EQ(kafka_fault(RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED), Fault::sink);
	EXPECT_TRUE(kafka_code(static_cast<rd_kafka_resp_err_t>(200)).starts_with("KAFKA_"));
}

TEST(Kafka, AcceptedWithTopicPartitionAndOffset)
{
	Cluster cluster(3);
	Running running(cluster.bootstrap());
	running.deliver(0, 1000);
	auto answers = running.collected.wait(1000);
	EXPECT_TRUE(once_each(answers, 1000));
	EXPECT_EQ(codes_of(answers), (std::set<std::string>{"accepted"}));
	std::set<std::string> references;
	for (const auto &[ticket, answer] : answers)
		references.insert(answer.reference);
	EXPECT_EQ(references.size(), 1000u);
	EXPECT_TRUE(references.begin()->starts_with("t/"));
	EXPECT_TRUE(running.probe().accepted);
}

TEST(Kafka, OneKeyKeepsItsOrderOverRetries)
{
	Cluster cluster(3);
	Running running(cluster.bootstrap());
	rd_kafka_mock_push_request_errors(cluster.mock, api_produce, 4, RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
									  RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
									  RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND);
	running.deliver(0, 500);
	auto answers = running.collected.wait(500);
	ASSERT_TRUE(once_each(answers, 500));
	long before = -1;
	for (const auto &[ticket, answer] : answers)
	{
		ASSERT_TRUE(answer.accepted);
		long offset = std::stol(answer.reference.substr(answer.reference.rfind('/') + 1));
		EXPECT_GT(offset, before);
		before = offset;
	}
}

TEST(Kafka, MessageTooLargeIsRefusedAlone)
{
	Cluster cluster;
	Running running(cluster.bootstrap());
	running.deliver(0, 1, "t", 2'000'000);
	running.deliver(1, 10);
	auto answers = running.collected.wait(10);
	ASSERT_TRUE(once_each(answers, 10));
	EXPECT_EQ(answers.find(0)->second.code, "KAFKA_MSG_SIZE_TOO_LARGE");
	EXPECT_EQ(answers.find(0)->second.response_code, "10");
	answers.erase(0);
	EXPECT_EQ(codes_of(answers), (std::set<std::string>{"accepted"}));
}

TEST(Kafka, RefusedBatchIsSentMessageByMessage)
{
	for (auto error : {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, RD_KAFKA_RESP_ERR_INVALID_RECORD})
	{
		Cluster cluster;
		Running running(cluster.bootstrap(), 30s, "'linger.ms' = 200");
		rd_kafka_mock_push_request_errors(cluster.mock, api_produce, 2, error, error);
		running.deliver(0, 20);
		auto answers = running.collected.wait(20);
		ASSERT_TRUE(once_each(answers, 20));
		// The first error is for the batch, the second for one message alone: that one is refused.
		auto refused =
			std::count_if(answers.begin(), answers.end(), [](const auto &one) { return !one.second.accepted; });
		EXPECT_EQ(refused, 1);
		EXPECT_EQ(codes_of(answers), (std::set<std::string>{"accepted", kafka_code(error)}));
	}
}

TEST(Kafka, TopicThatDoesNotExist)
{
	Cluster cluster;
	rd_kafka_mock_topic_set_error(cluster.mock, "none", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
	Running running(cluster.bootstrap(), 6s);
	running.deliver(0, 5, "none");
	running.deliver(5, 10, "some");
	auto answers = running.collected.wait(10);
	ASSERT_TRUE(once_each(answers, 10));
	for (uint64_t ticket = 0; ticket < 10; ticket++)
	{
		const Answer &answer = answers.find(ticket)->second;
		EXPECT_EQ(answer.accepted, ticket >= 5);
		EXPECT_TRUE(answer.accepted || !answer.text.empty());
		EXPECT_EQ(answer.text.find("xxxxx"), std::string::npos); // the body
		EXPECT_TRUE(ticket >= 5 || answer.code == "KAFKA__UNKNOWN_TOPIC" ||
					answer.code == "KAFKA_UNKNOWN_TOPIC_OR_PART");
	}
	// Now it is known to be missing, which librdkafka says at once.
	running.deliver(10, 20, "none");
	EXPECT_TRUE(once_each(running.collected.wait(20), 20));
}

TEST(Kafka, NobodyListens)
{
	Running running("127.0.0.1:1", 6s);
	running.deliver(0, 10);
	auto answers = running.collected.wait(10);
	EXPECT_TRUE(once_each(answers, 10));
	EXPECT_EQ(codes_of(answers), (std::set<std::string>{"KAFKA__ALL_BROKERS_DOWN"}));
	EXPECT_EQ(running.probe().code, "KAFKA__ALL_BROKERS_DOWN");
	running.deliver(10, 20); // a new producer, with the same end
	EXPECT_EQ(codes_of(running.collected.wait(20)), (std::set<std::string>{"KAFKA__ALL_BROKERS_DOWN"}));
}

TEST(Kafka, NameNotFound)
{
	Running running("nobody.invalid:9092", 6s);
	running.deliver(0, 3);
	EXPECT_EQ(codes_of(running.collected.wait(3)), (std::set<std::string>{"KAFKA__RESOLVE"}));
}

TEST(Kafka, AllBrokersGoAwayAndComeBack)
{
	Cluster cluster(3);
	Running running(cluster.bootstrap(), 6s);
	running.deliver(0, 10);
	ASSERT_EQ(codes_of(running.collected.wait(10)), (std::set<std::string>{"accepted"}));
	for (int broker = 1; broker <= 3; broker++)
		rd_kafka_mock_broker_set_rtt(cluster.mock, broker, 5000);
	running.deliver(10, 20);
	for (int broker = 1; broker <= 3; broker++)
		rd_kafka_mock_broker_set_down(cluster.mock, broker);
	auto answers = running.collected.wait(20);
	EXPECT_TRUE(once_each(answers, 20));
	for (uint64_t ticket = 10; ticket < 20; ticket++)
		EXPECT_EQ(kafka_fault(RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN),
				  Taxonomy(kafka_codes()).of(answers.find(ticket)->second.code));
	EXPECT_FALSE(running.probe().accepted);
	for (int broker = 1; broker <= 3; broker++)
	{
		rd_kafka_mock_broker_set_rtt(cluster.mock, broker, 0);
		rd_kafka_mock_broker_set_up(cluster.mock, broker);
	}
	while (!running.probe().accepted)
		;
	running.deliver(20, 30);
	answers = running.collected.wait(30);
	EXPECT_TRUE(once_each(answers, 30));
	for (uint64_t ticket = 20; ticket < 30; ticket++)
		EXPECT_TRUE(answers.find(ticket)->second.accepted);
}

TEST(Kafka, BrokerThatNeverAnswersIsAway)
{
	Cluster cluster;
	rd_kafka_mock_broker_set_rtt(cluster.mock, 1, 3'600'000);
	Running running(cluster.bootstrap(), 6s);
	running.deliver(0, 10);
	auto answers = running.collected.wait(10);
	EXPECT_TRUE(once_each(answers, 10));
	auto codes = codes_of(answers);
	ASSERT_EQ(codes.size(), 1u);
	EXPECT_EQ(Taxonomy(kafka_codes()).of(*codes.begin()), Fault::sink);
}

TEST(Kafka, OneBrokerOfThreeAway)
{
	Cluster cluster(3);
	rd_kafka_mock_topic_create(cluster.mock, "t", 1, 3);
	rd_kafka_mock_partition_set_leader(cluster.mock, "t", 0, 1);
	Running running(cluster.bootstrap());
	running.deliver(0, 10);
	ASSERT_EQ(codes_of(running.collected.wait(10)), (std::set<std::string>{"accepted"}));
	rd_kafka_mock_broker_set_down(cluster.mock, 1);
	running.deliver(10, 20);
	rd_kafka_mock_partition_set_leader(cluster.mock, "t", 0, 2);
	auto answers = running.collected.wait(20);
	EXPECT_TRUE(once_each(answers, 20));
	EXPECT_EQ(codes_of(answers), (std::set<std::string>{"accepted"}));
}

TEST(Kafka, NewProducerAfterAFatalError)
{
	Cluster cluster;
	Running running(cluster.bootstrap());
	running.deliver(0, 10);
	ASSERT_EQ(codes_of(running.collected.wait(10)), (std::set<std::string>{"accepted"}));
	rd_kafka_mock_push_request_errors(cluster.mock, api_produce, 1, RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
	running.deliver(10, 20);
	auto answers = running.collected.wait(20);
	EXPECT_TRUE(once_each(answers, 20));
	for (uint64_t ticket = 10; ticket < 20; ticket++)
		EXPECT_EQ(answers.find(ticket)->second.code, "KAFKA_OUT_OF_ORDER_SEQUENCE_NUMBER");
	running.deliver(20, 30);
	answers = running.collected.wait(30);
	EXPECT_TRUE(once_each(answers, 30));
	for (uint64_t ticket = 20; ticket < 30; ticket++)
		EXPECT_TRUE(answers.find(ticket)->second.accepted);
}

TEST(Kafka, MissingRightToBeIdempotent)
{
	Cluster cluster;
	for (int producer = 0; producer < 20; producer++) // any of them
		rd_kafka_mock_push_request_errors(cluster.mock, api_init_producer_id, 1,
										  RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED);
	Running running(cluster.bootstrap());
	running.deliver(0, 10);
	auto answers = running.collected.wait(10);
	EXPECT_TRUE(once_each(answers, 10));
	EXPECT_EQ(codes_of(answers), (std::set<std::string>{"KAFKA_CLUSTER_AUTHORIZATION_FAILED"}));
}

TEST(Kafka, FullQueueNeitherBlocksNorLoses)
{
	Cluster cluster;
	Running running(cluster.bootstrap(), 30s, "'queue.buffering.max.messages' = 5\n'linger.ms' = 300");
	running.deliver(0, 50);
	auto answers = running.collected.wait(50);
	EXPECT_TRUE(once_each(answers, 50));
	EXPECT_EQ(codes_of(answers), (std::set<std::string>{"KAFKA__QUEUE_FULL", "accepted"}));
}

TEST(Kafka, EndAnswersNothing)
{
	Cluster cluster;
	rd_kafka_mock_broker_set_rtt(cluster.mock, 1, 10'000);
	for (int round = 0; round < 5; round++)
	{
		auto running = std::make_unique<Running>(cluster.bootstrap());
		running->deliver(0, 1000);
		running->sink->probe("", [](Answer) {});
		running->sink.reset();
		EXPECT_TRUE(running->collected.wait(0).empty());
	}
}

TEST(Kafka, IllegalTopics)
{
	Cluster cluster;
	Running running(cluster.bootstrap());
	auto objects = [&](const std::string &topic) {
		Delivery delivery;
		delivery.to.topic = topic;
		return running.sink->objection(delivery).has_value();
	};
	for (const char *good : {"a", "events.order.placed", "A_b-c.9", "..."})
		EXPECT_FALSE(objects(good));
	for (const char *bad : {"", ".", "..", "a b", "a/b", "ä", "a\n"})
		EXPECT_TRUE(objects(bad));
	EXPECT_FALSE(objects(std::string(249, 'a')));
	EXPECT_TRUE(objects(std::string(250, 'a')));
	EXPECT_TRUE(objects(std::string("a\0b", 3)));
}

TEST(Kafka, IllegalSettings)
{
	for (const char *bad : {"'no.such.thing' = 1", "acks = 1", "'bootstrap.servers' = 'x:1'",
							"'message.timeout.ms' = 5", "'transactional.id' = 'x'", "'compression.type' = 'best'",
							"'security.protocol' = 'ssl'\n'ssl.ca.location' = "
							"'/nonexistent'"})
	{
		SCOPED_TRACE(bad);
		EXPECT_THROW(read(std::string("brokers = 'x:1'\n[properties]\n") + bad), ConfigError);
	}
	EXPECT_THROW(read("[properties]\n"), ConfigError);
	EXPECT_NO_THROW(read("brokers = 'x:1,y:2'\n[properties]\n'compression.codec' = 'zstd'\n'linger.ms' = 0\n"
						 "'security.protocol' = 'SASL_PLAINTEXT'\n'sasl.mechanism' = 'PLAIN'\n'sasl.username' = "
						 "'u'\n'sasl.password' = 'p'"));
}
