// See rate_limit.h.

#include "commit/rate_limit.h"

#include "commit/announced.h"
#include "commit/spinlock.h"
#include "server/clock.h"

namespace outbox {

namespace {

constexpr int64 ns_per_us = 1000;

int64
steady_ns()
{
	return steady_us() * ns_per_us;
}

// give(): returns how much it gave back. True: a claim was refused that could get something now.
template <typename Give>
bool
wants_after(Spending *spending, const Give &give)
{
	bool wanted = false;

	under(&spending->lock, [&] {
		wanted = give(&spending->bucket) > 0 && spending->refused;
		spending->refused = spending->refused && !wanted;
	});
	return wanted;
}

// The worker looks at it before it sleeps, or sees that it must not sleep so long.
void
wake_at(QueueSlot *slot, int64 ns)
{
	int64 us = ns / ns_per_us + 1;

	announce(&slot->spending.more_at, us);
	if (notes.database != nullptr &&
		GetCurrentTimestamp() + (us - steady_us()) < announced(&notes.database->sleeps_until))
		wake_worker();
}

} // namespace

void
init_spending(Spending *spending)
{
	SpinLockInit(&spending->lock);
	pg_atomic_init_u64(&spending->more_at, static_cast<uint64>(DT_NOEND));
	spending->bucket = {};
	reset_spending(spending);
}

void
reset_spending(Spending *spending)
{
	int64 now = steady_ns();

	pg_atomic_write_u64(&spending->more_at, static_cast<uint64>(DT_NOEND));
	under(&spending->lock, [=] {
		spending->refused = false;
		spending->bucket.spent_until = spending->bucket.last = now;
	});
}

int
spend_rate(const text *queue, const core::Rate &rate, int wanted)
{
	Note *note = note_of(queue);
	int64 now = steady_ns();
	int64 got = 0;

	if (note->ref.slot == nullptr)
		return rate_unknown;

	Spending *spending = &note->ref.slot->spending;

	// A clock that was read before that of another allows less.
	under(&spending->lock, [&] {
		got = core::affordable(rate, spending->bucket.spent_until, now, wanted);
		core::spend_from(&spending->bucket, &note->spent, rate, now, got);
	});
	return static_cast<int>(got);
}

void
return_rate(const text *queue, const core::Rate &rate, int unused)
{
	Note *note = unused > 0 ? note_of(queue) : nullptr;

	if (note == nullptr || !is_still(note->ref))
		return;
	if (wants_after(&note->ref.slot->spending,
					[&](core::Bucket *bucket) { return core::give_unused_back(bucket, &note->spent, rate, unused); }))
		raise_flag(note->ref.slot);
}

int
find_rate(const text *queue, const core::Rate &rate, int wanted)
{
	Note *note = note_of(queue);
	int64 now = steady_ns();
	int64 more_at = core::no_more;
	int64 found = 0;

	if (note->ref.slot == nullptr)
		return rate_unknown;

	Spending *spending = &note->ref.slot->spending;

	under(&spending->lock, [&] {
		found = core::affordable(rate, spending->bucket.spent_until, now, wanted);
		if (found == wanted)
			return;
		more_at = core::more_at(rate, spending->bucket.spent_until, now, found);
		spending->refused = true;
	});
	if (more_at != core::no_more)
		wake_at(note->ref.slot, more_at);
	return static_cast<int>(found);
}

void
give_rate_back(int level)
{
	for (Note *note = notes.first; note != nullptr; note = note->next)
		if (note->level >= level && note->spent.ns > 0 && is_still(note->ref) &&
			wants_after(&note->ref.slot->spending,
						[&](core::Bucket *bucket) { return core::give_all_back(bucket, &note->spent); }))
			raise_flag(note->ref.slot);
}

} // namespace outbox
