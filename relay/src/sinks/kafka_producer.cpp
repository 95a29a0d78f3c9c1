#include "sinks/kafka_producer.h"

#include "seen/log.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace relay {

using namespace std::chrono_literals;

namespace {

using Conf = std::unique_ptr<rd_kafka_conf_t, void (*)(rd_kafka_conf_t *)>;
using Event = std::unique_ptr<rd_kafka_event_t, void (*)(rd_kafka_event_t *)>;

void
set(rd_kafka_conf_t *conf, const std::string &name, const std::string &value)
{
	std::array<char, 512> problem{};
	if (rd_kafka_conf_set(conf, name.c_str(), value.c_str(), problem.data(), problem.size()) != RD_KAFKA_CONF_OK)
		throw KafkaPropertyError(name, problem.data());
}

Conf
make_conf(const KafkaProperties &properties)
{
	Conf conf(rd_kafka_conf_new(), rd_kafka_conf_destroy);
	for (const auto &[name, value] : properties)
		set(conf.get(), name, value);
	set(conf.get(), "log.queue", "true");
	rd_kafka_conf_set_events(conf.get(), RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_LOG);
	return conf;
}

rd_kafka_t *
make_kafka(const KafkaProperties &properties)
{
	std::array<char, 512> problem{};
	Conf conf = make_conf(properties);
	rd_kafka_t *kafka = rd_kafka_new(RD_KAFKA_PRODUCER, conf.get(), problem.data(), problem.size());
	if (!kafka)
		throw std::runtime_error(problem.data());
	conf.release(); // it is the producer's now
	return kafka;
}

using RecordHeaders = std::unique_ptr<rd_kafka_headers_t, void (*)(rd_kafka_headers_t *)>;

RecordHeaders
headers_of(const Delivery &delivery)
{
	RecordHeaders headers(rd_kafka_headers_new(delivery.headers.size() + 1), rd_kafka_headers_destroy);
	auto add = [&headers](const std::string &name, const std::string &value) {
		rd_kafka_header_add(headers.get(), name.data(), static_cast<ssize_t>(name.size()), value.data(),
							static_cast<ssize_t>(value.size()));
	};
	for (const auto &[name, value] : delivery.headers)
		add(name, value);
	if (!delivery.content_type.empty())
		add("content-type", delivery.content_type);
	return headers;
}

// Headers as one object: of single ones librdkafka frees its own list twice when the topic is known not to exist.
std::vector<rd_kafka_vu_t>
parts_of(Delivery &delivery, rd_kafka_headers_t *headers)
{
	std::vector<rd_kafka_vu_t> parts;
	parts.reserve(5);
	auto add = [&parts](rd_kafka_vtype_t type) -> auto &
	{
		rd_kafka_vu_t &part = parts.emplace_back();
		part.vtype = type;
		return part.u;
	};
	auto add_memory = [&add](rd_kafka_vtype_t type, std::string &memory) {
		auto &part = add(type);
		part.mem.ptr = memory.data();
		part.mem.size = memory.size();
	};

	add(RD_KAFKA_VTYPE_TOPIC).cstr = delivery.to.topic.c_str();
	add(RD_KAFKA_VTYPE_OPAQUE).ptr = &delivery;
	add_memory(RD_KAFKA_VTYPE_VALUE, delivery.body); // without RD_KAFKA_MSG_F_COPY
	if (delivery.to.key)
		add_memory(RD_KAFKA_VTYPE_KEY, *delivery.to.key);
	add(RD_KAFKA_VTYPE_HEADERS).headers = headers;
	return parts;
}

KafkaError
fatal(rd_kafka_t *kafka)
{
	std::array<char, 512> text{};
	rd_kafka_resp_err_t error = rd_kafka_fatal_error(kafka, text.data(), text.size());
	return {error != RD_KAFKA_RESP_ERR_NO_ERROR ? error : RD_KAFKA_RESP_ERR__FATAL, text.data()};
}

bool
is_withdrawn(rd_kafka_resp_err_t error)
{
	return error == RD_KAFKA_RESP_ERR__PURGE_QUEUE || error == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT ||
		   error == RD_KAFKA_RESP_ERR__FATAL;
}

} // namespace

void
check_kafka_properties(const KafkaProperties &properties)
{
	// A login may start by itself (kinit, a token's endpoint); so may the brokers of a test.
	KafkaProperties offline;
	for (auto [name, value] : properties)
	{
		if (name == "bootstrap.servers" || name.starts_with("test.mock."))
			continue;
		if (name == "security.protocol")
		{
			std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return tolower(c); });
			value = value.starts_with("sasl_") ? value.substr(5) : value;
		}
		offline.emplace_back(name, value);
	}
	make_conf(properties); // each by itself
	rd_kafka_destroy(make_kafka(offline));
}

