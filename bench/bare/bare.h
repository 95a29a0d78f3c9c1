// What the bare loops of this folder share: each sends COUNT messages of 300 B as fast as its library does alone, waits
// for all answers, and prints lines of a name and a value. Any error ends it with status 1. To a broker or a server
// headers are work: rabbitmq and http send those that the relay does.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/resource.h>

inline const std::string body = "{\"note\": \"" + std::string(288, 'x') + "\"}";

inline constexpr char event_id[] = "019acd3c-5d0b-7400-89d6-05bd99bca3f0";
inline constexpr const char *headers[][2] = {{"message_id", event_id},
											 {"outbox_id", event_id},
											 {"event_type", "bench"},
											 {"attempt", "1"},
											 {"created_at", "2026-01-02T03:04:05.678901Z"}};

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
