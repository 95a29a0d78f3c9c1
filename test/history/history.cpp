// See history.h.

#include "history.h"

#include <chrono>
#include <set>
#include <sstream>
#include <stdexcept>

namespace {

std::string
clean(std::string value)
{
	for (char &c : value)
		if (c == '\t' || c == '\n')
			c = ' ';
	return value;
}

// A prepared transaction: how it ended is in others' calls.
struct Finish {
	int64_t asked = never;
	int64_t answered = never;
	std::string as; // of one that succeeded
};

class Builder {
public:
	void add(const Event &event);
	History finish();

private:
	History history;
	std::map<std::string, size_t> open; // by client

	Transaction &of(const Event &event);
	static Call &call_of(Transaction &transaction, const Event &event);
	void begin(const Event &event);
	void end(Transaction &transaction, const Event &event);
	std::map<std::string, Finish> finishes() const;
};

Transaction &
Builder::of(const Event &event)
{
	auto found = open.find(event.client);

	if (found == open.end() || history.transactions[found->second].number != event.transaction)
		throw std::runtime_error("no such transaction: " + line_of(event));
	return history.transactions[found->second];
}

Call &
Builder::call_of(Transaction &transaction, const Event &event)
{
	for (Call &call : transaction.calls)
		if (call.number == event.fields.number("n"))
			return call;
	throw std::runtime_error("no such call: " + line_of(event));
}

void
Builder::begin(const Event &event)
{
	Transaction transaction;

	transaction.client = event.client;
	transaction.number = event.transaction;
	transaction.automatic = event.fields.number("auto") != 0;
	transaction.async = event.fields.number("async") != 0;
	open[event.client] = history.transactions.size();
	history.transactions.push_back(transaction);
}

void
Builder::end(Transaction &transaction, const Event &event)
{
	transaction.ended = event.at;
	transaction.ended_as = event.fields.text("as");
	transaction.end_sqlstate = event.fields.text("sqlstate");
}

void
Builder::add(const Event &event)
{
	static const std::set<std::string> known = {"call",   "item",   "row",      "ok",      "error",
												"undone", "commit", "rollback", "prepare", "ended"};

	if (event.kind == "begin")
		return begin(event);
	if (known.count(event.kind) == 0)
	{
		history.others.push_back(event);
		return;
	}

	Transaction &transaction = of(event);

	if (event.kind == "call")
	{
		Call call;

		call.number = static_cast<int>(event.fields.number("n"));
		call.verb = event.fields.text("verb");
		call.fields = event.fields;
		call.asked = event.at;
		if (transaction.automatic)
			transaction.commit_asked = event.at;
		transaction.calls.push_back(call);
	}
	else if (event.kind == "item")
		call_of(transaction, event).items.push_back(event.fields);
	else if (event.kind == "row")
		call_of(transaction, event).rows.push_back(event.fields);
	else if (event.kind == "ok" || event.kind == "error")
	{
		Call &call = call_of(transaction, event);

		call.answered = event.at;
		call.sqlstate = event.fields.text("sqlstate");
		if (transaction.automatic)
		{
			transaction.ended = event.at;
			transaction.ended_as = event.kind == "ok" ? "committed" : "error";
		}
	}
	else if (event.kind == "undone")
	{
		for (Call &call : transaction.calls)
			call.undone = call.undone || call.number >= event.fields.number("from");
	}
	else if (event.kind == "commit")
		transaction.commit_asked = event.at;
	else if (event.kind == "prepare")
		transaction.gid = event.fields.text("gid");
	else if (event.kind == "ended")
		end(transaction, event);
}

std::map<std::string, Finish>
Builder::finishes() const
{
	std::map<std::string, Finish> result;

	for (const Transaction &transaction : history.transactions)
		for (const Call &call : transaction.calls)
		{
			if (call.verb != "finish" || !call.sqlstate.empty())
				continue;

			Finish &finish = result[call.fields.text("gid")];

			finish.asked = std::min(finish.asked, call.asked);
			finish.answered = finish.answered == never ? call.answered
							  : call.answered == never ? finish.answered
													   : std::max(finish.answered, call.answered);
			if (call.ok())
				finish.as = call.fields.text("as");
		}
	return result;
}

Outcome
plain_outcome(const Transaction &transaction)
{
	if (transaction.ended_as == "committed")
		return Outcome::done;
	if (transaction.ended_as != "" || transaction.commit_asked == never)
		return Outcome::undone;
	return Outcome::unknown;
}

// A gid says how it is to end: c..., or r.... In the end none is left, so that one that was
// certainly prepared has ended so, whether or not somebody was told.
Outcome
prepared_outcome(const Transaction &transaction, const Finish &finish)
{
	if (transaction.ended_as == "error" || transaction.gid[0] == 'r')
		return Outcome::undone;
	return transaction.ended_as == "prepared" || finish.as == "commit" ? Outcome::done : Outcome::unknown;
}

History
Builder::finish()
{
	std::map<std::string, Finish> how = finishes();

	for (Transaction &transaction : history.transactions)
	{
		if (transaction.gid.empty())
		{
			transaction.outcome = plain_outcome(transaction);
			continue;
		}

		const Finish &finish = how[transaction.gid];

		transaction.outcome = prepared_outcome(transaction, finish);
		transaction.commit_asked = finish.asked;
		transaction.ended = finish.answered;
	}
	return history;
}

} // namespace

int64_t
now_us()
{
	using namespace std::chrono;

	return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

std::string
line_of(const Event &event)
{
	std::string line =
		std::to_string(event.at) + '\t' + event.client + '\t' + std::to_string(event.transaction) + '\t' + event.kind;

	for (const auto &[name, value] : event.fields)
		line += '\t' + name + '=' + clean(value);
	return line + '\n';
}

Event
event_of(const std::string &line)
{
	std::istringstream in(line);
	std::string word;
	std::vector<std::string> words;
	Event event;

	while (std::getline(in, word, '\t'))
		words.push_back(word);
	if (words.size() < 4)
		throw std::runtime_error("no event: " + line);
	event.at = std::stoll(words[0]);
	event.client = words[1];
	event.transaction = std::stoi(words[2]);
	event.kind = words[3];
	for (size_t i = 4; i < words.size(); i++)
	{
		size_t sign = words[i].find('=');

		if (sign == std::string::npos)
			throw std::runtime_error("no field: " + words[i]);
		event.fields[words[i].substr(0, sign)] = words[i].substr(sign + 1);
	}
	return event;
}

std::vector<Event>
read_events(std::istream &in)
{
	std::vector<Event> events;
	std::string line;

	while (std::getline(in, line))
		if (!line.empty() && line[0] != '#')
			events.push_back(event_of(line));
	return events;
}

History
history_of(const std::vector<Event> &events)
{
	Builder builder;

	for (const Event &event : events)
		builder.add(event);
	return builder.finish();
}
