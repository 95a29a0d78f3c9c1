#include "flow/claims.h"

#include <algorithm>

namespace relay {

namespace {

// The token, the end of the lease and the clock stand side by side.
Lease
decode_lease(const Rows &rows, int row, int first, Clock::time_point sent)
{
	auto length = std::chrono::microseconds(rows.timestamptz(row, first + 1) - rows.timestamptz(row, first + 2));

	return {.outbox_id = rows.uuid(row, 0),
			.token = rows.uuid(row, first),
			.until = sent + length,
			.half = sent + length / 2};
}

} // namespace

const char *const claim_columns =
	"queue, event_id, event_type, aggregate_type, aggregate_id, partition_key, sequence_id, idempotency_key, routing_key, priority, "
	"payload, headers, attempt_count, created_at, payload_bytes, content_type, lease_token, lease_expires_at, "
	"pg_catalog.clock_timestamp()";

const char *const unread_columns =
	"event_id, attempt_count, lease_token, lease_expires_at, pg_catalog.clock_timestamp()";

void
Appetite::notified()
{
	notifications++;
	level = std::max<size_t>(level, 1);
}

void
Appetite::sent(ClaimPlan &plan)
{
	plan.notified = notifications;
	outstanding++;
}

void
Appetite::answered(const ClaimPlan &plan, size_t got)
{
	outstanding--;
	if (got >= plan.size)
		level = 2;
	else if (plan.notified < notifications)
		level = 1;
	else
		level = 0;
}

void
Appetite::disconnected()
{
	outstanding = 0;
	level = 1;
}

Message
decode_message(const Rows &rows, int row, int first)
{
	Message message;

	message.outbox_id = text_of(rows.uuid(row, 0));
	message.queue = rows.text(row, first);
	message.event_id = text_of(rows.uuid(row, first + 1));
	message.event_type = rows.text(row, first + 2);
	message.aggregate_type = rows.maybe(row, first + 3);
	message.aggregate_id = rows.maybe(row, first + 4);
	message.partition_key = rows.maybe(row, first + 5);
	if (!rows.null(row, first + 6))
		message.sequence_id = rows.int8(row, first + 6);
	message.idempotency_key = rows.maybe(row, first + 7);
	message.routing_key = rows.maybe(row, first + 8);
	message.priority = rows.int4(row, first + 9);
	if (!rows.null(row, first + 10))
		message.payload = rows.jsonb(row, first + 10);
	message.headers = rows.jsonb(row, first + 11);
	message.attempt = rows.int4(row, first + 12) + 1;
	message.created_at =
		std::chrono::sys_time<std::chrono::microseconds>(std::chrono::microseconds(rows.timestamptz(row, first + 13)));
	message.payload_bytes = rows.maybe(row, first + 14);
	message.content_type = rows.maybe(row, first + 15);
	return message;
}

Claimed
decode(const Rows &rows, int row, int first, Clock::time_point sent)
{
	Claimed claimed;

	claimed.delivery = std::make_unique<Delivery>();
	claimed.delivery->message = decode_message(rows, row, first);
	claimed.event_id = rows.uuid(row, first + 1);
	claimed.lease = decode_lease(rows, row, first + 16, sent);
	return claimed;
}

Unread
decode_unread(const Rows &rows, int row, Clock::time_point sent)
{
	return {.event_id = rows.uuid(row, 1), .attempt = rows.int4(row, 2) + 1, .lease = decode_lease(rows, row, 3, sent)};
}

bool
is_about_a_message(std::string_view sqlstate)
{
	return sqlstate == "22P05" || sqlstate == "22021" || sqlstate == "54000";
}

std::optional<std::string>
array_or_null(const std::vector<int64_t> &numbers)
{
	std::vector<std::string> texts;

	if (numbers.empty())
		return {};
	for (int64_t number : numbers)
		texts.push_back(std::to_string(number));
	return array_literal(texts);
}

std::optional<std::string>
interval(std::optional<std::chrono::milliseconds> duration)
{
	if (!duration)
		return {};
	return std::to_string(duration->count()) + " milliseconds";
}

} // namespace relay
