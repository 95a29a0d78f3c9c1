// See args.h. An interval is turned into microseconds at once, because adding months
// and days to a timestamp would make a lease depend on the session's time zone.

#include "server/args.h"

#include "server/encoding.h"
#include "server/settings.h"

namespace outbox {

namespace {

constexpr int shown_bytes = 64;
constexpr int longest_in_ledger = 8192;
constexpr int longest_worker = 512;

const char *
shown_interval(const Interval *interval)
{
	return DatumGetCString(DirectFunctionCall1(interval_out, PointerGetDatum(interval)));
}

ArrayArg
take_apart(ArrayType *array, const char *name)
{
	ArrayArg result = {};
	Oid element_type = ARR_ELEMTYPE(array);
	int16 length;
	bool by_value;
	char align;

	if (ARR_NDIM(array) > 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s must be one-dimensional, not of %d dimensions", name, ARR_NDIM(array))));
	get_typlenbyvalalign(element_type, &length, &by_value, &align);
	deconstruct_array(array, element_type, length, by_value, align, &result.items, &result.nulls, &result.count);
	return result;
}

// False if it does not fit.
bool
convert(const Interval *interval, int64 *us)
{
	int64 days = static_cast<int64>(interval->month) * DAYS_PER_MONTH + interval->day;

	return !interval_is_infinite(interval) && !pg_mul_s64_overflow(days, USECS_PER_DAY, us) &&
		   !pg_add_s64_overflow(*us, interval->time, us);
}

bool
add_delay(TimestampTz base, int64 delay_us, TimestampTz *result)
{
	return !pg_add_s64_overflow(base, delay_us, result) && IS_VALID_TIMESTAMP(*result);
}

} // namespace

Datum
required_datum(FunctionCallInfo fcinfo, int arg, const char *name)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", name)));
	return PG_GETARG_DATUM(arg);
}

text *
required_text(FunctionCallInfo fcinfo, int arg, const char *name)
{
	return DatumGetTextPP(required_datum(fcinfo, arg, name));
}

text *
required_nonempty_text(FunctionCallInfo fcinfo, int arg, const char *name)
{
	text *value = required_text(fcinfo, arg, name);

	check_nonempty(value, name);
	return value;
}

text *
worker_argument(FunctionCallInfo fcinfo, int arg)
{
	text *worker = required_nonempty_text(fcinfo, arg, "worker_id");

	if (VARSIZE_ANY_EXHDR(worker) > longest_worker)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("worker_id must not be longer than %d bytes: \"%s\"", longest_worker, shown(worker))));
	return worker;
}

int32
required_int(FunctionCallInfo fcinfo, int arg, const char *name)
{
	return DatumGetInt32(required_datum(fcinfo, arg, name));
}

bool
required_bool(FunctionCallInfo fcinfo, int arg, const char *name)
{
	return DatumGetBool(required_datum(fcinfo, arg, name));
}

text *
optional_text(FunctionCallInfo fcinfo, int arg)
{
	return PG_ARGISNULL(arg) ? nullptr : PG_GETARG_TEXT_PP(arg);
}

text *
current_user_name()
{
	return cstring_to_text(GetUserNameFromId(GetUserId(), false));
}

void
check_nonempty(const text *value, const char *name)
{
	if (VARSIZE_ANY_EXHDR(value) == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must not be empty", name)));
}

void
refuse_empty_key(const text *key, const char *name)
{
	if (key != nullptr && VARSIZE_ANY_EXHDR(key) == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must not be empty", name),
						errhint("Pass NULL for none.")));
}

void
refuse_nil_event_id(const core::Uuid &id, const char *hint)
{
	static const core::Uuid nil = {};

	if (equal(id, nil))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("event_id must not be the nil UUID, %s", shown(id)), errhint("%s", hint)));
}

void
check_at_least(int64 value, int64 least, const char *name)
{
	if (value < least)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s must be at least " INT64_FORMAT ", not " INT64_FORMAT, name, least, value)));
}

void
check_batch(int count, const char *name)
{
	if (count > max_batch())
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s must be at most %d (outbox.max_batch), not %d", name, max_batch(), count),
						errhint("Use several calls, or have outbox.max_batch raised.")));
}

int64
interval_us(const Interval *interval, const char *name)
{
	int64 us;

	if (interval_is_infinite(interval))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s must be finite, not %s", name, shown_interval(interval))));
	if (!convert(interval, &us))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s is out of range: %s", name, shown_interval(interval))));
	return us;
}

namespace {

void
check_not_longer(int64 us, const Interval *interval, const char *name)
{
	if (us > max_delay_us())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be longer than outbox.max_delay: %s", name, shown_interval(interval)),
				 errdetail("outbox.max_delay is %s.", GetConfigOptionByName("outbox.max_delay", nullptr, false))));
}

} // namespace

