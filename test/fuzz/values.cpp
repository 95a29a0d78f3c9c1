// See values.h.

#include "values.h"

namespace {

const std::vector<std::string> whole = {"0", "1", "-1", "2", "3", "10", "100", "1000", "2147483647", "-2147483648"};
const std::vector<std::string> small = {"0", "1", "-1", "2", "15", "16", "32767", "-32768"};
const std::vector<std::string> big = {"0", "1", "-1", "4294967296", "9223372036854775807", "-9223372036854775808"};
const std::vector<std::string> fractions = {"0",      "-0",    "1",   "-1",       "0.5",
											"1e-300", "1e300", "NaN", "Infinity", "-Infinity"};
const std::vector<std::string> decimals = {"0",       "1",   "-1",       "0.000001", "1e1000",
										   "-1e1000", "NaN", "Infinity", "-Infinity"};
const std::vector<std::string> uuids = {"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
										"00000000-0000-7000-8000-000000000000", "ffffffff-ffff-7fff-bfff-ffffffffffff",
										"01900000-0000-7000-8000-000000000001"};
const std::vector<std::string> times = {"infinity",
										"-infinity",
										"4714-11-24 00:00:00+00 BC",
										"294276-12-31 23:59:59.999999+00",
										"1970-01-01 00:00:00+00",
										"2000-01-01 00:00:00+00",
										"2001-02-03 04:05:06+00",
										"now",
										"tomorrow",
										"yesterday",
										"0001-01-01 00:00:00+00 BC"};
const std::vector<std::string> intervals = {"0",
											"1 us",
											"-1 us",
											"1 s",
											"1 min",
											"-1 day",
											"1 mon",
											"-1 mon 30 days",
											"100 ms",
											"178000000 years",
											"-178000000 years",
											"2147483647 days",
											"-2147483648 days",
											"9223372036854775807 us",
											"-9223372036854775807 us",
											"2147483647 mons 2147483647 days 9223372036854775807 us",
											"10675199 days",
											"106751991 days",
											"290000 years"};
const std::vector<std::string> documents = {"null",
											"{}",
											"[]",
											"0",
											"-1e400",
											"\"\"",
											"true",
											"{\"\": null}",
											"{\"a\": {\"b\": [1, 2, {\"c\": null}]}}",
											"{\"traceparent\": 1}",
											"{\"ключ\": \"значение\", \"🙂\": \"\\u00e9\"}",
											"{\"id\": 1, \"id\": 2}",
											"[null, null]",
											"\"text\""};
const std::vector<std::string> texts = {"",
										" ",
										"default",
										"a",
										"A",
										"null",
										"NULL",
										"{}",
										"{a,b}",
										"%s%n%d",
										"'",
										"\"",
										"\\",
										"$1",
										"a\nb\tc\r",
										"\x01",
										"\x7f",
										"é",
										"e\u0301",
										"привет",
										"日本語",
										"🙂🙂",
										"\u202e",
										"\ufeff",
										"outbox",
										"outbox_pending",
										"fuzz_operator",
										"public",
										"pg_catalog",
										"-1",
										"0",
										"1 day",
										"infinity",
										"a.b",
										"a b",
										"--",
										"/*",
										";"};
const std::vector<std::string> orders = {"none", "numbered"};
const std::vector<std::string> outcomes = {"DISPATCHED", "FAILED", "RETRYABLE"};
const std::string payment = "{\"amount\": 10, \"currency\": \"EUR\", \"destination\": \"DE02\"}";
const std::vector<std::string> workers = {"w1", "w2", "worker 3"};

std::string
nested(size_t depth)
{
	return std::string(depth, '[') + std::string(depth, ']');
}

std::string
in_array(const std::string &element)
{
	std::string result = "\"";

	for (char c : element)
	{
		if (c == '"' || c == '\\')
			result += '\\';
		result += c;
	}
	return result + '"';
}

} // namespace

std::string
quoted(const std::string &text)
{
	std::string result = text.find('\\') == std::string::npos ? "'" : " E'";

	for (char c : text)
	{
		if (c == '\'' || c == '\\')
			result += c;
		result += c;
	}
	return result + "'";
}

void
Values::begin_call()
{
	sensible = !once_in(3);
	length = once_in(10) ? 0 : once_in(40) ? 600 : 1 + below(5);
	lease = leases.empty() ? Lease{} : once_in(2) ? leases.back() : one_of(leases);
}

std::string
Values::text()
{
	static const std::vector<size_t> lengths = {62, 63, 64, 65, 127, 255, 256, 1000, 8191, 10000};

	if (once_in(300))
		return std::string(1 << 20, 'x');
	if (!once_in(6))
		return one_of(texts);
	std::string piece = one_of(texts);
	std::string result;
	size_t n = one_of(lengths);
	while (result.size() + piece.size() <= n && !piece.empty())
		result += piece;
	return result;
}

