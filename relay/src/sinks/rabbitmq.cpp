// The sink rabbitmq: publishes to exchanges and waits for the broker's confirms.
//
// Guarantees: accepted means that the broker has confirmed the message, and that it was routed to a queue (unless
// `mandatory = false`). A message that was open when the connection was lost is answered as such, though the broker
// may have it: it will be published again. A broker that blocks the connection (a full disk) is told of as blocked,
// and costs no deliveries.
//
// Shape: rabbitmq-c is not safe for threads, so one thread owns the connection: it takes what deliver() has left for
// it, publishes (rabbitmq_publisher.h), reads confirms, sends heartbeats and connects again. Only the write of a large
// message may hold it up, when the broker does not read; deliver() notices that, and tells of it as blocked too.
#include "seen/log.h"
#include "sinks/kinds.h"
#include "sinks/rabbitmq_codes.h"
#include "sinks/rabbitmq_publisher.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <poll.h>
#include <random>
#include <stdexcept>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

#include "sinks/rabbitmq_library.h"

namespace relay {

namespace {

using namespace rabbitmq;
using std::chrono::milliseconds;

constexpr milliseconds tick{500}, stuck_after{1000}, first_pause{250}, longest_pause{5000};
constexpr size_t shortstr_max = 255, frame_default = 131'072;

class RabbitmqSink final : public Sink {
public:
	RabbitmqSink(Settings settings, SinkSettings common);
	~RabbitmqSink() override;

	void start(Answers &answers) override;
	void deliver(std::vector<std::unique_ptr<Delivery>> deliveries) override;
	void probe(const std::string &endpoint, std::function<void(Answer)> done) override;
	[[nodiscard]] std::vector<Finding> look_for(const Target &target) override;
	[[nodiscard]] Text objection(const Delivery &delivery) const override;

private:
	struct Probe {
		std::function<void(Answer)> done;
		Clock::time_point deadline;
		bool asked = false;
	};

	void run();
	void take_what_came();
	std::optional<Failure> work();
	void tell_answers();
	void connect();
	std::unique_ptr<Connection> connect_anywhere(Failure &failure);
	[[nodiscard]] Finding find(Connection::Kind kind, const std::string &name) const;
	void away(const Failure &failure);
	void lost(const Failure &failure);
	void pause();
	void wait();
	void answer_probes(const std::optional<Failure> &failure);
	void wake() const;
	Publisher::Listener listener();
	void tell_blocked(bool blocked, const std::string &reason);
	void note(Level level, std::string_view what, const Failure &failure) const;

	const Settings settings;
	const SinkSettings common;
	Answers *answers = nullptr;
	int event = -1;

	std::mutex mutex; // of these, and of the end of the connection
	std::vector<Waiting> came;
	std::vector<Probe> probes_came;
	bool stopping = false;

	// What the time of the write that holds the thread up is: since when, or 0.
	std::atomic<Clock::rep> writing_since = 0;
	std::atomic<bool> told_stuck = false;

