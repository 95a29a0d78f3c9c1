// See installed_version.h.

#include "server/installed_version.h"

#include "server/pg.h"

namespace outbox {

namespace {

constexpr const char *served_versions[] = {
	"0.2.0",
#ifdef OUTBOX_STOP_POINTS
	"0.2.0next", // what a test makes of it
#endif
};

int
number_of(const char *version)
{
	for (int i = 0; i < static_cast<int>(lengthof(served_versions)); i++)
		if (strcmp(version, served_versions[i]) == 0)
			return i;
	return other_version;
}

} // namespace

int
installed_version()
{
	Relation rel = table_open(ExtensionRelationId, AccessShareLock);
	int version = no_version;
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

		version = isnull ? other_version : number_of(TextDatumGetCString(value));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return version;
}

} // namespace outbox
