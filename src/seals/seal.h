// A seal: its row in outbox.seals, its hash, and its parts.
//
// Guarantee: what is read here may be forged. A seal whose parts have not their form is read without them, and
// says so.
#pragma once

#include "seals/leaves.h"
#include "server/ed25519.h"

namespace outbox {

struct SealPart {
	int table; // of core::sealed_forms
	const char *partition;
	int64 rows;
	core::Hash root;
};

struct Seal {
	int64 seal_no;
	TimestampTz from_at;
	TimestampTz to_at;
	int64 rows[core::sealed_tables]; // messages, attempts, events
	core::Hash root;
	bool has_previous;
	core::Hash previous;
	core::Hash hash;
	bool is_signed; // key_id names the key, which the hash covers
	bool has_signature;
	Signature signature;
	bool has_form; // of the hashes and of parts
	SealPart *parts;
	int part_count;
	Jsonb *parts_json;
};

// The columns of outbox.seals, in their order.
constexpr int seal_columns = 12;
void read_seal(HeapTuple tuple, TupleDesc desc, Seal *seal);
// For a row of the table or of its type.
void seal_values(const Seal *seal, Datum *values, bool *nulls);

// What follows from the rest: the root from the parts, the counts from the parts, the hash from the rest.
core::Hash root_of_parts(const Seal *seal);
// Adds them to a tree, and returns its root.
core::Hash add_parts(core::MerkleTree *tree, const Seal *seal);
void count_parts(const Seal *seal, int64 *rows);
core::Hash computed_hash(const Seal *seal);
// Fills parts_json.
void write_parts(Seal *seal);

// Calls visit(seal) for each seal of the range, in their order; memory of a seal is freed after its visit.
using VisitSeal = void (*)(void *argument, const Seal *seal);
void scan_seals(int64 from_no, int64 to_no, VisitSeal visit, void *argument);
template <typename Visit>
void
each_seal(int64 from_no, int64 to_no, Visit visit)
{
	scan_seals(
		from_no, to_no, [](void *argument, const Seal *seal) { (*static_cast<Visit *>(argument))(seal); }, &visit);
}
// In the current context; false: there is none.
bool last_seal(Seal *seal);
bool find_seal(int64 seal_no, Seal *seal);
// The seal whose window has that time.
bool seal_of_time(TimestampTz at, Seal *seal);

} // namespace outbox
