// The calls of rabbitmq-c.
#include "sinks/rabbitmq_connection.h"

#include "sinks/rabbitmq_codes.h"

#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sinks/rabbitmq_library.h"
#include <openssl/ssl.h>

namespace relay::rabbitmq {

namespace {

constexpr int frame_max = 131'072, channel_max = 64;
constexpr size_t shortstr_max = 255;

amqp_bytes_t
bytes(const std::string &text)
{
	return {text.size(), const_cast<char *>(text.data())};
}

std::string
text_of(amqp_bytes_t bytes)
{
	return {static_cast<const char *>(bytes.bytes), bytes.len};
}

timeval
timeval_of(std::chrono::milliseconds duration)
{
	return {.tv_sec = duration.count() / 1000, .tv_usec = duration.count() % 1000 * 1000};
}

Failure
failure_of(int status, const std::string &doing = {})
{
	return {code_of(status), {}, (doing.empty() ? doing : doing + ": ") + amqp_error_string2(status)};
}

std::optional<Failure>
unless_ok(int status)
{
	if (status == AMQP_STATUS_OK)
		return {};
	return failure_of(status);
}

amqp_table_entry_t
entry(const char *name, bool value)
{
	amqp_table_entry_t entry{};
	entry.key = amqp_cstring_bytes(name);
	entry.value.kind = AMQP_FIELD_KIND_BOOLEAN;
	entry.value.value.boolean = value;
	return entry;
}

amqp_table_entry_t
entry(const char *name, const char *value)
{
	amqp_table_entry_t entry{};
	entry.key = amqp_cstring_bytes(name);
	entry.value.kind = AMQP_FIELD_KIND_UTF8;
	entry.value.value.bytes = amqp_cstring_bytes(value);
	return entry;
}

amqp_socket_t *
tls_socket(amqp_connection_state_t state, const Settings &settings, int &status)
{
	amqp_socket_t *socket = amqp_ssl_socket_new(state);
	if (socket == nullptr)
		return nullptr;
	amqp_ssl_socket_set_verify_peer(socket, settings.verify);
	amqp_ssl_socket_set_verify_hostname(socket, settings.verify);
	status = amqp_ssl_socket_set_ssl_versions(socket, AMQP_TLSv1_2, AMQP_TLSvLATEST);
	if (status == AMQP_STATUS_OK && !settings.ca.empty())
		status = amqp_ssl_socket_set_cacert(socket, settings.ca.c_str());
	else if (status == AMQP_STATUS_OK)
		SSL_CTX_set_default_verify_paths(static_cast<SSL_CTX *>(amqp_ssl_socket_get_context(socket)));
	if (status == AMQP_STATUS_OK && !settings.cert.empty())
		status = amqp_ssl_socket_set_key(socket, settings.cert.c_str(), settings.key.c_str());
	return socket;
}

// Of a reply that is none, or another one than expected.
Failure
no_reply(const amqp_rpc_reply_t &reply, const std::string &doing)
{
	return failure_of(
		reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION ? reply.library_error : AMQP_STATUS_WRONG_METHOD, doing);
}

Failure
channel_failure(const amqp_rpc_reply_t &reply, const std::string &doing)
{
	if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD)
	{
		const auto *close = static_cast<const amqp_channel_close_t *>(reply.reply.decoded);
		return {code_of(close->reply_code), std::to_string(close->reply_code), text_of(close->reply_text)};
	}
	return no_reply(reply, doing);
}

Failure
login_failure(const amqp_rpc_reply_t &reply)
{
	if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD)
	{
		const auto *close = static_cast<const amqp_connection_close_t *>(reply.reply.decoded);
		std::string code = close->reply_code == AMQP_ACCESS_REFUSED ? "AMQP_LOGIN_REFUSED" : code_of(close->reply_code);
		return {code, std::to_string(close->reply_code), text_of(close->reply_text)};
	}
	return no_reply(reply, "login");
}

const std::string *
header(const Delivery &delivery, const char *name)
{
	for (const auto &[key, value] : delivery.headers)
		if (strcasecmp(key.c_str(), name) == 0)
			return &value;
	return nullptr;
}

