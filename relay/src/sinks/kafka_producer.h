// One idempotent producer of librdkafka and the thread that serves it.
//
// Guarantees: each delivery that produce() takes is reported exactly once, unless the producer is destroyed before.
// produce() never blocks. A producer that has ended, after a fatal error or since the cluster is away, takes no more;
// what it still has is reported with the reason of the end, or with its own result if that arrives first.
//
// Ends are final. Messages withdrawn from an idempotent producer leave a gap in its sequence numbers, and whether the
// broker has those that were on the way is unknown. A new producer has numbers of its own and needs to know neither.
//
// A body is not copied: the delivery lives until its report. Events are taken from a queue rather than by callbacks, so
// that no C++ code runs on a thread of librdkafka.
#pragma once

#include "core/delivery.h"

#include <librdkafka/rdkafka.h>

#include <atomic>
#include <chrono>
#include <functional>

#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace relay {

using KafkaProperties = std::vector<std::pair<std::string, std::string>>; // set in this order

struct KafkaPropertyError : std::runtime_error {
	KafkaPropertyError(std::string property, const std::string &problem)
		: std::runtime_error(problem), property(std::move(property))
	{
	}
	std::string property;
};

struct KafkaError {
	rd_kafka_resp_err_t error;
	std::string text;
};

// What became of a delivery.
struct KafkaReport {
	std::unique_ptr<Delivery> delivery;
	std::optional<KafkaError> error;
	std::string reference; // topic/partition/offset
};

class KafkaProducer {
public:
	using Clock = std::chrono::steady_clock;

	// Called by the producer's thread.
	struct Events {
		std::function<void(std::vector<KafkaReport>)> reported;
		std::function<void()> doubted; // doubtful() may have become true
	};

	// Throws a KafkaPropertyError, or std::runtime_error. `sink` is the
	// name for the log.
	KafkaProducer(const KafkaProperties &properties, std::string sink, Events events);
	~KafkaProducer(); // reports nothing any more
	KafkaProducer(const KafkaProducer &) = delete;
	KafkaProducer &operator=(const KafkaProducer &) = delete;

	// Takes the delivery; or leaves it, with an error; or leaves it, since this producer has ended.
	enum class Produced { taken, refused, ended };
	Produced produce(std::unique_ptr<Delivery> &delivery, KafkaError &error);

	// Withdraws what it has, on its way or not, and reports it with this reason.
	void end(KafkaError reason);
	[[nodiscard]] bool ended() const { return my_ended; }
	[[nodiscard]] size_t open() const { return my_open; } // taken and not reported

	// Deliveries are open, and all brokers are down or none has acknowledged anything for so long.
	[[nodiscard]] bool doubtful(Clock::duration patience) const;
	// Asks for metadata, and blocks for at most `wait`. Nothing: a broker answered.
	std::optional<KafkaError> ask(std::chrono::milliseconds wait);
	// Whether the cluster has the topic. It asks for all topics, since a question for one may create it. Each of its up
	// to two questions blocks as ask() does.
	enum class Topic { there, missing, created_by_use };
	std::variant<Topic, KafkaError> find_topic(const std::string &name, std::chrono::milliseconds wait);
	[[nodiscard]] bool all_down() const { return down; }
	// Why no broker can be reached, if librdkafka said so after `since` and a broker has not answered after that.
	[[nodiscard]] std::optional<KafkaError> trouble(Clock::time_point since) const;

private:
	[[nodiscard]] bool creates_topics(int32_t broker, std::chrono::milliseconds wait);
	void serve();
	void take(rd_kafka_event_t *event);
	void take_reports(rd_kafka_event_t *event);
	void take_error(rd_kafka_event_t *event);
	void take_log(rd_kafka_event_t *event);
	[[nodiscard]] KafkaError explained(const rd_kafka_message_t &message) const;
	[[nodiscard]] KafkaError why_ended() const;
	void set_reason(KafkaError why);
	void end_after_fatal();
	void withdraw();
	void heard();

	std::string sink;
	Events events;
	std::unique_ptr<rd_kafka_t, void (*)(rd_kafka_t *)> kafka{nullptr, rd_kafka_destroy};
	std::unique_ptr<rd_kafka_queue_t, void (*)(rd_kafka_queue_t *)> queue{nullptr, rd_kafka_queue_destroy};

	std::mutex producing; // no delivery enters after the end
	std::atomic<bool> my_ended = false, withdrawing = false, destroyed = false, down = false;
	std::atomic<size_t> my_open = 0;
	std::atomic<Clock::time_point> heard_at{Clock::now()};

	mutable std::mutex mutex;
	std::optional<KafkaError> reason; // of the end
	std::optional<KafkaError> my_trouble;
	Clock::time_point trouble_at;

	std::thread thread;
};

// Whether librdkafka takes these properties together. Connects to nothing. Throws as the constructor does.
void check_kafka_properties(const KafkaProperties &properties);

} // namespace relay
