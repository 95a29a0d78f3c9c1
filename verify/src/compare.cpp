// See compare.h.
#include "compare.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "findings.h"
#include "texts.h"

namespace outbox::verify {

namespace {

// By table, partition, id and attempt_no, as they stand in the file.
using Leaves = std::map<std::vector<std::string>, std::string>;

std::vector<std::string>
fields_of(const std::string &line)
{
	std::vector<std::string> fields = {""};

	for (char c : line)
		if (c == '\t')
			fields.emplace_back();
		else if (c != '\r')
			fields.back() += c;
	return fields;
}

// As psql shows a bytea, as COPY does, or digits alone.
bool
is_leaf(std::string *text)
{
	for (const char *prefix : {"\\\\x", "\\x"})
		if (text->starts_with(prefix))
			text->erase(0, std::string(prefix).size());
	return text->size() == 64 && from_hex(*text);
}

Leaves
read_leaves(std::istream &in, const std::string &which)
{
	Leaves leaves;
	std::string line;

	for (int64_t number = 1; std::getline(in, line); number++)
	{
		const std::string where = which + ", line " + std::to_string(number);
		std::vector<std::string> fields = fields_of(line);

		if (fields.size() != 5 || !is_leaf(&fields[4]))
			throw Unreadable(where + ": not table, partition, id, attempt_no and leaf, separated by tabs");
		if (fields[3] == "\\N")
			fields[3].clear();
		std::string leaf = fields[4];
		fields.pop_back();
		if (!leaves.emplace(fields, leaf).second)
			throw Unreadable(where + ": the row comes twice");
	}
	if (in.bad())
		throw Unreadable(which + " could not be read");
	return leaves;
}

std::string
name_of(const std::vector<std::string> &key)
{
	return printable(key[0]) + ", partition \"" + printable(key[1]) + "\", " + printable(key[2]) +
		   (key[3].empty() ? "" : ", attempt " + printable(key[3]));
}

} // namespace

bool
compare_leaves(std::istream &in_a, std::istream &in_b, std::ostream &out)
{
	const Leaves a = read_leaves(in_a, "the first file");
	const Leaves b = read_leaves(in_b, "the second file");
	size_t differences = 0;
	const auto tell = [&](const char *what, const std::vector<std::string> &key) {
		differences++;
		out << what << ": " << name_of(key) << "\n";
	};

	for (const auto &[key, leaf] : a)
		if (const auto other = b.find(key); other == b.end())
			tell("ONLY IN THE FIRST", key);
		else if (other->second != leaf)
			tell("DIFFERS", key);
	for (const auto &[key, leaf] : b)
		if (a.count(key) == 0)
			tell("ONLY IN THE SECOND", key);
	out << a.size() << " rows in the first file, " << b.size() << " in the second, " << differences
		<< " differences.\n";
	return differences == 0;
}

} // namespace outbox::verify
