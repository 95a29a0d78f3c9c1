// From the enqueue of a message until it is recorded as delivered, one message at a time.
//
//	optimistic alone|worker CONNINFO SCHEMA QUEUE N SEED
//
// alone: the producer takes the lease with the enqueue, commits, and completes the message itself
// (enqueue_and_claim, complete). worker: the producer enqueues; a worker listens, claims and
// completes on a connection of its own. The delivery itself takes no time here. In between
// the producer rests for 4 to 8 ms, so that the worker is at rest too.
//
// Prints for each of the N messages how many microseconds lie between the moment at which the
// producer began and the moment at which the completing client had the answer. What is not done
// within ten seconds ends it with status 1.

#include "verbs.h"

#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

namespace {

constexpr int64_t us = 1000, ms = 1000 * us;

struct Deliveries {
	std::mutex mutex;
	std::condition_variable changed;
	bool listening = false;
	long count = 0;
	int64_t last = 0;
};

template <typename Change>
void
change(Deliveries *deliveries, const Change &body)
{
	const std::lock_guard lock(deliveries->mutex);

	body();
	deliveries->changed.notify_all();
}

template <typename Condition>
void
await(Deliveries *deliveries, const Condition &condition)
{
	std::unique_lock lock(deliveries->mutex);

	if (!deliveries->changed.wait_for(lock, std::chrono::seconds(10), condition))
		die("worker", "did nothing for ten seconds");
}

void
work(const Shape *shape, const char *conninfo, Deliveries *deliveries)
{
	Messages none(*shape);
	Client client(*shape, &none, conninfo, "worker");

	run(client.connection, "LISTEN outbox_pending");
	change(deliveries, [&] { deliveries->listening = true; });
	for (;;)
	{
		hear(client.connection, [](const char *, int64_t) {});
		while (client.call(CLAIM) > 0)
		{
			const int n = client.call(COMPLETE);
			const int64_t now = now_ns();
			change(deliveries, [&] {
				deliveries->count += n;
				deliveries->last = now;
			});
		}
	}
}

// Calls deliver() N times: it returns when the message was recorded as delivered.
template <typename Deliver>
void
measure(long n, uint64_t seed, const Deliver &deliver)
{
	std::mt19937_64 random(seed);
	std::uniform_int_distribution<int64_t> rest(4 * ms, 8 * ms);

	for (long i = 0; i < n; i++)
	{
		const int64_t start = now_ns();
		printf("%.1f\n", static_cast<double>(deliver() - start) / 1000);
		sleep_until(now_ns() + rest(random));
	}
}

void
with_worker(const char *conninfo, const Shape &shape, long n)
{
	Messages messages(shape);
	Client producer(shape, &messages, conninfo, "producer");
	Shape many = shape;
	Deliveries deliveries;

	many.batch = 10;
	std::thread(work, &many, conninfo, &deliveries).detach();
	await(&deliveries, [&] { return deliveries.listening; });
	measure(n, shape.seed, [&] {
		const long before = deliveries.count;
		producer.call(ENQUEUE);
		await(&deliveries, [&] { return deliveries.count > before; });
		return deliveries.last;
	});
	fflush(stdout);
	_exit(0); // the worker never ends
}

void
alone(const char *conninfo, const Shape &shape, long n)
{
	Messages messages(shape);
	Client producer(shape, &messages, conninfo, "producer");
	const std::string sql = "SELECT outbox_id, lease_token FROM " + shape.schema +
							".enqueue_and_claim('producer', 'order.placed', $2::jsonb, queue => $1, "
							"aggregate_type => 'order', aggregate_id => $3, partition_key => $4, idempotency_key => "
							"$5)";

	prepare(producer.connection, sql.c_str(), "enqueue_and_claim");
	measure(n, shape.seed, [&] {
		producer.enqueue_as("enqueue_and_claim");
		producer.call(COMPLETE);
		return now_ns();
	});
}

} // namespace

int
main(int argc, char **argv)
{
	const std::string way = argc == 7 ? argv[1] : "";
	Shape shape;

	if (way != "alone" && way != "worker")
		die("usage", "optimistic alone|worker CONNINFO SCHEMA QUEUE N SEED");
	shape.schema = argv[3];
	shape.queue = argv[4];
	shape.seed = strtoull(argv[6], nullptr, 10);
	if (way == "alone")
		alone(argv[2], shape, atol(argv[5]));
	else
		with_worker(argv[2], shape, atol(argv[5]));
	return 0;
}
