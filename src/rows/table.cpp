// See table.h. The steps are those of COPY (multi-insert, then index entries) and of
// the apply worker of logical replication.

#include "rows/table.h"

#include "server/stop_point.h"

namespace outbox {

namespace {

// The index at that place, if it is ours and columns tell which rows belong into it.
const OwnIndex *
told_by_column(const Table *table, int place)
{
	for (int i = 0; table->shape->indexes[i].name != nullptr; i++)
		if (table->known->layout.own[i] == place)
			return table->shape->indexes[i].holds[0].when != OwnIndex::Holds::if_evaluated ? &table->shape->indexes[i]
																						   : nullptr;
	return nullptr;
}

void
open_index(Table *table, int place)
{
	if (table->indexes[place] != nullptr)
		return;
	expect_no_pins();
	table->indexes[place] =
		index_open(table->known->layout.indexes[place], table->access == reads ? AccessShareLock : RowExclusiveLock);
}

// all: those, too, into which perhaps no row belongs.
void
open_indexes(Table *table, bool all)
{
	for (int i = 0; i < table->known->layout.nindexes; i++)
		if (all || told_by_column(table, i) == nullptr)
			open_index(table, i);
}

// Only the infos of B-trees are kept from one call to the next.
void
take_index_infos(Table *table)
{
	const Layout &layout = table->known->layout;
	Size size = sizeof(IndexInfo *) * static_cast<Size>(layout.nindexes);

	table->index_infos = table->known->index_infos;
	for (int i = 0; i < layout.nindexes; i++)
	{
		if (table->index_infos[i] != nullptr)
			continue;
		if (table->index_infos == table->known->index_infos)
			table->index_infos = static_cast<IndexInfo **>(memcpy(palloc(size), table->known->index_infos, size));
		table->index_infos[i] = BuildIndexInfo(table->indexes[i]);
	}
}

// Columns of users in a new row: the default, or NULL if there is none.
void
fill_foreign_columns(Table *table, TupleTableSlot *row)
{
	TupleDesc desc = RelationGetDescr(table->rel);
	bool ours[MaxAttrNumber] = {};

	for (int i = 0; table->shape->columns[i].name != nullptr; i++)
		if (table->attno[i] != InvalidAttrNumber)
			ours[table->attno[i] - 1] = true;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(desc, i);
		Node *expr;

		if (ours[i] || attr->attisdropped || attr->attgenerated != '\0')
			continue;
		expr = build_column_default(table->rel, i + 1);
		if (expr == nullptr)
			continue;
		row->tts_values[i] = ExecEvalExpr(ExecPrepareExpr(reinterpret_cast<Expr *>(expr), table->estate),
										  GetPerTupleExprContext(table->estate), &row->tts_isnull[i]);
	}
}

// What the executor does with a row before it is stored.
void
complete_row(Table *table, TupleTableSlot *row, CmdType command)
{
	TupleConstr *constr = RelationGetDescr(table->rel)->constr;

	if (command == CMD_INSERT)
		fill_foreign_columns(table, row);
	if (constr == nullptr)
		return;
	row->tts_tableOid = RelationGetRelid(table->rel);
	if (constr->has_generated_stored)
		ExecComputeStoredGenerated(table->result_info, table->estate, row, command);
	ExecConstraints(table->result_info, row, table->estate);
}

bool
column_holds(const Table *table, const OwnIndex::Holds &holds, TupleTableSlot *row)
{
	bool isnull;
	Datum value = table->get(row, holds.column, &isnull);

	switch (holds.when)
	{
		case OwnIndex::Holds::if_evaluated:
			return true;
		case OwnIndex::Holds::if_set:
			return !isnull;
		case OwnIndex::Holds::if_unset:
			return isnull;
		case OwnIndex::Holds::if_negative:
			return !isnull && DatumGetInt64(value) < 0;
		case OwnIndex::Holds::if_true:
		case OwnIndex::Holds::if_false:
			break;
	}
	return !isnull && DatumGetBool(value) == (holds.when == OwnIndex::Holds::if_true);
}

bool
columns_hold(const Table *table, const OwnIndex *own, TupleTableSlot *row)
{
	for (const OwnIndex::Holds &holds : own->holds)
		if (!column_holds(table, holds, row))
			return false;
	return true;
}

bool
belongs_into(Table *table, const OwnIndex *own, IndexInfo *info, TupleTableSlot *row)
{
	ExprContext *context = GetPerTupleExprContext(table->estate);

	if (own != nullptr && !columns_hold(table, own, row))
		return false;

	context->ecxt_scantuple = row;
	if (own != nullptr || info->ii_Predicate == NIL)
		return true;
	if (info->ii_PredicateState == nullptr)
		info->ii_PredicateState = ExecPrepareQual(info->ii_Predicate, table->estate);
	return ExecQual(info->ii_PredicateState, context);
}

// The id never changes. The entry of its new version needs no check for duplicates, because that
// of the old version prevents them, and the hint lets the index drop dead entries.
bool
keeps_key(Relation index, bool update)
{
	return update && index->rd_index->indisprimary && index->rd_index->indnkeyatts == 1;
}

void
insert_entry(Table *table, int i, const OwnIndex *own, TupleTableSlot *row, bool update)
{
	Relation index = table->indexes[i];
	IndexInfo *info = table->index_infos[i];
	bool unchanged = keeps_key(index, update);
	IndexUniqueCheck check = index->rd_index->indisunique && !unchanged ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO;
	Datum values[INDEX_MAX_KEYS];
	bool nulls[INDEX_MAX_KEYS];

	if (belongs_into(table, own, info, row))
	{
		FormIndexDatum(info, row, table->estate, values, nulls);
		index_insert(index, values, nulls, &row->tts_tid, table->rel, check, unchanged, info);
	}
	ResetPerTupleExprContext(table->estate);
}

bool
any_belongs_into(const Table *table, const OwnIndex *own, TupleTableSlot **rows, int count)
{
	for (int i = 0; i < count; i++)
		if (columns_hold(table, own, rows[i]))
			return true;
	return false;
}

void
insert_index_entries(Table *table, TupleTableSlot **rows, int count, UpdateIndexes which, bool update)
{
	for (int i = 0; i < table->known->layout.nindexes; i++)
	{
		const OwnIndex *own = told_by_column(table, i);

		if (own != nullptr && !any_belongs_into(table, own, rows, count))
			continue;
		open_index(table, i);
		if (!table->index_infos[i]->ii_ReadyForInserts || !is_concerned(which, table->indexes[i]))
			continue;
		for (int n = 0; n < count; n++)
			insert_entry(table, i, own, rows[n], update);
	}
}

void
make_lock_slot(Table *table)
{
	MemoryContext previous = MemoryContextSwitchTo(table->estate->es_query_cxt);

	table->lock_slot = table_slot_create(table->rel, nullptr);
	MemoryContextSwitchTo(previous);
}

Changed
lock_row(Table *table, ItemPointer tid, LockWaitPolicy policy)
{
	TM_FailureData failure;
	TM_Result result;

	if (table->lock_slot == nullptr)
		make_lock_slot(table);
	result = table_tuple_lock(table->rel, tid, GetActiveSnapshot(), table->lock_slot, GetCurrentCommandId(true),
							  LockTupleExclusive, policy, 0, &failure);
	ExecClearTuple(table->lock_slot);
	if (result == TM_Ok)
		return Changed::done;
	return result == TM_WouldBlock ? Changed::busy : Changed::outdated;
}

// After a wait for another transaction the row is locked, but what the caller concluded before (a
// lease has not expired) may be outdated: it looks again.
Changed
lock_to_change(Table *table, ItemPointer tid, Wait wait)
{
	Changed locked = lock_row(table, tid, LockWaitSkip);

	if (locked != Changed::busy || wait == Wait::never)
		return locked;
	expect_no_pins();
	lock_row(table, tid, LockWaitBlock);
	return Changed::outdated;
}

} // namespace

