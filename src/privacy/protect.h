// Protecting fields of a JSON, and revealing them.
//
// Guarantees: revealing what was protected gives the same JSON, whatever a producer has put into it: a value that only
// looks protected is encrypted like any other. What is protected already, for this subject and at this place, stays as
// it is. No field is missed because the payload has another form than its path: that is refused.
#pragma once

#include "privacy/envelope.h"
#include "privacy/fields.h"

namespace outbox {

// Whether the caller is a member of outbox_privacy.
bool may_reveal(const Call *call);

// The keys of one subject, for one payload or many.
struct Protector {
	Call *call;
	const text *subject;
	const SubjectHash *hash; // of the subject, if it was made
	const Field *fields;
	int count;
	bool is_replay; // what was protected before, for whatever subject, stays as it is
	SubjectKey key; // no bytes until one is needed
};

// Whether there is any that is to be protected.
bool has_fields(const Protector *protector, Jsonb *payload);
// Makes the subject's key if a field is there.
Jsonb *protected_fields(Protector *protector, Jsonb *payload);

// What does not open: an error, or it stays as it is.
enum class IfClosed { raise, leave };
// only: the sids of those that are revealed; nullptr = all. Others stay as they are.
struct SidList {
	const core::Uuid *sids;
	int count;
};
Jsonb *revealed_fields(Call *call, Jsonb *payload, IfClosed if_closed, const SidList *only = nullptr);

// The sids in it, each once.
SidList sids_in(Jsonb *payload);

} // namespace outbox
