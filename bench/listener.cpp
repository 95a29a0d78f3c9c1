// Listens on outbox_pending, as a worker that has nothing to do.
//
//	listener idle CONNINFO QUEUE FILE
//	listener commit CONNINFO QUEUE N SEED SQL PAYLOAD
//	listener due CONNINFO QUEUE N SEED SQL PAYLOAD
//
// idle: until a signal ends it, FILE holds how many notifications of the queue came, and
// when the last one did, in nanoseconds since 1970.
//
// commit: a second process listens; this one enqueues N times, 8 to 12 ms apart, each a
// transaction, and prints for each how many microseconds after the return of the commit the
// listener had its notification (less than 0: before the producer had the answer).
//
// due: the same with messages that fall due 20 to 60 ms after the call, one at a time, and
// from their due time to the notification. SQL takes the payload, and here that time too,
// in microseconds since 1970.
//
// Whatever is not heard of within ten seconds ends it with status 1: so a notification that
// was lost is noticed, if the server's own safety poll is slower.

#include "client.h"

#include <csignal>
#include <fcntl.h>
#include <random>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int patience_ms = 10000;
constexpr int64_t us = 1000, ms = 1000 * us;

Connection
listen(const char *conninfo)
{
	Connection connection = connect(conninfo);

	run(connection, "LISTEN outbox_pending");
	return connection;
}

// ---- idle

[[noreturn]] void
idle(const char *conninfo, const char *queue, const char *path)
{
	const Connection connection = listen(conninfo);
	const int file = open(path, O_WRONLY | O_CREAT, 0644);
	long heard = 0;
	int64_t last = 0;
	char line[64];

	for (;;)
	{
		// Always as long as before: whoever reads it meanwhile reads one whole line.
		const int length = snprintf(line, sizeof(line), "%12ld %20lld\n", heard, static_cast<long long>(last));
		if (pwrite(file, line, static_cast<size_t>(length), 0) != length)
			die(path, strerror(errno));
		hear(connection, [&](const char *payload, int64_t at) {
			if (strcmp(payload, queue) == 0)
			{
				heard++;
				last = at;
			}
		});
	}
}

// ---- latencies

struct Listener {
	int pipe; // a time in nanoseconds for each notification; first of all 0
	pid_t pid;
};

[[noreturn]] void
tell_arrivals(const char *conninfo, const char *queue, int pipe)
{
	const auto tell = [&](int64_t at) {
		if (write(pipe, &at, sizeof(at)) != sizeof(at))
			exit(0);
	};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	const Connection connection = listen(conninfo);
	tell(0);
	for (;;)
		hear(connection, [&](const char *payload, int64_t at) {
			if (strcmp(payload, queue) == 0)
				tell(at);
		});
}

int64_t
next_arrival(const Listener &listener)
{
	pollfd arrivals = {listener.pipe, POLLIN, 0};
	int64_t at = 0;

	if (poll(&arrivals, 1, patience_ms) <= 0)
		die("listener", "heard nothing of a message for ten seconds");
	if (read(listener.pipe, &at, sizeof(at)) != sizeof(at))
		die("listener", "ended");
	return at;
}

Listener
start_listener(const char *conninfo, const char *queue)
{
	int ends[2];

	if (pipe(ends) != 0)
		die("pipe", strerror(errno));
	const pid_t pid = fork();
	if (pid < 0)
		die("fork", strerror(errno));
	if (pid == 0)
	{
		close(ends[0]);
		tell_arrivals(conninfo, queue, ends[1]);
	}
	close(ends[1]);
	const Listener listener = {ends[0], pid};
	next_arrival(listener);
	return listener;
}

int64_t
first_arrival_since(const Listener &listener, int64_t since)
{
	int64_t at;

	do
		at = next_arrival(listener);
	while (at < since);
	return at;
}

struct Producer {
	Connection connection;
	Listener listener;
	std::mt19937_64 random;
	const char *payload;

	int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); }

	void enqueue(int64_t due, bool scheduled)
	{
		const std::string time = std::to_string(due / us);
		const char *const values[] = {payload, time.c_str()};
		const Result result(PQexecPrepared(connection.get(), "", scheduled ? 2 : 1, values, nullptr, nullptr, 0),
							PQclear);
		must("enqueue", result);
	}
};

int64_t
commit_ns(Producer *producer)
{
	const int64_t start = now_ns();

	producer->enqueue(0, false);
	const int64_t returned = now_ns();
	const int64_t heard = first_arrival_since(producer->listener, start);
	sleep_until(start + producer->between(8 * ms, 12 * ms));
	return heard - returned;
}

int64_t
due_ns(Producer *producer)
{
	const int64_t due = now_ns() / us * us + producer->between(20 * ms, 60 * ms) / us * us;

	producer->enqueue(due, true);
	return first_arrival_since(producer->listener, due) - due;
}

void
latencies(char **arguments, bool scheduled)
{
	const char *const conninfo = arguments[0];
	const Listener listener = start_listener(conninfo, arguments[1]);
	Producer producer = {connect(conninfo), listener, std::mt19937_64(strtoull(arguments[3], nullptr, 10)),
						 arguments[5]};

	prepare(producer.connection, arguments[4]);
	for (long i = atol(arguments[2]); i > 0; i--)
	{
		const int64_t ns = scheduled ? due_ns(&producer) : commit_ns(&producer);
		printf("%.1f\n", static_cast<double>(ns) / 1000);
	}
	kill(listener.pid, SIGKILL);
	waitpid(listener.pid, nullptr, 0);
}

} // namespace

int
main(int argc, char **argv)
{
	const std::string mode = argc > 1 ? argv[1] : "";

	if (mode == "idle" && argc == 5)
		idle(argv[2], argv[3], argv[4]);
	if ((mode != "commit" && mode != "due") || argc != 8)
		die("usage", "listener idle CONNINFO QUEUE FILE\n"
					 "listener commit|due CONNINFO QUEUE N SEED SQL PAYLOAD");
	latencies(argv + 2, mode == "due");
	return 0;
}
