// See key_source.h.
//
// Shape: the command runs as the server's own do (ssl_passphrase_command): by the shell, its standard error is that of
// the server's process, which is the log. It is not run by popen(), which buffers what it reads in memory of its own,
// and waits for a command that hangs.

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "privacy/key_source.h"

#include "server/key_file.h"

namespace outbox {

namespace {

constexpr int longest_run_s = 30;
constexpr int look_ms = 100;

int64
nanoseconds(const struct timespec &time)
{
	return time.tv_sec * static_cast<int64>(1000000000) + time.tv_nsec;
}

// nullptr: no other user may read it. As the server asks of ssl_key_file.
const char *
problem_of_mode(const struct stat *file)
{
	if (!S_ISREG(file->st_mode))
		return "is not a regular file";
	if (file->st_uid != geteuid() && file->st_uid != 0)
		return "belongs neither to the user of the server nor to root";
	if (!is_private(*file))
		return "has group or world access: it must have mode 0600, or 0640 if root owns it";
	return nullptr;
}

// To its end, or as much as there is room for. -1 if it cannot be read.
ssize_t
read_all(int file, char *text)
{
	size_t size = 0;

	while (size < longest_key_text)
	{
		ssize_t n = read(file, text + size, longest_key_text - size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -1 : static_cast<ssize_t>(size);
		size += static_cast<size_t>(n);
	}
	return static_cast<ssize_t>(size);
}

} // namespace

bool
stamp_of(const char *path, FileStamp *stamp)
{
	struct stat file;

	if (stat(path, &file) != 0)
		return false;
	*stamp = {file.st_dev, file.st_ino, file.st_size, nanoseconds(file.st_mtim), nanoseconds(file.st_ctim)};
	return true;
}

ssize_t
read_key_file(const char *path, char *text, const char **problem)
{
	struct stat status;
	int file = open_key_file(path, &status);
	ssize_t size = -1;

	if (file < 0)
		*problem = psprintf("the file of outbox.master_key_file cannot be opened: %s", strerror(errno));
	else if (problem_of_mode(&status) != nullptr)
		*problem = psprintf("the file of outbox.master_key_file %s", problem_of_mode(&status));
	else if ((size = read_all(file, text)) < 0)
		*problem = psprintf("the file of outbox.master_key_file cannot be read: %s", strerror(errno));
	if (file >= 0)
		CloseTransientFile(file);
	return size;
}

namespace {

// Starts it in a process group of its own, with the end of a pipe as its standard output.
bool
start_command(const char *command, int output, pid_t *pid)
{
	const char *arguments[] = {"sh", "-c", command, nullptr};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t all;
	sigset_t none;
	int failed;

	sigfillset(&all);
	sigemptyset(&none);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setpgroup(&attributes, 0);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
	failed = posix_spawn(pid, "/bin/sh", &actions, &attributes, const_cast<char *const *>(arguments), environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	errno = failed;
	return failed == 0;
}

bool
is_interrupted()
{
	return InterruptPending && (QueryCancelPending || ProcDiePending);
}

// What the command prints, until it closes its output. -1 if that takes too long, or we are interrupted.
ssize_t
read_output(int input, char *text)
{
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), longest_run_s * 1000);
	size_t size = 0;

	while (size < longest_key_text && !is_interrupted() && GetCurrentTimestamp() < end)
	{
		struct pollfd ready = {input, POLLIN, 0};
		ssize_t n;

		if (poll(&ready, 1, look_ms) <= 0)
			continue;
		n = read(input, text + size, longest_key_text - size);
		if (n == 0)
			return static_cast<ssize_t>(size);
		if (n > 0)
			size += static_cast<size_t>(n);
		else if (errno != EINTR)
			return -1;
	}
	return size == longest_key_text ? static_cast<ssize_t>(size) : -1;
}

// Of the command, which is killed unless it has closed its output.
int
status_of(pid_t pid, bool kills)
{
	int status = 0;

	if (kills)
		kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	return status;
}

} // namespace

ssize_t
read_key_command(const char *command, char *text, const char **problem)
{
	int ends[2];
	pid_t pid;
	ssize_t size;
	int status;

	if (pipe2(ends, O_CLOEXEC) != 0)
	{
		*problem = psprintf("no pipe for outbox.master_key_command: %s", strerror(errno));
		return -1;
	}
	if (!start_command(command, ends[1], &pid))
	{
		*problem = psprintf("outbox.master_key_command cannot be started: %s", strerror(errno));
		close(ends[0]);
		close(ends[1]);
		return -1;
	}
	close(ends[1]);
	size = read_output(ends[0], text);
	close(ends[0]);
	status = status_of(pid, size < 0);
	CHECK_FOR_INTERRUPTS();
	if (size < 0)
		*problem = psprintf("outbox.master_key_command did not end within %d seconds", longest_run_s);
	else if (status != 0)
		*problem = WIFEXITED(status)
					   ? psprintf("outbox.master_key_command ended with exit code %d", WEXITSTATUS(status))
					   : psprintf("outbox.master_key_command was ended by signal %d", WTERMSIG(status));
	return *problem == nullptr ? size : -1;
}

} // namespace outbox
