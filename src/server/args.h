// Reading and checking SQL arguments, and giving back rows.
//
// Guarantee: what comes out is usable as it stands; everything else is an ERROR
// with 22004 (NULL) or 22023 (value) that names the argument and the value, before
// anything was written.
#pragma once

#include "server/pg.h"

namespace outbox {

// Arguments that must not be NULL.
text *required_text(FunctionCallInfo fcinfo, int arg, const char *name);
text *required_nonempty_text(FunctionCallInfo fcinfo, int arg, const char *name);
// Up to 512 bytes: a worker's name stands in an index.
text *worker_argument(FunctionCallInfo fcinfo, int arg);
int32 required_int(FunctionCallInfo fcinfo, int arg, const char *name);
bool required_bool(FunctionCallInfo fcinfo, int arg, const char *name);
Datum required_datum(FunctionCallInfo fcinfo, int arg, const char *name);

// nullptr when NULL.
text *optional_text(FunctionCallInfo fcinfo, int arg);

// The current user. Before begin_call(), that is the caller.
text *current_user_name();

void check_not_empty(const text *value, const char *name);
void check_at_least(int64 value, int64 least, const char *name);
// Against outbox.max_batch.
void check_batch(int count, const char *name);

// Microseconds of an interval, a day being 24 hours and a month 30 days: the same
// in every time zone. infinite and out-of-range ones are 22023.
int64 interval_us(const Interval *interval, const char *name);
int64 positive_interval_us(const Interval *interval, const char *name);
int64 nonnegative_interval_us(const Interval *interval, const char *name);

// base + delay. Refused when that is no timestamp; or, where nobody is there to be
// refused, the last timestamp there is.
TimestampTz later(TimestampTz base, int64 delay_us, const char *name);
TimestampTz later_or_last(TimestampTz base, int64 delay_us);

// For one item of a batch: false instead of an ERROR.
bool usable_delay_us(const Interval *interval, TimestampTz base, int64 *us);

// A one-dimensional array taken apart. Absent (SQL NULL) arrays have items ==
// nullptr and read as all NULL.
struct ArrayArg {
	Datum *items;
	bool *nulls;
	int count;

	bool is_null(int i) const { return items == nullptr || nulls[i]; }
};
ArrayArg required_array(FunctionCallInfo fcinfo, int arg, const char *name);
ArrayArg optional_array(FunctionCallInfo fcinfo, int arg, const char *name);
void check_same_length(const ArrayArg &array, int count, const char *name, const char *first_name);

// For a function that answers with rows: it begins with the one, and puts each by the other. columns: how many it
// fills, by position; 55000 where the database's version of the function has others.
void begin_results(FunctionCallInfo fcinfo, int columns = 0);
void put_result(FunctionCallInfo fcinfo, Datum *values, bool *nulls);
// Where a row goes to that is the answer of one function or a part of another's.
using PutRow = void (*)(FunctionCallInfo fcinfo, Datum *values, bool *nulls);
// For a function that answers with exactly one row: cheaper than a set of rows. The
// descriptor is asked for before anything is done.
TupleDesc single_row_desc(FunctionCallInfo fcinfo, int columns = 0);
Datum single_row(TupleDesc desc, Datum *values, bool *nulls);

// A text for the ledger: no longer than 8 kB, or cut between two characters, with a mark that
// says how long it was. nullptr stays.
const text *cut_for_ledger(const text *value);

// What quoting in a message needs: text cut to a readable length.
const char *shown(const text *value);

} // namespace outbox
