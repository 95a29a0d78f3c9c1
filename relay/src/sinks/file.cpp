// The sinks that need no broker: stdout and file write one JSON object a line, discard accepts at once.
//
// Guarantees: an accepted message is a whole line, written by write(2) and, with `fsync`, on the disk. A line that a
// full disk, a reader that does not read or a kill cuts short stays alone on its line: the next write begins with a
// line feed. Relays may share a file, and sinks of a relay standard output. A file that was moved away is opened again
// under its name. A reader that does not read (a full pipe) delays only the sinks that write to it.
//
// Shape: one thread writes whatever waits by one write(2) and one fsync, and answers. A write holds the lock of the
// file, flock(2): a process that looked at the end of the file during the write of another would see a line cut short.
// Files that are not regular are written in pieces that a pipe takes without blocking, since the blocking mode of
// stdout belongs to its other users too.
#include "sinks/kinds.h"

#include <nlohmann/json.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <thread>
#include <unistd.h>

namespace relay {

namespace {

using Clock = std::chrono::steady_clock;

// errno's names under FILE_. All are the sink's: another message would meet the same file.
constexpr std::array file_code_table{
	Code{"FILE_EACCES", Fault::sink, "the file may not be opened"},
	Code{"FILE_EBADF", Fault::sink, "standard output is closed"},
	Code{"FILE_EDQUOT", Fault::sink, "the disk quota is used up"},
	Code{"FILE_EFBIG", Fault::sink, "the file has reached its largest size"},
	Code{"FILE_EIO", Fault::sink, "the disk failed"},
	Code{"FILE_EISDIR", Fault::sink, "the path is a directory"},
	Code{"FILE_ELOOP", Fault::sink, "the path has too many symbolic links"},
	Code{"FILE_EMFILE", Fault::sink, "the process has too many open files"},
	Code{"FILE_ENAMETOOLONG", Fault::sink, "the path is too long"},
	Code{"FILE_ENFILE", Fault::sink, "the system has too many open files"},
	Code{"FILE_ENOENT", Fault::sink, "the folder of the file does not exist"},
	Code{"FILE_ENOMEM", Fault::sink, "the system is out of memory"},
	Code{"FILE_ENOSPC", Fault::sink, "the disk is full"},
	Code{"FILE_ENOTDIR", Fault::sink, "a part of the path is not a folder"},
	Code{"FILE_ENXIO", Fault::sink, "no process reads the pipe"},
	Code{"FILE_EPERM", Fault::sink, "the file may not be appended to"},
	Code{"FILE_EPIPE", Fault::sink, "no process reads standard output or the pipe any more"},
	Code{"FILE_EROFS", Fault::sink, "the file system is read-only"},
	Code{"FILE_ENODEV", Fault::sink, "the device is gone"},
	Code{"FILE_ESTALE", Fault::sink, "the network file system lost the file"},
	Code{"FILE_ETXTBSY", Fault::sink, "the file is a program that runs"},
};

Answer
failure(int error)
{
	if (error == ETIMEDOUT) // a full pipe, or a file that another process keeps locked
		return {.code = "TIMEOUT", .text = "no process reads, or another process keeps the file locked"};
	const char *name = strerrorname_np(error);
	return {.code = std::string("FILE_") + (name != nullptr ? name : std::to_string(error).c_str()),
			.response_code = std::to_string(error),
			.text = std::strerror(error)};
}

bool
is_json(std::string_view type)
{
	type = type.substr(0, type.find(';'));
	return type == "application/json" || type.ends_with("+json");
}

// As a value of JSON: JSON as it is, text as a string, anything else in hexadecimal digits.
void
append_body(std::string &line, const Delivery &delivery)
{
	using nlohmann::json;
	const std::string &body = delivery.body;
	if (is_json(delivery.content_type) && !body.empty() && (delivery.message.payload || json::accept(body)))
	{
		size_t at = line.append(R"(,"body":)").size();
		line += body;
		for (; at < line.size(); at++)
		{
			if (line[at] == '\n' || line[at] == '\r') // only ever between JSON's tokens
				line[at] = ' ';
		}
		return;
	}
	try
	{
		std::string text = json(body).dump();
		line.append(R"(,"body":)").append(text);
	}
	catch (const json::type_error &) // not UTF-8
	{
		line.append(R"(,"body_hex":")");
		for (unsigned char c : body)
			line.append({"0123456789abcdef"[c >> 4], "0123456789abcdef"[c & 15]});
		line += '"';
	}
}

std::string
line_of(const Delivery &delivery)
{
	nlohmann::ordered_json head{{"event_id", delivery.message.event_id}, {"topic", delivery.to.topic}};
	if (delivery.to.key)
		head["key"] = *delivery.to.key;
	nlohmann::ordered_json &headers = head["headers"] = nlohmann::ordered_json::object();
	for (const auto &[name, value] : delivery.headers)
		headers[name] = value;
	head["content_type"] = delivery.content_type;
	std::string line = head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
	line.pop_back();
	append_body(line, delivery);
	return line += "}\n";
}

struct Descriptor {
	int fd;
	explicit Descriptor(int fd = -1) : fd(fd) {}
	Descriptor(const Descriptor &) = delete;
	Descriptor &operator=(const Descriptor &) = delete;
	~Descriptor() { reset(); }
	void reset(int other = -1)
	{
		if (fd >= 0)
			::close(fd);
		fd = other;
	}
};

// All sinks of the process write to it.
struct StandardOutput {
	std::mutex mutex;
	bool cut = false; // its last line was cut short
};

StandardOutput &
standard_output()
{
	static StandardOutput the;
	return the;
}

// The lock of a file or of standard output, if it is held, until the end of the scope.
struct Locked {
	int fd = -1;
	std::unique_lock<std::mutex> standard;
	Locked() = default;
	Locked(const Locked &) = delete;
	Locked &operator=(const Locked &) = delete;
	~Locked()
	{
		if (fd >= 0)
			::flock(fd, LOCK_UN);
	}
};

// A line feed also if it cannot be read.
char
last_byte(const std::string &path, off_t size)
{
	Descriptor reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
	char last = '\n';
	return reader.fd >= 0 && ::pread(reader.fd, &last, 1, size - 1) == 1 ? last : '\n';
}

// Where lines go. Functions return 0 or an errno.
class Output {
public:
	explicit Output(Text path, int stop) : path(std::move(path)), stop(stop) {}