KafkaProducer::KafkaProducer(const KafkaProperties &properties, std::string sink, Events events)
	: sink(std::move(sink)), events(std::move(events))
{
	kafka.reset(make_kafka(properties));
	queue.reset(rd_kafka_queue_get_main(kafka.get()));
	rd_kafka_set_log_queue(kafka.get(), queue.get());
	thread = std::thread([this] { serve(); });
}

KafkaProducer::~KafkaProducer()
{
	destroyed = true;
	end({RD_KAFKA_RESP_ERR__DESTROY, "the relay ends"});
	thread.join();
}

KafkaProducer::Produced
KafkaProducer::produce(std::unique_ptr<Delivery> &delivery, KafkaError &error)
{
	RecordHeaders headers = headers_of(*delivery);
	std::vector<rd_kafka_vu_t> parts = parts_of(*delivery, headers.get());
	std::lock_guard lock(producing);
	if (my_ended)
	{
		error = why_ended();
		return Produced::ended;
	}
	if (my_open++ == 0) // silence counts from here
		heard_at = Clock::now();
	Delivery *taken = delivery.release(); // its report may come before the call returns
	std::unique_ptr<rd_kafka_error_t, void (*)(rd_kafka_error_t *)> problem(
		rd_kafka_produceva(kafka.get(), parts.data(), parts.size()), rd_kafka_error_destroy);
	if (!problem)
	{
		headers.release(); // they are the message's now
		return Produced::taken;
	}
	my_open--;
	delivery.reset(taken);
	error = {rd_kafka_error_code(problem.get()), rd_kafka_error_string(problem.get())};
	if (rd_kafka_fatal_error(kafka.get(), nullptr, 0) == RD_KAFKA_RESP_ERR_NO_ERROR)
		return Produced::refused;
	my_ended = true; // the thread hears of it too
	error = why_ended();
	return Produced::ended;
}

void
KafkaProducer::end(KafkaError why)
{
	set_reason(std::move(why));
	withdrawing = true;
	{
		std::lock_guard lock(producing);
		my_ended = true;
	}
	withdraw();
	rd_kafka_queue_yield(queue.get());
}

bool
KafkaProducer::doubtful(Clock::duration patience) const
{
	return my_open > 0 && !my_ended && (down || Clock::now() - heard_at.load() > patience);
}

std::optional<KafkaError>
KafkaProducer::ask(std::chrono::milliseconds wait)
{
	const struct rd_kafka_metadata *metadata = nullptr;
	auto milliseconds = static_cast<int>(wait.count());
	rd_kafka_resp_err_t error = rd_kafka_metadata(kafka.get(), 0, nullptr, &metadata, milliseconds);
	if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
	{
		return KafkaError{error, rd_kafka_err2str(error)};
	}
	rd_kafka_metadata_destroy(metadata);
	heard();
	return {};
}

std::variant<KafkaProducer::Topic, KafkaError>
KafkaProducer::find_topic(const std::string &name, std::chrono::milliseconds wait)
{
	const struct rd_kafka_metadata *metadata = nullptr;
	rd_kafka_resp_err_t error = rd_kafka_metadata(kafka.get(), 1, nullptr, &metadata, static_cast<int>(wait.count()));
	if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
		return KafkaError{error, rd_kafka_err2str(error)};
	std::unique_ptr<const struct rd_kafka_metadata, decltype(&rd_kafka_metadata_destroy)> owned(
		metadata, rd_kafka_metadata_destroy);
	for (int i = 0; i < metadata->topic_cnt; i++)
	{
		if (name == metadata->topics[i].topic)
			return Topic::there;
	}
	return metadata->broker_cnt > 0 && creates_topics(metadata->brokers[0].id, wait) ? Topic::created_by_use
																					 : Topic::missing;
}

// Whether auto.create.topics.enable is on; false if the user may not ask.
bool
KafkaProducer::creates_topics(int32_t broker, std::chrono::milliseconds wait)
{
	std::unique_ptr<rd_kafka_queue_t, decltype(&rd_kafka_queue_destroy)> answers(rd_kafka_queue_new(kafka.get()),
																				 rd_kafka_queue_destroy);
	std::unique_ptr<rd_kafka_ConfigResource_t, decltype(&rd_kafka_ConfigResource_destroy)> resource(
		rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_BROKER, std::to_string(broker).c_str()),
		rd_kafka_ConfigResource_destroy);
	rd_kafka_ConfigResource_t *resources[] = {resource.get()};
	rd_kafka_DescribeConfigs(kafka.get(), resources, 1, nullptr, answers.get());
	Event event(rd_kafka_queue_poll(answers.get(), static_cast<int>(wait.count())), rd_kafka_event_destroy);
	const auto *result = event ? rd_kafka_event_DescribeConfigs_result(event.get()) : nullptr;
	size_t count = 0, entries = 0;
	auto **described = result != nullptr ? rd_kafka_DescribeConfigs_result_resources(result, &count) : nullptr;
	auto **entry = count > 0 ? rd_kafka_ConfigResource_configs(described[0], &entries) : nullptr;
	for (size_t i = 0; i < entries; i++)
	{
		const char *value = rd_kafka_ConfigEntry_value(entry[i]);
		if (std::string_view(rd_kafka_ConfigEntry_name(entry[i])) == "auto.create.topics.enable")
			return value != nullptr && std::string_view(value) == "true";
	}
	return false;
}

