// libpq for the differential test: connections whose calls may be left waiting, and
// answers as text.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <libpq-fe.h>

using Cell = std::optional<std::string>;
using Row = std::vector<Cell>;

struct Column {
	std::string name;
	bool is_time;
};

// What one statement brought: rows, or an SQLSTATE.
struct Answer {
	std::string sqlstate; // empty: it succeeded
	std::string message;
	std::vector<Column> columns;
	std::vector<Row> rows;
	long affected = 0;

	bool ok() const { return sqlstate.empty(); }
	int column(const std::string &name) const; // -1: there is none
};

class Connection {
public:
	explicit Connection(const std::string &application_name);
	~Connection();
	Connection(const Connection &) = delete;
	Connection &operator=(const Connection &) = delete;

	int pid() const { return PQbackendPID(conn); }
	bool in_transaction() const { return PQtransactionStatus(conn) != PQTRANS_IDLE; }
	bool in_failed_transaction() const { return PQtransactionStatus(conn) == PQTRANS_INERROR; }

	Answer run(const std::string &sql);
	Answer must(const std::string &sql); // throws if it fails

	// Several statements in one round trip, each prepared when it comes for the first time.
	// Those that have a parameter get this one.
	std::vector<Answer> must_all(const std::vector<std::string> &statements, const std::string &parameter);

	void send(const std::string &sql);
	bool ready(int timeout_ms); // waits at most so long for the answer
	Answer receive();

private:
	PGconn *conn;
	std::map<std::string, std::string> prepared; // statement, name

	[[noreturn]] void broken(const std::string &doing);
};

// Microseconds since 1970 of a timestamptz in ISO style, and back.
int64_t parse_time(const std::string &text);
std::string format_time(int64_t us);

std::string quoted(const std::string &text);
