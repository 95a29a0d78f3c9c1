// The codes of the sink nats, and how they are made of what NATS and JetStream say.
#pragma once

#include "core/taxonomy.h"

#include <span>
#include <string>

#include <nats/nats.h>

namespace relay::nats {

std::span<const Code> codes();

// NATS_NO_RESPONDERS ...
std::string code_of(natsStatus status);
// JSStreamStoreFailedErr ...; one that the table does not have is spelled with its number, so that it counts as
// unknown.
std::string code_of_error(int error);

} // namespace relay::nats
