// The server of a run: started, stopped, looked into, and its clock set.
//
// Environment: PGDATA, and where libfaketime is to be had HISTORY_PRELOAD (libraries for the
// server) and HISTORY_CLOCK (the file that they read the clock's error from).
#pragma once

#include <memory>
#include <string>

#include "session.h"

class Server {
public:
	Server();

	void start();
	void stop(const std::string &mode);

	// On a connection that is made anew when it died. Throws Dead.
	Answer ask(const std::string &sql);
	std::string value(const std::string &sql); // of one row and column, else empty
	void must(const std::string &sql);         // waits for the server; throws what is no Dead if it fails
	bool answers();
	void wait_until_it_answers();
	// Its memory is gone when a connection of before dies. The caller has seen to that.
	void wait_until_it_has_crashed();

	bool has_clock() const { return !clock.empty(); }
	int64_t clock_error() const { return error; }
	void set_clock(int64_t us);

private:
	std::string data, preload, clock;
	int64_t error = 0;
	std::unique_ptr<Connection> connection;
};
