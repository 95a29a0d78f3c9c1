// Producers: messages with and without keys and numbers, one or several a transaction, with
// savepoints, rolled back, left open for a while, or prepared.

#include <memory>

#include "clients.h"

namespace {

// In the history, and as an argument.
constexpr std::pair<const char *, const char *> optional_fields[] = {
	{"partition_key", "partition_key"}, {"key", "idempotency_key"}, {"event", "event_id"}};

class Producer : public Actor {
public:
	using Actor::Actor;

	void step(Session &session) override
	{
		pause_ms(random.between(0, 25));
		if (random.chance(40))
			enqueue(session);
		else
			transaction(session);
	}

private:
	int messages = 0;

	// Keys are few, so that sessions meet over them.
	Fields draft()
	{
		Fields message = {{"tag", client.recorder.client() + "." + std::to_string(++messages)}};
		int key = random.below(60);

		message["queue"] = random_queue();
		if (has_keys(message["queue"]))
			message["partition_key"] = random_partition_key(message["queue"]);
		if (random.chance(25))
			message["key"] = client.round + ".k" + std::to_string(key);
		else if (random.chance(10))
		{
			char event[64];

			std::snprintf(event, sizeof(event), "00000000-0000-4000-8000-%06d%06d",
						  std::stoi(client.round.substr(1)) % 1000000, key);
			message["event"] = event;
		}
		return message;
	}

	std::string arguments(const Fields &message)
	{
		std::string text = quoted(client.round) + ", '{\"tag\": \"" + message.text("tag") + "\"}', queue => " +
						   quoted(message.text("queue"));

		for (auto [field, name] : optional_fields)
			if (message.has(field))
				text += std::string(", ") + name + " => " + quoted(message.text(field));
		text += ", priority => " + std::to_string(random.chance(70) ? 0 : 5);
		return text;
	}

	void enqueue(Session &session)
	{
		Fields message = draft();
		std::string sql = arguments(message);

		if (random.chance(10))
			sql += ", deliver_at => clock_timestamp() + interval '" + std::to_string(random.below(300)) + " ms'";
		session.call("enqueue", {},
					 "SELECT outbox_id AS id, sequence_id AS number, created::int FROM outbox.enqueue(" + sql + ")",
					 {message});
	}

	void enqueue_batch(Session &session)
	{
		std::string queue = random_queue();
		std::vector<Fields> items;
		std::string json;

		for (int i = random.between(1, 5); i > 0;)
		{
			Fields message = draft();

			if (message["queue"] != queue)
				continue;
			json += std::string(json.empty() ? "" : ", ") + "{\"event_type\": \"" + client.round +
					"\", \"payload\": {\"tag\": \"" + message["tag"] + "\"}";
			for (auto [field, name] : optional_fields)
				if (message.has(field))
					json += std::string(", \"") + name + "\": \"" + message[field] + "\"";
			json += "}";
			items.push_back(message);
			i--;
		}
		session.call("enqueue_batch", {{"queue", queue}},
					 "SELECT outbox_id AS id, sequence_id AS number, created::int FROM "
					 "outbox.enqueue_batch(" +
						 quoted(queue) + ", '[" + json + "]') ORDER BY ordinality",
					 items);
	}

	void some(Session &session)
	{
		if (random.chance(30))
			enqueue_batch(session);
		else
			enqueue(session);
	}

	void transaction(Session &session)
	{
		session.begin(isolation());
		for (int i = random.between(1, 3); i > 0 && !session.failed(); i--)
		{
			if (!random.chance(25))
			{
				some(session);
				continue;
			}

			int from = session.savepoint();

			some(session);
			if (session.failed() || random.chance(50))
				session.rollback_to(from);
		}
		end_somehow(session);
	}
};

} // namespace

std::unique_ptr<Actor>
make_producer(Client &client)
{
	return std::make_unique<Producer>(client);
}
