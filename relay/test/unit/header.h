// Names that a library's header defines, so that a table of codes can be compared with it.
#pragma once

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

namespace relay::test {

// The first group of each match.
inline std::set<std::string>
names_in(const std::string &file, const std::string &pattern)
{
	std::ifstream in(file);
	if (!in)
		throw std::runtime_error("cannot read " + file);
	std::stringstream text;
	text << in.rdbuf();
	std::string all = text.str();
	std::regex regex(pattern, std::regex::multiline);
	std::set<std::string> names;
	for (std::sregex_iterator match(all.begin(), all.end(), regex), end; match != end; ++match)
		names.insert((*match)[1]);
	return names;
}

} // namespace relay::test
