// See checks.h: how many leases of a queue are out at a time.
//
// Shape: of a lease it takes what is certain: it is out from the answer that told of it until somebody first asks for
// what ended it, or may have, or until the server's clock may show its expiry. Leases that nobody was told of, or that
// were rolled back, do not count. So all that overlap at a moment were out at that moment, in whatever order calls
// came.

#include <algorithm>

#include "checks.h"

namespace {

struct Span {
	int64_t from, until;
	const Leased *lease;
};

template <typename List, typename Same>
int64_t
first_asked(const List &list, const Same &same)
{
	int64_t first = never;

	for (const auto &one : list)
		if (same(one))
			first = std::min(first, one.call->asked);
	return first;
}

// A crash may have taken back what was not yet certain, or was committed asynchronously.
int64_t
lost_at(const Facts &facts, const Leased &lease)
{
	int64_t first = never;

	for (const Crash &crash : facts.crashes)
		if (crash.until >= lease.call->answered && (lease.transaction->async || lease.transaction->ended > crash.from))
			first = std::min(first, crash.from);
	return first;
}

Span
span_of(const Facts &facts, const Leased &lease)
{
	auto used = [&](const auto &one) {
		return one.token == lease.token && one.refused.empty() && !one.certainly_not();
	};
	auto ended = [&](const Intervened &one) {
		return one.id == lease.id && one.call->answered >= lease.call->asked && !one.certainly_not();
	};
	int64_t until = std::min({first_asked(facts.reported, used), first_asked(facts.renewed, used),
							  first_asked(facts.released, used), first_asked(facts.cancelled, ended),
							  first_asked(facts.broken, ended), lost_at(facts, lease),
							  facts.earliest(lease.call->answered, lease.expires)});

	return {lease.call->answered, until, &lease};
}

bool
is_of(const Facts &facts, const Leased &lease, const std::string &queue)
{
	auto message = facts.messages.find(lease.id);

	return message != facts.messages.end() && message->second.queue == queue;
}

void
check_limit(const Facts &facts, const std::string &queue, int64_t most, Violations &found)
{
	std::vector<Span> spans;

	for (const Leased &lease : facts.leased)
		if (is_of(facts, lease, queue) && lease.done() && lease.call->answered != never &&
			!facts.stepped_during(*lease.call))
			spans.push_back(span_of(facts, lease));
	std::erase_if(spans, [](const Span &span) { return span.from >= span.until; });
	for (const Span &last : spans)
	{
		std::vector<std::string> about;

		// The number is greatest when one begins.
		for (const Span &span : spans)
			if (span.from <= last.from && span.until > last.from)
				about.push_back(span.lease->token);
		if (static_cast<int64_t>(about.size()) > most)
		{
			found.push_back({"limits", "more leases at a time than max_in_flight", about});
			return;
		}
	}
}

} // namespace

void
check_limits(const Facts &facts, Violations &found)
{
	for (const auto &[queue, most] : facts.most_leased)
		check_limit(facts, queue, most, found);
}
