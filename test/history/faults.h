// What befalls a run: clients, backends and background processes are killed or stopped for
// a while, sessions terminated, statements cancelled, the server is stopped at once and
// started again, its clock steps, snapshots are held. Which, when and whom, is drawn by lot.
#pragma once

#include <list>
#include <string>
#include <vector>

#include <sys/types.h>

#include "clients.h"
#include "server.h"

// The client processes of one round. Who is killed is started again under another name.
class Clients {
public:
	Clients(const std::string &folder, const std::string &round, uint64_t seed);
	~Clients();

	void start(const std::string &kind);
	void look_after(); // throws if one ended by itself
	pid_t one_of(Random &random) const;
	void kill(pid_t pid);
	// All but those of one kind are asked to end; whether they have.
	void ask_to_end(const std::string &but = "");
	bool have_ended(const std::string &but = "");
	std::string one_left() const { return children.empty() ? "" : children.front().name; }

private:
	struct Child {
		pid_t pid;
		std::string kind, name;
	};

	std::string folder, round;
	uint64_t seed;
	int started = 0;
	std::vector<Child> children;
	std::vector<pid_t> killed;
};

class Faults {
public:
	struct Kinds {
		bool crashes, clock;
	};

	Faults(Server &of, Clients &to, Recorder &recorder, Random &by, Kinds which);

	void run_until(int64_t until);
	// Whoever is stopped goes on, nobody holds a snapshot, and the clients end.
	void end();

private:
	struct Stopped {
		pid_t pid;
		int64_t until;
	};
	struct Held {
		std::unique_ptr<Connection> connection;
		int64_t until;
	};

	Server &server;
	Clients &clients;
	Recorder &recorder;
	Random &random;
	Kinds kinds;
	std::list<Stopped> stopped;
	std::list<Held> held;

	size_t dealt = 0;

	void one();
	void deal(int number);
	void kill_client();
	void note(const std::string &what, int64_t whom = 0);
	void stop_for_a_while(pid_t pid, int most_ms);
	void let_go_on(int64_t before);
	pid_t process(const std::string &condition);
	void kill_process(const std::string &condition);
	void restart(const std::string &mode);
	void crashed(int64_t from);
	void hold_snapshot();
	void step_clock();
	std::string sessions();
	void wait_for_clients(const std::string &but);
	void signal_session(const std::string &function);
};

constexpr int64_t farthest_step = 600000000; // microseconds, forwards and backwards
