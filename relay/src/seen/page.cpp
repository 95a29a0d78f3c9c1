// The status page.
//
// Guarantees: what needs attention stands first, in words. A table has its labels in each cell as well, so that it
// can be shown as cards where it is narrow.
#include "seen/page.h"
#include "seen/html.h"

#include <algorithm>
#include <span>
#include <utility>

#include <spdlog/fmt/fmt.h>

namespace relay {

namespace {

using html::count;
using html::text;

struct Column {
	std::string_view label;
	bool number = true;
};

using Row = std::vector<std::string>; // cells of HTML; the first names the row

std::string
table(std::string_view name, std::span<const Column> columns, const std::vector<Row> &rows)
{
	std::string head, body;

	for (const auto &column : columns)
	{
		head += fmt::format(R"(<th scope="col" role="columnheader"{}>{}</th>)",
							column.number ? R"( class="number")" : "", column.label);
	}
	for (const auto &row : rows)
	{
		body += fmt::format(R"(<tr role="row"><th scope="row" role="rowheader">{}</th>)", row[0]);
		for (size_t i = 1; i < row.size(); i++)
		{
			body += fmt::format(R"(<td role="cell" data-label="{}"{}>{}</td>)", columns[i].label,
								columns[i].number ? R"( class="number")" : "", row[i]);
		}
		body += "</tr>\n";
	}
	return fmt::format(R"(<table role="table" aria-label="{}"><thead role="rowgroup"><tr role="row">{}</tr></thead>)"
					   "\n<tbody role=\"rowgroup\">\n{}</tbody></table>\n",
					   name, head, body);
}

std::string
section(std::string_view title, const std::string &content)
{
	return fmt::format("<section><h2>{}</h2>\n{}</section>\n", title, content);
}

std::string
note(std::string_view words)
{
	return fmt::format("<p class=\"note\">{}</p>\n", words);
}

// Seconds since then, by the clock that does not jump.
double
seconds_since(const PageData &data, std::chrono::steady_clock::time_point at)
{
	return std::chrono::duration<double>(data.steady_now - at).count();
}

std::string
summary(const PageData &data)
{
	const auto head =
		fmt::format(R"(<p class="ready">{} as of {}</p>)",
					data.ready ? html::state("ready", "good") : html::state("not ready", "bad"), html::utc(data.now));
	double claimed = 0, accepted = 0, failed = 0;
	uint64_t due = 0, in_flight = 0, dead = 0;

	for (const auto &[name, rates] : data.claimed)
	{
		claimed += html::newest(rates);
	}
	for (const auto &[name, rates] : data.rates)
	{
		accepted += html::newest(rates.accepted);
		failed += html::newest(rates.failed);
	}
	for (const auto &[name, source] : data.sources)
	{
		in_flight += source.in_flight;
		for (const auto &queue : source.queues)
		{
			due += static_cast<uint64_t>(std::max<int64_t>(queue.due, 0));
			dead += static_cast<uint64_t>(std::max<int64_t>(queue.dead, 0));
		}
	}
	return fmt::format(
		"{}\n<dl class=\"figures\"><div><dt>Claimed</dt><dd>{}/s</dd></div><div><dt>Accepted</dt>"
		"<dd>{}/s</dd></div><div><dt>Failed</dt><dd>{}/s</dd></div><div><dt>In flight</dt><dd>{}</dd></div>"
		"<div><dt>Due</dt><dd>{}</dd></div><div><dt>Dead letters</dt><dd>{}</dd></div></dl>\n",
		head, html::rate(claimed), html::rate(accepted), html::rate(failed), count(in_flight), count(due), count(dead));
}

std::string
plural(uint64_t number, std::string_view one, std::string_view many)
{
	return count(number) + " " + std::string(number == 1 ? one : many);
}

void
add_source_troubles(std::vector<std::string> &items, const std::string &name, const SourceState &source)
{
	if (const auto why = source.trouble(); !why.empty())
	{
		items.push_back(fmt::format("Source <b>{}</b>: {}.", text(name), text(why)));
	}
	if (source.unrecorded > 0)
	{
		items.push_back(fmt::format("Source <b>{}</b>: {} for the database.", text(name),
									plural(source.unrecorded, "outcome waits", "outcomes wait")));
	}
	for (const auto &queue : source.queues)
	{
		if (queue.paused)
		{
			items.push_back(fmt::format("Queue <b>{}</b> of {} is paused.", text(queue.queue), text(name)));
		}
		if (queue.blocked_keys > 0)
		{
			items.push_back(fmt::format("Queue <b>{}</b> of {}: {} blocked.", text(queue.queue), text(name),
										plural(static_cast<uint64_t>(queue.blocked_keys), "key is", "keys are")));
		}
	}
}

void
add_sink_troubles(std::vector<std::string> &items, const PageData &data, const std::string &name, const SinkState &sink)
{
	for (const auto &endpoint : sink.endpoints)
	{
		items.push_back(fmt::format(
			"Sink <b>{}</b>{}: the breaker is {}{}.", text(name),
			endpoint.endpoint.empty() ? "" : ", endpoint " + text(endpoint.endpoint), text(endpoint.breaker),
			endpoint.breaker == "open" ? ", next probe " + html::ago(endpoint.probe_at, data.now) : ""));
	}
	if (sink.blocked)
	{
		items.push_back(
			fmt::format("Sink <b>{}</b> takes no messages for now, at the receiver's request.", text(name)));
	}
}

std::string
attention(const PageData &data)
{
	std::vector<std::string> items;
	std::string list;

	if (data.sources.empty())
	{
		items.emplace_back("No source has started yet.");
	}
	for (const auto &[name, source] : data.sources)
	{
		add_source_troubles(items, name, source);
	}
	for (const auto &[name, sink] : data.sinks)
	{
		add_sink_troubles(items, data, name, sink);
	}
	for (const auto &item : items)
	{
		list += "<li>" + item + "</li>\n";
	}
	return section("Blocked",
				   items.empty() ? note("Nothing is blocked.") : "<ul class=\"blocked\">\n" + list + "</ul>\n");
}

std::string
charts(const PageData &data)
{
	std::string all;

	for (const auto &[name, rates] : data.claimed)
	{
		all += html::chart("Source " + name, "claimed", rates) + "\n";
	}
	for (const auto &[name, rates] : data.rates)
	{
		all += html::chart("Sink " + name, "accepted", rates.accepted, "failed", rates.failed) + "\n";
	}
	return section("Rates of the last 15 minutes",
				   all.empty() ? note("There are no rates yet.") : "<div class=\"charts\">\n" + all + "</div>\n");
}

std::string
queue_state(const QueueState &queue)
{
	if (queue.paused)
	{
		return html::state("paused", "warn");
	}
	return queue.blocked_keys > 0 ? html::state("keys blocked", "warn") : html::state("running", "good");
}

std::string
queue_count(int64_t value)
{
	return count(static_cast<uint64_t>(std::max<int64_t>(value, 0)));
}

std::string
queues(const PageData &data)
{
	static constexpr Column columns[] = {{"Queue", false}, {"State", false}, {"Due"},
										 {"Oldest due"},   {"In flight"},    {"Scheduled"},
										 {"Expired"},      {"Blocked keys"}, {"Dead"}};
	std::vector<Row> rows;

	for (const auto &[name, source] : data.sources)
	{
		for (const auto &queue : source.queues)
		{
			rows.push_back({text(queue.queue) + (data.sources.size() > 1 ? " <small>" + text(name) + "</small>" : ""),
							queue_state(queue), queue_count(queue.due),
							queue.due > 0 ? html::lasting(queue.oldest_due_seconds) : "none", queue_count(queue.leased),
							queue_count(queue.scheduled), queue_count(queue.expired), queue_count(queue.blocked_keys),
							queue_count(queue.dead)});
		}
	}
	return section("Queues", rows.empty() ? note("No queue has been read. Queues are read while this page is open, if "
												 "the relay's role is a member of outbox_readonly.")
										  : table("Queues", columns, rows));
}

std::string
sink_state(const SinkState &sink)
{
	if (!sink.up())
	{
		return html::state("away", "bad");
	}
	if (sink.blocked)
	{
		return html::state("blocked", "warn");
	}
	return sink.endpoints.empty() ? html::state("up", "good") : html::state("partly away", "warn");
}

std::string
sinks(const PageData &data)
{
	static constexpr Column columns[] = {{"Sink", false}, {"State", false}, {"In hand"},   {"Waiting"},
										 {"Accepted"},    {"Refused"},      {"Try again"}, {"Away"}};
	std::vector<Row> rows;

	for (const auto &[name, sink] : data.sinks)
	{
		rows.push_back({text(name) + " <small>" + text(sink.type) + "</small>", sink_state(sink),
						count(sink.in_hand) + " of " + count(sink.max_in_flight), count(sink.waiting),
						count(sink.accepted), count(sink.refused), count(sink.try_again), count(sink.away)});
	}
	return section("Sinks", rows.empty() ? note("No sink has started yet.") : table("Sinks", columns, rows));
}

std::string
errors(const PageData &data)
{
	std::vector<std::pair<const SinkError *, const std::string *>> newest;
	std::string list;

	for (const auto &[name, sink] : data.sinks)
	{
		for (const auto &error : sink.errors)
		{
			newest.emplace_back(&error, &name);
		}
	}
	std::stable_sort(newest.begin(), newest.end(),
					 [](const auto &one, const auto &other) { return one.first->at > other.first->at; });
	for (const auto &[error, sink] : newest)
	{
		list += fmt::format("<li><p>{} <b>{}</b> <code>{}</code></p><p>{}</p></li>\n", html::ago(error->at, data.now),
							text(*sink), text(error->code), text(error->text));
	}
	return section("Last errors",
				   list.empty() ? note("There are none.") : "<ul class=\"errors\">\n" + list + "</ul>\n");
}

std::string
source_state(const SourceState &source)
{
	if (!source.connected)
	{
		return html::state("not connected", "bad");
	}
	return source.trouble().empty() ? html::state("connected", "good") : html::state("connected, not claiming", "warn");
}

std::string
sources(const PageData &data)
{
	static constexpr Column columns[] = {{"Source", false}, {"State", false}, {"Last claim"}, {"In flight"},
										 {"Unrecorded"},    {"Claimed"},      {"Accepted"},   {"Failed"}};
	std::vector<Row> rows;

	for (const auto &[name, source] : data.sources)
	{
		rows.push_back(
			{text(name) + (source.problem.empty() ? "" : " <small>" + text(source.problem) + "</small>"),
			 source_state(source),
			 source.last_claim ? html::lasting(seconds_since(data, *source.last_claim)) + " ago" : "none yet",
			 count(source.in_flight), count(source.unrecorded), count(source.claimed), count(source.accepted),
			 count(source.failed)});
	}
	return section("Sources", rows.empty() ? note("No source has started yet.") : table("Sources", columns, rows));
}

} // namespace

PageData
page_data(const Board &board, const History &history)
{
	PageData data;

	data.ready = board.ready(data.problem);
	data.sources = board.sources();
	data.sinks = board.sinks();
	data.claimed = history.claimed();
	data.rates = history.sinks();
	data.now = std::chrono::system_clock::now();
	data.steady_now = std::chrono::steady_clock::now();
	return data;
}

std::string
page_content(const PageData &data)
{
	return summary(data) + attention(data) + charts(data) + queues(data) + sinks(data) + errors(data) + sources(data);
}

std::string
page(const PageData &data)
{
	return R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>outbox-relay</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<link rel="stylesheet" href="page.css">
<noscript><meta http-equiv="refresh" content="30"></noscript>
<script src="page.js" defer></script>
</head>
<body>
<header><h1>outbox-relay</h1><nav><a href="status.json">status.json</a> <a href="metrics">metrics</a></nav></header>
<p id="stale" role="status" hidden></p>
<main>
)" + page_content(data) +
		   "</main>\n</body>\n</html>\n";
}

} // namespace relay
