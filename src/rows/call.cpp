// See call.h.

#include "rows/call.h"

#include "rows/known_table.h"
#include "rows/probe.h"
#include "server/installed_version.h"

namespace outbox {

namespace {

void
open_call(Call *call)
{
	memset(call, 0, sizeof(*call));
	call->estate = CreateExecutorState();
	call->now = GetCurrentTimestamp();
	call->wait = Wait::for_row;
	GetUserIdAndSecContext(&call->caller, &call->caller_context);
}

void
act_as_owner(const Call *call)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation_oid("pending")));
	Oid owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for outbox.pending");
	owner = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	SetUserIdAndSecContext(owner, call->caller_context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
}

Table *
wrap(Call *call, const Shape &shape, Relation rel, int access)
{
	Table *table = wrap_table(shape, rel, access, call->estate);

	table->next = call->tables;
	call->tables = table;
	return table;
}

// Index of the bound that is at or below the id, -1 for none.
int
bound_below(PartitionBoundInfo bounds, const core::Uuid &id)
{
	int low = -1;
	int high = bounds->ndatums - 1;

	while (low < high)
	{
		int middle = (low + high + 1) / 2;

		if (bounds->kind[middle][0] == PARTITION_RANGE_DATUM_MINVALUE ||
			(bounds->kind[middle][0] == PARTITION_RANGE_DATUM_VALUE &&
			 memcmp(DatumGetUUIDP(bounds->datums[middle][0])->data, id.bytes, UUID_LEN) <= 0))
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

bool
knows_partitions(Relation rel)
{
	return rel->rd_partdesc != nullptr && !rel->rd_partdesc->detached_exist;
}

// A parent with its partitions. To describe them the server reads the catalogs of each and relies
// on a lock on the parent, so that none of them is dropped. The lock is held for this only.
Relation
open_described(Oid parent, PartitionDesc *partitions)
{
	Relation rel = RelationIdGetRelation(parent);
	bool known = RelationIsValid(rel) && knows_partitions(rel);

	if (!known)
	{
		if (RelationIsValid(rel))
			RelationClose(rel);
		expect_no_pins();
		LockRelationOid(parent, AccessShareLock);
		rel = RelationIdGetRelation(parent);
	}
	if (!RelationIsValid(rel))
		parent_is_gone(parent);
	*partitions = RelationGetPartitionDesc(rel, true);
	if (!known)
		UnlockRelationOid(parent, AccessShareLock);
	return rel;
}

core::Uuid
bound_at(PartitionBoundInfo bounds, int i)
{
	return to_uuid(bounds->datums[i][0]);
}

IdRange
range_above(PartitionBoundInfo bounds, int low)
{
	IdRange range = {};

	range.has_from = low >= 0 && bounds->kind[low][0] == PARTITION_RANGE_DATUM_VALUE;
	range.has_below = low + 1 < bounds->ndatums && bounds->kind[low + 1][0] == PARTITION_RANGE_DATUM_VALUE;
	if (range.has_from)
		range.from = bound_at(bounds, low);
	if (range.has_below)
		range.below = bound_at(bounds, low + 1);
	return range;
}

bool
is_in(const IdRange *range, const core::Uuid &id)
{
	return (!range->has_from || compare(range->from, id) <= 0) && (!range->has_below || compare(id, range->below) < 0);
}

Oid
route(Oid parent, const core::Uuid &id, IdRange *range)
{
	// No lock on the parent: the lock on the leaf brings any change of the bounds
	// along, and the caller routes again under it.
	PartitionDesc desc;
	Relation rel = open_described(parent, &desc);
	int index = -1;
	Oid leaf;

	if (desc->boundinfo != nullptr)
	{
		int low = bound_below(desc->boundinfo, id);

		*range = range_above(desc->boundinfo, low);
		index = desc->boundinfo->indexes[low + 1];
		if (index < 0)
			index = desc->boundinfo->default_index;
	}
	leaf = index >= 0 ? desc->oids[index] : InvalidOid;
	RelationClose(rel);
	return leaf;
}

LOCKMODE
lock_for(int access)
{
	return access == reads ? AccessShareLock : RowExclusiveLock;
}

// The last known OID of the table of a shape. The caller checks it.
Oid *
last_oid(const Shape &shape)
{
	static struct {
		const Shape *shape;
		Oid oid;
	} remembered[shapes + other_shapes];

	for (auto &one : remembered)
	{
		if (one.shape == nullptr)
			one.shape = &shape;
		if (one.shape == &shape)
			return &one.oid;
	}
	elog(ERROR, "more shapes than %d", shapes + other_shapes);
}

bool
is_named(Relation rel, const char *schema, const char *name)
{
	return strcmp(RelationGetRelationName(rel), name) == 0 &&
		   RelationGetNamespace(rel) == get_namespace_oid(schema, true);
}

// Compares the name under the lock: the extension may have been dropped and created again while
// we waited.
Relation
open_named(const char *schema, const char *name, int access, Oid *last)
{
	expect_no_pins();
	for (;;)
	{
		Oid oid = OidIsValid(*last) ? *last : relation_oid_in(schema, name);
		Relation rel = try_relation_open(oid, lock_for(access));

		*last = oid;
		if (rel != nullptr && is_named(rel, schema, name))
			return rel;
		*last = InvalidOid;
		if (rel != nullptr)
			relation_close(rel, lock_for(access));
		AcceptInvalidationMessages();
	}
}

// Routes and locks until both agree; nullptr where there is no leaf.
Relation
open_leaf(Oid parent, const core::Uuid &id, LOCKMODE mode, IdRange *range)
{
	expect_no_pins();
	for (;;)
	{
		Oid leaf = route(parent, id, range);
		Relation rel = OidIsValid(leaf) ? try_relation_open(leaf, mode) : nullptr;

		if (!OidIsValid(leaf))
			return nullptr;
		if (rel != nullptr && route(parent, id, range) == leaf)
			return rel;
		if (rel != nullptr)
			relation_close(rel, mode);
		AcceptInvalidationMessages();
	}
}

} // namespace

Oid
outbox_schema()
{
	Oid oid = get_namespace_oid("outbox", true);

	if (OidIsValid(oid))
		return oid;
	if (installed_version() == no_version)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_SCHEMA), errmsg("schema \"outbox\" does not exist")));
	ereport(ERROR, (errcode(ERRCODE_UNDEFINED_SCHEMA), errmsg("schema \"outbox\" of the extension has another name"),
					errhint("Rename it back to outbox.")));
}