Table *
wrap_table(const Shape &shape, Relation rel, int access, EState *estate)
{
	KnownTable *known = know_table(shape, rel, access, estate->es_query_cxt);
	MemoryContext previous = MemoryContextSwitchTo(estate->es_query_cxt);
	Table *table = static_cast<Table *>(palloc0(sizeof(Table)));

	table->shape = &shape;
	table->rel = rel;
	table->estate = estate;
	table->access = access;
	table->known = known;
	table->attno = known->layout.attno;
	table->indexes =
		static_cast<Relation *>(palloc0(sizeof(Relation) * static_cast<Size>(Max(known->layout.nindexes, 1))));
	if (access != reads)
	{
		open_indexes(table, known->index_infos == nullptr);
		if (known->index_infos == nullptr)
			know_indexes(known, table->indexes);
		take_index_infos(table);
	}
	if (access != reads && known->layout.extended)
	{
		table->result_info = makeNode(ResultRelInfo);
		InitResultRelInfo(table->result_info, rel, 0, nullptr, 0);
	}
	MemoryContextSwitchTo(previous);
	return table;
}

bool
has_foreign_parts(const Table *table)
{
	return table->known->layout.fallible;
}

void
close_table(Table *table)
{
	if (table->id_probe != nullptr)
		end_probe(table->id_probe);
	if (table->lock_slot != nullptr)
		ExecDropSingleTupleTableSlot(table->lock_slot);
	if (table->changed != nullptr)
		ExecDropSingleTupleTableSlot(table->changed);
	for (int i = 0; i < table->known->layout.nindexes; i++)
	{
		if (table->indexes[i] == nullptr)
			continue;
		if (table->access != reads)
			end_index_inserts(table->indexes[i], table->index_infos[i]);
		index_close(table->indexes[i], NoLock);
	}
	table_close(table->rel, NoLock);
}

Relation
own_index(Table *table, int which)
{
	int place = table->known->layout.own[which];

	open_index(table, place);
	return table->indexes[place];
}

