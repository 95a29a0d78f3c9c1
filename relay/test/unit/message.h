// A message for tests, all of whose fields are there.
#pragma once

#include "core/message.h"

namespace relay::test {

inline Message
message()
{
	Message result;

	result.outbox_id = "01900000-0000-7000-8000-000000000001";
	result.queue = "orders";
	result.event_id = "4d47e190-0402-4048-bc2c-89dd54343cdc";
	result.event_type = "Order_Placed";
	result.aggregate_type = "Order";
	result.aggregate_id = "17";
	result.partition_key = "customer-4";
	result.idempotency_key = "key";
	result.sequence_id = 9;
	result.priority = 3;
	result.attempt = 2;
	result.payload = R"({"b": 1.10, "a": [1e400, "\u00e9"]})";
	result.created_at =
		std::chrono::sys_days{std::chrono::year{2030} / 1 / 31} + std::chrono::hours{12} + std::chrono::microseconds{1};
	return result;
}

} // namespace relay::test
