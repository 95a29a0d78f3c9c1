// The status page and its JSON.
//
// Guarantees: the page shows everything without JavaScript; the script only puts newer content in its place. All that
// comes from outside (names of queues and sinks, errors) is redacted and escaped. No style or script stands in the page
// itself, so that its Content-Security-Policy allows none.
#pragma once

#include "seen/board.h"
#include "seen/history.h"

#include <chrono>
#include <map>
#include <string>
#include <string_view>

namespace relay {

struct PageData {
	bool ready = false;
	std::string problem; // of Board::ready
	std::map<std::string, SourceState> sources;
	std::map<std::string, SinkState> sinks;
	std::map<std::string, Rates> claimed;
	std::map<std::string, SinkRates> rates;
	std::chrono::system_clock::time_point now;
	std::chrono::steady_clock::time_point steady_now;
};

PageData page_data(const Board &board, const History &history);

std::string page(const PageData &data);
std::string page_content(const PageData &data); // what changes: the inside of <main>
std::string status_json(const PageData &data);

extern const std::string_view page_style, page_script;

} // namespace relay
