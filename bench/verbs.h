// The verbs of an outbox as a client calls them: enqueue, claim, complete, and the last two in
// one, which only the extension has. Variants differ in nothing but the schema that the
// functions are in, and whether batches have functions.
//
// Statements are prepared; what comes back, and ids that are sent, is binary, as drivers do
// it that know the types; a batch is one jsonb array as text. With a batch of 1, or where
// batches have no functions (by_message), those for single messages are called: all of a batch
// in one pipeline, which is one transaction, and spares the server the wait for each answer.
// Each answer is checked: a message that was there already, a lease that was lost or a row too
// few ends the program.
#pragma once

#include "client.h"

#include <vector>

enum Verb { ENQUEUE = 'e', CLAIM = 'c', COMPLETE = 'd', COMPLETE_AND_CLAIM = 'f' };

struct Shape {
	std::string schema = "outbox";
	std::string queue = "bench";
	int batch = 1;
	bool by_message = false;
	int payload = 300; // bytes
	bool keys = true;  // aggregate, partition key, idempotency key; else payload only
	uint64_t seed = 1;
};

struct Uuid {
	char bytes[16];
};

struct Lease {
	Uuid id, token;
};

// Different for different inputs (it is a permutation), and looks random.
inline uint64_t
mixed(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

inline std::string
hex(uint64_t x)
{
	char digits[17];

	snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(x));
	return digits;
}

// What is enqueued. Keys are never the same twice in one run, nor in two of different seeds:
// an order with an ascending id, a random idempotency key, one of 10,000 customers.
class Messages {
public:
	explicit Messages(const Shape &shape) : shape(shape)
	{
		for (uint64_t i = 0; i < 64; i++)
			payloads.push_back(make_payload(i));
	}

	void next()
	{
		number++;
		payload = &payloads[number % payloads.size()];
		if (!shape.keys)
			return;
		const uint64_t random = mixed(shape.seed * 0x100000000 + number);
		aggregate_id = std::to_string(shape.seed * 100000000 + number);
		partition_key = "customer-" + std::to_string(random % 10000);
		idempotency_key = hex(random) + hex(mixed(random));
	}

	void append_to(std::string *json) const
	{
		*json += R"({"event_type":"order.placed","payload":)";
		*json += *payload;
		if (shape.keys)
		{
			*json += R"(,"aggregate_type":"order","aggregate_id":")";
			*json += aggregate_id;
			*json += R"(","partition_key":")";
			*json += partition_key;
			*json += R"(","idempotency_key":")";
			*json += idempotency_key;
			*json += '"';
		}
		*json += '}';
	}

	const std::string *payload = nullptr;
	std::string aggregate_id, partition_key, idempotency_key;

private:
	// Does not compress.
	std::string make_payload(uint64_t i) const
	{
		std::string text = R"({"order": )" + std::to_string(1000000000 + i) + R"(, "note": ")";
		const size_t size = static_cast<size_t>(shape.payload) - 2;

		for (uint64_t j = 0; text.size() < size; j++)
			text += hex_or_more(mixed(shape.seed + 1000 * i + 1000000 * j));
		text.resize(size);
		return text + "\"}";
	}

	static std::string hex_or_more(uint64_t x)
	{
		static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
		std::string text;

		for (int i = 0; i < 10; i++, x >>= 6)
			text += letters[x & 63];
		return text;
	}

	const Shape &shape;
	std::vector<std::string> payloads;
	uint64_t number = 0;
};

// Parameters of one statement.
class Parameters {
public:
	void text(const std::string &value)
	{
		values.push_back(value.c_str());
		lengths.push_back(0);
		formats.push_back(0);
	}
	void binary(const char *value, size_t length)
	{
		values.push_back(value);
		lengths.push_back(static_cast<int>(length));
		formats.push_back(1);
	}
	bool send(const Connection &connection, const char *statement) const
	{
		return PQsendQueryPrepared(connection.get(), statement, static_cast<int>(values.size()), values.data(),
								   lengths.data(), formats.data(), 1) != 0;
	}

private:
	std::vector<const char *> values;
	std::vector<int> lengths, formats;
};

// One session's side of it.
class Client {
public:
	Client(const Shape &shape, Messages *messages, const char *conninfo, const std::string &worker)
		: connection(connect(conninfo)), shape(shape), messages(messages), worker(worker),
		  batch(std::to_string(shape.batch))
	{
		prepare(connection, enqueue_sql().c_str(), "e");
		prepare(connection, claim_sql().c_str(), "c");
		prepare(connection, complete_sql().c_str(), "d");
		if (shape.schema == "outbox")
			prepare(connection, complete_and_claim_sql().c_str(), "f");
	}

