// Reading and checking SQL arguments, and giving back rows.
//
// Guarantee: a value that is returned can be used as it is. Anything else is an ERROR, 22004 (NULL)
// or 22023 (value), which names the argument and the value, before anything is written.
#pragma once

#include "server/values.h"

namespace outbox {

// Arguments that must not be NULL.
text *required_text(FunctionCallInfo fcinfo, int arg, const char *name);
text *required_nonempty_text(FunctionCallInfo fcinfo, int arg, const char *name);
// Up to 512 bytes: there is an index on the worker's name.
text *worker_argument(FunctionCallInfo fcinfo, int arg);
int32 required_int(FunctionCallInfo fcinfo, int arg, const char *name);
bool required_bool(FunctionCallInfo fcinfo, int arg, const char *name);
Datum required_datum(FunctionCallInfo fcinfo, int arg, const char *name);

// nullptr when NULL.
text *optional_text(FunctionCallInfo fcinfo, int arg);

// The current user. Before begin_call(), that is the caller.
text *current_user_name();

void check_nonempty(const text *value, const char *name);
// Some languages and forms pass an empty string or the nil UUID for "none". As a key, all messages would share it.
void refuse_empty_key(const text *key, const char *name);
void refuse_nil_event_id(const core::Uuid &id, const char *hint);
void check_at_least(int64 value, int64 least, const char *name);
// Against outbox.max_batch.
void check_batch(int count, const char *name);

// Microseconds of an interval. A day has 24 hours and a month 30 days, in every time zone. Infinite
// and out-of-range intervals are 22023.
int64 interval_us(const Interval *interval, const char *name);
int64 positive_interval_us(const Interval *interval, const char *name);
int64 nonnegative_interval_us(const Interval *interval, const char *name);

// base + delay. If that is out of range, later() raises 22023, and later_or_last() returns the
// last possible timestamp.
TimestampTz later(TimestampTz base, int64 delay_us, const char *name);
TimestampTz later_or_last(TimestampTz base, int64 delay_us);

// For one item of a batch: false instead of an ERROR.
bool usable_delay_us(const Interval *interval, TimestampTz base, int64 *us);

// The elements of a one-dimensional array. A NULL array has items == nullptr, and all its elements
// are NULL.
struct ArrayArg {
	Datum *items;
	bool *nulls;
	int count;

	bool is_null(int i) const { return items == nullptr || nulls[i]; }
};
ArrayArg required_array(FunctionCallInfo fcinfo, int arg, const char *name);
ArrayArg optional_array(FunctionCallInfo fcinfo, int arg, const char *name);
void check_no_nulls(const ArrayArg &array, const char *name);
void check_same_length(const ArrayArg &array, int count, const char *name, const char *first_name);

// For a function that returns a set of rows, or of values: call begin_results() first, then put_result() for each row.
// columns: how many it fills by position. 55000 if the function has another number of them in this database.
void begin_results(FunctionCallInfo fcinfo, int columns = 0);
void put_result(FunctionCallInfo fcinfo, Datum *values, bool *nulls);
// Puts a row that is the result of one function or a part of the result of another.
using PutRow = void (*)(FunctionCallInfo fcinfo, Datum *values, bool *nulls);
// For a function that returns exactly one row: cheaper than a set. Ask for the descriptor before
// anything is done.
TupleDesc single_row_desc(FunctionCallInfo fcinfo, int columns = 0);
Datum single_row(TupleDesc desc, Datum *values, bool *nulls);

// A text for the ledger, or another table that keeps it. If it has more than 8 kB it is cut between two
// characters and gets a mark with its length. nullptr stays nullptr.
const text *cut_for_ledger(const text *value);
inline text *
cut_for_ledger(text *value)
{
	return const_cast<text *>(cut_for_ledger(const_cast<const text *>(value)));
}

// For messages: the text, cut to a readable length.
const char *shown(const text *value);

} // namespace outbox
