// A protected value: {"$enc": {"v": 1, "sid": ..., "n": ..., "c": ...}}.
//
// Guarantees: its text is bound to the subject's key, and to its place: moved elsewhere, or changed in any byte, it
// does not open. What a producer has made up opens with no key.
//
// Shape: sid names the key. n is the nonce and c the ciphertext with its tag, in base64. A nonce is 96 random bits
// under a key that is one subject's: the chance that one of 2^32 repeats is 2^-33.
#pragma once

#include "privacy/subject.h"
#include "server/json_walk.h"

namespace outbox {

// What every protected value contains, and with quotes around it only those.
constexpr char envelope_key[] = "$enc";

struct Envelope {
	bool is_whole; // false: something is missing or of another kind
	core::Uuid sid;
	Bytes sealed; // nonce, ciphertext, tag
};

inline bool
may_have_envelopes(const Jsonb *json)
{
	return may_contain(json, envelope_key, sizeof(envelope_key) - 1);
}

// False: the value is none, not even a damaged one.
bool read_envelope(const JsonbValue *value, Envelope *envelope);

Jsonb *enclosed(const SubjectKey &key, const JsonPlace *place, JsonbValue *value);
// {"$erased": true, "at": ...}, which stands for a value whose key was destroyed.
Jsonb *erased_mark(TimestampTz at);
// nullptr: it does not open.
Jsonb *opened(const SubjectKey &key, const JsonPlace *place, const Envelope &envelope);

} // namespace outbox
