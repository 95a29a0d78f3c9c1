// See connection.h.

#include "connection.h"

#include <chrono>
#include <cstdio>
#include <stdexcept>

#include <poll.h>

namespace {

constexpr Oid timestamptz_oid = 1184;
const char *const no_sqlstate = "no SQLSTATE";

void
ignore_notice(void *, const PGresult *)
{
}

Answer
read_result(const PGresult *result)
{
	Answer answer;

	if (PQresultStatus(result) == PGRES_FATAL_ERROR)
	{
		const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
		const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

		answer.sqlstate = sqlstate != nullptr ? sqlstate : no_sqlstate;
		answer.message = message != nullptr ? message : PQresultErrorMessage(result);
		return answer;
	}
	answer.affected = std::atol(PQcmdTuples(const_cast<PGresult *>(result)));
	for (int i = 0; i < PQnfields(result); i++)
		answer.columns.push_back({PQfname(result, i), PQftype(result, i) == timestamptz_oid});
	for (int i = 0; i < PQntuples(result); i++)
	{
		Row &row = answer.rows.emplace_back();

		for (int j = 0; j < PQnfields(result); j++)
		{
			if (PQgetisnull(result, i, j))
				row.emplace_back();
			else
				row.emplace_back(PQgetvalue(result, i, j));
		}
	}
	return answer;
}

} // namespace

int
Answer::column(const std::string &name) const
{
	for (size_t i = 0; i < columns.size(); i++)
		if (columns[i].name == name)
			return static_cast<int>(i);
	return -1;
}

Connection::Connection(const std::string &application_name)
	: conn(PQconnectdb(("application_name=" + quoted(application_name)).c_str()))
{
	if (PQstatus(conn) != CONNECTION_OK)
		broken("connect");
	PQsetNoticeReceiver(conn, ignore_notice, nullptr);
}

Connection::~Connection()
{
	PQfinish(conn);
}

void
Connection::broken(const std::string &doing)
{
	throw std::runtime_error("cannot " + doing + ": " + PQerrorMessage(conn));
}

void
Connection::send(const std::string &sql)
{
	if (!PQsendQuery(conn, sql.c_str()))
		broken("send");
}

bool
Connection::ready(int timeout_ms)
{
	pollfd waiting = {PQsocket(conn), POLLIN, 0};

	for (;;)
	{
		if (PQflush(conn) < 0 || !PQconsumeInput(conn))
			broken("receive");
		if (!PQisBusy(conn))
			return true;
		if (poll(&waiting, 1, timeout_ms) <= 0)
			return false;
	}
}

Answer
Connection::receive()
{
	Answer last;

	while (PGresult *result = PQgetResult(conn))
	{
		last = read_result(result);
		PQclear(result);
	}
	// An error of libpq's own has no SQLSTATE.
	if (PQstatus(conn) != CONNECTION_OK || last.sqlstate == no_sqlstate)
		broken("receive");
	return last;
}

Answer
Connection::run(const std::string &sql)
{
	send(sql);
	return receive();
}

Answer
Connection::must(const std::string &sql)
{
	Answer answer = run(sql);

	if (!answer.ok())
		throw std::runtime_error(answer.sqlstate + " " + answer.message + "\n" + sql);
	return answer;
}

std::vector<Answer>
Connection::must_all(const std::vector<std::string> &statements, const std::string &parameter)
{
	const char *value = parameter.c_str();
	std::vector<Answer> answers;

	for (const std::string &sql : statements)
	{
		if (prepared.contains(sql))
			continue;

		std::string name = "statement " + std::to_string(prepared.size());

		must("PREPARE \"" + name + "\" AS " + sql);
		prepared[sql] = name;
	}
	if (!PQenterPipelineMode(conn))
		broken("enter pipeline mode");
	for (const std::string &sql : statements)
	{
		int parameters = sql.find("$1") == std::string::npos ? 0 : 1;

		if (!PQsendQueryPrepared(conn, prepared[sql].c_str(), parameters, &value, nullptr, nullptr, 0))
			broken("send");
	}
	if (!PQpipelineSync(conn))
		broken("send");
	for (const std::string &sql : statements)
	{
		answers.push_back(receive());
		if (!answers.back().ok())
			throw std::runtime_error(answers.back().sqlstate + " " + answers.back().message + "\n" + sql);
	}
	PQclear(PQgetResult(conn)); // the sync point
	if (!PQexitPipelineMode(conn))
		broken("leave pipeline mode");
	return answers;
}

int64_t
parse_time(const std::string &text)
{
	int year, month, day, hour, minute, second, length;
	int64_t us = 0;

	if (std::sscanf(text.c_str(), "%d-%d-%d %d:%d:%d%n", &year, &month, &day, &hour, &minute, &second, &length) != 6)
		throw std::runtime_error("no timestamp: " + text);

	const char *rest = text.c_str() + length;

	if (*rest == '.')
	{
		int64_t unit = 100000;

		for (rest++; *rest >= '0' && *rest <= '9'; rest++, unit /= 10)
			us += (*rest - '0') * unit;
	}

	// The zone: +HH, +HH:MM or +HH:MM:SS.
	int zone[3] = {};
	int sign = *rest == '-' ? -1 : 1;

	std::sscanf(rest + 1, "%d:%d:%d", &zone[0], &zone[1], &zone[2]);

	std::chrono::sys_days date = std::chrono::year(year) / month / day;
	int64_t seconds = date.time_since_epoch().count() * int64_t{86400} + hour * 3600 + minute * 60 + second -
					  sign * (zone[0] * 3600 + zone[1] * 60 + zone[2]);

	return seconds * 1000000 + us;
}

std::string
format_time(int64_t us)
{
	std::chrono::sys_time<std::chrono::microseconds> time{std::chrono::microseconds(us)};
	auto date = std::chrono::floor<std::chrono::days>(time);
	std::chrono::year_month_day ymd(date);
	std::chrono::hh_mm_ss clock(time - date);
	char text[64];

	std::snprintf(text, sizeof(text), "%04d-%02u-%02u %02d:%02d:%02d.%06d+00", static_cast<int>(ymd.year()),
				  static_cast<unsigned>(ymd.month()), static_cast<unsigned>(ymd.day()),
				  static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
				  static_cast<int>(clock.seconds().count()), static_cast<int>(clock.subseconds().count()));
	return text;
}

std::string
quoted(const std::string &text)
{
	std::string result = "'";

	for (char c : text)
	{
		if (c == '\'')
			result += '\'';
		result += c;
	}
	return result + "'";
}
