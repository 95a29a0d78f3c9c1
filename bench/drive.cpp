// Drives one variant of an outbox from some sessions, and tells how fast the server was and
// what it cost.
//
//	drive [NAME=VALUE...]
//
//	conninfo=     where                         schema=outbox     the variant
//	queue=bench                                 batch=1 payload=300 keys=1     of messages
//	by_message=0  1: a batch is one call a message, in one transaction
//	cycle=ecd     what each session does over and over, each a transaction of its own:
//	              e enqueues a batch, c claims one, d completes what was claimed,
//	              f completes what it claimed before and claims the next
//	sessions=1    seconds=1                     cycles=3          at least, a session
//	count=0       not 0: ends when so many messages are enqueued, or completed if that is
//	              part of the cycle; no warm-up; seconds do not matter
//	warm_up=2     cycles a session before the clock runs
//	window=0      not 0: tells of the first and last seconds too
//	hold=         snapshot: an open REPEATABLE READ transaction all the while
//	              producer: an open transaction that has enqueued one message; it commits in the end
//	drain=1       in the end, without the clock, what is claimable is claimed and completed
//	postmaster=   the server's first process
//	seed=1        of keys and payloads; another one for each run
//
// All sessions are served by one thread, without blocking, so that on a small machine the
// client takes as little as it can from the server, and no session waits for another's answer.
//
// Prints lines of a name and a value: figures of the time measured, then "enqueued" and
// "completed", which count all that was done. "server us" is the CPU time of the backends of
// these sessions, a message; "background us" that of all other processes of the server.
// Any error, a message that was there already, or a lease that was lost, ends it with status 1.

#include "cpu.h"
#include "verbs.h"

#include <algorithm>
#include <functional>
#include <map>
#include <sys/epoll.h>

namespace {

struct Options {
	Shape shape;
	std::string conninfo, postmaster, hold, cycle = "ecd";
	int sessions = 1, cycles = 3, warm_up = 2;
	double seconds = 1, window = 0;
	long count = 0;
	bool drain = true;
};

struct Event {
	int64_t at, took; // its end, nanoseconds
	int messages;
};

struct Session {
	Client client;
	size_t place = 0; // in the cycle
	int64_t sent = 0;
	int messages = 0; // of the answer under way
	int cycles = 0;
	bool writing = false, under_way = false;
};

struct Drive {
	const Options &options;
	Messages messages;
	std::vector<std::unique_ptr<Session>> sessions;
	int epoll = epoll_create1(0);
	int under_way = 0;
	std::string cycle;
	std::map<char, std::vector<Event>> events;
	std::map<char, long> total;

