// The test vectors of docs/seal-format.md.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "canonical.h"
#include "hex.h"
#include "merkle.h"

namespace {

using namespace outbox::core;
using outbox::test::from_hex;
using outbox::test::to_hex;

Sha256 sha;

// The lines between the two marks, split at spaces.
std::vector<std::vector<std::string>>
vector_lines()
{
	std::ifstream page("../../docs/seal-format.md");
	std::vector<std::vector<std::string>> lines;
	bool within = false;

	for (std::string line; std::getline(page, line);)
	{
		if (line.starts_with("<!-- "))
			within = line == "<!-- vectors -->";
		if (!within)
			continue;
		std::istringstream words(line);
		lines.emplace_back();
		for (std::string word; words >> word;)
			lines.back().push_back(word);
	}
	return lines;
}

std::string
bytes_of(const std::string &word)
{
	return word == "''" ? "" : from_hex(word);
}

Hash
hash_behind(const std::string &prefix, const std::string &bytes)
{
	Hash hash;

	EXPECT_TRUE(sha.start().add(prefix.data(), prefix.size()).add(bytes.data(), bytes.size()).stop(&hash));
	return hash;
}

const Form &
form_of_tag(const std::string &tag)
{
	for (const Form *form : {&message_form, &attempt_form, &event_form, &part_form, &seal_form})
		if (tag == form->tag)
			return *form;
	ADD_FAILURE() << tag;
	return message_form;
}

// A row whose columns are lines "column NAME TYPE BYTES", from `at` on, which is left behind them.
std::string
row_of(const Form &form, const std::vector<std::vector<std::string>> &lines, size_t *at)
{
	std::string bytes;
	const Sink sink = {[](void *to, const void *data, size_t size) {
						   static_cast<std::string *>(to)->append(static_cast<const char *>(data), size);
					   },
					   &bytes};
	Encoder row(sink, form);

	for (int i = 0; i < form.count; i++, ++*at)
	{
		const auto &words = lines[*at];
		EXPECT_EQ(words, (std::vector<std::string>{"column", form.columns[i].name, type_name(form.columns[i].type),
												   words[3]}));
		words[3] == "NULL" ? row.null() : row.bytes(bytes_of(words[3]).data(), bytes_of(words[3]).size());
	}
	EXPECT_TRUE(row.finish());
	return bytes;
}

TEST(Vectors, Trees)
{
	std::vector<Hash> leaves;
	int roots = 0;

	for (const auto &words : vector_lines())
	{
		if (words.size() != 3 || (words[0] != "leaf" && words[0] != "root"))
			continue;
		if (words[0] == "leaf")
		{
			leaves.push_back(hash_behind(std::string(1, '\0'), bytes_of(words[1])));
			EXPECT_EQ(to_hex(leaves.back()), words[2]);
			continue;
		}
		MerkleTree some(sha);
		Hash root;
		for (int i = 0; i < std::stoi(words[1]); i++)
			some.add(leaves[static_cast<size_t>(i)]);
		ASSERT_TRUE(some.finish(&root));
		EXPECT_EQ(to_hex(root), words[2]);
		roots++;
	}
	EXPECT_EQ(roots, 9);
}

TEST(Vectors, Rows)
{
	const auto lines = vector_lines();
	int rows = 0;

	for (size_t at = 0; at < lines.size(); at++)
	{
		if (lines[at].empty() || lines[at][0] != "tag")
			continue;
		const std::string tag = lines[at][1] + " " + lines[at][2] + " " + lines[at][3];
		const Form &form = form_of_tag(tag);
		const std::string row = row_of(form, lines, &++at);
		EXPECT_EQ(lines[at], (std::vector<std::string>{"row", to_hex(row)}));
		at++;
		EXPECT_EQ(lines[at],
				  (std::vector<std::string>{"hash", lines[at][1], to_hex(hash_behind(from_hex(lines[at][1]), row))}));
		rows++;
	}
	EXPECT_EQ(rows, 10);
}

} // namespace
