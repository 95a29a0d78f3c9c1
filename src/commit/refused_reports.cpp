// See refused_reports.h.

#include "commit/refused_reports.h"

#include "commit/spinlock.h"
#include "server/encoding.h"

namespace outbox {

namespace {

constexpr int places = 4096;
constexpr int none = -1;

struct Entry {
	int next;
	RefusedReport report;
};

struct Ring {
	slock_t lock;
	int free; // the first of a list
	Entry entries[places];
} * ring;

// Under the lock. Returns none if there is no place.
int
take_entry(const RefusedList *list)
{
	int place = list->count < most_refusals ? ring->free : none;

	if (place != none)
		ring->free = ring->entries[place].next;
	return place;
}

void
append_entry(RefusedList *list, int place)
{
	ring->entries[place].next = none;
	if (list->first == none)
		list->first = place;
	else
		ring->entries[list->last].next = place;
	list->last = place;
	list->count++;
}

void
free_first(RefusedList *list)
{
	int place = list->first;

	list->first = ring->entries[place].next;
	list->count--;
	ring->entries[place].next = ring->free;
	ring->free = place;
}

// Those of an extension that is gone are never told.
void
count_lost(RefusedList *list, Oid extension)
{
	if (list->extension != extension)
		list->told = list->without_place;
	list->extension = extension;
	list->without_place++;
}

} // namespace

Size
refused_size()
{
	return sizeof(Ring);
}

void
attach_refused(bool found)
{
	bool is_made;

	ring = static_cast<Ring *>(ShmemInitStruct("outbox refused reports", refused_size(), &is_made));
	if (found)
		return;
	SpinLockInit(&ring->lock);
	ring->free = 0;
	for (int i = 0; i < places; i++)
		ring->entries[i].next = i + 1 < places ? i + 1 : none;
}

void
init_refused(RefusedList *list)
{
	*list = {none, none, 0, 0, 0, InvalidOid};
}

void
put_refused_text(char *place, int size, const char *value)
{
	int length = static_cast<int>(strlen(value));
	int cut = length < size ? length : clipped_length(value, length, size - 1);

	memcpy(place, value, static_cast<size_t>(cut));
	place[cut] = '\0';
}

bool
push_refused(RefusedList *list, const RefusedReport &report)
{
	bool is_first = false;

	under(&ring->lock, [&] {
		int place = take_entry(list);

		is_first = list->count == 0;
		if (place == none)
		{
			count_lost(list, report.extension);
			return;
		}
		ring->entries[place].report = report;
		append_entry(list, place);
	});
	return is_first;
}

bool
has_refused(RefusedList *list)
{
	bool any = false;

	under(&ring->lock, [&] { any = list->count > 0 || list->without_place > list->told; });
	return any;
}

// Only the worker takes entries away, so the first ones stay what they are while it copies them.
int
peek_refused(RefusedList *list, RefusedReport *reports, int most)
{
	int count = 0;
	int place = none;

	under(&ring->lock, [&] {
		count = Min(list->count, most);
		place = list->first;
	});
	for (int i = 0; i < count; i++)
	{
		reports[i] = ring->entries[place].report;
		place = ring->entries[place].next;
	}
	return count;
}

void
drop_refused(RefusedList *list, int count)
{
	under(&ring->lock, [&] {
		for (int i = 0; i < count; i++)
			free_first(list);
	});
}

int64
refused_without_place(RefusedList *list)
{
	int64 count = 0;

	under(&ring->lock, [&] { count = list->without_place; });
	return count;
}

LostRefusals
lost_refusals(RefusedList *list)
{
	LostRefusals lost = {};

	under(&ring->lock, [&] { lost = {list->extension, list->without_place - list->told, list->without_place}; });
	return lost;
}

void
note_told(RefusedList *list, const LostRefusals &lost)
{
	under(&ring->lock, [&] { list->told = Max(list->told, lost.until); });
}

void
forget_refused(RefusedList *list)
{
	under(&ring->lock, [&] {
		while (list->count > 0)
			free_first(list);
		list->without_place = list->told = 0;
	});
}

} // namespace outbox
