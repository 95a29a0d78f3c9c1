// The HTTP server, over civetweb's C interface.
//
// Guarantees: one handler takes all paths, so that civetweb itself serves none; no exception crosses it.
#include "seen/server.h"
#include "core/secret.h"
#include "seen/log.h"
#include "seen/page.h"

#include <array>
#include <functional>
#include <chrono>
#include <map>
#include <thread>
#include <type_traits>

#include <civetweb.h>
#include <spdlog/fmt/fmt.h>

namespace relay {

namespace {

struct Response {
	int status;
	const char *type;
	std::string body;
};

constexpr auto plain = "text/plain; charset=utf-8", html_type = "text/html; charset=utf-8";

constexpr std::string_view security_headers =
	"Content-Security-Policy: default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
	"X-Content-Type-Options: nosniff\r\n"
	"X-Frame-Options: DENY\r\n"
	"Referrer-Policy: no-referrer\r\n"
	"Cross-Origin-Resource-Policy: same-origin\r\n"
	"Cache-Control: no-store\r\n";

const char *
phrase(int status)
{
	switch (status)
	{
		case 200:
			return "OK";
		case 404:
			return "Not Found";
		case 405:
			return "Method Not Allowed";
		case 503:
			return "Service Unavailable";
	}
	return "Internal Server Error";
}

void
send(mg_connection *connection, const Response &response, bool with_body)
{
	const auto head =
		fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}{}Connection: close\r\n\r\n",
					response.status, phrase(response.status), response.type, response.body.size(),
					response.status == 405 ? "Allow: GET, HEAD\r\n" : "", security_headers);

	mg_write(connection, head.data(), head.size());
	if (with_body)
	{
		mg_write(connection, response.body.data(), response.body.size());
	}
}

// The first that civetweb logs while it starts, which says more than its error.
thread_local std::string complaint;

void
keep_complaint(const char *message) noexcept
{
	try
	{
		complaint = complaint.empty() ? message : complaint;
	}
	catch (const std::bad_alloc &)
	{
		complaint.clear();
	}
}

// The address of ADDRESS:PORT; loopback if that is any address.
std::string
host_of(std::string_view address)
{
	const auto colon = address.rfind(':');
	const auto host = address.substr(0, colon == std::string_view::npos ? 0 : colon);

	if (host == "0.0.0.0" || host.empty())
	{
		return "127.0.0.1";
	}
	return host == "[::]" ? "::1" : std::string(host.front() == '[' ? host.substr(1, host.size() - 2) : host);
}

} // namespace

struct StatusServer::Parts {
	std::map<std::string, std::function<Response()>, std::less<>> pages;
	mg_context *context = nullptr;
	std::string host; // under which it reaches itself

	~Parts()
	{
		if (context)
		{
			stop();
		}
	}

	// Or throws std::runtime_error.
	void start(const std::string &listen)
	{
		host = host_of(listen);
		std::array<const char *, 9> options{
			"listening_ports",          listen.c_str(), "num_threads", "4", "request_timeout_ms", "5000",
			"enable_directory_listing", "no",           nullptr};
		std::array<char, 512> text{};
		mg_callbacks callbacks{};
		callbacks.log_message = [](const mg_connection *, const char *message) noexcept {
			keep_complaint(message);
			return 1;
		};
		mg_init_data init{&callbacks, nullptr, options.data()};
		unsigned code = 0;
		mg_error_data error{};
		error.text = text.data();
		error.text_buffer_size = text.size();
		// Up to civetweb 1.15 it is a pointer.
		[&code](auto &place) {
			if constexpr (std::is_pointer_v<std::remove_reference_t<decltype(place)>>)
				place = &code;
		}(error.code);

		complaint.clear();
		context = mg_start2(&init, &error);
		if (!context)
		{
			throw std::runtime_error("could not listen on \"" + listen +
									 "\": " + (complaint.empty() ? text.data() : complaint));
		}
		mg_set_request_handler(context, "**", handle, this);
	}

	// civetweb looks at its flag every two seconds, or when a client connects: so one does.
	void stop()
	{
		const std::jthread waking([this, at = port()](const std::stop_token &stop) {
			while (!stop.stop_requested())
			{
				if (auto *client = mg_connect_client(host.c_str(), at, 0, nullptr, 0))
				{
					mg_close_connection(client);
				}
				std::this_thread::sleep_for(std::chrono::milliseconds(10));
			}
		});
		mg_stop(context);
	}

	[[nodiscard]] int port() const
	{
		mg_server_port first{};
		return mg_get_server_ports(context, 1, &first) > 0 ? first.port : 0;
	}

	[[nodiscard]] Response answer(std::string_view method, std::string_view path) const
	{
		const auto page = pages.find(path);

		if (method != "GET" && method != "HEAD")
		{
			return {405, plain, "only GET and HEAD are served\n"};
		}
		return page == pages.end() ? Response{404, plain, "not found\n"} : page->second();
	}

	static int handle(mg_connection *connection, void *parts) noexcept
	{
		const auto *request = mg_get_request_info(connection);
		const std::string_view method = request->request_method;
		Response response{500, plain, "the answer could not be made\n"};

		try
		{
			response = static_cast<Parts *>(parts)->answer(method, request->local_uri);
			send(connection, response, method != "HEAD");
		}
		catch (const std::exception &error)
		{
			log(Level::error, std::string("status page: ") + error.what());
			send(connection, {500, plain, "the answer could not be made\n"}, method != "HEAD");
		}
		return response.status;
	}
};

StatusServer::StatusServer(const std::string &listen, const Metrics &metrics, Board &board, const History &history)
	: parts(std::make_unique<Parts>())
{
	const auto looked = [&board, &history](const char *type, std::string (*made)(const PageData &)) {
		return [&board, &history, type, made] {
			board.looked();
			return Response{200, type, made(page_data(board, history))};
		};
	};
	auto &pages = parts->pages;

	pages["/"] = looked(html_type, page);
	pages["/content"] = looked(html_type, page_content);
	pages["/status.json"] = looked("application/json", status_json);
	pages["/page.css"] = [] { return Response{200, "text/css; charset=utf-8", std::string(page_style)}; };
	pages["/page.js"] = [] { return Response{200, "text/javascript; charset=utf-8", std::string(page_script)}; };
	pages["/metrics"] = [&metrics] {
		return Response{200, "text/plain; version=0.0.4; charset=utf-8", metrics.exposition()};
	};
	pages["/health/live"] = [] { return Response{200, plain, "live\n"}; };
	pages["/health/ready"] = [&board] {
		std::string problem;
		const bool ready = board.ready(problem);
		return Response{ready ? 200 : 503, plain,
						std::string(ready ? "ready" : "not ready") + (problem.empty() ? "" : "\n" + redact(problem)) +
							"\n"};
	};
	parts->start(listen);
}

StatusServer::~StatusServer() = default;

int
StatusServer::port() const
{
	return parts->port();
}

} // namespace relay
