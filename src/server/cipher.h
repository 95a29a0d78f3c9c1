// Encryption, keyed hashes and base64, by OpenSSL.
//
// Guarantees: AES-256-GCM, HMAC-SHA-256, the server's strong random source; nothing is home-made. What OpenSSL has
// computed of a key is wiped before a function returns.
#pragma once

#include "server/pg.h"

namespace outbox {

constexpr size_t key_bytes = 32;
constexpr size_t nonce_bytes = 12;
constexpr size_t tag_bytes = 16;
constexpr size_t mac_bytes = 32;
// What stands around a sealed text: the nonce before it, the tag behind it.
constexpr size_t sealed_extra = nonce_bytes + tag_bytes;

struct Bytes {
	const unsigned char *data;
	size_t size;
};

// Under a nonce that is drawn for it. sealed has room for sealed_extra more bytes than the plain text.
void seal(const unsigned char *key, Bytes bound_to, Bytes plain, unsigned char *sealed);
// False: another key, other bytes, or bound to something else. plain has room for sealed_extra bytes less.
bool unseal(const unsigned char *key, Bytes bound_to, Bytes sealed, unsigned char *plain);

void keyed_hash(const unsigned char *key, Bytes data, unsigned char *mac);
void draw_key(unsigned char *key);

// In palloc'ed memory, without line breaks.
char *to_base64(Bytes bytes, int *size);
// Returns the number of bytes, or -1. bytes has room for 3 for each 4 characters that were begun.
int from_base64(const char *chars, int size, unsigned char *bytes);

void wipe(void *memory, size_t size);

} // namespace outbox
