// What is hashed when a key is remembered or numbered.
//
// Guarantee: two different (kind, parts) never give the same bytes: every part
// is preceded by its length, and the kind comes first. The digest of these
// bytes stands for the key, so that a long key costs no more than a short one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outbox::core {

enum class KeyKind : unsigned char {
	idempotency = 'i', // queue, aggregate_id or empty, idempotency_key
	event = 'e',       // queue, event_id (16 bytes)
	partition = 'p'    // queue, partition_key
};

struct Part {
	const char *data;
	size_t size;
};

// The number of bytes that write_frame needs.
size_t frame_size(const Part *parts, int count) noexcept;

// kind, then for each part 8 bytes of length (big-endian) and its bytes.
void write_frame(KeyKind kind, const Part *parts, int count, unsigned char *out) noexcept;

} // namespace outbox::core