std::optional<KafkaError>
KafkaProducer::trouble(Clock::time_point since) const
{
	std::lock_guard lock(mutex);
	return trouble_at > since ? my_trouble : std::nullopt;
}

void
KafkaProducer::serve()
{
	Clock::time_point give_up{};
	for (;;)
	{
		if (withdrawing && my_open > 0)
			withdraw(); // again, since messages move between librdkafka's queues
		if (destroyed)
		{
			// What librdkafka does not give back within two seconds is lost memory, and no reason to hang.
			give_up = give_up == Clock::time_point{} ? Clock::now() + 2s : give_up;
			if (my_open == 0 || Clock::now() > give_up)
				return;
		}
		Event event(rd_kafka_queue_poll(queue.get(), withdrawing ? 50 : 1000), rd_kafka_event_destroy);
		if (event)
			take(event.get());
	}
}

void
KafkaProducer::take(rd_kafka_event_t *event)
{
	switch (rd_kafka_event_type(event))
	{
		case RD_KAFKA_EVENT_DR:
			take_reports(event);
			break;
		case RD_KAFKA_EVENT_ERROR:
			take_error(event);
			break;
		case RD_KAFKA_EVENT_LOG:
			take_log(event);
			break;
		default:
			break;
	}
}

void
KafkaProducer::take_reports(rd_kafka_event_t *event)
{
	bool answered = false;
	std::vector<KafkaReport> reports;
	while (const rd_kafka_message_t *message = rd_kafka_event_message_next(event))
	{
		KafkaReport report;
		report.delivery.reset(static_cast<Delivery *>(message->_private));
		if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR)
			report.error = explained(*message);
		else
		{
			report.reference = report.delivery->to.topic + "/" + std::to_string(message->partition) + "/" +
							   std::to_string(message->offset);
		}
		answered |= message->err >= RD_KAFKA_RESP_ERR_NO_ERROR;
		reports.push_back(std::move(report));
	}
	my_open -= reports.size();
	if (!destroyed)
		events.reported(std::move(reports));
	if (answered)
		heard();
}

// What was withdrawn has the reason of the end as its error.
KafkaError
KafkaProducer::explained(const rd_kafka_message_t &message) const
{
	if (!is_withdrawn(message.err))
	{
		return {message.err, rd_kafka_err2str(message.err)}; // rd_kafka_message_errstr() gives the body
	}
	KafkaError why = why_ended();
	bool possibly = rd_kafka_message_status(&message) != RD_KAFKA_MSG_STATUS_NOT_PERSISTED;
	why.text += possibly ? " (the broker may have the message)" : " (the message was not sent)";
	return why;
}

void
KafkaProducer::take_error(rd_kafka_event_t *event)
{
	rd_kafka_resp_err_t error = rd_kafka_event_error(event);
	if (error == RD_KAFKA_RESP_ERR__FATAL || rd_kafka_fatal_error(kafka.get(), nullptr, 0) != 0)
	{
		end_after_fatal();
		return;
	}
	if (error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
	{
		down = true;
		events.doubted();
		return;
	}
	std::lock_guard lock(mutex);
	my_trouble = {error, rd_kafka_event_error_string(event)};
	trouble_at = Clock::now();
}

// librdkafka withdraws what waits by itself, and tells us the results of what is on its way. But it takes a message
// from another thread while it does so, which would wait until its timeout.
void
KafkaProducer::end_after_fatal()
{
	set_reason(fatal(kafka.get()));
	{
		std::lock_guard lock(producing);
		my_ended = true;
	}
	rd_kafka_purge(kafka.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_NON_BLOCKING);
}

KafkaError
KafkaProducer::why_ended() const
{
	std::lock_guard lock(mutex);
	return reason ? *reason : fatal(kafka.get());
}

void
KafkaProducer::set_reason(KafkaError why)
{
	std::lock_guard lock(mutex);
	if (!reason)
		reason = std::move(why);
}

void
KafkaProducer::withdraw()
{
	rd_kafka_purge(kafka.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING);
}

void
KafkaProducer::heard()
{
	down = false;
	heard_at = Clock::now();
	std::lock_guard lock(mutex);
	my_trouble.reset();
}

// Syslog's levels. A broker that is away is an error to librdkafka and none to the relay, which tells of it by itself.
void
KafkaProducer::take_log(rd_kafka_event_t *event)
{
	const char *facility = nullptr, *text = nullptr;
	int level = 0;
	if (rd_kafka_event_log(event, &facility, &text, &level) != 0)
		return;
	Level ours = level <= 2 ? Level::error : level <= 4 ? Level::warning : level <= 6 ? Level::info : Level::debug;
	log(ours, text, {{"sink", sink}, {"librdkafka", facility}});
}

} // namespace relay
