// Calls every SQL function of the extensions with random and nasty arguments, as several
// roles, in several sessions, inside transactions of all kinds.
//
// Proves that no call crashes the server or raises an internal error (SQLSTATE class XX), that
// the server warns of no leak, that a session's memory does not grow, and that in the end the
// tables are consistent and outbox.check() finds no error.
//
// The functions are those that pg_depend says belong to the extensions, but for those of
// triggers, which PL/pgSQL refuses to call, and keeps memory each time: a new one is called
// without being named here. One process and one seed decide everything but what depends on
// time; what is open in one session makes another wait, until its statement times out.
//
//   fuzz SEED SECONDS
//
// Prints TAP. What fails is printed with the statements of its session since the last BEGIN.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <stdexcept>

#include <libpq-fe.h>

#include "values.h"

namespace {

using Rows = std::vector<std::vector<std::string>>;

struct Function {
	std::string name; // qualified, quoted
	bool is_procedure;
	std::vector<std::string> argument_names, argument_types;
	size_t required;
};

struct Result {
	std::string sqlstate, message; // empty: it succeeded
	std::vector<std::string> columns;
	Rows rows;
};

const std::vector<std::string> extensions = {"outbox", "outbox_payment", "outbox_m10"};
const char *const timeout = "SET statement_timeout = '300ms'"; // of calls that wait for another session, or for ever
// What a session's memory contexts hold, but for the caches, which fill up. From 18 on a context
// is told by its path instead of its parent's name.
const char *const used_by_parent =
	"SELECT name, sum(used_bytes) FROM pg_backend_memory_contexts "
	"WHERE name <> 'CacheMemoryContext' AND parent IS DISTINCT FROM 'CacheMemoryContext' GROUP BY 1";
const char *const used_by_path =
	"WITH c AS MATERIALIZED (SELECT name, used_bytes, path, level FROM pg_backend_memory_contexts) "
	"SELECT name, sum(used_bytes) FROM c WHERE name <> 'CacheMemoryContext' AND path[level - 1] IS DISTINCT FROM "
	"(SELECT path[level] FROM c WHERE name = 'CacheMemoryContext') GROUP BY 1";
const char *const leaks[] = {"leak", "still active", "not closed", "alloc set", "chunk", "you don't own", "TRAP"};

std::string
join(const std::vector<std::string> &parts, const char *separator)
{
	std::string result;

	for (const std::string &part : parts)
		result += (result.empty() ? "" : separator) + part;
	return result;
}

class Session {
public:
	explicit Session(int number) : number(number), conn(PQconnectdb("application_name=fuzz"))
	{
		if (PQstatus(conn) != CONNECTION_OK)
			throw std::runtime_error(PQerrorMessage(conn));
		PQsetNoticeReceiver(conn, notice, this);
	}
	~Session() { PQfinish(conn); }
	Session(const Session &) = delete;

	Result run(const std::string &sql);
	Result must(const std::string &sql);
	// From here on no statement times out, as this one may.
	void let_finish()
	{
		while (run("SET statement_timeout = 0").sqlstate == "57014")
			;
	}
	PGTransactionStatusType status() const { return PQtransactionStatus(conn); }

	std::string faults; // what it was told of

private:
	int number;
	PGconn *conn;
	std::deque<std::string> said; // since the last BEGIN

