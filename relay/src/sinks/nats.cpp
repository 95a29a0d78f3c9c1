// The sink nats: publishes to JetStream and waits for the acknowledgements.
//
// Guarantees: accepted means that a stream has stored the message, or has had it already: JetStream drops what comes
// again under the same Nats-Msg-Id, which is the event_id, within the stream's duplicate window. A message that was
// open when the connection was lost is answered as such, though a stream may have it.
//
// Shape: one thread connects and publishes, since the library's calls may wait for the socket; the library's threads
// leave acknowledgements in the mailbox. The library gives up a connection that is lost, and the thread makes another
// one: the library's handshake of TLS waits for ever, and only a thread that is known can be interrupted. A publish is
// a request whose reply is the acknowledgement; the library's own js_PublishMsgAsync is not used, since in 3.4 its
// timeouts make each publish look at all messages of the last seconds, and without them it never frees a message that
// is not acknowledged.
#include "seen/log.h"
#include "sinks/kinds.h"
#include "sinks/nats_codes.h"
#include "sinks/nats_mailbox.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <future>
#include <random>
#include <thread>
#include <unordered_map>

#include <nlohmann/json.hpp>

namespace relay {

namespace {

using namespace nats;
using std::chrono::milliseconds;

// A server closes the connection, with all that is open on it, if a line is longer than its max_control_line: 4096
// bytes unless set, with the subject, where to acknowledge, and two sizes.
constexpr size_t longest_subject = 3900;
constexpr milliseconds tick{500}, write_deadline{5000}, first_pause{250}, longest_pause{5000};

struct Settings {
	std::vector<Secret> urls; // a URL may hold a password
	std::string user, credentials, nkey, nkey_seed, ca, cert, key;
	Secret password, token;
	bool tls = false, verify = true;
	milliseconds connect_timeout{5000};
};

struct Destroy {
	void operator()(natsOptions *options) const { natsOptions_Destroy(options); }
	void operator()(natsConnection *connection) const { natsConnection_Destroy(connection); }
	void operator()(natsSubscription *subscription) const { natsSubscription_Destroy(subscription); }
	void operator()(natsMsg *message) const { natsMsg_Destroy(message); }
};
template <typename Thing>
using Owned = std::unique_ptr<Thing, Destroy>;

// While it lives, it ends after each `pause` what this thread waits for. The library does the handshake of TLS on a
// blocking socket; a signal with a handler makes that fail.
class Interrupter {
public:
	explicit Interrupter(milliseconds pause)
	{
		struct sigaction action = {};
		action.sa_handler = [](int) {}; // without SA_RESTART
		sigaction(SIGURG, &action, nullptr);
		thread = std::jthread([this, pause, whom = pthread_self()](const std::stop_token &stop) {
			std::unique_lock lock(mutex);
			while (!ended.wait_for(lock, stop, pause, [&] { return stop.stop_requested(); }))
			{
				interrupted = true;
				pthread_kill(whom, SIGURG);
			}
		});
	}
	[[nodiscard]] bool has_interrupted() const { return interrupted; }

private:
	std::atomic<bool> interrupted = false;
	std::mutex mutex;
	std::condition_variable_any ended;
	std::jthread thread;
};

class NatsSink final : public Sink {
public:
	NatsSink(Settings settings, SinkSettings common);
	~NatsSink() override;

	void start(Answers &answers) override;
	void deliver(std::vector<std::unique_ptr<Delivery>> deliveries) override;
	void probe(const std::string &endpoint, std::function<void(Answer)> done) override;
	[[nodiscard]] std::vector<Finding> look_for(const Target &target) override;
	[[nodiscard]] Text objection(const Delivery &delivery) const override;

private:
	void run();
	void settle(std::vector<Acknowledgement> &acknowledgements);
	void expire(Clock::time_point now);
	void lose();
	void close();
	void connect(bool now);
	void wait_before_connecting();
	natsStatus open_connection();
	natsStatus set(natsOptions *options);
	[[nodiscard]] bool connected() const;
	[[nodiscard]] Answer why_not();
	void publish(Waiting &waiting);
	Answer probe_now();
	Finding find_stream(const std::string &subject);

