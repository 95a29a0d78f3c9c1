// The codes of the sink rabbitmq, and how they are made of what AMQP and rabbitmq-c say.
#pragma once

#include "core/taxonomy.h"

#include <span>
#include <string>

namespace relay::rabbitmq {

std::span<const Code> codes();

// Of a reply code of AMQP (404: AMQP_NOT_FOUND) or a status of rabbitmq-c (-13: AMQP_STATUS_TIMEOUT). One that the
// table does not have is spelled with its number, so that it counts as unknown.
std::string code_of(int number);

} // namespace relay::rabbitmq
