// See table.h. The steps are those of COPY (multi-insert, then index entries) and of
// the apply worker of logical replication.

#include "rows/table.h"

#include "rows/index_code.h"
#include "rows/known_table.h"
#include "rows/probe.h"

namespace outbox {

namespace {

[[noreturn]] void
refuse(Relation rel, const char *what, const char *name)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("table outbox.%s has %s%s%s", RelationGetRelationName(rel), what, name ? " " : "",
						   name ? name : ""),
					errdetail("The outbox works on its tables directly and would ignore it."),
					errhint("Remove it, or use a table of your own.")));
}

bool
is_own_check(const Table *table, const ConstrCheck *check)
{
	const char *definition = TextDatumGetCString(DirectFunctionCall2(pg_get_expr, CStringGetTextDatum(check->ccbin),
																	 ObjectIdGetDatum(RelationGetRelid(table->rel))));

	for (const char *own : table->shape->checks)
		if (own != nullptr && strcmp(own, definition) == 0)
			return true;
	return false;
}

// The trigger events (as tgtype bits) that an access would have to fire.
bool
would_fire(int16 tgtype, int access)
{
	return ((access & inserts) != 0 && TRIGGER_FOR_INSERT(tgtype)) ||
		   ((access & updates) != 0 && TRIGGER_FOR_UPDATE(tgtype)) ||
		   ((access & deletes) != 0 && TRIGGER_FOR_DELETE(tgtype));
}

// InvalidOid: the shape has no trigger.
Oid
own_trigger_function(const Shape &shape, Oid schema)
{
	oidvector *no_arguments = buildoidvector(nullptr, 0);

	if (shape.own_trigger == nullptr)
		return InvalidOid;
	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(shape.own_trigger),
						   PointerGetDatum(no_arguments), ObjectIdGetDatum(schema));
}

// Our own trigger bears the name of its function.
bool
is_own_trigger(const Shape &shape, const Trigger *trigger, Oid function)
{
	return OidIsValid(function) && trigger->tgfoid == function && strcmp(trigger->tgname, shape.own_trigger) == 0;
}

void
refuse_triggers(const Shape &shape, Relation rel, int access)
{
	// Looked up first: a look into the catalogue may replace what the walk is in.
	Oid function = rel->trigdesc != nullptr ? own_trigger_function(shape, RelationGetNamespace(rel)) : InvalidOid;
	const TriggerDesc *triggers = rel->trigdesc;

	for (int i = 0; triggers != nullptr && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (trigger->tgenabled != TRIGGER_DISABLED && would_fire(trigger->tgtype, access) &&
			!is_own_trigger(shape, trigger, function))
			refuse(rel, "the trigger", trigger->tgname);
	}
}

// The columns stand where the install script put them unless somebody dropped one
// or a dump wrote them anew: then they are looked for.
AttrNumber
find_column(TupleDesc desc, const char *name, int expected)
{
	for (int n = 0; n < desc->natts; n++)
	{
		int i = (expected + n) % desc->natts;
		Form_pg_attribute attr = TupleDescAttr(desc, i);

		if (!attr->attisdropped && strcmp(NameStr(attr->attname), name) == 0)
			return static_cast<AttrNumber>(i + 1);
	}
	return InvalidAttrNumber;
}

Oid
wanted_type(const Table *table, int column)
{
	Oid type = table->shape->types[column];

	return OidIsValid(type) ? type : attempt_state_type(RelationGetNamespace(table->rel));
}

void
map_columns(Table *table)
{
	TupleDesc desc = RelationGetDescr(table->rel);

	for (int i = 0; i < table->shape->ncolumns; i++)
	{
		table->attno[i] = find_column(desc, table->shape->columns[i], i);
		if (table->attno[i] == InvalidAttrNumber)
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
							errmsg("column %s of table outbox.%s is missing", table->shape->columns[i],
								   RelationGetRelationName(table->rel))));
		if (TupleDescAttr(desc, table->attno[i] - 1)->atttypid != wanted_type(table, i))
			ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
							errmsg("column %s of table outbox.%s has type %s instead of %s", table->shape->columns[i],
								   RelationGetRelationName(table->rel),
								   format_type_be(TupleDescAttr(desc, table->attno[i] - 1)->atttypid),
								   format_type_be(wanted_type(table, i)))));
	}
}