int64
positive_interval_us(const Interval *interval, const char *name)
{
	int64 us = interval_us(interval, name);

	if (us <= 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s must be greater than zero, not %s", name, shown_interval(interval))));
	check_not_longer(us, interval, name);
	return us;
}

int64
nonnegative_interval_us(const Interval *interval, const char *name)
{
	int64 us = interval_us(interval, name);

	if (us < 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s must not be negative: %s", name, shown_interval(interval))));
	check_not_longer(us, interval, name);
	return us;
}

TimestampTz
later(TimestampTz base, int64 delay_us, const char *name)
{
	TimestampTz result;

	if (!add_delay(base, delay_us, &result))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s is out of range: it ends after the last timestamp", name)));
	return result;
}

TimestampTz
later_or_last(TimestampTz base, int64 delay_us)
{
	TimestampTz result;

	return add_delay(base, delay_us, &result) ? result : END_TIMESTAMP - 1;
}

bool
usable_delay_us(const Interval *interval, TimestampTz base, int64 *us)
{
	TimestampTz end;

	return convert(interval, us) && *us >= 0 && *us <= max_delay_us() && add_delay(base, *us, &end);
}

namespace {

// The caller's descriptor of the rows. A look-up would cost as much as two index entries. The
// descriptor is complete if it is a registered row type, as for a function with OUT arguments.
TupleDesc
descriptor_of_caller(const ReturnSetInfo *rsinfo)
{
	TupleDesc desc = rsinfo != nullptr && IsA(rsinfo, ReturnSetInfo) ? rsinfo->expectedDesc : nullptr;

	return desc != nullptr && desc->tdtypeid == RECORDOID && desc->tdtypmod >= 0 ? desc : nullptr;
}

// Rows are filled by position: in a row of another shape a number would be read as a pointer.
void
require_columns(TupleDesc desc, int columns)
{
	if (columns != 0 && desc->natts != columns)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the function returns %d columns in this database, and %d in the library", desc->natts,
							   columns),
						errhint("Use ALTER EXTENSION outbox UPDATE.")));
}

} // namespace

void
begin_results(FunctionCallInfo fcinfo, int columns)
{
	const ReturnSetInfo *rsinfo = reinterpret_cast<ReturnSetInfo *>(fcinfo->resultinfo);
	// A result that is not a row has the caller's descriptor only.
	bool takes_callers =
		descriptor_of_caller(rsinfo) != nullptr || !type_is_rowtype(get_func_rettype(fcinfo->flinfo->fn_oid));

	InitMaterializedSRF(fcinfo, takes_callers ? MAT_SRF_USE_EXPECTED_DESC : 0);
	require_columns(rsinfo->setDesc, columns);
}

void
put_result(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	ReturnSetInfo *rsinfo = reinterpret_cast<ReturnSetInfo *>(fcinfo->resultinfo);

	CHECK_FOR_INTERRUPTS();
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

TupleDesc
single_row_desc(FunctionCallInfo fcinfo, int columns)
{
	ReturnSetInfo *rsinfo = reinterpret_cast<ReturnSetInfo *>(fcinfo->resultinfo);
	TupleDesc desc;

	if (rsinfo == nullptr || !IsA(rsinfo, ReturnSetInfo))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("set-valued function called in context that cannot accept a set")));
	desc = descriptor_of_caller(rsinfo);
	if (desc == nullptr && get_call_result_type(fcinfo, nullptr, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	require_columns(desc, columns);
	return BlessTupleDesc(desc);
}

Datum
single_row(TupleDesc desc, Datum *values, bool *nulls)
{
	return HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
}

ArrayArg
required_array(FunctionCallInfo fcinfo, int arg, const char *name)
{
	return take_apart(DatumGetArrayTypeP(required_datum(fcinfo, arg, name)), name);
}

ArrayArg
optional_array(FunctionCallInfo fcinfo, int arg, const char *name)
{
	return PG_ARGISNULL(arg) ? ArrayArg{} : take_apart(PG_GETARG_ARRAYTYPE_P(arg), name);
}

void
check_no_nulls(const ArrayArg &array, const char *name)
{
	for (int i = 0; i < array.count; i++)
		if (array.nulls[i])
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not contain null", name)));
}

void
check_same_length(const ArrayArg &array, int count, const char *name, const char *first_name)
{
	if (array.items != nullptr && array.count != count)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s has %d elements, but %s has %d", name, array.count, first_name, count)));
}

const text *
cut_for_ledger(const text *value)
{
	int size = value != nullptr ? static_cast<int>(VARSIZE_ANY_EXHDR(value)) : 0;
	const char *mark;
	int kept;

	if (size <= longest_in_ledger)
		return value;
	mark = psprintf(" [cut: %d bytes]", size);
	kept = clipped_length(VARDATA_ANY(value), size, longest_in_ledger - static_cast<int>(strlen(mark)));
	return cstring_to_text(psprintf("%.*s%s", kept, VARDATA_ANY(value), mark));
}

const char *
shown(const text *value)
{
	int size = VARSIZE_ANY_EXHDR(value);

	if (size <= shown_bytes)
		return text_to_cstring(value);
	size = clipped_length(VARDATA_ANY(value), size, shown_bytes);
	return psprintf("%.*s...", size, VARDATA_ANY(value));
}

} // namespace outbox
