// Which sink a message goes to, and under which address.
//
// Guarantees: the first route that matches wins. A template is checked when the configuration is read; what it yields
// for one message is that message's own matter: an error makes this one refused and no other.
#pragma once

#include "core/delivery.h"
#include "core/template.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace relay {

enum class Body { payload, envelope, cloudevents_binary, cloudevents_structured };

// How a protocol spells what CloudEvents and headers need.
enum class Binding { kafka, amqp, nats, http, plain };

struct Match {
	Text queue, event_type, aggregate_type;     // globs: * and ?; nothing = any
	std::map<std::string, std::string> headers; // name and glob of the value
};

struct Route {
	Match match;
	std::string sink;
	Template topic, exchange, method; // empty: the sink's own, or the default (see default_topic)
	std::optional<Template> key;      // else partition_key, else aggregate_id, else none
	Template source;                  // of CloudEvents; empty: outbox/QUEUE
	Body body = Body::payload;
	std::vector<std::pair<std::string, Template>> headers; // more of them; left out where it has no value
	std::optional<int> schema_version;                     // the payload is lifted to it
	bool debezium = false; // names of topic and headers as Debezium's outbox event router has them
};

struct Refusal {
	std::string code, text; // NO_ROUTE_CONFIGURED, ILLEGAL_DESTINATION, ILLEGAL_HEADER ...
};

class Routes {
public:
	explicit Routes(std::vector<Route> routes);

	// nullptr: no route.
	[[nodiscard]] const Route *of(const Message &message) const;
	// The sinks that messages of this queue may go to.
	[[nodiscard]] std::vector<std::string> sinks_of(std::string_view queue) const;
	[[nodiscard]] const std::vector<Route> &all() const { return routes; }

private:
	std::vector<Route> routes;
};

// routing_key, else events. + event_type in lower case with . for _
std::string default_topic(const Message &message);

// Addresses the message of a delivery and makes its body and headers, or says why not.
std::optional<Refusal> map(const Route &route, Binding binding, Delivery &delivery);

} // namespace relay