// A short string of AMQP, if it is one; what is longer stands among the headers.
void
set_short(amqp_basic_properties_t &properties, amqp_flags_t flag, amqp_bytes_t &property, const std::string *value)
{
	if (value == nullptr || value->empty() || value->size() > shortstr_max)
		return;
	properties._flags |= flag;
	property = bytes(*value);
}

std::vector<amqp_table_entry_t>
header_entries(const Delivery &delivery)
{
	std::vector<amqp_table_entry_t> entries;
	entries.reserve(delivery.headers.size());
	for (const auto &[key, value] : delivery.headers)
	{
		amqp_table_entry_t &entry = entries.emplace_back();
		entry.key = bytes(key);
		entry.value.kind = AMQP_FIELD_KIND_UTF8;
		entry.value.value.bytes = bytes(value);
	}
	return entries;
}

// Refers to `delivery` and `entries`.
amqp_basic_properties_t
properties_of(const Settings &settings, const Delivery &delivery, std::vector<amqp_table_entry_t> &entries)
{
	amqp_basic_properties_t p{};
	p._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_TIMESTAMP_FLAG;
	p.headers = {.num_entries = static_cast<int>(entries.size()), .entries = entries.data()};
	p.delivery_mode = settings.persistent ? AMQP_DELIVERY_PERSISTENT : AMQP_DELIVERY_NONPERSISTENT;
	p.timestamp = static_cast<uint64_t>(
		std::chrono::floor<std::chrono::seconds>(delivery.message.created_at).time_since_epoch().count());
	set_short(p, AMQP_BASIC_CONTENT_TYPE_FLAG, p.content_type, &delivery.content_type);
	set_short(p, AMQP_BASIC_CONTENT_ENCODING_FLAG, p.content_encoding, header(delivery, "content-encoding"));
	set_short(p, AMQP_BASIC_MESSAGE_ID_FLAG, p.message_id, &delivery.message.event_id);
	set_short(p, AMQP_BASIC_TYPE_FLAG, p.type, &delivery.message.event_type);
	return p;
}

} // namespace

size_t
header_size(const Delivery &delivery)
{
	constexpr size_t fixed = 8 + 14 + 4 + 1 + 8 + 5 * (1 + shortstr_max); // frame, class and flags, table, properties
	size_t size = fixed;
	for (const auto &[key, value] : delivery.headers)
		size += 1 + key.size() + 1 + 4 + value.size();
	return size;
}

std::unique_ptr<Connection>
Connection::open(const Settings &settings, const Host &host, Failure &failure)
{
	std::unique_ptr<Connection> connection(new Connection);
	auto problem = connection->connect(settings, host);
	if (!problem)
		problem = connection->login(settings);
	if (!problem)
		return connection;
	failure = *problem;
	failure.text = host.name + ":" + std::to_string(host.port) + ": " + failure.text;
	return nullptr;
}

Connection::~Connection()
{
	if (state != nullptr)
		amqp_destroy_connection(state);
	if (descriptor >= 0)
		::close(descriptor);
}

std::optional<Failure>
Connection::connect(const Settings &settings, const Host &host)
{
	int status = AMQP_STATUS_OK;
	state = amqp_new_connection();
	amqp_socket_t *socket = nullptr;
	if (state != nullptr)
		socket = settings.tls ? tls_socket(state, settings, status) : amqp_tcp_socket_new(state);
	if (socket == nullptr)
		return failure_of(AMQP_STATUS_NO_MEMORY);
	if (status != AMQP_STATUS_OK)
		return failure_of(status, "certificates");
	timeval timeout = timeval_of(settings.connect_timeout);
	amqp_set_handshake_timeout(state, &timeout);
	amqp_set_rpc_timeout(state, &timeout);
	status = amqp_socket_open_noblock(socket, host.name.c_str(), host.port, &timeout);
	if (status != AMQP_STATUS_OK)
		return failure_of(status, "connect");
	descriptor = ::fcntl(amqp_get_sockfd(state), F_DUPFD_CLOEXEC, 0);
	return {};
}

