// The sink postgres: a function of another database, called with a batch as arrays, in one transaction.
//
//   [sink.shop]
//   type = "postgres"
//   dsn = { env = "SHOP_DSN" }
//   function = "shop.take_events"
//   batch = 500
//
//   CREATE FUNCTION shop.take_events(event_ids uuid[], event_types text[], aggregate_types text[], aggregate_ids
//   text[],
//       partition_keys text[], sequence_ids bigint[], bodies jsonb[], headers jsonb[], created_at timestamptz[])
//
// Element i of each array belongs to message i. `bodies` is jsonb[], text[] or bytea[]; the first of these that exists
// is called. `headers` are objects of strings, as other sinks send them. What the function returns is read and ignored.
// A route's topic has no meaning here.
//
// Guarantees: accepted means that the function's transaction is committed; the reference is function/transaction id. A
// function that first asks inbox.receive_batch() of outbox_inbox which of the events are new, in the same
// transaction, makes each take effect exactly once. An error whose cause may be one row divides the batch, down to
// that row, which alone is answered with it; a conflict, a limit or a connection concerns the batch as a whole.
//
// Errors of class 42 mean a fault within the function, unless the function itself is gone or forbidden, which is
// looked at after each, and has a code of its own (class sink).
#include "core/fields.h"
#include "core/json.h"
#include "sinks/kinds.h"
#include "sinks/postgres_codes.h"
#include "db/conninfo.h"
#include "sinks/postgres_session.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <thread>

namespace relay {

using namespace std::chrono_literals;

namespace {

using namespace postgres;
using std::chrono::milliseconds;

struct Settings {
	Secret dsn;
	std::string function;
	size_t batch = 500;
	SinkSettings common;
};

struct Waiting {
	std::unique_ptr<Delivery> delivery;
	Clock::time_point since;
};

using Batch = std::span<Waiting>;

// In a call, unless one message is larger: a server closes the connection for a statement of more than 1 GB.
constexpr size_t most_bytes = 16 << 20;

class Postgres final : public Sink {
public:
	explicit Postgres(Settings settings)
		: settings(std::move(settings)), session(this->settings.dsn, "outbox-relay", closing)
	{
	}
	~Postgres() override;

	void start(Answers &to) override;
	void deliver(std::vector<std::unique_ptr<Delivery>> deliveries) override;
	void probe(const std::string &endpoint, std::function<void(Answer)> done) override;

private:
	void work();
	void answer_probes();
	std::vector<Waiting> take();
	void call(std::vector<Waiting> taken);
	std::optional<Failure> get_ready(Clock::time_point deadline);
	std::optional<Failure> find_function(Clock::time_point deadline);
	void call_and_divide(Batch batch, Clock::time_point deadline);
	std::optional<Failure> try_call(Batch batch, Clock::time_point deadline);
	[[nodiscard]] bool takes_bytes() const { return body_type == "bytea"; }
	void accept(Batch batch, const std::string &reference);
	void fail(Batch batch, const Failure &failure);
	void answer(Waiting &one, Answer answer);

	const Settings settings;
	Answers *answers = nullptr;
	std::atomic<bool> closing = false;
	std::mutex mutex;
	std::condition_variable woken;
	std::deque<Waiting> waiting;
	std::deque<std::function<void(Answer)>> probes;