	// What the next line will go to: the file that has the name now.
	int open();
	// Adds to `done` what was written; ETIMEDOUT after the deadline, ECANCELED when `stop` is readable.
	int write(std::string_view lines, size_t &done, Clock::time_point deadline);
	int sync();
	void close()
	{
		own.reset();
		fd = -1;
	}
	[[nodiscard]] int room() const;

private:
	bool moved() const;
	int lock(Locked &locked, Clock::time_point deadline) const;
	bool try_lock(Locked &locked) const;
	bool &cut() { return path ? own_cut : standard_output().cut; }
	int wait(Clock::time_point deadline) const;
	bool torn();
	int put(std::string_view text, size_t &done, Clock::time_point deadline);

	Text path; // nothing: stdout
	int stop;
	Descriptor own;
	int fd = -1;
	bool regular = false, own_cut = false;
};

bool
Output::moved() const
{
	struct stat named, opened;
	return path && (::stat(path->c_str(), &named) != 0 || ::fstat(fd, &opened) != 0 || named.st_ino != opened.st_ino ||
					named.st_dev != opened.st_dev);
}

int
Output::open()
{
	if (fd >= 0 && !moved())
		return 0;
	close();
	if (path)
	{
		own.reset(::open(path->c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0640));
		if (own.fd < 0)
			return errno;
	}
	int opened = path ? own.fd : STDOUT_FILENO;
	struct stat status;
	if (::fstat(opened, &status) != 0)
		return errno;
	fd = opened;
	regular = S_ISREG(status.st_mode);
	return 0;
}

// A file system without locks does without.
bool
Output::try_lock(Locked &locked) const
{
	if (!path)
	{
		locked.standard = std::unique_lock(standard_output().mutex, std::try_to_lock);
		return locked.standard.owns_lock();
	}
	if (regular && ::flock(fd, LOCK_EX | LOCK_NB) == 0)
		locked.fd = fd;
	else if (regular && (errno == EWOULDBLOCK || errno == EINTR))
		return false;
	return true;
}

// No call waits for a lock and for something else.
int
Output::lock(Locked &locked, Clock::time_point deadline) const
{
	while (!try_lock(locked))
	{
		pollfd end{stop, POLLIN, 0};
		if (::poll(&end, 1, 5) > 0)
			return ECANCELED;
		if (Clock::now() >= deadline)
			return ETIMEDOUT;
	}
	return 0;
}

// Whether the last line was cut short. A file tells, also of another process.
bool
Output::torn()
{
	struct stat status;
	if (!path || !regular)
		return cut();
	return ::fstat(fd, &status) == 0 && status.st_size > 0 && last_byte(*path, status.st_size) != '\n';
}

int
Output::wait(Clock::time_point deadline) const
{
	std::array<pollfd, 2> ends{{{fd, POLLOUT, 0}, {stop, POLLIN, 0}}};
	auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
	int ready = ::poll(ends.data(), ends.size(), static_cast<int>(std::max<int64_t>(left.count(), 0)));
	if (ready < 0 && errno != EINTR)
		return errno;
	if (ready > 0 && ends[1].revents != 0)
		return ECANCELED;
	return ready == 0 ? ETIMEDOUT : 0;
}

int
Output::write(std::string_view lines, size_t &done, Clock::time_point deadline)
{
	Locked locked;
	size_t ended = 0;
	int error = lock(locked, deadline);
	if (error != 0)
		return error;
	if (torn())
		error = put("\n", ended, deadline);
	if (error == 0)
		error = put(lines, done, deadline);
	if (ended + done > 0)
		cut() = done > 0 && lines[done - 1] != '\n';
	return error;
}

int
Output::put(std::string_view text, size_t &done, Clock::time_point deadline)
{
	while (done < text.size())
	{
		if (int error = regular ? 0 : wait(deadline); error != 0)
			return error;
		size_t piece = regular ? text.size() - done : std::min<size_t>(text.size() - done, PIPE_BUF);
		ssize_t n = ::write(fd, text.data() + done, piece);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return errno;
		done += std::max<ssize_t>(n, 0);
	}
	return 0;
}

int
Output::sync()
{
	return regular && ::fdatasync(fd) != 0 ? errno : 0;
}

int
Output::room() const
{
	struct statvfs space;
	return regular && ::fstatvfs(fd, &space) == 0 && space.f_bavail == 0 ? ENOSPC : 0;
}

class LineSink final : public Sink {
public:
	LineSink(Text path, bool fsync, std::chrono::milliseconds timeout)
		: timeout(timeout), fsync(fsync), stop(::eventfd(0, EFD_CLOEXEC)), output(std::move(path), stop.fd)
	{
	}
	~LineSink() override;
	void start(Answers &to) override;
	void deliver(std::vector<std::unique_ptr<Delivery>> deliveries) override;
	void probe(const std::string &endpoint, std::function<void(Answer)> done) override;

private:
	struct Line {
		uint64_t ticket;
		std::string text;
		Clock::time_point deadline;
	};
	void run();
	void write(const std::vector<Line> &lines);
	int write(std::string_view text, size_t &done, Clock::time_point deadline);
	Answer look();

