// See partitions.h.
//
// A leaf is built as a table of its own, LIKE the DEFAULT leaf, and then attached:
// CREATE TABLE … PARTITION OF would lock the parent against all readers. LIKE copies
// indexes with their comments but not their names; our indexes are known by name, so a
// copied index takes the name its comment's owner has in the DEFAULT leaf. A user-made
// index on the DEFAULT leaf comes along.
//
// To attach a leaf, the server reads DEFAULT under ACCESS EXCLUSIVE, for rows that belong into the
// leaf, unless a valid CHECK rules them out. So a large DEFAULT gets such a CHECK first, NOT VALID;
// then it is validated, under a lock that stops no writer; then the leaf is attached and the CHECK
// dropped: three transactions, and the first and the last are short. The CHECK refuses no new id,
// because ids stay below the end of the last dated partition or, without one, below the time that
// the CHECK excludes (excluded_from_ms). A gap that new ids may fall into is not excluded.

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

// In the order of hot code.
constexpr const Shape *ledgers[] = {&messages_shape, &attempts_shape, &audit_events_shape};

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
					   "AND starts_with(o.relname, '%s_') "
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

// ---- excluding a time from DEFAULT

// The largest DEFAULT that is read at once, without a noticeable delay for others.
constexpr BlockNumber small_blocks = 256;
// Without a dated partition, new ids are at least this far from an excluded time.
constexpr int64 margin_ms = 3600 * 1000;

enum class Exclusion { unneeded, missing, unproved, proved };

const char *
exclusion_name(const char *parent, const Range *range)
{
	return psprintf("%s" INT64_FORMAT "_" INT64_FORMAT, exclusion_prefix(parent), range->from_ms, range->to_ms);
}

// leaf: DEFAULT, or one that was made LIKE it.
void
drop_exclusions(const char *leaf, const char *parent)
{
	uint64 count = run("SELECT conname FROM pg_constraint WHERE conrelid = 'outbox.%s'::regclass AND contype = 'c' "
					   "AND starts_with(conname, '%s')",
					   leaf, exclusion_prefix(parent));
	SPITupleTable *found = SPI_tuptable;

	for (uint64 i = 0; i < count; i++)
		run("ALTER TABLE outbox.%s DROP CONSTRAINT %s", leaf,
			quote_identifier(SPI_getvalue(found->vals[i], found->tupdesc, 1)));
}

bool
is_small(const char *leaf)
{
	Relation rel = table_open(relation_oid(leaf), AccessShareLock);
	bool small = RelationGetNumberOfBlocks(rel) <= small_blocks;

	table_close(rel, AccessShareLock);
	return small;
}

Exclusion
exclusion_of(const char *parent, const Range *range)
{
	const char *valid;

	if (is_small(psprintf("%s_default", parent)))
		return Exclusion::unneeded;
	valid =
		ask("SELECT convalidated FROM pg_constraint WHERE conrelid = 'outbox.%s_default'::regclass AND conname = '%s'",
			parent, exclusion_name(parent, range));
	if (valid == nullptr)
		return Exclusion::missing;
	return valid[0] == 't' ? Exclusion::proved : Exclusion::unproved;
}

void
add_exclusion(const Shape &parent, const Range *range)
{
	const char *leaf = psprintf("%s_default", parent.name);
	const char *name = exclusion_name(parent.name, range);
	const char *id = parent.columns[0].name;

	drop_exclusions(leaf, parent.name);
	run("ALTER TABLE outbox.%s ADD CONSTRAINT %s CHECK (%s < '%s' OR %s >= '%s') NOT VALID", leaf, name, id,
		bound(range->from_ms), id, bound(range->to_ms));
	run("COMMENT ON CONSTRAINT %s ON outbox.%s IS 'while the partition of that time is made'", name, leaf);
}

// A time that is excluded bounds new ids, too, and those that were drawn before lie below it (margin_ms). So after
// it has passed, because maintain() was not called or the clock stepped, another one can be excluded instead.
bool
takes_new_ids(const Range *range)
{
	int64 end_ms = partitions_end_ms();

	return range->from_ms < (end_ms != PG_INT64_MAX ? end_ms : unix_ms(GetCurrentTimestamp()) + margin_ms);
}

// Takes the next step towards a DEFAULT that need not be read. False if there is none.
bool
exclude(const Range *range)
{
	Exclusion least = Exclusion::proved;

	for (const Shape *parent : ledgers)
	{
		Exclusion now = exclusion_of(parent->name, range);

		if (now != Exclusion::unneeded)
			least = Min(least, now);
	}
	if (least == Exclusion::proved)
		return false;
	if (least == Exclusion::missing && takes_new_ids(range))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
						errmsg("the DEFAULT partitions are large, and new messages may belong to that time")));
	for (const Shape *parent : ledgers)
		if (exclusion_of(parent->name, range) == least)
		{
			if (least == Exclusion::missing)
				add_exclusion(*parent, range);
			else
				run("ALTER TABLE outbox.%s_default VALIDATE CONSTRAINT %s", parent->name,
					exclusion_name(parent->name, range));
		}
	return true;
}

// ---- making

// The tablespace of the parent, not the caller's default.
const char *
tablespace_clause(const char *parent)
{
	Oid tablespace = get_rel_tablespace(relation_oid(parent));

	return OidIsValid(tablespace) ? psprintf(" TABLESPACE %s", quote_identifier(get_tablespace_name(tablespace))) : "";
}

