// The codes of the Kafka sink: those of librdkafka, with its own names.
//
// KAFKA_ + the name as rd_kafka_err2name() has it. One underscore after KAFKA is an error that a broker sent
// (KAFKA_MSG_SIZE_TOO_LARGE), two are an error within librdkafka (KAFKA__MSG_TIMED_OUT).
#pragma once

#include "core/taxonomy.h"

#include <librdkafka/rdkafka.h>

#include <span>
#include <string>

namespace relay {

std::span<const Code> kafka_codes();
std::string kafka_code(rd_kafka_resp_err_t error);
Fault kafka_fault(rd_kafka_resp_err_t error); // as the table has it, without the configuration's changes

} // namespace relay
