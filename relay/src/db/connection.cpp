#include "db/connection.h"

#include "db/conninfo.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include <sys/ioctl.h>

namespace relay {

namespace {

template <class T>
T
big_endian(std::string_view bytes)
{
	T value = 0;

	for (size_t i = 0; i < sizeof(T) && i < bytes.size(); i++)
		value = static_cast<T>(value << 8) | static_cast<unsigned char>(bytes[i]);
	return value;
}

std::string
trimmed(const char *text)
{
	std::string result = redact(text != nullptr ? text : "");

	while (!result.empty() && (result.back() == '\n' || result.back() == ' '))
		result.pop_back();
	return result;
}

// 0: no limit.
std::chrono::seconds
connect_timeout(PGconn *connection)
{
	std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)> options(PQconninfo(connection), PQconninfoFree);

	for (const auto *one = options.get(); one != nullptr && one->keyword != nullptr; one++)
	{
		if (strcmp(one->keyword, "connect_timeout") == 0 && one->val != nullptr)
			return std::chrono::seconds(std::max(std::atoi(one->val), 0));
	}
	return {};
}

// False if it takes longer than connect_timeout.
bool
wait_for_server(PGconn *connection)
{
	const auto timeout = connect_timeout(connection);
	const auto until = Connection::Clock::now() + timeout;
	auto left = [&] {
		using std::chrono::milliseconds;
		if (timeout.count() == 0)
			return -1;
		return static_cast<int>(
			std::max(std::chrono::ceil<milliseconds>(until - Connection::Clock::now()), milliseconds(0)).count());
	};

	for (auto step = PGRES_POLLING_WRITING; step != PGRES_POLLING_OK && step != PGRES_POLLING_FAILED;
		 step = PQconnectPoll(connection))
	{
		pollfd socket{PQsocket(connection), static_cast<short>(step == PGRES_POLLING_READING ? POLLIN : POLLOUT), 0};

		if (poll(&socket, 1, left()) == 0)
			return false;
	}
	return true;
}

// As PQconnectdbParams(), but messages of the server have the SQLSTATE: the verbosity is set before it answers.
// PQconnectPoll() ignores connect_timeout: if a host does not answer, PQreset() starts again and gives each host that
// time. The connection string may change what stands before it, and not what stands after it.
PGconn *
connect(const Secret &dsn)
{
	auto parameters = connection_defaults(dsn);
	std::vector<const char *> names, values;

	parameters.emplace_back("connect_timeout", "10");
	parameters.emplace_back("target_session_attrs", "read-write");
	parameters.emplace_back("fallback_application_name", "outbox-relay");
	parameters.emplace_back("dbname", dsn.reveal());
	parameters.emplace_back("client_encoding", "UTF8");
	for (const auto &[name, value] : parameters)
	{
		names.push_back(name);
		values.push_back(value.c_str());
	}
	names.push_back(nullptr);
	values.push_back(nullptr);

	PGconn *made = PQconnectStartParams(names.data(), values.data(), 1);
	PQsetErrorVerbosity(made, PQERRORS_VERBOSE);
	if (PQstatus(made) != CONNECTION_BAD && !wait_for_server(made))
		PQreset(made);
	return made;
}

bool
is_on(const PGconn *connection, const char *parameter)
{
	const char *value = PQparameterStatus(connection, parameter);

	return value != nullptr && strcmp(value, "on") == 0;
}

// An answer that is large takes longer than a server that is silent is waited for.
bool
something_came(const PGconn *connection)
{
	int bytes = 0;

	return ioctl(PQsocket(connection), FIONREAD, &bytes) == 0 && bytes > 0;
}

// libpq itself finds that a server takes no writes, or asks for a password that is missing, and has no code for these.
Trouble
why_not_connected(const PGconn *connection)
{
	Trouble trouble = connection_trouble(PQerrorMessage(connection));

	if (!trouble.code.empty())
		return trouble;
	if (is_on(connection, "in_hot_standby") || is_on(connection, "default_transaction_read_only"))
		return read_only_trouble(std::move(trouble.text));
	if (PQconnectionNeedsPassword(connection) == 1)
		return password_trouble(std::move(trouble.text));
	return trouble;
}

} // namespace

