// outbox-relay: delivers the messages of outboxes in PostgreSQL to brokers and endpoints.
#include "config/codes.h"
#include "flow/check.h"
#include "flow/relay.h"

#include <csignal>
#include <iostream>

#include <CLI/CLI.hpp>
#include <curl/curl.h>
#include <sys/signalfd.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace {

// Signals arrive by a descriptor, in this thread and all that come from it.
int
take_signals()
{
	sigset_t set;

	sigemptyset(&set);
	for (int signal : {SIGTERM, SIGINT, SIGHUP})
		sigaddset(&set, signal);
	pthread_sigmask(SIG_BLOCK, &set, nullptr);
	std::signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

// A name still being looked up, or a broker's library that does not come to its end, does not delay the end.
[[noreturn]] void
leave(int status)
{
	std::cout.flush();
	std::cerr.flush();
#ifdef __SANITIZE_ADDRESS__
	if (status == 0)
		__lsan_do_leak_check(); // as exit() does
#endif
	_exit(status);
}

int
run(const std::string &file, bool check, bool dry_run, int signals)
{
	relay::Config config = relay::read_config(file);

	if (check)
		return relay::check(config, dry_run ? SIZE_MAX : 3) ? 0 : 1;
	if (dry_run)
		return relay::dry_run(config) ? 0 : 1;

	relay::Relay program(file, std::move(config));
	int status = program.run(signals);
	if (status != 0)
		leave(status);
	return status;
}

} // namespace

int
main(int count, char **arguments)
{
	CLI::App options{
		"Delivers the messages of outboxes in PostgreSQL to brokers and endpoints. Signals: TERM and INT stop it, HUP reads the "
		"configuration again."};
	std::string file;
	bool check = false, dry_run = false;

	options.add_option("-c,--config", file, "the configuration, in TOML")->required()->check(CLI::ExistingFile);
	options.add_flag("--check", check,
					 "connect to everything, show what would be done with three messages, claim nothing");
	options.add_flag("--dry-run", dry_run, "show what would be done with all pending messages, claim nothing");
	options
		.add_flag_callback(
			"--codes",
			[] {
				relay::print_codes(std::cout);
				throw CLI::Success();
			},
			"print the codes of all sinks with their classes, as a page in Markdown")
		->trigger_on_parse();
	options.set_version_flag("--version", "outbox-relay 0.2.0");
	try
	{
		options.parse(count, arguments);
	}
	catch (const CLI::ParseError &error)
	{
		return options.exit(error) == 0 ? 0 : 2;
	}

	int signals = take_signals();
	curl_global_init(CURL_GLOBAL_DEFAULT);
	try
	{
		leave(run(file, check, dry_run, signals));
	}
	catch (const std::exception &error)
	{
		std::cerr << "outbox-relay: " << relay::redact(error.what()) << "\n";
		return 2;
	}
}
