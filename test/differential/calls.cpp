// See calls.h.
//
// Leases last hours and delays are zero or hours: within a run nothing expires or falls
// due by itself, only where a move says so.

#include "calls.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "connection.h"

namespace {

using Text = std::optional<std::string>;

constexpr int64_t minute_us = 60'000'000;
constexpr int64_t day_us = 1440 * minute_us;

constexpr const char *workers[] = {"w1", "w2", "w\xc3\xb6rker '3'"};
constexpr const char *unknown_id = "00000000-0000-7000-8000-000000000000";
const std::string long_key(600, 'k');

// jitter: nobody alters it, so its backoff may be asked of the extension.
constexpr const char *queues[] = {"default", "plain", "numbered", "also numbered", "ordered", "blocking", "jitter"};
constexpr int altered_queues = 6; // the first of them
// These come and go; the second is never enqueued into.
constexpr const char *passing_queues[] = {"Now & 'then'", "spare"};

constexpr const char *leases[] = {"2 hours", "1 day", "1 mon"};
constexpr const char *delays[] = {"0", "0", "3 hours", "1 day 1 hour"};
// Where several rows that are due at once could not be looked at, nobody could tell in
// which order they fell due.
constexpr const char *long_delays[] = {"3 hours", "1 day 1 hour"};

std::string
as_uuids(const std::vector<Text> &ids)
{
	std::string text;

	for (const Text &id : ids)
		text += (text.empty() ? "" : ",") + (id ? quoted(*id) : std::string("NULL"));
	return "ARRAY[" + text + "]::uuid[]";
}

std::string
as_array(const std::vector<std::string> &items, const std::string &type)
{
	std::string text;

	for (const std::string &item : items)
		text += (text.empty() ? "" : ",") + item;
	return "ARRAY[" + text + "]::" + type + "[]";
}

std::string
json_string(const std::string &text)
{
	std::string result = "\"";

	for (char c : text)
	{
		if (c == '"' || c == '\\')
			result += '\\';
		result += c;
	}
	return result + "\"";
}

// ---- messages

struct Field {
	std::string name;
	std::string value;
	bool is_string; // in JSON
};

// Often one that somebody is just using.
std::string
random_queue(Random &random, const World &world)
{
	if (!world.used_keys.empty() && random.chance(35))
		return world.used_keys.front().queue;
	return random.chance(4) ? passing_queues[0] : random.pick(queues);
}

std::string
random_event_id(Random &random, const World &world)
{
	if (!world.messages.empty() && random.chance(30))
		return random.pick(world.messages);

	char text[40];

	std::snprintf(text, sizeof(text), "00000000-0000-4000-8000-%012d", random.below(500));
	return text;
}

// One of the keys used last in this queue, so that it comes up again; or else some key.
UsedKey
random_key(Random &random, const World &world, const std::string &queue, const std::string &argument)
{
	if (random.chance(65))
		for (const UsedKey &key : world.used_keys)
			if (key.queue == queue && key.argument == argument && random.chance(70))
				return key;
	if (argument == "event_id")
		return {queue, argument, random_event_id(random, world), "o-3"};
	return {queue, argument, "k" + std::to_string(random.below(500)), random.pick({"", "", "o-1", "o-2"})};
}

std::string
random_partition_key(Random &random)
{
	return random.chance(10) ? long_key : random.pick({"a", "a", "b", " "});
}

std::vector<Field>
random_fields(Random &random, World &world, const std::string &queue, bool two_keys)
{
	static constexpr const char *payloads[] = {
		"{}", "null", "17", R"({"a": [1, 2, {"b": null}]})", R"("text with \" and \u00fc")", "[]"};
	std::vector<Field> fields;

	auto maybe = [&](int percent, const char *name, const std::string &value, bool is_string) {
		if (random.chance(percent))
			fields.push_back({name, value, is_string});
	};
	maybe(100, "event_type", "type" + std::to_string(random.below(3)), true);
	if (random.chance(85))
		maybe(100, "payload", random.pick(payloads), false);
	else
		maybe(100, "payload_bytes", random.pick({"", "AA==", "/wD+CQ==", "e30="}), true);
	maybe(20, "content_type", "text/plain", true);
	maybe(30, "aggregate_type", "order", true);
	maybe(70, "partition_key", random_partition_key(random), true);

	std::string aggregate_id = "o-3";
	bool has_key = false;

	for (const char *argument : {"idempotency_key", "event_id"})
	{
		if (!random.chance(35) || (has_key && !two_keys))
			continue;

		UsedKey key = random_key(random, world, queue, argument);

		world.use(key);
		fields.push_back({argument, key.value, true});
		if (!has_key)
			aggregate_id = key.aggregate_id;
		has_key = true;
	}
	// None and an empty one are the same scope.
	maybe(aggregate_id.empty() ? 50 : 100, "aggregate_id", aggregate_id, true);
	maybe(20, "headers", R"({"trace": "t"})", false);
	maybe(20, "routing_key", "r.\xe2\x82\xac", true);
	maybe(40, "priority", std::to_string(random.pick({0, 1, 1, 7, 15})), false);
	maybe(30, "max_attempts", std::to_string(random.between(1, 3)), false);
	return fields;
}

void
add_deliver_at(Random &random, World &world, std::vector<Field> &fields)
{
	if (random.chance(20))
		fields.push_back({"deliver_at", random.chance(70) ? world.past() : world.future(), true});
}

void
add_fields(Call &call, const std::vector<Field> &fields)
{
	for (const Field &field : fields)
	{
		if (field.name == "payload_bytes")
		{
			call.arguments.emplace_back(field.name, "decode(" + quoted(field.value) + ", 'base64')");
			continue;
		}

		std::string type = field.name == "payload" || field.name == "headers" ? "::jsonb" : "";

		call.arguments.emplace_back(field.name,
									field.is_string || !type.empty() ? quoted(field.value) + type : field.value);
	}
}

std::string
as_json(const std::vector<Field> &fields)
{
	std::string text;

	for (const Field &field : fields)
		text += (text.empty() ? "" : ", ") + json_string(field.name) + ": " +
				(field.is_string ? json_string(field.value) : field.value);
	return "{" + text + "}";
}

Call
random_enqueue(Random &random, World &world, bool alone)
{
	Call call{"enqueue", {}};
	std::string queue = random_queue(random, world);
	std::vector<Field> fields = random_fields(random, world, queue, alone);

	add_deliver_at(random, world, fields);
	add_fields(call, fields);
	if (queue != "default" || random.chance(50))
		call.arguments.emplace_back("queue", quoted(queue));
	return call;
}

Call
random_enqueue_batch(Random &random, World &world, bool alone)
{
	std::string queue = random_queue(random, world);
	Call call{"enqueue_batch", {{"queue", quoted(queue)}}};
	std::string elements;

	for (int n = random.chance(5) ? 0 : random.between(1, 6); n > 0; n--)
	{
		std::vector<Field> fields = random_fields(random, world, queue, alone);

		add_deliver_at(random, world, fields);
		if (random.chance(20))
			fields.push_back({"routing_key", "null", false});
		elements += (elements.empty() ? "" : ", ") + as_json(fields);
	}
	call.arguments.emplace_back("messages", quoted("[" + elements + "]") + "::jsonb");
	return call;
}

Call
random_enqueue_and_claim(Random &random, World &world, bool alone)
{
	Call call{"enqueue_and_claim", {{"worker_id", quoted(random.pick(workers))}}};
	std::string queue = random_queue(random, world);

	add_fields(call, random_fields(random, world, queue, alone));
	call.arguments.emplace_back("queue", quoted(queue));
	if (random.chance(50))
		call.arguments.emplace_back("lease", quoted(random.pick(leases)));
	return call;
}

// ---- workers

std::string
random_queues(Random &random)
{
	std::vector<std::string> names;

	// A queue may come twice. The passing one may be unknown.
	for (int n = random.between(1, 6); n > 0; n--)
		names.push_back(quoted(random.chance(2) ? random.pick(passing_queues) : random.pick(queues)));
	if (random.chance(10))
		return "'[0:0]={plain}'::text[]";
	return as_array(names, "text");
}

// Two queues, maybe the same, and a batch that they can share without chance.
void
add_weights(Random &random, Call &call)
{
	int first = random.between(1, 3);
	int second = random.between(1, 3);

	call.arguments.emplace_back("batch_size", std::to_string((first + second) * random.between(1, 2)));
	call.arguments.emplace_back("queues", as_array({quoted(random.pick(queues)), quoted(random.pick(queues))}, "text"));
	call.arguments.emplace_back("queue_weights", as_array({std::to_string(first), std::to_string(second)}, "int"));
}

void
add_claim(Random &random, Call &call)
{
	if (random.chance(20))
		return add_weights(random, call);
	if (random.chance(90))
		call.arguments.emplace_back("batch_size", std::to_string(random.between(1, 8)));
	if (random.chance(60))
		call.arguments.emplace_back("lease", quoted(random.pick(leases)));
	if (random.chance(90))
		call.arguments.emplace_back("queues", random_queues(random));
}

Call
random_claim(Random &random)
{
	Call call{"claim", {{"worker_id", quoted(random.pick(workers))}}};

	add_claim(random, call);
	if (random.chance(20))
		call.arguments.emplace_back("wait", "'0'");
	return call;
}

// Mostly one that may still be held, or that another session may just be using.
Lease
random_lease(Random &random, World &world)
{
	std::vector<Lease *> fresh;

	for (Lease &lease : world.leases)
		if (lease.is_fresh)
			fresh.push_back(&lease);
	if (!world.used_leases.empty() && random.chance(25))
		return random.pick(world.used_leases);
	if (!fresh.empty() && random.chance(80))
		return *random.pick(fresh);
	if (!world.leases.empty() && random.chance(80))
		return random.pick(world.leases);
	if (!world.leases.empty() && !world.messages.empty() && random.chance(50))
		return {random.pick(world.messages), random.pick(world.leases).token, "w1", false};
	return {unknown_id, unknown_id, "w1", false};
}

std::string
worker_of(Random &random, const Lease &lease)
{
	return random.chance(95) ? lease.worker : random.pick(workers);
}

void
use_up(World &world, const std::string &token)
{
	for (Lease &lease : world.leases)
		if (lease.token == token)
			lease.is_fresh = false;
}

void
remember(World &world, const std::string &token)
{
	for (const Lease &lease : world.leases)
		if (lease.token == token)
		{
			world.use(lease);
			return;
		}
}

std::string
random_state(Random &random)
{
	return random.pick({"DISPATCHED", "DISPATCHED", "FAILED", "RETRYABLE", "RETRYABLE"});
}

Call
random_complete(Random &random, World &world)
{
	Lease lease = random_lease(random, world);
	Call call{"complete",
			  {{"outbox_id", quoted(lease.outbox_id)},
			   {"lease_token", quoted(lease.token)},
			   {"worker_id", quoted(worker_of(random, lease))}}};

	auto maybe = [&](int percent, const char *name, const std::string &value) {
		if (random.chance(percent))
			call.arguments.emplace_back(name, value);
	};
	// The implicit casts from text and varchar must do.
	std::string state = random.chance(3) ? "ZOMBIE_REQUEUE" : random_state(random);

	maybe(100, "state", quoted(state) + random.pick({"", "::text", "::varchar"}));
	maybe(30, "reference", "'ref'");
	maybe(30, "response_code", "'200'");
	maybe(30, "error_code", "'E1'");
	maybe(30, "error_message", "'went wrong'");
	maybe(30, "latency_ms", std::to_string(random.below(1000)));
	maybe(state == "RETRYABLE" ? 50 : 3, "retry_delay", quoted(random.pick(delays)));
	use_up(world, lease.token);
	remember(world, lease.token);
	return call;
}

// Leases of one worker, mostly; with some that are not, and the same one twice.
struct Items {
	std::string worker;
	std::vector<Text> ids;
	std::vector<Text> tokens;
};

Items
random_items(Random &random, World &world)
{
	Items items;
	Lease first = random_lease(random, world);

	items.worker = worker_of(random, first);
	items.ids.push_back(first.outbox_id);
	items.tokens.push_back(first.token);
	for (int n = random.below(6); n > 0; n--)
	{
		Lease lease = random_lease(random, world);

		if (lease.worker != items.worker && random.chance(80))
			continue;
		items.ids.push_back(random.chance(3) ? Text() : lease.outbox_id);
		items.tokens.push_back(random.chance(3) ? Text() : lease.token);
	}
	for (const Text &token : items.tokens)
		if (token)
			remember(world, *token);
	return items;
}

Call
items_call(const std::string &function, const Items &items)
{
	return {function,
			{{"worker_id", quoted(items.worker)},
			 {"outbox_ids", as_uuids(items.ids)},
			 {"lease_tokens", as_uuids(items.tokens)}}};
}

Call
random_reports(Random &random, World &world, const std::string &function, const Items &items, bool is_unobservable)
{
	Call call = items_call(function, items);
	size_t count = items.ids.size();

	auto each = [&](auto &&value) {
		std::vector<std::string> values;

		for (size_t i = 0; i < count; i++)
			values.push_back(value());
		return values;
	};
	auto maybe = [&](int percent, const char *name, const std::vector<std::string> &values, const char *type) {
		if (random.chance(percent))
			call.arguments.emplace_back(name, as_array(values, type));
	};
	auto nullable = [&](const std::string &value) { return random.chance(30) ? std::string("NULL") : value; };
	// Some items are bad, but none in two ways: which one is told is nobody's promise.
	std::vector<std::string> states = each([&] { return quoted(random_state(random)); });
	std::vector<std::string> latencies = each([&] { return nullable(std::to_string(random.below(99))); });
	std::vector<std::string> retry_delays = each(
		[&] { return is_unobservable ? quoted(random.pick(long_delays)) : nullable(quoted(random.pick(delays))); });

	for (size_t i = 0; i < count; i++)
	{
		switch (random.below(50))
		{
			case 0:
				states[i] = "NULL";
				break;
			case 1:
				states[i] = "'ZOMBIE_REQUEUE'";
				break;
			case 2:
				latencies[i] = "-1";
				break;
			case 3:
				states[i] = "'RETRYABLE'", retry_delays[i] = "'-1 s'";
				break;
			case 4:
				states[i] = "'FAILED'", latencies[i] = "NULL", retry_delays[i] = "'0'";
				continue;
		}
		if (states[i] != "'RETRYABLE'")
			retry_delays[i] = "NULL";
		if (!items.ids[i] || !items.tokens[i])
			states[i] = "'FAILED'", latencies[i] = "NULL", retry_delays[i] = "NULL";
	}
	maybe(100, "states", states, random.pick({"outbox.attempt_state", "text"}));
	maybe(30, "refs", each([&] { return nullable("'ref'"); }), "text");
	maybe(30, "response_codes", each([&] { return nullable("'500'"); }), "text");
	maybe(30, "error_codes", each([&] { return nullable("'E2'"); }), "text");
	maybe(30, "error_messages", each([&] { return nullable("'why'"); }), "text");
	maybe(30, "latencies_ms", latencies, "int");
	maybe(is_unobservable ? 100 : 50, "retry_delays", retry_delays, "interval");
	for (const Text &token : items.tokens)
		if (token)
			use_up(world, *token);
	return call;
}

Call
random_complete_batch(Random &random, World &world, bool is_unobservable)
{
	return random_reports(random, world, "complete_batch", random_items(random, world), is_unobservable);
}

// Several reports may wait one after the other, and what they reschedule at once falls due
// among what others did meanwhile, at moments that nobody could tell.
Call
random_complete_and_claim(Random &random, World &world, bool alone, bool is_unobservable)
{
	Items items = random.chance(10) ? Items{random.pick(workers), {}, {}} : random_items(random, world);
	bool may_wait_twice = items.ids.size() > 1 && !alone;
	Call call = random_reports(random, world, "complete_and_claim", items, is_unobservable || may_wait_twice);

	add_claim(random, call);
	return call;
}

Call
random_renew(Random &random, World &world)
{
	Call call = items_call("renew", random_items(random, world));

	if (random.chance(60))
		call.arguments.emplace_back("lease", quoted(random.pick(leases)));
	return call;
}

Call
random_release(Random &random, World &world, bool is_unobservable)
{
	Items items = random_items(random, world);
	Call call = items_call("release", items);

	if (is_unobservable)
		call.arguments.emplace_back("delay", quoted(random.pick(long_delays)));
	else if (random.chance(60))
		call.arguments.emplace_back("delay", quoted(random.pick(delays)));
	for (const Text &token : items.tokens)
		if (token)
			use_up(world, *token);
	return call;
}

Call
random_repair(Random &random, bool is_unobservable)
{
	Call call{"repair_expired_leases", {}};

	if (is_unobservable)
		call.arguments.emplace_back("batch_size", "1");
	else if (random.chance(70))
		call.arguments.emplace_back("batch_size", std::to_string(random.between(1, 4)));
	if (random.chance(50))
		call.arguments.emplace_back("worker_id", "'repairer'");
	if (random.chance(40))
		call.arguments.emplace_back("queues", random_queues(random));
	return call;
}

// ---- operators

std::string
random_message(Random &random, const World &world)
{
	if (world.messages.empty() || random.chance(3))
		return unknown_id;
	if (!world.used_leases.empty() && random.chance(15))
		return random.pick(world.used_leases).outbox_id;
	if (!world.pending.empty() && random.chance(60))
		return random.pick(world.pending);
	return random.pick(world.messages);
}

Call
random_cancel(Random &random, const World &world)
{
	std::string id =
		!world.heads.empty() && random.chance(30) ? random.pick(world.heads) : random_message(random, world);
	Call call{"cancel", {{"outbox_id", quoted(id)}, {"reason", "'no more'"}}};

	if (random.chance(50))
		call.arguments.emplace_back("force", random.chance(80) ? "true" : "false");
	return call;
}

Call
random_unblock(Random &random, const World &world)
{
	std::string queue = random.chance(80) ? random.pick({"ordered", "blocking"}) : random.pick(queues);
	std::string key = random_partition_key(random);

	if (!world.blocks.empty() && random.chance(60))
	{
		Block block = random.pick(world.blocks);

		queue = block.queue;
		key = block.partition_key;
	}
	return {"unblock", {{"queue", quoted(queue)}, {"partition_key", quoted(key)}}};
}

Call
random_break_lease(Random &random, const World &world)
{
	std::string id =
		!world.leased.empty() && random.chance(60) ? random.pick(world.leased) : random_message(random, world);

	return {"break_lease", {{"outbox_id", quoted(id)}, {"reason", "'it hangs'"}}};
}

Call
random_reschedule(Random &random, World &world, bool is_unobservable)
{
	Call call{"reschedule", {{"outbox_id", quoted(random_message(random, world))}}};
	int what = random.weighted({40, 20, 25, 15}); // time, both, priority, and the time as it is

	if (what < 2)
	{
		// What is due when it was enqueued is due beside others of its batch.
		bool is_due = random.chance(60) && !is_unobservable;

		call.arguments.emplace_back("next_attempt_at", quoted(is_due ? world.past() : world.future()));
	}
	if (what > 0)
		call.arguments.emplace_back("priority", random.pick({"0", "1", "7", "15"}));
	if (what == 3)
		call.arguments.emplace_back("next_attempt_at", "NULL");
	return call;
}

Call
random_replay(Random &random, World &world)
{
	std::string id = world.messages.empty() || random.chance(5) ? std::string(unknown_id) : random.pick(world.messages);

	if (!world.blocks.empty() && random.chance(30))
		id = random.pick(world.blocks).outbox_id;

	Call call{"replay", {{"outbox_id", quoted(id)}}};

	if (random.chance(30))
		call.arguments.emplace_back("deliver_at", quoted(random.chance(70) ? world.past() : world.future()));
	return call;
}

// Few in a call, mostly, so that there is something left for other calls.
void
add_filter(Random &random, World &world, Call &call)
{
	auto maybe = [&](int percent, const char *name, const std::string &value) {
		if (random.chance(percent))
			call.arguments.emplace_back(name, value);
	};
	maybe(30, "event_type", "'type" + std::to_string(random.below(3)) + "'");
	maybe(20, "error_code", random.pick({"'E1'", "'E2'", "'LEASE_EXPIRED'", "'CANCELLED'", "'CANCELLED'"}));
	maybe(10, "since", quoted(world.past()));
	maybe(5, "until", quoted(world.future()));
	maybe(3, "until", quoted(world.past()));
}

void
add_batch(Random &random, Call &call, const char *flag)
{
	if (random.chance(90))
		call.arguments.emplace_back("batch_size", random.pick({"1", "2", "2", "3", "5"}));
	if (random.chance(30))
		call.arguments.emplace_back(flag, random.pick({"true", "true", "false", "NULL"}));
}

Call
random_many(Random &random, World &world)
{
	std::string queue = quoted(random.pick(queues));
	int which = random.weighted({40, 35, 25});
	Call call{"purge", {{"queue", queue}}};

	if (which == 0)
		call = {"cancel_many", {{"queue", queue}, {"reason", "'wrong'"}}};
	if (which == 1)
		call = {"replay_many", {{"queue", queue}}};
	if (which < 2)
		add_filter(random, world, call);
	if (which < 2 && random.chance(80))
		call.arguments.emplace_back("dry_run", "false");
	// The queue spare seldom has anything to purge, if it exists at all.
	if (which == 2 && random.chance(25))
		call.arguments[0].second = queue = quoted(passing_queues[1]);
	if (which == 2 && random.chance(70))
		call.arguments.emplace_back("queue_again", queue);
	add_batch(random, call, which == 1 ? "again" : "force");
	return call;
}

void
add_settings(Random &random, Call &call, bool all)
{
	auto maybe = [&](int percent, const char *name, const std::string &value) {
		if (all || random.chance(percent))
			call.arguments.emplace_back(name, value);
	};
	maybe(50, "max_attempts", random.pick({"1", "2", "3", "20", "NULL"}));
	maybe(15, "lease", quoted(random.pick(leases)));
	maybe(15, "backoff_base", quoted(random.pick({"0", "1 hour", "1 day"})));
	maybe(15, "backoff_cap", quoted(random.pick({"0", "5 hours", "1 mon"})));
	maybe(15, "repair_delay", quoted(random.pick(delays)));
	maybe(25, "max_releases", random.pick({"0", "0", "1", "1", "2", "NULL"}));
	maybe(10, "handler_timeout", random.pick({"'1 hour'", "'3 hours'"}));
	maybe(10, "protect", "'{}'");
	maybe(10, "reveal_on_claim", random.pick({"true", "false"}));
	maybe(10, "audit_events", random.pick({"true", "false"}));
	maybe(25, "priority_aging", random.pick({"'1 hour'", "'1 hour'", "'3 hours'", "'0'"}));
	if (all)
		call.arguments.emplace_back("backoff_jitter", "0");
}

// The settings that a claim looks at come up often, those that would stop everything rarely.
Call
random_queue_call(Random &random)
{
	// Not the one with jitter.
	std::string passing = random.pick(passing_queues);
	std::string queue = random.chance(40) ? passing : queues[random.below(altered_queues)];
	int kind = random.weighted({25, 25, 15, 12, 23});
	// Only these are dropped: without the others little would happen.
	Call call{"", {{"queue", quoted(kind == 2 ? passing : queue)}}};

	switch (kind)
	{
		case 0:
			call.function = "create_queue";
			add_settings(random, call, true);
			if (random.chance(50))
				call.arguments.emplace_back("ordering", random.pick({"'numbered'", "'fifo'"}));
			if (random.chance(30))
				call.arguments.emplace_back("on_dead_head", "'block'");
			if (random.chance(10))
				call.arguments.emplace_back("paused", "true");
			break;
		case 1:
			call.function = "alter_queue";
			add_settings(random, call, false);
			if (random.chance(5))
				call.arguments.emplace_back("ordering", random.pick({"'numbered'", "'none'", "'fifo'"}));
			// Often, so that in each run some queue blocks for a while.
			if (random.chance(40))
				call.arguments.emplace_back("on_dead_head",
											random.pick({"'block'", "'block'", "'block'", "'continue'"}));
			if (random.chance(10))
				call.arguments.emplace_back("paused", random.pick({"true", "false"}));
			break;
		case 2:
			call.function = "drop_queue";
			break;
		case 3:
			call.function = "pause";
			break;
		default:
			call.function = "resume";
	}
	return call;
}

Call
random_backoff(Random &random, const World &world)
{
	Call call{"backoff",
			  {{"queue", quoted(random.pick(queues))},
			   {"attempt_no", random.pick({"1", "2", "3", "7", "40", "64", "2147483647"})}}};

	// Without a message it is the delay before jitter is taken off.
	if (!world.messages.empty() && random.chance(50))
		call.arguments.emplace_back("outbox_id", quoted(random.pick(world.messages)));
	return call;
}

// ---- what must be refused

struct Bad {
	const char *function;
	const char *argument;
	const char *value;
};

constexpr Bad bad[] = {
	{"enqueue", "event_type", "NULL"},
	{"enqueue", "event_type", "''"},
	{"enqueue", "queue", "NULL"},
	{"enqueue", "queue", "'nowhere'"},
	{"enqueue", "queue", "''"},
	{"enqueue", "headers", "NULL"},
	{"enqueue", "headers", "'[1]'"},
	{"enqueue", "headers", "'3'"},
	{"enqueue", "headers", "'null'"},
	{"enqueue", "priority", "NULL"},
	{"enqueue", "priority", "-1"},
	{"enqueue", "priority", "16"},
	{"enqueue", "priority", "65536"},
	{"enqueue", "max_attempts", "0"},
	{"enqueue", "max_attempts", "-1"},
	{"enqueue", "partition_key", "''"},
	{"enqueue", "idempotency_key", "''"},
	{"enqueue", "event_id", "'00000000-0000-0000-0000-000000000000'"},
	{"enqueue", "deliver_at", "'12000-01-01 00:00+00'"},
	{"enqueue", "deliver_at", "'infinity'"},
	{"enqueue", "deliver_at", "'-infinity'"},
	{"enqueue_batch", "queue", "NULL"},
	{"enqueue_batch", "queue", "'nowhere'"},
	{"enqueue_batch", "messages", "NULL"},
	{"enqueue_batch", "messages", "'{}'"},
	{"enqueue_batch", "messages", "'3'"},
	{"enqueue_batch", "messages", "'null'"},
	// GOOD is an element with nothing wrong.
	{"enqueue_batch", "messages", "'[GOOD, 1]'"},
	{"enqueue_batch", "messages", "'[GOOD, []]'"},
	{"enqueue_batch", "messages", "'[GOOD, null]'"},
	{"enqueue_batch", "messages", "'[GOOD, {}]'"},
	{"enqueue_batch", "messages", R"('[GOOD, {"payload": 1}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": null, "payload": 1}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "", "payload": 1}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": 5, "payload": 1}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a"}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload": 1, "payload_bytes": ""}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload_bytes": "?"}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload_bytes": 17}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload": 1, "x": 1}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload": 1, "payload_bytes": "e30="}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload": 1, "queue": "plain"}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload": 1, "priority": "1"}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload": 1, "priority": 1.5}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload": 1, "priority": 16}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload": 1, "headers": []}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload": 1, "max_attempts": 0}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload": 1, "event_id": "x"}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload": 1, "event_id": 7}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload": 1, "deliver_at": "soon"}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload": 1, "deliver_at": "infinity"}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload": 1, "partition_key": ""}]')"},
	{"enqueue_batch", "messages", R"('[GOOD, {"event_type": "a", "payload": 1, "idempotency_key": ""}]')"},
	{"enqueue_batch", "messages",
	 R"('[GOOD, {"event_type": "a", "payload": 1, "deliver_at": "2030-01-01 12:00:00"}]')"},
	{"enqueue_and_claim", "idempotency_key", "''"},
	{"enqueue_and_claim", "worker_id", "NULL"},
	{"enqueue_and_claim", "worker_id", "''"},
	{"enqueue_and_claim", "event_type", "''"},
	{"enqueue_and_claim", "queue", "'nowhere'"},
	{"enqueue_and_claim", "priority", "16"},
	{"enqueue_and_claim", "max_attempts", "0"},
	{"enqueue_and_claim", "lease", "'0'"},
	{"enqueue_and_claim", "lease", "'3653 days 1 us'"},
	{"enqueue_and_claim", "lease", "'-1 hour'"},
	{"claim", "worker_id", "NULL"},
	{"claim", "worker_id", "''"},
	{"claim", "batch_size", "NULL"},
	{"claim", "batch_size", "0"},
	{"claim", "batch_size", "-7"},
	{"claim", "lease", "'0'"},
	{"claim", "lease", "'-1 day'"},
	{"claim", "lease", "'1 day -24 hours'"},
	{"claim", "queues", "'{}'"},
	{"claim", "queues", "'{plain,nowhere}'"},
	{"claim", "queues", "'{plain,NULL}'"},
	{"claim", "queues", "'{{plain},{numbered}}'"},
	{"claim", "wait", "NULL"},
	{"claim", "wait", "'-1 s'"},
	{"claim", "queue_weights", "'{}'"},
	{"claim", "queue_weights", "'{1,2,3,4,5,6,7,8,9}'"},
	{"complete", "outbox_id", "NULL"},
	{"complete", "lease_token", "NULL"},
	{"complete", "worker_id", "NULL"},
	{"complete", "worker_id", "''"},
	{"complete", "state", "NULL"},
	{"complete", "state", "'ZOMBIE_REQUEUE'"},
	{"complete", "state", "'DONE'"},
	{"complete", "latency_ms", "-1"},
	{"complete", "retry_delay", "'-1 s'"},
	{"complete_batch", "worker_id", "NULL"},
	{"complete_batch", "worker_id", "''"},
	{"complete_batch", "outbox_ids", "NULL"},
	{"complete_batch", "lease_tokens", "NULL"},
	{"complete_batch", "states", "NULL"},
	{"complete_batch", "outbox_ids", "'{}'"},
	{"complete_batch", "states", "'{}'"},
	{"complete_batch", "states", "'{{FAILED},{FAILED}}'"},
	{"complete_batch", "refs", "'{}'"},
	{"complete_batch", "latencies_ms", "'{1,2,3,4,5,6,7,8,9}'"},
	{"complete_batch", "retry_delays", "'{{0},{0}}'"},
	{"complete_and_claim", "worker_id", "''"},
	{"complete_and_claim", "outbox_ids", "NULL"},
	{"complete_and_claim", "lease_tokens", "'{{00000000-0000-7000-8000-000000000000}}'"},
	{"complete_and_claim", "states", "NULL"},
	{"complete_and_claim", "latencies_ms", "'{1,2,3,4,5,6,7,8,9}'"},
	{"complete_and_claim", "batch_size", "NULL"},
	{"complete_and_claim", "batch_size", "0"},
	{"complete_and_claim", "lease", "'0'"},
	{"complete_and_claim", "queues", "'{}'"},
	{"complete_and_claim", "queues", "'{plain,nowhere}'"},
	{"complete_and_claim", "queues", "'{plain,NULL}'"},
	{"complete_and_claim", "queues", "'{{plain},{numbered}}'"},
	{"complete_and_claim", "queue_weights", "'{}'"},
	{"complete_and_claim", "queue_weights", "'{1,2,3,4,5,6,7,8,9}'"},
	{"renew", "worker_id", "NULL"},
	{"renew", "worker_id", "''"},
	{"renew", "outbox_ids", "NULL"},
	{"renew", "outbox_ids", "'{}'"},
	{"renew", "lease_tokens", "NULL"},
	{"renew", "lease", "'0'"},
	{"renew", "lease", "'-1 mon'"},
	{"renew", "lease", "'11 years'"},
	{"release", "worker_id", "''"},
	{"release", "lease_tokens", "NULL"},
	{"release", "lease_tokens", "'{}'"},
	{"release", "delay", "NULL"},
	{"release", "delay", "'11 years'"},
	{"release", "delay", "'-1 s'"},
	{"repair_expired_leases", "batch_size", "NULL"},
	{"repair_expired_leases", "batch_size", "0"},
	{"repair_expired_leases", "worker_id", "NULL"},
	{"repair_expired_leases", "worker_id", "''"},
	{"repair_expired_leases", "queues", "'{}'"},
	{"repair_expired_leases", "queues", "'{nowhere}'"},
	{"repair_expired_leases", "queues", "'{NULL}'"},
	{"repair_expired_leases", "queues", "'{{plain},{numbered}}'"},
	{"cancel", "outbox_id", "NULL"},
	{"cancel", "reason", "NULL"},
	{"cancel", "reason", "''"},
	{"cancel", "force", "NULL"},
	{"cancel_many", "queue", "NULL"},
	{"cancel_many", "queue", "'nowhere'"},
	{"cancel_many", "reason", "NULL"},
	{"cancel_many", "reason", "''"},
	{"cancel_many", "batch_size", "0"},
	{"replay_many", "queue", "'nowhere'"},
	{"replay_many", "batch_size", "NULL"},
	{"replay_many", "batch_size", "-1"},
	{"purge", "queue", "NULL"},
	{"purge", "queue_again", "'elsewhere'"},
	{"break_lease", "outbox_id", "NULL"},
	{"break_lease", "reason", "NULL"},
	{"break_lease", "reason", "''"},
	{"reschedule", "outbox_id", "NULL"},
	{"reschedule", "next_attempt_at", "'infinity'"},
	{"reschedule", "next_attempt_at", "'-infinity'"},
	{"reschedule", "next_attempt_at", "'12000-01-01 00:00+00'"},
	{"reschedule", "priority", "16"},
	{"reschedule", "priority", "-1"},
	{"replay", "outbox_id", "NULL"},
	{"replay", "deliver_at", "'infinity'"},
	{"create_queue", "queue", "NULL"},
	{"create_queue", "queue", "''"},
	{"create_queue", "queue", "repeat('q', 64)"},
	{"create_queue", "queue", "repeat('\xc3\xbc', 32)"},
	{"create_queue", "queue", "'plain'"},
	{"create_queue", "max_attempts", "0"},
	{"create_queue", "lease", "NULL"},
	{"create_queue", "lease", "'0'"},
	{"create_queue", "backoff_base", "'-1 s'"},
	{"create_queue", "backoff_base", "NULL"},
	{"create_queue", "backoff_cap", "'-1 s'"},
	{"create_queue", "payload_kind", "'array'"},
	{"create_queue", "payload_kind", "NULL"},
	{"alter_queue", "payload_kind", "''"},
	{"create_queue", "max_releases", "-1"},
	{"alter_queue", "max_releases", "-2"},
	{"create_queue", "backoff_jitter", "1.5"},
	{"create_queue", "backoff_jitter", "-0.1"},
	{"create_queue", "backoff_jitter", "'NaN'"},
	{"create_queue", "repair_delay", "'-1 s'"},
	{"create_queue", "ordering", "'random'"},
	{"create_queue", "ordering", "NULL"},
	{"create_queue", "on_dead_head", "'stop'"},
	{"create_queue", "validator", "'public.f'"},
	{"create_queue", "paused", "NULL"},
	{"create_queue", "max_in_flight", "0"},
	{"create_queue", "rate_limit", "0"},
	{"create_queue", "rate_limit", "-1"},
	{"create_queue", "rate_burst", "-1"},
	{"create_queue", "max_in_flight_per_key", "0"},
	{"create_queue", "fair_by", "'queue'"},
	{"create_queue", "priority_aging", "'-1 s'"},
	{"create_queue", "handler", "'public.f'"},
	{"create_queue", "handler_timeout", "'0'"},
	{"create_queue", "handler_timeout", "NULL"},
	{"create_queue", "dead_letter_queue", "'nowhere'"},
	{"create_queue", "protect", "'[]'"},
	{"create_queue", "protect", R"('{"subject": "s"}')"},
	{"create_queue", "protect", R"('{"subject": "s", "fields": []}')"},
	{"create_queue", "reveal_on_claim", "NULL"},
	{"create_queue", "audit_events", "NULL"},
	{"alter_queue", "queue", "NULL"},
	{"alter_queue", "queue", "'nowhere'"},
	{"alter_queue", "max_attempts", "0"},
	{"alter_queue", "max_attempts", "-2"},
	{"alter_queue", "lease", "'0'"},
	{"alter_queue", "backoff_cap", "'-1 s'"},
	{"alter_queue", "backoff_jitter", "2"},
	{"alter_queue", "validator", "'public.f'"},
	{"alter_queue", "max_in_flight", "0"},
	{"alter_queue", "rate_limit", "'NaN'"},
	{"alter_queue", "rate_burst", "0"},
	{"alter_queue", "max_in_flight_per_key", "-2"},
	{"alter_queue", "fair_by", "'queue'"},
	{"alter_queue", "priority_aging", "'-1 s'"},
	{"alter_queue", "handler", "'public.f'"},
	{"alter_queue", "handler_timeout", "'-1 s'"},
	{"alter_queue", "dead_letter_queue", "'nowhere'"},
	{"alter_queue", "protect", R"('{"subject": "s", "fields": [1]}')"},
	{"unblock", "queue", "NULL"},
	{"unblock", "queue", "'nowhere'"},
	{"unblock", "partition_key", "NULL"},
	{"unblock", "partition_key", "''"},
	{"drop_queue", "queue", "NULL"},
	{"drop_queue", "queue", "'nowhere'"},
	{"pause", "queue", "NULL"},
	{"pause", "queue", "'nowhere'"},
	{"resume", "queue", "NULL"},
	{"resume", "queue", "'nowhere'"},
	{"backoff", "queue", "NULL"},
	{"backoff", "queue", "'nowhere'"},
	{"backoff", "attempt_no", "NULL"},
	{"backoff", "attempt_no", "0"},
};

