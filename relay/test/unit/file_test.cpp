// The sinks that write lines: whole lines, full disks, files that move away, readers that do not read.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/file.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/taxonomy.h"
#include "sink_bench.h"
#include "sinks/kinds.h"

namespace {

using namespace relay;
using test::SinkBench;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

class File : public testing::Test {
protected:
	void SetUp() override
	{
		std::string pattern = (fs::temp_directory_path() / "relay-file-XXXXXX").string();
		ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
		folder = pattern;
	}
	void TearDown() override { fs::remove_all(folder); }
	[[nodiscard]] std::string path(const char *name = "out") const { return folder / name; }
	[[nodiscard]] std::string toml(const char *name = "out") const { return "path = '" + path(name) + "'\n"; }
	[[nodiscard]] std::vector<std::string> lines(const char *name = "out") const
	{
		std::vector<std::string> result;
		std::ifstream file(path(name));
		for (std::string line; std::getline(file, line);)
			result.push_back(line);
		return result;
	}
	fs::path folder;
};

TEST_F(File, LinesAreJson)
{
	SinkBench bench(file_kind, toml() + "fsync = true");
	auto first = SinkBench::delivery("topic", "{\"a\":\r\n 1.10}");
	first->to.key = "k\"";
	first->headers = {{"a", "b\n"}, {"c", "\xff"}};
	EXPECT_TRUE(bench.answer_to(bench.deliver(std::move(first))).accepted);
	EXPECT_TRUE(bench.answer_to(bench.deliver(SinkBench::delivery("t", "a\nb", "text/plain"))).accepted);
	EXPECT_TRUE(bench.answer_to(bench.deliver(SinkBench::delivery("t", "\xff\x01", "image/png"))).accepted);
	auto broken = SinkBench::delivery("t", "{\"a\":");
	broken->message.payload.reset(); // bytes that only say that they are JSON
	EXPECT_TRUE(bench.answer_to(bench.deliver(std::move(broken))).accepted);

	auto written = lines();
	ASSERT_EQ(written.size(), 4U);
	EXPECT_NE(written[0].find("1.10"), std::string::npos) << "a number stays as it is";
	auto json = nlohmann::json::parse(written[0]);
	EXPECT_EQ(json["event_id"], test::message().event_id);
	EXPECT_EQ(json["topic"], "topic");
	EXPECT_EQ(json["key"], "k\"");
	EXPECT_EQ(json["headers"]["a"], "b\n");
	EXPECT_EQ(json["content_type"], "application/json");
	EXPECT_EQ(json["body"]["a"], 1.1);
	EXPECT_EQ(nlohmann::json::parse(written[1])["body"], "a\nb");
	EXPECT_EQ(nlohmann::json::parse(written[2])["body_hex"], "ff01");
	EXPECT_EQ(nlohmann::json::parse(written[3])["body"], "{\"a\":");
}

TEST_F(File, AFileThatMovedAwayIsOpenedAgain)
{
	SinkBench bench(file_kind, toml());
	EXPECT_TRUE(bench.send("a").accepted);
	fs::rename(path(), path("old"));
	EXPECT_TRUE(bench.send("b").accepted);
	fs::remove(path());
	EXPECT_TRUE(bench.send("c").accepted);
	EXPECT_EQ(lines("old").size(), 1U);
	EXPECT_EQ(lines().size(), 1U);
}

TEST_F(File, ATornLineStaysAlone)
{
	std::ofstream(path()) << "{\"event_id\": \"to";
	EXPECT_TRUE(SinkBench(file_kind, toml()).send("a").accepted);
	EXPECT_TRUE(SinkBench(file_kind, toml()).send("b").accepted);
	auto written = lines();
	ASSERT_EQ(written.size(), 3U);
	EXPECT_EQ(written[0], "{\"event_id\": \"to");
	EXPECT_EQ(nlohmann::json::parse(written[1])["topic"], "a");
	EXPECT_EQ(nlohmann::json::parse(written[2])["topic"], "b");
}

TEST_F(File, ALineThatAnotherCutsShortStaysAlone)
{
	SinkBench bench(file_kind, toml());
	EXPECT_TRUE(bench.send("a").accepted);
	std::ofstream(path(), std::ios::app) << "{\"event_id\": \"to";
	EXPECT_TRUE(bench.send("b").accepted);
	auto written = lines();
	ASSERT_EQ(written.size(), 3U);
	EXPECT_EQ(nlohmann::json::parse(written[2])["topic"], "b");
}

TEST_F(File, WhileAnotherWritesNothingIsWritten)
{
	int another = ::open(path().c_str(), O_WRONLY | O_CREAT, 0640);
	ASSERT_EQ(::flock(another, LOCK_EX), 0);
	std::ofstream(path(), std::ios::app) << "{\"topic\":";
	SinkBench bench(file_kind, toml(), 50ms);
	EXPECT_EQ(bench.send("a").code, "TIMEOUT");
	std::ofstream(path(), std::ios::app) << " \"x\"}\n";
	::close(another);
	EXPECT_TRUE(bench.send("b").accepted);
	auto written = lines();
	ASSERT_EQ(written.size(), 2U);
	EXPECT_EQ(nlohmann::json::parse(written[0])["topic"], "x");
	EXPECT_EQ(nlohmann::json::parse(written[1])["topic"], "b");
}

TEST_F(File, TheEndWaitsForNoLock)
{
	int another = ::open(path().c_str(), O_WRONLY | O_CREAT, 0640);
	ASSERT_EQ(::flock(another, LOCK_EX), 0);
	SinkBench bench(file_kind, toml());
	uint64_t ticket = bench.deliver("a");
	bench.stop();
	EXPECT_FALSE(bench.answered(ticket));
	::close(another);
}

TEST_F(File, WhatCannotBeWrittenIsTheSinksFault)
{
	fs::create_directory(path("folder"));
	struct {
		std::string path, code;
	} cases[] = {{"/dev/full", "FILE_ENOSPC"},
				 {path("folder"), "FILE_EISDIR"},
				 {path("none/out"), "FILE_ENOENT"},
				 {folder / std::string(300, 'x'), "FILE_ENAMETOOLONG"}};
	Taxonomy taxonomy(file_kind.codes());
	for (const auto &one : cases)
	{
		SinkBench bench(file_kind, "path = '" + one.path + "'");
		Answer answer = bench.send("a");
		EXPECT_EQ(answer.code, one.code);
		EXPECT_TRUE(taxonomy.known(answer.code));
		EXPECT_EQ(taxonomy.of(answer.code), Fault::sink);
		if (one.path != "/dev/full") // which has no size that could be asked for
		{
			EXPECT_EQ(bench.probe("").code, one.code);
		}
	}
}

TEST_F(File, ItGoesOnWhenTheFolderComesBack)
{
	SinkBench bench(file_kind, toml("later/out"));
	EXPECT_EQ(bench.send("a").code, "FILE_ENOENT");
	EXPECT_FALSE(bench.probe("").accepted);
	fs::create_directory(path("later"));
	EXPECT_TRUE(bench.probe("").accepted);
	EXPECT_TRUE(bench.send("b").accepted);
	EXPECT_EQ(lines("later/out").size(), 1U);
}

TEST_F(File, PathIsAsked)
{
	EXPECT_THROW(SinkBench(file_kind, ""), ConfigError);
	EXPECT_THROW(SinkBench(file_kind, "path = ''"), ConfigError);
}

// Standard output as a pipe, as long as this stands.
class Pipe {
public:
	Pipe() : before(::dup(STDOUT_FILENO))
	{
		std::cout.flush();
		EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
		EXPECT_EQ(::dup2(ends[1], STDOUT_FILENO), STDOUT_FILENO);
		::close(ends[1]);
	}
	~Pipe()
	{
		::dup2(before, STDOUT_FILENO);
		::close(before);
		close_reader();
	}
	void close_reader()
	{
		if (ends[0] >= 0)
			::close(ends[0]);
		ends[0] = -1;
	}
	std::string read(size_t length)
	{
		std::string text(length, '\0');
		for (size_t at = 0; at < length;)
		{
			ssize_t n = ::read(ends[0], text.data() + at, length - at);
			if (n <= 0)
				return {};
			at += n;
		}
		return text;
	}

private:
	int before;
	std::array<int, 2> ends{};
};

TEST(Stdout, ALineLargerThanThePipe)
{
	Pipe pipe;
	SinkBench bench(stdout_kind, "");
	const std::string body(1'000'000, 'x');
	uint64_t ticket = bench.deliver(SinkBench::delivery("a", body, "text/plain"));
	std::string line = pipe.read(body.size() / 2); // the rest is more than a pipe holds
	EXPECT_FALSE(bench.answered(ticket));
	while (!line.ends_with('\n'))
		line += pipe.read(1);
	EXPECT_EQ(nlohmann::json::parse(line)["body"], body);
	EXPECT_TRUE(bench.answer_to(ticket).accepted);
}

TEST(Stdout, NobodyReads)
{
	Pipe pipe;
	SinkBench bench(stdout_kind, "", 50ms);
	Answer answer = bench.answer_to(bench.deliver(SinkBench::delivery("a", std::string(1'000'000, 'x'), "text/plain")));
	EXPECT_EQ(answer.code, "TIMEOUT");
	pipe.close_reader();
	EXPECT_EQ(bench.send("b").code, "FILE_EPIPE");
}

TEST(Stdout, TheEndWaitsForNoReader)
{
	Pipe pipe;
	SinkBench bench(stdout_kind, "");
	uint64_t ticket = bench.deliver(SinkBench::delivery("a", std::string(1'000'000, 'x'), "text/plain"));
	(void)pipe.read(1); // it writes
	bench.stop();
	EXPECT_FALSE(bench.answered(ticket));
}

TEST(Discard, AcceptsAtOnce)
{
	SinkBench bench(discard_kind, "");
	uint64_t ticket = bench.deliver("a");
	EXPECT_TRUE(bench.answered(ticket));
	EXPECT_TRUE(bench.probe("").accepted);
}

} // namespace
