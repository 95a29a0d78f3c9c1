// See encoding.h.

#include "server/encoding.h"

namespace outbox {

namespace {

constexpr char unconverted = '\xff';

bool
stays_as_it_is(int encoding)
{
	return encoding == PG_UTF8 || encoding == PG_SQL_ASCII || encoding == PG_MULE_INTERNAL;
}

// Zero-terminated; nullptr: a character has no other form.
char *
converted(const char *bytes, int size, int from, int to)
{
	int space = static_cast<int>(Min(static_cast<int64>(size) * MAX_CONVERSION_GROWTH + 1, PG_INT32_MAX));
	Oid proc = FindDefaultConversionProc(from, to);
	unsigned char *result;

	if (!OidIsValid(proc))
		return nullptr;
	result = static_cast<unsigned char *>(MemoryContextAllocHuge(CurrentMemoryContext, static_cast<Size>(space)));
	if (pg_do_encoding_conversion_buf(proc, from, to, reinterpret_cast<unsigned char *>(const_cast<char *>(bytes)),
									  size, result, space, true) == size)
		return reinterpret_cast<char *>(result);
	pfree(result);
	return nullptr;
}

Utf8
marked(const char *bytes, int size)
{
	char *result = static_cast<char *>(palloc(static_cast<Size>(size) + 1));

	result[0] = unconverted;
	memcpy(result + 1, bytes, static_cast<Size>(size));
	return {result, size + 1};
}

// As they are, if they are text of the database.
char *
terminated(const char *bytes, int size)
{
	if (!pg_verify_mbstr(GetDatabaseEncoding(), bytes, size, true))
		return nullptr;
	return pnstrdup(bytes, static_cast<Size>(size));
}

} // namespace

Utf8
to_utf8(const char *bytes, int size)
{
	int encoding = GetDatabaseEncoding();
	const char *result;

	if (stays_as_it_is(encoding))
		return {bytes, size};
	result = converted(bytes, size, encoding, PG_UTF8);
	return result != nullptr ? Utf8{result, static_cast<int>(strlen(result))} : marked(bytes, size);
}

char *
from_utf8(const char *bytes, int size)
{
	int encoding = GetDatabaseEncoding();

	if (size > 0 && bytes[0] == unconverted)
		return terminated(bytes + 1, size - 1);
	if (stays_as_it_is(encoding))
		return terminated(bytes, size);
	return converted(bytes, size, PG_UTF8, encoding);
}

int
clipped_length(const char *text, int size, int limit)
{
	int encoding = GetDatabaseEncoding();

	return pg_encoding_mbcliplen(encoding == PG_SQL_ASCII ? PG_UTF8 : encoding, text, size, limit);
}

} // namespace outbox