	void send(Verb verb)
	{
		const char statement[] = {static_cast<char>(verb), '\0'};
		bool sent = true;

		calls = calls_of(verb);
		if (calls > 1)
			sent = PQenterPipelineMode(connection.get()) != 0;
		for (int i = 0; sent && i < calls; i++)
		{
			sent = parameters_of(verb, static_cast<size_t>(i)).send(connection, statement);
		}
		if (calls > 1)
			sent = sent && PQpipelineSync(connection.get()) != 0;
		if (!sent)
			die("send", PQerrorMessage(connection.get()));
	}

	// What PQgetResult gave was the end of the answer to all that was sent.
	bool ends(const Result &result) const
	{
		if (calls <= 1)
			return result == nullptr;
		if (PQresultStatus(result.get()) != PGRES_PIPELINE_SYNC)
			return false;
		if (PQexitPipelineMode(connection.get()) == 0)
			die("pipeline", PQerrorMessage(connection.get()));
		return true;
	}

	// How many messages it was about.
	int take(Verb verb, const Result &result)
	{
		must(shape.schema.c_str(), result);
		switch (verb)
		{
			case ENQUEUE:
				return take_enqueued(result);
			case CLAIM:
				return take_leases(result);
			case COMPLETE:
				return take_completed(result);
			case COMPLETE_AND_CLAIM:
				return take_completed_and_leases(result);
		}
		return 0;
	}

	// Sends, and waits for the answer.
	int call(Verb verb)
	{
		int n = 0;

		send(verb);
		for (;;)
		{
			const Result result(PQgetResult(connection.get()), PQclear);
			if (ends(result))
				return n;
			if (result != nullptr)
				n += take(verb, result);
		}
	}

	// Enqueues by another prepared statement, of the same parameters, which leases as well.
	void enqueue_as(const char *statement)
	{
		if (!enqueue_parameters().send(connection, statement))
			die("send", PQerrorMessage(connection.get()));
		const Result result = answer();
		must(statement, result);
		if (take_leases(result) != 1)
			die(statement, "not one lease");
	}

	Connection connection;
	std::vector<Lease> leases; // those of the last claim

private:
	Result answer()
	{
		Result first(PQgetResult(connection.get()), PQclear);

		while (const Result rest{PQgetResult(connection.get()), PQclear})
			must("statement", rest);
		return first;
	}

	bool single() const { return shape.batch == 1 || shape.by_message; }

	int calls_of(Verb verb) const
	{
		if (single() && verb == ENQUEUE)
			return shape.batch;
		return single() && verb == COMPLETE ? static_cast<int>(leases.size()) : 1;
	}

	// i: which of the calls.
	Parameters parameters_of(Verb verb, size_t i)
	{
		switch (verb)
		{
			case ENQUEUE:
				return enqueue_parameters();
			case CLAIM:
				return claim_parameters();
			case COMPLETE:
				return complete_parameters(i);
			case COMPLETE_AND_CLAIM:
				return complete_and_claim_parameters();
		}
		return {};
	}

	std::string enqueue_sql() const
	{
		if (!single())
			return "SELECT outbox_id, created FROM " + shape.schema + ".enqueue_batch($1, $2::jsonb)";
		return "SELECT outbox_id, created FROM " + shape.schema + ".enqueue('order.placed', $2::jsonb, queue => $1" +
			   (shape.keys ? ", aggregate_type => 'order', aggregate_id => $3, "
							 "partition_key => $4, idempotency_key => $5)"
						   : ")");
	}
	std::string claim_sql() const
	{
		return "SELECT outbox_id, lease_token, event_type, aggregate_id, partition_key, payload, "
			   "headers, "
			   "attempt_count FROM " +
			   shape.schema + ".claim($1, $2::int, queues => ARRAY[$3::text])";
	}
	std::string complete_and_claim_sql() const
	{
		return "SELECT outbox_id, lease_token, event_type, aggregate_id, partition_key, payload, "
			   "headers, attempt_count, attempt_no, error FROM outbox.complete_and_claim($1, "
			   "$2::uuid[], $3::uuid[], $4::outbox.attempt_state[], batch_size => $5::int, "
			   "queues => ARRAY[$6::text])";
	}
	std::string complete_sql() const
	{
		if (single())
			return "SELECT attempt_no, NULL FROM " + shape.schema + ".complete($2::uuid, $3::uuid, $1, 'DISPATCHED')";
		return "SELECT attempt_no, error FROM " + shape.schema +
			   ".complete_batch($1, $2::uuid[], $3::uuid[], $4::" + shape.schema + ".attempt_state[])";
	}

