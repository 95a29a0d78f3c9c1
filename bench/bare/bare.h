// What the bare loops of this folder share: each sends COUNT messages of 300 B as fast as its library does alone, waits
// for all answers, and prints lines of a name and a value. Any error ends it with status 1.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/resource.h>

inline const std::string body = "{\"note\": \"" + std::string(288, 'x') + "\"}";

[[noreturn]] inline void
die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

class Measured {
public:
	explicit Measured(long count) : count(count) {}
	~Measured()
	{
		const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
		rusage usage;

		getrusage(RUSAGE_SELF, &usage);
		const double us = 1e6 * static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
						  static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
		printf("messages/s %.0f\nclient us %.3f\n", static_cast<double>(count) / took.count(),
			   us / static_cast<double>(count));
	}

private:
	long count;
	std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
};
