// The differential test: random calls, the same to the extension and to the model of
// reference.sql, by several sessions whose transactions overlap; after each step answers,
// tables, and which pending rows are locked must agree.
//
//   differential            environment: SEED, STEPS, TRACE=1 prints each step, and what
//                           libpq reads (PGDATABASE: outbox and the model are in it)
//
// What it proves: the extension does what the contract's plain reading says, for whatever
// sequence comes up: in transactions, after rollbacks and savepoints, in all isolation
// levels, and between sessions that hold each other's rows and keys.
//
// Sessions take turns: a step is one statement of one session. If the extension's session
// has to wait for another, which pg_blocking_pids tells, then the model's must wait for
// the same one; others go on until the wait ends, and then both must have ended. So
// waits are real, but in an order that the seed decides.
//
// Where transactions met in an ordered key, the extension leaves a mark, and until the key is settled it may hold back
// a message whose turn has come. The model knows no marks. It is told which messages these are, and takes each of them
// as the extension does; but only as long as a mark stands, and none does after a claim while no transaction is open.
//
// Avoided by construction:
// - more than one session waiting at a time, and calls that may wait while one does: who
//   comes first, or is the victim of a deadlock, would be chance;
// - both an idempotency_key and an event_id in one message while other transactions are
//   open: which of the two is waited for first is nobody's promise;
// - cancel_many, replay_many and purge while another transaction is open: what they then pass by is for test/specs;
// - rolling back to a savepoint while another session waits for a row: whether PostgreSQL
//   wakes that session then, or when the transaction ends, depends on subtransactions
//   within the calls; likewise for a key, after a call for many messages;
// - several rows that become due at once in a transaction above READ COMMITTED: in which
//   order they fell due cannot be looked at before its COMMIT;
// - an ordered message that ends by hand: its key would stay as it is;
// - moments close to each other: leases and delays last hours or nothing, and what time
//   does is done by hand, with an UPDATE of both sides (calls.h).

#include <cstdlib>
#include <iostream>
#include <random>

#include "compare.h"
#include "test.h"

namespace {

uint64_t
number_from(const char *variable, uint64_t otherwise)
{
	const char *value = std::getenv(variable);

	return value != nullptr && *value != '\0' ? std::strtoull(value, nullptr, 10) : otherwise;
}

void
print_indented(const std::string &text)
{
	std::string line;

	for (char c : text + "\n")
	{
		if (c != '\n')
		{
			line += c;
			continue;
		}
		std::cout << "# " << line << "\n";
		line.clear();
	}
}

// Exit status: 0 agreed, 1 disagreed, 2 the run itself failed, 3 agreed but met too little.
int
run()
{
	uint64_t seed = number_from("SEED", std::random_device()());
	uint64_t steps = number_from("STEPS", 5000);

	std::cout << "# seed " << seed << ", " << steps << " steps" << std::endl;

	Test test(seed, number_from("TRACE", 0) != 0);
	std::string failure;
	int status = 0;

	try
	{
		test.run(static_cast<int>(steps));
	}
	catch (const Disagreement &disagreement)
	{
		status = 1;
		failure = "extension and model disagree: " + disagreement.what;
	}
	catch (const std::exception &error)
	{
		status = 2;
		failure = error.what();
	}
	test.report(std::cout);
	if (status == 0)
	{
		if (steps < static_cast<uint64_t>(enough_steps))
			return 0;

		std::vector<std::string> missing = test.not_covered();

		for (const std::string &what : missing)
			print_indented("not met: " + what);
		return missing.empty() ? 0 : 3;
	}
	print_indented("step " + std::to_string(test.steps_done()) + ": " + failure);
	print_indented("\nthe steps before:\n" + test.last_steps());
	print_indented("again: SEED=" + std::to_string(seed) + " STEPS=" + std::to_string(steps) +
				   " test/differential/run");
	return status;
}

} // namespace

int
main()
{
	try
	{
		return run();
	}
	catch (const std::exception &error)
	{
		std::cerr << error.what() << "\n";
		return 2;
	}
}
