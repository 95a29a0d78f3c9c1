// See verifying.h.
//
// Shape: first the seals, in their order: each against the one before, its hash, its signature, and its root against
// its parts. What the parts should have goes into a sort by table, partition and seal. Then each partition is read
// once, its rows sorted by seal and id, and what comes out is compared with what the first sort gives for it. Problems
// are kept until the end, because they come partition by partition and are told seal by seal.

#include "seals/verifying.h"

#include "commit/record_floor.h"
#include "seals/sorted.h"
#include "server/boundary.h"
#include "server/settings.h"
#include "server/spi.h"
#include "server/stop_point.h"

namespace outbox {

namespace {

// ---- what is known of each seal

struct Known {
	int64 seal_no;
	TimestampTz to_at;
};

struct Finding {
	int64 window; // index in known
	int64 order;
	bool ok;
	const char *text;
};

struct Verification {
	MemoryContext context; // of what is kept
	Known *known;
	int64 count;
	int64 space;
	TimestampTz from_at; // of the first
	Finding *findings;
	int64 finding_count;
	int64 finding_space;
	Tuplesortstate *wanted; // parts
	PublicKeys keys;        // none: signatures are not looked at
	int64 unsigned_no;      // the first seal for which no signature stands, its own or a later one; 0 = none
	bool goes_on;           // there are seals after the range
	List *retired;          // of Retired
	int64 told_no;          // the last seal that an event tells of; 0 = none
	int64 lost_no;          // the same, if nothing else is left of it; 0 = none
};

// The partitions whose names end so were retired at that time, with what that seal and those before it cover.
struct Retired {
	const char *suffix;
	TimestampTz at; // or later
	int64 last_no;  // 0 = none
};

template <typename T>
T *
grown(MemoryContext context, T *items, int64 count, int64 *space)
{
	if (count < *space)
		return items;
	*space = Max(2 * *space, 64);
	return static_cast<T *>(items == nullptr ? MemoryContextAllocHuge(context, sizeof(T) * static_cast<Size>(*space))
											 : repalloc_huge(items, sizeof(T) * static_cast<Size>(*space)));
}

void
find_fault(Verification *all, int64 window, const char *text, bool ok = false)
{
	all->findings = grown(all->context, all->findings, all->finding_count, &all->finding_space);
	all->findings[all->finding_count] = {window, all->finding_count, ok, MemoryContextStrdup(all->context, text)};
	all->finding_count++;
}

// ---- the chain

void
check_neighbours(Verification *all, const Seal *seal, const Seal *before)
{
	int64 window = all->count;

	if (before == nullptr)
	{
		if (seal->seal_no != 1)
			find_fault(all, window, psprintf("seal " INT64_FORMAT " is missing", seal->seal_no - 1));
		else if (seal->has_previous || !TIMESTAMP_IS_NOBEGIN(seal->from_at))
			find_fault(all, window, "the first seal names one before it, or does not begin at -infinity");
		return;
	}
	if (seal->seal_no == before->seal_no + 2)
		find_fault(all, window, psprintf("seal " INT64_FORMAT " is missing", seal->seal_no - 1));
	else if (seal->seal_no != before->seal_no + 1)
		find_fault(all, window,
				   psprintf("the seals from " INT64_FORMAT " to " INT64_FORMAT " are missing", before->seal_no + 1,
							seal->seal_no - 1));
	else if (!seal->has_previous || !(seal->previous == before->hash))
		find_fault(all, window, "previous is not the hash of the seal before");
	if (seal->from_at != before->to_at)
		find_fault(all, window, "the window does not begin where the one before ended");
}

void
check_contents(Verification *all, const Seal *seal)
{
	int64 rows[core::sealed_tables];

	if (seal->to_at <= seal->from_at)
		find_fault(all, all->count, "the window ends before it begins");
	if (!seal->has_form)
	{
		find_fault(all, all->count, "a hash, the signature, key_id or parts have not their form");
		return;
	}
	if (seal->has_signature != seal->is_signed)
		find_fault(all, all->count,
				   seal->is_signed ? "the signature is missing" : "key_id of its signature is missing");
	count_parts(seal, rows);
	for (int table = 0; table < core::sealed_tables; table++)
		if (rows[table] != seal->rows[table])
			find_fault(all, all->count,
					   psprintf("its number of %s is " INT64_FORMAT ", that of its parts " INT64_FORMAT,
								core::sealed_forms[table]->table, seal->rows[table], rows[table]));
	if (!(root_of_parts(seal) == seal->root))
		find_fault(all, all->count, "root is not that of parts");
	if (!(computed_hash(seal) == seal->hash))
		find_fault(all, all->count, "hash is not that of the seal");
}

// ---- signatures

// The setting tells what to expect. That the file cannot be read is said of the last seal.
const char *
read_public_keys(Verification *all)
{
	const char *file = seal_key_file();
	ErrorData *error = nullptr;

	if (file[0] != '\0')
		error = in_subtransaction([&] { all->keys = public_keys_in(file); });
	return error == nullptr ? nullptr : psprintf("no signature was checked: %s", error->message);
}

// nullptr: it is right.
const char *
problem_of_signature(const Verification *all, const Seal *seal)
{
	const PublicKey *key = find_key(&all->keys, seal->signature.key_id);

	if (key == nullptr)
		return psprintf("it is signed by the key %s, which the file of outbox.seal_key_file does not have",
						seal->signature.key_id);
	if (!is_signature_of(key, &seal->signature, seal->hash.bytes, sizeof(seal->hash.bytes)))
		return "the signature is not that of its key";
	return nullptr;
}

void
check_signature(Verification *all, const Seal *seal)
{
	const char *problem = nullptr;

	if (all->keys.count == 0 || !seal->has_form)
		return;
	if (seal->has_signature && seal->is_signed)
		problem = problem_of_signature(all, seal);
	if (problem != nullptr)
		find_fault(all, all->count, problem);
	if (seal->has_signature && seal->is_signed && problem == nullptr)
		all->unsigned_no = 0;
	else if (all->unsigned_no == 0)
		all->unsigned_no = seal->seal_no;
}

// A signature covers all seals before it. Those after the last one nothing stands for.
void
check_last_signature(Verification *all)
{
	if (all->unsigned_no > 0 && !all->goes_on)
		find_fault(all, all->count - 1,
				   psprintf("from seal " INT64_FORMAT " on no signature stands for the seals, though "
							"outbox.seal_key_file is set",
							all->unsigned_no));
}

// ---- what the parts should have

struct WantedPart {
	int table;
	char partition[longest_part_name];
	int64 window;
	int64 rows;
	core::Hash root;
};

// The table and partition come first, padded, then the window, so that bytes give the order.
constexpr int wanted_size = 1 + longest_part_name + 8 + 8 + static_cast<int>(sizeof(core::Hash));

void
want_part(Verification *all, const SealPart *part)
{
	unsigned char bytes[wanted_size] = {};
	uint64 window = pg_hton64(static_cast<uint64>(all->count));
	unsigned char *rest = bytes + 1 + longest_part_name;

	bytes[0] = static_cast<unsigned char>(part->table);
	strlcpy(reinterpret_cast<char *>(bytes + 1), part->partition, longest_part_name);
	memcpy(rest, &window, sizeof(window));
	memcpy(rest + 8, &part->rows, sizeof(part->rows));
	memcpy(rest + 16, part->root.bytes, sizeof(part->root.bytes));
	sort_bytes(all->wanted, bytes, wanted_size);
}

bool
next_wanted(Verification *all, WantedPart *part)
{
	unsigned char bytes[wanted_size];
	const unsigned char *rest = bytes + 1 + longest_part_name;
	uint64 window;

	if (!next_sorted_bytes(all->wanted, bytes, wanted_size))
		return false;
	part->table = bytes[0];
	memcpy(part->partition, bytes + 1, longest_part_name);
	memcpy(&window, rest, sizeof(window));
	part->window = static_cast<int64>(pg_ntoh64(window));
	memcpy(&part->rows, rest + 8, sizeof(part->rows));
	memcpy(part->root.bytes, rest + 16, sizeof(part->root.bytes));
	return true;
}

void
take_seal(Verification *all, const Seal *seal, const Seal *before)
{
	check_neighbours(all, seal, before);
	check_contents(all, seal);
	check_signature(all, seal);
	for (int i = 0; seal->has_form && i < seal->part_count; i++)
		want_part(all, &seal->parts[i]);
	all->known = grown(all->context, all->known, all->count, &all->space);
	if (all->count == 0)
		all->from_at = seal->from_at;
	all->known[all->count++] = {seal->seal_no, seal->to_at};
}

void
take_retired(Verification *all, HeapTuple tuple, TupleDesc desc)
{
	MemoryContext previous = MemoryContextSwitchTo(all->context);
	Retired *retired = static_cast<Retired *>(palloc(sizeof(Retired)));
	bool isnull;

	retired->suffix = pstrdup(SPI_getvalue(tuple, desc, 1));
	retired->at = DatumGetTimestampTz(SPI_getbinval(tuple, desc, 2, &isnull));
	retired->last_no = DatumGetInt64(SPI_getbinval(tuple, desc, 3, &isnull));
	all->retired = lappend(all->retired, retired);
	MemoryContextSwitchTo(previous);
}

// Which partitions were retired, and the last seal. Events are sealed themselves, or will be: one of a time to come
// never is, and excuses nothing.
void
read_audit_events(Verification *all)
{
	run_at(
		Max(GetCurrentTimestamp(), published_floor()),
		"SELECT CASE event WHEN 'PARTITION_RETIRED' THEN "
		"pg_catalog.substr(detail ->> 'partition', pg_catalog.length('messages') + 1) END, pg_catalog.max(at), "
		"pg_catalog.max(CASE WHEN seal_no ~ '^[0-9]{1,18}$' THEN seal_no::bigint END) FROM outbox.events "
		"CROSS JOIN LATERAL (SELECT detail ->> CASE event WHEN 'SEALED' THEN 'seal_no' ELSE 'last_seal' END) s (seal_no) "
		"WHERE event = 'SEALED' "
		"OR (event = 'PARTITION_RETIRED' AND detail ->> 'partition' IS NOT NULL AND at <= $1) GROUP BY 1");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple tuple = SPI_tuptable->vals[i];
		TupleDesc desc = SPI_tuptable->tupdesc;
		bool is_seal;
		bool isnull;

		SPI_getbinval(tuple, desc, 1, &is_seal);
		if (is_seal)
			all->told_no = DatumGetInt64(SPI_getbinval(tuple, desc, 3, &isnull));
		else
			take_retired(all, tuple, desc);
	}
}

bool
is_retired(const Verification *all, const WantedPart *wanted)
{
	const Known *seal = &all->known[wanted->window];
	const char *table = core::sealed_forms[wanted->table]->table;
	// Events name partitions without their schema.
	const char *dot = strrchr(wanted->partition, '.');
	const char *name = dot != nullptr ? dot + 1 : wanted->partition;
	ListCell *cell;

	if (strncmp(name, table, strlen(table)) != 0)
		return false;
	foreach (cell, all->retired)
	{
		const Retired *retired = static_cast<const Retired *>(lfirst(cell));

		if (strcmp(name + strlen(table), retired->suffix) == 0 && seal->seal_no <= retired->last_no &&
			seal->to_at <= retired->at)
			return true;
	}
	return false;
}

// The seals that nothing follows.
void
look_for_lost(Verification *all, int64 from_no, int64 to_no)
{
	int64 last_no = all->count > 0 ? all->known[all->count - 1].seal_no : from_no - 1;

	if (all->told_no > last_no && all->told_no <= to_no)
		all->lost_no = all->told_no;
}

void
read_chain(Verification *all, int64 from_no, int64 to_no)
{
	Seal before;
	bool has_before;

	SPI_connect();
	read_audit_events(all);
	all->goes_on = run("SELECT FROM outbox.seals WHERE seal_no > '" INT64_FORMAT "' LIMIT 1", to_no) > 0;
	has_before = from_no > 1 && find_seal(from_no - 1, &before);
	each_seal(from_no, to_no, [&](const Seal *seal) {
		take_seal(all, seal, has_before ? &before : nullptr);
		// The rest of it is not asked for.
		before = *seal;
		has_before = true;
	});
	look_for_lost(all, from_no, to_no);
	SPI_finish();
	tuplesort_performsort(all->wanted);
}

// ---- the rows of a partition

// The first window that ends after that time; a chain that was forged may have any order.
int64
window_of(const Verification *all, TimestampTz at)
{
	int64 low = 0;
	int64 high = all->count;

	while (low < high)
	{
		int64 middle = low + (high - low) / 2;

		if (all->known[middle].to_at > at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

struct Comparing {
	Verification *all;
	WantedPart wanted; // the next one
	bool has_wanted;
	const char *progress;
};

void
advance(Comparing *comparing)
{
	comparing->has_wanted = next_wanted(comparing->all, &comparing->wanted);
}

// Less than 0: the wanted part belongs to a partition before this one.
int
compare_with(const WantedPart *wanted, const SealedLeaf *leaf)
{
	return wanted->table != leaf->table ? wanted->table - leaf->table : compare_names(wanted->partition, leaf->name);
}

bool
is_wanted_of(const Comparing *comparing, const SealedLeaf *leaf)
{
	return comparing->has_wanted && compare_with(&comparing->wanted, leaf) == 0;
}

const char *
place(int table, const char *partition)
{
	return psprintf("partition %s of %s", partition, core::sealed_forms[table]->table);
}

const char *
shown_rows(int64 rows)
{
	return rows == 1 ? "1 row" : psprintf(INT64_FORMAT " rows", rows);
}

void
missing_rows(Comparing *comparing)
{
	const WantedPart *wanted = &comparing->wanted;

	// Its root is in the seal, which goes on being proved.
	if (is_retired(comparing->all, wanted))
		return;
	find_fault(comparing->all, wanted->window,
			   psprintf(wanted->rows == 1 ? "%s: its row is missing" : "%s: all " INT64_FORMAT " rows are missing",
						place(wanted->table, wanted->partition), wanted->rows));
}

void
compare_window(Comparing *comparing, const SealedLeaf *leaf, const WindowRows *found)
{
	const WantedPart *wanted = &comparing->wanted;
	const char *where = place(leaf->table, leaf->name);

	if (!is_wanted_of(comparing, leaf) || wanted->window != found->window)
		find_fault(comparing->all, found->window,
				   psprintf("%s: %s %s added", where, shown_rows(found->rows), found->rows == 1 ? "was" : "were"));
	else if (wanted->rows != found->rows)
		find_fault(comparing->all, found->window,
				   psprintf("%s: it has %s, and had " INT64_FORMAT " when it was sealed", where,
							shown_rows(found->rows), wanted->rows));
	else if (!(wanted->root == found->root))
		find_fault(comparing->all, found->window, psprintf("%s: a row was changed", where));
	if (is_wanted_of(comparing, leaf) && wanted->window == found->window)
		advance(comparing);
}

void
compare_leaf(Comparing *comparing, const SealedLeaf *leaf, RowSort *sort)
{
	WindowRows found;

	while (next_window(sort, &found))
	{
		for (; is_wanted_of(comparing, leaf) && comparing->wanted.window < found.window; advance(comparing))
			missing_rows(comparing);
		compare_window(comparing, leaf, &found);
	}
	for (; is_wanted_of(comparing, leaf); advance(comparing))
		missing_rows(comparing);
}

void
report_rows(const Comparing *comparing, const SealedLeaf *leaf, int64 rows)
{
	pgstat_report_activity(STATE_RUNNING, psprintf("outbox.verify_seals: partition %s, %s, " INT64_FORMAT " rows read",
												   leaf->name, comparing->progress, rows));
	OUTBOX_STOP_POINT("verify_reports");
}

void
read_leaf(Comparing *comparing, const SealedLeaf *leaf, RowSort *sort)
{
	constexpr int64 rows_a_report = 100000;
	const Verification *all = comparing->all;
	int64 rows = 0;

	report_rows(comparing, leaf, rows);
	each_row(leaf, all->from_at, all->known[all->count - 1].to_at, [&](const SealedRow *row) {
		sort_row(sort, Min(window_of(all, row->at), all->count - 1), row);
		if (++rows % rows_a_report == 0)
			report_rows(comparing, leaf, rows);
	});
	sort_rows(sort);
}

// A partition that cannot be read is a problem of each seal that has rows of it.
void
unreadable(Comparing *comparing, const SealedLeaf *leaf, const ErrorData *error)
{
	const char *what = psprintf("%s cannot be read: %s", place(leaf->table, leaf->name), error->message);
	bool told = false;

	for (; is_wanted_of(comparing, leaf); advance(comparing), told = true)
		find_fault(comparing->all, comparing->wanted.window, what);
	if (!told)
		find_fault(comparing->all, comparing->all->count - 1, what);
}

void
verify_leaf(Comparing *comparing, const SealedLeaf *leaf)
{
	int64 findings = comparing->all->finding_count;
	ErrorData *error;

	for (; comparing->has_wanted && compare_with(&comparing->wanted, leaf) < 0; advance(comparing))
		missing_rows(comparing);
	error = in_subtransaction([&] {
		RowSort sort;

		SPI_connect();
		begin_sort(&sort);
		read_leaf(comparing, leaf, &sort);
		compare_leaf(comparing, leaf, &sort);
		end_sort(&sort);
		SPI_finish();
	});
	if (error == nullptr)
		return;
	comparing->all->finding_count = findings;
	unreadable(comparing, leaf, error);
}

void
verify_rows(Verification *all)
{
	List *leaves = sealed_leaves();
	Comparing comparing = {all, {}, false, nullptr};
	ListCell *cell;

	advance(&comparing);
	foreach (cell, leaves)
	{
		comparing.progress = psprintf("%d of %d", foreach_current_index(cell) + 1, list_length(leaves));
		verify_leaf(&comparing, static_cast<const SealedLeaf *>(lfirst(cell)));
	}
	for (; comparing.has_wanted; advance(&comparing))
		missing_rows(&comparing);
}

// ---- telling

int
by_window(const void *a, const void *b)
{
	const Finding *one = static_cast<const Finding *>(a);
	const Finding *other = static_cast<const Finding *>(b);

	if (one->window != other->window)
		return one->window < other->window ? -1 : 1;
	return one->order < other->order ? -1 : 1;
}

void
tell_all(Verification *all, TellSeal tell, void *argument)
{
	int64 next = 0;

	if (all->finding_count > 0)
		qsort(all->findings, static_cast<size_t>(all->finding_count), sizeof(Finding), by_window);
	for (int64 i = 0; i < all->count; i++)
	{
		if (next == all->finding_count || all->findings[next].window != i)
			tell(argument, all->known[i].seal_no, true, nullptr);
		for (; next < all->finding_count && all->findings[next].window == i; next++)
			tell(argument, all->known[i].seal_no, all->findings[next].ok, all->findings[next].text);
	}
	if (all->lost_no > 0)
		tell(argument, all->lost_no, false, "it is missing, but its event is there");
}

} // namespace

void
verify(int64 from_no, int64 to_no, TellSeal tell, void *argument)
{
	Verification all = {};
	const char *unchecked;

	all.context = CurrentMemoryContext;
	all.wanted = begin_byte_sort();
	unchecked = read_public_keys(&all);
	read_chain(&all, from_no, to_no);
	if (all.count > 0)
	{
		check_last_signature(&all);
		if (unchecked != nullptr)
			find_fault(&all, all.count - 1, unchecked);
		verify_rows(&all);
	}
	tuplesort_end(all.wanted);
	pgstat_report_activity(STATE_RUNNING, debug_query_string != nullptr ? debug_query_string : "");
	tell_all(&all, tell, argument);
}

} // namespace outbox
