// The state machine: what is allowed was written down here a second time, from
// docs and api, and is compared for every state, event and ceiling.
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "state.h"

namespace {

using namespace outbox::core;

constexpr State all_states[] = {
	State::absent, State::pending, State::leased, State::expired, State::dispatched, State::failed,
};
constexpr Event all_events[] = {
	Event::enqueue,
	Event::enqueue_and_claim,
	Event::claim,
	Event::renew,
	Event::release,
	Event::release_exhausted,
	Event::complete_dispatched,
	Event::complete_failed,
	Event::complete_retryable,
	Event::lease_expiry,
	Event::repair,
	Event::cancel,
	Event::replay,
};
constexpr Record all_records[] = {
	Record::nothing, Record::dispatched, Record::failed, Record::retryable, Record::zombie_requeue,
};

struct Result {
	State to;
	Record record;

	bool operator==(const Result &) const = default;
};

using Allowed = std::optional<Result>;

static_assert(noexcept(outcome(State::absent, Event::enqueue, false)));
static_assert(noexcept(write_dot(nullptr, 0)));

Allowed
from_pending(Event event, bool at_ceiling)
{
	if (event == Event::claim && !at_ceiling)
		return Result{State::leased, Record::nothing};
	if (event == Event::claim || event == Event::cancel)
		return Result{State::failed, Record::failed};
	return {};
}

Allowed
from_leased(Event event, bool at_ceiling)
{
	switch (event)
	{
		case Event::renew:
			return Result{State::leased, Record::nothing};
		case Event::release:
			return Result{State::pending, Record::nothing};
		case Event::lease_expiry:
			return Result{State::expired, Record::nothing};
		case Event::complete_dispatched:
			return Result{State::dispatched, Record::dispatched};
		case Event::complete_failed:
			return Result{State::failed, Record::failed};
		case Event::cancel:
			return Result{State::failed, Record::failed};
		case Event::release_exhausted:
		case Event::complete_retryable:
			return at_ceiling ? Result{State::failed, Record::failed} : Result{State::pending, Record::retryable};
		default:
			return {};
	}
}

Allowed
from_expired(Event event, bool at_ceiling)
{
	if (event == Event::repair && !at_ceiling)
		return Result{State::pending, Record::zombie_requeue};
	if (event == Event::repair || event == Event::cancel)
		return Result{State::failed, Record::failed};
	return {};
}

Allowed
expected(State from, Event event, bool at_ceiling)
{
	switch (from)
	{
		case State::absent:
			if (event == Event::enqueue)
				return Result{State::pending, Record::nothing};
			if (event == Event::enqueue_and_claim)
				return Result{State::leased, Record::nothing};
			return {};
		case State::pending:
			return from_pending(event, at_ceiling);
		case State::leased:
			return from_leased(event, at_ceiling);
		case State::expired:
			return from_expired(event, at_ceiling);
		case State::dispatched:
			return {};
		case State::failed:
			return event == Event::replay ? Allowed(Result{State::failed, Record::nothing}) : Allowed();
	}
	return {};
}

std::vector<Transition>
rows()
{
	return {transitions, transitions + transition_count};
}

TEST(StateMachine, EveryCombination)
{
	int asked = 0, allowed = 0;

	for (State from : all_states)
		for (Event event : all_events)
			for (bool at_ceiling : {false, true})
			{
				const Transition *got = outcome(from, event, at_ceiling);
				const Allowed want = expected(from, event, at_ceiling);
				SCOPED_TRACE(std::string(name(from)) + " " + name(event) + (at_ceiling ? " at the ceiling" : ""));

				asked++;
				ASSERT_EQ(got != nullptr, want.has_value());
				if (got == nullptr)
					continue;
				allowed++;
				EXPECT_EQ(got->from, from);
				EXPECT_EQ(got->event, event);
				EXPECT_EQ(got->to, want->to);
				EXPECT_EQ(got->record, want->record);
			}
	EXPECT_EQ(asked, 156);
	EXPECT_EQ(allowed, 30);
}

TEST(StateMachine, WhatIsNoStateOrEventIsNotAllowed)
{
	EXPECT_EQ(outcome(static_cast<State>(99), Event::cancel, false), nullptr);
	EXPECT_EQ(outcome(State::pending, static_cast<Event>(99), true), nullptr);
}

TEST(StateMachine, RowsAreListedOnce)
{
	std::set<std::tuple<State, Event, bool>> seen;

	for (const Transition &row : rows())
		EXPECT_TRUE(seen.insert({row.from, row.event, row.at_ceiling}).second)
			<< name(row.from) << ' ' << name(row.event);
}

TEST(StateMachine, CeilingRowAlwaysHasItsCounterpart)
{
	for (const Transition &row : rows())
		if (row.at_ceiling)
		{
			const Transition *below = outcome(row.from, row.event, false);

			ASSERT_NE(below, nullptr);
			EXPECT_FALSE(below->at_ceiling);
			EXPECT_EQ(row.to, State::failed);
		}
}

TEST(StateMachine, TerminalOutcomesAreRecordedExactlyThen)
{
	for (const Transition &row : rows())
	{
		const bool ends = row.to != row.from && (row.to == State::dispatched || row.to == State::failed);

		EXPECT_EQ(row.record == Record::dispatched, ends && row.to == State::dispatched);
		EXPECT_EQ(row.record == Record::failed, ends && row.to == State::failed);
	}
}

TEST(StateMachine, NothingLeavesATerminalState)
{
	for (const Transition &row : rows())
		if (row.from == State::dispatched || row.from == State::failed)
		{
			EXPECT_EQ(row.to, row.from);
		}
}

TEST(StateMachine, EveryStateIsReachedFromAbsent)
{
	std::set<State> reached = {State::absent};

	for (size_t pass = 0; pass < std::size(all_states); pass++)
		for (const Transition &row : rows())
			if (reached.contains(row.from))
				reached.insert(row.to);
	EXPECT_EQ(reached.size(), std::size(all_states));
}

template <typename T, size_t n>
void
expect_distinct_names(const T (&values)[n])
{
	std::set<std::string> seen = {"unknown"};

	for (T value : values)
		EXPECT_TRUE(seen.insert(name(value)).second) << name(value);
	EXPECT_STREQ(name(static_cast<T>(n)), "unknown");
}

TEST(Names, AreDistinct)
{
	expect_distinct_names(all_states);
	expect_distinct_names(all_events);
	expect_distinct_names(all_records);
}

TEST(Names, OfStates)
{
	EXPECT_STREQ(name(State::absent), "absent");
	EXPECT_STREQ(name(State::pending), "pending");
	EXPECT_STREQ(name(State::leased), "leased");
	EXPECT_STREQ(name(State::expired), "expired");
	EXPECT_STREQ(name(State::dispatched), "dispatched");
	EXPECT_STREQ(name(State::failed), "failed");
}

TEST(Names, OfEvents)
{
	const char *names[] = {
		"enqueue",
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
		"replay",
	};

	for (size_t i = 0; i < std::size(all_events); i++)
		EXPECT_STREQ(name(all_events[i]), names[i]);
}

TEST(Names, OfRecordsAreTheLabelsOfTheEnum)
{
	EXPECT_STREQ(name(Record::nothing), "nothing");
	EXPECT_STREQ(name(Record::dispatched), "DISPATCHED");
	EXPECT_STREQ(name(Record::failed), "FAILED");
	EXPECT_STREQ(name(Record::retryable), "RETRYABLE");
	EXPECT_STREQ(name(Record::zombie_requeue), "ZOMBIE_REQUEUE");
}

} // namespace