bool
is_extended(const Table *table)
{
	TupleDesc desc = RelationGetDescr(table->rel);
	int live = 0;

	for (int i = 0; i < desc->natts; i++)
		live += !TupleDescAttr(desc, i)->attisdropped;
	if (live > table->shape->ncolumns)
		return true;
	for (int i = 0; i < table->shape->ncolumns; i++)
		if (TupleDescAttr(desc, table->attno[i] - 1)->attnotnull && (table->shape->not_null & uint32{1} << i) == 0)
			return true;
	if (desc->constr == nullptr)
		return false;
	for (int i = 0; i < desc->constr->num_check; i++)
		if (!is_own_check(table, &desc->constr->check[i]))
			return true;
	return false;
}

void
refuse_index(const Table *table, Relation index)
{
	if (index->rd_index->indisexclusion)
		refuse(table->rel, "the exclusion constraint", RelationGetRelationName(index));
	if (index->rd_index->indisunique && !index->rd_index->indimmediate)
		refuse(table->rel, "the deferrable constraint", RelationGetRelationName(index));
}

// Nobody has more than 64; if somebody has, the others count as the last one does.
uint64
place(int index)
{
	return uint64{1} << Min(index, 63);
}

uint64
foreign_indexes(const Table *table)
{
	uint64 foreign = 0;

	for (int i = 0; i < table->nindexes; i++)
		if (!is_own_index(*table->shape, table->indexes[i]))
			foreign |= place(i);
	return foreign;
}

// To read the definitions costs more than to write a row.
void
judge(Table *table, KnownTable *watched)
{
	if (watched != nullptr && !watched->outdated && watched->judged)
	{
		table->extended = watched->extended;
		table->foreign_indexes = watched->foreign_indexes;
		return;
	}
	table->extended = is_extended(table);
	table->foreign_indexes = foreign_indexes(table);
	if (watched == nullptr || watched->outdated)
		return;
	watched->judged = true;
	watched->extended = table->extended;
	watched->foreign_indexes = table->foreign_indexes;
}

void
open_indexes(Table *table)
{
	List *oids = RelationGetIndexList(table->rel);
	ListCell *cell;

	table->indexes = static_cast<Relation *>(palloc(sizeof(Relation) * Max(list_length(oids), 1)));
	foreach (cell, oids)
	{
		Relation index = index_open(lfirst_oid(cell), RowExclusiveLock);

		refuse_index(table, index);
		table->indexes[table->nindexes++] = index;
	}
	list_free(oids);
}

// Ours call nothing that could be written out: what the server remembers of them will do.
void
prepare_indexes(Table *table)
{
	table->index_infos = static_cast<IndexInfo **>(palloc(sizeof(IndexInfo *) * Max(table->nindexes, 1)));
	for (int i = 0; i < table->nindexes; i++)
		table->index_infos[i] = (table->foreign_indexes & place(i)) != 0 ? index_info(table->indexes[i])
																		 : BuildIndexInfo(table->indexes[i]);
}

void
use_known(Table *table, const KnownTable *known)
{
	memcpy(table->attno, known->attno, sizeof(table->attno));
	table->nindexes = known->nindexes;
	table->index_infos = known->index_infos;
	table->indexes = static_cast<Relation *>(palloc(sizeof(Relation) * static_cast<Size>(known->nindexes)));
	for (int i = 0; i < known->nindexes; i++)
		table->indexes[i] = index_open(known->indexes[i], RowExclusiveLock);
}

void
make_result_info(Table *table)
{
	table->result_info = makeNode(ResultRelInfo);
	InitResultRelInfo(table->result_info, table->rel, 0, nullptr, 0);
}