// A good call of the function.
Call
good_call(Random &random, World &world, const std::string &function)
{
	if (function == "enqueue")
		return random_enqueue(random, world, false);
	if (function == "enqueue_batch")
		return random_enqueue_batch(random, world, false);
	if (function == "enqueue_and_claim")
		return random_enqueue_and_claim(random, world, false);
	if (function == "claim")
		return random_claim(random);
	if (function == "complete")
		return random_complete(random, world);
	if (function == "complete_batch")
		return random_complete_batch(random, world, false);
	if (function == "complete_and_claim")
		return random_complete_and_claim(random, world, false, false);
	if (function == "renew")
		return random_renew(random, world);
	if (function == "release")
		return random_release(random, world, false);
	if (function == "repair_expired_leases")
		return random_repair(random, false);
	if (function == "cancel")
		return random_cancel(random, world);
	if (function == "cancel_many")
		return {function, {{"queue", "'plain'"}, {"reason", "'wrong'"}}};
	if (function == "break_lease")
		return random_break_lease(random, world);
	if (function == "reschedule")
		return random_reschedule(random, world, false);
	if (function == "unblock")
		return random_unblock(random, world);
	if (function == "replay")
		return random_replay(random, world);
	if (function == "backoff")
		return {function, {{"queue", "'plain'"}, {"attempt_no", "1"}}};
	if (function == "create_queue")
		return {function, {{"queue", "'never made'"}}};
	return {function, {{"queue", "'plain'"}}};
}

