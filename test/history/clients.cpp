// See clients.h: what all clients share, and those that have little to do.

#include "clients.h"

#include <csignal>
#include <ctime>
#include <memory>
#include <stdexcept>

namespace {

volatile std::sig_atomic_t asked_to_stop = 0;

void
stop(int)
{
	asked_to_stop = 1;
}

class Repairer : public Actor {
public:
	using Actor::Actor;
	void step(Session &session) override
	{
		bool alone = random.chance(60);

		pause_ms(random.between(5, 60));
		if (!alone)
			session.begin(isolation());
		session.call("repair", {{"worker", client.recorder.client()}},
					 "SELECT outbox_id AS id, attempt_no AS no, state, lost_by FROM "
					 "outbox.repair_expired_leases(" +
						 std::to_string(random.between(1, 20)) + ", " + quoted(client.recorder.client()) + ", " +
						 each_queue + ")");
		if (!alone)
			end_somehow(session);
	}
};

// Sends what the database handles by itself. None of it is in the history: what a handler did, and the ledger, are
// in the tables.
class Sender : public Actor {
public:
	using Actor::Actor;
	void step(Session &session) override
	{
		pause_ms(random.between(1, 30));
		session.ask(
			"SELECT outbox.enqueue('e', '{\"do\": \"" +
			random.pick(std::vector<std::string>{"write", "write", "write", "write", "sleep", "fail", "end", "retry"}) +
			"\"}', 'handled', partition_key => '" + std::to_string(random.below(5)) + "') FROM generate_series(1, " +
			std::to_string(random.between(1, 20)) + ")");
	}
};

// What is sealed is compared with the tables when the round is over.
class Sealer : public Actor {
public:
	using Actor::Actor;
	void step(Session &session) override
	{
		pause_ms(random.between(1, 200));
		session.ask("SELECT count(*) FROM outbox.seal()");
	}
};

class Finisher : public Actor {
public:
	using Actor::Actor;
	void step(Session &session) override
	{
		pause_ms(random.between(20, 200));
		finish_prepared(session);
	}
};

class Operator : public Actor {
public:
	using Actor::Actor;
	void step(Session &session) override
	{
		pause_ms(random.between(5, 40));
		look_at_counters(session);
		if (random.chance(8))
			set_paused(session, "resume");
		else if (random.chance(4))
			set_paused(session, "pause");
		else if (random.chance(30))
			cancel(session);
		else if (random.chance(20))
			cancel_many(session);
		else if (random.chance(20))
			unblock(session);
		else if (random.chance(20))
			break_lease(session);
		else if (random.chance(35))
			reschedule(session);
		else if (random.chance(40))
			replay(session);
		else if (random.chance(50))
			replay_many(session);
		else if (random.chance(2))
			session.call("reset", {}, "SELECT outbox.reset_stats()");
		else if (random.chance(2) && !client.floors_stay)
			session.call("maintain", {}, "SELECT count(*) AS actions FROM outbox.maintain()");
	}

private:
	void set_paused(Session &session, const std::string &verb)
	{
		std::string queue = random.pick(all_queues);

		session.call(verb, {{"queue", queue}}, "SELECT outbox." + verb + "(" + quoted(queue) + ")");
	}

	void unblock(Session &session)
	{
		session.begin(isolation());
		unblock_one(session);
		end_somehow(session);
	}

	void look_at_counters(Session &session)
	{
		session.call("stats", {},
					 "SELECT queue, stats_reset, enqueued, duplicates, claim_batches, claimed, "
					 "dispatched, failed, retryable, zombie_requeue, leases_lost, repaired, cancelled, "
					 "released, notified, optimistic, optimistic_delivered, optimistic_retried, optimistic_failed, "
					 "optimistic_lost, limited, latency_sum_ms FROM outbox.stats WHERE stats_reset IS NOT NULL");
	}

