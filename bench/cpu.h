// CPU time of a server, of one process, of this program and of the whole machine, all in
// microseconds: as the kernel counts it, user and system together.
#pragma once

#include "client.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

// On the CPU since it started; 0 when it is gone.
inline double
process_us(const std::string &pid)
{
	unsigned long long ns = 0;
	FILE *file = fopen(("/proc/" + pid + "/schedstat").c_str(), "r");

	if (file == nullptr)
		return 0;
	if (fscanf(file, "%llu", &ns) != 1)
		ns = 0;
	fclose(file);
	return static_cast<double>(ns) / 1000;
}

inline double
ticks_us(double ticks)
{
	return ticks * 1e6 / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// What /proc/PID/stat says behind the command: "state parent ..."; empty when it is gone.
inline std::string
process_state(const std::string &pid)
{
	char line[512];
	FILE *file = fopen(("/proc/" + pid + "/stat").c_str(), "r");

	if (file == nullptr)
		return "";
	line[fread(line, 1, sizeof(line) - 1, file)] = '\0';
	fclose(file);
	const char *end = strrchr(line, ')');
	return end != nullptr && end[1] == ' ' ? end + 2 : "";
}

// Of children that have ended meanwhile: autovacuum's, for instance.
inline double
ended_children_us(const std::string &pid)
{
	long user = 0, system = 0;

	sscanf(process_state(pid).c_str(), "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %ld %ld", &user, &system);
	return ticks_us(static_cast<double>(user + system));
}

inline bool
is_child(const std::string &pid, long parent)
{
	const std::string state = process_state(pid);

	return state.size() > 2 && atol(state.c_str() + 2) == parent;
}

// Of all processes of a server, from its first one.
inline double
server_us(const std::string &postmaster)
{
	DIR *processes = opendir("/proc");
	double sum = process_us(postmaster) + ended_children_us(postmaster);

	if (processes == nullptr)
		die("/proc", strerror(errno));
	while (const dirent *entry = readdir(processes))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && is_child(entry->d_name, atol(postmaster.c_str())))
			sum += process_us(entry->d_name);
	closedir(processes);
	return sum;
}

// Of all the machine since it started.
inline double
machine_us()
{
	double user = 0, nice = 0, system = 0, irq = 0, softirq = 0, steal = 0;
	FILE *file = fopen("/proc/stat", "r");

	if (file == nullptr ||
		fscanf(file, "cpu %lf %lf %lf %*f %*f %lf %lf %lf", &user, &nice, &system, &irq, &softirq, &steal) != 6)
		die("/proc/stat", "not as expected");
	fclose(file);
	return ticks_us(user + nice + system + irq + softirq + steal);
}

inline double
own_us()
{
	rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return 1e6 * static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		   static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}
