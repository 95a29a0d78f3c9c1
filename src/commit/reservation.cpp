// See reservation.h.

#include "commit/reservation.h"

namespace outbox {

namespace {

int64
leases_of(const Note *note)
{
	return note->kept[static_cast<int>(Kept::leased)];
}

template <typename Body>
void
each_note_of(const text *queue, const Body &body)
{
	size_t length = Min(VARSIZE_ANY_EXHDR(queue), NAMEDATALEN - 1);

	for (Note *note = notes.first; note != nullptr; note = note->next)
		if (strncmp(note->queue, VARDATA_ANY(queue), length) == 0 && note->queue[length] == '\0')
			body(note);
}

// Places that this transaction has, by reservations and by leases that it ended, and does not use.
int64
unused_places(const text *queue)
{
	int64 places = 0;

	each_note_of(queue, [&](const Note *note) { places += note->reserved - leases_of(note); });
	return Max(places, 0);
}

bool
is_current(const Note *note, const InFlight *in_flight)
{
	return !note->saw_in_flight || note->in_flight_generation == in_flight->generation;
}

// What the end of a transaction adds to the count. True: places are free now that a claim was refused.
bool
add_to_count(const Note *note, int64 more)
{
	InFlight *in_flight = &note->ref.slot->in_flight;
	bool wanted = false;

	// A claim that begins to count after this sees the rows as the transaction leaves them.
	pg_memory_barrier();
	if (pg_atomic_read_u32(&in_flight->watched) == 0)
		return false;
	change(in_flight, [&] {
		if (in_flight->generation == 0)
			in_flight->ended++;
		else if (note->in_flight_generation != in_flight->generation)
			in_flight->generation = 0;
		else
			in_flight->count += more;
		wanted = in_flight->refused && (more < 0 || in_flight->generation == 0);
		if (wanted)
			in_flight->refused = false;
	});
	return wanted;
}

// The leases of the claim are in the table, or will not be.
void
finish_reserving(Note *note)
{
	if (note->reserving == 0)
		return;
	under(&note->ref.slot->in_flight.lock, [=] { note->ref.slot->in_flight.reserving -= note->reserving; });
	note->reserving = 0;
}

// For a count that lacks the leases that this transaction has ended: their places stay its own until it ends, at each
// level. Returns how many the count is to have more.
int64
reserve_as_counted(const text *queue)
{
	int64 leases = 0;
	int64 reserved = 0;

	for (int level = 0; level <= GetCurrentTransactionNestLevel(); level++)
		each_note_of(queue, [&](Note *note) {
			if (note->level != level)
				return;
			leases += leases_of(note);
			note->reserved = Max(leases - reserved, 0);
			reserved += note->reserved;
		});
	return reserved - leases;
}

} // namespace

int
reserve_leases(const text *queue, int wanted, int most)
{
	Note *note = note_of(queue);
	int64 places = unused_places(queue);
	int64 missing = Max(wanted - places, 0);
	int got = in_flight_unknown;

	if (note->ref.slot == nullptr)
		return in_flight_unknown;

	InFlight *in_flight = &note->ref.slot->in_flight;

	change(in_flight, [&] {
		// This transaction has leases that the count may lack.
		if (!is_current(note, in_flight))
			in_flight->generation = 0;
		if (in_flight->generation == 0)
			return;
		got = static_cast<int>(Max(Min(missing, most - in_flight->count), 0));
		in_flight->count += got;
		in_flight->reserving += got;
		note->in_flight_generation = in_flight->generation;
		note->saw_in_flight = true;
	});
	if (got == in_flight_unknown)
		return in_flight_unknown;
	note->reserved += got;
	note->reserving += got;
	return static_cast<int>(Min(wanted, places + got));
}

int
find_places(const text *queue, int wanted, int most)
{
	QueueSlot *slot = queue_ref(text_to_cstring(queue)).slot;
	int found = in_flight_unknown;

	if (slot == nullptr)
		return in_flight_unknown;

	InFlight *in_flight = &slot->in_flight;

	change(in_flight, [&] {
		if (in_flight->generation != 0)
			found = static_cast<int>(Max(Min(wanted, most - in_flight->count), 0));
		in_flight->refused |= found < wanted;
	});
	return found;
}

void
return_leases(const text *queue)
{
	Note *note = note_of(queue);
	int64 unused = Max(Min(unused_places(queue), note->reserved), 0);

	if (note->ref.slot == nullptr)
		return;
	finish_reserving(note);
	note->reserved -= unused;
	if (unused > 0 && add_to_count(note, -unused))
		raise_flag(note->ref.slot);
}

uint32
begin_lease_count(const text *queue)
{
	const Note *note = note_of(queue);
	uint32 begun = 0;

	if (note->ref.slot == nullptr)
		return begun;

	InFlight *in_flight = &note->ref.slot->in_flight;

	change(in_flight, [&] {
		in_flight->counting = true;
		begun = in_flight->ended;
	});
	pg_memory_barrier();
	return begun;
}

int64
end_lease_count(const text *queue, uint32 begun, int64 count, int most)
{
	Note *mine = note_of(queue);
	uint32 generation = 0;
	bool wanted = false;

	if (mine->ref.slot == nullptr)
		return count;

	int64 own = reserve_as_counted(queue);

	InFlight *in_flight = &mine->ref.slot->in_flight;

	change(in_flight, [&] {
		count += in_flight->reserving;
		in_flight->counting = false;
		// A lease may have been counted that ended before it could be noticed.
		if (in_flight->generation == 0 && in_flight->ended == begun)
		{
			in_flight->generation = generation = ++in_flight->last_generation;
			in_flight->count = count + own;
			wanted = in_flight->refused && count + own < most;
			in_flight->refused = in_flight->refused && !wanted;
		}
		else
			in_flight->refused = true;
	});
	if (generation != 0)
		each_note_of(queue, [=](Note *note) {
			note->saw_in_flight = true;
			note->in_flight_generation = generation;
		});
	if (wanted)
		raise_flag(mine->ref.slot);
	return count;
}

void
see_leases_in_flight(Note *note)
{
	InFlight *in_flight;

	if (note->saw_in_flight || note->ref.slot == nullptr)
		return;
	in_flight = &note->ref.slot->in_flight;
	note->saw_in_flight = true;
	if (pg_atomic_read_u32(&in_flight->watched) != 0)
		under(&in_flight->lock, [=] { note->in_flight_generation = in_flight->generation; });
}

bool
settle_leases(const Note *note)
{
	return note->saw_in_flight && add_to_count(note, leases_of(note) - note->reserved);
}

void
give_leases_back(int level)
{
	for (Note *note = notes.first; note != nullptr; note = note->next)
	{
		if (note->level < level || !note->saw_in_flight || !is_still(note->ref))
			continue;
		finish_reserving(note);
		if (add_to_count(note, -note->reserved))
			raise_flag(note->ref.slot);
	}
}

// As if its leases were of a generation that has passed.
void
note_limit(const text *queue)
{
	Note *note = note_of(queue);

	note->saw_in_flight = true;
	note->in_flight_generation = 0;
}

void
forget_leases_in_flight()
{
	for (const Note *note = notes.first; note != nullptr; note = note->next)
		if (note->saw_in_flight && is_still(note->ref))
			forget_in_flight(&note->ref.slot->in_flight);
}

} // namespace outbox
