// See installed.h.

#include "upkeep/installed.h"

#include "server/installed_version.h"
#include "rows/call.h"

namespace outbox {

namespace {

bool
is_subscribed()
{
	Relation rel = table_open(SubscriptionRelRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, nullptr, 0, nullptr);
	Oid schema = get_namespace_oid("outbox", true);
	bool found = false;
	HeapTuple tuple;

	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
		found = get_rel_namespace(reinterpret_cast<Form_pg_subscription_rel>(GETSTRUCT(tuple))->srrelid) == schema;
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

// A restore creates the tables first, then fills them, then creates their indexes.
bool
lacks_indexes(const Shape &parent)
{
	Relation rel = open_parent(parent.name);
	PartitionDesc leaves = RelationGetPartitionDesc(rel, true);
	bool lacking = leaves->nparts == 0;

	for (int i = 0; !lacking && i < leaves->nparts; i++)
	{
		Relation leaf = try_relation_open(leaves->oids[i], AccessShareLock);

		if (leaf == nullptr)
			continue;
		lacking =
			leaf->rd_rel->relkind == RELKIND_RELATION &&
			(list_length(RelationGetIndexList(leaf)) < index_count(parent) || !OidIsValid(primary_key_index(leaf)));
		relation_close(leaf, AccessShareLock);
	}
	table_close(rel, AccessShareLock);
	return lacking;
}

} // namespace

Finding
find_extension()
{
	switch (installed_version())
	{
		case no_version:
			return Finding::absent;
		case other_version:
			return Finding::other_version;
		default:
			return Finding::present;
	}
}

bool
is_in_use()
{
	DatabaseSlot *slot = my_database();

	return slot != nullptr && pg_atomic_read_u32(&slot->written) == relation_oid(messages_shape.name);
}

bool
is_no_restore()
{
	DatabaseSlot *slot = my_database();

	return is_in_use() || (slot != nullptr && pg_atomic_read_u32(&slot->made_anew) == 0);
}

bool
is_being_filled()
{
	return is_subscribed() || lacks_indexes(messages_shape) || lacks_indexes(attempts_shape) ||
		   lacks_indexes(audit_events_shape);
}

} // namespace outbox
