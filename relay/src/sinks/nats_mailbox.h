// Where the threads of the NATS library leave what they have to say, for the sink's own thread.
//
// Guarantees: the library may call back at any time, also after the sink is gone: it then finds no one, and nothing
// happens. No exception leaves a callback.
#pragma once

#include "core/answer.h"
#include "core/delivery.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <nats/nats.h>

namespace relay::nats {

using Clock = std::chrono::steady_clock;

struct Waiting {
	std::unique_ptr<Delivery> delivery;
	Clock::time_point deadline;
};

// What JetStream says of the message with this number.
struct Acknowledgement {
	uint64_t number;
	Answer answer;
};

struct Mail {
	std::vector<Waiting> deliveries;
	std::vector<std::function<void(Answer)>> probes;
	std::vector<std::function<void()>> questions; // for the sink's thread
	std::vector<Acknowledgement> acknowledgements;
	bool disconnected = false; // what was open then will not be acknowledged
	bool stopping = false;
};

class Mailbox {
public:
	// Registers it, so that callbacks find it.
	static std::shared_ptr<Mailbox> make();
	~Mailbox();

	// What callbacks are given as their closure.
	[[nodiscard]] void *closure() const { return reinterpret_cast<void *>(number); }
	static std::shared_ptr<Mailbox> of(void *closure) noexcept;

	template <typename Change>
	void post(Change change)
	{
		std::lock_guard lock(mutex);
		change(mail);
		something = true;
		news.notify_one();
	}

	// What has come, at the latest at `until`.
	Mail take(Clock::time_point until);

private:
	std::uintptr_t number = 0;
	std::mutex mutex;
	std::condition_variable news;
	Mail mail;
	bool something = false;
};

// Callbacks of the library. A reply comes to a subject whose last token is the message's number.
void on_reply(natsConnection *, natsSubscription *, natsMsg *message, void *closure) noexcept;
void on_disconnected(natsConnection *, void *closure) noexcept;

Answer failure(const std::string &code, const std::string &text);

} // namespace relay::nats
