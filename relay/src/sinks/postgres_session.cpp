#include "sinks/postgres_session.h"

#include "db/conninfo.h"
#include "sinks/postgres_codes.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <poll.h>
#include <string_view>

namespace relay::postgres {

using namespace std::chrono_literals;

namespace {

std::string
trimmed(std::string text)
{
	text.erase(text.find_last_not_of(" \n") + 1);
	return text;
}

} // namespace

std::optional<Failure>
Session::connect(Clock::time_point deadline)
{
	std::vector<const char *> names, values;
	auto before = connection_defaults(dsn);
	auto add = [&](const char *name, const std::string &value) {
		names.push_back(name);
		values.push_back(value.c_str());
	};
	for (const auto &[name, value] : before)
		add(name, value);
	add("fallback_application_name", application);
	add("dbname", dsn.reveal());
	const std::string encoding = "UTF8";
	add("client_encoding", encoding);
	names.push_back(nullptr);
	values.push_back(nullptr);

	connection.reset(PQconnectStartParams(names.data(), values.data(), 1));
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;
	while (PQstatus(connection.get()) != CONNECTION_BAD && status != PGRES_POLLING_OK && status != PGRES_POLLING_FAILED)
	{
		if (wait(status == PGRES_POLLING_READING ? POLLIN : POLLOUT, deadline) == Waited::late)
		{
			close();
			return Failure{"POSTGRES_CONNECTION_FAILED", "", "the server does not answer"};
		}
		status = PQconnectPoll(connection.get());
	}
	if (PQstatus(connection.get()) != CONNECTION_OK || PQsetnonblocking(connection.get(), 1) != 0)
		return lost("POSTGRES_CONNECTION_FAILED");
	return {};
}

bool
Session::connected()
{
	if (!connection)
		return false;
	// Twice: the first takes what came, the second sees the end after it.
	bool well = PQconsumeInput(connection.get()) == 1 && PQconsumeInput(connection.get()) == 1 &&
				PQstatus(connection.get()) == CONNECTION_OK;
	// Nothing is running, so what comes now is the server's farewell.
	if (!well || (PQisBusy(connection.get()) == 0 && Result(PQgetResult(connection.get()), PQclear)))
		close();
	return connection != nullptr;
}

Result
Session::run(const std::string &statement, const Parameters &parameters, Clock::time_point deadline,
			 std::optional<Failure> &failure)
{
	std::vector<const char *> values;
	for (const auto &parameter : parameters)
		values.push_back(parameter ? parameter->c_str() : nullptr);
	Result last(nullptr, PQclear);
	if (PQsendQueryParams(connection.get(), statement.c_str(), static_cast<int>(values.size()), nullptr, values.data(),
						  nullptr, nullptr, 0) != 1)
	{
		failure = lost("POSTGRES_CONNECTION_LOST");
		return last;
	}
	const auto give_up = [&] {
		close();
		failure = Failure{"POSTGRES_TIMEOUT", "", "the function has not returned in time"};
		return Result(nullptr, PQclear);
	};
	if (!sent(deadline))
		return give_up();
	for (;;)
	{
		if (PQisBusy(connection.get()) == 0)
		{
			Result next(PQgetResult(connection.get()), PQclear);
			if (!next)
				break;
			last = std::move(next);
			continue;
		}
		if (wait(POLLIN, deadline) == Waited::late)
			return give_up();
		if (PQconsumeInput(connection.get()) != 1 && PQstatus(connection.get()) != CONNECTION_BAD)
			break;
	}
	ExecStatusType status = PQresultStatus(last.get());
	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
		return last;
	const char *sqlstate = PQresultErrorField(last.get(), PG_DIAG_SQLSTATE);
	if (sqlstate)
		failure = Failure{code_of(sqlstate), sqlstate, trimmed(PQresultErrorMessage(last.get()))};
	if (PQstatus(connection.get()) != CONNECTION_OK || !sqlstate)
	{
		Failure broken = lost("POSTGRES_CONNECTION_LOST");
		failure = failure ? *failure : broken;
	}
	return {nullptr, PQclear};
}

// False if the server does not take it in time. If the connection breaks, the result says so.
bool
Session::sent(Clock::time_point deadline)
{
	while (PQflush(connection.get()) > 0)
	{
		if (wait(POLLIN | POLLOUT, deadline) == Waited::late)
			return false;
		if (PQconsumeInput(connection.get()) != 1)
			break;
	}
	return true;
}

// In slices, so that the end of the sink is seen.
Session::Waited
Session::wait(short events, Clock::time_point deadline)
{
	pollfd one{PQsocket(connection.get()), events, 0};
	while (!closing && Clock::now() < deadline)
		if (poll(&one, 1, 100) > 0)
			return Waited::ready;
	return Waited::late;
}

Failure
Session::lost(const char *code)
{
	Failure failure{code, "", trimmed(PQerrorMessage(connection.get()))};
	close();
	return failure;
}

} // namespace relay::postgres
