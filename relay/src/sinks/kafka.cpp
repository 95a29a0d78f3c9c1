// The sink kafka: topics of a Kafka cluster, by the idempotent producer of librdkafka.
//
// Guarantees: accepted means that all in-sync replicas have the message (acks=all); the reference is
// topic/partition/offset. Certificates and host names are verified unless the properties say otherwise.
//
// One producer serves all topics. Two things make a new one take over: a fatal error, and a cluster that is away. All
// brokers down, or no acknowledgement for a third of the timeout, is only a doubt, since a broker also closes
// connections that are idle, or restarts. Then the keeper, a thread, asks for metadata. If no broker answers within a
// sixth of the timeout, whatever the producer has is withdrawn and answered with a code of class sink, instead of each
// message waiting for its own timeout. Those that were on their way may be in the topic, and come a second time: at
// least once. The order of a key does not suffer from a change of producers, nor from a message that fails in a
// batch, since the outlet hands over the next message of a key of an ordered queue once the one before is accepted.
//
// A broker refuses a batch as a whole when one record in it is wrong or when it is too large together. So a message
// that is refused in company is sent again by a producer that sends each message alone, and only its word counts.
#include "sinks/kafka_codes.h"
#include "sinks/kafka_producer.h"
#include "sinks/kinds.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>

namespace relay {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

namespace {

struct Probe {
	std::function<void(Answer)> done;
};

class Kafka : public Sink {
public:
	Kafka(KafkaProperties properties, SinkSettings settings)
		: properties(std::move(properties)), settings(std::move(settings))
	{
	}
	~Kafka() override;

	void start(Answers &to) override;
	void deliver(std::vector<std::unique_ptr<Delivery>> deliveries) override;
	void probe(const std::string &endpoint, std::function<void(Answer)> done) override;
	[[nodiscard]] std::vector<Finding> look_for(const Target &target) override;
	[[nodiscard]] Text objection(const Delivery &delivery) const override;

private:
	// The common producer, and the one that sends each message alone.
	enum Company { together, alone };
	using Producer = std::shared_ptr<KafkaProducer>;

	void send(std::unique_ptr<Delivery> delivery, Company company);
	Producer producer(Company company);
	Producer make(Company company);
	void reported(std::vector<KafkaReport> reports, Company company);
	void answer(const Delivery &delivery, const KafkaError &error);

	void keep();
	void reap();
	void check(const Producer &producer);
	Answer try_to_reach();
	std::optional<KafkaError> reach(KafkaProducer &producer, milliseconds within);

	const KafkaProperties properties;
	const SinkSettings settings;
	Answers *answers = nullptr;

