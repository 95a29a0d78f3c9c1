// A proof of a message (outbox.prove) against what the auditor brings along.
//
// Guarantees, of what check_proof() reports as proven:
// - the row has exactly these columns with these values, and lay in this place of this partition when the seal was
// made;
// - it belongs to the message that the proof names, and its time lies in the window of the seal;
// - the seal is one that the anchors stand for.
// What it cannot tell: whether rows that were never sealed, or events, were left out; whether what was recorded is
// true.
#pragma once

#include <ostream>

#include "json.h"
#include "seal.h"

namespace outbox::verify {

// Prints what was proven, then what was not. True: all that the proof shows is proven. The seals of trust, if any, come
// from an export, and link those of the proof with the anchors. Refused: something is not as the proof says.
bool check_proof(const Json &proof, Trust trust, Anchors &anchors, std::ostream &out);

} // namespace outbox::verify
