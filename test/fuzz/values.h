// Values for arguments, as SQL literals: mostly nasty ones, or such as a caller would pass.
//
// Everything is drawn from one generator, in one order: the same seed gives the same values.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

struct Lease {
	std::string id, token, worker;
};

struct Type {
	std::string name;                // as SQL says it
	char category;                   // pg_type.typcategory
	std::string element;             // of an array: its type's name, else empty
	std::vector<std::string> labels; // of an enum
};

class Values {
public:
	explicit Values(unsigned seed) : random(seed) {}

	size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); }
	bool once_in(size_t n) { return below(n) == 0; }
	template <typename T>
	const T &one_of(const std::vector<T> &all)
	{
		return all[below(all.size())];
	}

	// What is known of the database.
	std::vector<Lease> leases;
	std::vector<std::string> ids, queues, numbers;
	std::string worker; // that the last call named
	std::map<std::string, Type> types;

	// Before the arguments of a call: whether it is to be one that makes sense, and of what.
	void begin_call();
	// A literal with its type, for the argument of that name; empty: better leave it out.
	std::string argument(const std::string &name, const std::string &type, bool optional);

private:
	std::mt19937 random;
	bool sensible = false;
	size_t length = 0; // of all arrays of the call
	Lease lease;

	std::string text();
	std::string scalar(const std::string &name, const Type &type, size_t i);
	std::string nasty(const Type &type);
	bool expected(const std::string &name, const Type &type, size_t i, std::string *value);
	std::string array(const std::string &name, const Type &type);
};

// 'text', whatever it holds.
std::string quoted(const std::string &text);
