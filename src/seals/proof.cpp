// See proof.h.
//
// Shape: JSON is written as text, since most of it is hexadecimal digits, and parsed once.

#include "seals/proof.h"

#include "rows/call.h"
#include "seals/sorted.h"

namespace outbox {

namespace {

const char *
shown_hash(const core::Hash &hash)
{
	return hex_of(hash.bytes, sizeof(hash.bytes));
}

const char *
iso_time(TimestampTz at)
{
	struct pg_tm tm;
	fsec_t fsec;

	if (TIMESTAMP_NOT_FINITE(at) || timestamp2tm(at, nullptr, &tm, &fsec, nullptr, nullptr) != 0)
		return TIMESTAMP_IS_NOEND(at) ? "infinity" : "-infinity";
	return psprintf("%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", tm.tm_year, tm.tm_mon, tm.tm_mday, tm.tm_hour, tm.tm_min,
					tm.tm_sec, fsec);
}

// hex: nullptr = JSON null.
void
append_hex(StringInfo json, const char *key, const char *hex)
{
	if (hex == nullptr)
		appendStringInfo(json, ", \"%s\": null", key);
	else
		appendStringInfo(json, ", \"%s\": \"%s\"", key, hex);
}

void
append_seal(StringInfo json, const Seal *seal)
{
	appendStringInfo(json,
					 "{\"seal_no\": " INT64_FORMAT
					 ", \"from_at\": \"%s\", \"to_at\": \"%s\", \"from_us\": " INT64_FORMAT
					 ", \"to_us\": " INT64_FORMAT,
					 seal->seal_no, iso_time(seal->from_at), iso_time(seal->to_at), seal->from_at, seal->to_at);
	for (int table = 0; table < core::sealed_tables; table++)
		appendStringInfo(json, ", \"%s\": " INT64_FORMAT, core::sealed_forms[table]->table, seal->rows[table]);
	append_hex(json, "root", shown_hash(seal->root));
	append_hex(json, "previous", seal->has_previous ? shown_hash(seal->previous) : nullptr);
	append_hex(json, "hash", shown_hash(seal->hash));
	append_hex(json, "signature",
			   seal->is_signed ? hex_of(seal->signature.bytes, sizeof(seal->signature.bytes)) : nullptr);
	append_hex(json, "key_id", seal->is_signed ? seal->signature.key_id : nullptr);
	appendStringInfo(json, ", \"parts\": %s}",
					 JsonbToCString(nullptr, &seal->parts_json->root, static_cast<int>(VARSIZE(seal->parts_json))));
}

Jsonb *
parsed(const StringInfo json)
{
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json->data)));
}

// ---- paths

void
append_path(StringInfo json, const char *key, const core::MerkleTree *tree)
{
	appendStringInfo(json, ", \"%s\": [", key);
	for (int i = 0; i < tree->path_length(); i++)
		appendStringInfo(json, "%s\"%s\"", i > 0 ? ", " : "", shown_hash(tree->path()[i]));
	appendStringInfoChar(json, ']');
}

[[noreturn]] void
cannot_be_proved(const core::Uuid &id, const SealedLeaf *leaf, const Seal *seal)
{
	ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
					errmsg("message %s cannot be proved: partition %s is not as seal " INT64_FORMAT " has it",
						   shown(id), leaf->name, seal->seal_no),
					errhint("outbox.verify_seals() says what was changed.")));
}

// Its place among the parts; -1: it is none.
int
part_index(const Seal *seal, const SealedLeaf *leaf)
{
	for (int i = 0; i < seal->part_count; i++)
		if (seal->parts[i].table == leaf->table && compare_names(seal->parts[i].partition, leaf->name) == 0)
			return i;
	return -1;
}

// The index of the row, or -1.
int64
find_sorted(RowSort *sort, const SealedRow *row)
{
	SortedRow sorted;

	for (int64 i = 0; next_sorted(sort, &sorted); i++)
		if (equal(sorted.id, row->id) && sorted.attempt_no == row->attempt_no)
			return i;
	return -1;
}

// False: what the window has now is not what was sealed.
bool
append_row_path(StringInfo json, const SealedLeaf *leaf, const SealedRow *row, const Seal *seal, const SealPart *part)
{
	SortedRow sorted;
	core::Hash root;
	RowSort sort;
	int64 index;

	begin_sort(&sort);
	each_row(leaf, seal->from_at, seal->to_at, [&](const SealedRow *one) { sort_row(&sort, 0, one); });
	sort_rows(&sort);
	index = find_sorted(&sort, row);
	restart_sort(&sort);

	core::MerkleTree tree(*session_sha(), index);

	while (next_sorted(&sort, &sorted))
		tree.add(sorted.leaf);
	end_sort(&sort);
	if (!tree.finish(&root))
		digest_failed();
	appendStringInfo(json, ", \"index\": " INT64_FORMAT ", \"rows\": " INT64_FORMAT, index, tree.leaves());
	append_path(json, "path", &tree);
	return index >= 0 && tree.leaves() == part->rows && root == part->root;
}

void
append_part_path(StringInfo json, const Seal *seal, int index)
{
	core::MerkleTree tree(*session_sha(), index);

	add_parts(&tree, seal);
	appendStringInfo(json, ", \"part_index\": %d, \"parts\": %d", index, seal->part_count);
	append_path(json, "part_path", &tree);
}

// ---- rows

struct Proving {
	StringInfo json; // the rows
	const SealedLeaf *leaf;
	bool any;
	List *seals; // of Seal
};

// What a jsonb can hold, all of it together.
constexpr int64 longest_proof = 0x0fffffff;