bool
never_waits(const std::string &function)
{
	return function == "claim" || function == "renew" || function == "release" || function == "repair_expired_leases" ||
		   function == "backoff";
}

Call
random_bad_call(Random &random, World &world, bool may_wait)
{
	// Of the functions one that was chosen least often.
	std::map<int, std::set<std::string>> functions;
	std::vector<Bad> choice;

	for (const Bad &one : bad)
		if (may_wait || never_waits(one.function))
			functions[world.bad[one.function]].insert(one.function);

	std::string function = random.pick(functions.begin()->second);

	world.bad[function]++;
	for (const Bad &one : bad)
		if (function == one.function)
			choice.push_back(one);

	Bad chosen = random.pick(choice);
	Call call = good_call(random, world, chosen.function);
	std::string value = chosen.value;
	size_t good = value.find("GOOD");

	if (good != std::string::npos)
		value.replace(good, 4, as_json(random_fields(random, world, "", false)));
	std::erase_if(call.arguments, [&](const auto &one) { return one.first == chosen.argument; });
	call.arguments.emplace_back(chosen.argument, value);
	call.is_bad = true;
	return call;
}

} // namespace

int
Random::weighted(const std::vector<int> &weights)
{
	int total = 0;

	for (int weight : weights)
		total += weight;

	int dice = below(total);

	for (size_t i = 0; i < weights.size(); i++)
	{
		dice -= weights[i];
		if (dice < 0)
			return static_cast<int>(i);
	}
	return 0;
}

