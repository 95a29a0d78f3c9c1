// See seed.h. Digits only are accepted: a mistyped SEED must not pass for a repeat.
#include "seed.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace relay::test {

namespace {

uint64_t
parse(const char *text)
{
	char *end = nullptr;

	errno = 0;
	const uint64_t value = strtoull(text, &end, 10);
	if (*text == '\0' || text[strspn(text, "0123456789")] != '\0' || errno != 0)
	{
		fprintf(stderr, "SEED must be a number below 2^64: \"%s\"\n", text);
		exit(2);
	}
	return value;
}

uint64_t
choose()
{
	const char *given = getenv("SEED");
	const uint64_t value = given != nullptr ? parse(given) : std::random_device{}();

	printf("SEED=%llu\n", static_cast<unsigned long long>(value));
	return value;
}

} // namespace

uint64_t
seed()
{
	static const uint64_t chosen = choose();
	return chosen;
}

} // namespace relay::test
