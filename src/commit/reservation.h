// What a transaction reserves, makes and clears of a queue's leases (in_flight.h).
#pragma once

#include "commit/notes.h"

namespace outbox {

// ---- claiming

// Up to so many leases of the queue; in_flight_unknown: count them first.
constexpr int in_flight_unknown = -1;
int reserve_leases(const text *queue, int wanted, int most);
// How many it would reserve. If fewer, or unknown, a session that waits is woken when there are more.
int find_places(const text *queue, int wanted, int most);
// At the end of the claim: gives back what it did not use.
void return_leases(const text *queue);

// What a count of the leases in the table must know of the moment before it, and what becomes of it: the number of
// leases that may be out. The count includes what this transaction has done. most: the limit.
uint32 begin_lease_count(const text *queue);
int64 end_lease_count(const text *queue, uint32 begun, int64 count, int most);

// ---- transactions (transaction.h)

// Before a lease of the note's queue is made or cleared.
void see_leases_in_flight(Note *note);
// At the commit. True: others may claim now who could not.
bool settle_leases(const Note *note);
// The levels from there on are rolled back.
void give_leases_back(int level);
// The limit of the queue changes.
void note_limit(const text *queue);
// Of all queues that this transaction has changed.
void forget_leases_in_flight();

} // namespace outbox
