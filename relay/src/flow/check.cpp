#include "flow/check.h"

#include "core/fields.h"
#include "db/connection.h"
#include "flow/claims.h"
#include "flow/mailbox.h"

#include <iostream>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

namespace relay {

namespace {

using namespace std::chrono_literals;

// Asks one thing after another.
class Asker {
public:
	explicit Asker(const Secret &dsn) : connection(dsn, [box = box] { box->post(0); }) {}

	bool connect()
	{
		while (!connection.connected() && !connection.broken())
			wait();
		return !connection.broken();
	}

	// Throws what went wrong.
	Rows ask(const std::string &statement, Parameters parameters = {})
	{
		std::optional<Rows> answer;

		connection.send(statement, std::move(parameters), [&](Rows rows) { answer.emplace(std::move(rows)); });
		while (connection.outstanding() > 0 && !connection.broken())
		{
			connection.pump([](const std::string &) {});
			if (connection.outstanding() > 0)
				wait();
		}
		if (connection.broken())
			throw std::runtime_error(connection.why().said());
		if (!answer->ok())
			throw std::runtime_error(answer->error());
		return std::move(*answer);
	}

	[[nodiscard]] const Trouble &why() const { return connection.why(); }

private:
	void wait()
	{
		std::vector<pollfd> waits{{box->descriptor(), POLLIN, 0}};

		if (auto interest = connection.interest())
			waits.push_back(*interest);
		poll(waits.data(), waits.size(), 1000);
		box->take(news);
	}