	std::mutex mutex;
	std::condition_variable woken;
	bool doubted = false;
	std::atomic<bool> closing = false;
	std::deque<Probe> probes;
	std::array<Producer, 2> producers;
	std::vector<Producer> ended; // those that still report
	std::thread keeper;
};

Answer
failure(const KafkaError &error)
{
	Answer answer;
	answer.code = kafka_code(error.error);
	answer.response_code = error.error > 0 ? std::to_string(error.error) : "";
	answer.text = error.text;
	return answer;
}

// A broker that accepts no connection, by one name.
KafkaError
away(KafkaError error)
{
	if (error.error == RD_KAFKA_RESP_ERR__TRANSPORT)
		error.error = RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN;
	return error;
}

Kafka::~Kafka()
{
	closing = true;
	{
		std::lock_guard lock(mutex);
		woken.notify_all();
	}
	if (keeper.joinable())
		keeper.join();
	decltype(producers) last;
	decltype(ended) before;
	std::lock_guard lock(mutex);
	last.swap(producers);
	before.swap(ended);
}

void
Kafka::start(Answers &to)
{
	answers = &to;
	keeper = std::thread([this] { keep(); });
}

void
Kafka::deliver(std::vector<std::unique_ptr<Delivery>> deliveries)
{
	for (auto &delivery : deliveries)
		send(std::move(delivery), together);
}

void
Kafka::send(std::unique_ptr<Delivery> delivery, Company company)
{
	KafkaError error{};
	try
	{
		// A second producer if the first one has ended meanwhile; that it ends too says enough.
		for (int attempt = 0; attempt < 2; attempt++)
		{
			switch (producer(company)->produce(delivery, error))
			{
				case KafkaProducer::Produced::taken:
					return;
				case KafkaProducer::Produced::refused:
					answer(*delivery, error);
					return;
				case KafkaProducer::Produced::ended:
					break;
			}
		}
	}
	catch (const std::runtime_error &problem)
	{
		error = {RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE, problem.what()};
	}
	answer(*delivery, error);
}

Kafka::Producer
Kafka::producer(Company company)
{
	std::lock_guard lock(mutex);
	if (closing)
		throw std::runtime_error("the relay ends");
	Producer &current = producers[company];
	if (current && current->ended())
		ended.push_back(std::move(current)); // the keeper destroys it, which takes time
	if (!current)
		current = make(company);
	return current;
}

Kafka::Producer
Kafka::make(Company company)
{
	KafkaProperties all = properties;
	if (company == alone)
		all.emplace_back("batch.num.messages", "1");
	KafkaProducer::Events events;
	events.reported = [this, company](std::vector<KafkaReport> reports) { reported(std::move(reports), company); };
	events.doubted = [this] {
		std::lock_guard lock(mutex);
		doubted = true;
		woken.notify_all();
	};
	return std::make_shared<KafkaProducer>(all, settings.name, std::move(events));
}

void
Kafka::reported(std::vector<KafkaReport> reports, Company company)
{
	if (closing)
		return;

	std::vector<Answered> accepted;
	for (KafkaReport &report : reports)
	{
		if (!report.error)
			accepted.push_back({report.delivery->ticket, {.accepted = true, .reference = std::move(report.reference)}});
		else if (company == together && kafka_fault(report.error->error) == Fault::message)
			send(std::move(report.delivery), alone);
		else
			answer(*report.delivery, *report.error);
	}
	answers->answer(std::move(accepted));
}

void
Kafka::answer(const Delivery &delivery, const KafkaError &error)
{
	if (!closing)
		answers->answer(delivery.ticket, failure(error));
}

void
Kafka::probe(const std::string &, std::function<void(Answer)> done)
{
	std::lock_guard lock(mutex);
	probes.push_back({std::move(done)});
	woken.notify_all();
}

void
Kafka::keep()
{
	const auto patience = settings.timeout / 3;
	std::unique_lock lock(mutex);
	while (!closing)
	{
		woken.wait_for(lock, std::clamp<milliseconds>(patience / 10, 10ms, 500ms),
					   [this] { return closing || doubted || !probes.empty(); });
		doubted = false;
		auto asked = std::exchange(probes, {});
		auto all = producers;
		lock.unlock();
		reap();
		for (const Producer &producer : all)
		{
			if (!closing && producer && producer->doubtful(patience))
				check(producer);
		}
		if (!asked.empty())
		{
			Answer answer = try_to_reach();
			for (const Probe &probe : asked)
			{
				if (!closing)
					probe.done(answer);
			}
		}
		all = {};
		lock.lock();
	}
}

// Destroys those that have reported everything: without the lock, since their threads may wait for it.
void
Kafka::reap()
{
	std::vector<Producer> done;
	std::lock_guard lock(mutex);
	auto begin = std::partition(ended.begin(), ended.end(), [](const Producer &one) { return one->open() > 0; });
	done.assign(std::make_move_iterator(begin), std::make_move_iterator(ended.end()));
	ended.erase(begin, ended.end());
}

void
Kafka::check(const Producer &producer)
{
	auto error = reach(*producer, std::clamp<milliseconds>(settings.timeout / 6, 100ms, 5s));
	if (error && !closing)
		producer->end(*error);
}

Answer
Kafka::try_to_reach()
{
	try
	{
		auto error = reach(*producer(together), std::min<milliseconds>(settings.timeout / 2, 10s));
		if (error)
			return failure(*error);
	}
	catch (const std::runtime_error &problem)
	{
		return failure({RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE, problem.what()});
	}
	Answer accepted;
	accepted.accepted = true;
	return accepted;
}

// In slices, so that the end of the sink need not wait long, and that a refused login is seen at once.
std::optional<KafkaError>
Kafka::reach(KafkaProducer &producer, milliseconds within)
{
	const auto begin = KafkaProducer::Clock::now();
	for (;;)
	{
		auto slice = KafkaProducer::Clock::now();
		auto error = producer.ask(std::min<milliseconds>(within, 500ms));
		if (!error)
			return {};
		auto trouble = producer.trouble(begin);
		bool hopeless = producer.all_down() && trouble && trouble->error != RD_KAFKA_RESP_ERR__TRANSPORT &&
						kafka_fault(trouble->error) == Fault::sink;
		if (hopeless || closing || KafkaProducer::Clock::now() - begin >= within)
		{
			trouble = producer.trouble({});
			return away(trouble ? *trouble : *error);
		}
		std::unique_lock lock(mutex);
		woken.wait_until(lock, slice + 50ms, [this] { return closing.load(); });
	}
}

std::vector<Finding>
Kafka::look_for(const Target &target)
{
	using enum Finding::State;
	const std::string what = "topic " + target.topic.text;

	if (!target.topic.fixed)
		return {{what, unseen, "it depends on the message"}};
	auto found = producer(together)->find_topic(target.topic.text, std::min<milliseconds>(settings.timeout, 10s));
	if (const auto *error = std::get_if<KafkaError>(&found))
		return {{what, unseen, error->text}};
	switch (std::get<KafkaProducer::Topic>(found))
	{
		case KafkaProducer::Topic::there:
			return {{what, there, {}}};
		case KafkaProducer::Topic::created_by_use:
			return {{what, unseen, "it does not exist, and the brokers create it with the first message"}};
		case KafkaProducer::Topic::missing:
			break;
	}
	return {{what, missing, "create it, grant the user DESCRIBE on it, or correct the route"}};
}

Text
Kafka::objection(const Delivery &delivery) const
{
	const std::string &topic = delivery.to.topic;
	auto legal = [](unsigned char c) { return isalnum(c) || c == '.' || c == '_' || c == '-'; };
	if (topic.empty() || topic.size() > 249)
		return "a topic's name has 1 to 249 characters, not " + std::to_string(topic.size());
	if (topic == "." || topic == ".." || !std::all_of(topic.begin(), topic.end(), legal))
		return "illegal name of a topic: letters, digits, dot, underscore and hyphen are legal, . and .. are not";
	return {};
}

// Values of the relay that properties may not change, and what to use instead.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> reserved{{
	{"bootstrap.servers", "set brokers"},
	{"metadata.broker.list", "set brokers"},
	{"message.timeout.ms", "it follows from timeout"},
	{"delivery.timeout.ms", "it follows from timeout"},
	{"transactional.id", "the relay uses no transactions"},
	{"log.queue", "the relay writes librdkafka's log to its own"},
}};