std::string
Call::sql(const std::string &schema) const
{
	std::string text;

	for (const auto &[name, value] : arguments)
		text += (text.empty() ? "" : ", ") + name + " => " + value;
	return "SELECT * FROM " + schema + "." + function + "(" + text + ")";
}

std::string
World::past()
{
	// In the first half of an hour, so that no wait comes to whole hours while the test runs: priorities rise then.
	do
		moments += 7;
	while (moments % 60 == 0 || moments % 60 > 30);
	return format_time(began_us - moments * minute_us);
}

std::string
World::future()
{
	return format_time(began_us + 60 * day_us + ++moments * minute_us);
}

void
World::add_message(const std::string &id)
{
	messages.push_back(id);
	if (messages.size() > 150)
		messages.pop_front();
}

void
World::add_lease(const std::string &id, const std::string &token, const std::string &worker)
{
	leases.push_back({id, token, worker, true});
	if (leases.size() > 60)
		leases.pop_front();
}

void
World::use(const Lease &lease)
{
	used_leases.push_front(lease);
	if (used_leases.size() > 6)
		used_leases.pop_back();
}

void
World::use(const UsedKey &key)
{
	used_keys.push_front(key);
	if (used_keys.size() > 25)
		used_keys.pop_back();
}

Call
random_call(Random &random, World &world, Circumstances circumstances)
{
	// The number of pending messages swings round some dozens.
	int produce = world.pending.size() > 60 ? 1 : world.pending.size() < 15 ? 8 : 3;
	bool alone = circumstances.alone;
	bool is_unobservable = circumstances.is_unobservable;
	int waits = circumstances.may_wait ? 1 : 0;

	switch (random.weighted({waits * produce * 6, waits * produce * 2, waits * produce * 2, 18, waits * 14, waits * 9,
							 7, 7, 7, waits * 5, waits * 7, waits * 8, 1, 9, waits * 5, waits * 5, waits * 8, waits * 9,
							 alone && !is_unobservable ? 40 : 0}))
	{
		case 0:
			return random_enqueue(random, world, alone);
		case 1:
			return random_enqueue_batch(random, world, alone);
		case 2:
			return random_enqueue_and_claim(random, world, alone);
		case 3:
			return random_claim(random);
		case 4:
			return random_complete(random, world);
		case 5:
			return random_complete_batch(random, world, is_unobservable);
		case 6:
			return random_renew(random, world);
		case 7:
			return random_release(random, world, is_unobservable);
		case 8:
			return random_repair(random, is_unobservable);
		case 9:
			return random_cancel(random, world);
		case 10:
			return random_replay(random, world);
		case 11:
			return random_queue_call(random);
		case 12:
			return random_backoff(random, world);
		case 13:
			return random_bad_call(random, world, circumstances.may_wait);
		case 14:
			return random_break_lease(random, world);
		case 15:
			return random_reschedule(random, world, is_unobservable);
		case 16:
			return random_unblock(random, world);
		case 17:
			return random_complete_and_claim(random, world, alone, is_unobservable);
		default:
			return random_many(random, world);
	}
}

