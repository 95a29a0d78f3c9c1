#include "raw_server.h"

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <system_error>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace relay::test {

namespace {

// Takes one request out of what was read; nothing if it is not whole.
std::optional<std::string>
take_request(std::string &read)
{
	size_t head = read.find("\r\n\r\n");
	if (head == read.npos)
		return {};
	size_t length = head + 4;
	if (size_t at = read.find("Content-Length: "); at < head)
		length += std::strtoul(read.c_str() + at + 16, nullptr, 10);
	if (read.size() < length)
		return {};
	std::string request = read.substr(0, length);
	read.erase(0, length);
	return request;
}

} // namespace

RawServer::RawServer(Respond respond, const char *address, uint16_t port)
	: respond(std::move(respond)), address(address)
{
	sockaddr_in name{
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {::inet_addr(address)}, .sin_zero = {}};
	socklen_t size = sizeof name;
	listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr *>(&name), size) != 0 ||
		::listen(listener, 512) != 0 || ::getsockname(listener, reinterpret_cast<sockaddr *>(&name), &size) != 0)
	{
		int error = errno;
		::close(listener);
		throw std::system_error(error, std::generic_category(), "RawServer");
	}
	my_port = ntohs(name.sin_port);
	acceptor = std::thread([this] { accept(); });
}

RawServer::~RawServer()
{
	{
		std::lock_guard lock(mutex);
		stopping = true;
		for (int fd : fds)
			::shutdown(fd, SHUT_RDWR);
	}
	::shutdown(listener, SHUT_RDWR); // ends accept()
	acceptor.join();
	for (std::thread &thread : threads)
		thread.join();
	for (int fd : fds)
		::close(fd);
	::close(listener);
}

std::string
RawServer::url(const std::string &path) const
{
	return "http://" + address + ":" + std::to_string(my_port) + path;
}

size_t
RawServer::connections() const
{
	std::lock_guard lock(mutex);
	return fds.size();
}

size_t
RawServer::requests() const
{
	std::lock_guard lock(mutex);
	return my_requests;
}

void
RawServer::accept()
{
	for (;;)
	{
		int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
		std::lock_guard lock(mutex);
		if (fd < 0)
			return;
		fds.push_back(fd);
		if (stopping)
			return;
		threads.emplace_back([this, fd] { serve(fd); });
	}
}

void
RawServer::serve(int fd)
{
	std::string read, buffer(65536, '\0');
	for (;;)
	{
		ssize_t n = ::recv(fd, buffer.data(), buffer.size(), 0);
		if (n <= 0)
			break;
		read.append(buffer, 0, n);
		while (auto request = take_request(read))
		{
			{
				std::lock_guard lock(mutex);
				my_requests++;
			}
			Reply reply = respond(*request);
			size_t sent = 0;
			while (sent < reply.bytes.size())
			{
				ssize_t m = ::send(fd, reply.bytes.data() + sent, reply.bytes.size() - sent, MSG_NOSIGNAL);
				if (m < 0)
					break;
				sent += m;
			}
			if (reply.close || sent < reply.bytes.size())
			{
				::shutdown(fd, SHUT_RDWR);
				return;
			}
		}
	}
	::shutdown(fd, SHUT_RDWR);
}

std::string
response(int status, const std::string &body, const std::string &head)
{
	std::string length =
		status == 204 || status == 304 ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n";
	return "HTTP/1.1 " + std::to_string(status) + " \r\n" + head + length + "\r\n" + body;
}

} // namespace relay::test
