// What the programs of bench/ share: connections that end the program when they fail,
// and the clock.
#pragma once

#include <libpq-fe.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <poll.h>
#include <string>

using Connection = std::unique_ptr<PGconn, decltype(&PQfinish)>;
using Result = std::unique_ptr<PGresult, decltype(&PQclear)>;
using Notification = std::unique_ptr<PGnotify, decltype(&PQfreemem)>;

[[noreturn]] inline void
die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

// The clock by which the server's clock_timestamp() goes too, in nanoseconds.
inline int64_t
now_ns()
{
	timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

inline void
sleep_until(int64_t ns)
{
	const timespec until = {ns / 1000000000, ns % 1000000000};

	while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, nullptr) == EINTR)
		;
}

inline Connection
connect(const char *conninfo)
{
	Connection connection(PQconnectdb(conninfo), PQfinish);

	if (PQstatus(connection.get()) != CONNECTION_OK)
		die("connection", PQerrorMessage(connection.get()));
	return connection;
}

inline void
must(const char *what, const Result &result)
{
	const ExecStatusType status = PQresultStatus(result.get());

	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		die(what, PQresultErrorMessage(result.get()));
}

inline void
run(const Connection &connection, const char *sql)
{
	must(sql, Result(PQexec(connection.get(), sql), PQclear));
}

inline void
prepare(const Connection &connection, const char *sql, const char *name = "")
{
	must(sql, Result(PQprepare(connection.get(), name, sql, 0, nullptr), PQclear));
}

// Waits for notifications, and calls body(payload, ns) for each. The time is taken when the
// program has it in its hands.
template <typename Body>
void
hear(const Connection &connection, const Body &body)
{
	pollfd socket = {PQsocket(connection.get()), POLLIN, 0};

	// What came along with an answer is here already.
	for (bool heard = false; !heard;)
	{
		while (const Notification notification{PQnotifies(connection.get()), PQfreemem})
		{
			body(notification->extra, now_ns());
			heard = true;
		}
		if (heard)
			return;
		poll(&socket, 1, -1);
		if (PQconsumeInput(connection.get()) == 0)
			die("listener", PQerrorMessage(connection.get()));
	}
}
