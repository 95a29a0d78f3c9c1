// See session.h.

#include "session.h"

#include <fcntl.h>
#include <unistd.h>

Recorder::Recorder(const std::string &path, std::string client)
	: file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)), name(std::move(client))
{
	if (file < 0)
		throw std::runtime_error("cannot write " + path);
}

Recorder::~Recorder()
{
	close(file);
}

void
Recorder::add(int transaction, const std::string &kind, const Fields &fields)
{
	waiting += line_of({now_us(), name, transaction, kind, fields});
}

void
Recorder::flush()
{
	if (::write(file, waiting.data(), waiting.size()) != static_cast<ssize_t>(waiting.size()))
		throw std::runtime_error("cannot write the history");
	waiting.clear();
}

int
next_transaction()
{
	static int last = 0;

	return ++last;
}

Session::Session(Recorder &to, bool asynchronous) : recorder(to), async(asynchronous)
{
	try
	{
		connection = std::make_unique<Connection>("history " + recorder.client());
	}
	catch (const std::runtime_error &error)
	{
		throw Dead(error.what());
	}
	ask("SET lock_timeout = '3s'");
	if (async)
		ask("SET outbox.async_claim = on");
}

Answer
Session::ask(const std::string &sql)
{
	try
	{
		return connection->run(sql);
	}
	catch (const std::runtime_error &error)
	{
		throw Dead(error.what());
	}
}

void
Session::control(const std::string &sql)
{
	if (!ask(sql).ok())
		throw Dead("cancelled");
}

void
Session::start(bool automatic)
{
	transaction = next_transaction();
	number = 0;
	recorder.add(transaction, "begin", {{"auto", automatic ? "1" : "0"}, {"async", async ? "1" : "0"}});
}

void
Session::record_answer(const Answer &answer)
{
	const std::string n = std::to_string(number);

	for (const Row &row : answer.rows)
	{
		Fields fields = {{"n", n}};

		for (size_t i = 0; i < row.size(); i++)
			if (row[i])
				fields[answer.columns[i].name] = *row[i];
		recorder.add(transaction, "row", fields);
	}
	if (answer.ok())
		recorder.write(transaction, "ok", {{"n", n}});
	else
		recorder.write(transaction, "error", {{"n", n}, {"sqlstate", answer.sqlstate}, {"message", answer.message}});
}

Answer
Session::call(const std::string &verb, Fields fields, const std::string &sql, const std::vector<Fields> &items)
{
	if (!in_transaction)
		start(true);
	number++;
	fields["n"] = std::to_string(number);
	fields["verb"] = verb;
	recorder.add(transaction, "call", fields);
	for (Fields item : items)
	{
		item["n"] = std::to_string(number);
		recorder.add(transaction, "item", item);
	}
	recorder.flush();

	Answer answer = ask(sql);

	record_answer(answer);
	return answer;
}

void
Session::begin(const std::string &isolation)
{
	start(false);
	recorder.flush();
	control("BEGIN ISOLATION LEVEL " + isolation);
	in_transaction = true;
}

int
Session::savepoint()
{
	control("SAVEPOINT s");
	return number + 1;
}

void
Session::rollback_to(int from)
{
	control("ROLLBACK TO s");
	recorder.write(transaction, "undone", {{"from", std::to_string(from)}});
}

bool
Session::end(const std::string &kind, const Fields &fields, const std::string &sql, const std::string &as)
{
	in_transaction = false;
	recorder.write(transaction, kind, fields);

	Answer answer = ask(sql);

	recorder.write(transaction, "ended", {{"as", answer.ok() ? as : "error"}, {"sqlstate", answer.sqlstate}});
	// Cancelled before it was begun: the transaction has failed, and is still open.
	if (connection->in_transaction())
		control("ROLLBACK");
	return answer.ok();
}

// COMMIT of a transaction that has failed rolls back, and succeeds.
bool
Session::commit()
{
	if (failed())
	{
		rollback();
		return false;
	}
	return end("commit", {}, "COMMIT", "committed");
}

void
Session::rollback()
{
	end("rollback", {}, "ROLLBACK", "rolledback");
}

bool
Session::prepare(const std::string &gid)
{
	if (failed())
	{
		rollback();
		return false;
	}
	return end("prepare", {{"gid", gid}}, "PREPARE TRANSACTION " + quoted(gid), "prepared");
}
