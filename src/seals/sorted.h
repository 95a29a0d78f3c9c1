// Rows of one partition in the order of their tree, and the parts that this makes.
//
// Guarantee: memory is bounded by work_mem. What is more lies in temporary files, which belong to the subtransaction
// that began the sort.
#pragma once

#include "seals/leaves.h"

namespace outbox {

// Of more than one window: window counts first, then the id, then attempt_no.
struct SortedRow {
	int64 window;
	core::Uuid id;
	int32 attempt_no;
	core::Hash leaf;
};

struct RowSort {
	Tuplesortstate *state;
	bool has_row; // the one that next_window() has read ahead
	SortedRow row;
};

void begin_sort(RowSort *sort);
void sort_row(RowSort *sort, int64 window, const SealedRow *row);
// After the last row.
void sort_rows(RowSort *sort);
// Begins again with the first row.
void restart_sort(RowSort *sort);
bool next_sorted(RowSort *sort, SortedRow *row);
void end_sort(RowSort *sort);

// The part of the next window that has rows; false: there is none.
struct WindowRows {
	int64 window;
	int64 rows;
	core::Hash root;
};
bool next_window(RowSort *sort, WindowRows *part);

// Strings of one size in the order of their bytes, for sorts of other things.
Tuplesortstate *begin_byte_sort();
void sort_bytes(Tuplesortstate *state, const unsigned char *bytes, int size);
bool next_sorted_bytes(Tuplesortstate *state, unsigned char *bytes, int size);

[[noreturn]] void digest_failed();

} // namespace outbox
