// Hands things to a thread that sleeps in poll().
//
// Guarantees: any thread may post; what one thread posts arrives in its order. The descriptor is readable while
// something waits that was posted, or put and then flushed. Posting allocates, but waits for nothing but the mutex.
//
// Shape: who has many things puts them and flushes once, so that the reader is woken for all of them.
#pragma once

#include <cstdint>
#include <memory>
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
		signal();
	}

	void put(T thing)
	{
		std::lock_guard lock(mutex);
		things.push_back(std::move(thing));
	}

	void flush()
	{
		std::lock_guard lock(mutex);
		if (!things.empty())
			signal();
	}

	// In the place of what `taken` holds. With the same one each time, its memory is used again.
	void take(std::vector<T> &taken)
	{
		taken.clear();
		std::lock_guard lock(mutex);

		if (signalled)
		{
			uint64_t count;
			[[maybe_unused]] auto got = read(event, &count, sizeof count);
			signalled = false;
		}
		taken.swap(things);
	}

	[[nodiscard]] int descriptor() const { return event; }

private:
	void signal()
	{
		if (std::exchange(signalled, true))
			return;
		const uint64_t one = 1;
		[[maybe_unused]] auto put = write(event, &one, sizeof one);
	}

	std::mutex mutex;
	std::vector<T> things;
	bool signalled = false;
	int event;
};

// Those into which one thread has put something, to be flushed once each.
template <class Receiver>
class Unflushed {
public:
	void add(const std::shared_ptr<Receiver> &receiver)
	{
		if (all.empty() || all.back() != receiver)
			all.push_back(receiver);
	}

	void flush()
	{
		for (const auto &receiver : all)
			receiver->flush();
		all.clear();
	}

private:
	std::vector<std::shared_ptr<Receiver>> all;
};

} // namespace relay
