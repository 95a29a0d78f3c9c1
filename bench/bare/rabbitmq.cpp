// rabbitmq-c alone: one channel, persistent messages, at most 1,000 of them unconfirmed.
//
//	rabbitmq PORT USER PASSWORD QUEUE COUNT
#include "bare.h"

#include <iterator>
#include <set>

#include <amqp.h>
#include <amqp_tcp_socket.h>

namespace {

void
must(amqp_rpc_reply_t reply, const char *what)
{
	if (reply.reply_type != AMQP_RESPONSE_NORMAL)
		die(what, "not as expected");
}

// Takes from `open` what the next frame confirms.
void
take_confirmed(amqp_connection_state_t connection, std::set<uint64_t> &open)
{
	amqp_frame_t frame;

	amqp_maybe_release_buffers(connection);
	do
	{
		if (amqp_simple_wait_frame(connection, &frame) != AMQP_STATUS_OK)
			die("a frame", "none");
	} while (frame.frame_type != AMQP_FRAME_METHOD || frame.payload.method.id != AMQP_BASIC_ACK_METHOD);

	const auto *ack = static_cast<amqp_basic_ack_t *>(frame.payload.method.decoded);
	if (ack->multiple)
		open.erase(open.begin(), open.upper_bound(ack->delivery_tag));
	else
		open.erase(ack->delivery_tag);
}

} // namespace

int
main(int, char **arguments)
{
	constexpr uint64_t window = 1000;
	const auto count = static_cast<uint64_t>(atol(arguments[5]));
	amqp_connection_state_t connection = amqp_new_connection();
	amqp_socket_t *socket = amqp_tcp_socket_new(connection);

	if (amqp_socket_open(socket, "127.0.0.1", atoi(arguments[1])) != AMQP_STATUS_OK)
		die("connect", arguments[1]);
	must(amqp_login(connection, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, arguments[2], arguments[3]), "login");
	amqp_channel_open(connection, 1);
	must(amqp_get_rpc_reply(connection), "channel");
	amqp_confirm_select(connection, 1);
	must(amqp_get_rpc_reply(connection), "confirm.select");

	amqp_table_entry_t entries[std::size(headers)]{};
	for (size_t i = 0; i < std::size(headers); i++)
	{
		entries[i].key = amqp_cstring_bytes(headers[i][0]);
		entries[i].value.kind = AMQP_FIELD_KIND_UTF8;
		entries[i].value.value.bytes = amqp_cstring_bytes(headers[i][1]);
	}

	amqp_basic_properties_t properties{};
	properties._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_HEADERS_FLAG |
						AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG | AMQP_BASIC_TIMESTAMP_FLAG;
	properties.delivery_mode = 2;
	properties.content_type = amqp_cstring_bytes("application/json");
	properties.headers = {.num_entries = std::size(headers), .entries = entries};
	properties.message_id = amqp_cstring_bytes(event_id);
	properties.type = amqp_cstring_bytes("bench");
	properties.timestamp = 1'767'323'045;

	const Measured measured(static_cast<long>(count));
	std::set<uint64_t> open; // not confirmed yet
	for (uint64_t sent = 0; sent < count || !open.empty();)
	{
		while (sent < count && open.size() < window)
		{
			if (amqp_basic_publish(connection, 1, amqp_empty_bytes, amqp_cstring_bytes(arguments[4]), 1, 0, &properties,
								   {body.size(), const_cast<char *>(body.data())}) != AMQP_STATUS_OK)
				die("publish", "failed");
			open.insert(++sent);
		}
		take_confirmed(connection, open);
	}
}
