// Signatures by Ed25519, with the key in a file, by OpenSSL.
//
// Guarantees: the key is in memory only while it is used, and is cleansed after it. No error tells anything of what the
// file contains. A file that others may read is refused, as the server refuses its ssl_key_file.
#pragma once

#include "server/pg.h"

namespace outbox {

struct Signature {
	unsigned char bytes[64];
	char key_id[17]; // the first 16 hex digits of SHA-256 of the public key
};

// Signs with the private key in the file (PEM). 58030, 42501 or 55000 if that cannot be used.
Signature signed_by(const char *file, const unsigned char *data, int size);

// The public key to the private one in the file.
struct PublicKey {
	unsigned char bytes[32];
	char key_id[17];
};
PublicKey public_key_in(const char *file);
bool is_signature_of(const PublicKey *key, const Signature *signature, const unsigned char *data, int size);

} // namespace outbox
