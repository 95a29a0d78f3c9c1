// row_holders: which open transactions have the pending row of a message in use, for explain and for operators.
//
// Guarantees: it reads the row's header and locks nothing but a page for a moment, so it works on a standby and in a
// read-only transaction. It names the top transaction, also where a savepoint locked the row, and each of several that
// share the lock: their MultiXactId is never taken for a transaction's id.

#include "rows/call.h"
#include "rows/peek.h"
#include "server/args.h"
#include "server/boundary.h"

namespace outbox {

namespace {

// A row for the transaction, if it is another one and still open.
void
put_holder(FunctionCallInfo fcinfo, TransactionId xid)
{
	Datum values[2];
	bool nulls[2] = {false, false};
	int pid;

	if (TransactionIdIsCurrentTransactionId(xid) || !TransactionIdIsInProgress(xid))
		return;
	xid = SubTransGetTopmostTransaction(xid);
	pid = BackendXidGetPid(xid);
	values[0] = TransactionIdGetDatum(xid);
	values[1] = Int32GetDatum(pid);
	nulls[1] = pid == 0; // prepared, or on the primary of this standby
	put_result(fcinfo, values, nulls);
}

void
put_members(FunctionCallInfo fcinfo, MultiXactId group, uint16 infomask)
{
	MultiXactMember *members;
	int count = GetMultiXactIdMembers(group, &members, false, HEAP_XMAX_IS_LOCKED_ONLY(infomask));

	for (int i = 0; i < count; i++)
		put_holder(fcinfo, members[i].xid);
}

void
put_holders(FunctionCallInfo fcinfo, TupleTableSlot *row)
{
	BufferHeapTupleTableSlot *held = reinterpret_cast<BufferHeapTupleTableSlot *>(row);
	TransactionId xmax;
	uint16 infomask;

	Assert(TTS_IS_BUFFERTUPLE(row));
	LockBuffer(held->buffer, BUFFER_LOCK_SHARE);
	infomask = held->base.tuple->t_data->t_infomask;
	xmax = HeapTupleHeaderGetRawXmax(held->base.tuple->t_data);
	LockBuffer(held->buffer, BUFFER_LOCK_UNLOCK);
	if ((infomask & HEAP_XMAX_INVALID) != 0 || !TransactionIdIsValid(xmax) || HEAP_LOCKED_UPGRADED(infomask))
		return;
	if ((infomask & HEAP_XMAX_IS_MULTI) != 0)
		put_members(fcinfo, xmax, infomask);
	else
		put_holder(fcinfo, xmax);
}

} // namespace

OUTBOX_FUNCTION(outbox_row_holders)
{
	core::Uuid id = to_uuid(required_datum(fcinfo, 0, "outbox_id"));
	int64 entries = PG_INT64_MAX;
	ScanKeyData key;
	Peek peek;
	Call call;

	begin_results(fcinfo, 2);
	begin_reading(&call);
	begin_peek(&peek, open(&call, pending_shape, reads), primary_key, 1);
	key_equals(&key, peek.index, 1, F_UUID_EQ, from_uuid(id));
	start_peek(&peek, &key, 1);
	if (next_within(&peek, ForwardScanDirection, &entries) == Walk::row)
		put_holders(fcinfo, peek.slot);
	end_peek(&peek);
	end_reading(&call);
	return static_cast<Datum>(0);
}

} // namespace outbox
