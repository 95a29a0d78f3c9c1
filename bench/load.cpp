// Runs one statement over and over from many sessions, and tells how fast the server was
// and what it cost.
//
//	load CONNINFO SESSIONS SECONDS POSTMASTER WATCHED SQL [VALUE...]
//
// Each session has one prepared statement under way at a time, each a transaction of its
// own. All sessions are served by one thread, so that on a small machine the client takes
// as little as it can from the server. POSTMASTER: the server's first process; WATCHED: one
// of its processes whose CPU time is wanted by itself, 0 = none.
//
// Prints one line: statements before the clock ran, statements measured, their seconds, CPU
// microseconds of the server's processes, of this program, of the watched process and of
// everything else on the machine, and when the last statement was sent, in nanoseconds since
// 1970. Any error ends it with status 1.

#include "cpu.h"

#include <sys/epoll.h>
#include <vector>

namespace {

constexpr int warm_up = 20; // statements a session

struct Load {
	std::vector<Connection> sessions;
	std::vector<const char *> values;
	int epoll = epoll_create1(0);
	int under_way = 0;
	long done = 0;
	int64_t last_sent = 0;
};

// ---- CPU time

struct Cpu {
	double server, own, watched, machine;
};

Cpu
measure(const char *postmaster, const char *watched)
{
	return {server_us(postmaster), own_us(), process_us(watched), machine_us()};
}

Cpu
difference(const Cpu &end, const Cpu &start)
{
	return {end.server - start.server, end.own - start.own, end.watched - start.watched, end.machine - start.machine};
}

// ---- sessions

void
open_session(Load *load, const char *conninfo, const char *sql)
{
	Connection session = connect(conninfo);
	epoll_event event = {};

	prepare(session, sql);
	event.events = EPOLLIN;
	event.data.u64 = load->sessions.size();
	if (epoll_ctl(load->epoll, EPOLL_CTL_ADD, PQsocket(session.get()), &event) != 0)
		die("epoll_ctl", strerror(errno));
	load->sessions.push_back(std::move(session));
}

// A blocking connection: what is sent fits into the socket's buffer, as nothing else is in it.
void
send(Load *load, const Connection &session)
{
	load->last_sent = now_ns();
	if (PQsendQueryPrepared(session.get(), "", static_cast<int>(load->values.size()), load->values.data(), nullptr,
							nullptr, 0) == 0)
		die("send", PQerrorMessage(session.get()));
	load->under_way++;
}

// True when the answer is complete.
bool
receive(Load *load, const Connection &session)
{
	if (PQconsumeInput(session.get()) == 0)
		die("receive", PQerrorMessage(session.get()));
	while (!PQisBusy(session.get()))
	{
		const Result result(PQgetResult(session.get()), PQclear);
		if (result == nullptr)
		{
			load->under_way--;
			load->done++;
			return true;
		}
		must("statement", result);
	}
	return false;
}

// Sends on every session, and again after each answer while go_on() holds; waits for all.
template <typename GoOn>
void
go(Load *load, const GoOn &go_on)
{
	epoll_event events[64];

	for (const Connection &session : load->sessions)
		send(load, session);
	while (load->under_way > 0)
	{
		const int n = epoll_wait(load->epoll, events, 64, -1);
		for (int i = 0; i < n; i++)
		{
			const Connection &session = load->sessions[events[i].data.u64];
			if (receive(load, session) && go_on())
				send(load, session);
		}
	}
}

} // namespace

int
main(int argc, char **argv)
{
	if (argc < 7)
		die("usage", "load CONNINFO SESSIONS SECONDS POSTMASTER WATCHED SQL [VALUE...]");
	const char *const postmaster = argv[4], *const watched = argv[5];
	const long sessions = atol(argv[2]);
	Load load;

	load.values.assign(argv + 7, argv + argc);
	for (long i = 0; i < sessions; i++)
		open_session(&load, argv[1], argv[6]);
	go(&load, [&] { return load.done + load.under_way < warm_up * sessions; });
	const long before = load.done;

	const Cpu before_cpu = measure(postmaster, watched);
	const int64_t start = now_ns(), end = start + static_cast<int64_t>(1e9 * atof(argv[3]));
	go(&load, [&] { return now_ns() < end; });
	const double seconds = static_cast<double>(now_ns() - start) / 1e9;
	const Cpu cpu = difference(measure(postmaster, watched), before_cpu);

	printf("%ld %ld %.6f %.0f %.0f %.0f %.0f %lld\n", before, load.done - before, seconds, cpu.server, cpu.own,
		   cpu.watched, cpu.machine - cpu.server - cpu.own, static_cast<long long>(load.last_sent));
	return 0;
}
