// Sagas without a database: the transitions as they are published, and what comes next.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "saga.h"
#include "seed.h"

namespace {

using namespace outbox::core;
using Step = StepStatus;

// subject, from, to, by
using Row = std::vector<std::string>;

std::vector<Row>
rows_of_core()
{
	std::vector<Row> rows;

	for (size_t i = 0; i < saga_transition_count; i++)
		rows.push_back(
			{"saga", label(saga_transitions[i].from), label(saga_transitions[i].to), saga_transitions[i].by});
	for (size_t i = 0; i < step_transition_count; i++)
		rows.push_back(
			{"step", label(step_transitions[i].from), label(step_transitions[i].to), step_transitions[i].by});
	return rows;
}

// The lines from behind the one that begins with `first` to the one that does not begin with `each`.
std::vector<std::string>
lines_behind(const char *file, const std::string &first, const std::string &each)
{
	std::ifstream in(file);
	std::vector<std::string> lines;
	std::string line;

	while (std::getline(in, line) && line.find(first) != 0)
		;
	while (std::getline(in, line) && line.find(each) == 0)
		lines.push_back(line);
	EXPECT_FALSE(lines.empty()) << file << " has no line that begins with " << first;
	return lines;
}

// What stands between `open` and `close`, again and again.
Row
fields(const std::string &line, const std::string &open, const std::string &close)
{
	Row row;

	for (size_t begin = line.find(open); begin != std::string::npos;)
	{
		const size_t end = line.find(close, begin + open.size());

		if (end == std::string::npos)
			break;
		row.push_back(line.substr(begin + open.size(), end - begin - open.size()));
		begin = line.find(open, open == close ? end + close.size() : end);
	}
	return row;
}

TEST(Saga, DocumentationShowsTheTransitions)
{
	std::vector<Row> shown;

	for (const std::string &line : lines_behind("../../docs/saga.md", "<!-- saga transitions -->", "|"))
		shown.push_back(fields(line, "| ", " |"));
	ASSERT_GT(shown.size(), 2u);
	EXPECT_EQ(std::vector<Row>(shown.begin() + 2, shown.end()), rows_of_core());
}

TEST(Saga, TableHasTheTransitions)
{
	std::vector<Row> rows;

	for (const std::string &line :
		 lines_behind("../../extensions/saga/sql/outbox_saga--0.2.0.sql", "INSERT INTO saga.transitions", "\t('"))
		rows.push_back(fields(line, "'", "'"));
	EXPECT_EQ(rows, rows_of_core());
}

TEST(Saga, OnlyListedStatusesFollow)
{
	std::set<std::pair<SagaStatus, SagaStatus>> sagas;
	std::set<std::pair<Step, Step>> steps;

	for (size_t i = 0; i < saga_transition_count; i++)
		EXPECT_TRUE(sagas.insert({saga_transitions[i].from, saga_transitions[i].to}).second) << "twice";
	for (size_t i = 0; i < step_transition_count; i++)
		EXPECT_TRUE(steps.insert({step_transitions[i].from, step_transitions[i].to}).second) << "twice";
	for (int from = 0; from <= static_cast<int>(SagaStatus::unheard_of); from++)
		for (int to = 0; to <= static_cast<int>(SagaStatus::unheard_of); to++)
		{
			const SagaStatus a = static_cast<SagaStatus>(from);
			const SagaStatus b = static_cast<SagaStatus>(to);

			EXPECT_EQ(may_follow(a, b), sagas.contains({a, b})) << label(a) << " > " << label(b);
			EXPECT_FALSE(may_follow(a, b) && has_ended(a)) << label(a) << " > " << label(b);
		}
	for (int from = 0; from <= static_cast<int>(Step::unheard_of); from++)
		for (int to = 0; to <= static_cast<int>(Step::unheard_of); to++)
			EXPECT_EQ(may_follow(static_cast<Step>(from), static_cast<Step>(to)),
					  steps.contains({static_cast<Step>(from), static_cast<Step>(to)}));
}

TEST(Saga, LabelsAreRead)
{
	for (int i = 0; i < static_cast<int>(SagaStatus::unheard_of); i++)
		EXPECT_EQ(saga_status(label(static_cast<SagaStatus>(i))), static_cast<SagaStatus>(i));
	for (int i = 0; i < static_cast<int>(Step::unheard_of); i++)
		EXPECT_EQ(step_status(label(static_cast<Step>(i))), static_cast<Step>(i));
	EXPECT_EQ(saga_status("done"), SagaStatus::unheard_of);
	EXPECT_EQ(saga_status(""), SagaStatus::unheard_of);
	EXPECT_EQ(step_status("SENT"), Step::unheard_of);
}

StepState
step(Step status, int stage = 1, bool can_undo = true, bool answered = false, int rounds = 0)
{
	return {status, answered, rounds, stage, can_undo};
}

TEST(Saga, OneAnswerCounts)
{
	EXPECT_TRUE(is_awaited(step(Step::sent), Direction::forward, 1));
	EXPECT_TRUE(is_awaited(step(Step::compensated), Direction::forward, 1)) << "it was never answered";
	EXPECT_FALSE(is_awaited(step(Step::succeeded, 1, true, true), Direction::forward, 1));
	EXPECT_FALSE(is_awaited(step(Step::sent), Direction::compensate, 0));
	EXPECT_TRUE(is_awaited(step(Step::compensating, 1, true, true, 2), Direction::compensate, 2));
	EXPECT_FALSE(is_awaited(step(Step::compensating, 1, true, true, 2), Direction::compensate, 1));
	EXPECT_TRUE(is_awaited(step(Step::uncompensated, 1, true, true, 1), Direction::compensate, 1));
	EXPECT_FALSE(is_awaited(step(Step::compensated, 1, true, true, 1), Direction::compensate, 1));

	EXPECT_FALSE(is_late(step(Step::sent), Direction::forward));
	EXPECT_TRUE(is_late(step(Step::unknown), Direction::forward));
	EXPECT_FALSE(is_late(step(Step::succeeded, 1, true, true), Direction::forward));
	EXPECT_FALSE(is_late(step(Step::unknown), Direction::compensate));

	EXPECT_TRUE(would_be_forgotten(step(Step::failed, 1, true, true), Direction::forward));
	EXPECT_TRUE(would_be_forgotten(step(Step::compensated, 1, true, true, 1), Direction::forward));
	EXPECT_FALSE(would_be_forgotten(step(Step::succeeded, 1, true, true), Direction::forward));
	EXPECT_FALSE(would_be_forgotten(step(Step::compensated, 1, true, false, 1), Direction::forward));
	EXPECT_FALSE(would_be_forgotten(step(Step::compensated, 1, true, true, 1), Direction::compensate));

	EXPECT_TRUE(is_waited_for(step(Step::sent), Direction::forward, 1));
	EXPECT_FALSE(is_waited_for(step(Step::unknown), Direction::forward, 1));
	EXPECT_TRUE(is_waited_for(step(Step::compensating, 1, true, true, 1), Direction::compensate, 1));
	EXPECT_FALSE(is_waited_for(step(Step::uncompensated, 1, true, true, 1), Direction::compensate, 1));
}

// Each effect is a transition that is listed, or none.
TEST(Saga, EffectsAreTransitions)
{
	for (int status = 1; status < static_cast<int>(Step::unheard_of); status++)
		for (bool answered : {false, true})
			for (Direction direction : {Direction::forward, Direction::compensate})
				for (Outcome outcome : {Outcome::succeeded, Outcome::failed, Outcome::unknown})
				{
					const StepState s = step(static_cast<Step>(status), 1, true, answered, 1);
					const bool given_up = outcome == Outcome::unknown;

					if (given_up ? !is_waited_for(s, direction, 1) : !is_awaited(s, direction, 1))
						continue;
					// What has failed or succeeded was answered.
					if (!answered && (s.status == Step::succeeded || s.status == Step::failed))
						continue;

					const Effect e = effect(s, direction, outcome);

					EXPECT_TRUE(e.ignored || e.to == s.status || may_follow(s.status, e.to))
						<< label(s.status) << " > " << label(e.to);
					EXPECT_EQ(e.takes_back, direction == Direction::forward && s.status == Step::compensating &&
												outcome == Outcome::succeeded);
					EXPECT_TRUE(e.goes_on || e.to == s.status);
				}
}

TEST(Saga, Effects)
{
	EXPECT_EQ(effect(step(Step::sent), Direction::forward, Outcome::succeeded).to, Step::succeeded);
	EXPECT_EQ(effect(step(Step::sent), Direction::forward, Outcome::failed).to, Step::failed);
	EXPECT_EQ(effect(step(Step::sent), Direction::forward, Outcome::unknown).to, Step::unknown);
	EXPECT_EQ(effect(step(Step::compensated), Direction::forward, Outcome::succeeded).to, Step::succeeded);
	EXPECT_FALSE(effect(step(Step::compensated), Direction::forward, Outcome::failed).goes_on);
	EXPECT_EQ(effect(step(Step::compensating), Direction::compensate, Outcome::failed).to, Step::uncompensated);
	EXPECT_TRUE(effect(step(Step::uncompensated), Direction::compensate, Outcome::failed).ignored);
	EXPECT_FALSE(effect(step(Step::uncompensated), Direction::compensate, Outcome::succeeded).ignored);
}

Next
next_of(SagaStatus saga, Step got, const std::vector<StepState> &steps, int stages)
{
	return what_next(saga, got, steps.data(), static_cast<int>(steps.size()), stages);
}

TEST(Saga, WhatComesNextForward)
{
	using enum SagaStatus;

	Next next =
		next_of(running, Step::succeeded, {step(Step::succeeded, 1), step(Step::sent, 2), step(Step::succeeded, 2)}, 3);
	EXPECT_EQ(next.act, Next::wait);
	next = next_of(running, Step::succeeded, {step(Step::succeeded, 1), step(Step::succeeded, 2)}, 3);
	EXPECT_EQ(next.act, Next::begin_stage);
	EXPECT_EQ(next.which, 3);
	EXPECT_EQ(next_of(running, Step::succeeded, {step(Step::succeeded, 1)}, 1).act, Next::complete);
	EXPECT_EQ(next_of(running, Step::failed, {step(Step::failed, 1)}, 2).act, Next::give_up);
	EXPECT_EQ(next_of(running, Step::unknown, {step(Step::unknown, 1)}, 2).act, Next::give_up);
}

TEST(Saga, WhatComesNextBackward)
{
	using enum SagaStatus;

	Next next = next_of(
		compensating, Step::compensated,
		{step(Step::succeeded, 1), step(Step::unknown, 2), step(Step::succeeded, 3, false), step(Step::failed, 4)}, 4);
	EXPECT_EQ(next.act, Next::compensate);
	EXPECT_EQ(next.which, 1);
	EXPECT_EQ(next_of(compensating, Step::succeeded, {step(Step::compensating, 1), step(Step::succeeded, 2)}, 2).act,
			  Next::wait);
	EXPECT_EQ(
		next_of(compensating, Step::compensated, {step(Step::compensated, 1), step(Step::uncompensated, 2)}, 2).act,
		Next::fail);
	EXPECT_EQ(next_of(failed, Step::succeeded, {step(Step::succeeded, 1)}, 1).act, Next::compensate);
}

// Whatever is answered, in whatever order: a saga ends, by listed transitions, with nothing left that can be undone.
TEST(Saga, AnySequenceEnds)
{
	std::mt19937_64 random = outbox::test::generator();
	auto draw = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };

