// See try_report.h.

#include <algorithm>

#include "server/errors.h"
#include "commit/transaction.h"
#include "rows/batch.h"
#include "rows/id_walk.h"
#include "message/lease.h"
#include "message/notice.h"
#include "message/order.h"
#include "message/queue.h"
#include "message/record.h"
#include "message/refusals.h"
#include "message/try_report.h"

namespace outbox {

namespace {

constexpr int chunk_size = 500;

core::Event
event_of(const TryReport *report)
{
	if (report->is_release)
		return core::Event::release_exhausted;
	switch (report->state)
	{
		case core::Record::dispatched:
			return core::Event::complete_dispatched;
		case core::Record::failed:
			return core::Event::complete_failed;
		default:
			return core::Event::complete_retryable;
	}
}

Wait
patience(const TryReport *report)
{
	return report->is_release ? Wait::never : Wait::for_row;
}

Attempt *
make_attempt(const TryReport *report, const PendingRow *row, int attempt_no, const core::Transition &transition)
{
	Attempt *attempt = static_cast<Attempt *>(palloc(sizeof(Attempt)));

	*attempt = attempt_for(row, attempt_no, transition.record, row->claimed_by);
	attempt->details = report->details;
	attempt->wait = patience(report);
	if (attempt->details.error_code == nullptr && transition.at_ceiling)
		attempt->details.error_code = cstring_to_text(exhausted_code);
	return attempt;
}

int64
retry_delay_us(const TryReport *report, const PendingRow *row, const Queue *queue, int attempt_no)
{
	int64 backoff = queue != nullptr ? queue_backoff_us(queue, attempt_no, &row->id) : 0;

	if (report->is_release)
		return Max(report->delay_us, backoff);
	return report->has_delay ? report->delay_us : backoff;
}

// Changes the row as the transition says. The attempt is appended by the caller.
Changed
change_pending(Call *call, TryReport *report, PendingRow *row, const Queue *queue, const core::Transition &transition,
			   int attempt_no)
{
	if (transition.to != core::State::pending)
		return remove(call, row, patience(report));
	report->next_attempt_at = later_or_last(GetCurrentTimestamp(), retry_delay_us(report, row, queue, attempt_no));
	clear_lease(row);
	count_attempt(row, attempt_no);
	row->next_attempt_at = report->next_attempt_at;
	if (report->is_release)
		row->release_count = 0;
	return store(call, row, patience(report));
}

void
answer_lost(Call *call, TryReport *report, const text *worker)
{
	Recorded recorded = recorded_under(call, report->id, report->token);

	report->error = ERRCODE_OUTBOX_LEASE_LOST;
	report->attempt_no = recorded.attempt_no;
	report->recorded = recorded.state;
	if (!report->is_release)
		note_refusal(call, report->id, worker, Audited::refused, false);
}

void
refuse_lost(Call *call, TryReport *report, const Holding &holding, const text *worker, bool raise)
{
	if (raise)
	{
		note_refusal(call, report->id, worker, Audited::refused, true);
		raise_lease_lost(call, holding, report->id, report->token, worker);
	}
	answer_lost(call, report, worker);
}

// Sets attempt_no, unless the tries before refuse this one. outdated: look again.
Changed
number_attempt(Call *call, TryReport *report, PendingRow *row, const text *worker, bool raise, int *attempt_no)
{
	Tried before = report->has_before ? report->before : tried(call, report->id);
	Changed checked = check_not_ended(call, row, before, patience(report), &report->error);

	if (checked == Changed::outdated)
		return checked;
	if (checked == Changed::busy)
		report->error = ERRCODE_LOCK_NOT_AVAILABLE;
	if (report->error == ERRCODE_OUTBOX_ALREADY_TERMINAL)
		note_refusal(call, report->id, worker, Audited::blocked, raise);
	if (raise && report->error == ERRCODE_OUTBOX_ALREADY_TERMINAL)
		raise_already_terminal(row, before);
	if (report->error == 0)
		*attempt_no = next_attempt_no(before, report->id, raise ? nullptr : &report->error);
	return checked;
}

// What was read ahead is used once, and never to refuse. The change that follows notices a lease
// that was lost since, but a lease that had expired then may have been renewed.
Holding
look(Call *call, TryReport *report, const text *worker)
{
	Holding foreseen = judge_lease(report->row, report->token, worker);

	report->row = nullptr;
	if (foreseen.held == Held::yes)
		return foreseen;
	report->has_before = false;
	return look_at_lease(call, report->id, report->token, worker);
}

[[noreturn]] void
raise_held_back(const PendingRow *row)
{
	ereport(ERROR, (errcode(ERRCODE_OUTBOX_INVALID_STATE),
					errmsg("INVALID_STATE: message %s is behind another of its partition_key", shown(row->id)),
					errdetail("It has number " INT64_FORMAT " of partition_key \"%s\".", row->sequence_id,
							  shown(row->partition_key)),
					errhint("Report the messages of a key in the order of sequence_id.")));
}

// A message that is held back: is reported too early; may be reported later in the batch; has its turn.
enum class HeldBack { refuse, defer, accept };

// False: not now. A release is at any time: it says nothing of the message.
bool
has_its_turn(TryReport *report, PendingRow *row, HeldBack held_back, bool raise)
{
	if (!row->held_back || report->is_release)
		return true;
	if (held_back == HeldBack::accept)
	{
		row->held_back = false;
		return true;
	}
	if (raise)
		raise_held_back(row);
	report->deferred = held_back == HeldBack::defer;
	report->error = report->deferred ? 0 : ERRCODE_OUTBOX_INVALID_STATE;
	return false;
}

// What was leased behind it, unless the key goes on. A release names what it gives back.
Changed
give_back_run(Call *call, const TryReport *report, PendingRow *row, const core::Transition &transition)
{
	if (report->is_release ||
		(transition.to != core::State::pending && !blocks_key(call, row, transition.record == core::Record::failed)))
		return Changed::done;
	return release_run(call, row, patience(report));
}

void
note_settled(Call *call, const TryReport *report, const text *queue, const text *worker)
{
	if (report->is_release)
		note_count(queue, Counter::released);
	note_audited(call, {report->is_release ? Audited::released : Audited::completed, queue, worker, report->id,
						report->attempt_no, 0, report->recorded});
}

// Its key goes on at once, or at the end of the batch.
void
end_turn(Call *call, TryReport *report, PendingRow *row, bool raise)
{
	if (row->sequence_id == 0 || report->rescheduled)
		return;
	if (raise)
		pass_turn(call, row, report->recorded == core::Record::failed);
	else if (has_turn(call, row))
		report->gone = row;
}

// Whether it ends a message that is told of, and telling may fail for this one alone.
bool
must_go_apart(Call *call, const TryReport *report, const PendingRow *row, const core::Transition &transition)
{
	const Queue *queue = transition.record == core::Record::failed ? find_queue(call, row->queue) : nullptr;

	return queue != nullptr && queue->dead_letter_queue != nullptr &&
		   (patience(report) == Wait::never || may_fail_to_tell(call));
}

// Accepts one report, or answers why not; with raise, by an ERROR. In a batch it may do neither: it goes apart. False
// if it may have waited.
bool
settle(Call *call, TryReport *report, const text *worker, HeldBack held_back, bool raise)
{
	for (bool at_once = true;; at_once = false)
	{
		CHECK_FOR_INTERRUPTS();

		Holding holding = look(call, report, worker);
		PendingRow *row = holding.row;
		const Queue *queue = nullptr;
		bool at_ceiling = false;
		int attempt_no = 0;
		Attempt *attempt;
		Changed changed;

		if (holding.held != Held::yes)
		{
			refuse_lost(call, report, holding, worker, raise);
			return at_once;
		}
		if (!has_its_turn(report, row, held_back, raise))
			return at_once;
		if (number_attempt(call, report, row, worker, raise, &attempt_no) == Changed::outdated)
			continue;
		if (report->error != 0)
			return false;
		if (report->state == core::Record::retryable)
		{
			queue = find_queue(call, row->queue);
			at_ceiling = ends_at_ceiling(queue, row, attempt_no);
		}

		const core::Transition &transition = expect(core::State::leased, event_of(report), at_ceiling);

		if (!raise && !report->apart && must_go_apart(call, report, row, transition))
		{
			report->apart = true;
			return at_once;
		}
		// Made first: it names the lease, which the change may clear.
		attempt = make_attempt(report, row, attempt_no, transition);
		changed = give_back_run(call, report, row, transition);
		if (changed == Changed::done)
			changed = change_pending(call, report, row, queue, transition, attempt_no);
		if (changed == Changed::done)
		{
			report->attempt = attempt;
			report->attempt_no = attempt->attempt_no;
			report->recorded = attempt->state;
			report->rescheduled = transition.to == core::State::pending;
			note_settled(call, report, row->queue, worker);
			end_turn(call, report, row, raise);
			return at_once;
		}
		if (changed == Changed::busy)
		{
			report->error = ERRCODE_LOCK_NOT_AVAILABLE;
			return at_once;
		}
	}
}

int
bad_report(const TryReport *report)
{
	if (report->bad != 0)
		return report->bad;
	if (!report->has_state)
		return ERRCODE_NULL_VALUE_NOT_ALLOWED;
	if (report->state == core::Record::zombie_requeue)
		return ERRCODE_OUTBOX_INVALID_STATE;
	if ((report->has_delay && report->state != core::Record::retryable) ||
		(report->details.has_latency && report->details.latency_ms < 0))
		return ERRCODE_INVALID_PARAMETER_VALUE;
	return 0;
}

// The same lease reported twice in one batch: the second answer shows the first report.
const TryReport *
earlier_report(TryReport *const *reports, int i)
{
	for (int j = i - 1; j >= 0 && equal(reports[j]->id, reports[i]->id); j--)
		if (reports[j]->attempt_no > 0 && equal(reports[j]->token, reports[i]->token))
			return reports[j];
	return nullptr;
}

// ---- reading ahead

// Those whose ledger the leaf holds.
void
foresee_ledger(Table *leaf, TryReport *const *reports, int count)
{
	core::Uuid ids[chunk_size];
	Tried before[chunk_size];
	bool known[chunk_size];

	for (int i = 0; i < count; i++)
		ids[i] = reports[i]->id;
	tried_all(leaf, ids, count, before, known);
	for (int i = 0; i < count; i++)
	{
		reports[i]->has_before = known[i];
		reports[i]->before = before[i];
	}
}

// For a message reported twice the second report is not read ahead: the first changes the row.
int
foresee_rows(Call *call, TryReport *const *reports, int count, TryReport **found)
{
	Table *table = pending(call);
	int n = 0;
	IdWalk walk;

	begin_id_walk(&walk, table, reports[0]->id, reports[count - 1]->id, count);
	for (int i = 0; i < count; i++)
		if (reports[i]->error == 0 && (i == 0 || !equal(reports[i]->id, reports[i - 1]->id)) &&
			walk_to(&walk, reports[i]->id) == WalkedTo::found)
		{
			reports[i]->row = load(table, walk.probe.slot);
			found[n++] = reports[i];
		}
	end_id_walk(&walk);
	return n;
}

void
forget_foreseen(TryReport *const *reports, int count)
{
	for (int i = 0; i < count; i++)
	{
		reports[i]->row = nullptr;
		reports[i]->has_before = false;
	}
}

// The rows first: a later append to a ledger outdates the row.
void
foresee(Call *call, TryReport *const *reports, int count)
{
	TryReport *found[chunk_size];
	int n;

	forget_foreseen(reports, count);
	if (count < ids_to_walk)
		return;
	n = foresee_rows(call, reports, count, found);
	each_walk(
		n, [&](int i) { return leaf_of(call, attempts_shape, found[i]->id, inserts); },
		[&](Table *leaf, int first, int in_leaf) { foresee_ledger(leaf, found + first, in_leaf); });
}

// ---- batches

void
begin_report(Call *call, TryReport *report)
{
	report->error = bad_report(report);
	if (report->error == 0 && find_leaf(call, attempts_shape, report->id, inserts) == nullptr)
		report->error = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	report->attempt = nullptr;
	report->attempt_no = 0;
	report->rescheduled = report->deferred = report->apart = false;
	report->gone = nullptr;
}

// Settles it again, so that what fails is undone alone.
void
settle_apart(Call *call, TryReport *report, const text *worker, HeldBack held_back)
{
	const ErrorData *error = in_subtransaction([&] {
		Call inner;

		begin_nested_call(&inner, call);
		settle(&inner, report, worker, held_back, false);
		if (report->attempt != nullptr)
			append(&inner, &report->attempt, 1);
		end_call(&inner);
	});

	if (error == nullptr)
		return;
	report->attempt = nullptr;
	report->attempt_no = 0;
	report->gone = nullptr;
	report->error = error->sqlerrcode;
}

// Settles reports[first] to reports[first + count - 1], sorted by id, and appends what was
// accepted. A wait invalidates what was read ahead: with old_snapshot_threshold VACUUM may have put
// another message's row in its place.
void
settle_chunk(Call *call, TryReport **reports, int first, int count, const text *worker)
{
	Attempt *attempts[chunk_size];
	int accepted = 0;

	pending(call);
	for (int i = first; i < first + count; i++)
		begin_report(call, reports[i]);
	foresee(call, reports + first, count);
	for (int i = first; i < first + count; i++)
	{
		TryReport *report = reports[i];
		const TryReport *earlier = report->error == 0 ? earlier_report(reports, i) : nullptr;
		bool at_once;

		if (earlier != nullptr)
		{
			report->error = ERRCODE_OUTBOX_LEASE_LOST;
			report->attempt_no = earlier->attempt_no;
			report->recorded = earlier->recorded;
			note_refusal(call, report->id, worker, Audited::refused, false);
		}
		if (report->error != 0)
			continue;
		at_once = settle(call, report, worker, HeldBack::defer, false);
		if (report->apart)
			settle_apart(call, report, worker, HeldBack::defer);
		else if (report->attempt != nullptr)
			attempts[accepted++] = report->attempt;
		if (!at_once || report->apart)
			forget_foreseen(reports + i + 1, first + count - i - 1);
	}
	append(call, attempts, accepted);
}

// ---- ordered keys

void
settle_and_append(Call *call, TryReport *report, const text *worker, HeldBack held_back)
{
	report->apart = false;
	settle(call, report, worker, held_back, false);
	if (report->apart)
		settle_apart(call, report, worker, held_back);
	else if (report->attempt != nullptr)
		append(call, &report->attempt, 1);
}

// The deferred report on a message; nullptr = none.
TryReport *
deferred_report(TryReport **reports, int count, const core::Uuid &id)
{
	TryReport **report =
		std::lower_bound(reports, reports + count, id,
						 [](const TryReport *one, const core::Uuid &wanted) { return compare(one->id, wanted) < 0; });

	for (; report < reports + count && equal((*report)->id, id); report++)
		if ((*report)->deferred && (*report)->attempt == nullptr)
			return *report;
	return nullptr;
}

// That on the message right behind one that has ended.
TryReport *
report_behind(Call *call, TryReport **reports, int count, const PendingRow *ended)
{
	Successor next = successor(call, {ended->queue, ended->partition_key, ended->sequence_id});

	return next.open || next.row == nullptr ? nullptr : deferred_report(reports, count, next.row->id);
}

// Those behind a message that has ended have their turn, one after the other; then the key goes on.
void
settle_run(Call *call, TryReport **reports, int count, TryReport *last, const text *worker, bool any_deferred)
{
	TryReport *next;

	while (any_deferred && !blocks_key(call, last->gone, last->recorded == core::Record::failed) &&
		   (next = report_behind(call, reports, count, last->gone)) != nullptr)
	{
		settle_and_append(call, next, worker, HeldBack::accept);
		if (next->rescheduled)
			return;
		if (next->attempt == nullptr)
			break;
		last = next;
	}
	pass_turn(call, last->gone, last->recorded == core::Record::failed);
}

void
settle_turns(Call *call, TryReport **reports, int count, const text *worker)
{
	bool any_deferred = false;

	for (int i = 0; i < count; i++)
		any_deferred = any_deferred || reports[i]->deferred;
	for (int i = 0; i < count; i++)
		if (reports[i]->gone != nullptr && !reports[i]->deferred)
			settle_run(call, reports, count, reports[i], worker, any_deferred);
	// Another session may have ended the one before meanwhile.
	for (int i = 0; i < count; i++)
		if (reports[i]->deferred && reports[i]->attempt == nullptr && reports[i]->error == 0)
		{
			settle_and_append(call, reports[i], worker, HeldBack::refuse);
			if (reports[i]->gone != nullptr)
				settle_run(call, reports, count, reports[i], worker, any_deferred);
		}
}

void
settle_all(Call *call, TryReport **reports, int first, int count, const text *worker)
{
	for (int done = 0; done < count; done += chunk_size)
		settle_chunk(call, reports, first + done, Min(count - done, chunk_size), worker);
	settle_turns(call, reports + first, count, worker);
}

// Whether checks, columns or indexes of users may refuse a single report.
bool
can_refuse_report(Call *call, TryReport **reports, int count)
{
	if (has_foreign_parts(pending(call)))
		return true;
	for (int i = 0; i < count; i++)
	{
		const Table *leaf = reports[i]->bad == 0 ? find_leaf(call, attempts_shape, reports[i]->id, inserts) : nullptr;

		if (leaf != nullptr && has_foreign_parts(leaf))
			return true;
	}
	return false;
}

void
settle_batch(Call *call, TryReport **reports, int count, const text *worker)
{
	each_item(
		call, count, can_refuse_report(call, reports, count),
		[&](Call *inner, int first, int n) { settle_all(inner, reports, first, n, worker); },
		[&](int i, ErrorData *error) {
			reports[i]->attempt_no = 0;
			reports[i]->error = error->sqlerrcode;
		});
}

} // namespace

void
settle_try(Call *call, TryReport *report, const text *worker)
{
	settle(call, report, worker, HeldBack::refuse, true);
	append(call, &report->attempt, 1);
}

void
settle_tries(Call *call, TryReport *reports, int count, const text *worker)
{
	TryReport **sorted = static_cast<TryReport **>(palloc(sizeof(TryReport *) * static_cast<Size>(Max(count, 1))));

	for (int i = 0; i < count; i++)
		sorted[i] = &reports[i];
	// Of one message in the order given.
	std::sort(sorted, sorted + count, [](const TryReport *a, const TryReport *b) {
		int order = compare(a->id, b->id);

		return order != 0 ? order < 0 : a < b;
	});
	settle_batch(call, sorted, count, worker);
}

} // namespace outbox