std::vector<Call>
first_calls()
{
	std::vector<std::pair<std::string, std::string>> times = {
		{"lease", "'2 hours'"}, {"backoff_base", "'1 hour'"}, {"backoff_cap", "'1 day'"}, {"repair_delay", "'0'"}};

	auto make = [&](const char *function, const char *queue, std::vector<std::pair<std::string, std::string>> more) {
		Call call{function, {{"queue", quoted(queue)}}};

		call.arguments.insert(call.arguments.end(), times.begin(), times.end());
		call.arguments.insert(call.arguments.end(), more.begin(), more.end());
		return call;
	};
	return {
		make("alter_queue", queues[0], {{"max_attempts", "3"}, {"backoff_jitter", "0"}}),
		make("create_queue", queues[1],
			 {{"backoff_jitter", "0"}, {"max_releases", "1"}, {"priority_aging", "'1 hour'"}}),
		make("create_queue", queues[2], {{"ordering", "'numbered'"}, {"backoff_jitter", "0"}}),
		make("create_queue", queues[3],
			 {{"ordering", "'numbered'"},
			  {"max_attempts", "2"},
			  {"max_releases", "0"},
			  {"backoff_jitter", "0"},
			  {"priority_aging", "'1 hour'"}}),
		make("create_queue", queues[4], {{"ordering", "'fifo'"}, {"max_releases", "1"}, {"backoff_jitter", "0"}}),
		make("create_queue", queues[5],
			 {{"ordering", "'fifo'"},
			  {"on_dead_head", "'block'"},
			  {"max_attempts", "3"},
			  {"backoff_jitter", "0"},
			  {"priority_aging", "'3 hours'"}}),
		make("create_queue", queues[6], {{"backoff_jitter", "0.5"}, {"payload_kind", "'any'"}, {"max_releases", "0"}})};
}

