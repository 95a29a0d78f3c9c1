// See canonical.h.
//
// Shape: the lists of columns are the form. They say nothing of the tables: a column that is added there is no part of
// version 1. Short values are gathered in a buffer, because each call of the hash has its price.
#include "canonical.h"

#include <cstring>
#include <iterator>

namespace outbox::core {

namespace {

constexpr FormColumn message_columns[] = {
	{"outbox_id", ColumnType::uuid},       {"queue", ColumnType::text},
	{"event_id", ColumnType::uuid},        {"event_type", ColumnType::text},
	{"aggregate_type", ColumnType::text},  {"aggregate_id", ColumnType::text},
	{"partition_key", ColumnType::text},   {"sequence_id", ColumnType::bigint},
	{"idempotency_key", ColumnType::text}, {"routing_key", ColumnType::text},
	{"priority", ColumnType::smallint},    {"max_attempts", ColumnType::integer},
	{"payload", ColumnType::jsonb},        {"headers", ColumnType::jsonb},
	{"replay_of", ColumnType::uuid},       {"created_at", ColumnType::timestamptz},
	{"payload_bytes", ColumnType::bytea},  {"content_type", ColumnType::text},
};

constexpr FormColumn attempt_columns[] = {
	{"outbox_id", ColumnType::uuid},
	{"attempt_no", ColumnType::integer},
	{"state", ColumnType::text},
	{"worker_id", ColumnType::text},
	{"lease_token", ColumnType::uuid},
	{"claimed_at", ColumnType::timestamptz},
	{"completed_at", ColumnType::timestamptz},
	{"reference", ColumnType::text},
	{"response_code", ColumnType::text},
	{"error_code", ColumnType::text},
	{"error_message", ColumnType::text},
	{"latency_ms", ColumnType::integer},
	{"recorded_by", ColumnType::text},
	{"created_at", ColumnType::timestamptz},
};

constexpr FormColumn event_columns[] = {
	{"event_id", ColumnType::uuid},
	{"event", ColumnType::text},
	{"at", ColumnType::timestamptz},
	{"queue", ColumnType::text},
	{"worker_id", ColumnType::text},
	{"actor", ColumnType::text},
	{"outbox_ids", ColumnType::uuids},
	{"attempt_nos", ColumnType::integers},
	{"lease_expires_at", ColumnType::timestamptz},
	{"detail", ColumnType::jsonb},
};

constexpr FormColumn part_columns[] = {
	{"table", ColumnType::text},
	{"partition", ColumnType::text},
	{"rows", ColumnType::bigint},
	{"root", ColumnType::bytea},
};

constexpr FormColumn seal_columns[] = {
	{"seal_no", ColumnType::bigint},  {"from_at", ColumnType::timestamptz}, {"to_at", ColumnType::timestamptz},
	{"messages", ColumnType::bigint}, {"attempts", ColumnType::bigint},     {"events", ColumnType::bigint},
	{"root", ColumnType::bytea},      {"previous", ColumnType::bytea},      {"key_id", ColumnType::text},
};

// In the order of the enumeration.
constexpr const char *type_names[] = {"uuid",        "text",  "smallint", "integer", "bigint",
									  "timestamptz", "bytea", "jsonb",    "uuid[]",  "integer[]"};
static_assert(std::size(type_names) == static_cast<size_t>(ColumnType::integers) + 1);

template <size_t n>
constexpr Form
form_of(const char *tag, const char *table, const FormColumn (&columns)[n])
{
	return {tag, table, columns, static_cast<int>(n)};
}

constexpr size_t length_size = 4;

} // namespace

const Form message_form = form_of("outbox message 1", "messages", message_columns);
const Form attempt_form = form_of("outbox attempt 1", "attempts", attempt_columns);
const Form event_form = form_of("outbox event 1", "events", event_columns);
const Form part_form = form_of("outbox part 1", nullptr, part_columns);
const Form seal_form = form_of("outbox seal 1", nullptr, seal_columns);
const Form *const sealed_forms[sealed_tables] = {&message_form, &attempt_form, &event_form};

const char *
type_name(ColumnType type) noexcept
{
	return type_names[static_cast<size_t>(type)];
}

Sink
into(Sha256 &sha) noexcept
{
	return {[](void *to, const void *data, size_t size) { static_cast<Sha256 *>(to)->add(data, size); }, &sha};
}

Encoder::Encoder(Sink sink, const Form &form) noexcept : sink_(sink), missing_(form.count + 1)
{
	bytes(form.tag, strlen(form.tag));
	number(static_cast<uint64_t>(form.count), length_size);
}

void
Encoder::flush() noexcept
{
	if (used_ > 0)
		sink_.put(sink_.to, buffer_, used_);
	used_ = 0;
}

void
Encoder::append(const void *data, size_t size) noexcept
{
	if (size > sizeof(buffer_) - used_)
		flush();
	if (size > sizeof(buffer_))
	{
		sink_.put(sink_.to, data, size);
		return;
	}
	// memcpy from a null pointer is undefined, also for no bytes.
	if (size > 0)
		memcpy(buffer_ + used_, data, size);
	used_ += size;
}

void
Encoder::number(uint64_t value, int size) noexcept
{
	unsigned char bytes[sizeof(value)];

	for (int i = size; i-- > 0; value >>= 8)
		bytes[i] = static_cast<unsigned char>(value);
	append(bytes, static_cast<size_t>(size));
}

void
Encoder::begin(int32_t length) noexcept
{
	missing_--;
	number(static_cast<uint32_t>(length), length_size);
}

void
Encoder::null() noexcept
{
	begin(-1);
}

void
Encoder::bytes(const void *data, size_t size) noexcept
{
	begin(static_cast<int32_t>(size));
	append(data, size);
}

void
Encoder::bigint(int64_t value) noexcept
{
	begin(sizeof(value));
	number(static_cast<uint64_t>(value), sizeof(value));
}

bool
Encoder::finish() noexcept
{
	flush();
	return missing_ == 0;
}

bool
part_hash(Sha256 &sha, const SealedPart &part, Hash *leaf) noexcept
{
	Encoder row(into(sha.start().add(&leaf_prefix, sizeof(leaf_prefix))), part_form);

	row.bytes(part.table.data(), part.table.size());
	row.bytes(part.partition.data(), part.partition.size());
	row.bigint(part.rows);
	row.bytes(part.root.bytes, sizeof(part.root.bytes));
	return row.finish() && sha.stop(leaf);
}

bool
seal_hash(Sha256 &sha, const SealedWindow &seal, Hash *hash) noexcept
{
	Encoder row(into(sha.start().add(&seal_prefix, sizeof(seal_prefix))), seal_form);

	row.bigint(seal.seal_no);
	row.bigint(seal.from);
	row.bigint(seal.to);
	row.bigint(seal.messages);
	row.bigint(seal.attempts);
	row.bigint(seal.events);
	row.bytes(seal.root.bytes, sizeof(seal.root.bytes));
	if (seal.previous == nullptr)
		row.null();
	else
		row.bytes(seal.previous->bytes, sizeof(seal.previous->bytes));
	if (seal.key_id == nullptr)
		row.null();
	else
		row.bytes(seal.key_id, strlen(seal.key_id));
	return row.finish() && sha.stop(hash);
}

} // namespace outbox::core
