// See peek.h.

#include "rows/peek.h"

namespace outbox {

void
begin_peek(Peek *peek, Table *table, int which, int nkeys)
{
	peek->table = table;
	peek->index = own_index(table, which);
	peek->scan = begin_index_scan(table->rel, peek->index, GetActiveSnapshot(), nkeys);
	peek->slot = table_slot_create(table->rel, nullptr);
}

void
start_peek(Peek *peek, ScanKey keys, int nkeys)
{
	index_rescan(peek->scan, keys, nkeys, nullptr, 0);
}

Walk
next_within(Peek *peek, ScanDirection direction, int64 *entries)
{
	while ((*entries)-- > 0)
	{
		if (index_getnext_tid(peek->scan, direction) == nullptr)
			return Walk::end;
		CHECK_FOR_INTERRUPTS();
		if (index_fetch_heap(peek->scan, peek->slot))
			return Walk::row;
	}
	return Walk::tired;
}

void
end_peek(Peek *peek)
{
	ExecDropSingleTupleTableSlot(peek->slot);
	index_endscan(peek->scan);
}

} // namespace outbox