Oid
relation_oid_in(const char *schema, const char *name)
{
	Oid oid =
		get_relname_relid(name, strcmp(schema, "outbox") == 0 ? outbox_schema() : get_namespace_oid(schema, false));

	if (!OidIsValid(oid))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation %s.%s is missing", schema, name)));
	return oid;
}

Oid
relation_oid(const char *name)
{
	return relation_oid_in("outbox", name);
}

Relation
open_parent(const char *name)
{
	Oid last = InvalidOid;

	return open_named("outbox", name, reads, &last);
}

void
begin_reading(Call *call)
{
	open_call(call);
	act_as_owner(call);
}

void
begin_call(Call *call, const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	PreventCommandDuringRecovery(function);
	// In a transaction that has its locks already nothing else tells of what other sessions changed.
	AcceptInvalidationMessages();
	// What the running statement has changed so far (a WITH that deletes, say) counts.
	CommandCounterIncrement();
	begin_reading(call);
}

void
begin_nested_call(Call *call, Call *outer)
{
	open_call(call);
	call->outer = outer;
	call->now = outer->now;
	call->wait = outer->wait;
}

void
begin_next_command(Call *call)
{
	CommandCounterIncrement();
	call->now = GetCurrentTimestamp();
	call->queues = nullptr;
}

void
end_reading(Call *call)
{
	for (Table *table = call->tables; table != nullptr; table = table->next)
		close_table(table);
	FreeExecutorState(call->estate);
	SetUserIdAndSecContext(call->caller, call->caller_context);
}

void
end_call(Call *call)
{
	if (call->at_end != nullptr)
		call->at_end(call);
	end_reading(call);
	CommandCounterIncrement();
}

Table *
open(Call *call, const Shape &shape, int access)
{
	for (Table *table = call->tables; table != nullptr; table = table->next)
		if (table->shape == &shape && table->access == access)
			return table;
	return wrap(call, shape, open_named(shape.schema, shape.name, access, last_oid(shape)), access);
}

Table *
open_as(Call *call, const Shape &shape, const char *name, int access)
{
	Oid last = InvalidOid;

	return wrap(call, shape, open_named(shape.schema, name, access, &last), access);
}

