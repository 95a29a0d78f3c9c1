// Text in UTF-8, whatever the encoding of the database is: for what is hashed or encrypted, and outlives a dump.
//
// Guarantee: every text has a form, and no two of one database have the same. What cannot be converted, because some
// character has no UTF-8 form, is the byte ff, with which no UTF-8 begins, and the bytes as they are. In databases in
// SQL_ASCII or MULE_INTERNAL, from which no conversion to UTF-8 exists, the bytes stay as they are.
#pragma once

#include "server/pg.h"

namespace outbox {

struct Utf8 {
	const char *bytes; // not zero-terminated
	int size;
};
// Of bytes in the encoding of the database; in palloc'ed memory, or the bytes themselves.
Utf8 to_utf8(const char *bytes, int size);
// Back again, zero-terminated; nullptr: the encoding of the database lacks a character.
char *from_utf8(const char *bytes, int size);

// How many bytes of a text in the encoding of the database to keep, at most the limit, so that it ends between two
// characters. SQL_ASCII tells of no characters: there those of UTF-8 stay whole, for clients that read UTF-8.
int clipped_length(const char *text, int size, int limit);

} // namespace outbox
