// Proofs: of a message, and of the chain, for those who have no access to the database.
//
// Guarantee: what a proof says follows from it and one hash of a seal alone (docs/seal-format.md). One that would not
// hold is not given.
#pragma once

#include "seals/seal.h"

namespace outbox {

struct Call;

// The message, its attempts, their paths and seals. In a READ COMMITTED transaction, connected to SPI. 22023: there is
// no such message; XX001: what was sealed was changed.
Jsonb *proof_of(const Call *call, const core::Uuid &id);
// A seal as in exports and proofs.
Jsonb *exported(const Seal *seal);

} // namespace outbox