std::string
Values::nasty(const Type &type)
{
	const std::string &name = type.name;

	if (!type.labels.empty())
		return one_of(type.labels);
	if (name == "integer")
		return one_of(whole);
	if (name == "smallint")
		return one_of(small);
	if (name == "bigint" || name == "oid" || name == "xid8")
		return one_of(big);
	if (name == "real" || name == "double precision")
		return one_of(fractions);
	if (name == "numeric")
		return one_of(decimals);
	if (name == "boolean")
		return once_in(2) ? "true" : "false";
	if (name == "uuid")
		return !ids.empty() && !once_in(3) ? one_of(ids) : one_of(uuids);
	if (name == "bytea")
		return "\\x" + std::string(2 * below(50), 'f');
	if (type.category == 'D')
		return one_of(times);
	if (type.category == 'T')
		return one_of(intervals);
	if (name == "jsonb" || name == "json")
		return once_in(20) ? nested(1 + below(3000)) : once_in(50) ? quoted("x") : one_of(documents);
	if (name == "regclass")
		return once_in(2) ? "outbox.pending" : "pg_class";
	return text();
}

// What the names of our arguments promise.
bool
Values::expected(const std::string &name, const Type &type, size_t i, std::string *value)
{
	auto names = [&](const char *part) { return name.find(part) != std::string::npos; };

	if (type.name == "uuid" && names("token"))
		*value = leases.empty() ? uuids[0] : i == 0 ? lease.token : leases[(below(3) + i) % leases.size()].token;
	else if (type.name == "uuid" && !ids.empty())
		*value = leases.empty() ? one_of(ids) : i == 0 ? lease.id : leases[(below(3) + i) % leases.size()].id;
	else if (type.category == 'S' && (names("worker") || names("processor")))
		worker = *value = !lease.worker.empty() && once_in(2) ? lease.worker : one_of(workers);
	else if (type.category == 'S' && names("ordering"))
		*value = one_of(orders);
	else if (type.name == "bigint" && !numbers.empty())
		*value = one_of(numbers);
	else if (type.category == 'E')
		*value = one_of(outcomes);
	else if (type.name == "jsonb" && names("payload") && once_in(2))
		*value = payment;
	else if (type.category == 'S' && names("queue"))
		*value = once_in(10) ? text() : queues.empty() || once_in(4) ? "q" + std::to_string(below(8)) : one_of(queues);
	else if (type.category == 'S' && names("key"))
		*value = "key " + std::to_string(below(30));
	else if (type.category == 'S' && names("id"))
		*value = std::to_string(below(20));
	else if (type.name == "integer" || type.name == "smallint")
		*value = std::to_string(below(12));
	else if (type.name == "interval")
		*value = one_of(std::vector<std::string>{"0", "1 ms", "20 ms", "1 s", "1 min", "1 day"});
	else if (type.category == 'D')
		*value = one_of(std::vector<std::string>{"now", "yesterday", "tomorrow", "2001-02-03 04:05:06+00"});
	else
		return false;
	return true;
}

std::string
Values::scalar(const std::string &name, const Type &type, size_t i)
{
	std::string value;

	return sensible && !once_in(25) && expected(name, type, i, &value) ? value : nasty(type);
}

std::string
Values::array(const std::string &name, const Type &type)
{
	auto found = types.find(type.element);
	Type element = found != types.end() ? found->second : Type{type.element, 'S', "", {}};
	size_t n = sensible ? length : below(6);
	std::string bounds, items;

	for (size_t i = 0; i < n; i++)
		items += (i > 0 ? "," : "") + (once_in(sensible ? 40 : 10) ? "NULL" : in_array(scalar(name, element, i)));
	if (n == 0 || !once_in(10))
		return "{" + items + "}";
	if (once_in(2))
		return "[-3:" + std::to_string(static_cast<long>(n) - 4) + "]={" + items + "}";
	return "{{" + items + "},{" + items + "}}";
}

std::string
Values::argument(const std::string &name, const std::string &type_name, bool optional)
{
	auto found = types.find(type_name);
	Type type = found != types.end() ? found->second : Type{type_name, 'S', "", {}};

	// What only few calls set.
	for (const char *part : {"validator", "handler", "on_dead", "in_flight", "wait"})
		if (optional && sensible && name.find(part) != std::string::npos && !once_in(8))
			return "";
	if (once_in(sensible ? 30 : 6) || type.category == 'P' || type.category == 'C')
		return "NULL::" + (type.category == 'P' ? "text" : type.name);
	return quoted(type.element.empty() ? scalar(name, type, 0) : array(name, type)) + "::" + type.name;
}
