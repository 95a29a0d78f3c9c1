// See faults.h.

#include "faults.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <stdexcept>

#include <sys/wait.h>
#include <unistd.h>

Clients::Clients(const std::string &in, const std::string &name, uint64_t with) : folder(in), round(name), seed(with) {}

Clients::~Clients()
{
	for (const Child &child : children)
		::kill(child.pid, SIGKILL);
}

void
Clients::start(const std::string &kind)
{
	std::string name = round + "." + kind.substr(0, 1) + std::to_string(++started);
	std::string file = folder + "/" + name;
	std::string round_seed = std::to_string(seed), number = std::to_string(started);
	pid_t pid = fork();

	if (pid < 0)
		throw std::runtime_error("cannot fork");
	if (pid == 0)
	{
		execl("/proc/self/exe", "history", "client", kind.c_str(), round.c_str(), name.c_str(), file.c_str(),
			  round_seed.c_str(), number.c_str(), nullptr);
		_exit(127);
	}
	children.push_back({pid, kind, name});
}

pid_t
Clients::one_of(Random &random) const
{
	return random.pick(children).pid;
}

void
Clients::kill(pid_t pid)
{
	::kill(pid, SIGKILL);
	killed.push_back(pid);
}

void
Clients::look_after()
{
	int status;

	while (pid_t pid = waitpid(-1, &status, WNOHANG))
	{
		auto child = std::find_if(children.begin(), children.end(), [&](const Child &one) { return one.pid == pid; });

		if (child == children.end())
			return;

		Child gone = *child;

		children.erase(child);
		if (std::find(killed.begin(), killed.end(), pid) == killed.end())
			throw std::runtime_error(gone.name + " ended with status " + std::to_string(status));
		start(gone.kind);
	}
}

void
Clients::ask_to_end(const std::string &but)
{
	for (const Child &child : children)
		if (child.kind != but)
			::kill(child.pid, SIGTERM);
}

bool
Clients::have_ended(const std::string &but)
{
	std::erase_if(children, [](const Child &child) { return waitpid(child.pid, nullptr, WNOHANG) == child.pid; });
	return std::all_of(children.begin(), children.end(), [&](const Child &child) { return child.kind == but; });
}

Faults::Faults(Server &of, Clients &to, Recorder &with, Random &by, Kinds which)
	: server(of), clients(to), recorder(with), random(by), kinds(which)
{
}

void
Faults::note(const std::string &what, int64_t whom)
{
	recorder.write(0, "fault", {{"what", what}, {"whom", std::to_string(whom)}});
}

void
Faults::run_until(int64_t until)
{
	int64_t next = now_us();

	while (now_us() < until)
	{
		clients.look_after();
		let_go_on(now_us());
		if (now_us() >= next)
		{
			one();
			next = now_us() + random.between(20, 400) * 1000;
		}
		pause_ms(5);
	}
}

std::string
Faults::sessions()
{
	Answer answer = server.ask("SELECT concat_ws(' ', application_name, pid, backend_type, state, wait_event_type, "
							   "wait_event, pg_blocking_pids(pid), left(query, 200)) FROM pg_stat_activity");
	std::string text;

	for (const Row &row : answer.rows)
		text += "\n#   " + *row[0];
	return text;
}

// A timer of the server that is set while its clock steps back goes off as much later: then
// lock_timeout and the look for deadlocks may take minutes, and statements are cancelled.
void
Faults::wait_for_clients(const std::string &but)
{
	constexpr int most_ms = 60000; // far beyond what they may wait for: a call that hangs

	clients.ask_to_end(but);
	for (int ms = 0; !clients.have_ended(but); ms += 5)
	{
		if (ms >= most_ms)
			throw std::runtime_error(clients.one_left() + " hangs:" + sessions());
		if (kinds.clock && ms >= 5000 && ms % 1000 == 0)
			server.ask("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name "
					   "LIKE 'history r%'");
		pause_ms(5);
	}
}

// The finisher last: others may wait for what is prepared.
void
Faults::end()
{
	let_go_on(never);
	server.wait_until_it_answers();
	wait_for_clients("finisher");
	wait_for_clients("");
}

void
Faults::kill_client()
{
	pid_t pid = clients.one_of(random);

	note("kill a client", pid);
	clients.kill(pid);
}

