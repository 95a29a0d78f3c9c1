// The master keys, which wrap all other keys. They are in no table.
//
// Guarantees: a key that was read lies in secret memory (server/secret_memory.h). It is read again before its next use
// after its file was changed or replaced, after a setting was changed and, of a command, after each reload of the
// configuration. Errors tell a key by its id, a hash of it, and never by its bytes.
//
// Shape: the source may hold several keys, one a line. The first one is the current one, which wraps what is new; the
// others only open what they have wrapped, until rotate_master_key() has wrapped it again.
#pragma once

#include "server/cipher.h"

namespace outbox {

constexpr int key_id_size = 16;

struct MasterKey {
	unsigned char key[key_bytes];
	char id[key_id_size + 1];
};

// 55000 with a HINT if there is none.
const MasterKey *current_master_key();
// nullptr: the source has no key of this id. 55000 if it has none at all.
const MasterKey *master_key_of(const char *id);
// Why there is none, as the error says it; nullptr: there is one.
const char *problem_of_master_key();

// nonce, ciphertext, tag
constexpr size_t wrapped_bytes = key_bytes + sealed_extra;
// Under the current master key. bound_to: what the key is for.
bytea *wrapped_key(const unsigned char *key, Bytes bound_to);
// 22023 AUTHENTICATION_FAILED if no master key of this id is at hand, or what was wrapped was changed.
void unwrap_key(const bytea *wrapped, const char *id, Bytes bound_to, unsigned char *key);

// A place in secret memory for one key, by its number.
enum class Secret { hash_key, subject_key, passing };
unsigned char *secret_place(Secret which);
void wipe_places();

} // namespace outbox
