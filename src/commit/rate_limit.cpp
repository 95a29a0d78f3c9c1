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

// True: a claim was refused that could get something now.
bool
give(QueueSlot *slot, int64 messages)
{
	Spending *spending = &slot->spending;
	bool wanted = false;

	under(&spending->lock, [&] {
		spending->spent_until = core::give_back(spending->each_ns, spending->spent_until, messages);
		wanted = spending->refused;
		spending->refused = false;
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
	reset_spending(spending);
}

void
reset_spending(Spending *spending)
{
	int64 now = steady_ns();

	pg_atomic_write_u64(&spending->more_at, static_cast<uint64>(DT_NOEND));
	under(&spending->lock, [=] {
		spending->refused = false;
		spending->each_ns = 0;
		spending->spent_until = now;
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
		got = core::affordable(rate, spending->spent_until, now, wanted);
		spending->spent_until = core::spend(rate, spending->spent_until, now, got);
		spending->each_ns = rate.each_ns;
	});
	note->spent += got;
	return static_cast<int>(got);
}

void
return_rate(const text *queue, int unused)
{
	Note *note = unused > 0 ? note_of(queue) : nullptr;

	if (note == nullptr || !is_still(note->ref))
		return;
	note->spent -= unused;
	if (give(note->ref.slot, unused))
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
		found = core::affordable(rate, spending->spent_until, now, wanted);
		if (found == wanted)
			return;
		more_at = core::more_at(rate, spending->spent_until, now, found);
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
		if (note->level >= level && note->spent > 0 && is_still(note->ref) && give(note->ref.slot, note->spent))
			raise_flag(note->ref.slot);
}

} // namespace outbox