std::vector<Call>
last_calls()
{
	std::vector<Call> calls;

	for (const char *queue : {queues[4], queues[5]})
	{
		calls.push_back({"resume", {{"queue", quoted(queue)}}});
		calls.push_back({"claim", {{"worker_id", "'w1'"}, {"queues", as_array({quoted(queue)}, "text")}}});
	}
	return calls;
}

Move
random_move(Random &random, World &world, int64_t now_us)
{
	std::string at = quoted(format_time(now_us));
	auto row = [&](const std::vector<std::string> &ids) {
		return "(SELECT outbox_id FROM {s}.pending WHERE outbox_id = " +
			   quoted(ids.empty() ? unknown_id : random.pick(ids)) + " FOR UPDATE SKIP LOCKED)";
	};
	auto update = [&](const std::string &what, const std::vector<std::string> &ids) {
		return "UPDATE {s}.pending SET " + what + " WHERE outbox_id = " + row(ids);
	};
	auto attempt = [&](const std::string &state, bool is_terminal) {
		std::string id = world.leased.empty() ? unknown_id : random.pick(world.leased);

		// Soon somebody may report it.
		for (const Lease &lease : world.leases)
			if (lease.outbox_id == id)
				world.use(lease);
		return "INSERT INTO {s}.attempts (outbox_id, attempt_no, state, completed_at, recorded_by, "
			   "created_at) SELECT p.outbox_id, (SELECT coalesce(max(a.attempt_no), 0) + 1 FROM "
			   "{s}.attempts a WHERE a.outbox_id = p.outbox_id), " +
			   quoted(state) + ", " + (is_terminal ? at : "NULL") + ", 'by hand', " + at + " FROM " + row({id}) +
			   " p WHERE NOT EXISTS (SELECT FROM {s}.attempts a WHERE a.outbox_id = p.outbox_id "
			   "AND a.state IN ('DISPATCHED', 'FAILED'))" +
			   // A message of an ordered key that ends so, and is then deleted, would leave its key as it is.
			   (is_terminal ? " AND (SELECT q.ordering <> 'fifo' FROM {s}.queues q JOIN {s}.pending r USING (queue) "
							  "WHERE r.outbox_id = p.outbox_id)"
							: "");
	};

	switch (random.weighted({45, 30, 5, 5, 4, 6, 6}))
	{
		case 0:
			return {"a lease expires", update("lease_expires_at = " + quoted(world.past()), world.leased)};
		case 1:
			return {"a message falls due", update("next_attempt_at = " + quoted(world.past()), world.pending)};
		case 2:
			return {"a message is put off", update("next_attempt_at = " + quoted(world.future()), world.pending)};
		case 3:
			return {"the cached count grows", update("attempt_count = attempt_count + 2", world.pending)};
		case 4:
			return {"an attempt is inserted", attempt("RETRYABLE", false)};
		case 5:
			// A failed one has a row among the dead letters as well, which the model does not keep.
			return {"a terminal attempt is inserted", attempt("DISPATCHED", true)};
		default:
			return {"pending rows with a terminal attempt are deleted",
					"DELETE FROM {s}.pending WHERE outbox_id IN (SELECT p.outbox_id FROM {s}.pending p "
					"WHERE EXISTS (SELECT FROM {s}.attempts a WHERE a.outbox_id = p.outbox_id AND "
					"a.state IN ('DISPATCHED', 'FAILED')) FOR UPDATE OF p SKIP LOCKED)"};
	}
}
