// Guarantee of key_frames.h: a frame can be read back into (kind, parts) in only one
// way, for any bytes and any number of parts. A part of size 0 may have no data.
#include "key_frames.h"

#include <cstring>

namespace outbox::core {

namespace {

constexpr size_t length_size = 8;

unsigned char *
write_length(unsigned char *out, uint64_t length) noexcept
{
	for (size_t i = length_size; i-- > 0; length >>= 8)
		out[i] = static_cast<unsigned char>(length);
	return out + length_size;
}

unsigned char *
write_part(unsigned char *out, const Part &part) noexcept
{
	out = write_length(out, part.size);
	// memcpy from a null pointer is undefined, also for no bytes.
	if (part.size > 0)
		memcpy(out, part.data, part.size);
	return out + part.size;
}

} // namespace

size_t
frame_size(const Part *parts, int count) noexcept
{
	size_t size = sizeof(KeyKind);

	for (int i = 0; i < count; i++)
		size += length_size + parts[i].size;
	return size;
}

void
write_frame(KeyKind kind, const Part *parts, int count, unsigned char *out) noexcept
{
	*out++ = static_cast<unsigned char>(kind);
	for (int i = 0; i < count; i++)
		out = write_part(out, parts[i]);
}

} // namespace outbox::core
