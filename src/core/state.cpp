// Guarantee of state.h: the table below is all that can happen to a message.
//
// A row with at_ceiling applies at the ceiling only. A row without it applies to
// both cases, unless the same state and event also have a row with it. So a verb
// may always pass what it knows.
//
// Combinations are not listed: the claim of an expired row is repair, then claim; a
// replay makes a new message by enqueue.
#include "state.h"

#include <algorithm>
#include <iterator>

namespace outbox::core {

const Transition transitions[] = {
	{State::absent, Event::enqueue, false, State::pending, Record::nothing},
	{State::absent, Event::enqueue_and_claim, false, State::leased, Record::nothing},

	{State::pending, Event::claim, false, State::leased, Record::nothing},
	// The ceiling was lowered below the attempts already used.
	{State::pending, Event::claim, true, State::failed, Record::failed},
	{State::pending, Event::cancel, false, State::failed, Record::failed},

	{State::leased, Event::renew, false, State::leased, Record::nothing},
	{State::leased, Event::release, false, State::pending, Record::nothing},
	{State::leased, Event::release_exhausted, false, State::pending, Record::retryable},
	{State::leased, Event::release_exhausted, true, State::failed, Record::failed},
	{State::leased, Event::complete_dispatched, false, State::dispatched, Record::dispatched},
	{State::leased, Event::complete_failed, false, State::failed, Record::failed},
	{State::leased, Event::complete_retryable, false, State::pending, Record::retryable},
	{State::leased, Event::complete_retryable, true, State::failed, Record::failed},
	{State::leased, Event::lease_expiry, false, State::expired, Record::nothing},
	{State::leased, Event::cancel, false, State::failed, Record::failed},

	{State::expired, Event::repair, false, State::pending, Record::zombie_requeue},
	{State::expired, Event::repair, true, State::failed, Record::failed},
	{State::expired, Event::cancel, false, State::failed, Record::failed},

	{State::failed, Event::replay, false, State::failed, Record::nothing},
};

const size_t transition_count = sizeof(transitions) / sizeof(transitions[0]);

const Transition *
outcome(State from, Event event, bool at_ceiling) noexcept
{
	const Transition *either = nullptr;

	for (const Transition &row : transitions)
	{
		if (row.from != from || row.event != event)
			continue;
		if (row.at_ceiling == at_ceiling)
			return &row;
		if (!row.at_ceiling)
			either = &row;
	}
	return either;
}

namespace {

// In the order of the enumerations.
constexpr const char *state_names[] = {"absent", "pending", "leased", "expired", "dispatched", "failed"};
constexpr const char *event_names[] = {"enqueue",
									   "enqueue_and_claim",
									   "claim",
									   "renew",
									   "release",
									   "release_exhausted",
									   "complete_dispatched",
									   "complete_failed",
									   "complete_retryable",
									   "lease_expiry",
									   "repair",
									   "cancel",
									   "replay"};
// The labels of outbox.attempt_state.
constexpr const char *record_names[] = {"nothing", "DISPATCHED", "FAILED", "RETRYABLE", "ZOMBIE_REQUEUE"};

static_assert(std::size(state_names) == static_cast<size_t>(State::failed) + 1);
static_assert(std::size(event_names) == static_cast<size_t>(Event::replay) + 1);
static_assert(std::size(record_names) == records);

template <typename Enum, size_t n>
const char *
name_in(const char *const (&names)[n], Enum value) noexcept
{
	const size_t i = static_cast<size_t>(value);

	return i < n ? names[i] : "unknown";
}

} // namespace

const char *
name(State state) noexcept
{
	return name_in(state_names, state);
}

const char *
name(Event event) noexcept
{
	return name_in(event_names, event);
}

const char *
name(Record record) noexcept
{
	return name_in(record_names, record);
}

namespace {

// Counts what is put, keeps what fits.
struct Sink {
	char *buffer;
	size_t size;
	size_t length;

	void put(const char *text) noexcept
	{
		for (; *text != '\0'; text++, length++)
		{
			if (length + 1 < size)
				buffer[length] = *text;
		}
	}

	void terminate() noexcept
	{
		if (size > 0)
			buffer[std::min(length, size - 1)] = '\0';
	}
};

bool
is_final(State state) noexcept
{
	return std::none_of(transitions, transitions + transition_count,
						[state](const Transition &row) { return row.from == state && row.to != state; });
}

void
put_node(Sink &sink, State state) noexcept
{
	sink.put("\t");
	sink.put(name(state));
	if (state == State::absent)
		sink.put(" [shape=plaintext]");
	else if (is_final(state))
		sink.put(" [peripheries=2]");
	sink.put(";\n");
}

void
put_edge(Sink &sink, const Transition &row) noexcept
{
	sink.put("\t");
	sink.put(name(row.from));
	sink.put(" -> ");
	sink.put(name(row.to));
	sink.put(" [label=\"");
	sink.put(name(row.event));
	if (row.at_ceiling)
		sink.put(" at the ceiling");
	if (row.record != Record::nothing)
	{
		sink.put("\\nrecords ");
		sink.put(name(row.record));
	}
	sink.put(row.at_ceiling ? "\", style=dashed];\n" : "\"];\n");
}

} // namespace

size_t
write_dot(char *buffer, size_t size) noexcept
{
	Sink sink{buffer, size, 0};

	sink.put("digraph outbox {\n\trankdir=LR;\n\tnode [shape=box, style=rounded];\n");
	for (size_t i = 0; i < std::size(state_names); i++)
		put_node(sink, static_cast<State>(i));
	for (const Transition &row : transitions)
		put_edge(sink, row);
	sink.put("}\n");
	sink.terminate();
	return sink.length;
}

} // namespace outbox::core
