// See compare.h.

#include "compare.h"

#include <algorithm>
#include <set>

namespace {

constexpr size_t longest_cell = 120;
constexpr size_t most_rows = 12;

struct View {
	const char *name;
	const char *columns; // nullptr: all that the model has
	const char *key;     // they are sorted by it
	bool is_growing;     // only rows of late are looked at
};

constexpr View tables[] = {
	{"pending", nullptr, "outbox_id", false},
	{"queues", nullptr, "queue", false},
	{"sequences", nullptr, "queue, partition_key", false},
	{"blocks", "queue, partition_key, sequence_id, outbox_id", "queue, partition_key", false},
	{"messages", nullptr, "outbox_id", true},
	{"attempts", nullptr, "outbox_id, attempt_no", true},
};

// Of the model's tables, but not of the specification; and of the extension's, but not of the model's.
const std::set<std::string> notes = {"slack", "slack_us", "made_in"};
const std::set<std::string> unknown = {"slack_us", "validator_owner", "handler_owner", "in_doubt", "fair_key"};

// Whether a message waits for another of its key is what the model finds, and the extension keeps. It may keep it
// longer where a mark says that the key is to be settled.
const std::string waits = "t.*, t.outbox_id IN (SELECT outbox_id FROM model.waiting) AS held_back";
const std::string held_back = "t.*, EXISTS (SELECT FROM outbox.key_marks m WHERE m.queue = t.queue AND "
							  "m.partition_key = t.partition_key AND m.kind = 'drained') AS in_doubt";

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

// Keys that a dead head blocks: the model has a table of them.
const std::string blocks =
	"(SELECT queue, partition_key, sequence_id, outbox_id FROM outbox.blocked_keys WHERE reason = 'dead')";

std::string
query(const View &view, const std::string &schema, const std::string &condition)
{
	std::string name = view.name;
	bool has_slack = schema == "model" && name != "sequences" && name != "blocks";
	std::string slack = has_slack ? "(extract(epoch FROM slack) * 1000000)::bigint" : "0";

	std::string columns = view.columns != nullptr ? view.columns : "t.*";

	if (name == "pending")
		columns = schema == "model" ? waits : held_back;
	return "SELECT " + columns + ", " + slack + " AS slack_us FROM " +
		   (name == "blocks" && schema == "outbox" ? blocks : schema + "." + name) + " t" + condition + " ORDER BY " +
		   view.key;
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

// The places of one column in the extension and in the model.
using Places = std::vector<std::pair<size_t, size_t>>;

Places
places_of(const std::string &name, const Answer &extension, const Answer &model)
{
	Places places;

	for (const Column &column : extension.columns)
		if (!unknown.contains(column.name) && model.column(column.name) < 0)
			throw Disagreement{name + " have the column " + column.name + ", which the model lacks"};
	for (size_t i = 0; i < model.columns.size(); i++)
	{
		const std::string &column = model.columns[i].name;

		if (notes.contains(column))
			continue;
		if (extension.column(column) < 0)
			throw Disagreement{name + " have the column " + column + " only in the model"};
		places.emplace_back(extension.column(column), i);
	}
	return places;
}

// The first column that differs, or nullptr.
const Column *
differing(const std::vector<Column> &columns, const Places &places, const Row &extension, const Row &model,
		  int64_t slack_us)
{
	for (auto [one, other] : places)
		if (!agree(extension[one], model[other], columns[one].is_time, slack_us))
			return &columns[one];
	return nullptr;
}

// Who waits only because of a doubt is taken to wait.
void
settle_doubts(const Answer &extension, Answer &model)
{
	int doubt = extension.column("in_doubt"), held = extension.column("held_back"),
		waits_too = model.column("held_back");

	if (doubt < 0)
		return;
	for (size_t i = 0; i < std::min(extension.rows.size(), model.rows.size()); i++)
		if (extension.rows[i][doubt] == "t" && extension.rows[i][held] == "t")
			model.rows[i][waits_too] = "t";
}

void
compare_table(const std::string &name, const Answer &extension, Answer model)
{
	settle_doubts(extension, model);

	Places places = places_of(name, extension, model);
	size_t rows = std::max(extension.rows.size(), model.rows.size());

	for (size_t i = 0; i < rows; i++)
	{
		bool missing = i >= extension.rows.size() || i >= model.rows.size();
		const Column *column = missing ? nullptr
									   : differing(extension.columns, places, extension.rows[i], model.rows[i],
												   std::stoll(*model.rows[i].back()));

		if (!missing && column == nullptr)
			continue;

		auto row = [&](const Answer &answer) {
			return i < answer.rows.size() ? shown(answer.columns, answer.rows[i]) : std::string("no such row");
		};

		throw Disagreement{name + " differ" + (missing ? "" : " in " + column->name) +
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
	Places places;

	for (size_t i = 0; i < extension.columns.size(); i++)
		places.emplace_back(i, i);
	for (size_t i = 0; i < extension.rows.size(); i++)
		if (const Column *column = differing(extension.columns, places, extension.rows[i], model.rows[i], slack_us))
			differ("answers differ in row " + std::to_string(i + 1) + ", " + column->name);
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