[[noreturn]] void
is_too_long(const SealedRow *row, const Seal *seal)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("message %s is too long for a proof", shown(row->id)),
			 errdetail("Each byte takes two digits, and a proof has at most " INT64_FORMAT " bytes.", longest_proof),
			 seal != nullptr
				 ? errhint("outbox.seal_leaves(" INT64_FORMAT ") has the hash of each of its rows.", seal->seal_no)
				 : 0));
}

void
append_columns(Proving *proving, const SealedRow *row, const SealedValue *values, const Seal *seal)
{
	const core::Form *form = core::sealed_forms[proving->leaf->table];
	StringInfo json = proving->json;

	appendStringInfoString(json, ", \"columns\": [");
	for (int i = 0; i < form->count; i++)
	{
		if (json->len + 2 * static_cast<int64>(Max(values[i].size, 0)) > longest_proof)
			is_too_long(row, seal);
		appendStringInfo(json, "%s[\"%s\", \"%s\", ", i > 0 ? ", " : "", form->columns[i].name,
						 core::type_name(form->columns[i].type));
		if (values[i].data == nullptr)
			appendStringInfoString(json, "null]");
		else
			appendStringInfo(
				json, "\"%s\"]",
				hex_of(static_cast<const unsigned char *>(values[i].data), static_cast<Size>(values[i].size)));
	}
	appendStringInfoChar(json, ']');
}

// nullptr: the row is not sealed yet.
const Seal *
seal_of_row(Proving *proving, const SealedRow *row, MemoryContext context)
{
	MemoryContext previous = MemoryContextSwitchTo(context);
	Seal *seal = nullptr;
	ListCell *cell;

	foreach (cell, proving->seals)
	{
		Seal *known = static_cast<Seal *>(lfirst(cell));

		if (row->at >= known->from_at && row->at < known->to_at)
			seal = known;
	}
	if (seal == nullptr)
	{
		seal = static_cast<Seal *>(palloc(sizeof(Seal)));
		if (seal_of_time(row->at, seal))
			proving->seals = lappend(proving->seals, seal);
		else
			seal = nullptr;
	}
	MemoryContextSwitchTo(previous);
	return seal;
}

void
append_row(Proving *proving, const SealedRow *row, const SealedValue *values, MemoryContext context)
{
	const SealedLeaf *leaf = proving->leaf;
	const core::Form *form = core::sealed_forms[leaf->table];
	const Seal *seal = seal_of_row(proving, row, context);
	StringInfo json = proving->json;
	int index = seal != nullptr && seal->has_form ? part_index(seal, leaf) : -1;

	appendStringInfo(json, "%s{\"table\": \"%s\", \"partition\": ", proving->any ? ", " : "", form->table);
	escape_json(json, leaf->name);
	append_columns(proving, row, values, seal);
	proving->any = true;
	if (seal == nullptr)
	{
		appendStringInfoString(json, ", \"seal_no\": null}");
		return;
	}
	appendStringInfo(json, ", \"seal_no\": " INT64_FORMAT, seal->seal_no);
	if (index < 0 || !append_row_path(json, leaf, row, seal, &seal->parts[index]))
		cannot_be_proved(row->id, leaf, seal);
	append_part_path(json, seal, index);
	appendStringInfoChar(json, '}');
}

// Those of the message may hold it.
bool
may_hold(const Call *call, const SealedLeaf *leaf, const core::Uuid &id)
{
	return (leaf->table == 0 && leaf->oid == leaf_now(call, messages_shape, id)) ||
		   (leaf->table == 1 && leaf->oid == leaf_now(call, attempts_shape, id));
}

void
prove_rows(const Call *call, Proving *proving, const core::Uuid &id)
{
	MemoryContext context = CurrentMemoryContext;
	ListCell *cell;

	foreach (cell, sealed_leaves())
	{
		auto visit = [&](const SealedRow *row, const SealedValue *values) {
			SPI_connect();
			append_row(proving, row, values, context);
			SPI_finish();
		};

		proving->leaf = static_cast<const SealedLeaf *>(lfirst(cell));
		if (may_hold(call, proving->leaf, id))
			each_of_message(proving->leaf, id, visit);
	}
}

// After a step of the clock an attempt may lie in an earlier seal than its message.
int
in_order_of_numbers(const ListCell *a, const ListCell *b)
{
	int64 one = static_cast<const Seal *>(lfirst(a))->seal_no;
	int64 other = static_cast<const Seal *>(lfirst(b))->seal_no;

	return (one > other) - (one < other);
}

} // namespace

Jsonb *
proof_of(const Call *call, const core::Uuid &id)
{
	StringInfoData json;
	Proving proving = {&json, nullptr, false, NIL};
	ListCell *cell;

	initStringInfo(&json);
	appendStringInfo(&json, "{\"format\": \"outbox proof 1\", \"outbox_id\": \"%s\", \"rows\": [", shown(id));
	prove_rows(call, &proving, id);
	if (!proving.any)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("there is no message %s", shown(id)),
						errdetail("It was never there, or its partition was retired.")));
	list_sort(proving.seals, in_order_of_numbers);
	appendStringInfoString(&json, "], \"seals\": [");
	foreach (cell, proving.seals)
	{
		if (foreach_current_index(cell) > 0)
			appendStringInfoString(&json, ", ");
		append_seal(&json, static_cast<const Seal *>(lfirst(cell)));
	}
	appendStringInfoString(&json, "]}");
	return parsed(&json);
}

Jsonb *
exported(const Seal *seal)
{
	StringInfoData json;

	initStringInfo(&json);
	append_seal(&json, seal);
	return parsed(&json);
}

} // namespace outbox
