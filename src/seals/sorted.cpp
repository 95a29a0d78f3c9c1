// See sorted.h.
//
// Shape: a row is 60 bytes whose order is that of their bytes: window, id, attempt_no, leaf.

#include "seals/sorted.h"

namespace outbox {

namespace {

constexpr int most_bytes = 512; // of a string
constexpr int row_size = 8 + UUID_LEN + 4 + static_cast<int>(sizeof(core::Hash));

void
pack(unsigned char *bytes, int64 window, const SealedRow *row)
{
	uint64 first = pg_hton64(static_cast<uint64>(window));
	// Negative numbers, which only a forger writes, come first.
	uint32 attempt_no = pg_hton32(static_cast<uint32>(row->attempt_no) ^ 0x80000000);

	memcpy(bytes, &first, sizeof(first));
	memcpy(bytes + 8, row->id.bytes, UUID_LEN);
	memcpy(bytes + 8 + UUID_LEN, &attempt_no, sizeof(attempt_no));
	memcpy(bytes + 12 + UUID_LEN, row->leaf.bytes, sizeof(row->leaf.bytes));
}

void
unpack(const unsigned char *bytes, SortedRow *row)
{
	uint64 window;
	uint32 attempt_no;

	memcpy(&window, bytes, sizeof(window));
	memcpy(row->id.bytes, bytes + 8, UUID_LEN);
	memcpy(&attempt_no, bytes + 8 + UUID_LEN, sizeof(attempt_no));
	memcpy(row->leaf.bytes, bytes + 12 + UUID_LEN, sizeof(row->leaf.bytes));
	row->window = static_cast<int64>(pg_ntoh64(window));
	row->attempt_no = static_cast<int32>(pg_ntoh32(attempt_no) ^ 0x80000000);
}

bool
read_ahead(RowSort *sort)
{
	if (!sort->has_row)
		sort->has_row = next_sorted(sort, &sort->row);
	return sort->has_row;
}

} // namespace

Tuplesortstate *
begin_byte_sort()
{
	return tuplesort_begin_datum(BYTEAOID, lookup_type_cache(BYTEAOID, TYPECACHE_LT_OPR)->lt_opr, InvalidOid, false,
								 work_mem, nullptr, TUPLESORT_RANDOMACCESS);
}

void
sort_bytes(Tuplesortstate *state, const unsigned char *bytes, int size)
{
	union {
		bytea header;
		char space[VARHDRSZ + most_bytes];
	} datum;

	Assert(size <= most_bytes);
	SET_VARSIZE(&datum.header, VARHDRSZ + size);
	memcpy(VARDATA(&datum.header), bytes, static_cast<Size>(size));
	tuplesort_putdatum(state, PointerGetDatum(&datum.header), false);
}

bool
next_sorted_bytes(Tuplesortstate *state, unsigned char *bytes, int size)
{
	return use_sorted_datum(
		state, [&](Datum value) { memcpy(bytes, VARDATA_ANY(DatumGetPointer(value)), static_cast<Size>(size)); });
}

void
begin_sort(RowSort *sort)
{
	*sort = {};
	sort->state = begin_byte_sort();
}

void
sort_row(RowSort *sort, int64 window, const SealedRow *row)
{
	unsigned char bytes[row_size];

	pack(bytes, window, row);
	sort_bytes(sort->state, bytes, row_size);
}

void
sort_rows(RowSort *sort)
{
	tuplesort_performsort(sort->state);
}

void
restart_sort(RowSort *sort)
{
	tuplesort_rescan(sort->state);
	sort->has_row = false;
}

bool
next_sorted(RowSort *sort, SortedRow *row)
{
	unsigned char bytes[row_size];

	if (!next_sorted_bytes(sort->state, bytes, row_size))
		return false;
	unpack(bytes, row);
	CHECK_FOR_INTERRUPTS();
	return true;
}

void
end_sort(RowSort *sort)
{
	tuplesort_end(sort->state);
}

bool
next_window(RowSort *sort, WindowRows *part)
{
	core::MerkleTree tree(*session_sha());

	if (!read_ahead(sort))
		return false;
	part->window = sort->row.window;
	for (; read_ahead(sort) && sort->row.window == part->window; sort->has_row = false)
		tree.add(sort->row.leaf);
	part->rows = tree.leaves();
	if (!tree.finish(&part->root))
		digest_failed();
	return true;
}

void
digest_failed()
{
	ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not compute the digest of a seal")));
}

} // namespace outbox