Table *
pending(Call *call)
{
	if (call->pending_table == nullptr)
		call->pending_table = open(call, pending_shape, inserts | updates | deletes);
	return call->pending_table;
}

Table *
find_leaf(Call *call, const Shape &parent, const core::Uuid &id, int access)
{
	IdRange range = {};
	Oid parent_oid;
	Oid oid;
	Relation rel;
	Leaf *leaf;

	for (leaf = call->leaves; leaf != nullptr; leaf = leaf->next)
		if (leaf->parent == &parent && leaf->table->access == access && is_in(&leaf->range, id))
			return leaf->table;
	parent_oid = relation_oid(parent.name);
	oid = route(parent_oid, id, &range);
	for (leaf = call->leaves; leaf != nullptr; leaf = leaf->next)
		if (RelationGetRelid(leaf->table->rel) == oid && leaf->table->access == access)
		{
			// DEFAULT has many ranges.
			leaf->range = range;
			return leaf->table;
		}
	if (access != reads)
		check_parent(parent, parent_oid, access);
	rel = open_leaf(parent_oid, id, lock_for(access), &range);
	if (rel == nullptr)
		return nullptr;
	leaf = static_cast<Leaf *>(palloc(sizeof(Leaf)));
	*leaf = {call->leaves, &parent, wrap(call, parent, rel, access), range};
	call->leaves = leaf;
	return leaf->table;
}

Oid
leaf_now(const Call *call, const Shape &parent, const core::Uuid &id)
{
	IdRange range = {};

	for (const Leaf *leaf = call->leaves; leaf != nullptr; leaf = leaf->next)
		if (leaf->parent == &parent && is_in(&leaf->range, id))
			return RelationGetRelid(leaf->table->rel);
	return route(relation_oid(parent.name), id, &range);
}

Table *
leaf_of(Call *call, const Shape &parent, const core::Uuid &id, int access)
{
	Table *leaf = find_leaf(call, parent, id, access);

	if (leaf == nullptr)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table outbox.%s has no partition for %s %s", parent.name, parent.columns[0].name, shown(id)),
				 errhint("The DEFAULT partition is missing: attach one.")));
	return leaf;
}

namespace {

// The beginning of the time that a CHECK keeps out of the leaf; INT64_MAX if there is none.
int64
excluded_from_ms(Oid leaf)
{
	const char *prefix = exclusion_prefix(messages_shape.name);
	Relation rel = OidIsValid(leaf) ? RelationIdGetRelation(leaf) : nullptr;
	TupleConstr *constr = RelationIsValid(rel) ? RelationGetDescr(rel)->constr : nullptr;
	int64 from_ms = PG_INT64_MAX;

	for (int i = 0; constr != nullptr && i < constr->num_check; i++)
		if (strncmp(constr->check[i].ccname, prefix, strlen(prefix)) == 0)
			from_ms = Min(from_ms, strtoll(constr->check[i].ccname + strlen(prefix), nullptr, 10));
	if (RelationIsValid(rel))
		RelationClose(rel);
	return from_ms;
}

// INT64_MAX where there are no dated partitions. default_leaf: by the same description of the parent.
int64
dated_end_ms(Oid *default_leaf)
{
	PartitionDesc desc;
	Relation rel = open_described(relation_oid(messages_shape.name), &desc);
	PartitionBoundInfo bounds = desc->boundinfo;
	int64 end = PG_INT64_MAX;

	if (bounds != nullptr && bounds->ndatums > 0 && bounds->kind[bounds->ndatums - 1][0] == PARTITION_RANGE_DATUM_VALUE)
		end = core::id_time_ms(to_uuid(bounds->datums[bounds->ndatums - 1][0]));
	*default_leaf = bounds != nullptr && bounds->default_index >= 0 ? desc->oids[bounds->default_index] : InvalidOid;
	RelationClose(rel);
	return end;
}

} // namespace

int64
partitions_end_ms()
{
	Oid default_leaf;
	int64 end = dated_end_ms(&default_leaf);

	return end != PG_INT64_MAX ? end : excluded_from_ms(default_leaf);
}

const char *
exclusion_prefix(const char *parent)
{
	return psprintf("%s_default_excludes_", parent);
}

} // namespace outbox
