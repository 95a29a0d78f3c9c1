// A source's messages with an older version of the payload than their route wants: inbox.upcast lifts them.
//
// Guarantees: a message is lifted when its turn has come, so the order of a key is kept. One that cannot be lifted
// fails alone, as UPCAST_FAILED, to be tried again: its upcaster may come with the next release. A database that cannot
// lift now, or whose upcasters this role may not use, costs no attempt: the messages are given back.
#include "core/fields.h"
#include "flow/source.h"
#include "seen/log.h"

#include <algorithm>
#include <array>

namespace relay {

namespace {

using namespace std::chrono_literals;

constexpr auto pause_after_refusal = 1s;
// In a statement, unless one message is larger: a server closes the connection for one of more than 1 GB.
constexpr size_t most_bytes = 16 << 20;

constexpr const char *lift =
	"SELECT u.payload, t.headers OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object('schema_version', u.schema_version) "
	"FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::int4[]), pg_catalog.unnest($3::jsonb[]), "
	"pg_catalog.unnest($4::jsonb[]), pg_catalog.unnest($5::int4[])) WITH ORDINALITY "
	"AS t (event_type, version, payload, headers, wanted, n), "
	"LATERAL inbox.upcast(t.event_type, t.version, t.payload, t.wanted, t.headers) u ORDER BY t.n";

// Not about the message: the extension or a right is missing, or the server has no time or room.
bool
is_about_the_database(const std::string &sqlstate)
{
	constexpr std::array classes{"08", "25", "3F", "40", "53", "55", "57", "58"};

	return sqlstate == "42501" ||
		   std::ranges::any_of(classes, [&](const char *one) { return sqlstate.starts_with(one); });
}

} // namespace

bool
Source::must_be_lifted(const InFlight &one) const
{
	const Route *route = one.parcel->route;

	if (!one.outlet || !route->schema_version)
		return false;
	// What is no number fails there.
	auto version = schema_version_of(one.parcel->delivery->message);
	return !version || *version < *route->schema_version;
}

// Unless it was given back, or its lease was lost.
Source::InFlight *
Source::being_lifted(uint64_t number)
{
	auto found = in_flight.find(number);

	return found != in_flight.end() && found->second.phase == Phase::lifting ? &found->second : nullptr;
}

void
Source::send_lifts()
{
	std::vector<uint64_t> numbers;
	size_t bytes = 0;

	for (uint64_t number : std::exchange(unlifted, {}))
	{
		InFlight *one = being_lifted(number);

		if (one == nullptr)
			continue;
		const Message &message = one->parcel->delivery->message;
		if (!schema_version_of(message))
			end_unsent(number, Verdict::try_again,
					   {.code = "UPCAST_FAILED", .text = "the header schema_version is not a number"});
		else if (!message.payload)
			end_unsent(number, Verdict::try_again, {.code = "UPCAST_FAILED", .text = "the payload is not JSON"});
		else
		{
			bytes += message.payload->size() + message.headers.size();
			if (bytes > most_bytes && !numbers.empty())
			{
				send_lift(std::exchange(numbers, {}));
				bytes = message.payload->size() + message.headers.size();
			}
			numbers.push_back(number);
		}
	}
	if (!numbers.empty())
		send_lift(std::move(numbers));
}

void
Source::send_lift(std::vector<uint64_t> numbers)
{
	std::vector<std::string> types, versions, payloads, headers, wanted;

	for (uint64_t number : numbers)
	{
		const Parcel &parcel = *in_flight.at(number).parcel;
		const Message &message = parcel.delivery->message;

		types.push_back(message.event_type);
		versions.push_back(std::to_string(*schema_version_of(message)));
		payloads.push_back(*message.payload);
		headers.push_back(message.headers);
		wanted.push_back(std::to_string(*parcel.route->schema_version));
	}
	work->send(lift,
			   {array_literal(types), array_literal(versions), array_literal(payloads), array_literal(headers),
				array_literal(wanted)},
			   [this, numbers = std::move(numbers)](Rows rows) { lifted(numbers, rows); });
}

// One that cannot be lifted makes the statement fail: then each is tried alone.
void
Source::lifted(const std::vector<uint64_t> &numbers, const Rows &rows)
{
	const bool all = rows.ok() && rows.count() == static_cast<int>(numbers.size());

	for (size_t i = 0; i < numbers.size(); i++)
	{
		InFlight *one = being_lifted(numbers[i]);

		if (one == nullptr)
			continue;
		if (!all && numbers.size() > 1)
			send_lift({numbers[i]});
		else if (!all)
			lift_failed(numbers[i], rows);
		else
		{
			Message &message = one->parcel->delivery->message;

			message.payload = rows.jsonb(static_cast<int>(i), 0);
			message.headers = rows.jsonb(static_cast<int>(i), 1);
			hand_over(*one);
		}
	}
}

void
Source::lift_failed(uint64_t number, const Rows &rows)
{
	InFlight &one = in_flight.at(number);

	if (!is_about_the_database(rows.sqlstate()))
		return end_unsent(number, Verdict::try_again,
						  {.code = "UPCAST_FAILED", .response_code = rows.sqlstate(), .text = rows.error()});
	state.problem = rows.error();
	log(Level::error, "could not lift a message",
		{{"source", my_settings.name},
		 {"outbox_id", text_of(one.lease.outbox_id)},
		 {"code", rows.sqlstate()},
		 {"error", rows.error()}});
	const std::string chain = one.chain;
	release(number, pause_after_refusal);
	chain_goes_on(chain, number, false);
}

} // namespace relay
