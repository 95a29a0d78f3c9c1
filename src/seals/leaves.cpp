// See leaves.h.
//
// Rows are fetched by SQL: the planner finds the index on the time where there is one. Texts are converted from
// the server's encoding, so that no row stops the seals (server/encoding.h).

#include "seals/leaves.h"

#include "rows/call.h"
#include "server/encoding.h"
#include "server/settings.h"
#include "server/spi.h"

namespace outbox {

namespace {

constexpr int most_sealed_columns = 18;

// ---- which partitions

int
in_order_of_parts(const ListCell *a, const ListCell *b)
{
	const SealedLeaf *one = static_cast<const SealedLeaf *>(lfirst(a));
	const SealedLeaf *other = static_cast<const SealedLeaf *>(lfirst(b));

	return one->table != other->table ? one->table - other->table : compare_names(one->name, other->name);
}

// A name that cannot be taken for one with a schema stands alone.
const char *
part_name(Oid leaf)
{
	const char *name = get_rel_name(leaf);
	Oid schema = get_rel_namespace(leaf);

	if (name == nullptr || (schema == outbox_schema() && strpbrk(name, ".\"") == nullptr))
		return name;
	return quote_qualified_identifier(get_namespace_name(schema), name);
}

List *
add_leaves(List *leaves, int table)
{
	Oid parent = get_relname_relid(core::sealed_forms[table]->table, outbox_schema());
	Relation rel = OidIsValid(parent) ? open_parent(core::sealed_forms[table]->table) : nullptr;
	PartitionDesc partitions = rel != nullptr ? RelationGetPartitionDesc(rel, false) : nullptr;

	for (int i = 0; partitions != nullptr && i < partitions->nparts; i++)
	{
		SealedLeaf *leaf = static_cast<SealedLeaf *>(palloc(sizeof(SealedLeaf)));

		LockRelationOid(partitions->oids[i], AccessShareLock);
		*leaf = {table, partitions->oids[i], part_name(partitions->oids[i])};
		if (leaf->name != nullptr)
			leaves = lappend(leaves, leaf);
	}
	if (rel != nullptr)
		table_close(rel, NoLock);
	return leaves;
}

// ---- values

// What the query gives of a column: texts of enums and of jsonb.
const char *
expression(const core::FormColumn &column)
{
	const char *name = quote_identifier(column.name);

	return column.type == core::ColumnType::text || column.type == core::ColumnType::jsonb
			   ? psprintf("%s::pg_catalog.text", name)
			   : name;
}

SealedValue
in_utf8(const text *value)
{
	Utf8 converted = to_utf8(VARDATA_ANY(value), static_cast<int>(VARSIZE_ANY_EXHDR(value)));

	return {converted.bytes, converted.size};
}

// The bytes of a number, big-endian.
SealedValue
number(int64 value, int size)
{
	uint64 *bytes = static_cast<uint64 *>(palloc(sizeof(uint64)));

	*bytes = pg_hton64(static_cast<uint64>(value) << (64 - 8 * size));
	return {bytes, size};
}

SealedValue elements_of(ArrayType *array, core::ColumnType type);

SealedValue
sealed_value(core::ColumnType type, Datum value)
{
	switch (type)
	{
		case core::ColumnType::uuid:
			return {DatumGetUUIDP(value)->data, UUID_LEN};
		case core::ColumnType::text:
		case core::ColumnType::jsonb:
			return in_utf8(DatumGetTextPP(value));
		case core::ColumnType::smallint:
			return number(DatumGetInt16(value), 2);
		case core::ColumnType::integer:
			return number(DatumGetInt32(value), 4);
		case core::ColumnType::bigint:
		case core::ColumnType::timestamptz:
			return number(DatumGetInt64(value), 8);
		case core::ColumnType::bytea:
		{
			const bytea *bytes = DatumGetByteaPP(value);

			return {VARDATA_ANY(bytes), static_cast<int>(VARSIZE_ANY_EXHDR(bytes))};
		}
		case core::ColumnType::uuids:
			return elements_of(DatumGetArrayTypeP(value), core::ColumnType::uuid);
		case core::ColumnType::integers:
			return elements_of(DatumGetArrayTypeP(value), core::ColumnType::integer);
	}
	elog(ERROR, "unknown type of a sealed column");
}

// The number of dimensions, the length and first index of each; then each element after its length.
SealedValue
elements_of(ArrayType *array, core::ColumnType type)
{
	bool is_uuid = type == core::ColumnType::uuid;
	StringInfoData bytes;
	Datum *items;
	bool *nulls;
	int count;

	deconstruct_array(array, is_uuid ? UUIDOID : INT4OID, is_uuid ? UUID_LEN : 4, !is_uuid,
					  is_uuid ? TYPALIGN_CHAR : TYPALIGN_INT, &items, &nulls, &count);
	initStringInfo(&bytes);
	auto put = [&](const SealedValue &value) {
		appendBinaryStringInfo(&bytes, static_cast<const char *>(value.data), value.size);
	};
	put(number(ARR_NDIM(array), 4));
	for (int i = 0; i < ARR_NDIM(array); i++)
	{
		put(number(ARR_DIMS(array)[i], 4));
		put(number(ARR_LBOUND(array)[i], 4));
	}
	for (int i = 0; i < count; i++)
	{
		SealedValue element = nulls[i] ? SealedValue{nullptr, -1} : sealed_value(type, items[i]);

		put(number(element.size, 4));
		if (element.data != nullptr)
			put(element);
	}
	return {bytes.data, bytes.len};
}

// ---- rows

int
time_column(const core::Form *form)
{
	for (int i = 0; i < form->count; i++)
		if (strcmp(form->columns[i].name, "created_at") == 0 || strcmp(form->columns[i].name, "at") == 0)
			return i;
	elog(ERROR, "no time in \"%s\"", form->tag);
}

// Allocates in the current context.
SealedRow
row_of(const core::Form *form, HeapTuple tuple, TupleDesc desc, SealedValue *values)
{
	Datum datums[most_sealed_columns];
	bool nulls[most_sealed_columns];
	core::Encoder encoder(core::into(session_sha()->start().add(&core::leaf_prefix, sizeof(core::leaf_prefix))), *form);
	SealedRow row = {};

	heap_deform_tuple(tuple, desc, datums, nulls);
	for (int i = 0; i < form->count; i++)
	{
		values[i] = nulls[i] ? SealedValue{nullptr, -1} : sealed_value(form->columns[i].type, datums[i]);
		if (nulls[i])
			encoder.null();
		else
			encoder.bytes(values[i].data, static_cast<size_t>(values[i].size));
	}
	if (!encoder.finish() || !session_sha()->stop(&row.leaf))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not compute the digest of a row")));
	memcpy(row.id.bytes, DatumGetUUIDP(datums[0])->data, UUID_LEN);
	if (form == &core::attempt_form)
		row.attempt_no = DatumGetInt32(datums[1]);
	row.at = DatumGetTimestampTz(datums[time_column(form)]);
	return row;
}

// In another schema the owner may not be allowed to name the partition, and so reads it through its parent, of which
// the planner takes no other one.
void
append_from(StringInfo sql, const SealedLeaf *leaf)
{
	const char *table = core::sealed_forms[leaf->table]->table;
	const char *bounds;

	if (get_rel_namespace(leaf->oid) == outbox_schema())
	{
		appendStringInfo(sql, " FROM ONLY %s WHERE ", quote_qualified_identifier("outbox", get_rel_name(leaf->oid)));
		return;
	}
	appendStringInfo(sql, " FROM %s WHERE tableoid = %u AND ", quote_qualified_identifier("outbox", table), leaf->oid);
	bounds = ask("SELECT pg_get_partition_constraintdef(%u)", leaf->oid);
	// A default partition that is alone has none.
	if (bounds != nullptr)
		appendStringInfo(sql, "(%s) AND ", bounds);
}

// The SELECT of all columns of the form.
void
begin_query(StringInfo sql, const SealedLeaf *leaf)
{
	const core::Form *form = core::sealed_forms[leaf->table];

	initStringInfo(sql);
	for (int i = 0; i < form->count; i++)
		appendStringInfo(sql, "%s%s", i == 0 ? "SELECT " : ", ", expression(form->columns[i]));
	append_from(sql, leaf);
}

} // namespace

core::Sha256 *
session_sha()
{
	static core::Sha256 sha;

	return &sha;
}

int
pin_for_seals()
{
	int level = pin_search_path();

	auto set = [](const char *setting, const char *value) {
		set_config_option(setting, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	};

	// A policy that hides rows is an error then.
	for (const char *setting : {"enable_seqscan", "jit", "row_security"})
		set(setting, "off");
	set("max_parallel_workers_per_gather", "0");
	return level;
}

List *
sealed_leaves()
{
	List *leaves = NIL;

	for (int table = 0; table < core::sealed_tables; table++)
		leaves = add_leaves(leaves, table);
	list_sort(leaves, in_order_of_parts);
	return leaves;
}

int
compare_names(const char *a, const char *b)
{
	return strcmp(a, b);
}

void
require_read_committed(const char *function)
{
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s needs a READ COMMITTED transaction", function),
				 errdetail("What a transaction of a stricter isolation level sees may be older than the seals.")));
}

