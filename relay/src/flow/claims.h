// When to claim, and what a claim returns.
//
// Guarantees: a notification that comes while a claim is under way leads to another claim, since that one may have
// looked before. A claim that returned as many as it asked for leads to two at once, so that the server does not wait
// for the relay; one that returned fewer ends that. The end of a lease is counted from before the claim was sent, by
// this machine's clock, so it is never late.
#pragma once

#include "core/delivery.h"
#include "core/uuid.h"
#include "db/connection.h"
#include "flow/parcel.h"

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace relay {

struct Lease {
	Uuid outbox_id, token;
	Clock::time_point until, half; // at first; half: when to renew it
};

struct Claimed {
	std::unique_ptr<Delivery> delivery; // its message only
	Uuid event_id;
	Lease lease;
};

struct ClaimPlan {
	size_t size = 0;
	std::vector<std::string> queues;
	std::vector<int64_t> weights; // none, or one a queue
	uint64_t notified = 0;        // how many notifications had come before
	bool unread = false;          // without the text of the message
};

class Appetite {
public:
	void notified();
	[[nodiscard]] bool hungry() const { return level > outstanding; }
	[[nodiscard]] bool idle() const { return level == 0 && outstanding == 0; }
	void sent(ClaimPlan &plan);
	void answered(const ClaimPlan &plan, size_t got);
	void disconnected(); // what was under way is lost; claims again

private:
	size_t level = 1, outstanding = 0;
	uint64_t notifications = 0;
};

// The columns of a claim, and of complete_and_claim after its own.
extern const char *const claim_columns;
// Of these the columns of the message, to content_type; outbox_id is the first of the row.
Message decode_message(const Rows &rows, int row, int first_column);
Claimed decode(const Rows &rows, int row, int first_column, Clock::time_point sent);
// Without the text of the message.
extern const char *const unread_columns;
struct Unread {
	Uuid event_id{};
	int attempt = 0;
	Lease lease;
};
Unread decode_unread(const Rows &rows, int row, Clock::time_point sent);

// What is wrong with one message makes a whole claim fail: a text that has no form in UTF-8, or too much for a row.
bool is_about_a_message(std::string_view sqlstate);

// "{"events"}", or nothing for an empty one
std::optional<std::string> array_or_null(const std::vector<int64_t> &numbers);
std::optional<std::string> interval(std::optional<std::chrono::milliseconds> duration);

} // namespace relay
