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

const char *
name(State state) noexcept
{
	switch (state)
	{
		case State::absent:
			return "absent";
		case State::pending:
			return "pending";
		case State::leased:
			return "leased";
		case State::expired:
			return "expired";
		case State::dispatched:
			return "dispatched";
		case State::failed:
			return "failed";
	}
	return "unknown";
}

const char *
name(Event event) noexcept
{
	switch (event)
	{
		case Event::enqueue:
			return "enqueue";
		case Event::enqueue_and_claim:
			return "enqueue_and_claim";
		case Event::claim:
			return "claim";
		case Event::renew:
			return "renew";
		case Event::release:
			return "release";
		case Event::release_exhausted:
			return "release_exhausted";
		case Event::complete_dispatched:
			return "complete_dispatched";
		case Event::complete_failed:
			return "complete_failed";
		case Event::complete_retryable:
			return "complete_retryable";
		case Event::lease_expiry:
			return "lease_expiry";
		case Event::repair:
			return "repair";
		case Event::cancel:
			return "cancel";
		case Event::replay:
			return "replay";
	}
	return "unknown";
}

// The labels of outbox.attempt_state.
const char *
name(Record record) noexcept
{
	switch (record)
	{
		case Record::nothing:
			return "nothing";
		case Record::dispatched:
			return "DISPATCHED";
		case Record::failed:
			return "FAILED";
		case Record::retryable:
			return "RETRYABLE";
		case Record::zombie_requeue:
			return "ZOMBIE_REQUEUE";
	}
	return "unknown";
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

constexpr State states[] = {
	State::absent, State::pending, State::leased, State::expired, State::dispatched, State::failed,
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
	for (State state : states)
		put_node(sink, state);
	for (const Transition &row : transitions)
		put_edge(sink, row);
	sink.put("}\n");
	sink.terminate();
	return sink.length;
}

} // namespace outbox::core
