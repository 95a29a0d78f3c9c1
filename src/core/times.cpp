// See times.h.

#include "times.h"

#include <cstring>

namespace outbox::core {

namespace {

bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

// Skips a text of this form: 9 stands for any digit, T for T or a space. False, without a step, if
// the text has another form.
bool
step(const char **text, const char *form)
{
	const char *at = *text;

	for (; *form != '\0'; form++, at++)
		if (*form == '9' ? !is_digit(*at) : *form == 'T' ? *at != 'T' && *at != ' ' : *at != *form)
			return false;
	*text = at;
	return true;
}

} // namespace

bool
has_utc_offset(const char *text)
{
	if (!step(&text, "9999-99-99T99:99"))
		return false;
	if (step(&text, ":99") && step(&text, ".9"))
		while (is_digit(*text))
			text++;
	if (strcmp(text, "Z") == 0)
		return true;
	if (*text != '+' && *text != '-')
		return false;
	text++;
	return step(&text, "99") && (*text == '\0' || step(&text, ":99") || step(&text, "99")) && *text == '\0';
}

} // namespace outbox::core
