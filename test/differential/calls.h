// Random calls of every function, with arguments that are likely to meet something:
// known messages, leases that are held, keys that were used.
#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

// The same numbers on every machine for one seed.
class Random {
public:
	explicit Random(uint64_t seed) : engine(seed) {}

	int below(int n) { return static_cast<int>(engine() % static_cast<uint64_t>(n)); }
	int between(int low, int high) { return low + below(high - low + 1); }
	bool chance(int percent) { return below(100) < percent; }
	template <typename List>
	auto pick(const List &list)
	{
		return *std::next(std::begin(list), below(static_cast<int>(std::size(list))));
	}
	template <typename Item>
	Item pick(std::initializer_list<Item> list)
	{
		return *(list.begin() + below(static_cast<int>(list.size())));
	}
	// An index, each as likely as its weight says.
	int weighted(const std::vector<int> &weights);

private:
	std::mt19937_64 engine;
};

// One call: an SQL function and its arguments by name, as SQL expressions.
struct Call {
	std::string function;
	std::vector<std::pair<std::string, std::string>> arguments;
	bool is_bad = false; // made to be refused

	std::string sql(const std::string &schema) const;
};

struct Lease {
	std::string outbox_id;
	std::string token;
	std::string worker;
	bool is_fresh; // not yet reported or given back
};

// A key that a message was given, and where it counts.
struct UsedKey {
	std::string queue;
	std::string argument; // idempotency_key or event_id
	std::string value;
	std::string aggregate_id;
};

// A dead message that blocks its key.
struct Block {
	std::string outbox_id;
	std::string queue;
	std::string partition_key;
};

// What calls are made of; kept up to date by the driver.
struct World {
	int64_t began_us;
	std::deque<std::string> messages; // the latest ids, also of transactions rolled back
	std::deque<Lease> leases;         // the latest
	std::deque<Lease> used_leases;    // those used last: others may still wait for them
	std::deque<UsedKey> used_keys;    // the latest
	std::vector<std::string> pending; // as committed
	std::vector<std::string> leased;  // as committed: those of them that have a lease
	std::vector<std::string> heads;   // as committed: those of them that are the first of a key
	std::vector<Block> blocks;        // as committed
	std::map<std::string, int> bad;   // how many calls of each function were to be refused
	int moments = 0;

	// Each moment is given out once, and none lies near the time of a call: so no two
	// rows fall due at moments whose order could not be told.
	std::string past();
	std::string future();

	void add_message(const std::string &id);
	void add_lease(const std::string &id, const std::string &token, const std::string &worker);
	void use(const Lease &lease);
	void use(const UsedKey &key);
};

struct Circumstances {
	bool alone = false;           // no other session has a transaction open
	bool may_wait = true;         // for other sessions
	bool is_unobservable = false; // what the call does cannot be looked at before COMMIT
};

Call random_call(Random &random, World &world, Circumstances circumstances);

// The queues that every run begins with.
std::vector<Call> first_calls();
// With them all keys are settled.
std::vector<Call> last_calls();

// A change by hand, the same on both sides: {s} stands for the schema.
struct Move {
	std::string kind;
	std::string sql;
};
Move random_move(Random &random, World &world, int64_t now_us);