bool
Rows::ok() const
{
	auto status = PQresultStatus(result.get());

	return status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
}

std::string
Rows::sqlstate() const
{
	const char *state = PQresultErrorField(result.get(), PG_DIAG_SQLSTATE);

	return state != nullptr ? state : "";
}

std::string
Rows::error() const
{
	const char *text = PQresultErrorField(result.get(), PG_DIAG_MESSAGE_PRIMARY);

	return trimmed(text != nullptr ? text : PQresultErrorMessage(result.get()));
}

Trouble
Rows::trouble() const
{
	return {sqlstate(), with_remedy(error(), statement_remedy(sqlstate()))};
}

std::string_view
Rows::bytes(int row, int column) const
{
	return {PQgetvalue(result.get(), row, column), static_cast<size_t>(PQgetlength(result.get(), row, column))};
}

std::optional<std::string>
Rows::maybe(int row, int column) const
{
	if (null(row, column))
		return {};
	return text(row, column);
}

int32_t
Rows::int4(int row, int column) const
{
	return static_cast<int32_t>(big_endian<uint32_t>(bytes(row, column)));
}

int64_t
Rows::int8(int row, int column) const
{
	return static_cast<int64_t>(big_endian<uint64_t>(bytes(row, column)));
}

double
Rows::float8(int row, int column) const
{
	return std::bit_cast<double>(big_endian<uint64_t>(bytes(row, column)));
}

Uuid
Rows::uuid(int row, int column) const
{
	Uuid result{};

	bytes(row, column).copy(reinterpret_cast<char *>(result.data()), result.size());
	return result;
}

std::string
array_literal(const Texts &elements)
{
	std::string result = "{";

	for (const auto &element : elements)
	{
		if (result.size() > 1)
			result += ',';
		if (!element)
		{
			result += "NULL";
			continue;
		}
		result += '"';
		for (char c : *element)
		{
			if (c == '"' || c == '\\')
				result += '\\';
			result += c;
		}
		result += '"';
	}
	return result += '}';
}

std::string
array_literal(const std::vector<std::string> &elements)
{
	return array_literal(Texts(elements.begin(), elements.end()));
}

Parameter
uuid_array(const std::vector<Uuid> &elements)
{
	constexpr uint32_t uuid_type = 2950;
	std::string result;
	auto add = [&](uint32_t number) {
		for (int shift = 24; shift >= 0; shift -= 8)
			result += static_cast<char>(number >> shift);
	};

	result.reserve(20 + 20 * elements.size());
	add(elements.empty() ? 0 : 1); // dimensions
	add(0);                        // no NULL
	add(uuid_type);
	if (!elements.empty())
	{
		add(static_cast<uint32_t>(elements.size()));
		add(1); // the first index
	}
	for (const Uuid &uuid : elements)
	{
		add(static_cast<uint32_t>(uuid.size()));
		result.append(reinterpret_cast<const char *>(uuid.data()), uuid.size());
	}
	return Parameter::binary(std::move(result));
}

struct Connection::Attempt {
	std::mutex mutex;
	PGconn *made = nullptr;
	bool abandoned = false;
};

Connection::Connection(const Secret &dsn, std::function<void()> wake) : attempt(std::make_shared<Attempt>())
{
	// If it is given up meanwhile, the thread closes what it made.
	std::thread([dsn, wake = std::move(wake), shared = attempt] {
		PGconn *made = connect(dsn);
		bool abandoned;
		{
			std::lock_guard lock(shared->mutex);
			abandoned = shared->abandoned;
			if (!abandoned)
				shared->made = made;
			// Not after the lock: the one who is woken may be gone then.
			if (!abandoned)
				wake();
		}
		if (abandoned)
			PQfinish(made);
	}).detach();
}

Connection::~Connection()
{
	std::lock_guard lock(attempt->mutex);
	attempt->abandoned = true;
	if (attempt->made != nullptr)
		PQfinish(attempt->made);
}

