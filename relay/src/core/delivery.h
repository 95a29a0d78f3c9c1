// A message on its way to a sink: addressed, its body and headers made.
#pragma once

#include "core/message.h"

#include <string>
#include <utility>
#include <vector>

namespace relay {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Destination {
	std::string topic;    // Kafka's topic, AMQP's routing key, NATS' subject, HTTP's URL, a function of PostgreSQL
	std::string exchange; // AMQP only
	std::string method;   // HTTP only
	Text key;             // Kafka's key
};

struct Delivery {
	uint64_t ticket = 0; // names it in the answer; unique within a sink
	Message message;     // its payload has moved into the body; which of the two is there, empty, tells what it was
	Destination to;
	std::string body, content_type;
	Headers headers; // complete, without content-type; with traceparent if there is one
};

} // namespace relay