	// The thread's own.
	Doubts doubts;
	Publisher publisher;
	std::deque<Waiting> waiting;
	std::vector<Answered> answered; // since the last tell_answers()
	std::vector<Probe> probes;
	Failure last_failure;
	milliseconds next_pause{0};
	Clock::time_point next_connect{}, next_expiry{};
	size_t next_host = 0;
	bool blocked = false;
	std::minstd_rand random{std::random_device{}()};
	std::thread thread;
};

RabbitmqSink::RabbitmqSink(Settings settings, SinkSettings common)
	: settings(std::move(settings)), common(std::move(common)), publisher(this->settings, doubts, listener())
{
	event = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (event < 0)
		throw std::runtime_error("cannot make an eventfd");
}

RabbitmqSink::~RabbitmqSink()
{
	{
		std::lock_guard lock(mutex);
		stopping = true;
		if (writing_since != 0 && publisher.connection() != nullptr)
			publisher.connection()->cut();
	}
	wake();
	if (thread.joinable())
		thread.join();
	::close(event);
}

void
RabbitmqSink::start(Answers &answers)
{
	this->answers = &answers;
	thread = std::thread([this] { run(); });
}

void
RabbitmqSink::wake() const
{
	uint64_t one = 1;
	[[maybe_unused]] ssize_t written = ::write(event, &one, sizeof one);
}

void
RabbitmqSink::deliver(std::vector<std::unique_ptr<Delivery>> deliveries)
{
	auto now = Clock::now();
	{
		std::lock_guard lock(mutex);
		for (auto &delivery : deliveries)
			came.push_back({std::move(delivery), now + common.timeout});
	}
	wake();
	Clock::rep since = writing_since;
	if (since != 0 && now.time_since_epoch() - Clock::duration(since) > stuck_after && !told_stuck)
	{
		answers->blocked(true);
		told_stuck = true; // only now, so that the thread's own word comes after it
	}
}

void
RabbitmqSink::probe(const std::string &, std::function<void(Answer)> done)
{
	{
		std::lock_guard lock(mutex);
		probes_came.push_back({std::move(done), Clock::now() + common.timeout});
	}
	wake();
}

Text
RabbitmqSink::objection(const Delivery &delivery) const
{
	if (delivery.to.topic.size() > shortstr_max)
		return "the routing key is longer than 255 bytes";
	if (delivery.to.exchange.size() > shortstr_max)
		return "the name of the exchange is longer than 255 bytes";
	if (header_size(delivery) > frame_default)
		return "the headers do not fit into a frame";
	return {};
}

// On a connection of its own, since the broker closes the channel if the queue or exchange is missing.
Finding
RabbitmqSink::find(Connection::Kind kind, const std::string &name) const
{
	using enum Finding::State;
	const bool is_queue = kind == Connection::Kind::queue;
	Finding finding{(is_queue ? "queue \"" : "exchange \"") + name + "\"", there, {}};
	std::unique_ptr<Connection> connection;
	Failure failure;

	for (size_t i = 0; i < settings.hosts.size() && !connection; i++)
		connection = Connection::open(settings, settings.hosts[i], failure);
	auto problem = connection ? connection->look_for(kind, name) : std::optional(failure);
	if (!problem)
		connection->close();
	else if (problem->response_code == std::to_string(AMQP_NOT_FOUND))
		finding = {finding.what, missing, problem->text + ": declare it, or correct the route"};
	else if (problem->response_code !=
			 std::to_string(AMQP_RESOURCE_LOCKED)) // there, but exclusive to another connection
		finding = {finding.what, unseen, problem->text};
	return finding;
}

// AMQP does not show whether a queue is bound to an exchange.
std::vector<Finding>
RabbitmqSink::look_for(const Target &target)
{
	using enum Finding::State;
	const std::string &exchange = target.exchange.text.empty() ? settings.exchange : target.exchange.text;

	if (!target.exchange.fixed)
		return {{"exchange " + exchange, unseen, "it depends on the message"}};
	if (exchange.empty() && target.topic.fixed)
		return {find(Connection::Kind::queue, target.topic.text)};
	if (exchange.empty())
		return {{"queue " + target.topic.text, unseen, "it depends on the message"}};
	return {find(Connection::Kind::exchange, exchange),
			{"binding of exchange \"" + exchange + "\" for " + target.topic.text, unseen,
			 settings.mandatory ? "only a message shows whether a queue is bound (AMQP_NO_ROUTE)"
								: "with mandatory = false a message that no queue is bound for is lost"}};
}

void
RabbitmqSink::run()
{
	for (;;)
	{
		take_what_came();
		{
			std::lock_guard lock(mutex);
			if (stopping)
				break;
		}
		if (publisher.connection() == nullptr)
			connect();
		if (publisher.connection() != nullptr)
			if (auto failure = work())
				lost(*failure);
		tell_answers();
		wait();
	}
	if (publisher.connection() != nullptr && !blocked)
		publisher.connection()->close();
}

void
RabbitmqSink::take_what_came()
{
	std::lock_guard lock(mutex);
	for (Waiting &one : came)
	{
		if (one.delivery->to.exchange.empty())
			one.delivery->to.exchange = settings.exchange;
		waiting.push_back(std::move(one));
	}
	came.clear();
	std::move(probes_came.begin(), probes_came.end(), std::back_inserter(probes));
	probes_came.clear();
}

std::optional<Failure>
RabbitmqSink::work()
{
	if (auto failure = publisher.read())
		return failure;
	auto now = Clock::now();
	for (Probe &probe : probes)
	{
		if (now >= probe.deadline)
			return Failure{code_of(AMQP_STATUS_TIMEOUT), {}, "the broker does not answer"};
		if (!std::exchange(probe.asked, true) && !blocked)
			if (auto failure = publisher.ask())
				return failure;
	}
	if (now >= next_expiry)
	{
		next_expiry = now + tick;
		if (auto failure = publisher.expire(waiting, now))
			return failure;
	}
	tell_answers(); // publish() may take long
	writing_since = now.time_since_epoch().count();
	auto failure = publisher.publish(waiting);
	writing_since = 0;
	if (told_stuck.exchange(false))
		answers->blocked(blocked);
	return failure;
}

// Together, so that the outlet wakes once for many confirms.
void
RabbitmqSink::tell_answers()
{
	if (!answered.empty())
		answers->answer(std::exchange(answered, {}));
}

// Again if it is time, or if a delivery asks for it; until then what comes is told why the last time was in vain.
void
RabbitmqSink::connect()
{
	if (probes.empty() && Clock::now() < next_connect)
	{
		if (!waiting.empty())
			away(last_failure);
		return;
	}
	Failure failure;
	auto connection = connect_anywhere(failure);
	if (!connection)
	{
		pause();
		note(Level::warning, "cannot connect to RabbitMQ", failure);
		return away(failure);
	}
	log(Level::info, "connected to RabbitMQ", {{"sink", common.name}});
	std::optional<Failure> problem;
	{
		std::lock_guard lock(mutex);
		problem = publisher.begin(std::move(connection));
	}
	for (Probe &probe : probes)
		probe.asked = true; // the first channel answers
	if (problem)
		lost(*problem);
}

std::unique_ptr<Connection>
RabbitmqSink::connect_anywhere(Failure &failure)
{
	for (size_t tried = 0; tried < settings.hosts.size(); tried++)
	{
		const Host &host = settings.hosts[next_host];
		if (auto connection = Connection::open(settings, host, failure))
			return connection;
		next_host = (next_host + 1) % settings.hosts.size();
		std::lock_guard lock(mutex);
		if (stopping)
			break;
	}
	return nullptr;
}

// Until the next attempt, with jitter.
void
RabbitmqSink::pause()
{
	auto jitter = std::uniform_int_distribution<milliseconds::rep>(0, next_pause.count() / 4)(random);
	next_connect = Clock::now() + next_pause + milliseconds(jitter);
	next_pause = std::clamp(next_pause * 2, first_pause, longest_pause);
}

// Everything that is in hand gets this answer.
void
RabbitmqSink::away(const Failure &failure)
{
	last_failure = failure;
	auto &careful = publisher.careful();
	std::move(careful.begin(), careful.end(), std::back_inserter(waiting));
	careful.clear();
	for (Waiting &one : waiting)
		answered.push_back({one.delivery->ticket,
							{.accepted = false,
							 .code = failure.code,
							 .response_code = failure.response_code,
							 .text = failure.text,
							 .reference = {},
							 .retry_after = {}}});
	waiting.clear();
	answer_probes(failure);
}

// What was not published waits for the next connection, if that can be had now.
void
RabbitmqSink::lost(const Failure &failure)
{
	note(Level::warning, "the connection to RabbitMQ is lost", failure);
	last_failure = failure;
	publisher.lose(failure);
	std::unique_ptr<Connection> gone;
	{
		std::lock_guard lock(mutex);
		gone = publisher.release();
	}
	answer_probes(failure);
	pause();
}

void
RabbitmqSink::answer_probes(const std::optional<Failure> &failure)
{
	auto answered = std::exchange(probes, {});
	for (Probe &probe : answered)
	{
		Answer answer{
			.accepted = !failure, .code = {}, .response_code = {}, .text = {}, .reference = {}, .retry_after = {}};
		if (failure)
		{
			answer.code = failure->code;
			answer.response_code = failure->response_code;
			answer.text = failure->text;
		}
		probe.done(std::move(answer));
	}
}

Publisher::Listener
RabbitmqSink::listener()
{
	return {.answer =
				[this](uint64_t ticket, Answer answer) {
					answered.push_back({ticket, std::move(answer)});
				},
			.blocked = [this](bool is, const std::string &reason) { tell_blocked(is, reason); },
			.alive =
				[this] {
					next_pause = milliseconds(0);
					answer_probes({});
				},
			.closed = [this](const std::string &what,
							 const Failure &failure) { note(Level::warning, "RabbitMQ closed the " + what, failure); }};
}

void
RabbitmqSink::tell_blocked(bool is, const std::string &reason)
{
	blocked = is;
	log(is ? Level::warning : Level::info, is ? "RabbitMQ blocks the connection: " + reason : "RabbitMQ goes on",
		{{"sink", common.name}});
	answers->blocked(is);
	if (is) // it can be reached, and would not answer
		answer_probes({});
}

void
RabbitmqSink::note(Level level, std::string_view what, const Failure &failure) const
{
	log(level, std::string(what) + ": " + failure.text,
		{{"sink", common.name}, {"code", failure.code}, {"response_code", failure.response_code}});
}

void
RabbitmqSink::wait()
{
	Connection *connection = publisher.connection();
	if (connection != nullptr && connection->has_frames())
		return;
	pollfd fds[2] = {{.fd = event, .events = POLLIN, .revents = 0}, {.fd = -1, .events = POLLIN, .revents = 0}};
	milliseconds most = tick;
	if (connection != nullptr)
	{
		fds[1].fd = connection->socket();
		fds[1].events = static_cast<short>(POLLIN | (publisher.wants_to_write() ? POLLOUT : 0));
	}
	else
		most = std::clamp(std::chrono::ceil<milliseconds>(next_connect - Clock::now()), milliseconds(0), tick);
	::poll(fds, 2, static_cast<int>(most.count()));
	uint64_t count;
	[[maybe_unused]] ssize_t size = ::read(event, &count, sizeof count);
}

// amqp://user:password@host:port/vhost
void
read_url(Section &section, const Secret &url, Settings &settings)
{
	std::string text = url.reveal();
	amqp_connection_info info{};
	if (amqp_parse_url(text.data(), &info) != AMQP_STATUS_OK)
		section.refuse("url", "is not of the form amqp://user:password@host:port/vhost");
	settings.hosts = {{info.host, info.port}};
	settings.user = info.user;
	settings.password = Secret(info.password);
	settings.vhost = info.vhost;
	settings.tls = info.ssl != 0;
}

void
read_hosts(Section &section, Settings &settings)
{
	settings.tls = section.flag("tls", false);
	for (const std::string &text : section.texts("hosts", {"127.0.0.1"}))
	{
		Host host{text, settings.tls ? 5671 : 5672};
		size_t colon = text.rfind(':');
		if (colon != std::string::npos && (text.find(':') == colon || text[colon - 1] == ']'))
		{
			host.name = text.substr(0, colon);
			host.port = std::atoi(text.c_str() + colon + 1);
		}
		if (host.name.starts_with('[') && host.name.ends_with(']'))
			host.name = host.name.substr(1, host.name.size() - 2);
		if (host.name.empty() || host.port < 1 || host.port > 65'535)
			section.refuse("hosts", "has \"" + text + "\", which is not of the form host or host:port");
		settings.hosts.push_back(std::move(host));
	}
	if (settings.hosts.empty())
		section.refuse("hosts", "is empty");
	settings.user = section.text("user", settings.user);
	settings.password = section.secret("password").value_or(Secret("guest"));
	settings.vhost = section.text("vhost", settings.vhost);
}

std::function<std::unique_ptr<Sink>()>
read(Section &section, const SinkSettings &common)
{
	Settings settings;
	if (auto url = section.secret("url"))
		read_url(section, *url, settings);
	else
		read_hosts(section, settings);
	settings.verify = section.flag("verify", true);
	settings.ca = section.text("ca", "");
	settings.cert = section.text("cert", "");
	settings.key = section.text("key", "");
	if (settings.cert.empty() != settings.key.empty())
		section.refuse("cert", "and key belong together");
	if (!settings.tls && !(settings.ca + settings.cert).empty())
		section.refuse(settings.ca.empty() ? "cert" : "ca", "needs tls = true, or a URL that begins with amqps://");
	settings.connect_timeout = section.duration("connect_timeout", settings.connect_timeout);
	settings.heartbeat = static_cast<int>(section.duration("heartbeat", milliseconds(10'000)).count() / 1000);
	if (settings.heartbeat < 1 || settings.heartbeat > 3600)
		section.refuse("heartbeat", "is not between 1s and 1h");
	settings.exchange = section.text("exchange", "");
	settings.mandatory = section.flag("mandatory", true);
	settings.persistent = section.flag("persistent", true);
	return [settings, common] { return std::make_unique<RabbitmqSink>(settings, common); };
}

} // namespace

const SinkKind rabbitmq_kind{.type = "rabbitmq",
							 .binding = Binding::amqp,
							 .default_topic = {},
							 .codes = rabbitmq::codes,
							 .read = read,
							 .defaults = {.name = {}, .type = "rabbitmq"}};

} // namespace relay
