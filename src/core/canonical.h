// The canonical form of rows, parts and seals: the bytes that are hashed. docs/seal-format.md has it byte by byte.
//
// Guarantees:
// - Two rows that differ have forms that differ, and a form can be read back in one way only: the tag, which names kind
//   and version, comes first, then the number of columns, then each value after its length.
// - The form depends on the values alone: neither on settings nor on the order of the columns in a table.
// - No memory is allocated, and an Encoder that an error has cut short leaves nothing behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "merkle.h"
#include "sha256.h"

namespace outbox::core {

// How the bytes of a column are to be read.
enum class ColumnType { uuid, text, smallint, integer, bigint, timestamptz, bytea, jsonb, uuids, integers };

const char *type_name(ColumnType type) noexcept;

struct FormColumn {
	const char *name;
	ColumnType type;
};

// A kind of rows, with its columns in their order.
struct Form {
	const char *tag;
	const char *table; // as parts and proofs name it; nullptr: of no table
	const FormColumn *columns;
	int count;
};

extern const Form message_form;
extern const Form attempt_form;
extern const Form event_form;
extern const Form part_form;
extern const Form seal_form;

// In the order of the parts of a seal.
constexpr int sealed_tables = 3;
extern const Form *const sealed_forms[sealed_tables];

// What precedes the form of a seal; merkle.h has the prefixes of leaves and nodes.
constexpr unsigned char seal_prefix = 0x02;

// Where the bytes go: one call for some hundred bytes, or for a long value.
struct Sink {
	void (*put)(void *to, const void *data, size_t size);
	void *to;
};

Sink into(Sha256 &sha) noexcept;

// Writes one row: the tag and the number of columns at once, then a call for each column, then finish().
class Encoder {
public:
	Encoder(Sink sink, const Form &form) noexcept;
	Encoder(const Encoder &) = delete;
	Encoder &operator=(const Encoder &) = delete;

	void null() noexcept;
	// A value in its form; data may be nullptr where size is 0.
	void bytes(const void *data, size_t size) noexcept;
	void bigint(int64_t value) noexcept; // also timestamptz, as microseconds since 2000-01-01 00:00 UTC

	// False: not as many values as the form has columns.
	[[nodiscard]] bool finish() noexcept;

private:
	void flush() noexcept;
	void append(const void *data, size_t size) noexcept;
	void number(uint64_t value, int size) noexcept;
	void begin(int32_t length) noexcept; // a column

	Sink sink_;
	int missing_; // columns
	size_t used_ = 0;
	unsigned char buffer_[512];
};

// The rows of one window in one partition.
struct SealedPart {
	std::string_view table;
	std::string_view partition;
	int64_t rows;
	Hash root;
};

// The leaf that stands for it in the tree of its seal.
[[nodiscard]] bool part_hash(Sha256 &sha, const SealedPart &part, Hash *leaf) noexcept;

struct SealedWindow {
	int64_t seal_no;
	int64_t from; // microseconds, as Encoder::bigint() has them
	int64_t to;
	int64_t messages;
	int64_t attempts;
	int64_t events;
	Hash root;
	const Hash *previous; // nullptr: the first seal
	const char *key_id;   // nullptr: not signed
};

[[nodiscard]] bool seal_hash(Sha256 &sha, const SealedWindow &seal, Hash *hash) noexcept;

} // namespace outbox::core
