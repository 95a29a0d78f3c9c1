// Signatures by Ed25519, with the key in a file, by OpenSSL.
//
// Guarantees: the key is in memory only while it is used, and is cleansed after it. No error tells anything of what the
// file contains. A file that others may read is refused, as the server refuses its ssl_key_file.
//
// Shape: the file has the private key that signs, and public keys of earlier ones, all in PEM.
#pragma once

#include "server/pg.h"

namespace outbox {

struct Signature {
	unsigned char bytes[64];
	char key_id[17]; // the first 16 hex digits of SHA-256 of the public key
};

// Signs with the private key in the file. 58030, 42501 or 55000 if that cannot be used.
Signature signed_by(const char *file, const unsigned char *data, int size);

struct PublicKey {
	unsigned char bytes[32];
	char key_id[17];
};
constexpr int most_public_keys = 64;
// The public key to the private one in the file, then the others that are there.
struct PublicKeys {
	PublicKey keys[most_public_keys];
	int count;
};
PublicKeys public_keys_in(const char *file);
// nullptr: it is not among them.
const PublicKey *find_key(const PublicKeys *keys, const char *key_id);
bool is_signature_of(const PublicKey *key, const Signature *signature, const unsigned char *data, int size);

} // namespace outbox
