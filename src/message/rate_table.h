// What has been spent of a queue's rate where shared memory has no slot for it: a row of outbox.rate_spending.
//
// Guarantees: those of spending.h. A claim holds what it spends until its transaction ends; another claim gets nothing
// meanwhile, and does not wait. A rollback takes back what was spent.
//
// Shape: claims of the queue exclude each other by a lock that they try, because one that inserts a row, or changes it,
// makes others wait. A row of an earlier start of the server does not count: its clock may have been another, and
// claims may have gone by shared memory since.
#pragma once

#include "core/rate.h"
#include "message/queue.h"

namespace outbox {

// How many could be spent; 0 while another claim holds them.
int find_spending(Call *call, const Queue *queue, const core::Rate &rate, int wanted);
// Up to so many messages, and holds the lock if there are any.
int begin_spending(Call *call, const Queue *queue, const core::Rate &rate, int wanted);
// So many of them were leased.
void end_spending(Call *call, const Queue *queue, const core::Rate &rate, int spent);
// Of a queue that is dropped.
void forget_spending(Call *call, const text *queue);

} // namespace outbox
