// A client's connection that records what is asked on it and what comes back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "connection.h"
#include "history.h"

// Appends to a file, each list of events in one write().
class Recorder {
public:
	Recorder(const std::string &path, std::string client);
	~Recorder();
	Recorder(const Recorder &) = delete;
	Recorder &operator=(const Recorder &) = delete;

	void add(int transaction, const std::string &kind, const Fields &fields);
	void flush();
	void write(int transaction, const std::string &kind, const Fields &fields)
	{
		add(transaction, kind, fields);
		flush();
	}
	const std::string &client() const { return name; }

private:
	int file;
	std::string name;
	std::string waiting;
};

// The connection died: what was asked last may have happened or not.
struct Dead : std::runtime_error {
	using runtime_error::runtime_error;
};

class Session {
public:
	Session(Recorder &recorder, bool async);

	// One call, in a transaction of its own unless one is open. Columns of the answer become
	// fields of its rows, but for those that are NULL. Throws Dead.
	Answer call(const std::string &verb, Fields fields, const std::string &sql, const std::vector<Fields> &items = {});

	void begin(const std::string &isolation = "READ COMMITTED");
	int savepoint(); // the number of the next call
	void rollback_to(int from);
	bool commit();
	void rollback();
	bool prepare(const std::string &gid);

	bool open() const { return in_transaction; }
	bool failed() const { return connection->in_failed_transaction(); }
	Answer ask(const std::string &sql); // unrecorded; throws Dead
	std::string name() const { return recorder.client() + "/" + std::to_string(transaction); }
	const std::string &client() const { return recorder.client(); }

private:
	Recorder &recorder;
	std::unique_ptr<Connection> connection;
	bool async;
	bool in_transaction = false;
	int transaction = 0;
	int number = 0;

	void start(bool automatic);
	void control(const std::string &sql); // where it is cancelled the session is given up
	void record_answer(const Answer &answer);
	bool end(const std::string &kind, const Fields &fields, const std::string &sql, const std::string &as);
};

// Transactions count on when a client connects again.
int next_transaction();
