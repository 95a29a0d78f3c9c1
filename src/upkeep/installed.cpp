// See installed.h.

#include "upkeep/installed.h"

#include "rows/call.h"

namespace outbox {

namespace {

// A library serves what was released before it, too: a server gets it first, and then one
// database after the other is updated.
constexpr const char *served_versions[] = {
	"0.2.0",
#ifdef OUTBOX_STOP_POINTS
	"0.2.0next", // what a test makes of it
#endif
};

// The version that is installed here; nullptr for none.
const char *
installed_version()
{
	Relation rel = table_open(ExtensionRelationId, AccessShareLock);
	const char *version = nullptr;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ, CStringGetDatum("outbox"));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, nullptr, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool isnull;
		Datum value = heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(rel), &isnull);

		version = isnull ? "" : TextDatumGetCString(value);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return version;
}

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

// A restore makes tables first, then fills them, then makes their indexes.
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
		lacking = leaf->rd_rel->relkind == RELKIND_RELATION &&
				  (list_length(RelationGetIndexList(leaf)) < parent.nindexes || !OidIsValid(primary_key_index(leaf)));
		relation_close(leaf, AccessShareLock);
	}
	table_close(rel, AccessShareLock);
	return lacking;
}

} // namespace

Finding
find_extension()
{
	const char *version = installed_version();

	if (version == nullptr)
		return Finding::absent;
	for (const char *served : served_versions)
		if (strcmp(version, served) == 0)
			return Finding::present;
	return Finding::other_version;
}

bool
is_in_use()
{
	DatabaseSlot *slot = my_database();

	return slot != nullptr && pg_atomic_read_u32(&slot->written) == relation_oid(messages_shape.name);
}

bool
is_being_filled()
{
	return is_subscribed() || lacks_indexes(messages_shape) || lacks_indexes(attempts_shape);
}

} // namespace outbox
