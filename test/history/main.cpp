// The driver: rounds of load and faults, each ended by a drain and judged by the checks.
//
//   history run                run, as the environment says
//   history check FILE         judges a history that was kept
//   history client ...         what the driver starts
//
// Environment: SEED, ROUNDS or MINUTES, ROUND_SECONDS of load in a round, HISTORY_FOLDER for the
// files, REPLAY (the command that a failure names); see also server.h.
//
// A round is made by its own seed, SEED and its number less one: who does what, and what
// befalls them, is drawn by it. Odd seeds have crashes; of four in a row one has nothing that
// lowers the scan floors, so that what lies below them stays there. It is not possible to repeat a
// schedule, but mostly the seed is enough to see the same again.

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>

#include "checks.h"
#include "clients.h"
#include "faults.h"
#include "server.h"

namespace {

long
from_environment(const char *name, long otherwise)
{
	const char *value = std::getenv(name);

	return value != nullptr && *value != '\0' ? std::stol(value) : otherwise;
}

std::string
text_from_environment(const char *name, const std::string &otherwise)
{
	const char *value = std::getenv(name);

	return value != nullptr && *value != '\0' ? value : otherwise;
}

// ---- reports

bool
mentions(const std::string &line, const Violation &violation)
{
	return std::any_of(violation.about.begin(), violation.about.end(), [&](const std::string &word) {
		if (word.empty())
			return false;

		// client/transaction: its lines have them in columns of their own.
		size_t slash = word.find('/');

		if (slash != std::string::npos)
			return line.find('\t' + word.substr(0, slash) + '\t' + word.substr(slash + 1) + '\t') != std::string::npos;
		return line.find("=" + word + "\t") != std::string::npos || line.find("=" + word + "\n") != std::string::npos;
	});
}

void
print(const Violations &found, const std::vector<std::string> &lines)
{
	constexpr size_t most = 5, most_lines = 40;

	for (size_t i = 0; i < found.size() && i < most; i++)
	{
		size_t shown = 0;

		std::cout << "# " << found[i].rule << ": " << found[i].what << "\n";
		for (const std::string &line : lines)
			if (mentions(line, found[i]) && shown++ < most_lines)
				std::cout << "#   " << line;
	}
	if (found.size() > most)
		std::cout << "# and " << found.size() - most << " more\n";
}

std::vector<Event>
events_in(const std::string &path)
{
	std::ifstream in(path);

	return read_events(in);
}

// All files of a folder, in order of time.
std::vector<Event>
gathered(const std::string &folder)
{
	std::vector<Event> events;

	for (const auto &entry : std::filesystem::directory_iterator(folder))
		for (Event &event : events_in(entry.path().string()))
			events.push_back(event);
	std::stable_sort(events.begin(), events.end(), [](const Event &a, const Event &b) { return a.at < b.at; });
	return events;
}

bool
judge(const std::vector<Event> &events, History &history)
{
	history = history_of(events);

	Violations found = check(history);
	std::vector<std::string> lines;

	if (found.empty())
		return true;
	for (const Event &event : events)
		lines.push_back(line_of(event));
	print(found, lines);
	return false;
}

// ---- what came up

std::map<std::string, long> seen;

void
count(const History &history)
{
	for (const Transaction &transaction : history.transactions)
	{
		bool own = !transaction.automatic && !transaction.calls.empty();

		seen["transactions"]++;
		seen["transactions that were rolled back"] += own && transaction.ended_as == "rolledback";
		seen["prepared transactions"] += !transaction.gid.empty() && transaction.ended_as == "prepared";
		seen["transactions whose end nobody was told"] +=
			transaction.ended == never && transaction.commit_asked != never;
		for (const Call &call : transaction.calls)
		{
			seen["calls of " + call.verb] += call.ok();
			seen["calls undone by a savepoint"] += call.undone;
			for (const Fields &row : call.rows)
			{
				seen["refused reports"] += row.text("error") == "P7002";
				seen["repeated keys"] += row.text("created") == "0";
			}
		}
	}
	for (const Event &event : history.others)
	{
		seen["attempts"] += event.kind == "attempt";
		if (event.kind == "audit")
			seen["audited: " + event.fields.text("event")]++;
		seen["broken leases"] += event.fields.text("error_code") == "LEASE_BROKEN";
		seen["releases that counted as a try"] += event.fields.text("error_code") == "RELEASES_EXHAUSTED";
		seen["lost leases"] += event.fields.text("error_code") == "LEASE_EXPIRED";
		seen["crashes"] += event.kind == "crash";
		if (event.kind == "fault")
			seen["fault: " + event.fields.text("what")]++;
	}
}

// What even a short run must have, and this one did not yet.
std::vector<std::string>
not_seen()
{
	static const std::vector<std::string> needed = {"audited: ATTEMPT_COMPLETED",
													"audited: LEASE_BROKEN",
													"audited: LEASE_CLAIMED",
													"audited: LEASE_EXPIRED_REPAIRED",
													"audited: LEASE_LOST_REFUSED",
													"audited: LEASE_RELEASED",
													"audited: LEASE_RENEWED",
													"audited: MESSAGE_CANCELLED",
													"audited: MESSAGE_REPLAYED",
													"broken leases",
													"calls of break",
													"calls of cancel",
													"calls of cancel_many",
													"calls of claim",
													"calls of complete",
													"calls of complete_and_claim",
													"calls of complete_batch",
													"calls of enqueue",
													"calls of enqueue_and_claim",
													"calls of enqueue_batch",
													"calls of finish",
													"calls of release",
													"calls of renew",
													"calls of repair",
													"calls of replay",
													"calls of replay_many",
													"calls of reschedule",
													"calls of stats",
													"calls of unblock",
													"calls undone by a savepoint",
													"crashes",
													"fault: kill a client",
													"dead letters that were told",
													"handled messages",
													"handlers that failed",
													"fault: stop",
													"lost leases",
													"prepared transactions",
													"refused reports",
													"releases that counted as a try",
													"repeated keys",
													"sealed attempts",
													"sealed messages",
													"transactions that were rolled back",
													"transactions whose end nobody was told"};
	std::vector<std::string> missing;

	for (const std::string &what : needed)
		if (seen[what] == 0)
			missing.push_back(what);
	return missing;
}

// False when something is missing.
bool
report_seen()
{
	const std::vector<std::string> missing = not_seen();

	for (const auto &[what, times] : seen)
		std::cout << "# " << what << ": " << times << "\n";
	for (const std::string &what : missing)
		std::cout << "# did not come up: " << what << "\n";
	return missing.empty();
}

// ---- a round

struct Round {
	std::string name; // what is its own begins with it
	std::string folder;
	uint64_t seed;
	int64_t seconds;
};

constexpr const char *limit = "3"; // of the queue `limited`

// It is told of what dies in all others, and handles that by itself.
void
make_dead_letter_queue(Server &server)
{
	server.must("CREATE TABLE public.told (outbox_id text)");
	server.must("CREATE FUNCTION public.hear(m outbox.claimed) RETURNS void LANGUAGE sql AS "
				"$$ INSERT INTO public.told VALUES (m.payload ->> 'outbox_id') $$");
	server.must(
		"SELECT outbox.create_queue('told', max_attempts => NULL, repair_delay => '0', handler => 'public.hear')");
}

void
make_queues(Server &server)
{
	server.must(
		"SELECT outbox.create_queue('plain', dead_letter_queue => 'told', max_attempts => 5, lease => '300 ms', "
		"backoff_base => '5 ms', "
		"backoff_cap => '50 ms', repair_delay => '0', max_releases => 1, priority_aging => '50 ms')");
	server.must(
		"SELECT outbox.create_queue('numbered', dead_letter_queue => 'told', max_attempts => 8, ordering => 'numbered', "
		"backoff_base => '5 ms', "
		"backoff_cap => '50 ms', repair_delay => '20 ms')");
	server.must(
		"SELECT outbox.create_queue('ordered', dead_letter_queue => 'told', max_attempts => 5, ordering => 'fifo', "
		"backoff_base => '5 ms', backoff_cap => '50 ms', repair_delay => '0')");
	server.must(
		"SELECT outbox.create_queue('strict', dead_letter_queue => 'told', max_attempts => 3, ordering => 'fifo', on_dead_head => 'block', "
		"backoff_base => '5 ms', backoff_cap => '50 ms', repair_delay => '0', max_releases => 2)");
	server.must(
		"SELECT outbox.create_queue('limited', dead_letter_queue => 'told', max_attempts => 5, backoff_base => '5 ms', "
		"backoff_cap => '50 ms', repair_delay => '0', max_in_flight => " +
		std::string(limit) + ")");
}

// It fails, hangs for a moment, or ends the message, as that says; it leaves an effect all the same, unless that is
// undone.
void
make_handler(Server &server)
{
	server.must("CREATE TABLE public.effects (outbox_id uuid)");
	server.must("CREATE FUNCTION public.handle(m outbox.claimed) RETURNS void LANGUAGE plpgsql AS $$ BEGIN "
				"INSERT INTO public.effects VALUES (m.outbox_id); "
				"CASE m.payload ->> 'do' WHEN 'sleep' THEN PERFORM pg_sleep(0.02); "
				"WHEN 'fail' THEN RAISE 'fail'; "
				"WHEN 'end' THEN RAISE 'end' USING ERRCODE = 'P8000'; "
				"WHEN 'retry' THEN IF random() < 0.5 THEN RAISE 'retry' USING ERRCODE = '40001'; END IF; "
				"ELSE NULL; END CASE; END $$");
	server.must(
		"SELECT outbox.create_queue('handled', dead_letter_queue => 'told', max_attempts => 4, ordering => 'fifo', backoff_base => '5 ms', "
		"backoff_cap => '50 ms', repair_delay => '0', handler => 'public.handle')");
}

// A message has one effect if it was handled, and none if not.
bool
effects_hold(Server &server)
{
	std::string wrong = server.value(
		"SELECT count(*) FROM outbox.messages m WHERE queue = 'handled' AND "
		"(SELECT count(*) FROM public.effects e WHERE e.outbox_id = m.outbox_id) <> "
		"(SELECT count(*) FROM outbox.attempts a WHERE a.outbox_id = m.outbox_id AND state = 'DISPATCHED')");

	for (auto [what, state] : {std::pair{"handled messages", "DISPATCHED"}, {"handlers that failed", "RETRYABLE"}})
		seen[what] = std::stoi(server.value("SELECT count(*) FROM outbox.attempts a JOIN outbox.messages USING "
											"(outbox_id) WHERE queue = 'handled' AND state = " +
											quoted(state)));
	if (wrong != "0")
		std::cout << "# messages whose effect is not what the ledger says: " << wrong << "\n";
	return wrong == "0";
}

// Each message that died was told of once, and no other.
bool
notices_hold(Server &server)
{
	std::string wrong = server.value(
		"SELECT count(*) FROM (SELECT outbox_id::text AS id FROM outbox.attempts JOIN outbox.messages USING (outbox_id) "
		"WHERE state = 'FAILED' AND queue <> 'told') dead "
		"FULL JOIN (SELECT idempotency_key AS id, count(*) AS n FROM outbox.messages WHERE queue = 'told' GROUP BY 1) notice USING (id) "
		"FULL JOIN (SELECT outbox_id AS id, count(*) AS n FROM public.told GROUP BY 1) heard USING (id) "
		"WHERE dead.id IS NULL OR notice.n IS DISTINCT FROM 1 OR heard.n IS DISTINCT FROM 1");

	seen["dead letters that were told"] = std::stoi(server.value("SELECT count(*) FROM public.told"));
	if (wrong != "0")
		std::cout << "# dead letters that were not told once: " << wrong << "\n";
	return wrong == "0";
}

// What was sealed is there as it was, and nothing came later.
bool
seals_hold(Server &server)
{
	std::string wrong =
		server.value("SELECT coalesce(string_agg(seal_no || ': ' || problem, '; ') FILTER (WHERE NOT ok), "
					 "'none') FROM outbox.verify_seals()");

	for (const char *table : {"messages", "attempts"})
		seen[std::string("sealed ") + table] =
			std::stol(server.value(std::string("SELECT coalesce(sum(") + table + "), 0) FROM outbox.seals"));
	seen["seals"] = std::stol(server.value("SELECT count(*) FROM outbox.seals"));
	if (wrong != "none")
		std::cout << "# seals that are not as the tables: " << wrong << "\n";
	return wrong == "none";
}

void
note_state(Server &server, Recorder &recorder)
{
	std::string error = std::to_string(server.clock_error());

	recorder.write(0, "clock", {{"from", error}, {"to", error}});
	recorder.write(0, "queue", {{"queue", "plain"}, {"max_attempts", "5"}, {"max_releases", "1"}});
	recorder.write(0, "queue", {{"queue", "numbered"}, {"max_attempts", "8"}});
	recorder.write(0, "queue", {{"queue", "ordered"}, {"max_attempts", "5"}, {"ordering", "fifo"}});
	recorder.write(0, "queue",
				   {{"queue", "strict"},
					{"max_attempts", "3"},
					{"max_releases", "2"},
					{"ordering", "fifo"},
					{"on_dead_head", "block"}});
	recorder.write(0, "queue", {{"queue", "limited"}, {"max_attempts", "5"}, {"max_in_flight", limit}});
}

// Some of the queues are audited, other ones in the next round.
void
choose_audited(Server &server, const Round &round, Recorder &recorder)
{
	static const std::vector<std::set<std::string>> choices = {
		{"plain", "ordered"}, {"numbered", "limited", "strict"}, {"plain", "limited"}};
	const std::set<std::string> &chosen = choices[round.seed % choices.size()];

	for (const char *queue : all_queues)
	{
		bool is_audited = chosen.count(queue) > 0;

		server.must("SELECT outbox.alter_queue(" + quoted(queue) + ", audit_events => " +
					(is_audited ? "true" : "false") + ")");
		if (is_audited)
			recorder.write(0, "audited", {{"queue", queue}});
	}
}

void
load(Server &server, const Round &round, Recorder &recorder)
{
	Random random(round.seed);
	Clients clients(round.folder, round.name, round.seed);
	Faults faults(server, clients, recorder, random, {round.seed % 2 == 1, server.has_clock() && random.chance(50)});

	for (auto [kind, count] : {std::pair{"producer", 4},
							   {"worker", 8},
							   {"repairer", 2},
							   {"operator", 1},
							   {"finisher", 1},
							   {"sender", 1},
							   {"sealer", 2}})
		for (int i = 0; i < count; i++)
			clients.start(kind);
	faults.run_until(now_us() + round.seconds * 1000000);
	faults.end();
}

void
write_rows(Recorder &recorder, const std::string &kind, const Answer &answer)
{
	for (const Row &row : answer.rows)
	{
		Fields fields;

		for (size_t i = 0; i < row.size(); i++)
			if (row[i])
				fields[answer.columns[i].name] = *row[i];
		recorder.add(0, kind, fields);
	}
	recorder.flush();
}

// In an ordered key only up to the first that is not due; unless the key is blocked, or is to be settled, which
// another session may just be doing.
constexpr const char *due_now =
	"SELECT p.outbox_id AS id, p.queue FROM outbox.pending p JOIN outbox.queues q USING (queue) "
	"WHERE q.handler IS NULL AND p.claimed_by IS NULL AND p.next_attempt_at <= clock_timestamp() AND NOT (q.ordering = 'fifo' "
	"AND p.partition_key IS NOT NULL AND (EXISTS (SELECT FROM outbox.key_marks m WHERE m.queue = p.queue "
	"AND m.partition_key = p.partition_key AND m.kind <> 'gap') OR EXISTS (SELECT FROM outbox.pending e "
	"WHERE e.queue = p.queue AND e.partition_key = p.partition_key AND e.sequence_id < p.sequence_id "
	"AND (e.claimed_by IS NOT NULL OR e.next_attempt_at > clock_timestamp()))))";

// No lease of that queue is out, and the background processes, which end some, have done so.
constexpr const char *limit_is_free =
	"SELECT NOT EXISTS (SELECT FROM outbox.pending WHERE queue = 'limited' AND claimed_by IS NOT NULL) "
	"AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type LIKE 'outbox%' AND state = 'active')";
constexpr const char *limit_is_used =
	"SELECT count(*) FROM outbox.pending WHERE queue = 'limited' AND claimed_by IS NOT NULL";

// Without faults everything must end. A claim that has room must return all that is due;
// nobody else claims now.
// Lost leases of handlers last a minute. What is leased behind the head of a key goes with it.
void
break_leases_of_handlers(Server &server)
{
	server.ask("SELECT outbox.break_lease(outbox_id, 'round over') FROM outbox.pending "
			   "WHERE queue IN ('handled', 'told') AND claimed_by IS NOT NULL AND NOT held_back");
}

void
drain(Server &server, Session &session, Recorder &recorder)
{
	constexpr int64_t most_us = 30000000; // in which no message ends, those that handlers end included
	int64_t last = now_us();
	int64_t broken = 0;
	long least = LONG_MAX;
	std::string worker = session.client();

	for (const char *queue : all_queues)
		session.call("resume", {{"queue", queue}}, "SELECT outbox.resume(" + quoted(queue) + ")");
	while (server.value("SELECT count(*) FROM pg_prepared_xacts") != "0")
		finish_prepared(session);
	for (;;)
	{
		long left = std::stol(server.value("SELECT count(*) FROM outbox.pending"));

		if (left < least)
			last = now_us();
		least = std::min(least, left);
		if (left == 0 || now_us() >= last + most_us)
			return;

		bool is_free = server.value(limit_is_free) == "t";
		Answer due = server.ask(due_now);
		std::vector<Lease> leases = claim(session, worker, 100000, 60000, each_queue);
		std::set<std::string> ids;

		for (const Lease &lease : leases)
			ids.insert(lease.id);
		// The claim had room for as many as the limit allows.
		is_free &= server.value(limit_is_used) != limit;
		std::erase_if(due.rows,
					  [&](const Row &row) { return ids.count(*row[0]) > 0 || (*row[1] == "limited" && !is_free); });
		write_rows(recorder, "left", due);
		if (!due.rows.empty())
			return;
		if (leases.empty())
		{
			unblock_one(session);
			if (now_us() > broken + 2000000)
			{
				break_leases_of_handlers(server);
				broken = now_us();
			}
			pause_ms(10);
			continue;
		}
		complete_batch(session, worker, leases, std::vector<std::string>(leases.size(), "DISPATCHED"));
	}
}

void
write_tables(Server &server, const std::string &round, Recorder &recorder)
{
	std::string mine = "payload->>'tag' LIKE " + quoted(round + ".%");

	write_rows(recorder, "message",
			   server.ask("SELECT outbox_id AS id, payload->>'tag' AS tag, queue, idempotency_key "
						  "AS key, partition_key, "
						  "sequence_id AS number, replay_of, CASE WHEN event_id::text LIKE "
						  "'00000000-0000-4000-8000-%' "
						  "THEN event_id END AS event FROM outbox.messages WHERE " +
						  mine));
	write_rows(recorder, "attempt",
			   server.ask("SELECT outbox_id AS id, attempt_no AS no, state, worker_id AS worker, "
						  "lease_token AS token, "
						  "reference, error_code, error_message, (extract(epoch FROM a.created_at) "
						  "* 1000000)::bigint AS created_at "
						  "FROM outbox.attempts a WHERE outbox_id IN (SELECT outbox_id FROM "
						  "outbox.messages WHERE " +
						  mine + ")"));
	write_rows(recorder, "audit",
			   server.ask("SELECT event, queue, worker_id AS worker, u.id, u.no, detail->>'replay_id' AS replay "
						  "FROM outbox.events, unnest(outbox_ids, attempt_nos) u (id, no) WHERE u.id IN (SELECT "
						  "outbox_id FROM outbox.messages WHERE " +
						  mine + ")"));
	write_rows(recorder, "pending", server.ask("SELECT outbox_id AS id FROM outbox.pending"));
}

void
run_round(Server &server, const Round &round)
{
	Recorder recorder(round.folder + "/driver", round.name + ".driver");
	Recorder last(round.folder + "/drain", round.name + ".drain");

	note_state(server, recorder);
	choose_audited(server, round, recorder);
	load(server, round, recorder);
	if (server.has_clock())
	{
		int64_t from = server.clock_error();

		// Whatever was to be at some time, is.
		server.set_clock(farthest_step + 60000000);
		recorder.write(0, "clock", {{"from", std::to_string(from)}, {"to", std::to_string(server.clock_error())}});
	}

	Session session(last, false);

	drain(server, session, recorder);
	write_tables(server, round.name, recorder);
}

// Whether all that it recorded is as it must be.
bool
round_holds(Server &server, const Round &round)
{
	History history;

	std::filesystem::create_directories(round.folder);
	run_round(server, round);

	std::vector<Event> events = gathered(round.folder);

	if (!judge(events, history) || !effects_hold(server) || !notices_hold(server) || !seals_hold(server))
	{
		std::ofstream out(round.folder + ".history");

		for (const Event &event : events)
			out << line_of(event);
		std::cout << "# the whole history, if the folder is kept: " << round.folder << ".history\n";
		return false;
	}
	count(history);
	std::cout << "# " << round.name << ", SEED=" << round.seed << ": " << history.transactions.size() << " transactions"
			  << std::endl;
	std::filesystem::remove_all(round.folder);
	return true;
}

// A round, and how to repeat it if it fails.
bool
try_round(Server &server, const Round &round)
{
	std::string again = "# to see it again: make history SEED=" + std::to_string(round.seed) +
						" ROUNDS=1 ROUND_SECONDS=" + std::to_string(round.seconds) + " KEEP=1 OUTBOX_KEEP=1\n";

	try
	{
		if (round_holds(server, round))
			return true;
	}
	catch (const std::exception &error)
	{
		std::cout << "# " << error.what() << "\n" << again << std::flush;
		throw;
	}
	std::cout << again;
	return false;
}

int
run()
{
	const uint64_t seed = static_cast<uint64_t>(from_environment("SEED", 1));
	const long minutes = from_environment("MINUTES", 0);
	const int64_t until = now_us() + minutes * 60000000;
	const long rounds = from_environment("ROUNDS", minutes > 0 ? 1000000 : 2);
	// What is rare may need more rounds, on a busy machine in particular.
	const long most_rounds = rounds < 2 ? rounds : 4 * rounds;
	const std::string folder = text_from_environment("HISTORY_FOLDER", "/tmp");
	Server server;

	server.start();
	server.must("CREATE EXTENSION outbox");
	server.must("SELECT * FROM outbox.maintain()");
	make_dead_letter_queue(server);
	make_queues(server);
	make_handler(server);
	for (long i = 0; i < most_rounds && (minutes == 0 || now_us() < until) && (i < rounds || !not_seen().empty()); i++)
	{
		std::string name = "r" + std::to_string(i + 1);

		if (!try_round(server, {name, folder + "/" + name, seed + static_cast<uint64_t>(i),
								from_environment("ROUND_SECONDS", 8)}))
			return 1;
	}
	return report_seen() || rounds < 2 ? 0 : 3;
}

int
check_file(const std::string &path)
{
	History history;

	return judge(events_in(path), history) ? 0 : 1;
}

} // namespace

int
main(int argc, char **argv)
{
	try
	{
		if (argc == 8 && std::strcmp(argv[1], "client") == 0)
			return run_client(argv[2], argv[3], argv[4], argv[5], std::stoull(argv[6]), std::stoi(argv[7]));
		if (argc == 3 && std::strcmp(argv[1], "check") == 0)
			return check_file(argv[2]);
		if (argc == 2 && std::strcmp(argv[1], "run") == 0)
			return run();
		std::cerr << "usage: history run | check FILE\n";
		return 2;
	}
	catch (const std::exception &error)
	{
		std::cerr << error.what() << std::endl;
		return 2;
	}
}