	static void notice(void *session, const PGresult *result);
	void fault(const std::string &what);
};

void
Session::fault(const std::string &what)
{
	faults += what + "\n";
	std::printf("# session %d: %s\n", number, what.c_str());
	for (const std::string &sql : said)
		std::printf("#   %s;\n", sql.substr(0, 3000).c_str());
	std::fflush(stdout);
}

void
Session::notice(void *session, const PGresult *result)
{
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	std::string message = text != nullptr ? text : "";

	for (const char *leak : leaks)
		if (message.find(leak) != std::string::npos)
			static_cast<Session *>(session)->fault("warned: " + message);
}

Result
Session::run(const std::string &sql)
{
	Result answer;
	PGresult *result;

	if (status() == PQTRANS_IDLE)
		said.clear();
	said.push_back(sql);
	result = PQexec(conn, sql.c_str());
	if (PQresultStatus(result) == PGRES_FATAL_ERROR || PQresultStatus(result) == PGRES_BAD_RESPONSE)
	{
		const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

		answer.sqlstate = state != nullptr ? state : "connection lost";
		answer.message = PQresultErrorMessage(result);
		if (PQstatus(conn) == CONNECTION_BAD || answer.sqlstate.compare(0, 2, "XX") == 0)
			fault(answer.sqlstate + ": " + answer.message);
	}
	for (int i = 0; i < PQnfields(result); i++)
		answer.columns.push_back(PQfname(result, i));
	for (int i = 0; i < PQntuples(result); i++)
	{
		answer.rows.emplace_back();
		for (int j = 0; j < PQnfields(result); j++)
			answer.rows.back().push_back(PQgetvalue(result, i, j));
	}
	PQclear(result);
	if (PQstatus(conn) == CONNECTION_BAD)
		throw std::runtime_error("the connection is lost");
	return answer;
}

Result
Session::must(const std::string &sql)
{
	Result result = run(sql);

	if (!result.sqlstate.empty())
		throw std::runtime_error(sql + ": " + result.message);
	return result;
}

class Fuzzer {
public:
	explicit Fuzzer(unsigned seed) : values(seed)
	{
		for (int i = 0; i < 3; i++)
			sessions.push_back(std::make_unique<Session>(i));
		prepare();
	}

	void step();
	void end();
	using Contexts = std::map<std::string, long>;
	std::vector<Contexts> memory();
	long growth(const std::vector<Contexts> &before);
	void report();

	std::string faults() const;

private:
	Values values;
	std::vector<std::unique_ptr<Session>> sessions;
	std::vector<Function> functions;
	std::vector<std::string> views, settings, queues;
	std::map<std::string, std::map<std::string, long>> outcomes; // of each function: SQLSTATE, how often
	long steps = 0;

