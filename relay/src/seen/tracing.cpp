// Spans on their way to the collector.
//
// Guarantees: ended() only puts the span into a queue. One thread sends what has gathered within a second, at most 512
// spans a request, one request at a time. A request that fails is not repeated: its spans are counted as dropped, and
// the next request waits for a second, so that a collector that is away costs one connection attempt a second.
#include "seen/tracing.h"
#include "core/secret.h"
#include "seen/log.h"
#include "seen/otlp.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

#include <curl/curl.h>

namespace relay {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr size_t most_waiting = 10'000, most_a_request = 512, longest_response = 65'536;
constexpr auto gathering = 1s, request_timeout = 5s, last_word = 1s;

size_t
keep(const char *data, size_t, size_t size, void *into) noexcept
{
	auto &response = *static_cast<std::string *>(into);

	try
	{
		response.append(data, std::min(size, longest_response - std::min(longest_response, response.size())));
	}
	catch (const std::bad_alloc &)
	{
		return 0;
	}
	return size;
}

} // namespace

struct Tracer::Sender {
	TracingSettings settings;
	Metrics &metrics;
	std::mutex mutex;
	std::condition_variable changed;
	std::deque<Span> waiting;
	bool ending = false;
	Clock::time_point end{}; // when ending
	bool away = false;       // the thread's own, as is what follows
	std::string response;
	std::unique_ptr<CURLM, decltype(&curl_multi_cleanup)> multi{nullptr, curl_multi_cleanup};
	std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers{nullptr, curl_slist_free_all};
	std::thread thread;

	Sender(TracingSettings given, Metrics &metrics) : settings(std::move(given)), metrics(metrics)
	{
		curl_global_init(CURL_GLOBAL_DEFAULT);
		multi.reset(curl_multi_init());
		if (!multi)
		{
			throw std::bad_alloc();
		}
		set_up();
		thread = std::thread([this] { run(); });
	}

	~Sender()
	{
		{
			const std::scoped_lock lock(mutex);
			ending = true;
			end = Clock::now() + last_word;
		}
		changed.notify_all();
		curl_multi_wakeup(multi.get());
		thread.join();
		headers.reset();
		multi.reset();
		curl_global_cleanup();
	}

	void add_header(const std::string &line)
	{
		auto *longer = curl_slist_append(headers.get(), line.c_str());
		if (!longer)
		{
			throw std::bad_alloc();
		}
		(void)headers.release();
		headers.reset(longer);
	}

	void set_up()
	{
		add_header("Content-Type: application/json");
		add_header("Expect:");
		for (const auto &[name, value] : settings.headers)
		{
			add_header(name + ": " + value);
		}
	}

	void add(Span span)
	{
		{
			const std::scoped_lock lock(mutex);
			if (waiting.size() < most_waiting)
			{
				waiting.push_back(std::move(span));
				if (waiting.size() != most_a_request)
				{
					return;
				}
			}
			else
			{
				metrics.spans_dropped(1);
				return;
			}
		}
		changed.notify_all();
	}

	// How long a request may take from now.
	std::chrono::milliseconds time_left()
	{
		const std::scoped_lock lock(mutex);
		const auto left = ending ? end - Clock::now() : Clock::duration(request_timeout);
		return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(left), 0ms);
	}

	// Empty: it is over.
	std::vector<Span> next()
	{
		std::unique_lock lock(mutex);
		// After a failure a full batch is no reason to try at once.
		changed.wait_for(lock, gathering, [this] { return ending || (!away && waiting.size() >= most_a_request); });
		changed.wait(lock, [this] { return ending || !waiting.empty(); });
		const auto many = static_cast<std::ptrdiff_t>(std::min(waiting.size(), most_a_request));
		std::vector<Span> batch(std::make_move_iterator(waiting.begin()),
								std::make_move_iterator(waiting.begin() + many));
		waiting.erase(waiting.begin(), waiting.begin() + many);
		return batch;
	}

	void run()
	{
		for (auto batch = next(); !batch.empty(); batch = next())
		{
			const auto problem = time_left() > 0ms ? post(otlp_request(settings.service, batch)) : "the relay ends";

			metrics.spans_dropped(problem.empty() ? otlp_rejected(response) : batch.size());
			if (problem.empty() == away)
			{
				away = !away;
				log(away ? Level::warning : Level::info,
					away ? "spans are dropped: " + problem : std::string("the collector takes spans again"));
			}
		}
	}

	using Handle = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;

	// One a request: libcurl 7.88 reads freed memory of one that is used again (its issue 11101). Connections are kept
	// by the multi handle.
	Handle make_request()
	{
		Handle request(curl_easy_init(), curl_easy_cleanup);

		if (!request)
		{
			return request;
		}
		curl_easy_setopt(request.get(), CURLOPT_URL, settings.endpoint.c_str());
		curl_easy_setopt(request.get(), CURLOPT_PROTOCOLS_STR, "http,https");
		curl_easy_setopt(request.get(), CURLOPT_HTTPHEADER, headers.get());
		curl_easy_setopt(request.get(), CURLOPT_NOSIGNAL, 1L);
		curl_easy_setopt(request.get(), CURLOPT_WRITEFUNCTION, keep);
		curl_easy_setopt(request.get(), CURLOPT_WRITEDATA, &response);
		curl_easy_setopt(request.get(), CURLOPT_PROXY, ""); // none of the environment: the headers may be secret
		return request;
	}

	// What went wrong, or nothing.
	std::string post(const std::string &body)
	{
		const Handle request = make_request();

		if (!request)
		{
			return "the request could not be made";
		}
		response.clear();
		curl_easy_setopt(request.get(), CURLOPT_POSTFIELDS, body.data());
		curl_easy_setopt(request.get(), CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
		if (curl_multi_add_handle(multi.get(), request.get()) != CURLM_OK)
		{
			return "the request could not be made";
		}
		const auto problem = perform(request.get());
		curl_multi_remove_handle(multi.get(), request.get());
		return problem;
	}

	std::string perform(CURL *request)
	{
		const auto began = Clock::now();
		int running = 1, left = 0;

		while (curl_multi_perform(multi.get(), &running) == CURLM_OK && running > 0)
		{
			const auto most =
				std::min(time_left(),
						 std::chrono::duration_cast<std::chrono::milliseconds>(began + request_timeout - Clock::now()));
			if (most <= 0ms)
			{
				return "no answer in time";
			}
			curl_multi_poll(multi.get(), nullptr, 0, static_cast<int>(most.count()), nullptr);
		}
		const auto *done = curl_multi_info_read(multi.get(), &left);
		long status = 0;

		if (!done || done->data.result != CURLE_OK)
		{
			return done ? curl_easy_strerror(done->data.result) : "the request failed";
		}
		curl_easy_getinfo(request, CURLINFO_RESPONSE_CODE, &status);
		return status >= 200 && status < 300 ? "" : "the collector answered " + std::to_string(status);
	}
};

Tracer::Tracer(TracingSettings settings, Metrics &metrics)
	: sender(settings.endpoint.empty() ? nullptr : std::make_unique<Sender>(std::move(settings), metrics))
{
}

Tracer::~Tracer() = default;

bool
Tracer::on() const
{
	return sender != nullptr;
}

void
Tracer::ended(Span span)
{
	if (sender && span.parent.sampled())
	{
		sender->add(std::move(span));
	}
}

} // namespace relay
