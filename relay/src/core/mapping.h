// What map() (route.h) is put together from.
#pragma once

#include "core/route.h"

namespace relay::mapping {

struct Failure { // thrown within the mapping, caught by map()
	Refusal refusal;
};

[[noreturn]] void refuse(std::string_view code, std::string text);

// Takes the payload as it is stored, whichever of the two it is, and leaves an empty one; refused if there is none.
std::string payload_of(Message &message);
std::string content_type_of(const Message &message);
// Whether a value of this type can stand in a JSON document as it is.
bool is_json(std::string_view content_type);

// Headers of CloudEvents' binary mode; body and content type are the payload's.
Headers cloudevents_headers(const Route &route, Binding binding, const Delivery &delivery);
// Under these names stand attributes, whether this message has them or not.
std::vector<std::string> cloudevents_names(Binding binding);
// The body of the structured mode.
std::string cloudevents_body(const Route &route, Delivery &delivery);

std::string debezium_topic(const Message &message);
Text debezium_key(const Message &message);
Headers debezium_headers(const Message &message);

// The names that are the relay's, also those that a message has no value for.
std::vector<std::string> reserved_names(const Route &route, Binding binding);

// Whether the protocol can carry it; a Failure if not.
void check_header(Binding binding, const std::string &name, const std::string &value);
bool same_name(Binding binding, std::string_view left, std::string_view right);
// Headers by which a protocol is controlled, which a message may not set.
bool controls(Binding binding, std::string_view name);

} // namespace relay::mapping
