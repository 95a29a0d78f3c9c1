// Converts and compares ids, texts and times.
#pragma once

#include "core/ids.h"
#include "server/pg.h"

namespace outbox {

constexpr int64 unix_epoch_offset_us = (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;

inline int64
unix_ms(TimestampTz time)
{
	return (time + unix_epoch_offset_us) / 1000;
}

inline core::Uuid
to_uuid(Datum datum)
{
	core::Uuid id;

	memcpy(id.bytes, DatumGetUUIDP(datum)->data, UUID_LEN);
	return id;
}

inline Datum
from_uuid(const core::Uuid &id)
{
	pg_uuid_t *copy = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t)));

	memcpy(copy->data, id.bytes, UUID_LEN);
	return UUIDPGetDatum(copy);
}

// Without a copy: the id must stay in memory.
inline Datum
in_place(const core::Uuid &id)
{
	return UUIDPGetDatum(reinterpret_cast<const pg_uuid_t *>(&id));
}

inline Datum
bytea_datum(const void *bytes, Size size)
{
	bytea *copy = static_cast<bytea *>(palloc(VARHDRSZ + size));

	SET_VARSIZE(copy, VARHDRSZ + size);
	memcpy(VARDATA(copy), bytes, size);
	return PointerGetDatum(copy);
}

// A text, a jsonb and so on, in another memory.
template <typename Value>
Value *
copied_to(MemoryContext context, const Value *value)
{
	void *copy = MemoryContextAlloc(context, VARSIZE_ANY(value));

	return static_cast<Value *>(memcpy(copy, value, VARSIZE_ANY(value)));
}

// 2 digits a byte, and a zero.
inline void
to_hex(const unsigned char *bytes, Size size, char *hex)
{
	static const char digits[] = "0123456789abcdef";

	for (Size i = 0; i < size; i++)
	{
		hex[2 * i] = digits[bytes[i] >> 4];
		hex[2 * i + 1] = digits[bytes[i] & 15];
	}
	hex[2 * size] = '\0';
}

inline const char *
hex_of(const unsigned char *bytes, Size size)
{
	char *hex = static_cast<char *>(palloc(2 * size + 1));

	to_hex(bytes, size, hex);
	return hex;
}

inline int
compare(const core::Uuid &a, const core::Uuid &b)
{
	return memcmp(a.bytes, b.bytes, UUID_LEN);
}

inline bool
equal(const core::Uuid &a, const core::Uuid &b)
{
	return compare(a, b) == 0;
}

inline bool
equal(const text *a, const text *b)
{
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
		   memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

inline const char *
shown(const core::Uuid &id)
{
	return DatumGetCString(DirectFunctionCall1(uuid_out, from_uuid(id)));
}

} // namespace outbox