bool
Connection::connected()
{
	if (connection || broken())
		return !broken();

	std::lock_guard lock(attempt->mutex);
	if (attempt->made == nullptr)
		return false;
	connection.reset(attempt->made);
	attempt->made = nullptr;
	PQsetErrorVerbosity(connection.get(), PQERRORS_DEFAULT);
	if (PQstatus(connection.get()) != CONNECTION_OK)
		fail(why_not_connected(connection.get()));
	else if (PQsetnonblocking(connection.get(), 1) != 0 || PQenterPipelineMode(connection.get()) != 1)
		fail(trimmed(PQerrorMessage(connection.get())));
	return !broken();
}

void
Connection::fail(Trouble why)
{
	if (why.text.empty())
		why.text = "the connection is closed";
	if (!trouble)
		trouble = std::move(why);
}

void
Connection::send(const std::string &statement, Parameters parameters, Done done)
{
	std::vector<const char *> values;
	std::vector<int> lengths, formats;

	for (const auto &[value, is_binary] : parameters)
	{
		values.push_back(value ? value->c_str() : nullptr);
		lengths.push_back(value ? static_cast<int>(value->size()) : 0);
		formats.push_back(is_binary ? 1 : 0);
	}
	commands.push_back({std::move(done), Clock::now()});
	if (PQsendQueryParams(connection.get(), statement.c_str(), static_cast<int>(values.size()), nullptr, values.data(),
						  lengths.data(), formats.data(), 1) != 1 ||
		PQpipelineSync(connection.get()) != 1)
		fail(trimmed(PQerrorMessage(connection.get())));
	unsent = true;
}

std::optional<pollfd>
Connection::interest() const
{
	if (!connection || broken())
		return {};
	return pollfd{PQsocket(connection.get()), static_cast<short>(POLLIN | (unsent ? POLLOUT : 0)), 0};
}

void
Connection::pump(const std::function<void(const std::string &)> &notified)
{
	if (!connection || broken())
		return;
	const bool heard = something_came(connection.get());
	if (PQconsumeInput(connection.get()) != 1)
		return fail(trimmed(PQerrorMessage(connection.get())));
	if (heard && !commands.empty())
		commands.front().sent = Clock::now();
	flush();
	take_results();
	while (PGnotify *notify = PQnotifies(connection.get()))
	{
		std::string payload = notify->extra;

		PQfreemem(notify);
		notified(payload);
	}
	if (PQstatus(connection.get()) != CONNECTION_OK)
		fail(trimmed(PQerrorMessage(connection.get())));
	else if (!commands.empty() && Clock::now() - commands.front().sent > patience)
		fail("the server has not answered for " + std::to_string(patience.count()) + " s");
}

void
Connection::flush()
{
	if (!connection || broken() || !unsent)
		return;
	int left = PQflush(connection.get());
	if (left < 0)
		return fail(trimmed(PQerrorMessage(connection.get())));
	unsent = left > 0;
}

bool
Connection::answered() const
{
	return connection && !broken() && !commands.empty() && PQisBusy(connection.get()) == 0;
}

// Of each statement comes one result, a null pointer, and the sync that ends it.
void
Connection::take_results()
{
	bool ended = false; // the last one was a null pointer

	while (!commands.empty() && !broken() && PQisBusy(connection.get()) == 0)
	{
		PGresult *result = PQgetResult(connection.get());

		if (result == nullptr)
		{
			if (ended)
				return;
			ended = true;
			continue;
		}
		ended = false;
		if (PQresultStatus(result) == PGRES_PIPELINE_SYNC)
		{
			PQclear(result);
			commands.pop_front();
			// The server was busy with the ones before until now.
			if (!commands.empty())
				commands.front().sent = Clock::now();
			continue;
		}
		Rows rows(result);
		if (PQstatus(connection.get()) != CONNECTION_OK)
			return fail({rows.sqlstate(), rows.error()});
		if (commands.front().done)
			std::exchange(commands.front().done, nullptr)(std::move(rows));
	}
}

} // namespace relay
