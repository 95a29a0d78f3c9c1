// See lease.h.

#include "message/lease.h"

#include "server/args.h"
#include "server/errors.h"

namespace outbox {

Holding
look_at_lease(Call *call, const core::Uuid &id, const core::Uuid &token, const text *worker)
{
	return judge_lease(find_pending(call, id), token, worker);
}

Holding
judge_lease(PendingRow *row, const core::Uuid &token, const text *worker)
{
	Held held = Held::yes;

	if (row == nullptr || !row->leased)
		held = Held::gone;
	else if (!equal(row->lease_token, token))
		held = Held::other_token;
	else if (!equal(row->claimed_by, worker))
		held = Held::other_worker;
	else if (row->lease_expires_at <= GetCurrentTimestamp())
		held = Held::expired;
	return {held, row};
}

namespace {

const char *
how_it_was_lost(const Holding &holding, const Recorded &recorded)
{
	if (holding.held == Held::expired)
		return psprintf("The lease expired at %s.", timestamptz_to_str(holding.row->lease_expires_at));
	if (holding.held == Held::other_worker)
		return psprintf("The lease belongs to worker \"%s\".", shown(holding.row->claimed_by));
	if (recorded.cancelled)
		return psprintf("It was cancelled, as attempt %d.", recorded.attempt_no);
	if (recorded.state == core::Record::zombie_requeue)
		return psprintf("The lease expired and was recorded as attempt %d under this very token.", recorded.attempt_no);
	if (recorded.attempt_no > 0)
		return psprintf("It was completed as attempt %d (%s) under this very token.", recorded.attempt_no,
						core::name(recorded.state));
	if (holding.held == Held::other_token)
		return "The message is held under another token.";
	return holding.row != nullptr ? "The lease is gone: the message is not leased."
								  : "The lease is gone: the message is not pending.";
}

} // namespace

void
raise_lease_lost(Call *call, const Holding &holding, const core::Uuid &id, const core::Uuid &token, const text *worker)
{
	Recorded recorded = recorded_under(call, id, token);

	ereport(ERROR, (errcode(ERRCODE_OUTBOX_LEASE_LOST),
					errmsg("LEASE_LOST: worker \"%s\" does not hold message %s", shown(worker), shown(id)),
					errdetail("%s", how_it_was_lost(holding, recorded)),
					recorded.attempt_no > 0
						? 0
						: errhint("Do not report this try again: whoever holds the message now delivers it.")));
}

Attempt
attempt_for(const PendingRow *row, int attempt_no, core::Record state, text *recorded_by)
{
	Attempt attempt = {};

	attempt.outbox_id = row->id;
	attempt.queue = row->queue;
	attempt.optimistic = row->leased && row->attempt_count == 0 && row->claimed_at == row->created_at;
	attempt.attempt_no = attempt_no;
	attempt.state = state;
	attempt.leased = row->leased;
	attempt.worker_id = row->claimed_by;
	attempt.lease_token = row->lease_token;
	attempt.claimed_at = row->claimed_at;
	attempt.recorded_by = recorded_by;
	return attempt;
}

const core::Transition &
expect(core::State from, core::Event event, bool at_ceiling)
{
	const core::Transition *transition = core::outcome(from, event, at_ceiling);

	if (transition == nullptr)
		elog(ERROR, "no transition from %s by %s", core::name(from), core::name(event));
	return *transition;
}

} // namespace outbox