	// Of the thread.
	Session session;
	std::string statement, body_type;
	std::thread thread;
};

constexpr std::string_view arguments_before = "(uuid[],text[],text[],text[],text[],bigint[],",
						   arguments_after = "[],jsonb[],timestamptz[])";

// The name is parsed as an identifier by regprocedure, and quoted by format(). For oid and regprocedure pg_catalog has
// no operator of its own, so that a schema of the search path may have one that fits better.
const std::string look_up =
	"SELECT pg_catalog.format('%I.%I', n.nspname, p.proname), t.type,"
	" pg_catalog.has_function_privilege(p.oid, 'EXECUTE') AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')"
	" FROM pg_catalog.unnest('{jsonb,text,bytea}'::text[]) WITH ORDINALITY AS t(type, preference)"
	" JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) pg_catalog.to_regprocedure($1 || '" +
	std::string(arguments_before) + "' || t.type || '" + std::string(arguments_after) +
	"')"
	" JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace"
	" WHERE p.prokind = 'f' ORDER BY preference LIMIT 1";

Answer
failed(const Failure &failure)
{
	Answer answer;
	answer.code = failure.code;
	answer.response_code = failure.sqlstate;
	answer.text = failure.text;
	return answer;
}

class Array {
public:
	void add(const Text &element)
	{
		literal += literal.size() > 1 ? "," : "";
		if (!element)
		{
			literal += "NULL";
			return;
		}
		literal += '"';
		for (char c : *element)
		{
			if (c == '"' || c == '\\')
				literal += '\\';
			literal += c;
		}
		literal += '"';
	}
	[[nodiscard]] std::string end() const { return literal + "}"; }

private:
	std::string literal = "{";
};

std::string
hex(const std::string &bytes)
{
	static constexpr char digits[] = "0123456789abcdef";
	std::string result = "\\x";
	for (unsigned char byte : bytes)
		(result += digits[byte >> 4]) += digits[byte & 15];
	return result;
}

std::string
object_of(const Delivery &delivery)
{
	json::Object object;
	for (const auto &[name, value] : delivery.headers)
		object.text(name, value);
	object.text("content-type", delivery.content_type);
	return std::move(object).end();
}

Parameters
arrays_of(Batch batch, bool bytes)
{
	std::array<Array, 9> arrays;
	for (const Waiting &one : batch)
	{
		const Message &message = one.delivery->message;
		const std::string &body = one.delivery->body;
		arrays[0].add(message.event_id);
		arrays[1].add(message.event_type);
		arrays[2].add(message.aggregate_type);
		arrays[3].add(message.aggregate_id);
		arrays[4].add(message.partition_key);
		arrays[5].add(message.sequence_id ? Text(std::to_string(*message.sequence_id)) : Text());
		arrays[6].add(bytes ? hex(body) : body);
		arrays[7].add(object_of(*one.delivery));
		arrays[8].add(rfc3339(message.created_at));
	}
	Parameters parameters;
	for (const Array &array : arrays)
		parameters.push_back(array.end());
	return parameters;
}

Postgres::~Postgres()
{
	{
		std::lock_guard lock(mutex);
		closing = true;
		woken.notify_all();
	}
	if (thread.joinable())
		thread.join();
}

void
Postgres::start(Answers &to)
{
	answers = &to;
	thread = std::thread([this] { work(); });
}

void
Postgres::deliver(std::vector<std::unique_ptr<Delivery>> deliveries)
{
	std::lock_guard lock(mutex);
	for (auto &delivery : deliveries)
		waiting.push_back({std::move(delivery), Clock::now()});
	woken.notify_all();
}

void
Postgres::probe(const std::string &, std::function<void(Answer)> done)
{
	std::lock_guard lock(mutex);
	probes.push_back(std::move(done));
	woken.notify_all();
}

void
Postgres::work()
{
	while (!closing)
	{
		{
			std::unique_lock lock(mutex);
			woken.wait(lock, [this] { return closing || !waiting.empty() || !probes.empty(); });
		}
		answer_probes();
		if (auto taken = take(); !taken.empty())
			call(std::move(taken));
	}
}

void
Postgres::answer_probes()
{
	std::unique_lock lock(mutex);
	auto asked = std::exchange(probes, {});
	lock.unlock();
	if (asked.empty())
		return;
	// Connected or not, the function is looked up, so that something goes to the server and back.
	auto deadline = Clock::now() + std::min<milliseconds>(settings.common.timeout / 2, 10s);
	bool fresh = !session.connected();
	auto problem = get_ready(deadline);
	if (!problem && !fresh)
		problem = find_function(deadline);
	Answer answer = problem ? failed(*problem) : Answer{.accepted = true};
	for (const auto &done : asked)
		if (!closing)
			done(answer);
}

std::vector<Waiting>
Postgres::take()
{
	std::lock_guard lock(mutex);
	size_t count = 0, bytes = 0;
	for (; count < std::min(settings.batch, waiting.size()); count++)
	{
		const Delivery &delivery = *waiting[count].delivery;
		bytes += delivery.body.size() + delivery.message.headers.size();
		if (count > 0 && bytes > most_bytes)
			break;
	}
	auto end = waiting.begin() + static_cast<ptrdiff_t>(count);
	std::vector<Waiting> taken(std::make_move_iterator(waiting.begin()), std::make_move_iterator(end));
	waiting.erase(waiting.begin(), end);
	return taken;
}

// What has waited for most of its time here is given up untried.
void
Postgres::call(std::vector<Waiting> taken)
{
	const auto timeout = settings.common.timeout;
	auto late = std::partition_point(taken.begin(), taken.end(),
									 [&](const Waiting &one) { return Clock::now() - one.since > timeout * 9 / 10; });
	fail({taken.begin(), late}, {"POSTGRES_TIMEOUT", "", "the batches before it took too long"});
	Batch batch(late, taken.end());
	if (batch.empty())
		return;
	auto deadline = batch.front().since + timeout;
	if (auto problem = get_ready(std::min(deadline, Clock::now() + 10s)))
		return fail(batch, *problem);
	auto zeros = std::stable_partition(batch.begin(), batch.end(), [this](const Waiting &one) {
		return takes_bytes() || one.delivery->body.find('\0') == std::string::npos;
	});
	fail({zeros, batch.end()}, {"POSTGRES_ZERO_BYTE", "", "the body has a zero byte"});
	if (zeros != batch.begin())
		call_and_divide({batch.begin(), zeros}, deadline);
}

std::optional<Failure>
Postgres::get_ready(Clock::time_point deadline)
{
	if (session.connected())
		return {};
	if (auto problem = session.connect(deadline))
		return problem;
	// The server gives up by itself what is no longer waited for. With array_nulls off, NULL would be a text.
	std::optional<Failure> problem;
	session.run("SELECT pg_catalog.set_config('statement_timeout', $1, false), "
				"pg_catalog.set_config('idle_session_timeout', '0', false), "
				"pg_catalog.set_config('array_nulls', 'on', false)",
				{std::to_string(settings.common.timeout.count())}, deadline, problem);
	return problem ? problem : find_function(deadline);
}

// Without it the connection is closed, so that it is looked for again.
std::optional<Failure>
Postgres::find_function(Clock::time_point deadline)
{
	std::optional<Failure> problem;
	Result found = session.run(look_up, {settings.function}, deadline, problem);
	if (problem)
		return problem;
	if (PQntuples(found.get()) == 0)
		problem = {"POSTGRES_FUNCTION_NOT_FOUND", "",
				   "no function " + settings.function + std::string(arguments_before) + "jsonb" +
					   std::string(arguments_after)};
	else if (PQgetvalue(found.get(), 0, 2) != std::string_view("t"))
		problem = {"POSTGRES_FUNCTION_FORBIDDEN", "", "no right to execute " + settings.function};
	if (problem)
	{
		session.close();
		return problem;
	}
	body_type = PQgetvalue(found.get(), 0, 1);
	statement = std::string("SELECT pg_catalog.pg_current_xact_id() FROM (SELECT pg_catalog.count(*) FROM ") +
				PQgetvalue(found.get(), 0, 0) +
				"($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::" + body_type +
				"[], $8::jsonb[], $9::timestamptz[])) AS called";
	return {};
}

// Nothing: accepted.
std::optional<Failure>
Postgres::try_call(Batch batch, Clock::time_point deadline)
{
	auto failure = get_ready(std::min(deadline, Clock::now() + 10s));
	if (failure)
		return failure;
	Result done = session.run(statement, arrays_of(batch, takes_bytes()), deadline, failure);
	if (!failure)
		accept(batch, settings.function + "/" + PQgetvalue(done.get(), 0, 0));
	else if (failure->sqlstate.starts_with("42") && session.connected())
	{
		auto missing = find_function(deadline);
		failure = missing ? missing : failure;
	}
	return failure;
}

void
Postgres::call_and_divide(Batch batch, Clock::time_point deadline)
{
	auto failure = try_call(batch, deadline);
	if (!failure)
		return;
	if (batch.size() == 1 || failure->sqlstate.empty() || concerns_the_batch(failure->sqlstate))
		return fail(batch, *failure);
	call_and_divide(batch.first(batch.size() / 2), deadline);
	call_and_divide(batch.subspan(batch.size() / 2), deadline);
}

void
Postgres::accept(Batch batch, const std::string &reference)
{
	for (Waiting &one : batch)
		answer(one, {.accepted = true, .reference = reference});
}

void
Postgres::fail(Batch batch, const Failure &failure)
{
	for (Waiting &one : batch)
		answer(one, failed(failure));
}

void
Postgres::answer(Waiting &one, Answer answer)
{
	if (!closing)
		answers->answer(one.delivery->ticket, std::move(answer));
}

std::function<std::unique_ptr<Sink>()>
read(Section &section, const SinkSettings &common)
{
	Settings settings;
	settings.common = common;
	if (auto dsn = section.secret("dsn"))
		settings.dsn = *dsn;
	else
		section.refuse("dsn", "is missing");
	if (auto problem = problem_of(settings.dsn))
		section.refuse("dsn", "is no connection string: " + *problem);
	settings.function = section.text("function");
	if (settings.function.empty() || settings.function.find_first_of("()") != std::string::npos)
		section.refuse("function", "is the name of a function, without arguments");
	settings.batch = static_cast<size_t>(section.number("batch", 500, 1, 10'000));
	return [settings] { return std::make_unique<Postgres>(settings); };
}

} // namespace

const SinkKind postgres_kind{
	.type = "postgres",
	.binding = Binding::plain,
	.default_topic = {},
	.codes = postgres::codes,
	.read = read,
	.defaults = {.name = {}, .type = "postgres"},
};

} // namespace relay
