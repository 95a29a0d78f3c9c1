// Names that a library's header defines, so that a table of codes can be compared with it.
#pragma once

#include <regex.h>

#include <fstream>
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
	regex_t regex;
	if (regcomp(&regex, pattern.c_str(), REG_EXTENDED | REG_NEWLINE) != 0)
		throw std::runtime_error("no pattern: " + pattern);
	std::set<std::string> names;
	regmatch_t match[2];
	for (const char *rest = all.c_str(); regexec(&regex, rest, 2, match, rest == all.c_str() ? 0 : REG_NOTBOL) == 0;
		 rest += match[0].rm_eo)
		names.emplace(rest + match[1].rm_so, rest + match[1].rm_eo);
	regfree(&regex);
	return names;
}

} // namespace relay::test
