// Checks many cases in one process. Each line of the standard input is a JSON array: "proof" or "chain", an object with
// "hashes", "keys" (PEM) and maybe "first_previous" and "chain", then the text of the file as hexadecimal digits. The
// answer is a line: the exit status, and what was printed, as a JSON string. "compare" has the two texts instead of an
// object and a text.
#include <iostream>
#include <sstream>

#include "commands.h"
#include "json.h"
#include "texts.h"

using namespace outbox::verify;

namespace {

int
answer(const Json &line, std::ostream &out)
{
	const std::string command = line.at(0);
	std::istringstream file(*from_hex(line.at(2).get<std::string>()));

	if (command == "compare")
	{
		std::istringstream first(*from_hex(line.at(1).get<std::string>()));
		return compare_command(first, file, out);
	}
	const Json &given = line.at(1);
	Options options;
	options.hashes = given.at("hashes").get<std::vector<std::string>>();
	options.keys = given.at("keys").get<std::vector<std::string>>();
	options.first_previous = given.value("first_previous", "");
	std::istringstream chain(*from_hex(given.value("chain", "")));
	if (given.contains("chain"))
		options.chain = &chain;
	return command == "proof" ? proof_command(file, options, out) : chain_command(file, options, out);
}

} // namespace

int
main()
{
	for (std::string line; std::getline(std::cin, line);)
	{
		std::ostringstream out;
		const int status = answer(Json::parse(line), out);

		std::cout << status << " " << Json(out.str()).dump() << std::endl;
	}
}
