// Times as text.
//
// Guarantee: has_utc_offset() is true only of texts that mean the same moment in every
// session's time zone. Not of all of them: a name of a zone, for instance, says so too.
#pragma once

namespace outbox::core {

// ISO 8601 with an offset: 2030-01-31T12:00Z, 2030-01-31 12:00:00.5+01:00, ...+0100, ...+01.
bool has_utc_offset(const char *text);

} // namespace outbox::core
