// Finding the messages that cancel_many and replay_many mean, and doing up to so many of them.
//
// Guarantees: a message that cannot be done is passed by, and the next one takes its place. As long as nothing is done
// a call looks on to the end, so if any message can be done, one is: a call that is repeated comes to each, however
// many always fail. It says when it has not come to the end, and then has found at least one that is left to do.
// Nothing that another transaction holds is waited for (Call::wait).
//
// Shape: messages are found in the order of their ids, under the snapshot of the query, in windows of those that are
// needed and what look_ahead more rows of the queue hold. A call ends with the window in which it has no more to do. So
// it costs what it does and a bounded look at the rest, and a queue that is emptied by repetition costs what its
// messages do. What was done keeps producers of its keys waiting for the commit. So once something is done, a call ends
// after so many failures; what fails before that keeps no producer waiting. Memory is that of a window: what an item
// needs that failed, some 40 kB, is freed with its slice.
#pragma once

#include "rows/batch.h"

namespace outbox {

struct Found {
	core::Uuid id;
	Table *leaf;      // while a row of it is looked up
	text *event;      // nullptr: its message is not there
	text *last_error; // nullptr = none
	text *key;
	int64 number;       // in its key, 0 = none
	const char *barred; // why it is left alone without a try, or nullptr
	bool tried;
	int error; // SQLSTATE, of what was tried
};

struct Search;

// What differs between the two. read_row: false = it is not meant. A function that is not needed is nullptr.
struct Kind {
	const char *function;
	const Shape &shape; // of the rows that are searched, by their ids
	int queue_column;
	int time_column;
	const char *error_left_alone; // unless it is asked for, or nullptr
	bool (*read_row)(const Search *search, const Table *table, TupleTableSlot *slot, Found *found);
	void (*read_message)(const Search *search, const Table *leaf, TupleTableSlot *slot, Found *found);
	void (*put_in_order)(Found **found, int count); // in which they are tried
	void (*try_one)(const Search *search, Call *call, Found *found);
	void (*note_failed)(Search *search, const Found *found);
};

struct Search {
	const Kind *kind;
	text *queue;
	text *event_type; // nullptr = any
	text *error_code; // nullptr = any but error_left_alone
	bool has_since;
	bool has_until;
	TimestampTz since;
	TimestampTz until;
	int wanted;   // 0: it looks, and does nothing
	bool all;     // force, again
	text *reason; // of cancel_many, as below
	text *by;
	HTAB *in_use;         // of replay_many: digests of keys, or nullptr
	MemoryContext memory; // of the call
	MemoryContext slice;
	core::Uuid after; // the last one that was found
	bool started;     // there is one
	bool ended;       // the rows were read to the end
	int done;
	int failures; // since something was done
	bool is_left; // something that can be tried by another call
};

// The arguments queue and wanted come first; event_type, error_code, since and until from the given place on, and then
// whether all are meant.
Search search_for(FunctionCallInfo fcinfo, const Kind *kind, int filters);

// Puts a row for each that it finds: outbox_id, event, last_error, and the outcome, which is "done", why it is barred,
// an SQLSTATE, or NULL if it was not tried. If there may be more, a row of NULLs comes last.
void search_and_do(FunctionCallInfo fcinfo, Search *search);

} // namespace outbox
