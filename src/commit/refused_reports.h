// Reports that were refused by an ERROR, on their way into the audit events.
//
// Guarantees: the ERROR undoes its transaction, so the report is kept here and the background worker writes it. Putting
// it here cannot fail, and waits for a spinlock at most. Memory is fixed: a report for which there is no place is
// counted. A crash of the server loses only what is in here, or is counted and not written yet. Without preloading
// nothing is kept. Reports about an extension that was dropped do not reach the one that is created after it.
//
// Shape: the entries of all databases share one array. Those of a database form a list, so that only its worker reads
// them, and no database takes more than its share. Entries stay until the worker has committed what they say.
#pragma once

#include "core/ids.h"
#include "server/pg.h"

namespace outbox {

// Of one database.
constexpr int most_refusals = 1024;

struct RefusedReport {
	Oid extension;    // its table outbox.queues, which no later one shares
	bool is_terminal; // P7001; else P7002
	core::Uuid id;
	TimestampTz at;
	char queue[NAMEDATALEN];
	char worker[2 * NAMEDATALEN];
	char actor[NAMEDATALEN];
	char application_name[NAMEDATALEN];
	char client_address[NAMEDATALEN]; // empty: none
};

// Those of a database; all under the lock of the array.
struct RefusedList {
	int first;
	int last;
	int count;
	int64 without_place; // since the server started
	int64 told;          // of these
	Oid extension;       // of the last one without a place
};

// What found no place and is not yet told.
struct LostRefusals {
	Oid extension;
	int64 count;
	int64 until; // for note_told()
};

Size refused_size();
void attach_refused(bool found);
void init_refused(RefusedList *list);

// The caller's text is cut between two characters.
void put_refused_text(char *place, int size, const char *value);
// True: it is the first, and the worker may sleep.
bool push_refused(RefusedList *list, const RefusedReport &report);

// ---- the worker

bool has_refused(RefusedList *list);
// Copies up to so many of the oldest, and returns how many.
int peek_refused(RefusedList *list, RefusedReport *reports, int most);
// Those that were copied are written.
void drop_refused(RefusedList *list, int count);
// How many found no place, since the server started.
int64 refused_without_place(RefusedList *list);
LostRefusals lost_refusals(RefusedList *list);
void note_told(RefusedList *list, const LostRefusals &lost);
// The extension is gone.
void forget_refused(RefusedList *list);

} // namespace outbox
