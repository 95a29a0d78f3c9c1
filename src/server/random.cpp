// See random.h.

#include "server/random.h"

namespace outbox {

namespace {

unsigned char drawn[1024];
size_t used = sizeof(drawn);

void
draw_bytes(void *bytes, size_t size)
{
	if (size > sizeof(drawn) - used)
	{
		if (!pg_strong_random(drawn, sizeof(drawn)))
			ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random bytes")));
		used = 0;
	}
	memcpy(bytes, drawn + used, size);
	// Tokens that were handed out leave no trace in our memory.
	explicit_bzero(drawn + used, size);
	used += size;
}

} // namespace

uint64
random_bits()
{
	uint64 bits;

	draw_bytes(&bits, sizeof(bits));
	return bits;
}

core::Uuid
random_token()
{
	core::Uuid token;

	draw_bytes(token.bytes, sizeof(token.bytes));
	// RFC 9562, version 4
	token.bytes[6] = static_cast<unsigned char>((token.bytes[6] & 0x0f) | 0x40);
	token.bytes[8] = static_cast<unsigned char>((token.bytes[8] & 0x3f) | 0x80);
	return token;
}

} // namespace outbox
