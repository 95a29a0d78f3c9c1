#include "flow/reports.h"

#include <algorithm>

namespace relay {

namespace {

// Length of the valid sequence that begins here, or 0.
size_t
sequence_length(std::string_view text)
{
	auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
	auto more = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
	unsigned first = byte(0);

	if (first < 0x80)
		return 1;
	if (first >= 0xc2 && first <= 0xdf && more(1))
		return 2;
	if (first >= 0xe0 && first <= 0xef && more(1) && more(2) && !(first == 0xe0 && byte(1) < 0xa0) &&
		!(first == 0xed && byte(1) > 0x9f))
		return 3;
	if (first >= 0xf0 && first <= 0xf4 && more(1) && more(2) && more(3) && !(first == 0xf0 && byte(1) < 0x90) &&
		!(first == 0xf4 && byte(1) > 0x8f))
		return 4;
	return 0;
}

const char *
state_of(Verdict verdict)
{
	switch (verdict)
	{
		case Verdict::accepted:
			return "DISPATCHED";
		case Verdict::refused:
			return "FAILED";
		case Verdict::try_again:
		case Verdict::untried:
			break;
	}
	return "RETRYABLE";
}

} // namespace

std::string
clean(std::string_view text)
{
	std::string result;

	result.reserve(text.size());
	while (!text.empty())
	{
		size_t length = sequence_length(text);

		if (length == 0 || text[0] == '\0')
			result += "\xef\xbf\xbd";
		else
			result += text.substr(0, length);
		text.remove_prefix(std::max<size_t>(length, 1));
	}
	return result;
}

void
Reports::add(Outcome outcome, Clock::time_point now)
{
	if (waiting.empty())
		oldest = now;
	waiting.push_back(std::move(outcome));
}

bool
Reports::due(Clock::time_point now, bool last) const
{
	if (waiting.empty() || now < after)
		return false;
	return waiting.size() >= most || (sent.empty() && (last || now - oldest >= gathering || at_most < most));
}

std::optional<Clock::time_point>
Reports::due_at() const
{
	if (waiting.empty() || (!sent.empty() && waiting.size() < most))
		return {};
	return std::max(oldest + gathering, after);
}

uint64_t
Reports::take()
{
	auto end = waiting.begin() + static_cast<ptrdiff_t>(std::min(at_most, waiting.size()));
	auto &report = sent[++last_report];

	report.assign(std::make_move_iterator(waiting.begin()), std::make_move_iterator(end));
	waiting.erase(waiting.begin(), end);
	sent_size += report.size();
	return last_report;
}

std::vector<Outcome>
Reports::answered(uint64_t report)
{
	auto node = sent.extract(report);

	sent_size -= node.mapped().size();
	at_most = std::min(at_most * 2, most);
	return std::move(node.mapped());
}

std::optional<Outcome>
Reports::refused(uint64_t report, bool data, Clock::time_point not_before)
{
	auto node = sent.extract(report);
	std::vector<Outcome> &outcomes = node.mapped();

	sent_size -= outcomes.size();
	if (!data)
		after = not_before;
	else if (outcomes.size() > 1)
		at_most = outcomes.size() / 2;
	else
	{
		Outcome &outcome = outcomes.front();

		if (outcome.answer.text.empty() && outcome.answer.reference.empty() && outcome.answer.response_code.empty())
			return std::move(outcome);
		outcome.answer.text.clear();
		outcome.answer.reference.clear();
		outcome.answer.response_code.clear();
	}
	waiting.insert(waiting.begin(), std::make_move_iterator(outcomes.begin()), std::make_move_iterator(outcomes.end()));
	return {};
}

void
Reports::disconnected()
{
	for (auto &[number, outcomes] : sent)
		waiting.insert(waiting.begin(), std::make_move_iterator(outcomes.begin()),
					   std::make_move_iterator(outcomes.end()));
	sent.clear();
	sent_size = 0;
}

bool
may_have_recorded(Verdict verdict, std::string_view state)
{
	// The last of too many.
	return state == state_of(verdict) || (verdict == Verdict::try_again && state == "FAILED");
}

Parameters
report_parameters(const std::string &worker_id, const std::vector<Outcome> &outcomes)
{
	std::vector<Uuid> ids, tokens;
	std::vector<std::string> states;
	Texts references, responses, codes, texts, latencies, delays;
	auto maybe = [](const std::string &text) { return text.empty() ? std::nullopt : std::optional(clean(text)); };
	// An array of which nothing is given is not sent.
	auto array = [](const Texts &elements) -> std::optional<std::string> {
		if (std::none_of(elements.begin(), elements.end(), [](const auto &element) { return element.has_value(); }))
			return {};
		return array_literal(elements);
	};

	for (const Outcome &outcome : outcomes)
	{
		const Answer &answer = outcome.answer;

		ids.push_back(outcome.outbox_id);
		tokens.push_back(outcome.token);
		states.emplace_back(state_of(outcome.verdict));
		references.push_back(maybe(answer.reference));
		responses.push_back(maybe(answer.response_code));
		codes.push_back(maybe(answer.code));
		texts.push_back(maybe(answer.text));
		latencies.push_back(std::to_string(outcome.latency_ms));
		delays.push_back(outcome.verdict == Verdict::try_again ? interval(answer.retry_after) : std::nullopt);
	}
	return {worker_id,        uuid_array(ids), uuid_array(tokens), array_literal(states), array(references),
			array(responses), array(codes),    array(texts),       array(latencies),      array(delays)};
}

} // namespace relay