// So that a seal need not read the whole partition. LIKE may have brought such an index along.
void
index_times(const char *parent, const char *leaf)
{
	const char *column = strcmp(parent, audit_events_shape.name) == 0 ? "at" : "created_at";

	if (seal_interval_us() == 0 ||
		ask("SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
			"WHERE i.indrelid = 'outbox.%s'::regclass AND a.attname = '%s' AND i.indisvalid",
			leaf, column) != nullptr)
		return;
	run("CREATE INDEX %s_sealed ON outbox.%s USING brin (%s) WITH (pages_per_range = 32)", leaf, leaf, column);
	run("COMMENT ON INDEX outbox.%s_sealed IS 'finds the rows of a window that is sealed'", leaf);
}

void
build_leaf(const char *parent, const char *leaf)
{
	run("CREATE TABLE outbox.%s (LIKE outbox.%s_default INCLUDING ALL)%s", leaf, parent, tablespace_clause(parent));
	run("COMMENT ON TABLE outbox.%s IS 'One period of outbox.%s.'", leaf, parent);
	run("COMMENT ON CONSTRAINT %s_pkey ON outbox.%s IS 'see the index of that name'", leaf, leaf);
	drop_exclusions(leaf, parent);
	copy_options(parent, leaf);
	name_indexes(parent, leaf);
	index_times(parent, leaf);
	add_guards(psprintf("outbox.%s", leaf));
}

void
attach_leaf(const char *parent, const char *leaf, const Range *range)
{
	run("ALTER TABLE outbox.%s ATTACH PARTITION outbox.%s FOR VALUES FROM ('%s') TO ('%s')", parent, leaf,
		bound(range->from_ms), bound(range->to_ms));
	drop_exclusions(psprintf("%s_default", parent), parent);
}

void
make_leaves(const Range *range)
{
	for (const Shape *parent : ledgers)
		build_leaf(parent->name, leaf_name(parent->name, range));
	for (const Shape *parent : ledgers)
		attach_leaf(parent->name, leaf_name(parent->name, range), range);
}

int64
bound_ms(PartitionBoundInfo bounds, int i)
{
	if (bounds->kind[i][0] == PARTITION_RANGE_DATUM_VALUE)
		return core::id_time_ms(to_uuid(bounds->datums[i][0]));
	return bounds->kind[i][0] == PARTITION_RANGE_DATUM_MINVALUE ? PG_INT64_MIN : PG_INT64_MAX;
}

// The first part of a period, from that time on, that no partition covers.
bool
find_gap(PartitionBoundInfo bounds, const Range *period, int64 after_ms, Range *gap)
{
	int64 from = Max(period->from_ms, after_ms);
	int64 to = period->to_ms;

	for (int i = 0; bounds != nullptr && i + 1 < bounds->ndatums; i++)
	{
		if (bounds->indexes[i + 1] < 0 || bound_ms(bounds, i + 1) <= from)
			continue;
		if (bound_ms(bounds, i) > from)
		{
			to = Min(to, bound_ms(bounds, i));
			break;
		}
		from = bound_ms(bounds, i + 1);
	}
	*gap = {from, to};
	return from < to;
}

Range
period_ahead(int ahead)
{
	int64 length = partition_interval_ms();
	int64 period = (unix_ms(GetCurrentTimestamp()) - origin_ms) / length + ahead;
	int64 from = origin_ms + period * length;

	return {from, from + length};
}

bool
next_gap(int64 after_ms, Range *gap)
{
	Relation rel = open_parent("messages");
	bool found = false;

	for (int ahead = 0; !found && ahead <= partitions_ahead; ahead++)
	{
		Range period = period_ahead(ahead);

		found = find_gap(RelationGetPartitionDesc(rel, true)->boundinfo, &period, after_ms, gap);
	}
	relation_close(rel, NoLock);
	return found;
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
	end_reading(&call);
	return found;
}

// Rows of that time in a DEFAULT partition keep it: they are never moved.
bool
is_kept_by_default(const Range *range)
{
	for (const Shape *parent : ledgers)
		if (default_holds(*parent, range))
			return true;
	return false;
}

// With the function in which it happened, if that is a user's: an event trigger's.
const char *
reason(const ErrorData *error)
{
	const char *line = error->context != nullptr ? strstr(error->context, " function ") : nullptr;

	if (line == nullptr)
		return error->message;
	while (line > error->context && line[-1] != '\n')
		line--;
	return psprintf("%s, in %.*s", error->message, static_cast<int>(strcspn(line, "\n")), line);
}

} // namespace

MadePair
make_next_pair(int64 after_ms)
{
	Range gap;
	const char *name;
	bool unfinished = false;
	ErrorData *error;

	if (!next_gap(after_ms, &gap))
		return {};
	name = leaf_name("messages", &gap);
	if (is_kept_by_default(&gap))
		return {"partition not needed",
				name,
				"the DEFAULT partitions hold rows of that time and keep it",
				false,
				false,
				gap.to_ms};
	error = in_subtransaction([&] {
		SPI_connect();
		unfinished = exclude(&gap);
		if (!unfinished)
			make_leaves(&gap);
		SPI_finish();
	});
	if (error != nullptr)
		return {"partition left for later", name, reason(error), true, false, gap.to_ms};
	if (unfinished)
		return {"partition prepared",
				name,
				"the DEFAULT partitions are large, which takes three calls",
				true,
				true,
				gap.to_ms};
	return {"partition made", name, "with its counterparts of attempts and events", false, false, gap.to_ms};
}

bool
lacks_partitions()
{
	Range gap;

	for (int64 after_ms = PG_INT64_MIN; next_gap(after_ms, &gap); after_ms = gap.to_ms)
		if (!is_kept_by_default(&gap))
			return true;
	return false;
}

} // namespace outbox
