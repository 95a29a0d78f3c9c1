// Globs: * is any text, ? one character of UTF-8.
//
// Guarantees: time is at most the product of both lengths, since only the last star is ever taken up again.
#include "core/template.h"

namespace relay {

namespace {

size_t
after_character(std::string_view text, size_t at)
{
	do
		at++;
	while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
	return at;
}

} // namespace

bool
glob(std::string_view pattern, std::string_view text)
{
	constexpr size_t none = std::string_view::npos;
	size_t p = 0, t = 0, star = none, resume = 0;

	while (t < text.size())
		if (p < pattern.size() && pattern[p] == '*')
		{
			star = p++;
			resume = t;
		}
		else if (p < pattern.size() && pattern[p] == '?')
		{
			p++;
			t = after_character(text, t);
		}
		else if (p < pattern.size() && pattern[p] == text[t])
		{
			p++;
			t++;
		}
		else if (star != none)
		{
			p = star + 1;
			t = ++resume;
		}
		else
			return false;
	while (p < pattern.size() && pattern[p] == '*')
		p++;
	return p == pattern.size();
}

} // namespace relay