	static std::string one(Session &session, const std::string &sql)
	{
		Answer answer = session.ask(sql);

		return answer.ok() && !answer.rows.empty() ? *answer.rows[0][0] : "";
	}

	static std::string any_pending(Session &session, const std::string &condition)
	{
		return one(session, "SELECT outbox_id FROM outbox.pending WHERE queue NOT IN ('handled', 'told') AND (" +
								condition +
								")"
								" ORDER BY md5(outbox_id::text || clock_timestamp()) LIMIT 1");
	}

	void break_lease(Session &session)
	{
		std::string id = any_pending(session, random.chance(90) ? "claimed_by IS NOT NULL" : "true");
		std::string reason = session.name() + " breaks it";

		if (id.empty())
			return;
		session.begin(isolation());
		session.call("break", {{"id", id}, {"reason", reason}},
					 "SELECT outbox.break_lease(" + quoted(id) + ", " + quoted(reason) + ") AS no");
		end_somehow(session);
	}

	// To a time after the transaction, mostly, however that ends.
	void reschedule(Session &session)
	{
		std::string id = any_pending(session, random.chance(70) ? "claimed_by IS NULL" : "true");
		std::string due = "clock_timestamp() + " + quoted(std::to_string(random.below(800)) + " ms");
		std::string priority = random.chance(30) ? std::to_string(random.below(3)) : "NULL";

		if (id.empty())
			return;
		if (random.chance(50))
			session.begin(isolation());
		session.call("reschedule", {{"id", id}},
					 "SELECT (extract(epoch FROM outbox.reschedule(" + quoted(id) + ", " + due + ", " + priority +
						 ")) * 1000000)::bigint AS due");
		if (session.open())
			end_somehow(session);
	}

	void cancel(Session &session)
	{
		std::string id = any_pending(session, "true");
		std::string reason = session.name() + " does not want it";
		bool force = random.chance(50);

		if (id.empty())
			return;
		session.begin(isolation());
		session.call("cancel", {{"id", id}, {"force", force ? "1" : "0"}, {"reason", reason}},
					 "SELECT outbox.cancel(" + quoted(id) + ", " + quoted(reason) + (force ? ", true" : "") +
						 ") AS no");
		end_somehow(session);
	}

	// Not in SERIALIZABLE, where it may fail with 40001. Above READ COMMITTED it may choose of what was there a while
	// ago.
	void begin_many(Session &session)
	{
		session.begin(random.chance(50) ? "READ COMMITTED" : "REPEATABLE READ");
		if (random.chance(50))
		{
			session.ask("SELECT pg_current_snapshot()");
			pause_ms(random.between(1, 200));
		}
	}

	// Of this round.
	std::string many_arguments()
	{
		return ", event_type => " + quoted(client.round) + ", batch_size => " + std::to_string(random.between(1, 4)) +
			   ", dry_run => false";
	}

	void cancel_many(Session &session)
	{
		std::string queue = random_queue();
		std::string reason = session.name() + " does not want them";

		begin_many(session);
		session.call("cancel_many", {{"queue", queue}, {"reason", reason}},
					 "SELECT coalesce(sum(done), 0) AS done FROM outbox.cancel_many(" + quoted(queue) + ", " +
						 quoted(reason) + many_arguments() + (random.chance(50) ? ", force => true)" : ")"));
		end_somehow(session);
	}

	void replay_many(Session &session)
	{
		std::string queue = random_queue();

		begin_many(session);
		session.call("replay_many", {{"queue", queue}},
					 "SELECT coalesce(sum(done), 0) AS done FROM outbox.replay_many(" + quoted(queue) +
						 many_arguments() + (random.chance(50) ? ", error_code => 'CANCELLED'" : "") +
						 ", again => true)");
		// Only what the transaction itself has written is visible while that is in progress.
		if (!session.failed())
			session.call("replayed", {},
						 "SELECT outbox_id AS id, replay_id AS replay FROM outbox.replays "
						 "WHERE pg_xact_status(xmin::text::xid8) = 'in progress'");
		end_somehow(session);
	}

