// See row.h.
#include "row.h"

#include "findings.h"
#include "hashing.h"
#include "texts.h"

namespace outbox::verify {

namespace {

const core::Form &
form_named(const std::string &table)
{
	for (const core::Form *form : core::sealed_forms)
		if (table == form->table)
			return *form;
	throw Refused("a row is of an unknown table \"" + printable(table) + "\"");
}

std::optional<std::string>
read_column(const Json &json, const core::FormColumn &column)
{
	const std::string name = std::string("column \"") + column.name + "\"";

	require(json.is_array() && json.size() == 3 && json[0] == column.name && json[1] == core::type_name(column.type),
			name + " of type " + core::type_name(column.type) + " is not in its place");
	auto bytes = maybe_bytes(json[2], name);
	require(!bytes || value_text(column.type, *bytes), name + " has bytes that are no " + core::type_name(column.type));
	return bytes;
}

core::Hash
leaf_of(const Row &row)
{
	core::Encoder encoder(core::into(sha().start().add(&core::leaf_prefix, 1)), *row.form);
	core::Hash leaf;

	for (const auto &value : row.values)
		value ? encoder.bytes(value->data(), value->size()) : encoder.null();
	require(encoder.finish() && sha().stop(&leaf), "the row could not be hashed");
	return leaf;
}

// The root to which a leaf leads by the path that stands under this key.
core::Hash
climb(const core::Hash &leaf, const Json &json, const char *index, const char *leaves, const char *key)
{
	std::vector<core::Hash> path;
	core::Hash root;

	for (const Json &step : array_of(json, key))
	{
		require(step.is_string(), std::string("\"") + key + "\" has a step that is not a string");
		path.push_back(read_hash(step.get_ref<const std::string &>(), std::string("a step of \"") + key + "\""));
	}
	require(core::root_by_path(sha(), leaf, number_of(json, index), number_of(json, leaves), path.data(),
							   static_cast<int64_t>(path.size()), &root),
			std::string("\"") + key + "\" has not the length that its place requires");
	return root;
}

void
require_in_window(const Row &row, const Seal &seal)
{
	const int64_t at = read_number(row.value(row.is_of(core::event_form) ? "at" : "created_at"));

	require(at >= seal.from && at < seal.to, "the time of the row is not in the window of " + name_of(seal));
}

} // namespace

const std::string &
Row::value(std::string_view column) const
{
	for (size_t i = 0; i < values.size(); i++)
		if (column == form->columns[i].name)
		{
			require(values[i].has_value(), "column \"" + std::string(column) + "\" is NULL");
			return *values[i];
		}
	throw Refused("there is no column \"" + std::string(column) + "\"");
}

std::string
Row::text(size_t column) const
{
	return values[column] ? *value_text(form->columns[column].type, *values[column]) : "NULL";
}

Row
read_row(const Json &json)
{
	Row row = {&form_named(text_of(json, "table")), text_of(json, "partition"), {}, {}};
	const Json &columns = array_of(json, "columns");

	require(columns.size() == static_cast<size_t>(row.form->count), "a row has not the columns of its table");
	for (size_t i = 0; i < columns.size(); i++)
		row.values.push_back(read_column(columns[i], row.form->columns[i]));
	require(json.contains("seal_no"), "a row has no \"seal_no\"");
	if (json["seal_no"].is_null())
	{
		require_keys(json, "a row that is not sealed", {"table", "partition", "seal_no", "columns"});
		return row;
	}
	require_keys(
		json, "a row",
		{"table", "partition", "seal_no", "columns", "index", "rows", "path", "part_index", "parts", "part_path"});
	row.seal_no = number_of(json, "seal_no");
	row.index = number_of(json, "index");
	row.rows = number_of(json, "rows");
	return row;
}

void
require_sealed(const Json &json, const Row &row, const Seal &seal)
{
	const core::Hash root = climb(leaf_of(row), json, "index", "rows", "path");
	const core::Hash leaf = part_leaf({row.form->table, row.partition, row.rows, root});
	const int64_t at = number_of(json, "part_index");

	require(climb(leaf, json, "part_index", "parts", "part_path") == seal.root,
			"the row is not in " + name_of(seal) + ": its path leads to another root");
	require(number_of(json, "parts") == static_cast<int64_t>(seal.parts.size()),
			"the row has another number of parts than " + name_of(seal));
	const Part &part = seal.parts[static_cast<size_t>(at)];
	require(part.table == row.form->table && part.partition == row.partition && part.rows == row.rows &&
				part.root == root,
			"the row is not in the part of " + name_of(seal) + " that it names");
	require_in_window(row, seal);
}

} // namespace outbox::verify
