// The HTTP server of metrics, health checks and the status page.
//
// Guarantees: it answers GET and HEAD, and changes nothing. It serves no files, and no more than a few requests at a
// time; a slow client is cut off. An answer never waits for a database or a broker.
#pragma once

#include "seen/board.h"
#include "seen/history.h"
#include "seen/metrics.h"

#include <memory>
#include <stdexcept>
#include <string>

namespace relay {

class StatusServer {
public:
	// `listen`: ADDRESS:PORT; port 0 is any free one. [ADDRESS]:PORT needs a civetweb with IPv6,
	// which Debian's is not. Throws std::runtime_error if it cannot listen there. What it is given outlives it.
	StatusServer(const std::string &listen, const Metrics &metrics, Board &board, const History &history);
	~StatusServer();

	[[nodiscard]] int port() const;

private:
	struct Parts;
	std::unique_ptr<Parts> parts;
};

} // namespace relay