Probe *
probe_id(Table *table, const core::Uuid &id)
{
	if (table->id_probe == nullptr)
	{
		table->id_probe = static_cast<Probe *>(palloc(sizeof(Probe)));
		begin_probe(table->id_probe, table, primary_index(table), 1);
	}
	start_id_probe(table->id_probe, id);
	return table->id_probe;
}

text *
copied_text(const Table *table, TupleTableSlot *slot, int column)
{
	bool isnull;
	Datum value = table->get(slot, column, &isnull);

	return isnull ? nullptr : DatumGetTextPCopy(value);
}

TupleTableSlot *
new_row(Table *table)
{
	TupleTableSlot *row = MakeSingleTupleTableSlot(table->known->row_desc, &TTSOpsVirtual);

	memset(row->tts_isnull, true, static_cast<Size>(row->tts_tupleDescriptor->natts) * sizeof(bool));
	ExecStoreVirtualTuple(row);
	return row;
}

TupleTableSlot *
changed_row(Table *table)
{
	if (table->changed == nullptr)
	{
		MemoryContext previous = MemoryContextSwitchTo(table->estate->es_query_cxt);

		table->changed = new_row(table);
		MemoryContextSwitchTo(previous);
	}
	// What the server has computed in it goes.
	ExecClearTuple(table->changed);
	return ExecStoreVirtualTuple(table->changed);
}

void
set(const Table *table, TupleTableSlot *row, int column, Datum value)
{
	int i = table->attno[column] - 1;

	if (i < 0)
		return;
	row->tts_values[i] = value;
	row->tts_isnull[i] = false;
}

void
set_text(const Table *table, TupleTableSlot *row, int column, const text *value)
{
	if (value != nullptr)
		set(table, row, column, PointerGetDatum(value));
	else
		set_null(table, row, column);
}

void
set_null(const Table *table, TupleTableSlot *row, int column)
{
	if (table->attno[column] != InvalidAttrNumber)
		row->tts_isnull[table->attno[column] - 1] = true;
}

void
insert_rows(Table *table, TupleTableSlot **rows, int count)
{
	CommandId command = GetCurrentCommandId(true);

	if (table->known->layout.extended)
		for (int i = 0; i < count; i++)
			complete_row(table, rows[i], CMD_INSERT);
	if (count == 1)
		table_tuple_insert(table->rel, rows[0], command, 0, nullptr);
	else
		table_multi_insert(table->rel, rows, count, command, 0, nullptr);
	insert_index_entries(table, rows, count, all_indexes, false);
	OUTBOX_STOP_POINT("row_written");
}

Changed
hold_row(Table *table, ItemPointer tid, Wait wait)
{
	if (wait == Wait::for_row)
		expect_no_pins();
	return lock_row(table, tid, wait == Wait::for_row ? LockWaitBlock : LockWaitSkip);
}

namespace {

// Waits for who holds the row.
Changed
replace_row(Table *table, ItemPointer tid, TupleTableSlot *row)
{
	UpdateIndexes which = {};
	TM_FailureData failure;
	LockTupleMode mode;

	if (table->known->layout.extended)
		complete_row(table, row, CMD_UPDATE);
	if (table_tuple_update(table->rel, tid, row, GetCurrentCommandId(true), GetActiveSnapshot(), InvalidSnapshot, true,
						   &failure, &mode, &which) != TM_Ok)
		return Changed::outdated;
	insert_index_entries(table, &row, 1, which, true);
	OUTBOX_STOP_POINT("row_written");
	return Changed::done;
}

} // namespace

Changed
update_row(Table *table, ItemPointer tid, TupleTableSlot *row, Wait wait)
{
	Changed locked = lock_to_change(table, tid, wait);

	return locked == Changed::done ? replace_row(table, tid, row) : locked;
}

void
update_own_row(Table *table, ItemPointer tid, TupleTableSlot *row)
{
	expect_no_pins();
	if (replace_row(table, tid, row) != Changed::done)
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						errmsg("could not serialize access due to concurrent update")));
}

// Tries without waiting first, which succeeds for most rows. TM_BeingModified says only that
// another lock is held, perhaps by our own transaction.
Changed
delete_row(Table *table, ItemPointer tid, Wait wait)
{
	TM_FailureData failure;
	auto remove = [&](bool may_wait) {
		return table_tuple_delete(table->rel, tid, GetCurrentCommandId(true), GetActiveSnapshot(), InvalidSnapshot,
								  may_wait, &failure, false);
	};
	TM_Result result = remove(false);

	if (result == TM_BeingModified)
	{
		Changed locked = lock_to_change(table, tid, wait);

		if (locked != Changed::done)
			return locked;
		result = remove(true);
	}
	return result == TM_Ok ? Changed::done : Changed::outdated;
}

void
raise_busy(const Table *table)
{
	ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					errmsg("another transaction holds a row of outbox.%s", RelationGetRelationName(table->rel))));
}

} // namespace outbox
