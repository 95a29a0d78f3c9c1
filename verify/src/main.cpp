// outbox-verify: checks what a database says of its past, without that database.
#include <fstream>
#include <iostream>
#include <iterator>

#include <CLI/CLI.hpp>

#include "commands.h"
#include "texts.h"

namespace {

using namespace outbox::verify;

// Ends the program where it cannot be opened. "-": the standard input.
class Input {
public:
	explicit Input(const std::string &name)
	{
		if (name == "-")
			return;
		file_.open(name, std::ios::binary);
		if (!file_ || file_.peek() == std::char_traits<char>::eof())
		{
			std::cout << "NOT CHECKED: could not read \"" << printable(name) << "\".\n";
			exit(2);
		}
	}

	std::istream &stream() { return file_.is_open() ? static_cast<std::istream &>(file_) : std::cin; }

private:
	std::ifstream file_;
};

std::string
contents(const std::string &name)
{
	Input input(name);

	return {std::istreambuf_iterator<char>(input.stream()), {}};
}

struct Arguments {
	std::string file;
	std::string other;
	std::string chain;
	std::vector<std::string> key_files;
	Options options;
};

void
add_anchors(CLI::App *command, Arguments *arguments)
{
	command->add_option("--hash", arguments->options.hashes, "a printed hash of a seal, 64 hexadecimal digits")
		->allow_extra_args(false);
	command->add_option("--key", arguments->key_files, "a file with a public Ed25519 key in PEM that is trusted")
		->allow_extra_args(false);
}

int
check_file(Arguments *arguments, bool is_proof)
{
	Input input(arguments->file);

	for (const std::string &name : arguments->key_files)
		arguments->options.keys.push_back(contents(name));
	if (!is_proof)
		return chain_command(input.stream(), arguments->options, std::cout);
	if (arguments->chain.empty())
		return proof_command(input.stream(), arguments->options, std::cout);
	Input chain(arguments->chain);
	arguments->options.chain = &chain.stream();
	return proof_command(input.stream(), arguments->options, std::cout);
}

int
compare_files(const Arguments &arguments)
{
	Input a(arguments.file), b(arguments.other);

	return compare_command(a.stream(), b.stream(), std::cout);
}

} // namespace

int
main(int argc, char **argv)
{
	CLI::App app("Checks seals and proofs of outbox against a printed hash or a public key.\n"
				 "Exit status: 0 all is proven, 1 something is not, 2 nothing could be checked.");
	Arguments arguments;

	app.name("outbox-verify");
	app.set_help_all_flag("--help-all", "Print this message with the options of the subcommands and exit");
	app.set_version_flag("--version", "outbox-verify 0.2.0");
	app.require_subcommand(1);
	CLI::App *proof = app.add_subcommand("proof", "the proof of a message, from outbox.prove()");
	proof->add_option("FILE", arguments.file, "the proof; - for the standard input")->required();
	proof->add_option("--chain", arguments.chain, "exported seals that link those of the proof with the hash");
	add_anchors(proof, &arguments);
	CLI::App *chain = app.add_subcommand("chain", "seals, from outbox.export_seals(), one a line");
	chain->add_option("FILE", arguments.file, "the seals; - for the standard input")->required();
	chain->add_option("--first-previous", arguments.options.first_previous,
					  "the hash of the seal before the first one");
	add_anchors(chain, &arguments);
	CLI::App *compare =
		app.add_subcommand("compare", "two exports of a seal's leaves, from outbox.seal_leaves(): which rows differ");
	compare->add_option("LEAVES_A", arguments.file, "separated by tabs")->required();
	compare->add_option("LEAVES_B", arguments.other, "of the same seal")->required();

	try
	{
		app.parse(argc, argv);
	}
	catch (const CLI::ParseError &error)
	{
		return app.exit(error) == 0 ? 0 : 2;
	}
	return *compare ? compare_files(arguments) : check_file(&arguments, static_cast<bool>(*proof));
}
