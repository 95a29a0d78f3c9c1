// A connection to the database that takes the messages, for one thread that may block.
//
// Guarantees: no call lasts longer than its deadline, but for the look-up of names, and each ends early when the sink
// does. For certificates see db/conninfo.h.
#pragma once

#include "core/secret.h"

#include <libpq-fe.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace relay::postgres {

using Clock = std::chrono::steady_clock;
using Result = std::unique_ptr<PGresult, void (*)(PGresult *)>;
using Parameters = std::vector<std::optional<std::string>>; // as text

struct Failure {
	std::string code, sqlstate, text;
};

class Session {
public:
	Session(Secret dsn, std::string application, const std::atomic<bool> &closing)
		: dsn(std::move(dsn)), application(std::move(application)), closing(closing)
	{
	}

	[[nodiscard]] std::optional<Failure> connect(Clock::time_point deadline);
	// False also if the server has closed it since it was used.
	[[nodiscard]] bool connected();
	void close() { connection.reset(); }

	// The result, if the statement succeeded. The connection is closed after everything but an error of the statement.
	Result run(const std::string &statement, const Parameters &parameters, Clock::time_point deadline,
			   std::optional<Failure> &failure);

private:
	enum class Waited { ready, late };
	bool sent(Clock::time_point deadline);
	Waited wait(short events, Clock::time_point deadline);
	Failure lost(const char *code);

	Secret dsn;
	std::string application;
	const std::atomic<bool> &closing;
	std::unique_ptr<PGconn, void (*)(PGconn *)> connection{nullptr, PQfinish};
};

} // namespace relay::postgres
