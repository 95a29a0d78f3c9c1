// What the program does, apart from its files and its exit.
#pragma once

#include <istream>
#include <ostream>
#include <string>
#include <vector>

namespace outbox::verify {

struct Options {
	std::vector<std::string> hashes; // printed, by hexadecimal digits
	std::vector<std::string> keys;   // the contents of PEM files
	std::string first_previous;      // empty: none
	std::istream *chain = nullptr;   // seals that link a proof with a hash
};

// The exit status: 0 if all is proven, 1 if not, 2 if nothing could be checked. What is wrong, also where it would
// be an exception, goes to out in one sentence.
int proof_command(std::istream &in, const Options &options, std::ostream &out);
int chain_command(std::istream &in, const Options &options, std::ostream &out);
int compare_command(std::istream &a, std::istream &b, std::ostream &out);

} // namespace outbox::verify
