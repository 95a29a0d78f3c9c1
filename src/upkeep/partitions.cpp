// See partitions.h.
//
// A leaf is built as a table of its own, LIKE the DEFAULT leaf, and then attached:
// CREATE TABLE … PARTITION OF would lock the parent against all readers. LIKE copies
// indexes with their comments but not their names; our indexes are known by name, so a
// copied index takes the name its comment's owner has in the DEFAULT leaf. A user-made
// index on the DEFAULT leaf comes along.

#include "upkeep/partitions.h"

#include "server/boundary.h"
#include "rows/probe.h"
#include "server/settings.h"
#include "server/spi.h"
#include "rows/call.h"

namespace outbox {

namespace {

// Periods are counted from a Monday, midnight UTC: 1970-01-05.
constexpr int64 origin_ms = 4 * (USECS_PER_DAY / 1000);

struct Range {
	int64 from_ms;
	int64 to_ms;
};

const char *
bound(int64 ms)
{
	return shown(core::first_id_at(ms));
}

// messages_p20261130, with the time of day where it is not midnight.
const char *
leaf_name(const char *parent, const Range *range)
{
	time_t seconds = static_cast<time_t>(range->from_ms / 1000);
	struct tm utc;
	char date[32];

	gmtime_r(&seconds, &utc);
	strftime(date, sizeof(date), utc.tm_hour == 0 && utc.tm_min == 0 ? "%Y%m%d" : "%Y%m%d_%H%M", &utc);
	return psprintf("%s_p%s", parent, date);
}

// Gives copied indexes the names that their originals have.
void
name_indexes(const char *parent, const char *leaf)
{
	const char *default_leaf = psprintf("%s_default", parent);
	uint64 count = run("SELECT c.relname, %s || substr(o.relname, %d) "
					   "FROM pg_index i JOIN pg_class o ON o.oid = i.indexrelid "
					   "CROSS JOIN pg_index j JOIN pg_class c ON c.oid = j.indexrelid "
					   "WHERE i.indrelid = 'outbox.%s'::regclass AND j.indrelid = 'outbox.%s'::regclass "
					   "AND o.relname LIKE '%s\\_%%' "
					   "AND obj_description(i.indexrelid, 'pg_class') = obj_description(j.indexrelid, 'pg_class') "
					   "AND c.relname <> %s || substr(o.relname, %d)",
					   quote_literal_cstr(leaf), static_cast<int>(strlen(default_leaf)) + 1, default_leaf, leaf,
					   default_leaf, quote_literal_cstr(leaf), static_cast<int>(strlen(default_leaf)) + 1);
	SPITupleTable *found = SPI_tuptable;

	for (uint64 i = 0; i < count; i++)
		run("ALTER INDEX outbox.%s RENAME TO %s", quote_identifier(SPI_getvalue(found->vals[i], found->tupdesc, 1)),
			quote_identifier(SPI_getvalue(found->vals[i], found->tupdesc, 2)));
}

// Storage parameters are those of the DEFAULT leaf; LIKE does not copy them.
void
copy_options(const char *parent, const char *leaf)
{
	char *options =
		ask("SELECT array_to_string(reloptions, ', ') FROM pg_class WHERE oid = 'outbox.%s_default'::regclass", parent);

	if (options != nullptr && options[0] != '\0')
		run("ALTER TABLE outbox.%s SET (%s)", leaf, options);
}

void
make_leaf(const char *parent, const Range *range)
{
	const char *leaf = leaf_name(parent, range);

	run("CREATE TABLE outbox.%s (LIKE outbox.%s_default INCLUDING ALL)", leaf, parent);
	run("COMMENT ON TABLE outbox.%s IS 'One period of outbox.%s.'", leaf, parent);
	run("COMMENT ON CONSTRAINT %s_pkey ON outbox.%s IS 'see the index of that name'", leaf, leaf);
	copy_options(parent, leaf);
	name_indexes(parent, leaf);
	add_guards(psprintf("outbox.%s", leaf));
	run("ALTER TABLE outbox.%s ATTACH PARTITION outbox.%s FOR VALUES FROM ('%s') TO ('%s')", parent, leaf,
		bound(range->from_ms), bound(range->to_ms));
}

// Cuts off what existing partitions cover. False when nothing is left.
bool
uncovered(PartitionBoundInfo bounds, Range *range)
{
	if (bounds == nullptr)
		return true;
	for (int i = 0; i < bounds->ndatums; i++)
	{
		int64 from =
			bounds->kind[i][0] == PARTITION_RANGE_DATUM_VALUE ? core::id_time_ms(to_uuid(bounds->datums[i][0])) : 0;
		int64 to;

		if (bounds->indexes[i + 1] < 0)
			continue; // a gap begins here
		to = bounds->kind[i + 1][0] == PARTITION_RANGE_DATUM_VALUE ? core::id_time_ms(to_uuid(bounds->datums[i + 1][0]))
																   : PG_INT64_MAX;
		if (from <= range->from_ms && range->from_ms < to)
			range->from_ms = to;
		else if (range->from_ms < from && from < range->to_ms)
			range->to_ms = from;
	}
	return range->from_ms < range->to_ms;
}

// The part of the period that holds now + ahead and has no partition yet.
bool
missing_range(int ahead, Range *range)
{
	int64 length = partition_interval_ms();
	int64 now_ms = unix_ms(GetCurrentTimestamp());
	int64 period = (now_ms - origin_ms) / length + ahead;
	Relation rel = open_parent("messages");
	bool missing;

	range->from_ms = origin_ms + period * length;
	range->to_ms = range->from_ms + length;
	missing = uncovered(RelationGetPartitionDesc(rel, true)->boundinfo, range);
	relation_close(rel, NoLock);
	return missing;
}

bool
default_holds(const Shape &parent, const Range *range)
{
	ScanKeyData keys[2];
	Probe probe;
	bool found;
	Call call;
	Table *leaf;
	Relation index;

	begin_reading(&call);
	leaf = open_as(&call, parent, psprintf("%s_default", parent.name), reads);
	index = primary_index(leaf);
	key_compares(&keys[0], index, 1, BTGreaterEqualStrategyNumber, F_UUID_GE,
				 from_uuid(core::first_id_at(range->from_ms)));
	key_compares(&keys[1], index, 1, BTLessStrategyNumber, F_UUID_LT, from_uuid(core::first_id_at(range->to_ms)));
	begin_probe(&probe, leaf, index, 2);
	start_probe(&probe, keys, 2);
	found = next_row(&probe);
	end_probe(&probe);
	close_table(leaf);
	end_reading(&call);
	return found;
}

// Rows of that time in a DEFAULT partition keep it: they are never moved.
bool
is_kept_by_default(const Range *range)
{
	return default_holds(messages_shape, range) || default_holds(attempts_shape, range);
}

} // namespace

MadePair
make_partitions(int ahead)
{
	Range range;
	const char *name;
	ErrorData *error;

	if (!missing_range(ahead, &range))
		return {};
	name = leaf_name("messages", &range);
	if (is_kept_by_default(&range))
		return {"partition not needed", name, "the DEFAULT partitions hold rows of that time and keep it", false};
	error = in_subtransaction([&] {
		SPI_connect();
		make_leaf("messages", &range);
		make_leaf("attempts", &range);
		SPI_finish();
	});
	if (error != nullptr)
		return {"partition left for later", name, error->message, true};
	return {"partition made", name, "with its counterpart of attempts", false};
}

bool
lacks_partitions()
{
	Range range;

	for (int ahead = 0; ahead <= partitions_ahead; ahead++)
		if (missing_range(ahead, &range) && !is_kept_by_default(&range))
			return true;
	return false;
}

} // namespace outbox
