// Erasing a subject: its key is destroyed, and a certificate stays.
#pragma once

#include "privacy/subject.h"

namespace outbox {

struct Certificate {
	core::Uuid id;
	SubjectHash subject;
	bool has_sid; // of the key that was destroyed
	core::Uuid sid;
	const text *reason;
	const text *requested_by;
	const text *erased_by;
	TimestampTz at;
	int64 messages;
	bool has_seal;
	int64 seal_no;
};

// Fills id, sid, at, messages and the seal, and writes the certificate, also if there was no key.
void erase(Call *call, Certificate *certificate);
// One that was written in another time of this database: destroys its key, if that is there again, and writes it unless
// it is there. True if there was a key.
bool reapply(Call *call, const Certificate *certificate);

} // namespace outbox
