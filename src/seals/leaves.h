// The rows that are sealed: messages, attempts and events, read partition by partition.
//
// Guarantees: a row is read as its canonical form has it (core/canonical.h), whatever settings, the order of columns
// and the client's encoding are. Only the owner calls these functions, in a READ COMMITTED transaction, between
// SPI_connect and SPI_finish: each scan sees all that is committed when it begins.
#pragma once

#include "core/canonical.h"
#include "core/ids.h"
#include "server/pg.h"

namespace outbox {

// schema.name, both quoted, and the end.
constexpr int longest_part_name = 4 * NAMEDATALEN + 4;

// A partition, or what stands in its place.
struct SealedLeaf {
	int table; // of core::sealed_forms
	Oid oid;
	const char *name; // as seals have it; no two have the same
};

struct SealedRow {
	core::Uuid id;
	int32 attempt_no; // 0 = none
	TimestampTz at;
	core::Hash leaf;
};

// The hash of the session.
core::Sha256 *session_sha();

// As pin_search_path(); and where there is an index on the time of rows, it is used.
int pin_for_seals();

// All partitions in the order of the parts of a seal, locked against DDL until the end of the transaction.
List *sealed_leaves();

// By bytes.
int compare_names(const char *a, const char *b);

// 55000 in a stricter isolation level: what such a transaction sees may be older than the seals.
void require_read_committed(const char *function);

// Calls visit(argument, row) for each row of that time.
using VisitRow = void (*)(void *argument, const SealedRow *row);
void scan_rows(const SealedLeaf *leaf, TimestampTz from, TimestampTz to, VisitRow visit, void *argument);
template <typename Visit>
void
each_row(const SealedLeaf *leaf, TimestampTz from, TimestampTz to, Visit visit)
{
	scan_rows(
		leaf, from, to, [](void *argument, const SealedRow *row) { (*static_cast<Visit *>(argument))(row); }, &visit);
}

// A column as the canonical form has it.
struct SealedValue {
	const void *data; // nullptr = NULL
	int size;
};

// Calls visit(argument, row, values) for each row of one message in the leaf, values as many as its form has columns.
using VisitValues = void (*)(void *argument, const SealedRow *row, const SealedValue *values);
void scan_message(const SealedLeaf *leaf, const core::Uuid &id, VisitValues visit, void *argument);
template <typename Visit>
void
each_of_message(const SealedLeaf *leaf, const core::Uuid &id, Visit visit)
{
	scan_message(
		leaf, id,
		[](void *argument, const SealedRow *row, const SealedValue *values) {
			(*static_cast<Visit *>(argument))(row, values);
		},
		&visit);
}

} // namespace outbox