	void prepare();
	void look();
	void begin(Session &session);
	void call(Session &session);
	std::string arguments(const Function &function);
	void learn(const Result &result);
	std::string outside();
	std::string inside();
};

void
Fuzzer::prepare()
{
	Session &session = *sessions[0];
	std::string members =
		"(SELECT objid FROM pg_depend JOIN pg_extension e ON e.oid = refobjid WHERE deptype = 'e' AND "
		"refclassid = 'pg_extension'::regclass AND extname LIKE 'outbox%' AND classid = ";

	session.must("SET client_min_messages = error");
	for (const std::string &name : extensions)
		session.must("CREATE EXTENSION IF NOT EXISTS " + name);
	session.must("SET search_path = ''"); // all names come out qualified
	for (const char *name : {"ingest", "executor", "operator", "nobody"})
	{
		std::string role = std::string("fuzz_") + name;

		session.run("CREATE ROLE " + role);
		session.run("GRANT outbox_" + std::string(name) + " TO " + role);
	}
	session.must("SELECT outbox.maintain()");
	session.must(
		"SELECT outbox.create_queue('numbered', ordering => 'numbered'), outbox.create_queue('fast', repair_delay => '0', max_attempts => 2)");
	for (
		const auto &row :
		session
			.must(
				"SELECT format('%I.%I', pronamespace::regnamespace::text, proname), prokind = 'p', pronargs - pronargdefaults, "
				"coalesce(array_to_string(proargnames[1:pronargs], ','), ''), "
				"(SELECT coalesce(string_agg(format_type(a, NULL), ';' ORDER BY i), '') FROM unnest(proargtypes::oid[]) WITH ORDINALITY u (a, i)) "
				"FROM pg_proc WHERE oid IN " +
				members +
				"'pg_proc'::regclass) AND prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype) ORDER BY 1, 4, 5")
			.rows)
	{
		Function function{row[0], row[1] == "t", {}, {}, std::stoul(row[2])};
		auto split = [](const std::string &text, char by, std::vector<std::string> *parts) {
			for (size_t at = 0; at < text.size();)
			{
				size_t end = std::min(text.find(by, at), text.size());

				parts->push_back(text.substr(at, end - at));
				at = end + 1;
			}
		};

		split(row[3], ',', &function.argument_names);
		split(row[4], ';', &function.argument_types);
		function.argument_names.resize(function.argument_types.size());
		functions.push_back(function);
	}
	for (const auto &row : session
							   .must("SELECT oid::regclass FROM pg_class WHERE relkind IN ('v', 'r', 'p') AND oid IN " +
									 members + "'pg_class'::regclass) ORDER BY 1::text")
							   .rows)
		views.push_back(row[0]);
	for (
		const auto &row :
		session
			.must(
				"SELECT format_type(t.oid, NULL), t.typcategory, CASE WHEN t.typcategory = 'A' THEN format_type(t.typelem, NULL) ELSE '' END, "
				"(SELECT coalesce(string_agg(enumlabel, ',' ORDER BY enumsortorder), '') FROM pg_enum WHERE enumtypid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END) "
				"FROM pg_type t WHERE typisdefined")
			.rows)
	{
		Type type{row[0], row[1][0], row[2], {}};

		for (size_t at = 0; at < row[3].size();)
		{
			size_t end = std::min(row[3].find(',', at), row[3].size());

			type.labels.push_back(row[3].substr(at, end - at));
			at = end + 1;
		}
		values.types[type.name] = type;
	}
	// Of the whole server's settings, those that a session may set.
	for (const auto &row :
		 session.must("SELECT name FROM pg_settings WHERE name LIKE 'outbox.%' AND context = 'user' ORDER BY 1").rows)
		settings.push_back(row[0]);
	for (auto &each : sessions)
	{
		each->must(timeout);
		each->must("SET client_min_messages = warning");
	}
	look();
}

// What there is to be named.
void
Fuzzer::look()
{
	Session watcher(-1);

	watcher.must("SET lock_timeout = '300ms'");
	values.ids.clear();
	values.queues.clear();
	for (const auto &row : watcher.must("SELECT outbox_id FROM outbox.messages ORDER BY outbox_id DESC LIMIT 100").rows)
		values.ids.push_back(row[0]);
	// Those of the extensions come back when they were dropped.
	for (const std::string &queue : queues)
		watcher.run("SELECT outbox.create_queue(" + quoted(queue) +
					") WHERE NOT EXISTS (SELECT FROM outbox.queues WHERE queue = " + quoted(queue) + ")");
	for (const auto &row : watcher.must("SELECT queue FROM outbox.queues ORDER BY queue LIMIT 50").rows)
		values.queues.push_back(row[0]);
	if (queues.empty())
		queues = values.queues;
}

// A claim's answer, whoever gave it.
void
Fuzzer::learn(const Result &result)
{
	auto column = [&](const char *name) {
		return std::find(result.columns.begin(), result.columns.end(), name) - result.columns.begin();
	};
	size_t id = column("outbox_id"), token = column("lease_token"), number = column("id");

	for (const auto &row : result.rows)
	{
		if (id < row.size() && token < row.size() && !row[token].empty())
			values.leases.push_back({row[id], row[token], values.worker});
		if (number < row.size() && !row[number].empty())
			values.numbers.push_back(row[number]);
	}
	if (values.leases.size() > 30)
		values.leases.erase(values.leases.begin(), values.leases.end() - 30);
	if (values.numbers.size() > 30)
		values.numbers.erase(values.numbers.begin(), values.numbers.end() - 30);
}

std::string
Fuzzer::arguments(const Function &function)
{
	size_t all = function.argument_types.size();
	size_t positional = values.below(all + 1);
	std::vector<std::string> parts;

	values.begin_call();
	for (size_t i = 0; i < all; i++)
	{
		std::string value;

		if (i >= function.required && values.once_in(i >= positional ? 2 : 12))
			positional = std::min(positional, i);
		else
		{
			value = values.argument(function.argument_names[i], function.argument_types[i], i >= function.required);
			if (value.empty())
			{
				positional = std::min(positional, i);
				continue;
			}
			if (i >= positional && !function.argument_names[i].empty())
				value = function.argument_names[i] + " => " + value;
			parts.push_back(value);
		}
	}
	return join(parts, ", ");
}

void
Fuzzer::call(Session &session)
{
	const Function &function = values.one_of(functions);
	std::string called = function.name + "(" + arguments(function) + ")";
	std::string sql;
	Result result;

	switch (function.is_procedure ? 99 : values.below(12))
	{
		case 99:
			sql = "CALL " + called;
			break;
		case 0:
			sql = "SELECT " + called;
			break;
		case 1:
			sql = "SELECT " + called + " FROM generate_series(1, 3)";
			break;
		case 2:
			sql = "SELECT " + called + " LIMIT 1";
			break;
		case 3:
			sql = "SELECT (" + called + ").* FROM generate_series(1, 2)";
			break;
		case 4:
			sql = "DO $do$ BEGIN PERFORM " + called + "; EXCEPTION WHEN OTHERS THEN PERFORM " + called + "; END $do$";
			break;
		case 5:
			sql = "DECLARE c" + std::to_string(values.below(1000)) + " CURSOR FOR SELECT " + called +
				  " FROM generate_series(1, 3)";
			break;
		case 6:
			sql = "WITH a AS MATERIALIZED (SELECT " + called + "), b AS MATERIALIZED (SELECT " + called +
				  ") SELECT * FROM a, b";
			break;
		default:
			sql = "SELECT * FROM " + called;
			break;
	}
	result = session.run(sql);
	if (result.sqlstate.empty() && sql.compare(0, 7, "DECLARE") == 0)
		session.run("FETCH " + std::to_string(values.below(3)) + " FROM " + sql.substr(8, sql.find(' ', 8) - 8));
	outcomes[function.name][result.sqlstate.empty() ? "ok" : result.sqlstate]++;
	if (result.sqlstate.empty())
		learn(result);
}

// Statements that come between calls, in no transaction and in one.
std::string
Fuzzer::outside()
{
	// A deferrable transaction takes its snapshot before any savepoint: the server does not survive, with assertions,
	// that the wait for one is cancelled in a savepoint, and tried again after that is rolled back.
	static const std::vector<std::string> begins = {"BEGIN",
													"BEGIN",
													"BEGIN",
													"BEGIN ISOLATION LEVEL REPEATABLE READ",
													"BEGIN ISOLATION LEVEL SERIALIZABLE",
													"BEGIN READ ONLY",
													"BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE; SELECT 1",
													"BEGIN ISOLATION LEVEL READ UNCOMMITTED"};
	static const std::vector<std::string> roles = {"SET ROLE fuzz_ingest",
												   "SET ROLE fuzz_executor",
												   "SET ROLE fuzz_operator",
												   "RESET ROLE",
												   "RESET ROLE",
												   "RESET ROLE",
												   "RESET ROLE",
												   "RESET ROLE",
												   "RESET ROLE",
												   "RESET ROLE",
												   "RESET ROLE",
												   "SET ROLE fuzz_nobody"};
	static const std::vector<std::string> others = {"SET force_parallel_mode = on",
													"RESET force_parallel_mode",
													"SET timezone = 'Asia/Kathmandu'",
													"SET timezone = 'UTC'",
													"SET datestyle = 'German'",
													"SET datestyle = 'ISO'",
													"SET intervalstyle = 'sql_standard'",
													"SET search_path = outbox, public",
													"SET search_path = ''",
													"RESET search_path",
													"SET default_transaction_read_only = on",
													"SET default_transaction_read_only = off",
													"SET bytea_output = 'escape'",
													"SET synchronous_commit = off",
													"SET plan_cache_mode = force_generic_plan",
													"SET work_mem = '64kB'",
													"RESET work_mem",
													"SET enable_indexscan = off",
													"RESET enable_indexscan"};

	switch (values.below(8))
	{
		case 0:
			return values.one_of(roles);
		case 1:
			return values.one_of(others);
		case 2:
			if (!settings.empty() && values.once_in(2))
				return "SET " + values.one_of(settings) + " = " + (values.once_in(2) ? "on" : "off");
			return values.once_in(4) ? "COMMIT PREPARED 'fuzz" + std::to_string(values.below(4)) + "'"
									 : "ROLLBACK PREPARED 'fuzz" + std::to_string(values.below(4)) + "'";
		default:
			return values.one_of(begins);
	}
}

std::string
Fuzzer::inside()
{
	std::string savepoint = "s" + std::to_string(values.below(3));

	switch (values.below(14))
	{
		case 0:
		case 1:
			return "SAVEPOINT " + savepoint;
		case 2:
		case 3:
			return "ROLLBACK TO " + savepoint;
		case 4:
			return "RELEASE " + savepoint;
		case 5:
			return "PREPARE TRANSACTION 'fuzz" + std::to_string(values.below(4)) + "'";
		case 6:
			return "SET LOCAL ROLE fuzz_executor";
		case 7:
		case 8:
			return "ROLLBACK";
		default:
			return "COMMIT";
	}
}

void
Fuzzer::step()
{
	Session &session = *sessions[values.below(sessions.size())];
	PGTransactionStatusType status = session.status();

	if (++steps % 200 == 0)
		look();
	if (status == PQTRANS_INERROR)
		session.run(values.once_in(2) ? "ROLLBACK" : "ROLLBACK TO s" + std::to_string(values.below(3)));
	else if (values.once_in(25))
		session.run("SELECT * FROM " + values.one_of(views) + " LIMIT 20");
	else if (values.once_in(status == PQTRANS_IDLE ? 6 : 4))
		session.run(status == PQTRANS_IDLE ? outside() : inside());
	else
		call(session);
}

// Of each session, by memory context, between transactions. What the server's caches hold is
// left out: it grows with what was looked at.
std::vector<Fuzzer::Contexts>
Fuzzer::memory()
{
	std::vector<Contexts> all;

	for (auto &session : sessions)
	{
		Contexts &contexts = all.emplace_back();

		if (session->status() != PQTRANS_IDLE)
			session->run("ROLLBACK");
		session->let_finish();
		session->must("RESET ROLE");
		bool paths = std::stoi(session->must("SHOW server_version_num").rows[0][0]) >= 180000;
		for (const auto &row : session->must(paths ? used_by_path : used_by_parent).rows)
			contexts[row[0]] = std::stol(row[1]);
		session->must(timeout);
	}
	return all;
}

// The greatest growth of a session.
long
Fuzzer::growth(const std::vector<Contexts> &before)
{
	std::vector<Contexts> after = memory();
	long most = 0;

	for (size_t i = 0; i < after.size(); i++)
	{
		long sum = 0;

		for (const auto &[name, bytes] : after[i])
		{
			auto old = before[i].find(name);
			long grown = bytes - (old != before[i].end() ? old->second : 0);

			sum += grown;
			if (grown > 8192)
				std::printf("# session %zu, %s: %ld bytes more\n", i, name.c_str(), grown);
		}
		most = std::max(most, sum);
	}
	return most;
}

void
Fuzzer::end()
{
	Session &session = *sessions[0];

	for (auto &each : sessions)
	{
		if (each->status() != PQTRANS_IDLE)
			each->run("ROLLBACK");
		each->let_finish();
		each->must("RESET ALL");
		each->must("RESET ROLE");
	}
	for (int i = 0; i < 4; i++)
		session.run("ROLLBACK PREPARED 'fuzz" + std::to_string(i) + "'");
}

void
Fuzzer::report()
{
	for (const auto &[name, states] : outcomes)
	{
		std::vector<std::string> parts;

		for (const auto &[state, n] : states)
			parts.push_back(state + " " + std::to_string(n));
		std::printf("# %s: %s\n", name.c_str(), join(parts, ", ").c_str());
	}
	for (const Function &function : functions)
		if (outcomes[function.name].count("ok") == 0)
			std::printf("# never succeeded: %s\n", function.name.c_str());
}

std::string
Fuzzer::faults() const
{
	std::string all;

	for (const auto &session : sessions)
		all += session->faults;
	return all;
}

int failures;
void
tap(int number, bool ok, const char *name)
{
	failures += !ok;
	std::printf("%s %d - %s\n", ok ? "ok" : "not ok", number, name);
}

void
run(unsigned seed, int seconds)
{
	using clock = std::chrono::steady_clock;
	Fuzzer fuzzer(seed);
	auto until = [](clock::time_point end, Fuzzer &fuzzer) {
		long n = 0;

		while (clock::now() < end && fuzzer.faults().empty())
		{
			fuzzer.step();
			n++;
		}
		return n;
	};
	auto began = clock::now();
	long steps = until(began + std::chrono::seconds(seconds) / 2, fuzzer);
	auto before = fuzzer.memory();
	long grown;

	steps += until(began + std::chrono::seconds(seconds), fuzzer);
	grown = fuzzer.growth(before);
	fuzzer.end();
	fuzzer.report();
	std::printf("# %ld steps; a session grew by %ld bytes in the second half\n", steps, grown);
	tap(1, fuzzer.faults().empty(), "no internal error, no warning of a leak");
	tap(2, grown < 256 * 1024, "no session grows");
}

} // namespace

int
main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	try
	{
		run(static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10)), std::atoi(argv[2]));
	}
	catch (const std::exception &e)
	{
		std::printf("# %s\nnot ok 1 - no internal error, no warning of a leak\n", e.what());
		return 1;
	}
	return failures > 0;
}