std::optional<Failure>
Connection::login(const Settings &settings)
{
	amqp_table_entry_t capabilities[] = {entry("publisher_confirms", true), entry("basic.nack", true),
										 entry("connection.blocked", true)};
	amqp_table_entry_t properties[] = {entry("product", "outbox-relay"), entry("connection_name", "outbox-relay"),
									   amqp_table_entry_t{}};
	properties[2].key = amqp_cstring_bytes("capabilities");
	properties[2].value.kind = AMQP_FIELD_KIND_TABLE;
	properties[2].value.value.table = {.num_entries = std::size(capabilities), .entries = capabilities};
	amqp_table_t table{.num_entries = std::size(properties), .entries = properties};
	amqp_rpc_reply_t reply =
		amqp_login_with_properties(state, settings.vhost.c_str(), channel_max, frame_max, settings.heartbeat, &table,
								   AMQP_SASL_METHOD_PLAIN, settings.user.c_str(), settings.password.reveal().c_str());
	if (reply.reply_type == AMQP_RESPONSE_NORMAL)
		return {};
	return login_failure(reply);
}

std::optional<Failure>
Connection::open_channel(amqp_channel_t channel)
{
	amqp_channel_open_t open{.out_of_band = amqp_empty_bytes};
	incoming.erase(channel);
	if (auto problem = unless_ok(amqp_send_method(state, channel, AMQP_CHANNEL_OPEN_METHOD, &open)))
		return problem;
	return ask(channel);
}

std::optional<Failure>
Connection::ask(amqp_channel_t channel)
{
	amqp_confirm_select_t select{.nowait = 0};
	return unless_ok(amqp_send_method(state, channel, AMQP_CONFIRM_SELECT_METHOD, &select));
}

std::optional<Failure>
Connection::close_channel(amqp_channel_t channel)
{
	amqp_channel_close_t close{
		.reply_code = AMQP_REPLY_SUCCESS, .reply_text = amqp_empty_bytes, .class_id = 0, .method_id = 0};
	return unless_ok(amqp_send_method(state, channel, AMQP_CHANNEL_CLOSE_METHOD, &close));
}

std::optional<Failure>
Connection::look_for(Kind kind, const std::string &name)
{
	constexpr amqp_channel_t channel = 1;
	constexpr amqp_boolean_t passive = 1;

	if (amqp_channel_open(state, channel) == nullptr)
		return channel_failure(amqp_get_rpc_reply(state), "open a channel");
	bool there = kind == Kind::queue
					 ? amqp_queue_declare(state, channel, bytes(name), passive, 0, 0, 0, amqp_empty_table) != nullptr
					 : amqp_exchange_declare(state, channel, bytes(name), amqp_cstring_bytes("direct"), passive, 0, 0,
											 0, amqp_empty_table) != nullptr;
	if (!there)
		return channel_failure(amqp_get_rpc_reply(state), "declare");
	return {};
}

bool
Connection::fits(const Delivery &delivery) const
{
	int most = amqp_get_frame_max(state);
	return most == 0 || header_size(delivery) <= static_cast<size_t>(most);
}

std::optional<Failure>
Connection::publish(amqp_channel_t channel, const Settings &settings, const Delivery &delivery)
{
	std::vector<amqp_table_entry_t> entries = header_entries(delivery);
	amqp_basic_properties_t properties = properties_of(settings, delivery, entries);
	return unless_ok(amqp_basic_publish(state, channel, bytes(delivery.to.exchange), bytes(delivery.to.topic),
										settings.mandatory, 0, &properties, bytes(delivery.body)));
}

bool
Connection::writable() const
{
	pollfd fd{.fd = socket(), .events = POLLOUT, .revents = 0};
	return ::poll(&fd, 1, 0) == 1;
}

std::optional<Failure>
Connection::read(Events &events)
{
	for (;;)
	{
		amqp_frame_t next;
		timeval none{};
		int status = amqp_simple_wait_frame_noblock(state, &next, &none);
		if (status == AMQP_STATUS_TIMEOUT)
		{
			amqp_maybe_release_buffers(state);
			return {};
		}
		if (status != AMQP_STATUS_OK)
			return failure_of(status);
		if (auto problem = frame(next, events))
			return problem;
		amqp_maybe_release_buffers_on_channel(state, next.channel);
	}
}

std::optional<Failure>
Connection::frame(const amqp_frame_t &frame, Events &events)
{
	if (frame.frame_type == AMQP_FRAME_METHOD)
		return method(frame.channel, frame.payload.method, events);
	content(frame, events);
	return {};
}

