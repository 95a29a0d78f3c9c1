// One message, or its last attempt, by id: functions of the views.
//
// Guarantees: they open and lock only the partition that holds the id, for reading, under the caller's snapshot. The
// install script decides which columns they return, by name.

#include "rows/call.h"
#include "rows/peek.h"
#include "server/args.h"
#include "server/boundary.h"

namespace outbox {

namespace {

int
place_in(TupleDesc from, const FormData_pg_attribute *wanted)
{
	for (int i = 0; i < from->natts; i++)
	{
		const FormData_pg_attribute *attribute = TupleDescAttr(from, i);

		if (!attribute->attisdropped && attribute->atttypid == wanted->atttypid &&
			namestrcmp(const_cast<Name>(&attribute->attname), NameStr(wanted->attname)) == 0)
			return i + 1;
	}
	ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN), errmsg("column %s is missing", NameStr(wanted->attname))));
}

// Kept for the calls of the same query.
TupleDesc
result_desc(FunctionCallInfo fcinfo)
{
	TupleDesc desc = static_cast<TupleDesc>(fcinfo->flinfo->fn_extra);
	MemoryContext context;

	if (desc != nullptr)
		return desc;
	context = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
	if (get_call_result_type(fcinfo, nullptr, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	desc = BlessTupleDesc(CreateTupleDescCopy(desc));
	fcinfo->flinfo->fn_extra = desc;
	MemoryContextSwitchTo(context);
	return desc;
}

Datum
as_result(FunctionCallInfo fcinfo, TupleTableSlot *row)
{
	TupleDesc desc = result_desc(fcinfo);
	Datum *values = static_cast<Datum *>(palloc0(sizeof(Datum) * static_cast<Size>(desc->natts)));
	bool *nulls = static_cast<bool *>(palloc0(sizeof(bool) * static_cast<Size>(desc->natts)));

	for (int i = 0; i < desc->natts; i++)
		values[i] = slot_getattr(row, place_in(row->tts_tupleDescriptor, TupleDescAttr(desc, i)), &nulls[i]);
	return HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
}

// NULL if there is none.
Datum
look_up(FunctionCallInfo fcinfo, const Shape &shape)
{
	core::Uuid id = to_uuid(PG_GETARG_DATUM(0));
	int64 entries = PG_INT64_MAX;
	Datum result = 0;
	ScanKeyData key;
	Peek peek;
	Call call;

	begin_reading(&call);
	begin_peek(&peek, leaf_of(&call, shape, id, reads), primary_key, 1);
	key_equals(&key, peek.index, 1, F_UUID_EQ, from_uuid(id));
	start_peek(&peek, &key, 1);
	fcinfo->isnull = next_within(&peek, BackwardScanDirection, &entries) != Walk::row;
	if (!fcinfo->isnull)
		result = as_result(fcinfo, peek.slot);
	end_peek(&peek);
	end_reading(&call);
	return result;
}

} // namespace

OUTBOX_FUNCTION(outbox_message)
{
	return look_up(fcinfo, messages_shape);
}

OUTBOX_FUNCTION(outbox_last_attempt)
{
	return look_up(fcinfo, attempts_shape);
}

} // namespace outbox
