// Workers: claim, deliver, report, in all the ways there are, with the same few names, so
// that only the token tells whose a lease is. They stall past their leases and report all
// the same, report what they reported before, and what was rolled back.

#include <deque>
#include <memory>

#include "clients.h"

namespace {

class Worker : public Actor {
public:
	explicit Worker(Client &of) : Actor(of), name("w" + std::to_string(random.below(2))) {}

	void step(Session &session) override
	{
		pause_ms(random.between(0, 15));
		if (random.chance(15) && !old.empty())
			report_old(session);
		if (held.empty())
			take(session);
		else
			deal_with(session);
	}

private:
	std::string name;
	std::vector<Lease> held;
	std::deque<Lease> old; // completed, lost, given back, or never really given

	void forget(const std::vector<Lease> &leases)
	{
		for (const Lease &lease : leases)
			old.push_back(lease);
		while (old.size() > 30)
			old.pop_front();
	}

	int lease_ms() { return random.pick(std::vector<int>{20, 50, 100, 200, 300, 1000}); }

	std::string state()
	{
		int n = random.below(100);

		return n < 55 ? "DISPATCHED" : n < 92 ? "RETRYABLE" : "FAILED";
	}

	std::vector<std::string> states(size_t count)
	{
		std::vector<std::string> result(count);

		for (std::string &one : result)
			one = state();
		return result;
	}

	void keep(const std::vector<Lease> &leases, Ended how)
	{
		if (how == Ended::committed)
			held.insert(held.end(), leases.begin(), leases.end());
		else
			forget(leases);
	}

	void take(Session &session)
	{
		int batch = random.between(1, 6);

		if (random.chance(70))
		{
			keep(claim(session, name, batch, lease_ms(), random_queues()), Ended::committed);
			return;
		}
		session.begin(isolation());

		std::vector<Lease> leases;

		// More than one: what it took is behind the next one, and back if it is rolled back.
		for (int i = random.between(1, 2); i > 0 && !session.failed(); i--)
			for (const Lease &lease :
				 random.chance(70) ? claim(session, name, batch, lease_ms(), random_queues()) : send(session))
				leases.push_back(lease);
		keep(leases, end_somehow(session));
	}

	std::vector<Lease> send(Session &session)
	{
		static int messages = 0;
		std::string tag = client.recorder.client() + "." + std::to_string(++messages);
		std::string queue = random_queue();
		Fields item = {{"tag", tag}, {"queue", queue}};

		if (has_keys(queue))
			item["partition_key"] = random_partition_key(queue);
		return leases_in(
			session.call("enqueue_and_claim", {{"worker", name}},
						 "SELECT outbox_id AS id, sequence_id AS number, created::int, lease_token AS token, "
						 "(extract(epoch FROM lease_expires_at) * 1000000)::bigint AS expires FROM "
						 "outbox.enqueue_and_claim(" +
							 quoted(name) + ", 'e', '{\"tag\": \"" + tag + "\"}', queue => " + quoted(queue) +
							 (item.has("partition_key") ? ", partition_key => " + quoted(item["partition_key"]) : "") +
							 ", lease => '" + std::to_string(lease_ms()) + " ms')",
						 {item}));
	}

	void deal_with(Session &session)
	{
		int what = random.below(100);

		if (random.chance(20))
			pause_ms(random.between(20, 400)); // many leases are over then
		if (what < 20)
			report_and_take(session);
		else if (what < 45)
			report_in_transaction(session);
		else if (what < 60)
			renew(session);
		else if (what < 70)
			give_back(session);
		else if (what < 75)
			drop_all();
		else
		{
			std::vector<Lease> mine = all_held();

			complete_batch(session, name, mine, states(mine.size()));
		}
	}

	// From here on they are old: whatever comes of it, somebody may try them again.
	std::vector<Lease> all_held()
	{
		std::vector<Lease> mine;

		mine.swap(held);
		forget(mine);
		return mine;
	}