KafkaProperties
defaults(const std::string &brokers, const SinkSettings &settings)
{
	auto in_ms = [](milliseconds time) { return std::to_string(time.count()); };
	return {
		{"bootstrap.servers", brokers},
		{"client.id", "outbox-relay"},
		{"enable.idempotence", "true"},
		{"acks", "all"},
		{"compression.type", "lz4"},
		{"partitioner", "murmur2_random"},
		// The answer should arrive before the relay's own TIMEOUT.
		{"message.timeout.ms", in_ms(settings.timeout - std::min<milliseconds>(settings.timeout / 10, 1s))},
		// A topic that does not exist is told before that.
		{"topic.metadata.propagation.max.ms", in_ms(settings.timeout / 3)},
		// The relay counts what is open, so librdkafka need not.
		{"queue.buffering.max.messages", "0"},
		{"queue.buffering.max.kbytes", "2147483647"},
		{"reconnect.backoff.max.ms", "1000"},
	};
}

std::function<std::unique_ptr<Sink>()>
read(Section &section, const SinkSettings &settings)
{
	KafkaProperties properties = defaults(section.text("brokers"), settings);
	for (const auto &[name, value] : section.free("properties"))
	{
		for (const auto &[known, instead] : reserved)
		{
			if (name == known)
				section.refuse("properties", name + " is not for properties: " + std::string(instead));
		}
		properties.emplace_back(name, value);
	}
	try
	{
		check_kafka_properties(properties);
	}
	catch (const KafkaPropertyError &problem)
	{
		section.refuse(problem.property == "bootstrap.servers" ? "brokers" : "properties", problem.what());
	}
	catch (const std::runtime_error &problem)
	{
		section.refuse("properties", problem.what());
	}
	return [properties, settings]() { return std::make_unique<Kafka>(properties, settings); };
}

} // namespace

const SinkKind kafka_kind = {
	.type = "kafka",
	.binding = Binding::kafka,
	.default_topic = "",
	.codes = kafka_codes,
	.read = read,
	.defaults = {.name = {}, .type = "kafka", .max_in_flight = 10'000},
};

} // namespace relay