// User-made columns of a new row: the default, or NULL where there is none.
void
fill_foreign_columns(Table *table, TupleTableSlot *row)
{
	TupleDesc desc = RelationGetDescr(table->rel);
	bool ours[MaxAttrNumber] = {};

	for (int i = 0; i < table->shape->ncolumns; i++)
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
belongs_into(Table *table, IndexInfo *info, TupleTableSlot *row)
{
	ExprContext *context = GetPerTupleExprContext(table->estate);

	context->ecxt_scantuple = row;
	if (info->ii_Predicate == NIL)
		return true;
	if (info->ii_PredicateState == nullptr)
		info->ii_PredicateState = ExecPrepareQual(info->ii_Predicate, table->estate);
	return ExecQual(info->ii_PredicateState, context);
}

// The id never changes: its new version's entry needs no check for duplicates, since the old
// version's stands in anybody's way, and the hint lets the index drop what is dead.
bool
keeps_key(Relation index, bool update)
{
	return update && index->rd_index->indisprimary && index->rd_index->indnkeyatts == 1;
}

void
insert_index_entries(Table *table, TupleTableSlot **rows, int count, bool update)
{
	Datum values[INDEX_MAX_KEYS];
	bool nulls[INDEX_MAX_KEYS];

	for (int i = 0; i < table->nindexes; i++)
	{
		Relation index = table->indexes[i];
		IndexInfo *info = table->index_infos[i];
		bool unchanged = keeps_key(index, update);
		IndexUniqueCheck check = index->rd_index->indisunique && !unchanged ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO;

		if (!info->ii_ReadyForInserts)
			continue;
		for (int n = 0; n < count; n++)
		{
			if (belongs_into(table, info, rows[n]))
			{
				FormIndexDatum(info, rows[n], table->estate, values, nulls);
				index_insert(index, values, nulls, &rows[n]->tts_tid, table->rel, check, unchanged, info);
			}
			ResetPerTupleExprContext(table->estate);
		}
	}
}

Changed
lock_row(Table *table, ItemPointer tid, LockWaitPolicy policy)
{
	TupleTableSlot *slot = table_slot_create(table->rel, nullptr);
	TM_FailureData failure;
	TM_Result result = table_tuple_lock(table->rel, tid, GetActiveSnapshot(), slot, GetCurrentCommandId(true),
										LockTupleExclusive, policy, 0, &failure);

	ExecDropSingleTupleTableSlot(slot);
	if (result == TM_Ok)
		return Changed::done;
	return result == TM_WouldBlock ? Changed::busy : Changed::outdated;
}

// Runs change(wait) first without waiting, which is how most rows go. TM_BeingModified
// then says only that somebody has a lock. If that is our own transaction, we go on. If
// it is another and we may wait for it, the row is ours afterwards, but what the caller
// concluded before the wait (that a lease had not expired) is old: it looks again.
template <typename Change>
Changed
change_row(Table *table, ItemPointer tid, Wait wait, bool without_wait, const Change &change)
{
	TM_Result result = without_wait ? change(false) : TM_BeingModified;

	if (result == TM_BeingModified)
	{
		Changed locked = lock_row(table, tid, LockWaitSkip);

		if (locked == Changed::busy && wait == Wait::for_row)
		{
			expect_no_pins();
			lock_row(table, tid, LockWaitBlock);
			return Changed::outdated;
		}
		if (locked != Changed::done)
			return locked;
		result = change(true);
	}
	return result == TM_Ok ? Changed::done : Changed::outdated;
}

} // namespace

void
refuse_what_is_passed_over(const Shape &shape, Relation rel, int access)
{
	refuse_triggers(shape, rel, access);
	if (rel->rd_rules != nullptr)
		refuse(rel, "a rule", nullptr);
	if (rel->rd_rel->relrowsecurity)
		refuse(rel, "row level security", nullptr);
	if ((access & (updates | deletes)) != 0)
		CheckCmdReplicaIdentity(rel, (access & updates) != 0 ? CMD_UPDATE : CMD_DELETE);
}

Table *
wrap_table(const Shape &shape, Relation rel, int access, const KnownTable *known, EState *estate)
{
	Table *table = static_cast<Table *>(palloc0(sizeof(Table)));
	KnownTable *watched;

	table->shape = &shape;
	table->rel = rel;
	table->estate = estate;
	table->access = access;
	if (rel->rd_rel->relkind != RELKIND_RELATION)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("outbox.%s is not an ordinary table", RelationGetRelationName(rel)),
						errhint("Partitions of messages and attempts must be ordinary tables.")));
	if (access == reads)
	{
		map_columns(table);
		return table;
	}
	refuse_what_is_passed_over(shape, rel, access);
	if (known != nullptr)
	{
		use_known(table, known);
		return table;
	}
	watched = watch_table(RelationGetRelid(rel));
	map_columns(table);
	open_indexes(table);
	judge(table, watched);
	prepare_indexes(table);
	if (table->extended)
		make_result_info(table);
	remember_table(table);
	return table;
}