	std::chrono::milliseconds timeout;
	bool fsync;
	Descriptor stop; // readable: the end
	Output output;   // of the thread
	Answers *answers = nullptr;
	std::mutex mutex; // of what follows
	std::condition_variable wake;
	std::vector<Line> waiting;
	std::vector<std::function<void(Answer)>> probes;
	bool stopping = false;
	std::thread thread;
};

LineSink::~LineSink()
{
	{
		std::lock_guard lock(mutex);
		stopping = true;
	}
	wake.notify_all();
	::eventfd_write(stop.fd, 1);
	if (thread.joinable())
		thread.join();
}

void
LineSink::start(Answers &to)
{
	answers = &to;
	thread = std::thread([this] { run(); });
}

void
LineSink::deliver(std::vector<std::unique_ptr<Delivery>> deliveries)
{
	std::vector<Line> lines;
	lines.reserve(deliveries.size());
	for (const auto &delivery : deliveries)
		lines.push_back({delivery->ticket, line_of(*delivery), Clock::now() + timeout});
	{
		std::lock_guard lock(mutex);
		std::move(lines.begin(), lines.end(), std::back_inserter(waiting));
	}
	wake.notify_one();
}

void
LineSink::probe(const std::string &, std::function<void(Answer)> done)
{
	{
		std::lock_guard lock(mutex);
		probes.push_back(std::move(done));
	}
	wake.notify_one();
}

void
LineSink::run()
{
	sigset_t all; // signals are the main thread's, and SIGPIPE is not wanted at all
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, nullptr);
	std::unique_lock lock(mutex);
	for (;;)
	{
		wake.wait(lock, [this] { return stopping || !waiting.empty() || !probes.empty(); });
		if (stopping)
			return;
		auto lines = std::exchange(waiting, {});
		auto asked = std::exchange(probes, {});
		lock.unlock();
		for (const auto &done : asked)
			done(look());
		if (!lines.empty())
			write(lines);
		lock.lock();
	}
}

// Without a byte written: there is a file, and room on its disk.
Answer
LineSink::look()
{
	int error = output.open();
	if (error == 0)
		error = output.room();
	return error == 0 ? Answer{.accepted = true} : failure(error);
}

void
LineSink::write(const std::vector<Line> &lines)
{
	std::string text;
	for (const Line &line : lines)
		text += line.text;
	size_t done = 0, end = 0;
	int error = write(text, done, lines.back().deadline);
	if (error == ECANCELED)
		return;
	std::vector<Answered> answered;
	for (const Line &line : lines)
	{
		end += line.text.size();
		answered.push_back({line.ticket, end <= done ? Answer{.accepted = true} : failure(error)});
	}
	answers->answer(std::move(answered));
}

// `done`: what is written and, if asked for, on the disk.
int
LineSink::write(std::string_view text, size_t &done, Clock::time_point deadline)
{
	int error = output.open();
	if (error == 0)
		error = output.write(text, done, deadline);
	int sync_error = fsync && done > 0 ? output.sync() : 0;
	if (sync_error != 0) // what of it is on the disk is not known
		done = 0;
	if (sync_error != 0 || error != 0)
		output.close();
	return sync_error != 0 ? sync_error : error;
}

std::span<const Code>
file_codes()
{
	return file_code_table;
}

std::function<std::unique_ptr<Sink>()>
read_file(Section &section, const SinkSettings &settings)
{
	std::string path = section.text("path");
	if (path.empty())
		section.refuse("path", "is empty");
	bool fsync = section.flag("fsync", false);
	return [=] { return std::make_unique<LineSink>(path, fsync, settings.timeout); };
}

std::function<std::unique_ptr<Sink>()>
read_stdout(Section &, const SinkSettings &settings)
{
	return [=] { return std::make_unique<LineSink>(Text{}, false, settings.timeout); };
}

// Accepts at once, and keeps nothing: for benchmarks and tests.
class DiscardSink final : public Sink {
public:
	void start(Answers &to) override { answers = &to; }
	void deliver(std::vector<std::unique_ptr<Delivery>> deliveries) override
	{
		std::vector<Answered> answered;
		for (const auto &delivery : deliveries)
			answered.push_back({delivery->ticket, {.accepted = true}});
		answers->answer(std::move(answered));
	}
	void probe(const std::string &, std::function<void(Answer)> done) override { done({.accepted = true}); }

private:
	Answers *answers = nullptr;
};

std::function<std::unique_ptr<Sink>()>
read_discard(Section &, const SinkSettings &)
{
	return [] { return std::make_unique<DiscardSink>(); };
}

} // namespace

const SinkKind file_kind{"file", Binding::plain, "", file_codes, read_file, {}};
const SinkKind stdout_kind{"stdout", Binding::plain, "", file_codes, read_stdout, {}};
const SinkKind discard_kind{"discard",    Binding::plain,           "", [] { return std::span<const Code>(); },
							read_discard, {.max_in_flight = 10'000}};

} // namespace relay