	const Settings settings;
	const SinkSettings common;
	Answers *answers = nullptr;
	std::shared_ptr<Mailbox> mailbox = Mailbox::make();

	// The thread's own.
	Owned<natsConnection> connection;
	Owned<natsSubscription> replies; // goes before the connection
	std::vector<std::string> discovered;
	std::string inbox; // and the number of a message: where it is acknowledged
	struct Open {
		uint64_t ticket;
		Clock::time_point deadline;
	};
	std::unordered_map<uint64_t, Open> open; // by number
	uint64_t last_number = 0;
	Answer last_failure;
	milliseconds next_pause{0};
	Clock::time_point next_connect{}, next_expiry{};
	std::minstd_rand random{std::random_device{}()};
	std::thread thread;
};

NatsSink::NatsSink(Settings settings, SinkSettings common) : settings(std::move(settings)), common(std::move(common)) {}

NatsSink::~NatsSink()
{
	mailbox->post([](Mail &mail) { mail.stopping = true; });
	if (thread.joinable())
		thread.join();
}

void
NatsSink::start(Answers &answers)
{
	this->answers = &answers;
	thread = std::thread([this] { run(); });
}

void
NatsSink::deliver(std::vector<std::unique_ptr<Delivery>> deliveries)
{
	mailbox->post([&, deadline = Clock::now() + common.timeout](Mail &mail) {
		for (auto &delivery : deliveries)
			mail.deliveries.push_back({std::move(delivery), deadline});
	});
}

void
NatsSink::probe(const std::string &, std::function<void(Answer)> done)
{
	mailbox->post([&](Mail &mail) { mail.probes.push_back(std::move(done)); });
}

// What begins with $ commands the server: a routing key must not delete a stream.
Text
NatsSink::objection(const Delivery &delivery) const
{
	const std::string &subject = delivery.to.topic;
	if (subject.size() > longest_subject)
		return "the subject is longer than " + std::to_string(longest_subject) + " bytes";
	if (subject.starts_with('$'))
		return "a subject that begins with $ belongs to the server";
	for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1)
	{
		end = subject.find('.', begin);
		std::string_view token = std::string_view(subject).substr(begin, end - begin);
		if (token.empty())
			return "the subject has an empty token";
		if (token == "*" || token == ">")
			return "the subject has a wildcard";
		if (std::ranges::any_of(token, [](unsigned char c) { return c <= ' ' || c == 0x7f; }))
			return "the subject has a space or a control character";
	}
	return {};
}

void
NatsSink::run()
{
	connect(true);
	for (;;)
	{
		Mail mail = mailbox->take(Clock::now() + tick);
		settle(mail.acknowledgements);
		expire(Clock::now());
		if (mail.disconnected)
			lose();
		if (connection != nullptr && natsConnection_IsClosed(connection.get()))
			close();
		if (mail.stopping)
			break;
		if (connection == nullptr)
			connect(!mail.probes.empty());
		for (auto &probe : mail.probes)
			probe(probe_now());
		for (auto &question : mail.questions)
			question();
		bool can = connected();
		for (Waiting &waiting : mail.deliveries)
			if (can)
				publish(waiting);
			else
				answers->answer(waiting.delivery->ticket, why_not());
	}
	replies.reset();
	connection.reset();
}

void
NatsSink::settle(std::vector<Acknowledgement> &acknowledgements)
{
	for (Acknowledgement &acknowledgement : acknowledgements)
	{
		auto found = open.find(acknowledgement.number);
		if (found == open.end()) // given up, or answered when the connection was lost
			continue;
		uint64_t ticket = found->second.ticket;
		open.erase(found);
		answers->answer(ticket, std::move(acknowledgement.answer));
	}
}

void
NatsSink::expire(Clock::time_point now)
{
	if (now < next_expiry)
		return;
	next_expiry = now + tick;
	std::erase_if(open, [&](const auto &entry) {
		if (now < entry.second.deadline)
			return false;
		answers->answer(entry.second.ticket, failure("TIMEOUT", "JetStream has not acknowledged it"));
		return true;
	});
}

void
NatsSink::lose()
{
	Answer why = why_not();
	log(Level::warning, "the connection to NATS is lost: " + why.text, {{"sink", common.name}, {"code", why.code}});
	last_failure = why;
	for (auto &[number, one] : std::exchange(open, {}))
		answers->answer(one.ticket, why);
}

// The servers of the cluster that it told of are tried, too, from now on.
void
NatsSink::close()
{
	char **found = nullptr;
	int count = 0;

	if (natsConnection_GetDiscoveredServers(connection.get(), &found, &count) == NATS_OK)
		discovered.assign(found, found + count);
	for (int i = 0; i < count; i++)
		free(found[i]);
	free(found);
	replies.reset();
	connection.reset();
	wait_before_connecting();
}

void
NatsSink::wait_before_connecting()
{
	auto jitter = std::uniform_int_distribution<milliseconds::rep>(0, next_pause.count() / 4)(random);
	next_connect = Clock::now() + next_pause + milliseconds(jitter);
	next_pause = std::clamp(next_pause * 2, first_pause, longest_pause);
}

bool
NatsSink::connected() const
{
	return connection != nullptr && natsConnection_Status(connection.get()) == NATS_CONN_STATUS_CONNECTED;
}

Answer
NatsSink::why_not()
{
	if (connection == nullptr)
		return last_failure;
	const char *text = nullptr;
	natsStatus status = natsConnection_GetLastError(connection.get(), &text);
	if (status == NATS_OK)
		status = NATS_CONNECTION_DISCONNECTED;
	return failure(code_of(status), text != nullptr && *text != '\0' ? text : natsStatus_GetText(status));
}

// `now`: it was asked for, so it is tried before its time.
void
NatsSink::connect(bool now)
{
	if (!now && Clock::now() < next_connect)
		return;
	natsStatus status = open_connection();
	if (status == NATS_OK)
	{
		next_pause = first_pause;
		log(Level::info, "connected to NATS", {{"sink", common.name}});
		return;
	}
	natsStatus last = NATS_OK;
	const char *text = nats_GetLastError(&last);
	std::string_view said = last == status && text != nullptr ? text : natsStatus_GetText(status);
	if (size_t place = said.find("): "); said.starts_with('(') && place != said.npos) // of the library's source
		said.remove_prefix(place + 3);
	last_failure = failure(code_of(status), std::string(said));
	replies.reset();
	connection.reset();
	wait_before_connecting();
	log(Level::warning, "cannot connect to NATS: " + last_failure.text,
		{{"sink", common.name}, {"code", last_failure.code}});
}

natsStatus
NatsSink::open_connection()
{
	natsOptions *made = nullptr;
	natsStatus status = natsOptions_Create(&made);
	Owned<natsOptions> options(made);
	if (status == NATS_OK)
		status = set(made);
	natsConnection *connected = nullptr;
	if (status == NATS_OK)
	{
		Interrupter interrupter(settings.connect_timeout);
		status = natsConnection_Connect(&connected, made);
		if (status == NATS_SSL_ERROR && interrupter.has_interrupted())
			status = NATS_TIMEOUT;
	}
	connection.reset(connected);
	char *name = nullptr;
	natsSubscription *subscription = nullptr;
	if (status == NATS_OK)
		status = natsInbox_Create(&name);
	if (status == NATS_OK)
	{
		inbox = std::string(name) + ".";
		natsInbox_Destroy(name);
		status =
			natsConnection_Subscribe(&subscription, connected, (inbox + "*").c_str(), on_reply, mailbox->closure());
	}
	replies.reset(subscription);
	if (status == NATS_OK)
		status = natsSubscription_SetPendingLimits(subscription, -1, -1);
	return status;
}

natsStatus
NatsSink::set(natsOptions *options)
{
	natsStatus status = NATS_OK;
	auto also = [&](bool wanted, auto call, auto... arguments) {
		if (wanted && status == NATS_OK)
			status = call(options, arguments...);
	};
	std::vector<const char *> urls;
	for (const Secret &url : settings.urls)
		urls.push_back(url.reveal().c_str());
	for (const std::string &url : discovered)
		urls.push_back(url.c_str());
	void *closure = mailbox->closure();

	also(true, natsOptions_SetServers, urls.data(), static_cast<int>(urls.size()));
	also(true, natsOptions_SetName, "outbox-relay");
	also(!settings.user.empty(), natsOptions_SetUserInfo, settings.user.c_str(), settings.password.reveal().c_str());
	also(!settings.token.empty(), natsOptions_SetToken, settings.token.reveal().c_str());
	also(!settings.credentials.empty(), natsOptions_SetUserCredentialsFromFiles, settings.credentials.c_str(), nullptr);
	also(!settings.nkey.empty(), natsOptions_SetNKeyFromSeed, settings.nkey.c_str(), settings.nkey_seed.c_str());
	also(settings.tls, natsOptions_SetSecure, true);
	also(!settings.ca.empty(), natsOptions_LoadCATrustedCertificates, settings.ca.c_str());
	also(!settings.cert.empty(), natsOptions_LoadCertificatesChain, settings.cert.c_str(), settings.key.c_str());
	also(!settings.verify, natsOptions_SkipServerVerification, true);
	also(true, natsOptions_SetTimeout, static_cast<int64_t>(settings.connect_timeout.count()));
	also(true, natsOptions_SetWriteDeadline, static_cast<int64_t>(write_deadline.count()));
	also(true, natsOptions_SetPingInterval, int64_t{5000}); // a server that hangs is found after two of them
	also(true, natsOptions_SetMaxPingsOut, 2);
	also(true, natsOptions_SetAllowReconnect, false);
	also(true, natsOptions_SetDisconnectedCB, on_disconnected, closure);
	return status;
}

void
NatsSink::publish(Waiting &waiting)
{
	const Delivery &delivery = *waiting.delivery;
	if (Clock::now() >= waiting.deadline)
		return answers->answer(delivery.ticket, failure("TIMEOUT", "it waited for the server"));

	uint64_t number = ++last_number;
	natsMsg *made = nullptr;
	natsStatus status = natsMsg_Create(&made, delivery.to.topic.c_str(), (inbox + std::to_string(number)).c_str(),
									   delivery.body.data(), static_cast<int>(delivery.body.size()));
	Owned<natsMsg> message(made);
	auto set = [&](const char *name, const std::string &value) {
		if (status == NATS_OK)
			status = natsMsgHeader_Set(made, name, value.c_str());
	};
	set("Nats-Msg-Id", delivery.message.event_id);
	if (!delivery.content_type.empty())
		set("content-type", delivery.content_type);
	for (const auto &[name, value] : delivery.headers)
		set(name.c_str(), value);
	if (status == NATS_OK)
		status = natsConnection_PublishMsg(connection.get(), made);
	if (status == NATS_OK)
		open.emplace(number, Open{delivery.ticket, waiting.deadline});
	else
		answers->answer(delivery.ticket, failure(code_of(status), natsStatus_GetText(status)));
}

Answer
NatsSink::probe_now()
{
	if (!connected())
		return why_not();
	natsStatus status = natsConnection_FlushTimeout(connection.get(), std::min<int64_t>(common.timeout.count(), 5000));
	Answer answer = failure(code_of(status), natsStatus_GetText(status));
	if (status == NATS_OK)
		answer = {.accepted = true, .code = {}, .response_code = {}, .text = {}, .reference = {}, .retry_after = {}};
	return answer;
}

std::vector<Finding>
NatsSink::look_for(const Target &target)
{
	const std::string what = "stream for subject " + target.topic.text;

	if (!target.topic.fixed)
		return {{what, Finding::State::unseen, "it depends on the message"}};
	auto found = std::make_shared<std::promise<Finding>>(); // may be answered after this
	auto answer = found->get_future();
	mailbox->post([&](Mail &mail) {
		mail.questions.emplace_back([this, found, what, subject = target.topic.text] {
			Finding finding = find_stream(subject);

			finding.what = what;
			found->set_value(std::move(finding));
		});
	});
	if (answer.wait_for(2 * common.timeout) != std::future_status::ready)
		return {{what, Finding::State::unseen, "the server does not answer"}};
	return {answer.get()};
}

// The server does not answer a user who may not ask for streams. Such a user may publish all the same.
Finding
NatsSink::find_stream(const std::string &subject)
{
	using enum Finding::State;
	const std::string question = nlohmann::json{{"subject", subject}}.dump();
	natsMsg *made = nullptr;

	if (!connected())
		return {{}, unseen, why_not().text};
	natsStatus status = natsConnection_RequestString(&made, connection.get(), "$JS.API.STREAM.NAMES", question.c_str(),
													 std::min<int64_t>(common.timeout.count(), 5000));
	Owned<natsMsg> message(made);
	if (status == NATS_NO_RESPONDERS)
		return {{}, missing, "JetStream is off, for the server or for this account"};
	if (status != NATS_OK)
		return {{}, unseen, std::string("$JS.API.STREAM.NAMES: ") + natsStatus_GetText(status)};
	auto reply =
		nlohmann::json::parse(std::string_view(natsMsg_GetData(made), natsMsg_GetDataLength(made)), nullptr, false);
	if (!reply.is_object() || reply.contains("error"))
		return {{}, unseen, "$JS.API.STREAM.NAMES: " + reply.dump()};
	const auto streams = reply.find("streams");
	if (streams == reply.end() || !streams->is_array() || streams->empty())
		return {{}, missing, "create a stream that takes this subject, or correct the route"};
	return {{}, there, streams->dump()};
}

std::function<std::unique_ptr<Sink>()>
read(Section &section, const SinkSettings &common)
{
	Settings settings;
	settings.urls = section.secrets("url");
	if (settings.urls.empty())
		settings.urls.emplace_back("nats://127.0.0.1:4222");
	settings.user = section.text("user", "");
	settings.password = section.secret("password").value_or(Secret());
	settings.token = section.secret("token").value_or(Secret());
	settings.credentials = section.text("credentials", "");
	settings.nkey = section.text("nkey", "");
	settings.nkey_seed = section.text("nkey_seed", "");
	if (settings.nkey.empty() != settings.nkey_seed.empty())
		section.refuse("nkey", "and nkey_seed belong together");
	settings.tls = section.flag("tls", false);
	settings.verify = section.flag("verify", true);
	settings.ca = section.text("ca", "");
	settings.cert = section.text("cert", "");
	settings.key = section.text("key", "");
	if (settings.cert.empty() != settings.key.empty())
		section.refuse("cert", "and key belong together");
	// The library itself would go on without TLS if the server, or a host between, says so.
	settings.tls |=
		!settings.ca.empty() || !settings.cert.empty() ||
		std::ranges::any_of(settings.urls, [](const Secret &url) { return url.reveal().starts_with("tls://"); });
	settings.connect_timeout = section.duration("connect_timeout", settings.connect_timeout);
	return [settings, common] { return std::make_unique<NatsSink>(settings, common); };
}

} // namespace

const SinkKind nats_kind{.type = "nats",
						 .binding = Binding::nats,
						 .default_topic = {},
						 .codes = nats::codes,
						 .read = read,
						 .defaults = {.name = {}, .type = "nats"}};

} // namespace relay
