// See server.h.

#include "server.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "clients.h"

namespace {

std::string
from_environment(const char *name)
{
	const char *value = std::getenv(name);

	return value != nullptr ? value : "";
}

void
run(const std::string &command)
{
	if (std::system(command.c_str()) != 0)
		throw std::runtime_error("failed: " + command);
}

} // namespace

Server::Server()
	: data(from_environment("PGDATA")), preload(from_environment("HISTORY_PRELOAD")),
	  clock(preload.empty() ? "" : from_environment("HISTORY_CLOCK"))
{
	if (has_clock())
		set_clock(0);
}

// Who is killed within libfaketime's stat() leaves a semaphore behind that all others, the
// postmaster too, would wait for: so that function stays as it is.
void
Server::start()
{
	std::string environment;

	if (has_clock())
		environment = "LD_PRELOAD='" + preload + "' FAKETIME_TIMESTAMP_FILE='" + clock +
					  "' FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1 ";
	run(environment + "pg_ctl -D '" + data + "' -l '" + data + "/log' -w start >/dev/null");
	wait_until_it_answers();
}

void
Server::stop(const std::string &mode)
{
	run("pg_ctl -D '" + data + "' -m " + mode + " -w stop >/dev/null");
	connection.reset();
}

Answer
Server::ask(const std::string &sql)
{
	try
	{
		if (connection == nullptr)
			connection = std::make_unique<Connection>("history driver");
		return connection->run(sql);
	}
	catch (const std::runtime_error &broken)
	{
		connection.reset();
		throw Dead(broken.what());
	}
}

std::string
Server::value(const std::string &sql)
{
	Answer answer = ask(sql);

	return answer.ok() && !answer.rows.empty() && answer.rows[0][0] ? *answer.rows[0][0] : "";
}

void
Server::must(const std::string &sql)
{
	wait_until_it_answers();

	Answer answer = ask(sql);

	if (!answer.ok())
		throw std::runtime_error(answer.sqlstate + " " + answer.message + "\n" + sql);
}

bool
Server::answers()
{
	try
	{
		return ask("SELECT 1").ok();
	}
	catch (const Dead &)
	{
		return false;
	}
}

void
Server::wait_until_it_answers()
{
	while (!answers())
		pause_ms(10);
}

void
Server::wait_until_it_has_crashed()
{
	while (answers())
		pause_ms(2);
	wait_until_it_answers();
}

// The processes read the file at each look at the clock.
void
Server::set_clock(int64_t us)
{
	std::string draft = clock + ".new";
	char text[64];

	std::snprintf(text, sizeof(text), "%+.6f\n", static_cast<double>(us) / 1e6);
	std::ofstream(draft) << text;
	if (std::rename(draft.c_str(), clock.c_str()) != 0)
		throw std::runtime_error("cannot set the clock");
	error = us;
}
