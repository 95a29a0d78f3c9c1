// SHA-256 of a framed key (core/key_frames.h), by OpenSSL.
#pragma once

#include "core/key_frames.h"
#include "core/sha256.h"
#include "server/pg.h"

namespace outbox {

using Digest = core::Hash;

Digest digest_of(core::KeyKind kind, const core::Part *parts, int count);

inline int
compare(const Digest &a, const Digest &b)
{
	return memcmp(a.bytes, b.bytes, sizeof(a.bytes));
}

inline uint64
leading_bits(const Digest &digest)
{
	uint64 bits = 0;

	for (size_t i = 0; i < sizeof(bits); i++)
		bits = bits << 8 | digest.bytes[i];
	return bits;
}

inline core::Part
part_of(const text *value)
{
	if (value == nullptr)
		return {"", 0};
	return {VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)};
}

Datum digest_datum(const Digest &digest);

} // namespace outbox
