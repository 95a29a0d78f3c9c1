// A connection to PostgreSQL that never blocks its thread.
//
// Guarantees: statements are sent in order, in pipeline mode, each in a transaction of its own, and answered in order;
// one that fails does not disturb the others. Connecting, which looks up names and may try several hosts, happens on a
// thread of its own. A server that does not answer for `patience` counts as gone. A connection that is broken says so
// once, through broken(); its statements get no answer then, and whether they were executed is not known.
#pragma once

#include "core/secret.h"
#include "core/uuid.h"
#include "db/trouble.h"

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <libpq-fe.h>
#include <poll.h>

namespace relay {

// An answer. Columns are in binary format.
class Rows {
public:
	explicit Rows(PGresult *result) : result(result, PQclear) {}

	[[nodiscard]] bool ok() const;
	[[nodiscard]] std::string sqlstate() const; // of an error
	[[nodiscard]] std::string error() const;    // redacted
	[[nodiscard]] Trouble trouble() const;      // of an error, with what to do
	[[nodiscard]] int count() const { return PQntuples(result.get()); }

	[[nodiscard]] bool null(int row, int column) const { return PQgetisnull(result.get(), row, column) != 0; }
	[[nodiscard]] std::string_view bytes(int row, int column) const;
	[[nodiscard]] std::string text(int row, int column) const { return std::string(bytes(row, column)); }
	[[nodiscard]] std::optional<std::string> maybe(int row, int column) const;
	[[nodiscard]] int32_t int4(int row, int column) const;
	[[nodiscard]] int64_t int8(int row, int column) const;
	[[nodiscard]] double float8(int row, int column) const;
	[[nodiscard]] bool boolean(int row, int column) const { return bytes(row, column) != std::string_view("\0", 1); }
	[[nodiscard]] Uuid uuid(int row, int column) const;
	[[nodiscard]] std::string jsonb(int row, int column) const // after its version
	{
		return std::string(bytes(row, column).substr(1));
	}
	// Microseconds since 1970.
	[[nodiscard]] int64_t timestamptz(int row, int column) const { return int8(row, column) + 946'684'800'000'000; }

private:
	std::unique_ptr<PGresult, decltype(&PQclear)> result;
};

// An argument of a statement: its value as text or in binary format, or NULL.
struct Parameter {
	Parameter(std::nullopt_t) {}
	Parameter(std::string text) : value(std::move(text)) {}
	Parameter(std::optional<std::string> text) : value(std::move(text)) {}
	static Parameter binary(std::string bytes)
	{
		Parameter parameter(std::move(bytes));

		parameter.is_binary = true;
		return parameter;
	}

	std::optional<std::string> value;
	bool is_binary = false;
};

using Parameters = std::vector<Parameter>;
using Texts = std::vector<std::optional<std::string>>;

// An array literal; an element without a value is NULL.
std::string array_literal(const Texts &elements);
std::string array_literal(const std::vector<std::string> &elements);
// A uuid[], binary: there are two for each message, and text costs either side more.
Parameter uuid_array(const std::vector<Uuid> &elements);

class Connection {
public:
	using Clock = std::chrono::steady_clock;
	using Done = std::function<void(Rows)>;

	static constexpr std::chrono::seconds patience{30};

	// Begins to connect. `wake` is called from another thread when there is something to see.
	Connection(const Secret &dsn, std::function<void()> wake);
	~Connection();
	Connection(const Connection &) = delete;
	Connection &operator=(const Connection &) = delete;

	// Takes what connecting came to. True once connected.
	bool connected();
	[[nodiscard]] bool broken() const { return trouble.has_value(); }
	[[nodiscard]] const Trouble &why() const { return *trouble; } // only if broken()

	void send(const std::string &statement, Parameters parameters, Done done);
	[[nodiscard]] size_t outstanding() const { return commands.size(); }

	// Sends what is possible.
	void flush();
	// An answer is there already, whatever poll() says.
	[[nodiscard]] bool answered() const;
	// What poll() shall wait for; nothing before it is connected.
	[[nodiscard]] std::optional<pollfd> interest() const;
	// Reads and writes what is possible; calls the Done of each answer, and `notified` with each notification's
	// payload.
	void pump(const std::function<void(const std::string &)> &notified);

private:
	struct Attempt; // shared with the thread that connects
	struct Command {
		Done done;
		Clock::time_point sent;
	};

	void fail(Trouble why);
	void fail(std::string why) { fail(Trouble{{}, std::move(why)}); }
	void take_results();

	std::shared_ptr<Attempt> attempt;
	std::unique_ptr<PGconn, decltype(&PQfinish)> connection{nullptr, PQfinish};
	std::deque<Command> commands;
	std::optional<Trouble> trouble;
	bool unsent = false;
};

} // namespace relay