std::optional<Failure>
Connection::method(amqp_channel_t channel, const amqp_method_t &method, Events &events)
{
	switch (method.id)
	{
		case AMQP_BASIC_ACK_METHOD:
		{
			const auto *ack = static_cast<const amqp_basic_ack_t *>(method.decoded);
			events.confirmed(channel, ack->delivery_tag, ack->multiple, true);
			break;
		}
		case AMQP_BASIC_NACK_METHOD:
		{
			const auto *nack = static_cast<const amqp_basic_nack_t *>(method.decoded);
			events.confirmed(channel, nack->delivery_tag, nack->multiple, false);
			break;
		}
		case AMQP_BASIC_RETURN_METHOD:
		{
			const auto *back = static_cast<const amqp_basic_return_t *>(method.decoded);
			incoming[channel] = {.message = {.reply_code = back->reply_code,
											 .text = text_of(back->reply_text),
											 .exchange = text_of(back->exchange),
											 .routing_key = text_of(back->routing_key),
											 .message_id = {},
											 .headers = {}}};
			break;
		}
		case AMQP_CONFIRM_SELECT_OK_METHOD:
			events.opened(channel);
			break;
		case AMQP_CHANNEL_CLOSE_METHOD:
		{
			const auto *close = static_cast<const amqp_channel_close_t *>(method.decoded);
			amqp_channel_close_ok_t ok{};
			auto problem = unless_ok(amqp_send_method(state, channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok));
			events.channel_closed(channel, close->reply_code, text_of(close->reply_text));
			return problem;
		}
		case AMQP_CHANNEL_CLOSE_OK_METHOD:
			events.close_done(channel);
			break;
		case AMQP_CONNECTION_BLOCKED_METHOD:
			events.blocked(true, text_of(static_cast<const amqp_connection_blocked_t *>(method.decoded)->reason));
			break;
		case AMQP_CONNECTION_UNBLOCKED_METHOD:
			events.blocked(false, {});
			break;
		case AMQP_CONNECTION_CLOSE_METHOD:
		{
			const auto *close = static_cast<const amqp_connection_close_t *>(method.decoded);
			amqp_connection_close_ok_t ok{};
			amqp_send_method(state, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok);
			std::string text = text_of(close->reply_text);
			events.connection_closed(close->reply_code, text);
			return Failure{"AMQP_CONNECTION_CLOSED", std::to_string(close->reply_code), text};
		}
		default: // channel.open-ok, and what does not concern a publisher
			break;
	}
	return {};
}

// Header and body of a returned message.
void
Connection::content(const amqp_frame_t &frame, Events &events)
{
	auto found = incoming.find(frame.channel);
	if (found == incoming.end())
		return;
	Incoming &in = found->second;
	if (frame.frame_type == AMQP_FRAME_HEADER)
	{
		const auto *p = static_cast<const amqp_basic_properties_t *>(frame.payload.properties.decoded);
		in.body_left = frame.payload.properties.body_size;
		if ((p->_flags & AMQP_BASIC_MESSAGE_ID_FLAG) != 0)
			in.message.message_id = text_of(p->message_id);
		for (int i = 0; (p->_flags & AMQP_BASIC_HEADERS_FLAG) != 0 && i < p->headers.num_entries; i++)
			if (const amqp_table_entry_t &e = p->headers.entries[i]; e.value.kind == AMQP_FIELD_KIND_UTF8)
				in.message.headers.emplace(text_of(e.key), text_of(e.value.value.bytes));
	}
	else if (frame.frame_type == AMQP_FRAME_BODY)
		in.body_left -= std::min<uint64_t>(in.body_left, frame.payload.body_fragment.len);
	if (in.body_left != 0)
		return;
	Returned message = std::move(in.message);
	incoming.erase(found);
	events.returned(frame.channel, message);
}

bool
Connection::has_frames() const
{
	return amqp_frames_enqueued(state) || amqp_data_in_buffer(state);
}

void
Connection::cut()
{
	::shutdown(descriptor, SHUT_RDWR);
}

void
Connection::close()
{
	timeval second{.tv_sec = 1, .tv_usec = 0};
	amqp_set_rpc_timeout(state, &second);
	amqp_connection_close(state, AMQP_REPLY_SUCCESS);
}

} // namespace relay::rabbitmq