	void replay(Session &session)
	{
		std::string id = one(
			session, "SELECT outbox_id FROM outbox.dead_letters JOIN outbox.messages m USING (outbox_id) "
					 "WHERE m.payload->>'tag' LIKE " +
						 quoted(client.round + ".%") + " ORDER BY md5(outbox_id::text || clock_timestamp()) LIMIT 1");

		if (id.empty())
			return;
		session.begin(isolation());
		session.call("replay", {{"id", id}}, "SELECT outbox.replay(" + quoted(id) + ") AS id");
		end_somehow(session);
	}
};

std::unique_ptr<Actor>
make_actor(const std::string &kind, Client &client)
{
	if (kind == "producer")
		return make_producer(client);
	if (kind == "worker")
		return make_worker(client);
	if (kind == "repairer")
		return std::make_unique<Repairer>(client);
	if (kind == "operator")
		return std::make_unique<Operator>(client);
	if (kind == "sender")
		return std::make_unique<Sender>(client);
	if (kind == "sealer")
		return std::make_unique<Sealer>(client);
	if (kind == "finisher")
		return std::make_unique<Finisher>(client);
	throw std::runtime_error("no such client: " + kind);
}

std::string
array_of(const std::vector<std::string> &items, const std::string &type)
{
	std::string text = "'{";

	for (size_t i = 0; i < items.size(); i++)
		text += (i > 0 ? "," : "") + items[i];
	return text + "}'::" + type + "[]";
}

} // namespace

void
pause_ms(int ms)
{
	timespec time = {ms / 1000, ms % 1000 * 1000000L};

	nanosleep(&time, nullptr);
}

bool
stopping()
{
	return asked_to_stop != 0;
}

std::string
Actor::isolation()
{
	return random.pick(std::vector<std::string>{"READ COMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"});
}

std::string
Actor::random_queue()
{
	return random.pick(
		std::vector<std::string>{"plain", "plain", "numbered", "ordered", "ordered", "strict", "limited"});
}

// Keys are few, so that sessions meet over them; those of ordered queues are often empty.
std::string
Actor::random_partition_key(const std::string &queue)
{
	int keys = queue == "numbered" ? 3 : queue == "ordered" ? 12 : 5;

	return client.round + "." + queue[0] + std::to_string(random.below(keys));
}

std::string
Actor::random_queues()
{
	return random.pick(
		std::vector<std::string>{each_queue, "'{limited,strict,ordered,plain,numbered}'", "'{ordered,strict}'",
								 "'{limited,strict,ordered,plain,numbered}', queue_weights => '{1,1,2,3,1}'",
								 "'{ordered,strict}', queue_weights => '{1,1}'"});
}

Actor::Ended
Actor::end_somehow(Session &session)
{
	int how = random.below(client.floors_stay ? 88 : 100);

	if (random.chance(30))
		pause_ms(random.between(1, 30));
	else if (random.chance(12))
		pause_ms(random.between(50, 700));
	if (how < 70)
		return session.commit() ? Ended::committed : Ended::rolled_back;
	if (how < 88)
	{
		session.rollback();
		return Ended::rolled_back;
	}

	// Its name is unique, for the client's is.
	std::string gid = (random.chance(70) ? "c/" : "r/") + session.name();

	return session.prepare(gid) ? Ended::prepared : Ended::rolled_back;
}

int
run_client(const std::string &kind, const std::string &round, const std::string &name, const std::string &file,
		   uint64_t round_seed, int number)
{
	struct sigaction action = {};
	Recorder recorder(file, name);
	Client client{recorder, Random(round_seed * 1000 + static_cast<uint64_t>(number)), round, floors_stay(round_seed)};
	std::unique_ptr<Actor> actor = make_actor(kind, client);
	bool async = kind == "worker" && client.random.chance(50);

	action.sa_handler = stop;
	sigaction(SIGTERM, &action, nullptr);
	while (!stopping())
	{
		try
		{
			Session session(recorder, async);

			while (!stopping())
				actor->step(session);
		}
		catch (const Dead &)
		{
			pause_ms(20);
		}
	}
	return 0;
}

