// What a transaction spends of a queue's rate (spending.h).
#pragma once

#include "commit/notes.h"
#include "core/rate.h"

namespace outbox {

// ---- claiming

// Up to so many messages; rate_unknown: the queue has no slot.
constexpr int rate_unknown = -1;
int spend_rate(const text *queue, const core::Rate &rate, int wanted);
// At the end of the claim: what it did not use.
void return_rate(const text *queue, const core::Rate &rate, int unused);
// How many it would spend. If fewer, a session that waits is woken when there are more.
int find_rate(const text *queue, const core::Rate &rate, int wanted);

// ---- transactions (transaction.h)

// The levels from there on are rolled back.
void give_rate_back(int level);

} // namespace outbox
