// Hands things to a thread that sleeps in poll().
//
// Guarantees: any thread may post; what one thread posts arrives in its order. The descriptor is readable while
// something waits. Posting allocates, but waits for nothing but the mutex.
#pragma once

#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include <sys/eventfd.h>
#include <unistd.h>

namespace relay {

template <class T>
class Mailbox {
public:
	Mailbox() : event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))
	{
		if (event < 0)
			throw std::runtime_error("could not make an eventfd");
	}
	~Mailbox() { close(event); }
	Mailbox(const Mailbox &) = delete;
	Mailbox &operator=(const Mailbox &) = delete;

	void post(T thing)
	{
		std::lock_guard lock(mutex);
		things.push_back(std::move(thing));
		if (things.size() == 1)
			signal();
	}

	std::vector<T> take()
	{
		std::vector<T> taken;
		std::lock_guard lock(mutex);

		if (!things.empty())
		{
			uint64_t count;
			[[maybe_unused]] auto got = read(event, &count, sizeof count);
			taken.swap(things);
		}
		return taken;
	}

	[[nodiscard]] int descriptor() const { return event; }

private:
	void signal()
	{
		const uint64_t one = 1;
		[[maybe_unused]] auto put = write(event, &one, sizeof one);
	}

	std::mutex mutex;
	std::vector<T> things;
	int event;
};

} // namespace relay
