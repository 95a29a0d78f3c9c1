// The state machine: one table of transitions, from which the code, the
// documentation and outbox.state_diagram() are derived.
//
// Guarantee: only the transitions in this table happen. Each verb asks
// outcome() before it writes; a transition that is not listed is an error.
#pragma once

#include <cstddef>

namespace outbox::core {

// The states of a message. There is no DISPATCHING: in flight is a lease.
enum class State { absent, pending, leased, expired, dispatched, failed };

// What can happen to it.
enum class Event {
	enqueue,           // a producer's transaction
	enqueue_and_claim, // born leased
	claim,
	renew,
	release,
	release_exhausted, // a release beyond the queue's max_releases, which counts as a try
	complete_dispatched,
	complete_failed,
	complete_retryable,
	lease_expiry, // by time alone
	repair,       // by repair or by the claim that finds the expired lease
	cancel,
	replay // of a dead letter: makes a new message
};

// What the ledger gets.
enum class Record { nothing, dispatched, failed, retryable, zombie_requeue };
constexpr int records = static_cast<int>(Record::zombie_requeue) + 1;

struct Transition {
	State from;
	Event event;
	bool at_ceiling; // no further attempt is allowed after the one recorded
	State to;
	Record record;
};

extern const Transition transitions[];
extern const size_t transition_count;

// The listed transition; nullptr if it is not allowed. If no row is listed for the
// ceiling, the other row applies.
const Transition *outcome(State from, Event event, bool at_ceiling) noexcept;

const char *name(State state) noexcept;
const char *name(Event event) noexcept;
const char *name(Record record) noexcept;

// Graphviz DOT of the table. Writes at most size bytes with the final NUL,
// returns the length needed without it, as snprintf does.
size_t write_dot(char *buffer, size_t size) noexcept;

} // namespace outbox::core
