// See seal.h.

#include "seals/seal.h"

#include "seals/sorted.h"
#include "server/digest.h"
#include "server/spi.h"
#include "server/values.h"

namespace outbox {

namespace {

constexpr char all_columns[] =
	"seal_no, from_at, to_at, messages, attempts, events, root, parts, previous, hash, signature, key_id";

// ---- reading

// Clears has_form if it has another size.
void
take_bytes(Seal *seal, Datum value, unsigned char *to, int size)
{
	const bytea *bytes = DatumGetByteaPP(value);

	if (static_cast<int>(VARSIZE_ANY_EXHDR(bytes)) != size)
		seal->has_form = false;
	else
		memcpy(to, VARDATA_ANY(bytes), static_cast<Size>(size));
}

void
take_key_id(Seal *seal, const text *key_id)
{
	constexpr Size size = sizeof(seal->signature.key_id) - 1;

	if (VARSIZE_ANY_EXHDR(key_id) != size)
		seal->has_form = false;
	else
		memcpy(seal->signature.key_id, VARDATA_ANY(key_id), size);
}

int
hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool
read_hex(const JsonbValue *value, core::Hash *hash)
{
	if (value == nullptr || value->type != jbvString ||
		value->val.string.len != 2 * static_cast<int>(sizeof(hash->bytes)))
		return false;
	for (size_t i = 0; i < sizeof(hash->bytes); i++)
	{
		int high = hex_digit(value->val.string.val[2 * i]);
		int low = hex_digit(value->val.string.val[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		hash->bytes[i] = static_cast<unsigned char>(high << 4 | low);
	}
	return true;
}

bool
read_count(const JsonbValue *value, int64 *count)
{
	char *digits;
	char *end;

	if (value == nullptr || value->type != jbvNumeric)
		return false;
	digits = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value->val.numeric)));
	errno = 0;
	*count = strtoll(digits, &end, 10);
	return errno == 0 && *end == '\0' && *count > 0;
}

int
table_number(const JsonbValue *value)
{
	for (int table = 0; value != nullptr && value->type == jbvString && table < core::sealed_tables; table++)
	{
		const char *name = core::sealed_forms[table]->table;

		if (value->val.string.len == static_cast<int>(strlen(name)) &&
			memcmp(value->val.string.val, name, strlen(name)) == 0)
			return table;
	}
	return -1;
}

bool
read_part(JsonbValue *element, SealPart *part)
{
	JsonbContainer *object = element->val.binary.data;
	auto field = [&](const char *key) {
		return getKeyJsonValueFromContainer(object, key, static_cast<int>(strlen(key)), nullptr);
	};
	const JsonbValue *partition;

	if (element->type != jbvBinary || !JsonContainerIsObject(object) || JsonContainerSize(object) != 4)
		return false;
	part->table = table_number(field("table"));
	partition = field("partition");
	if (part->table < 0 || partition == nullptr || partition->type != jbvString)
		return false;
	part->partition = pnstrdup(partition->val.string.val, static_cast<Size>(partition->val.string.len));
	return read_count(field("rows"), &part->rows) && read_hex(field("root"), &part->root);
}

// Each part once, in their order.
bool
are_in_order(const SealPart *before, const SealPart *after)
{
	return before->table != after->table ? before->table < after->table
										 : compare_names(before->partition, after->partition) < 0;
}

bool
read_parts(Seal *seal)
{
	JsonbContainer *array = &seal->parts_json->root;
	uint32 count = JB_ROOT_COUNT(seal->parts_json);

	if (!JB_ROOT_IS_ARRAY(seal->parts_json) || JB_ROOT_IS_SCALAR(seal->parts_json))
		return false;
	seal->parts = static_cast<SealPart *>(palloc0(sizeof(SealPart) * Max(count, 1)));
	for (uint32 i = 0; i < count; i++)
		if (!read_part(getIthJsonbValueFromContainer(array, i), &seal->parts[i]) ||
			(i > 0 && !are_in_order(&seal->parts[i - 1], &seal->parts[i])))
			return false;
	seal->part_count = static_cast<int>(count);
	return true;
}

// The seals that the condition selects.
template <typename Body>
void
each_found(const char *condition, int count, Oid *types, Datum *arguments, const Body &body)
{
	each_tuple(psprintf("SELECT %s FROM outbox.seals WHERE %s", all_columns, condition), count, types, arguments, body);
}

bool
find_one(const char *condition, Oid type, Datum argument, Seal *seal)
{
	MemoryContext caller = CurrentMemoryContext;
	bool found = false;

	each_found(condition, OidIsValid(type) ? 1 : 0, &type, &argument, [&](HeapTuple tuple, TupleDesc desc) {
		MemoryContextSwitchTo(caller);
		read_seal(heap_copytuple(tuple), desc, seal);
		found = true;
	});
	return found;
}

} // namespace