	explicit Drive(const Options &options) : options(options), messages(options.shape) {}
};

// ---- sessions

void
watch(Drive *drive, size_t i, int operation, bool writing)
{
	Session &session = *drive->sessions[i];
	epoll_event event = {};

	session.writing = writing;
	event.events = writing ? EPOLLIN | EPOLLOUT : EPOLLIN;
	event.data.u64 = i;
	if (epoll_ctl(drive->epoll, operation, PQsocket(session.client.connection.get()), &event) != 0)
		die("epoll_ctl", strerror(errno));
}

void
open_session(Drive *drive)
{
	const size_t i = drive->sessions.size();
	const Options &options = drive->options;

	drive->sessions.push_back(std::unique_ptr<Session>(
		new Session{Client(options.shape, &drive->messages, options.conninfo.c_str(), "worker " + std::to_string(i))}));
	PQsetnonblocking(drive->sessions[i]->client.connection.get(), 1);
	watch(drive, i, EPOLL_CTL_ADD, false);
}

void
flush(Drive *drive, size_t i)
{
	Session &session = *drive->sessions[i];
	const int rest = PQflush(session.client.connection.get());

	if (rest < 0)
		die("send", PQerrorMessage(session.client.connection.get()));
	if ((rest > 0) != session.writing)
		watch(drive, i, EPOLL_CTL_MOD, rest > 0);
}

void
send(Drive *drive, size_t i)
{
	Session &session = *drive->sessions[i];

	session.sent = now_ns();
	session.messages = 0;
	session.client.send(static_cast<Verb>(drive->cycle[session.place]));
	session.under_way = true;
	drive->under_way++;
	flush(drive, i);
}

// True when the answer is complete.
bool
receive(Drive *drive, Session *session)
{
	PGconn *connection = session->client.connection.get();
	const char verb = drive->cycle[session->place];

	if (PQconsumeInput(connection) == 0)
		die("receive", PQerrorMessage(connection));
	while (session->under_way && PQisBusy(connection) == 0)
	{
		const Result result(PQgetResult(connection), PQclear);
		if (session->client.ends(result))
		{
			const int64_t now = now_ns();
			drive->events[verb].push_back({now, now - session->sent, session->messages});
			drive->total[verb] += session->messages;
			session->under_way = false;
			drive->under_way--;
			return true;
		}
		if (result != nullptr)
			session->messages += session->client.take(static_cast<Verb>(verb), result);
	}
	return false;
}

// A claim that found nothing leaves nothing to complete. True at the end of the cycle.
bool
step(Drive *drive, Session *session)
{
	session->place++;
	while (session->place < drive->cycle.size() && drive->cycle[session->place] == COMPLETE &&
		   session->client.leases.empty())
		session->place++;
	if (session->place < drive->cycle.size())
		return false;
	session->place = 0;
	session->cycles++;
	return true;
}

// Each of the first n sessions goes through the cycle while go_on(it) holds.
void
go(Drive *drive, size_t n, const std::function<bool(const Session &)> &go_on)
{
	epoll_event ready[64];

	for (size_t i = 0; i < n; i++)
	{
		drive->sessions[i]->cycles = 0;
		send(drive, i);
	}
	while (drive->under_way > 0)
	{
		const int count = epoll_wait(drive->epoll, ready, 64, -1);
		for (int k = 0; k < count; k++)
		{
			const size_t i = ready[k].data.u64;
			Session *session = drive->sessions[i].get();
			if (session->writing)
				flush(drive, i);
			if (receive(drive, session) && (!step(drive, session) || go_on(*session)))
				send(drive, i);
		}
	}
}

// ---- figures

struct Reading {
	int64_t at;
	double backends, server, own, machine, wal, bytes;
};

double
number(const Connection &connection, const char *sql)
{
	const Result result(PQexec(connection.get(), sql), PQclear);

	must(sql, result);
	return atof(PQgetvalue(result.get(), 0, 0));
}

void
read_clocks(const Drive &drive, Reading *reading)
{
	reading->server = server_us(drive.options.postmaster);
	reading->backends = 0;
	for (const auto &session : drive.sessions)
		reading->backends += process_us(std::to_string(PQbackendPID(session->client.connection.get())));
	reading->own = own_us();
	reading->machine = machine_us();
	reading->at = now_ns();
}

void
read_counters(const Connection &side, Reading *reading)
{
	reading->bytes = number(side, "SELECT pg_database_size(current_database())");
	reading->wal = number(side, "SELECT pg_current_wal_insert_lsn() - '0/0'");
}

Reading
difference(const Reading &end, const Reading &start)
{
	return {end.at - start.at,           end.backends - start.backends, end.server - start.server, end.own - start.own,
			end.machine - start.machine, end.wal - start.wal,           end.bytes - start.bytes};
}

void
figure(const std::string &name, double value)
{
	printf("%s\t%.9g\n", name.c_str(), value);
}

double
quantile(std::vector<double> values, double q)
{
	if (values.empty())
		return 0;
	std::sort(values.begin(), values.end());
	return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

std::vector<double>
took_ms(const std::vector<Event> &events, int64_t from, int64_t to)
{
	std::vector<double> values;

	for (const Event &event : events)
		if (event.at >= from && event.at < to)
			values.push_back(static_cast<double>(event.took) / 1e6);
	return values;
}

long
messages_of(const std::vector<Event> &events, int64_t from, int64_t to)
{
	long sum = 0;

	for (const Event &event : events)
		if (event.at >= from && event.at < to)
			sum += event.messages;
	return sum;
}

// By completion if that is part of the cycle, else by what it ends with.
char
counted_verb(const Options &options)
{
	return options.cycle.find('d') != std::string::npos ? 'd' : options.cycle.back();
}

void
tell_window(Drive *drive, const std::string &name, int64_t from, int64_t to)
{
	const char verb = counted_verb(drive->options);

	figure(name + " messages/s",
		   static_cast<double>(messages_of(drive->events[verb], from, to)) * 1e9 / static_cast<double>(to - from));
	figure(name + " claim p99 ms", quantile(took_ms(drive->events[CLAIM], from, to), 0.99));
}

void
tell_latencies(Drive *drive, int64_t start, int64_t end)
{
	for (const auto &[verb, name] : std::map<char, std::string>{{ENQUEUE, "enqueue"},
																{CLAIM, "claim"},
																{COMPLETE, "complete"},
																{COMPLETE_AND_CLAIM, "complete and claim"}})
	{
		const std::vector<double> values = took_ms(drive->events[verb], start, end + 1);
		if (values.empty())
			continue;
		figure(name + " p50 ms", quantile(values, 0.5));
		figure(name + " p99 ms", quantile(values, 0.99));
	}
}

void
tell(Drive *drive, const Reading &start, const Reading &end)
{
	const Options &options = drive->options;
	const Reading used = difference(end, start);
	const double n = static_cast<double>(messages_of(drive->events[counted_verb(options)], start.at, end.at + 1));
	const double seconds = static_cast<double>(used.at) / 1e9;
	const auto window = static_cast<int64_t>(options.window * 1e9);

	if (n == 0)
		die("drive", "no message came through");
	figure("messages/s", n / seconds);
	figure("server us", used.backends / n);
	figure("WAL B", used.wal / n);
	figure("background us", (used.server - used.backends) / n);
	figure("client us", used.own / n);
	figure("others CPU %", 100 * (used.machine - used.server - used.own) / 1e6 / seconds /
							   static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)));
	figure("MB/million", used.bytes / n);
	tell_latencies(drive, start.at, end.at);
	if (window > 0)
	{
		tell_window(drive, "first", start.at, start.at + window);
		tell_window(drive, "last", end.at - window, end.at);
	}
}

