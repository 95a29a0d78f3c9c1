// What a source does with results: reports, releases, renewals.
#include "flow/source.h"
#include "seen/log.h"

namespace relay {

namespace {

using namespace std::chrono_literals;

constexpr size_t renewals_at_once = 1000;

std::string_view
class_of(Verdict verdict)
{
	switch (verdict)
	{
		case Verdict::accepted:
			return "accepted";
		case Verdict::refused:
			return "refused";
		case Verdict::try_again:
			return "try_again";
		case Verdict::untried:
			break;
	}
	return "untried";
}

} // namespace

void
Source::on(Result result)
{
	auto found = in_flight.find(result.number);

	if (found == in_flight.end() || found->second.phase != Phase::open)
		return;

	InFlight &one = found->second;
	std::string chain = one.chain;
	bool accepted = result.verdict == Verdict::accepted;

	open--;
	log_outcome(one, result);
	if (one.lost)
		forget(result.number);
	else if (result.verdict == Verdict::untried)
		// While nothing is claimed here for that sink, another relay may reach it.
		release(result.number, room_of(one.queue) == 0 ? 0ms : result.delay);
	else
	{
		(accepted ? state.accepted : state.failed)++;
		one.phase = Phase::reporting;
		reports.add(
			{.number = result.number,
			 .outbox_id = one.lease.outbox_id,
			 .token = one.lease.token,
			 .verdict = result.verdict,
			 .answer = std::move(result.answer),
			 .latency_ms =
				 std::chrono::duration_cast<std::chrono::milliseconds>(result.answered - result.handed).count()},
			Clock::now());
	}
	if (!chain.empty())
	{
		keys_are_free = true;
		chain_goes_on(chain, result.number, accepted);
	}
}

void
Source::log_outcome(const InFlight &one, const Result &result) const
{
	auto level = result.verdict == Verdict::refused     ? Level::warning
				 : result.verdict == Verdict::try_again ? Level::info
														: Level::debug;
	std::string_view text = one.lost ? "the outcome of a message whose lease was lost" : "delivery";

	if (!logs(level))
		return;
	log(level, text,
		{{"source", my_settings.name},
		 {"outbox_id", text_of(one.lease.outbox_id)},
		 {"event_id", text_of(one.event_id)},
		 {"event_type", one.event_type},
		 {"queue", one.queue},
		 {"attempt", std::to_string(one.attempt)},
		 {"sink", one.sink()},
		 {"class", class_of(result.verdict)},
		 {"code", result.answer.code},
		 {"error", result.answer.text},
		 {"reference", result.answer.reference},
		 {"trace_id", result.trace_id}});
}

// ---------------------------------------------------------------- reports

void
Source::send_report(std::optional<ClaimPlan> plan)
{
	uint64_t report = reports.take();
	Parameters parameters = report_parameters(worker_id, reports.of(report));
	std::string statement = "SELECT outbox_id, 'completed'::text, attempt_no, recorded::text, error "
							"FROM outbox.complete_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
	auto sent = Clock::now();

	if (plan)
	{
		statement = std::string("SELECT outbox_id, kind, attempt_no, recorded::text, error, ") + claim_columns +
					" FROM outbox.complete_and_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
		parameters.insert(parameters.end(), {std::to_string(plan->size), interval(my_settings.lease),
											 array_literal(plan->queues), array_or_null(plan->weights)});
		appetite.sent(*plan);
		asked += plan->size;
	}
	work->send(statement, std::move(parameters), [this, report, plan, sent](Rows rows) {
		observers.metrics.batch(my_settings.name, Clock::now() - sent);
		if (plan)
			asked -= plan->size;
		if (!rows.ok())
			return report_refused(report, plan, rows);
		int completed = static_cast<int>(reports.of(report).size());
		take_report(report, rows);
		if (plan)
			take_claimed(*plan, rows, completed, sent);
	});
}

void
Source::report_refused(uint64_t report, const std::optional<ClaimPlan> &plan, const Rows &rows)
{
	// With a claim it is not known which of both was refused: the outcomes at once, without it.
	if (plan)
	{
		if (is_about_a_message(rows.sqlstate()))
			unreadable(*plan, rows, false);
		else
			claim_refused(*plan, rows);
		reports.refused(report, false, {});
		return;
	}
	refused("could not record outcomes", rows);
	auto hopeless = reports.refused(report, rows.sqlstate().starts_with("22"), Clock::now() + 1s);
	if (!hopeless)
		return;
	// Its lease runs out, and the ledger says that.
	observers.metrics.outcomes_unrecorded(my_settings.name, 1);
	forget(hopeless->number);
}

void
Source::take_report(uint64_t report, const Rows &rows)
{
	auto outcomes = reports.answered(report);

	for (size_t i = 0; i < outcomes.size(); i++)
	{
		recorded(outcomes[i], rows, static_cast<int>(i));
		forget(outcomes[i].number);
	}
}

void
Source::recorded(const Outcome &outcome, const Rows &rows, int row)
{
	auto found = in_flight.find(outcome.number);
	std::string error = rows.null(row, 4) ? "" : rows.text(row, 4),
				state_recorded = rows.null(row, 3) ? "" : rows.text(row, 3);

	if (found == in_flight.end())
		return;
	if (state_recorded == "FAILED")
		observers.metrics.dead_letter(found->second.event_type);
	// P7002 with its state: an earlier call recorded it, and its answer was lost.
	if (error.empty() || (error == "P7002" && may_have_recorded(outcome.verdict, state_recorded)))
		return;
	observers.metrics.outcomes_unrecorded(my_settings.name, 1);
	log(Level::warning,
		error == "P7002" ? "an outcome was not recorded, since the lease was lost: the message will be delivered again"
						 : "an outcome was not recorded",
		{{"source", my_settings.name},
		 {"outbox_id", text_of(outcome.outbox_id)},
		 {"event_id", text_of(found->second.event_id)},
		 {"queue", found->second.queue},
		 {"sink", found->second.sink()},
		 {"class", class_of(outcome.verdict)},
		 {"code", error}});
}

void
Source::forget(uint64_t number)
{
	in_flight.erase(number);
}

// ---------------------------------------------------------------- releases

void
Source::release(uint64_t number, std::chrono::milliseconds delay)
{
	auto found = in_flight.find(number);

	if (found == in_flight.end())
		return;
	found->second.phase = Phase::releasing;
	found->second.parcel.reset();
	releases[delay].push_back(number);
}

void
Source::send_releases()
{
	for (auto &[delay, numbers] : std::exchange(releases, {}))
	{
		std::vector<Uuid> ids, tokens;

		for (uint64_t number : numbers)
		{
			const Lease &lease = in_flight.at(number).lease;

			ids.push_back(lease.outbox_id);
			tokens.push_back(lease.token);
		}
		work->send("SELECT error FROM outbox.release($1, $2, $3, $4)",
				   {worker_id, uuid_array(ids), uuid_array(tokens), interval(delay)},
				   [this, numbers = std::move(numbers)](Rows rows) { released(numbers, rows); });
	}
}

// What was not released, because another transaction holds the row for a moment or the statement failed, is tried
// again; what is lost is another's.
void
Source::released(const std::vector<uint64_t> &numbers, const Rows &rows)
{
	size_t count = 0;

	for (size_t i = 0; i < numbers.size(); i++)
	{
		std::string error = !rows.ok()                          ? rows.sqlstate()
							: rows.null(static_cast<int>(i), 0) ? ""
																: rows.text(static_cast<int>(i), 0);

		if (error.empty())
			count++;
		if (error.empty() || error == "P7002" || !in_flight.contains(numbers[i]))
			forget(numbers[i]);
		else
			unreleased.push_back(numbers[i]);
	}
	if (!rows.ok())
		refused("could not release messages", rows);
	observers.metrics.released(my_settings.name, count);
}

// ---------------------------------------------------------------- leases

void
Source::renew(Clock::time_point before)
{
	std::vector<uint64_t> numbers;
	std::vector<Uuid> ids, tokens;

	for (uint64_t number : std::exchange(unreleased, {}))
		release(number, 0ms);
	if (!working() || renewing > 0)
		return;
	for (const auto &[number, one] : in_flight)
	{
		if (one.phase == Phase::releasing || one.lost || one.lease.half > before)
			continue;
		numbers.push_back(number);
		ids.push_back(one.lease.outbox_id);
		tokens.push_back(one.lease.token);
		if (numbers.size() == renewals_at_once)
			send_renewals(std::exchange(numbers, {}), std::exchange(ids, {}), std::exchange(tokens, {}));
	}
	if (!numbers.empty())
		send_renewals(std::move(numbers), ids, tokens);
}

void
Source::send_renewals(std::vector<uint64_t> numbers, const std::vector<Uuid> &ids, const std::vector<Uuid> &tokens)
{
	renewing++;
	work->send("SELECT lease_expires_at, pg_catalog.clock_timestamp(), error FROM outbox.renew($1, $2, $3, $4)",
			   {worker_id, uuid_array(ids), uuid_array(tokens), interval(my_settings.lease)},
			   [this, numbers = std::move(numbers), sent = Clock::now()](Rows rows) { renewed(numbers, rows, sent); });
}

void
Source::renewed(const std::vector<uint64_t> &numbers, const Rows &rows, Clock::time_point sent)
{
	renewing--;
	if (!rows.ok())
		return refused("could not renew leases", rows);
	for (size_t i = 0; i < numbers.size(); i++)
	{
		int row = static_cast<int>(i);
		auto found = in_flight.find(numbers[i]);

		if (found == in_flight.end())
			continue;
		if (rows.null(row, 2))
		{
			auto length = std::chrono::microseconds(rows.timestamptz(row, 0) - rows.timestamptz(row, 1));

			found->second.lease.half = sent + length / 2;
			*found->second.lease_end = sent + length;
		}
		else if (rows.bytes(row, 2) == "P7002" && found->second.phase != Phase::reporting)
			lose(numbers[i]);
	}
}

// Another may have it now. What was handed over cannot be taken back; what waits is not handed over.
void
Source::lose(uint64_t number)
{
	InFlight &one = in_flight.at(number);

	observers.metrics.leases_lost(my_settings.name, 1);
	log(Level::warning, "a lease was lost",
		{{"source", my_settings.name},
		 {"outbox_id", text_of(one.lease.outbox_id)},
		 {"event_id", text_of(one.event_id)},
		 {"queue", one.queue}});
	one.lost = true;
	if (one.phase == Phase::open && one.outlet)
		one.outlet->withdraw(inbox, number);
	if (one.phase == Phase::lifting)
	{
		const std::string chain = one.chain;

		forget(number);
		return chain_goes_on(chain, number, false);
	}
	if (one.phase != Phase::waiting)
		return;

	// Those behind it in its chain must not overtake it.
	auto &chain = chains.at(one.chain);
	auto place = std::find(chain.begin(), chain.end(), number);
	std::vector<uint64_t> behind(place + 1, chain.end());
	chain.erase(place, chain.end());
	forget(number);
	for (uint64_t other : behind)
		release(other, 0ms);
}

} // namespace relay