	for (int round = 0; round < 2000; round++)
	{
		const int stages = 1 + draw(3);
		std::vector<StepState> all;
		size_t begun = 0;
		SagaStatus saga = SagaStatus::running;
		auto go = [&](StepState &s, Step to) {
			ASSERT_TRUE(s.status == to || may_follow(s.status, to)) << label(s.status) << " > " << label(to);
			s.status = to;
		};
		auto become = [&](SagaStatus to) {
			// Where nothing is to be undone it passes through compensating.
			if (saga == SagaStatus::running && to == SagaStatus::failed)
				saga = SagaStatus::compensating;
			ASSERT_TRUE(saga == to || may_follow(saga, to)) << label(saga) << " > " << label(to);
			saga = to;
		};
		auto begin = [&](int stage) {
			for (; begun < all.size() && all[begun].stage == stage; begun++)
				go(all[begun], Step::sent);
		};
		auto act = [&](Step got) {
			Next next = what_next(saga, got, all.data(), static_cast<int>(begun), stages);

			if (next.act == Next::give_up)
			{
				become(SagaStatus::compensating);
				for (size_t i = 0; i < begun; i++)
					if (all[i].status == Step::sent)
						go(all[i], Step::unknown);
				next = next_to_undo(all.data(), static_cast<int>(begun));
			}
			if (next.act == Next::begin_stage)
				begin(next.which);
			else if (next.act == Next::complete)
				become(SagaStatus::completed);
			else if (next.act == Next::fail)
				become(SagaStatus::failed);
			else if (next.act == Next::compensate)
			{
				go(all[static_cast<size_t>(next.which)], Step::compensating);
				all[static_cast<size_t>(next.which)].rounds++;
			}
		};

		for (int stage = 1; stage <= stages; stage++)
			for (int n = 1 + draw(2); n > 0; n--)
				all.push_back(step(Step::absent, stage, draw(3) > 0));
		begin(1);
		for (int answers = 0; answers < 1000; answers++)
		{
			StepState &s = all[static_cast<size_t>(draw(static_cast<int>(begun)))];
			const Direction direction = draw(2) == 0 ? Direction::forward : Direction::compensate;
			const Outcome outcome = static_cast<Outcome>(draw(3));

			if (outcome == Outcome::unknown ? !is_waited_for(s, direction, s.rounds)
											: !is_awaited(s, direction, s.rounds))
				continue;

			const Effect e = effect(s, direction, outcome);

			if (e.ignored)
				continue;
			go(s, e.to);
			if (direction == Direction::forward)
				s.answered = outcome != Outcome::unknown;
			if (e.goes_on)
				act(e.to);
		}
		ASSERT_TRUE(has_ended(saga)) << label(saga);
		for (size_t i = 0; i < begun; i++)
			if (saga == SagaStatus::completed)
				ASSERT_EQ(all[i].status, Step::succeeded);
			else
				ASSERT_TRUE(!all[i].can_undo || all[i].status == Step::failed || all[i].status == Step::compensated ||
							all[i].status == Step::uncompensated)
					<< label(all[i].status);
	}
}

} // namespace
