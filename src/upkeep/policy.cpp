// See policy.h.

#include "upkeep/policy.h"

#include "rows/call.h"

namespace outbox {

namespace {

enum { only = 1, keep, dead_letters, archive_schema }; // the columns

int64
ms_of(TupleTableSlot *row, int column)
{
	bool isnull;
	Datum value = slot_getattr(row, column, &isnull);
	const Interval *interval = isnull ? nullptr : DatumGetIntervalP(value);

	return interval == nullptr ? PG_INT64_MAX : interval->day * (USECS_PER_DAY / 1000) + interval->time / 1000;
}

} // namespace

Policy
retention_policy()
{
	Relation rel = table_open(relation_oid("retention"), AccessShareLock);
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *row = table_slot_create(rel, nullptr);
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, nullptr);
	Policy policy = {PG_INT64_MAX, PG_INT64_MAX, nullptr};

	if (table_scan_getnextslot(scan, ForwardScanDirection, row))
	{
		bool isnull;
		Datum schema = slot_getattr(row, archive_schema, &isnull);

		policy = {ms_of(row, keep), ms_of(row, dead_letters), isnull ? nullptr : TextDatumGetCString(schema)};
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	UnregisterSnapshot(snapshot);
	table_close(rel, NoLock);
	return policy;
}

} // namespace outbox