	void drop_all() { all_held(); }

	void complete(Session &session, const Lease &lease)
	{
		std::string how = state();
		std::vector<Fields> items = items_of(session, {lease}, {how});

		session.call("complete", {{"worker", name}},
					 "SELECT attempt_no AS no, recorded FROM outbox.complete(" + quoted(lease.id) + ", " +
						 quoted(lease.token) + ", " + quoted(name) + ", " + quoted(how) + ", reference => " +
						 quoted(items[0]["reference"]) + ", latency_ms => 3)",
					 items);
	}

	void report_and_take(Session &session)
	{
		std::vector<Lease> mine = all_held();
		std::vector<Fields> items = items_of(session, mine, states(mine.size()));
		int batch = random.between(1, 6);
		Answer answer =
			session.call("complete_and_claim", {{"worker", name}, {"batch", std::to_string(batch)}},
						 "SELECT kind, outbox_id AS id, attempt_no AS no, recorded, error, lease_token AS "
						 "token, queue, "
						 "(extract(epoch FROM lease_expires_at) * 1000000)::bigint AS expires, attempt_count AS "
						 "count, "
						 "payload->>'tag' AS tag FROM outbox.complete_and_claim(" +
							 report_arguments(name, items) + ", batch_size => " + std::to_string(batch) +
							 ", lease => '" + std::to_string(lease_ms()) + " ms', queues => " + random_queues() + ")",
						 items);

		for (const Row &row : answer.rows)
			if (row[0] == "claimed")
				held.push_back({*row[1], *row[5]});
	}

	// What was reported and rolled back can be reported again.
	void report_in_transaction(Session &session)
	{
		std::vector<Lease> mine = all_held();

		session.begin(isolation());
		if (random.chance(50))
			complete_batch(session, name, mine, states(mine.size()));
		else
			for (const Lease &lease : mine)
			{
				int from = session.savepoint();

				complete(session, lease);
				if (session.failed() || random.chance(10))
					session.rollback_to(from);
			}
		// In the place of what it has just ended; that is back if this is rolled back.
		std::vector<Lease> taken;

		if (!session.failed() && random.chance(40))
			taken = claim(session, name, random.between(1, 6), lease_ms(), random_queues());

		Ended how = end_somehow(session);

		keep(taken, how);
		if (how == Ended::rolled_back && random.chance(50))
			held = mine;
	}

	// Its answers are of no interest: what is left of a lease shows when it is reported.
	void ask_for_leases(Session &session, const std::string &verb, const std::string &columns, const std::string &last)
	{
		std::vector<Fields> items = items_of(session, held, std::vector<std::string>(held.size()));
		bool alone = random.chance(60);

		if (!alone)
			session.begin(isolation());
		session.call(verb, {{"worker", name}},
					 "SELECT outbox_id AS id, " + columns + ", error FROM outbox." + verb + "(" + quoted(name) + ", " +
						 column_of(items, "id", "uuid") + ", " + column_of(items, "token", "uuid") + ", '" + last +
						 "')",
					 items);
		if (!alone)
			end_somehow(session);
	}

	void renew(Session &session)
	{
		ask_for_leases(session, "renew", "(extract(epoch FROM lease_expires_at) * 1000000)::bigint AS expires",
					   std::to_string(lease_ms()) + " ms");
	}

	void give_back(Session &session)
	{
		ask_for_leases(session, "release", "next_attempt_at", std::to_string(random.below(20)) + " ms");
		if (random.chance(80))
			all_held();
	}

	void report_old(Session &session)
	{
		Lease lease = random.pick(old);

		if (random.chance(50))
			complete(session, lease);
		else
			complete_batch(session, name, {lease}, {state()});
	}
};

} // namespace

std::unique_ptr<Actor>
make_worker(Client &client)
{
	return std::make_unique<Worker>(client);
}
