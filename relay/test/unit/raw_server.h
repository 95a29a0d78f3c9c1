// A server on loopback that says whatever a test wants, byte for byte.
//
// Guarantees: listens when it is made, answers each request by what the test's function returns, and is gone with its
// threads when it is destroyed.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace relay::test {

class RawServer {
public:
	struct Reply {
		std::string bytes;
		bool close = false;
	};
	using Respond = std::function<Reply(const std::string &request)>; // head and body

	// Throws std::system_error: the port may be taken.
	explicit RawServer(Respond respond, const char *address = "127.0.0.1", uint16_t port = 0);
	~RawServer();

	[[nodiscard]] uint16_t port() const { return my_port; }
	[[nodiscard]] std::string url(const std::string &path = "/") const;
	[[nodiscard]] size_t connections() const;
	[[nodiscard]] size_t requests() const;

private:
	void accept();
	void serve(int fd);

	Respond respond;
	std::string address;
	int listener = -1;
	uint16_t my_port = 0;
	mutable std::mutex mutex; // of what follows
	std::vector<int> fds;
	std::vector<std::thread> threads;
	size_t my_requests = 0;
	bool stopping = false;
	std::thread acceptor;
};

// A response of HTTP/1.1 with its length. `head`: lines that end in \r\n.
std::string response(int status, const std::string &body = "", const std::string &head = "");

} // namespace relay::test