void
scan_rows(const SealedLeaf *leaf, TimestampTz from, TimestampTz to, VisitRow visit, void *argument)
{
	const core::Form *form = core::sealed_forms[leaf->table];
	const char *at = quote_identifier(form->columns[time_column(form)].name);
	Oid types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID};
	Datum bounds[] = {TimestampTzGetDatum(from), TimestampTzGetDatum(to)};
	StringInfoData sql;

	begin_query(&sql, leaf);
	appendStringInfo(&sql, "%s >= $1 AND %s < $2", at, at);
	each_tuple(sql.data, 2, types, bounds, [&](HeapTuple tuple, TupleDesc desc) {
		SealedValue values[most_sealed_columns];
		SealedRow row = row_of(form, tuple, desc, values);

		visit(argument, &row);
	});
}

void
scan_message(const SealedLeaf *leaf, const core::Uuid &id, VisitValues visit, void *argument)
{
	const core::Form *form = core::sealed_forms[leaf->table];
	Oid types[] = {UUIDOID};
	Datum ids[] = {in_place(id)};
	StringInfoData sql;

	begin_query(&sql, leaf);
	appendStringInfo(&sql, "%s = $1 ORDER BY %s", form->columns[0].name,
					 form == &core::attempt_form ? "attempt_no" : form->columns[0].name);
	each_tuple(sql.data, 1, types, ids, [&](HeapTuple tuple, TupleDesc desc) {
		SealedValue values[most_sealed_columns];
		SealedRow row = row_of(form, tuple, desc, values);

		visit(argument, &row, values);
	});
}

} // namespace outbox
