// The codes of the sink rabbitmq: each with its class, and why.
//
// Guarantees: every reply code of AMQP 0-9-1 and every status of rabbitmq-c has a row; a unit test compares the table
// with the library's headers. The table is the same with each release of the library. A reply code is only used where
// it is certain which message it is about: a message that was alone on its channel, or one that was returned. What
// cannot be attributed is AMQP_CHANNEL_CLOSED or AMQP_CONNECTION_CLOSED, and the number stands in response_code.
#include "sinks/rabbitmq_codes.h"

#include <array>
#include <cstdio>

#include "sinks/rabbitmq_library.h"

namespace relay::rabbitmq {

namespace {

struct Row {
	int number; // 0: this sink's own
	Code code;
};

#define ROW(name, fault, why) \
	{ \
		name, \
		{ \
#name, Fault::fault, why \
		} \
	}
// Not in the headers of all releases that this is built with.
#define NEWER(number, name, fault, why) \
	{ \
		number, \
		{ \
#name, Fault::fault, why \
		} \
	}
#define OWN(name, fault, why) \
	{ \
		0, \
		{ \
			name, Fault::fault, why \
		} \
	}

constexpr Row rows[] = {
	OWN("AMQP_NACK", moment, "the broker could not take charge of the message: a queue is full, or a node has failed"),
	OWN("AMQP_CHANNEL_CLOSED", sink, "the broker closed the channel, and any of the messages on it may be the reason"),
	OWN("AMQP_CONNECTION_CLOSED", sink, "the broker closed the connection, and any open message may be the reason"),
	OWN("AMQP_LOGIN_REFUSED", sink, "user, password or mechanism are not accepted"),

	// Replies of the broker.
	ROW(AMQP_CONTENT_TOO_LARGE, message, "the message is larger than the broker accepts"),
	ROW(AMQP_NO_ROUTE, moment, "no queue is bound for this routing key; it may be bound later"),
	ROW(AMQP_NO_CONSUMERS, moment, "no consumer is there; one may come"),
	ROW(AMQP_CONNECTION_FORCED, sink, "an operator closed the connection, or the broker shuts down"),
	ROW(AMQP_INVALID_PATH, sink, "the virtual host does not exist"),
	ROW(AMQP_ACCESS_REFUSED, moment, "the user may not publish to this exchange or routing key; it may be granted"),
	ROW(AMQP_NOT_FOUND, moment, "the exchange does not exist; it may be declared"),
	ROW(AMQP_RESOURCE_LOCKED, moment, "what the message needs is in use by another connection"),
	ROW(AMQP_PRECONDITION_FAILED, message,
		"the broker does not take this message: it is too large, or a property is wrong"),
	ROW(AMQP_FRAME_ERROR, moment, "the broker could not read a frame"),
	ROW(AMQP_SYNTAX_ERROR, message, "the broker could not read the fields of the message"),
	ROW(AMQP_COMMAND_INVALID, moment, "the broker did not expect the command"),
	ROW(AMQP_CHANNEL_ERROR, moment, "the broker does not know the channel"),
	ROW(AMQP_UNEXPECTED_FRAME, moment, "the broker did not expect the frame"),
	ROW(AMQP_RESOURCE_ERROR, moment, "the broker lacks memory, files or other resources"),
	ROW(AMQP_NOT_ALLOWED, sink, "the virtual host does not exist, or the user may not use it"),
	ROW(AMQP_NOT_IMPLEMENTED, message, "the broker does not do what the message asks for"),
	ROW(AMQP_INTERNAL_ERROR, moment, "the broker failed at the message: a plug-in may do so"),
	ROW(AMQP_REPLY_SUCCESS, sink, "the broker closed the connection and gave no reason"),

	// What rabbitmq-c says.
	ROW(AMQP_STATUS_NO_MEMORY, sink, "no memory is left"),
	ROW(AMQP_STATUS_BAD_AMQP_DATA, sink, "what came is not AMQP"),
	ROW(AMQP_STATUS_UNKNOWN_CLASS, sink, "what came is not AMQP 0-9-1"),
	ROW(AMQP_STATUS_UNKNOWN_METHOD, sink, "what came is not AMQP 0-9-1"),
	ROW(AMQP_STATUS_HOSTNAME_RESOLUTION_FAILED, sink, "the name of the host is not found"),
	ROW(AMQP_STATUS_INCOMPATIBLE_AMQP_VERSION, sink, "the broker does not speak AMQP 0-9-1"),
	ROW(AMQP_STATUS_CONNECTION_CLOSED, sink, "the connection is lost"),
	ROW(AMQP_STATUS_BAD_URL, sink, "the URL cannot be read"),
	ROW(AMQP_STATUS_SOCKET_ERROR, sink, "the broker cannot be reached, or the connection is lost"),
	ROW(AMQP_STATUS_INVALID_PARAMETER, sink, "a setting is wrong"),
	ROW(AMQP_STATUS_TABLE_TOO_BIG, message, "the headers do not fit into one frame"),
	ROW(AMQP_STATUS_WRONG_METHOD, sink, "the broker sent what was not expected"),
	ROW(AMQP_STATUS_TIMEOUT, sink, "the broker accepts connections, but does not answer"),
	ROW(AMQP_STATUS_TIMER_FAILURE, sink, "the clock cannot be read"),
	ROW(AMQP_STATUS_HEARTBEAT_TIMEOUT, sink, "the broker sends no heartbeats"),
	ROW(AMQP_STATUS_UNEXPECTED_STATE, sink, "the broker sent what was not expected"),
	ROW(AMQP_STATUS_SOCKET_CLOSED, sink, "the connection is lost"),
	ROW(AMQP_STATUS_SOCKET_INUSE, sink, "the connection is in a wrong state"),
	ROW(AMQP_STATUS_BROKER_UNSUPPORTED_SASL_METHOD, sink, "the broker does not accept user and password"),
	ROW(AMQP_STATUS_UNSUPPORTED, sink, "the library does not support a setting"),
	ROW(AMQP_STATUS_TCP_ERROR, sink, "the connection is lost"),
	ROW(AMQP_STATUS_TCP_SOCKETLIB_INIT_ERROR, sink, "the library could not be set up"),
	ROW(AMQP_STATUS_SSL_ERROR, sink, "TLS failed: a certificate or key cannot be read, or does not fit"),
	ROW(AMQP_STATUS_SSL_HOSTNAME_VERIFY_FAILED, sink, "the certificate is for another host"),
	ROW(AMQP_STATUS_SSL_PEER_VERIFY_FAILED, sink, "the certificate is not signed by a trusted authority"),
	ROW(AMQP_STATUS_SSL_CONNECTION_FAILED, sink, "TLS cannot be agreed upon"),
	ROW(AMQP_STATUS_SSL_SET_ENGINE_FAILED, sink, "the engine of OpenSSL cannot be used"),
	NEWER(-0x0205, AMQP_STATUS_SSL_UNIMPLEMENTED, sink, "the library was built without this part of TLS"),
};

#undef ROW
#undef NEWER
#undef OWN

} // namespace

std::span<const Code>
codes()
{
	static const auto table = [] {
		std::array<Code, std::size(rows)> table{};
		for (size_t i = 0; i < table.size(); i++)
			table[i] = rows[i].code;
		return table;
	}();
	return table;
}

std::string
code_of(int number)
{
	for (const Row &row : rows)
		if (row.number == number && number != 0)
			return std::string(row.code.code);
	return (number < 0 ? "AMQP_STATUS_" : "AMQP_") + std::to_string(number < 0 ? -number : number);
}

} // namespace relay::rabbitmq
