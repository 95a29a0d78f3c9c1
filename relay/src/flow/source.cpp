#include "flow/source.h"

#include "seen/log.h"

#include <algorithm>

#include <poll.h>

namespace relay {

namespace {

using namespace std::chrono_literals;

constexpr auto tick = 500ms;             // leases are looked at, the state is shown
constexpr auto same_problem_pause = 60s; // in the log
constexpr auto status_interval = 3s, metrics_interval = 10s, orderings_interval = 30s;

} // namespace

Source::Source(SourceSettings settings, std::string worker_id, std::shared_ptr<const Routing> routing,
			   Observers observers)
	: my_settings(std::move(settings)), worker_id(std::move(worker_id)), observers(observers),
	  inbox(std::make_shared<Inbox>())
{
	state.poll_interval = my_settings.poll_interval;
	reroute_now(std::move(routing));
	thread = std::thread([this] { run(); });
}

Source::~Source()
{
	stop(0ms);
	thread.join();
}

void
Source::reroute(std::shared_ptr<const Routing> routing)
{
	inbox->box.post(std::move(routing));
}

void
Source::stop(std::chrono::milliseconds grace)
{
	inbox->box.post(StopBy{Clock::now() + grace});
}

// The log still says what becomes of what it had begun.
void
Source::hide()
{
	hidden = true;
}

void
Source::run()
{
	while (!done(Clock::now()))
	{
		auto now = Clock::now();

		wait(now);
		take_inbox();
		now = Clock::now();
		connect(now);
		for (Connection *connection : {work.get(), listener.get()})
		{
			if (connection != nullptr)
				connection->pump([&](const std::string &queue) {
					if (my_settings.queues.front() == "*" && !orderings.contains(queue))
						orderings_at = {};
					appetite.notified();
					observers.metrics.notify_wakeup(my_settings.name);
				});
		}
		filled.flush();
		if ((work && work->broken()) || (listener && listener->broken()) || useless)
			lost_connection(now);
		if (now - ticked >= tick)
		{
			ticked = now;
			renew(now + tick);
			show(now);
		}
		if (stop_at && *stop_at <= now)
			give_up();
		if (!working() || !is_listening)
			continue;
		if (appetite.idle() && now - polled >= my_settings.poll_interval)
		{
			polled = now;
			appetite.notified();
			observers.metrics.poll_wakeup(my_settings.name);
		}
		send_lifts();
		send_releases();
		// Two, so that the server does not wait for the relay.
		while (work->outstanding() < 2 && !work->broken())
		{
			bool report = reports.due(now, open == 0);

			// A report that claims costs hardly more, and need not wait for a notification, which the server gathers.
			// Also the next of the keys that are free now can be claimed by it.
			if (report && (keys_are_free || appetite.idle()))
			{
				appetite.notified();
				keys_are_free = reports.size() > Reports::most;
			}
			auto next_claim = plan(Clock::now());
			// A claim that is to fail for one message only fails by itself.
			if (report && next_claim && most_readable == 1)
				next_claim.reset();
			if (report)
				send_report(std::move(next_claim));
			else if (next_claim)
				send_claim(std::move(*next_claim));
			else
				break;
		}
		work->flush();
		listener->flush();
	}
	in_flight.clear();
	is_listening = false;
	show_metrics();
	has_ended = true;
}

void
Source::wait(Clock::time_point now)
{
	std::vector<pollfd> waits{{inbox->box.descriptor(), POLLIN, 0}};

	for (Connection *connection : {work.get(), listener.get()})
	{
		if (connection == nullptr)
			continue;
		if (auto interest = connection->interest())
			waits.push_back(*interest);
	}
	bool answered = (work && work->answered()) || (listener && listener->answered());
	auto pause = answered ? 0ms : std::chrono::ceil<std::chrono::milliseconds>(next(now) - now);
	poll(waits.data(), waits.size(), static_cast<int>(std::clamp<int64_t>(pause.count(), 0, 10'000)));
}

Clock::time_point
Source::next(Clock::time_point now) const
{
	auto next = ticked + tick;

	if (stop_at && !given_up)
		next = std::min(next, *stop_at);
	if (!work)
		return std::min(next, connect_at);
	if (work->broken() || listener->broken() || useless)
		return now;
	// Only what is done then: any other time that has passed would be looked at without a pause.
	if (working() && is_listening)
	{
		if (appetite.idle())
			next = std::min(next, polled + my_settings.poll_interval);
		if (auto due = reports.due_at(); due && work->outstanding() < 2)
			next = std::min(next, *due);
		if (claim_after > now)
			next = std::min(next, claim_after);
	}
	return std::max(next, now);
}

void
Source::take_inbox()
{
	inbox->box.take(events);
	for (auto &event : events)
	{
		if (auto *result = std::get_if<Result>(&event))
			on(std::move(*result));
		else if (auto *stop = std::get_if<StopBy>(&event))
			begin_stop(stop->when);
		else if (auto *other = std::get_if<std::shared_ptr<const Routing>>(&event))
			reroute_now(std::move(*other));
	}
}

void
Source::reroute_now(std::shared_ptr<const Routing> other)
{
	routing = std::move(other);
	for (const auto &[name, outlet] : routing->outlets)
		outlet->watch(inbox);
}

// ---------------------------------------------------------------- connections

void
Source::connect(Clock::time_point now)
{
	if (!work && now >= connect_at)
	{
		auto wake = [box = inbox] { box->nudge(); };

		work = std::make_unique<Connection>(my_settings.dsn, wake);
		listener = std::make_unique<Connection>(my_settings.dsn, wake);
	}
	if (!work || is_connected)
		return;
	// Both are looked at, so that the failure of either is seen.
	bool first = work->connected(), second = listener->connected();
	if (!first || !second)
		return;
	is_connected = true;
	set_up();
	listen();
	read_rights();
}

// Against what the role or the database may have set: the listener is idle for long, and with array_nulls off NULL
// would be a text.
void
Source::set_up()
{
	for (Connection *connection : {work.get(), listener.get()})
		connection->send("SELECT pg_catalog.set_config('idle_session_timeout', '0', false), "
						 "pg_catalog.set_config('array_nulls', 'on', false)",
						 {}, {});
}

void
Source::listen()
{
	listener->send("LISTEN outbox_pending", {}, [this](Rows rows) {
		if (!rows.ok())
		{
			useless = true;
			state.problem = rows.trouble().text;
			return refused("could not listen", rows);
		}
		log(Level::info, "connected; listening", {{"source", my_settings.name}});
		is_listening = true;
		if (state.problem != refusal)
			state.problem.clear();
		show_metrics();
	});
}

void
Source::lost_connection(Clock::time_point now)
{
	if (!useless)
	{
		const Trouble &why = work->broken() ? work->why() : listener->why();
		const std::string_view what = why.refused() ? "the database refuses the relay" : "the database is away";

		if (is_news(what, why.text) || is_listening)
			log(why.refused() ? Level::error : Level::warning, what,
				{{"source", my_settings.name}, {"code", why.code}, {"error", why.text}});
		state.problem = why.said();
	}
	work.reset();
	listener.reset();
	is_connected = is_listening = status_sent = metrics_sent = useless = false;
	renewing = 0;
	reports.disconnected();
	appetite.disconnected();
	asked = 0;
	// What was being released may be, or not.
	releases.clear();
	unreleased.clear();
	unlifted.clear();
	for (const auto &[number, message] : in_flight)
	{
		if (message.phase == Phase::releasing)
			releases[0ms].push_back(number);
		else if (message.phase == Phase::lifting)
			unlifted.push_back(number);
	}
	pause = std::min<std::chrono::milliseconds>(pause == 0ms ? 100ms : pause * 2, 5000ms);
	connect_at = now + pause;
	show_metrics();
}

// Logs that the server answered a statement with an error.
void
Source::refused(std::string_view what, const Rows &rows)
{
	const Trouble trouble = rows.trouble();

	if (is_news(what, trouble.text))
		log(Level::error, what, {{"source", my_settings.name}, {"code", trouble.code}, {"error", trouble.text}});
}

// Whether to log it: the same problem is logged once a minute.
bool
Source::is_news(std::string_view what, const std::string &text)
{
	Logged &last = logged[std::string(what)];

	if (last.text == text && Clock::now() < last.again)
		return false;
	last = {text, Clock::now() + same_problem_pause};
	return true;
}

// What the role may read beside its work, which is asked first, so that no refusal is in the server's log.
void
Source::read_rights()
{
	orderings_at = Clock::now();
	listener->send("SELECT c.relname::text, pg_catalog.has_table_privilege(c.oid, 'SELECT') FROM pg_catalog.pg_class c "
				   "WHERE c.relnamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace('outbox') "
				   "AND c.relname IN ('queues', 'status')",
				   {}, [this](Rows rows) {
					   readable.clear();
					   for (int row = 0; rows.ok() && row < rows.count(); row++)
					   {
						   if (rows.boolean(row, 1))
							   readable.insert(rows.text(row, 0));
					   }
					   if (readable.contains("queues"))
						   read_orderings();
					   else if (my_settings.queues.front() == "*")
						   state.problem =
							   "queues = [\"*\"] needs the right to read outbox.queues (GRANT outbox_readonly)";
				   });
}

// Whether a queue keeps its keys in order. Without the right to ask, every numbered message is kept in order.
void
Source::read_orderings()
{
	listener->send("SELECT queue, ordering FROM outbox.queues", {}, [this](Rows rows) {
		if (!rows.ok())
			return;
		size_t before = orderings.size();
		orderings.clear();
		for (int row = 0; row < rows.count(); row++)
			orderings.emplace(rows.text(row, 0), rows.text(row, 1));
		if (my_settings.queues.front() == "*")
			std::erase_if(unknown_queues, [this](const auto &one) { return !orderings.contains(one.first); });
		if (my_settings.queues.front() == "*" && orderings.size() != before)
			appetite.notified();
	});
}

void
Source::read_status()
{
	status_sent = true;
	status_at = Clock::now();
	listener->send(
		"SELECT s.queue, s.due_unleased_count::int8, s.leased_count::int8, s.scheduled_count::int8, s.dead_count::int8, "
		"s.expired_lease_count::int8, s.oldest_due_age_seconds::float8, s.paused, "
		"(SELECT pg_catalog.count(*) FROM outbox.blocked_keys b WHERE b.queue = s.queue AND b.reason = 'dead') "
		"FROM outbox.status s ORDER BY s.queue",
		{}, [this](Rows rows) {
			status_sent = false;
			state.queues.clear();
			for (int row = 0; rows.ok() && row < rows.count(); row++)
				state.queues.push_back({.queue = rows.text(row, 0),
										.due = rows.int8(row, 1),
										.leased = rows.int8(row, 2),
										.scheduled = rows.int8(row, 3),
										.dead = rows.int8(row, 4),
										.expired = rows.int8(row, 5),
										.oldest_due_seconds = rows.null(row, 6) ? 0 : rows.float8(row, 6),
										.paused = rows.boolean(row, 7),
										.blocked_keys = rows.int8(row, 8)});
		});
}

// Ahead of any scrape, which waits for no database.
void
Source::read_metrics()
{
	metrics_sent = true;
	metrics_at = Clock::now();
	listener->send("SELECT outbox.prometheus()", {}, [this](Rows rows) {
		metrics_sent = false;
		if (!hidden)
			observers.metrics.database(my_settings.name, rows.ok() ? rows.text(0, 0) : "");
	});
}

// ---------------------------------------------------------------- the end

void
Source::begin_stop(Clock::time_point until)
{
	bool first = !stop_at;

	stop_at = until;
	if (!first)
		return;
	chains.clear();
	std::set<std::shared_ptr<Outlet>> outlets;
	for (auto &[number, message] : in_flight)
	{
		if (message.phase == Phase::waiting || message.phase == Phase::lifting)
			release(number, 0ms);
		else if (message.phase == Phase::open && message.outlet)
			outlets.insert(message.outlet);
	}
	for (const auto &outlet : outlets)
		outlet->withdraw_all(inbox);
}

// What the sinks have not answered by now is reported as it is: tried, with a result that is not known.
void
Source::give_up()
{
	if (given_up)
		return;
	given_up = true;
	std::vector<uint64_t> unanswered;
	for (const auto &[number, message] : in_flight)
	{
		if (message.phase == Phase::open)
			unanswered.push_back(number);
	}
	for (uint64_t number : unanswered)
	{
		Result result{.number = number,
					  .verdict = Verdict::try_again,
					  .answer = {},
					  .handed = Clock::now(),
					  .answered = Clock::now()};

		result.answer = {.code = "SINK_STOPPED", .text = "the relay stopped before the sink had answered"};
		on(std::move(result));
	}
}

bool
Source::done(Clock::time_point now) const
{
	constexpr auto last_report = 5s; // after the grace, for what has to be recorded

	return stop_at && ((in_flight.empty() && (!work || work->outstanding() == 0)) || now >= *stop_at + last_report ||
					   (now >= *stop_at && !working()));
}

void
Source::show_metrics()
{
	if (hidden)
		return;
	observers.metrics.source_up(my_settings.name, is_listening);
	observers.metrics.in_flight(my_settings.name, in_flight.size());
	if (!is_listening)
		observers.metrics.database(my_settings.name, {});
}

void
Source::show(Clock::time_point now)
{
	if (hidden)
		return;
	state.connected = working();
	state.listening = is_listening;
	state.in_flight = in_flight.size();
	state.unrecorded = working() ? 0 : reports.size();
	show_metrics();
	observers.board.put(my_settings.name, state);
	if (!working() || !is_listening)
		return;
	if (now - orderings_at >= orderings_interval)
		read_rights();
	if (observers.board.watched() && readable.contains("status") && !status_sent && now - status_at >= status_interval)
		read_status();
	if (my_settings.database_metrics && readable.contains("status") && !metrics_sent &&
		now - metrics_at >= metrics_interval)
		read_metrics();
}

} // namespace relay
