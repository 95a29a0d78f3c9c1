// See compare.h.

#include "compare.h"

#include <algorithm>

namespace {

constexpr size_t longest_cell = 120;
constexpr size_t most_rows = 12;

struct View {
	const char *name;
	const char *columns;
	const char *key; // they are sorted by it
	bool is_growing; // only rows of late are looked at
};

constexpr View tables[] = {
	{"pending",
	 "outbox_id, queue, priority, partition_key, sequence_id, attempt_count, max_attempts, "
	 "next_attempt_at, created_at, claimed_by, claimed_at, lease_token, lease_expires_at, release_count",
	 "outbox_id", false},
	{"queues",
	 "queue, max_attempts, lease, backoff_base, backoff_cap, backoff_jitter, repair_delay, "
	 "ordering, on_dead_head, validator, paused, max_in_flight, created_at, payload_kind, max_releases",
	 "queue", false},
	{"sequences", "queue, partition_key, next_sequence_id", "queue, partition_key", false},
	{"messages",
	 "outbox_id, queue, event_id, event_type, aggregate_type, aggregate_id, partition_key, "
	 "sequence_id, idempotency_key, routing_key, priority, max_attempts, payload, payload_bytes, content_type, headers, "
	 "replay_of, created_at",
	 "outbox_id", true},
	{"attempts",
	 "outbox_id, attempt_no, state, worker_id, lease_token, claimed_at, completed_at, "
	 "reference, response_code, error_code, error_message, latency_ms, recorded_by, created_at",
	 "outbox_id, attempt_no", true},
};

constexpr View views[] = {
	{"dead_letters",
	 "outbox_id, queue, event_id, created_at, died_at, error_code, error_message, attempts, "
	 "worker_id, recorded_by, replay_of",
	 "outbox_id", false},
	{"operational_status", "outbox_id, queue, state, release_count, last_attempt_no, last_attempt_state", "outbox_id",
	 false},
	{"status",
	 "queue, paused, pending_count, due_unleased_count, leased_count, expired_lease_count, "
	 "scheduled_count, dead_count",
	 "queue", false},
};

std::string
query(const View &view, const std::string &schema, const std::string &condition)
{
	bool has_slack = schema == "model" && std::string(view.name) != "sequences";
	std::string slack = has_slack ? "(extract(epoch FROM slack) * 1000000)::bigint" : "0";

	return "SELECT " + std::string(view.columns) + ", " + slack + " AS slack FROM " + schema + "." + view.name +
		   condition + " ORDER BY " + view.key;
}

std::string
shown(const Cell &cell)
{
	if (!cell)
		return "NULL";
	return cell->size() <= longest_cell ? *cell : cell->substr(0, longest_cell) + "...";
}

std::string
shown(const std::vector<Column> &columns, const Row &row)
{
	std::string text;

	for (size_t i = 0; i < row.size(); i++)
		text += (i > 0 ? ", " : "") + columns[i].name + "=" + shown(row[i]);
	return text;
}

bool
agree(const Cell &extension, const Cell &model, bool is_time, int64_t slack_us)
{
	if (model == "*" || extension == model)
		return true;
	if (!is_time || !extension || !model)
		return false;

	int64_t later = parse_time(*extension) - parse_time(*model);

	return later >= 0 && later <= slack_us;
}

// The first column that differs, or -1.
int
differing(const std::vector<Column> &columns, const Row &extension, const Row &model, size_t count, int64_t slack_us)
{
	for (size_t i = 0; i < count; i++)
		if (!agree(extension[i], model[i], columns[i].is_time, slack_us))
			return static_cast<int>(i);
	return -1;
}

void
compare_table(const std::string &name, const Answer &extension, const Answer &model)
{
	size_t count = extension.columns.size() - 1; // the last is the slack
	size_t rows = std::max(extension.rows.size(), model.rows.size());

	for (size_t i = 0; i < rows; i++)
	{
		bool missing = i >= extension.rows.size() || i >= model.rows.size();
		int column = missing ? 0
							 : differing(extension.columns, extension.rows[i], model.rows[i], count,
										 std::stoll(*model.rows[i].back()));

		if (column < 0)
			continue;

		auto row = [&](const Answer &answer) {
			return i < answer.rows.size() ? shown(answer.columns, answer.rows[i]) : std::string("no such row");
		};

		throw Disagreement{name + " differ" + (missing ? "" : " in " + extension.columns[column].name) +
						   "\nextension: " + row(extension) + "\nmodel:     " + row(model)};
	}
}

// The words with which the message of an SQLSTATE must begin.
const char *
first_word(const std::string &sqlstate)
{
	if (sqlstate == "P7001")
		return "ALREADY_TERMINAL";
	if (sqlstate == "P7002")
		return "LEASE_LOST";
	if (sqlstate == "P7003")
		return "INVALID_STATE";
	if (sqlstate == "P7004")
		return "QUEUE_NOT_FOUND";
	if (sqlstate == "P7005")
		return "NOT_PENDING";
	return "";
}

} // namespace

std::string
shown(const Answer &answer)
{
	if (!answer.ok())
		return answer.sqlstate + " " + answer.message;

	std::string text = std::to_string(answer.rows.size()) + " row(s)";

	for (size_t i = 0; i < std::min(answer.rows.size(), most_rows); i++)
		text += "\n\t" + shown(answer.columns, answer.rows[i]);
	return text;
}

void
compare_answers(const Answer &extension, const Answer &model, int64_t slack_us)
{
	auto differ = [&](const std::string &how) {
		throw Disagreement{how + "\nextension: " + shown(extension) + "\nmodel:     " + shown(model)};
	};

	if (extension.sqlstate != model.sqlstate)
		differ("answers differ");
	if (!extension.message.starts_with(first_word(extension.sqlstate)))
		differ(std::string("the message does not begin with ") + first_word(extension.sqlstate));
	for (size_t i = 0; i < std::max(extension.columns.size(), model.columns.size()); i++)
		if (i >= extension.columns.size() || i >= model.columns.size() ||
			extension.columns[i].name != model.columns[i].name)
			differ("answers differ in their columns");
	if (extension.rows.size() != model.rows.size() || extension.affected != model.affected)
		differ("answers differ in their number of rows");
	for (size_t i = 0; i < extension.rows.size(); i++)
	{
		int column = differing(extension.columns, extension.rows[i], model.rows[i], extension.columns.size(), slack_us);

		if (column >= 0)
			differ("answers differ in row " + std::to_string(i + 1) + ", " + extension.columns[column].name);
	}
}

std::vector<std::string>
table_queries(const std::string &schema, bool with_views)
{
	std::vector<std::string> result;

	for (const View &table : tables)
		result.push_back(query(table, schema, table.is_growing ? " WHERE created_at >= $1::timestamptz" : ""));
	if (with_views)
		for (const View &view : views)
			result.push_back(query(view, schema, ""));
	return result;
}

void
compare_tables(const std::vector<Answer> &extension, const std::vector<Answer> &model, const std::string &seen_by)
{
	for (size_t i = 0; i < extension.size(); i++)
	{
		const View &view = i < std::size(tables) ? tables[i] : views[i - std::size(tables)];

		compare_table(std::string(view.name) + ", seen by " + seen_by + ",", extension[i], model[i]);
	}
}