	Parameters enqueue_parameters()
	{
		Parameters parameters;

		parameters.text(shape.queue);
		if (!single())
		{
			json = "[";
			for (int i = 0; i < shape.batch; i++)
			{
				messages->next();
				json += i > 0 ? "," : "";
				messages->append_to(&json);
			}
			json += "]";
			parameters.text(json);
			return parameters;
		}
		messages->next();
		parameters.text(*messages->payload);
		if (shape.keys)
		{
			parameters.text(messages->aggregate_id);
			parameters.text(messages->partition_key);
			parameters.text(messages->idempotency_key);
		}
		return parameters;
	}

	Parameters claim_parameters() const
	{
		Parameters parameters;

		parameters.text(worker);
		parameters.text(batch);
		parameters.text(shape.queue);
		return parameters;
	}

	Parameters complete_parameters(size_t i)
	{
		Parameters parameters;

		parameters.text(worker);
		if (single())
		{
			parameters.binary(leases[i].id.bytes, sizeof(Uuid));
			parameters.binary(leases[i].token.bytes, sizeof(Uuid));
			return parameters;
		}
		add_arrays(&parameters);
		return parameters;
	}

	Parameters complete_and_claim_parameters()
	{
		Parameters parameters;

		parameters.text(worker);
		add_arrays(&parameters);
		parameters.text(batch);
		parameters.text(shape.queue);
		return parameters;
	}

	void add_arrays(Parameters *parameters)
	{
		make_array(&ids, &Lease::id);
		make_array(&tokens, &Lease::token);
		states = "{";
		for (size_t k = 0; k < leases.size(); k++)
			states += k > 0 ? ",DISPATCHED" : "DISPATCHED";
		states += "}";
		parameters->binary(ids.data(), ids.size());
		parameters->binary(tokens.data(), tokens.size());
		parameters->text(states);
	}

	// uuid[] as the protocol has it: dimensions, flags, element type, length, lower bound, and
	// each element behind its length.
	void make_array(std::string *array, Uuid Lease::*member) const
	{
		constexpr uint32_t uuid_type = 2950;

		array->clear();
		for (const uint32_t word :
			 {uint32_t{1}, uint32_t{0}, uuid_type, static_cast<uint32_t>(leases.size()), uint32_t{1}})
			append_word(array, word);
		for (const Lease &lease : leases)
		{
			append_word(array, sizeof(Uuid));
			array->append((lease.*member).bytes, sizeof(Uuid));
		}
	}

	static void append_word(std::string *array, uint32_t word)
	{
		for (int shift = 24; shift >= 0; shift -= 8)
			*array += static_cast<char>(word >> shift);
	}

	int take_enqueued(const Result &result) const
	{
		const int n = PQntuples(result.get());

		if (n != (single() ? 1 : shape.batch))
			die("enqueue", "not one row a message");
		for (int i = 0; i < n; i++)
			if (PQgetlength(result.get(), i, 1) != 1 || *PQgetvalue(result.get(), i, 1) != 1)
				die("enqueue", "a message was there already");
		return n;
	}

	int take_leases(const Result &result, int first = 0)
	{
		const int n = PQntuples(result.get()) - first;

		if (n > shape.batch)
			die("claim", "more messages than asked for");
		leases.resize(static_cast<size_t>(n));
		for (int i = first; i < first + n; i++)
		{
			Lease &lease = leases[static_cast<size_t>(i - first)];
			if (PQgetlength(result.get(), i, 0) != sizeof(Uuid) || PQgetlength(result.get(), i, 1) != sizeof(Uuid))
				die("claim", "no id or no token");
			memcpy(lease.id.bytes, PQgetvalue(result.get(), i, 0), sizeof(Uuid));
			memcpy(lease.token.bytes, PQgetvalue(result.get(), i, 1), sizeof(Uuid));
		}
		return n;
	}

	// One row for each lease that there was, then the new ones.
	int take_completed_and_leases(const Result &result)
	{
		const int n = static_cast<int>(leases.size());

		if (PQntuples(result.get()) < n)
			die("complete_and_claim", "not one row an item");
		for (int i = 0; i < n; i++)
			if (PQgetisnull(result.get(), i, 8) || !PQgetisnull(result.get(), i, 9))
				die("complete_and_claim", "a lease was lost");
		take_leases(result, n);
		return n;
	}

	int take_completed(const Result &result) const
	{
		const int n = PQntuples(result.get());

		if (n != (single() ? 1 : static_cast<int>(leases.size())))
			die("complete", "not one row an item");
		for (int i = 0; i < n; i++)
			if (!PQgetisnull(result.get(), i, 1))
				die("complete", "a lease was lost");
		return n;
	}

	const Shape &shape;
	Messages *messages;
	std::string worker, batch, json, ids, tokens, states;
	int calls = 1; // that were sent last
};
