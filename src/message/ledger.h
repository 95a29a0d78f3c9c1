// The ledger: attempts, and reading them. Appending is in record.h.
//
// Guarantees: attempt_no is the greatest in the ledger + 1; the change of the pending row that
// follows fails if it is outdated. The unique indexes of the leaf are the backstop, also for terminal
// attempts. Rows are only inserted.
#pragma once

#include "core/state.h"
#include "rows/call.h"

namespace outbox {

// A worker's report on an attempt.
struct Details {
	text *reference;
	text *response_code;
	text *error_code;
	text *error_message;
	bool has_latency;
	int latency_ms;
};

struct Attempt {
	core::Uuid outbox_id;
	text *queue;
	int attempt_no;
	core::Record state;
	bool optimistic; // under the lease that enqueue_and_claim gave
	bool lost;       // that lease expired
	bool leased;     // worker_id, lease_token and claimed_at are set
	text *worker_id;
	core::Uuid lease_token;
	TimestampTz claimed_at;
	Details details;
	text *recorded_by;
	Wait wait; // for the dead_letter_queue, if it is FAILED
};

// The state of a message by its ledger.
struct Tried {
	int attempts;  // the greatest attempt_no, 0 = none
	bool terminal; // it has ended
};
Tried tried(Call *call, const core::Uuid &id);
// The same for many ids of one leaf, ascending. known[i] is false if the walk did not reach the id.
void tried_all(Table *leaf, const core::Uuid *ids, int count, Tried *tried, bool *known);

// The number after it. If there is none: 22003, raised or, for an item of a batch, in *sqlstate.
int next_attempt_no(const Tried &before, const core::Uuid &id, int *sqlstate = nullptr);

// The attempt that was recorded under a token.
struct Recorded {
	int attempt_no; // 0 = none
	core::Record state;
	bool cancelled; // an operator ended the message
	bool broken;    // an operator broke the lease
	bool released;  // a release that counted as a try
};
Recorded recorded_under(Call *call, const core::Uuid &id, const core::Uuid &token);

// error_code and error_message of the last attempt, with a colon between them.
const char *last_error_recorded(Call *call, const core::Uuid &id);

// The terminal attempt.
Recorded recorded_end(Call *call, const core::Uuid &id);

// The error_codes of the outbox itself.
extern const char cancelled_code[];
extern const char broken_code[];
extern const char expired_code[];
extern const char exhausted_code[];
extern const char released_code[];

Datum state_datum(Call *call, core::Record state);
core::Record state_of(Call *call, Datum state);

inline bool
is_terminal(core::Record state)
{
	return state == core::Record::dispatched || state == core::Record::failed;
}

} // namespace outbox