// ---- an old snapshot

Connection
hold(Drive *drive, Client *client)
{
	Connection connection(nullptr, PQfinish);

	if (drive->options.hold == "snapshot")
	{
		connection = connect(drive->options.conninfo.c_str());
		run(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ");
		run(connection, "SELECT count(*) FROM pg_class");
	}
	else if (drive->options.hold == "producer")
	{
		run(client->connection, "BEGIN");
		drive->total[ENQUEUE] += client->call(ENQUEUE);
	}
	return connection;
}

// ---- phases

void
warm_up(Drive *drive)
{
	if (drive->options.count == 0 && drive->options.warm_up > 0)
		go(drive, drive->sessions.size(),
		   [&](const Session &session) { return session.cycles < drive->options.warm_up; });
}

void
measured(Drive *drive, int64_t start)
{
	const Options &options = drive->options;
	const int64_t end = start + static_cast<int64_t>(1e9 * options.seconds);
	const char verb = counted_verb(options);

	if (options.count == 0)
		go(drive, drive->sessions.size(),
		   [&](const Session &session) { return session.cycles < options.cycles || now_ns() < end; });
	else if (verb == ENQUEUE)
		go(drive, drive->sessions.size(), [&](const Session &) {
			return drive->total[verb] + drive->under_way * options.shape.batch < options.count;
		});
	else
		// Who finds nothing leaves the rest to the others.
		go(drive, drive->sessions.size(), [&](const Session &session) {
			return drive->total[verb] < options.count && !session.client.leases.empty();
		});
	if (options.count != 0 && drive->total[verb] != options.count)
		die("drive", "not the number of messages that was expected");
}

// What a session has claimed by f, and not yet completed.
void
finish(Drive *drive)
{
	for (const auto &session : drive->sessions)
		if (!session->client.leases.empty() && drive->options.cycle.back() == COMPLETE_AND_CLAIM)
			drive->total[COMPLETE] += session->client.call(COMPLETE);
}

void
drain(Drive *drive)
{
	drive->cycle = "cd";
	go(drive, 1, [](const Session &session) { return !session.client.leases.empty(); });
}

Options
parse(int argc, char **argv)
{
	Options options;
	const std::map<std::string, std::function<void(const std::string &)>> names = {
		{"conninfo", [&](const std::string &v) { options.conninfo = v; }},
		{"schema", [&](const std::string &v) { options.shape.schema = v; }},
		{"queue", [&](const std::string &v) { options.shape.queue = v; }},
		{"batch", [&](const std::string &v) { options.shape.batch = std::stoi(v); }},
		{"by_message", [&](const std::string &v) { options.shape.by_message = v != "0"; }},
		{"payload", [&](const std::string &v) { options.shape.payload = std::stoi(v); }},
		{"keys", [&](const std::string &v) { options.shape.keys = v != "0"; }},
		{"seed", [&](const std::string &v) { options.shape.seed = std::stoull(v); }},
		{"cycle", [&](const std::string &v) { options.cycle = v; }},
		{"sessions", [&](const std::string &v) { options.sessions = std::stoi(v); }},
		{"seconds", [&](const std::string &v) { options.seconds = std::stod(v); }},
		{"cycles", [&](const std::string &v) { options.cycles = std::stoi(v); }},
		{"count", [&](const std::string &v) { options.count = std::stol(v); }},
		{"warm_up", [&](const std::string &v) { options.warm_up = std::stoi(v); }},
		{"window", [&](const std::string &v) { options.window = std::stod(v); }},
		{"hold", [&](const std::string &v) { options.hold = v; }},
		{"drain", [&](const std::string &v) { options.drain = v != "0"; }},
		{"postmaster", [&](const std::string &v) { options.postmaster = v; }},
	};

	for (int i = 1; i < argc; i++)
	{
		const std::string argument = argv[i];
		const size_t at = argument.find('=');
		const auto found = names.find(argument.substr(0, at));
		if (at == std::string::npos || found == names.end())
			die("there is no such option", argv[i]);
		found->second(argument.substr(at + 1));
	}
	return options;
}

} // namespace

int
main(int argc, char **argv)
{
	const Options options = parse(argc, argv);
	Drive drive(options);
	const Connection side = connect(options.conninfo.c_str());

	drive.cycle = options.cycle;
	for (int i = 0; i < options.sessions; i++)
		open_session(&drive);
	warm_up(&drive);

	Shape one = options.shape;
	one.batch = 1;
	Client producer(one, &drive.messages, options.conninfo.c_str(), "producer");
	const Connection reader = hold(&drive, &producer);
	Reading start, end;
	read_counters(side, &start);
	read_clocks(drive, &start);
	measured(&drive, start.at);
	read_clocks(drive, &end);
	read_counters(side, &end);
	tell(&drive, start, end);

	if (reader != nullptr)
		run(reader, "COMMIT");
	if (options.hold == "producer")
		run(producer.connection, "COMMIT");
	finish(&drive);
	if (options.drain)
		drain(&drive);
	figure("enqueued", static_cast<double>(drive.total[ENQUEUE]));
	figure("completed", static_cast<double>(drive.total[COMPLETE] + drive.total[COMPLETE_AND_CLAIM]));
	return 0;
}