	std::vector<int> news;
	std::shared_ptr<Mailbox<int>> box = std::make_shared<Mailbox<int>>();
	Connection connection;
};

struct NoAnswers final : Answers {
	void answer(std::vector<Answered>) override {}
	void blocked(bool) override {}
};

// What is pending, oldest first, in the columns that decode_message() reads.
constexpr const char *pending_messages =
	"SELECT m.outbox_id, m.queue, m.event_id, m.event_type, m.aggregate_type, m.aggregate_id, m.partition_key, m.sequence_id, "
	"m.idempotency_key, m.routing_key, m.priority::int4, m.payload, m.headers, p.attempt_count, m.created_at, m.payload_bytes, "
	"m.content_type FROM outbox.pending p JOIN outbox.messages m USING (outbox_id) "
	"WHERE ($1::text[] IS NULL OR p.queue = ANY ($1::text[])) AND ($3::uuid IS NULL OR p.outbox_id > $3::uuid) "
	"ORDER BY p.outbox_id LIMIT $2::int8";

std::optional<std::string>
queues_of(const SourceSettings &source)
{
	if (source.queues.front() == "*")
		return {};
	return array_literal(source.queues);
}

using Sinks = std::map<std::string, std::unique_ptr<Sink>>;

nlohmann::ordered_json
what_would_happen(const Config &config, const Sinks &sinks, Message claimed)
{
	Delivery delivery;
	const Message &message = delivery.message = std::move(claimed);
	nlohmann::ordered_json line{{"outbox_id", message.outbox_id},
								{"event_id", message.event_id},
								{"event_type", message.event_type},
								{"queue", message.queue},
								{"attempt", message.attempt}};
	const Route *route = config.routes->of(message);
	auto refuse = [&](const std::string &code, const std::string &text) {
		line["refused"] = code;
		line["error"] = text;
	};

	if (route == nullptr)
	{
		refuse("NO_ROUTE_CONFIGURED", "no route matches the message");
		return line;
	}
	line["sink"] = route->sink;
	if (auto refusal = map(*route, config.sinks.at(route->sink).binding, delivery))
	{
		refuse(refusal->code, refusal->text);
		return line;
	}
	if (route->schema_version && schema_version_of(message) < route->schema_version)
		line["lifted_to"] = *route->schema_version; // the rest shows it as it is
	line["topic"] = delivery.to.topic;
	if (!delivery.to.exchange.empty())
		line["exchange"] = delivery.to.exchange;
	if (!delivery.to.method.empty())
		line["method"] = delivery.to.method;
	if (delivery.to.key)
		line["key"] = *delivery.to.key;
	line["headers"] = nlohmann::ordered_json::object();
	for (const auto &[name, value] : delivery.headers)
		line["headers"][name] = value;
	line["content-type"] = delivery.content_type;
	line["body"] = delivery.body;
	if (auto objection = sinks.at(route->sink)->objection(delivery))
		refuse("ILLEGAL_DESTINATION", *objection);
	return line;
}

void
print(const nlohmann::ordered_json &line)
{
	std::cout << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

// Messages of a source in portions, until `most` were seen.
template <class Each>
void
each_pending(Asker &asker, const SourceSettings &source, size_t most, Each each)
{
	constexpr size_t portion = 500;
	std::optional<std::string> last;

	while (most > 0)
	{
		Rows rows = asker.ask(pending_messages, {queues_of(source), std::to_string(std::min(most, portion)), last});

		for (int row = 0; row < rows.count(); row++)
			each(decode_message(rows, row, 1));
		if (rows.count() < static_cast<int>(std::min(most, portion)))
			return;
		last = text_of(rows.uuid(rows.count() - 1, 0));
		most -= static_cast<size_t>(rows.count());
	}
}

bool
check_connection(Asker &asker)
{
	if (asker.connect())
		return true;
	std::cout << (asker.why().refused() ? "" : "cannot be reached: ") << asker.why().said() << "\n";
	return false;
}

// Nothing: without the extension, or if the server does not answer, there is no more to look at.
std::optional<bool>
check_server(Asker &asker, Asker &listener)
{
	bool well = true;

	try
	{
		Rows server = asker.ask("SELECT pg_catalog.current_setting('server_version'), current_user::text, "
								"pg_catalog.current_database()::text, "
								"EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'outbox')");

		std::cout << "connected to PostgreSQL " << server.text(0, 0) << " as " << server.text(0, 1) << "\n";
		if (!server.boolean(0, 3))
		{
			std::cout << "  database " << server.text(0, 2)
					  << " does not have the extension: CREATE EXTENSION outbox\n";
			return {};
		}
		if (!asker.ask("SELECT pg_catalog.pg_has_role('outbox_executor', 'USAGE')").boolean(0, 0))
		{
			std::cout << "  may not claim: GRANT outbox_executor TO " << server.text(0, 1) << "\n";
			well = false;
		}
		listener.ask("LISTEN outbox_pending");
		return well;
	}
	catch (const std::exception &error)
	{
		std::cout << error.what() << "\n";
		return {};
	}
}

bool
check_queues(Asker &asker, const SourceSettings &source, const Config &config, const Sinks &sinks, size_t messages)
{
	bool well = true;

	try
	{
		Rows missing = asker.ask("SELECT q FROM pg_catalog.unnest($1::text[]) q WHERE NOT EXISTS "
								 "(SELECT FROM outbox.queues WHERE queue = q)",
								 {queues_of(source)});

		for (int row = 0; row < missing.count(); row++)
		{
			std::cout << "  there is no queue " << missing.text(row, 0) << "\n";
			well = false;
		}
		each_pending(asker, source, messages, [&](Message message) {
			std::cout << "  ";
			print(what_would_happen(config, sinks, std::move(message)));
		});
	}
	catch (const std::exception &error)
	{
		std::cout << "  cannot look at queues and messages (GRANT outbox_readonly): " << error.what() << "\n";
		well = well && source.queues.front() != "*";
	}
	return well;
}

bool
check_source(const SourceSettings &source, const Config &config, const Sinks &sinks, size_t messages)
{
	Asker asker(source.dsn), listener(source.dsn); // the relay makes two connections, too

	std::cout << "source " << source.name << ": ";
	if (!check_connection(asker) || !check_connection(listener))
		return false;
	const auto well = check_server(asker, listener);
	return well && check_queues(asker, source, config, sinks, messages) && *well;
}

bool
check_sink(const std::string &name, Sink &sink, const SinkSettings &settings, const std::string &endpoint,
		   bool by_messages)
{
	auto answered = std::make_shared<Mailbox<Answer>>(); // may come after this
	std::vector<Answer> said;

	std::cout << "sink " << name << (endpoint.empty() ? "" : " " + endpoint) << ": ";
	if (by_messages && endpoint.empty())
	{
		std::cout << "not tried, since its hosts come from messages\n";
		return true;
	}
	sink.probe(endpoint, [answered](Answer answer) { answered->post(std::move(answer)); });
	for (auto until = Clock::now() + settings.timeout + 5s; said.empty() && Clock::now() < until; answered->take(said))
		sink.wait(answered->descriptor(), 500ms);
	if (said.empty())
	{
		std::cout << "no answer within " << settings.timeout.count() << " ms\n";
		return false;
	}
	const Answer &answer = said.front();
	std::cout << (answer.accepted ? "reached" : answer.code + " " + redact(answer.text)) << "\n";
	return answer.accepted;
}

std::string
text_of(const Finding &finding)
{
	using enum Finding::State;
	const std::string state = finding.state == there     ? "there"
							  : finding.state == missing ? "missing"
														 : "not looked for";

	return finding.what + ": " + state + (finding.text.empty() ? "" : "; " + redact(finding.text));
}

// `otherwise`: what a route without this part takes instead.
Target::Part
part_of(const Template &its, std::string_view otherwise)
{
	if (its.empty())
		return {std::string(otherwise), its.constant()};
	return {its.constant() ? its.prefix() : its.source(), its.constant()};
}

Target
target_of(const Route &route)
{
	constexpr std::string_view of_debezium = "outbox.event.{aggregate_type}";
	constexpr std::string_view by_message = "the message's routing_key, else its event_type";
	Target target{part_of(route.topic, route.debezium ? of_debezium : by_message), part_of(route.exchange, "")};

	target.topic.fixed = target.topic.fixed && !route.topic.empty();
	return target;
}

// Says of each target of the sink's routes what is there, once.
bool
check_destinations(const Config &config, const std::string &name, Sink &sink)
{
	std::set<std::string> said;
	bool well = true;

	for (const Route &route : config.routes->all())
	{
		if (route.sink != name)
			continue;
		for (const Finding &finding : sink.look_for(target_of(route)))
		{
			well = well && finding.state != Finding::State::missing;
			if (said.insert(text_of(finding)).second)
				std::cout << "  " << text_of(finding) << "\n";
		}
	}
	return well;
}

// Of a URL with fields this is the host, if there is none before the path.
std::string
fixed_part(const Template &topic)
{
	const std::string prefix = topic.prefix();
	const size_t scheme = prefix.find("://");

	return topic.constant() || (scheme != prefix.npos && prefix.find('/', scheme + 3) != prefix.npos) ? prefix : "";
}

// The endpoints that the configuration names itself, and "" if there are others, or none.
std::set<std::string>
endpoints_of(const Config &config, const std::string &name, const Sink &sink)
{
	std::set<std::string> endpoints;

	for (const Route &route : config.routes->all())
	{
		if (route.sink != name)
			continue;
		if (fixed_part(route.topic).empty())
		{
			endpoints.insert("");
			continue;
		}

		Delivery delivery;
		delivery.to.topic = fixed_part(route.topic);
		endpoints.insert(sink.endpoint(delivery));
	}
	if (endpoints.empty())
		endpoints.insert("");
	return endpoints;
}

Sinks
make_sinks(const Config &config)
{
	Sinks sinks;

	for (const auto &[name, sink] : config.sinks)
		sinks.emplace(name, sink.make());
	return sinks;
}

} // namespace

bool
check(const Config &config, size_t messages)
{
	NoAnswers ignored;
	Sinks sinks = make_sinks(config);
	bool well = true;

	for (auto &[name, sink] : sinks)
	{
		sink->start(ignored);
		bool reached = true;
		for (const auto &endpoint : endpoints_of(config, name, *sink))
			reached = check_sink(name, *sink, config.sinks.at(name).settings, endpoint,
								 config.sinks.at(name).binding == Binding::http) &&
					  reached;
		well = reached && check_destinations(config, name, *sink) && well;
	}
	for (const auto &source : config.sources)
		well = check_source(source, config, sinks, messages) && well;
	std::cout << (well ? "all is well\n" : "not all is well\n");
	return well;
}

bool
dry_run(const Config &config)
{
	Sinks sinks = make_sinks(config);
	bool well = true;

	for (const auto &source : config.sources)
	{
		try
		{
			Asker asker(source.dsn);

			if (!asker.connect())
				throw std::runtime_error(asker.why().said());
			each_pending(asker, source, SIZE_MAX,
						 [&](Message message) { print(what_would_happen(config, sinks, std::move(message))); });
		}
		catch (const std::exception &error)
		{
			std::cerr << "source " << source.name << ": " << error.what() << "\n";
			well = false;
		}
	}
	return well;
}

} // namespace relay