void
read_seal(HeapTuple tuple, TupleDesc desc, Seal *seal)
{
	Datum values[seal_columns];
	bool nulls[seal_columns];

	heap_deform_tuple(tuple, desc, values, nulls);
	*seal = {};
	seal->seal_no = DatumGetInt64(values[0]);
	seal->from_at = DatumGetTimestampTz(values[1]);
	seal->to_at = DatumGetTimestampTz(values[2]);
	for (int table = 0; table < core::sealed_tables; table++)
		seal->rows[table] = DatumGetInt64(values[3 + table]);
	seal->parts_json = DatumGetJsonbPCopy(values[7]);
	seal->has_previous = !nulls[8];
	seal->has_form = read_parts(seal);
	take_bytes(seal, values[6], seal->root.bytes, sizeof(seal->root.bytes));
	if (seal->has_previous)
		take_bytes(seal, values[8], seal->previous.bytes, sizeof(seal->previous.bytes));
	take_bytes(seal, values[9], seal->hash.bytes, sizeof(seal->hash.bytes));
	seal->has_signature = !nulls[10];
	if (seal->has_signature)
		take_bytes(seal, values[10], seal->signature.bytes, sizeof(seal->signature.bytes));
	seal->is_signed = !nulls[11];
	if (seal->is_signed)
		take_key_id(seal, DatumGetTextPP(values[11]));
}

void
seal_values(const Seal *seal, Datum *values, bool *nulls)
{
	memset(nulls, false, seal_columns * sizeof(bool));
	values[0] = Int64GetDatum(seal->seal_no);
	values[1] = TimestampTzGetDatum(seal->from_at);
	values[2] = TimestampTzGetDatum(seal->to_at);
	for (int table = 0; table < core::sealed_tables; table++)
		values[3 + table] = Int64GetDatum(seal->rows[table]);
	values[6] = digest_datum(seal->root);
	values[7] = JsonbPGetDatum(seal->parts_json);
	nulls[8] = !seal->has_previous;
	values[8] = seal->has_previous ? digest_datum(seal->previous) : static_cast<Datum>(0);
	values[9] = digest_datum(seal->hash);
	nulls[10] = !seal->has_signature;
	nulls[11] = !seal->is_signed;
	values[10] = bytea_datum(seal->signature.bytes, sizeof(seal->signature.bytes));
	values[11] = CStringGetTextDatum(seal->signature.key_id);
}

core::Hash
add_parts(core::MerkleTree *tree, const Seal *seal)
{
	core::Hash root;

	for (int i = 0; i < seal->part_count; i++)
	{
		const SealPart *part = &seal->parts[i];
		const char *table = core::sealed_forms[part->table]->table;
		core::SealedPart sealed = {
			{table, strlen(table)}, {part->partition, strlen(part->partition)}, part->rows, part->root};
		core::Hash leaf;

		if (!core::part_hash(*session_sha(), sealed, &leaf))
			digest_failed();
		tree->add(leaf);
	}
	if (!tree->finish(&root))
		digest_failed();
	return root;
}

core::Hash
root_of_parts(const Seal *seal)
{
	core::MerkleTree tree(*session_sha());

	return add_parts(&tree, seal);
}

void
count_parts(const Seal *seal, int64 *rows)
{
	for (int table = 0; table < core::sealed_tables; table++)
		rows[table] = 0;
	for (int i = 0; i < seal->part_count; i++)
		rows[seal->parts[i].table] += seal->parts[i].rows;
}

core::Hash
computed_hash(const Seal *seal)
{
	core::SealedWindow window = {seal->seal_no,
								 seal->from_at,
								 seal->to_at,
								 seal->rows[0],
								 seal->rows[1],
								 seal->rows[2],
								 seal->root,
								 seal->has_previous ? &seal->previous : nullptr,
								 seal->is_signed ? seal->signature.key_id : nullptr};
	core::Hash hash;

	if (!core::seal_hash(*session_sha(), window, &hash))
		digest_failed();
	return hash;
}

void
write_parts(Seal *seal)
{
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfoChar(&json, '[');
	for (int i = 0; i < seal->part_count; i++)
	{
		const SealPart *part = &seal->parts[i];

		appendStringInfo(&json, "%s{\"table\": \"%s\", \"partition\": ", i > 0 ? ", " : "",
						 core::sealed_forms[part->table]->table);
		escape_json(&json, part->partition);
		appendStringInfo(&json, ", \"rows\": " INT64_FORMAT ", \"root\": \"%s\"}", part->rows,
						 hex_of(part->root.bytes, sizeof(part->root.bytes)));
	}
	appendStringInfoChar(&json, ']');
	seal->parts_json = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json.data)));
}

void
scan_seals(int64 from_no, int64 to_no, VisitSeal visit, void *argument)
{
	Oid types[] = {INT8OID, INT8OID};
	Datum bounds[] = {Int64GetDatum(from_no), Int64GetDatum(to_no)};

	each_found("seal_no BETWEEN $1 AND $2 ORDER BY seal_no", 2, types, bounds, [&](HeapTuple tuple, TupleDesc desc) {
		Seal seal;

		read_seal(tuple, desc, &seal);
		visit(argument, &seal);
	});
}

bool
last_seal(Seal *seal)
{
	return find_one("true ORDER BY seal_no DESC LIMIT 1", InvalidOid, 0, seal);
}

bool
find_seal(int64 seal_no, Seal *seal)
{
	return find_one("seal_no = $1", INT8OID, Int64GetDatum(seal_no), seal);
}

bool
seal_of_time(TimestampTz at, Seal *seal)
{
	return find_one("to_at > $1 AND from_at <= $1 ORDER BY to_at LIMIT 1", TIMESTAMPTZOID, TimestampTzGetDatum(at),
					seal);
}

} // namespace outbox
