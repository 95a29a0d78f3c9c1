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

struct Loss {
	const char *detail;
	const char *hint;
};

constexpr char drop_it[] = "Do not report this attempt again: another claim delivers the message.";

bool
message_exists(Call *call, const core::Uuid &id)
{
	Probe *probe = probe_id(leaf_of(call, messages_shape, id, reads), id);
	bool found = next_settled(probe, ForwardScanDirection);

	rest_probe(probe);
	return found;
}

Loss
loss_recorded(const Recorded &recorded)
{
	if (recorded.cancelled)
		return {psprintf("It was cancelled, as attempt %d.", recorded.attempt_no), "Do not report this attempt again."};
	if (recorded.broken)
		return {psprintf("An operator broke the lease, and it was recorded as attempt %d.", recorded.attempt_no),
				"Do not report this attempt again."};
	if (recorded.released)
		return {psprintf("It was released once more than max_releases allows, which was recorded as attempt %d (%s).",
						 recorded.attempt_no, core::name(recorded.state)),
				"Do not report this attempt again."};
	if (recorded.state == core::Record::zombie_requeue)
		return {
			psprintf("The lease expired and was recorded as attempt %d under this very token.", recorded.attempt_no),
			drop_it};
	return {psprintf("It was completed as attempt %d (%s) under this very token.", recorded.attempt_no,
					 core::name(recorded.state)),
			"The report is recorded: go on with the next message."};
}

Loss
loss_of_what_is_not_pending(Call *call, const core::Uuid &id)
{
	Recorded end = recorded_end(call, id);

	if (end.cancelled)
		return loss_recorded(end);
	if (end.attempt_no > 0)
		return {
			psprintf("It has ended, as attempt %d (%s) under another lease.", end.attempt_no, core::name(end.state)),
			"Do not report this attempt again."};
	if (message_exists(call, id))
		return {"It is neither pending nor ended.", "Have an operator call outbox.restore_pending()."};
	return {"There is no message of this outbox_id: it never existed, or its partition was retired.",
			"Report outbox_id and lease_token as claim returned them."};
}

Loss
how_it_was_lost(Call *call, const Holding &holding, const core::Uuid &id, const core::Uuid &token)
{
	Recorded recorded;

	if (holding.held == Held::expired)
		return {
			psprintf("The lease expired at %s.", timestamptz_to_str(holding.row->lease_expires_at)),
			"Do not report this attempt again: another claim delivers the message. Renew leases before they expire, or "
			"claim with a longer one."};
	if (holding.held == Held::other_worker)
		return {psprintf("The lease belongs to worker \"%s\".", shown(holding.row->claimed_by)),
				"Report with the worker_id that claimed the message."};
	recorded = recorded_under(call, id, token);
	if (recorded.attempt_no > 0)
		return loss_recorded(recorded);
	if (holding.held == Held::other_token)
		return {"The message is held under another token.", drop_it};
	if (holding.row != nullptr)
		return {"The message is pending and not leased.", drop_it};
	return loss_of_what_is_not_pending(call, id);
}

} // namespace

void
raise_lease_lost(Call *call, const Holding &holding, const core::Uuid &id, const core::Uuid &token, const text *worker)
{
	Loss loss = how_it_was_lost(call, holding, id, token);

	ereport(ERROR, (errcode(ERRCODE_OUTBOX_LEASE_LOST),
					errmsg("LEASE_LOST: worker \"%s\" does not hold message %s", shown(worker), shown(id)),
					errdetail("%s", loss.detail), errhint("%s", loss.hint)));
}

PendingRow *
pending_row(Call *call, const core::Uuid &id)
{
	PendingRow *row = find_pending(call, id);

	if (row == nullptr)
		raise_not_pending(id);
	return row;
}

void
raise_not_pending(const core::Uuid &id)
{
	ereport(ERROR, (errcode(ERRCODE_OUTBOX_NOT_PENDING), errmsg("NOT_PENDING: message %s is not pending", shown(id)),
					errdetail("It has ended already, or there is no such message."),
					errhint("outbox.explain() says what became of it.")));
}

void
raise_leased(const PendingRow *row, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("message %s is leased to worker \"%s\"", shown(row->id), shown(row->claimed_by)),
			 errdetail("The lease expires at %s.", timestamptz_to_str(row->lease_expires_at)), errhint("%s", hint)));
}

void
raise_already_terminal(const PendingRow *row, const Tried &before)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUTBOX_ALREADY_TERMINAL),
			 errmsg("ALREADY_TERMINAL: message %s has a terminal attempt", shown(row->id)),
			 errdetail("Its latest attempt is number %d, and one of its attempts is terminal.", before.attempts)));
}

Changed
check_not_ended(Call *call, PendingRow *row, const Tried &before, Wait wait, int *sqlstate)
{
	Changed held;

	if (!before.terminal)
		return Changed::done;
	held = hold(call, row, wait);
	if (held != Changed::done)
		return held;
	if (sqlstate == nullptr)
		raise_already_terminal(row, before);
	*sqlstate = ERRCODE_OUTBOX_ALREADY_TERMINAL;
	return Changed::done;
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
