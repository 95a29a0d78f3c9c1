// Times as text.
//
// Guarantee: has_utc_offset() is true only for texts that mean the same time in every time zone. It
// is not true for all of these, for example not for the name of a zone.
#pragma once

namespace outbox::core {

// ISO 8601 with an offset: 2030-01-31T12:00Z, 2030-01-31 12:00:00.5+01:00, ...+0100, ...+01.
bool has_utc_offset(const char *text);

} // namespace outbox::core