const std::vector<const char *> all_queues = {"plain", "numbered", "ordered", "strict", "limited"};

bool
has_keys(const std::string &queue)
{
	return queue != "plain" && queue != "limited";
}

std::vector<Lease>
leases_in(const Answer &answer)
{
	int id = answer.column("id"), token = answer.column("token");
	std::vector<Lease> leases;

	// enqueue_and_claim() gives no lease where claim() would not.
	for (const Row &row : answer.rows)
		if (row[static_cast<size_t>(token)])
			leases.push_back({*row[static_cast<size_t>(id)], *row[static_cast<size_t>(token)]});
	return leases;
}

std::vector<Lease>
claim(Session &session, const std::string &worker, int batch, int lease_ms, const std::string &queues)
{
	return leases_in(session.call("claim", {{"worker", worker}, {"batch", std::to_string(batch)}},
								  "SELECT outbox_id AS id, lease_token AS token, (extract(epoch FROM "
								  "lease_expires_at) * 1000000)::bigint AS expires, "
								  "attempt_count AS count, queue, payload->>'tag' AS tag FROM outbox.claim(" +
									  quoted(worker) + ", " + std::to_string(batch) + ", '" + std::to_string(lease_ms) +
									  " ms', " + queues + ")"));
}

static std::string
next_reference(const Session &session)
{
	static int last = 0;

	return session.client() + ":" + std::to_string(++last);
}

std::vector<Fields>
items_of(const Session &session, const std::vector<Lease> &leases, const std::vector<std::string> &states)
{
	std::vector<Fields> items;

	for (size_t i = 0; i < leases.size(); i++)
		items.push_back({{"id", leases[i].id},
						 {"token", leases[i].token},
						 {"state", states[i]},
						 {"reference", next_reference(session)}});
	return items;
}

std::string
column_of(const std::vector<Fields> &items, const std::string &name, const std::string &type)
{
	std::vector<std::string> values;

	for (const Fields &item : items)
		values.push_back(item.at(name));
	return array_of(values, type);
}

std::string
report_arguments(const std::string &worker, const std::vector<Fields> &items)
{
	return quoted(worker) + ", " + column_of(items, "id", "uuid") + ", " + column_of(items, "token", "uuid") + ", " +
		   column_of(items, "state", "outbox.attempt_state") + ", " + column_of(items, "reference", "text");
}

Answer
complete_batch(Session &session, const std::string &worker, const std::vector<Lease> &leases,
			   const std::vector<std::string> &states)
{
	std::vector<Fields> items = items_of(session, leases, states);

	return session.call("complete_batch", {{"worker", worker}},
						"SELECT outbox_id AS id, attempt_no AS no, recorded, error FROM outbox.complete_batch(" +
							report_arguments(worker, items) + ")",
						items);
}

void
unblock_one(Session &session)
{
	Answer keys = session.ask("SELECT queue, partition_key FROM outbox.key_marks WHERE kind = 'blocked' "
							  "ORDER BY md5(mark_id::text || clock_timestamp()) LIMIT 1");

	for (const Row &row : keys.rows)
		session.call("unblock", {{"queue", *row[0]}, {"partition_key", *row[1]}},
					 "SELECT outbox.unblock(" + quoted(*row[0]) + ", " + quoted(*row[1]) + ") AS id");
}

// One that somebody else is just finishing is busy or gone.
void
finish_prepared(Session &session)
{
	Answer gids = session.ask("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()");

	for (const Row &row : gids.rows)
	{
		std::string as = (*row[0])[0] == 'c' ? "commit" : "rollback";

		session.call("finish", {{"gid", *row[0]}, {"as", as}}, as + " PREPARED " + quoted(*row[0]));
	}
}
