// The callbacks, and the list of those whom they are for.
#include "sinks/nats_mailbox.h"

#include "sinks/nats_codes.h"

#include <charconv>
#include <map>

#include <nlohmann/json.hpp>

namespace relay::nats {

namespace {

struct Register {
	std::mutex mutex;
	std::map<std::uintptr_t, std::weak_ptr<Mailbox>> boxes;
	std::uintptr_t last = 0;
};

// Never destroyed: threads of the library may outlive main.
Register &
all()
{
	static auto *all = new Register;
	return *all;
}

template <typename Change>
void
tell(void *closure, Change change)
{
	if (auto box = Mailbox::of(closure))
		box->post(std::move(change));
}

// {"stream":"EVENTS","seq":42,"duplicate":true} or {"error":{"err_code":10077,"description":"..."}}
Answer
answer_of(natsMsg *message)
{
	if (natsMsg_IsNoResponders(message))
		return failure(code_of(NATS_NO_RESPONDERS), "no stream takes the subject");
	const char *data = natsMsg_GetData(message);
	auto reply = nlohmann::json::parse(data, data + natsMsg_GetDataLength(message), nullptr, false);
	if (!reply.is_object())
		return failure("NATS_NO_STREAM_REPLIED", "the reply is not an acknowledgement of JetStream");
	if (auto error = reply.find("error"); error != reply.end() && error->is_object())
	{
		auto number = error->value("err_code", 0);
		Answer answer =
			failure(number != 0 ? code_of_error(number) : code_of(NATS_ERR), error->value("description", ""));
		answer.response_code = std::to_string(number != 0 ? number : error->value("code", 0));
		return answer;
	}
	auto stream = reply.find("stream"), sequence = reply.find("seq");
	if (stream == reply.end() || sequence == reply.end() || !stream->is_string() || !sequence->is_number_unsigned())
		return failure("NATS_NO_STREAM_REPLIED", "the reply is not an acknowledgement of JetStream");
	Answer answer;
	answer.accepted = true;
	answer.reference = stream->get<std::string>() + "/" + std::to_string(sequence->get<uint64_t>());
	if (auto duplicate = reply.find("duplicate"); duplicate != reply.end() && *duplicate == true)
		answer.reference += " duplicate";
	return answer;
}

} // namespace

std::shared_ptr<Mailbox>
Mailbox::make()
{
	auto box = std::make_shared<Mailbox>();
	std::lock_guard lock(all().mutex);
	box->number = ++all().last;
	all().boxes.emplace(box->number, box);
	return box;
}

Mailbox::~Mailbox()
{
	std::lock_guard lock(all().mutex);
	all().boxes.erase(number);
}

std::shared_ptr<Mailbox>
Mailbox::of(void *closure) noexcept
{
	std::lock_guard lock(all().mutex);
	auto found = all().boxes.find(reinterpret_cast<std::uintptr_t>(closure));
	return found == all().boxes.end() ? nullptr : found->second.lock();
}

Mail
Mailbox::take(Clock::time_point until)
{
	std::unique_lock lock(mutex);
	news.wait_until(lock, until, [this] { return something; });
	something = false;
	Mail taken = std::move(mail);
	mail = Mail{};
	mail.stopping = taken.stopping;
	return taken;
}

Answer
failure(const std::string &code, const std::string &text)
{
	Answer answer;
	answer.code = code;
	answer.text = text;
	return answer;
}

void
on_reply(natsConnection *, natsSubscription *, natsMsg *message, void *closure) noexcept
{
	std::unique_ptr<natsMsg, decltype(&natsMsg_Destroy)> owned(message, natsMsg_Destroy);
	try
	{
		std::string_view subject = natsMsg_GetSubject(message);
		uint64_t number = 0;
		std::string_view last = subject.substr(subject.rfind('.') + 1);
		std::from_chars(last.data(), last.data() + last.size(), number);
		tell(closure, [&, answer = answer_of(message)](Mail &mail) mutable {
			mail.acknowledgements.push_back({number, std::move(answer)});
		});
	}
	catch (...) // a field of a wrong type, or no memory: the delivery times out
	{
	}
}

void
on_disconnected(natsConnection *, void *closure) noexcept
{
	tell(closure, [](Mail &mail) { mail.disconnected = true; });
}

} // namespace relay::nats