// Numbers are dealt as often as their kind is to come up, those of crashes last.
void
Faults::deal(int number)
{
	if (number < 4)
		kill_client();
	else if (number < 9)
		stop_for_a_while(clients.one_of(random), 600);
	else if (number < 12)
		stop_for_a_while(process("application_name LIKE 'history r%'"), 300);
	else if (number < 15)
		signal_session("pg_terminate_backend");
	else if (number < 18)
		signal_session("pg_cancel_backend");
	else if (number < 19)
		hold_snapshot();
	else if (number < 22)
	{
		if (kinds.clock)
			step_clock();
	}
	else if (number < 26)
		kill_process("application_name LIKE 'history r%'");
	else if (number < 28)
		kill_process("backend_type LIKE 'outbox%'");
	else
		restart(number == 28 ? "immediate" : "fast");
}

// What no run may be without comes first.
void
Faults::one()
{
	static const std::vector<int> first = {4, 0, 22};
	const size_t certain = kinds.crashes ? 3 : 2;

	try
	{
		deal(dealt < certain ? first[dealt] : random.below(kinds.crashes ? 30 : 22));
		dealt++;
	}
	catch (const Dead &)
	{
		// The server is just starting again.
	}
}

void
Faults::stop_for_a_while(pid_t pid, int most_ms)
{
	if (pid == 0)
		return;
	note("stop", pid);
	if (kill(pid, SIGSTOP) == 0)
		stopped.push_back({pid, now_us() + random.between(20, most_ms) * 1000});
}

void
Faults::let_go_on(int64_t before)
{
	stopped.remove_if([&](const Stopped &one) {
		if (one.until < before)
			kill(one.pid, SIGCONT);
		return one.until < before;
	});
	held.remove_if([&](const Held &one) { return one.until < before; });
}

pid_t
Faults::process(const std::string &condition)
{
	std::string pid = server.value("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND " + condition +
								   " ORDER BY md5(pid::text || clock_timestamp()) LIMIT 1");

	return pid.empty() ? 0 : std::stoi(pid);
}

void
Faults::signal_session(const std::string &function)
{
	pid_t pid = process("application_name LIKE 'history r%' OR backend_type LIKE 'outbox%'");

	if (pid == 0)
		return;
	note(function, pid);
	server.ask("SELECT " + function + "(" + std::to_string(pid) + ")");
}

// What is stopped is alive: it cannot end before it is killed.
bool
is_stopped(pid_t pid)
{
	std::string path = "/proc/" + std::to_string(pid) + "/stat";
	FILE *file = std::fopen(path.c_str(), "r");
	char name[64], state = '?';

	if (file == nullptr)
		return false;
	if (std::fscanf(file, "%*d (%63[^)]) %c", name, &state) != 2)
		state = '?';
	std::fclose(file);
	return state == 'T' && std::string(name) == "postgres";
}

void
Faults::kill_process(const std::string &condition)
{
	// Before it is chosen: one that goes on may have been told to end.
	let_go_on(never);

	pid_t pid = process(condition);

	if (pid == 0 || kill(pid, SIGSTOP) != 0)
		return;
	for (int i = 0; i < 20 && !is_stopped(pid); i++)
		pause_ms(1);
	if (!is_stopped(pid))
	{
		kill(pid, SIGCONT);
		return;
	}
	note("kill a process of the server", pid);

	int64_t from = now_us();

	kill(pid, SIGKILL);
	server.wait_until_it_has_crashed();
	crashed(from);
}

void
Faults::restart(const std::string &mode)
{
	note("stop the server: " + mode);
	let_go_on(never);

	int64_t from = now_us();

	server.stop(mode);
	server.start();
	crashed(from);
}

void
Faults::crashed(int64_t from)
{
	recorder.write(0, "crash", {{"from", std::to_string(from)}});
}

void
Faults::hold_snapshot()
{
	try
	{
		Held one{std::make_unique<Connection>("history snapshot"), now_us() + random.between(300, 4000) * 1000};

		note("hold a snapshot");
		one.connection->run("BEGIN ISOLATION LEVEL REPEATABLE READ");
		one.connection->run("SELECT count(*) FROM outbox.pending");
		held.push_back(std::move(one));
	}
	catch (const std::runtime_error &)
	{
		// The server is just starting again.
	}
}

void
Faults::step_clock()
{
	static const std::vector<int64_t> scales = {1000000, 10000000, farthest_step};
	int64_t scale = random.pick(scales);
	int64_t from = server.clock_error();
	int64_t to = static_cast<int64_t>(random.between(-1000, 1000)) * (scale / 1000);

	note("step the clock");
	server.set_clock(to);
	recorder.write(0, "clock", {{"from", std::to_string(from)}, {"to", std::to_string(to)}});
}
