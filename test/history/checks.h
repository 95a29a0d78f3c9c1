// What must be true of a history and of the tables that it left, whatever was killed,
// stopped, rolled back or set wrong meanwhile. Pure: no server, no clock.
//
// | check | says |
// |---|---|
// | messages | what was committed is there, what was not is nowhere and was never seen; a
// transaction is whole | | keys | one message a key, and all who used it were told of that one | |
// numbers | 1, 2, 3 ... a key, in the order of commits | | replays | a dead letter became at most
// one new message | | ledger | attempts count from 1 without gaps; the last and no other is
// terminal; no more than the ceiling | | reports | what was accepted is in the ledger as it was
// answered, what is in the ledger was accepted | | leases | each ended once; one at a time; none
// before its time; a stale token changed nothing | | order | in a fifo queue none is leased before all earlier
// ones of its key have ended, but with them; dead heads block where the queue says so | | limits | no more leases
// of a queue at a time than max_in_flight | | events | what was done in an audited queue has its audit event, and what
// was not has none | | counters | never fall, but for resets and crashes | | errors | none but
// those that the interface names |
#pragma once

#include <string>
#include <vector>

#include "facts.h"

struct Violation {
	std::string rule;
	std::string what;
	std::vector<std::string> about; // ids, tokens, tags: what to look for in the history
};

using Violations = std::vector<Violation>;

// All of them. Unknown outcomes in the history are settled.
Violations check(History &history);

void check_messages(const Facts &facts, Violations &found);
void check_keys(const Facts &facts, Violations &found);
void check_numbers(const Facts &facts, Violations &found);
void check_replays(const Facts &facts, Violations &found);
void check_ledger(const Facts &facts, Violations &found);
void check_reports(const Facts &facts, Violations &found);
void check_leases(const Facts &facts, const History &history, Violations &found);
void check_limits(const Facts &facts, Violations &found);
void check_order(const Facts &facts, const History &history, Violations &found);
void check_events(const Facts &facts, const History &history, Violations &found);
void check_counters(const History &history, Violations &found);
// The lease of a message behind another hangs on that one's, and may end untried.
bool is_behind_in_run(const Facts &facts, const Leased &lease);
void check_errors(const History &history, Violations &found);
