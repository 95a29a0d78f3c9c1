// The preset "debezium": what Debezium's outbox event router emits in its default configuration, so that consumers
// that were written for it need no change.
//
// From its documentation (Outbox Event Router, "Basic outbox table" and "Configuration options"):
//
//	topic	route.topic.replacement = outbox.event.${routedByValue}, with route.by.field = aggregatetype:
//			outbox.event. and the aggregate type
//	key		table.field.event.key = aggregateid: the aggregate id
//	header	table.field.event.id = id: "stored in the emitted event's headers under the id key"
//	value	table.field.event.payload = payload: "the Kafka message value is solely comprised of the payload value";
//			as a JSON document, which there takes table.expand.json.payload = true
//	more	table.fields.additional.placement is empty: no other header, no envelope. Here the message's own headers
//			are passed on beside id, since the producer asked for them
#include "core/mapping.h"

namespace relay::mapping {

std::string
debezium_topic(const Message &message)
{
	if (!message.aggregate_type || message.aggregate_type->empty())
		refuse("ILLEGAL_DESTINATION", "the topic of the preset debezium needs an aggregate_type");
	return "outbox.event." + *message.aggregate_type;
}

Text
debezium_key(const Message &message)
{
	return message.aggregate_id;
}

Headers
debezium_headers(const Message &message)
{
	return {{"id", message.event_id}};
}

} // namespace relay::mapping