Oid
attempt_state_type(Oid schema)
{
	return GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("attempt_state"), ObjectIdGetDatum(schema));
}

bool
has_foreign_parts(const Table *table)
{
	return table->extended || table->foreign_indexes != 0;
}

void
close_table(Table *table)
{
	if (table->id_probe != nullptr)
		end_probe(table->id_probe);
	for (int i = 0; i < table->nindexes; i++)
	{
		if (table->access != reads)
			end_index_inserts(table->indexes[i], table->index_infos[i]);
		index_close(table->indexes[i], NoLock);
	}
	table_close(table->rel, NoLock);
}

namespace {

Relation
remember_index(Table *table, Oid oid)
{
	Relation index;

	expect_no_pins();
	index = index_open(oid, AccessShareLock);
	table->indexes = static_cast<Relation *>(palloc(sizeof(Relation)));
	table->indexes[0] = index;
	table->nindexes = 1;
	return index;
}

[[noreturn]] void
missing_index(Table *table, const char *name)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("table outbox.%s has no valid %s", RelationGetRelationName(table->rel), name),
					errhint("SELECT * FROM outbox.check() shows what is missing.")));
}

} // namespace

Relation
primary_index(Table *table)
{
	Oid oid;

	for (int i = 0; i < table->nindexes; i++)
		if (table->indexes[i]->rd_index->indisprimary)
			return table->indexes[i];
	oid = primary_key_index(table->rel);
	if (!OidIsValid(oid) || table->access != reads)
		missing_index(table, "primary key");
	return remember_index(table, oid);
}

Relation
named_index(Table *table, const char *name)
{
	for (int i = 0; i < table->nindexes; i++)
		if (strcmp(RelationGetRelationName(table->indexes[i]), name) == 0 && table->indexes[i]->rd_index->indisvalid)
			return table->indexes[i];
	missing_index(table, psprintf("index %s", name));
}

TupleTableSlot *
new_row(Table *table)
{
	TupleTableSlot *row = MakeSingleTupleTableSlot(RelationGetDescr(table->rel), &TTSOpsVirtual);

	memset(row->tts_isnull, true, row->tts_tupleDescriptor->natts * sizeof(bool));
	ExecStoreVirtualTuple(row);
	return row;
}

void
set(const Table *table, TupleTableSlot *row, int column, Datum value)
{
	int i = table->attno[column] - 1;

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
	row->tts_isnull[table->attno[column] - 1] = true;
}

void
insert_rows(Table *table, TupleTableSlot **rows, int count)
{
	CommandId command = GetCurrentCommandId(true);

	if (table->extended)
		for (int i = 0; i < count; i++)
			complete_row(table, rows[i], CMD_INSERT);
	if (count == 1)
		table_tuple_insert(table->rel, rows[0], command, 0, nullptr);
	else
		table_multi_insert(table->rel, rows, count, command, 0, nullptr);
	insert_index_entries(table, rows, count, false);
}

Changed
hold_row(Table *table, ItemPointer tid, Wait wait)
{
	if (wait == Wait::for_row)
		expect_no_pins();
	return lock_row(table, tid, wait == Wait::for_row ? LockWaitBlock : LockWaitSkip);
}

Changed
update_row(Table *table, ItemPointer tid, TupleTableSlot *row, Wait wait)
{
	UpdateIndexes which_indexes = {};
	Changed changed;

	if (table->extended)
		complete_row(table, row, CMD_UPDATE);
	changed = change_row(table, tid, wait, updates_without_wait, [&](bool may_wait) {
		TM_FailureData failure;
		LockTupleMode mode;

		return table_tuple_update(table->rel, tid, row, GetCurrentCommandId(true), GetActiveSnapshot(), InvalidSnapshot,
								  may_wait, &failure, &mode, &which_indexes);
	});
	if (changed == Changed::done && needs_index_entries(which_indexes))
		insert_index_entries(table, &row, 1, true);
	return changed;
}

Changed
delete_row(Table *table, ItemPointer tid, Wait wait)
{
	return change_row(table, tid, wait, true, [&](bool may_wait) {
		TM_FailureData failure;

		return table_tuple_delete(table->rel, tid, GetCurrentCommandId(true), GetActiveSnapshot(), InvalidSnapshot,
								  may_wait, &failure, false);
	});
}

} // namespace outbox
