// What a source is told by others, on whichever thread: results, a change of routes, a stop.
#pragma once

#include "flow/mailbox.h"
#include "flow/routing.h"

#include <variant>

namespace relay {

struct Nudge {};
struct StopBy {
	Clock::time_point when;
};

class Inbox final : public Results {
public:
	using Event = std::variant<Result, Nudge, StopBy, std::shared_ptr<const Routing>>;

	void ended(Result result) override { box.put(std::move(result)); }
	void flush() override { box.flush(); }
	void nudge() override { box.post(Nudge{}); }

	Mailbox<Event> box;
};

} // namespace relay
