// What the clients of a run do. Each is a process of its own, so that it can be killed or
// stopped at any point, and works until it gets SIGTERM. What it does is drawn by its seed.
#pragma once

#include <memory>
#include <iterator>
#include <string>
#include <vector>

#include "session.h"

class Random {
public:
	explicit Random(uint64_t seed) : state(seed) {}

	int below(int n) { return static_cast<int>(next() % static_cast<uint64_t>(n)); }
	int between(int low, int high) { return low + below(high - low + 1); }
	bool chance(int percent) { return below(100) < percent; }
	template <typename List>
	auto pick(const List &list)
	{
		return *std::next(std::begin(list), below(static_cast<int>(std::size(list))));
	}

private:
	uint64_t state;

	// SplitMix64.
	uint64_t next()
	{
		uint64_t z = state += 0x9e3779b97f4a7c15;

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
		z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
		return z ^ (z >> 31);
	}
};

// Names that are this round's alone begin with it.
struct Client {
	Recorder &recorder;
	Random random;
	std::string round;
	bool floors_stay; // no prepared transactions and no maintain(): each lowers all scan floors
};

// Of a round. One of two rounds in a row has what lowers them.
inline bool
floors_stay(uint64_t seed)
{
	return seed % 4 == 2;
}

void pause_ms(int ms);
bool stopping();

// kind: producer, worker, repairer, operator, finisher
int run_client(const std::string &kind, const std::string &round, const std::string &name, const std::string &file,
			   uint64_t round_seed, int number);

// One kind of client; a step is a transaction or a few.
class Actor {
public:
	explicit Actor(Client &of) : client(of), random(of.random) {}
	virtual ~Actor() = default;
	virtual void step(Session &session) = 0;

protected:
	Client &client;
	Random &random;

	// Ends the open transaction by lot; a moment's wait, seldom a long one, comes first.
	// prepared: with a gid that says how it is to end.
	enum class Ended { committed, rolled_back, prepared };
	Ended end_somehow(Session &session);
	std::string isolation();
	std::string random_queue();
	std::string random_partition_key(const std::string &queue);
	std::string random_queues(); // to claim from, quoted; perhaps with their weights
};

std::unique_ptr<Actor> make_producer(Client &client);
std::unique_ptr<Actor> make_worker(Client &client);
std::unique_ptr<Actor> make_repairer(Client &client);
std::unique_ptr<Actor> make_operator(Client &client);
std::unique_ptr<Actor> make_finisher(Client &client);

// ---- calls that the driver makes too

struct Lease {
	std::string id;
	std::string token;
};

std::vector<Lease> leases_in(const Answer &answer);
extern const std::vector<const char *> all_queues;
bool has_keys(const std::string &queue);
constexpr const char *each_queue = "'{plain,numbered,ordered,strict,limited}'";

std::vector<Lease> claim(Session &session, const std::string &worker, int batch, int lease_ms,
						 const std::string &queues);

// A report of each, with a reference by which the ledger tells whose it is, and what
// complete_batch() is given for them.
std::vector<Fields> items_of(const Session &session, const std::vector<Lease> &leases,
							 const std::vector<std::string> &states);
std::string column_of(const std::vector<Fields> &items, const std::string &name, const std::string &type);
std::string report_arguments(const std::string &worker, const std::vector<Fields> &items);

Answer complete_batch(Session &session, const std::string &worker, const std::vector<Lease> &leases,
					  const std::vector<std::string> &states);

void finish_prepared(Session &session);
// One of the keys that a dead head blocks, if there is one.
void unblock_one(Session &session);
