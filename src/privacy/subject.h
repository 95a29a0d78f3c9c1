// The keys of subjects: persons, mostly. Each has one key, which encrypts the protected fields about that person.
//
// Guarantees: no table has the subject's name, only its keyed hash. Of any number of sessions that need the key of a
// new subject, one makes it, and the others wait for the end of its transaction and use it, in every isolation level.
// A transaction that encrypts holds the key against erasure until its end: an erasure waits, and counts what was
// written. A key that is gone does not come back: the subject's next field gets another one, with another sid.
//
// Shape: the hash must outlive the master key, so it is made with a key of its own, which the master key wraps like the
// others. Opening that key shows that the master key is the right one, so every function does this before it writes. A
// row that is wrapped again meanwhile can be used as it was: both master keys are at hand, and no session waits for the
// rotation.
#pragma once

#include "privacy/master_key.h"
#include "rows/call.h"

namespace outbox {

struct SubjectHash {
	unsigned char bytes[mac_bytes];
};

// Not empty, and at most 1024 bytes: 22023.
void check_subject(const text *subject);
// Makes the key of hashes if there is none yet: `makes`, else 55000.
enum class IfNone { make, refuse };
SubjectHash hash_of_subject(Call *call, const text *subject, IfNone if_none);
// The same, of many: the key is opened once, and stays in secret memory until wipe_places().
struct HashKey {
	const unsigned char *key; // nullptr: not yet
};
HashKey open_hash_key(Call *call, IfNone if_none);
SubjectHash hash_of_subject(const HashKey &key, const text *subject);
// Shows that a database with the same key of hashes wrote the certificate (its text). mac has room for mac_bytes.
void mac_of_erasure(Call *call, const text *certificate, unsigned char *mac);
// A hash of the key of hashes: databases that can exchange erasures have the same.
text *name_of_hash_key(Call *call);

// In secret memory, until the next one.
struct SubjectKey {
	core::Uuid sid;
	const unsigned char *key;
};
// Makes it if there is none.
SubjectKey key_to_protect(Call *call, const SubjectHash &subject);
// key is nullptr if it was erased: then at *erased_at, or never known here: DT_NOEND.
SubjectKey key_to_reveal(Call *call, const core::Uuid &sid, TimestampTz *erased_at);
bool is_known_subject(Call *call, const core::Uuid &sid);

// Until the end of the transaction. Waits for those that encrypt for this subject.
void lock_against_use(const SubjectHash &subject);
// The sid of the key that was destroyed. False: there is none, or not that of `only`.
bool destroy_key(Call *call, const SubjectHash &subject, const core::Uuid *only, core::Uuid *sid);

// Erasures are complete where the database lives now.
void note_lineage(Call *call);

Datum hash_datum(const SubjectHash &subject);

// What a wrapped key is for.
struct Purpose {
	unsigned char bytes[64];
	size_t size;
	operator Bytes() const { return {bytes, size}; }
};
Purpose purpose_of_hash_key();
Purpose purpose_of_subject_key(const SubjectHash &subject, const core::Uuid &sid);

} // namespace outbox
