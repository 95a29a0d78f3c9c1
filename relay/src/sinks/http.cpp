// The sink http: each message is a request to the URL of its route.
//
// Guarantees: accepted is a response of 2xx, whole or cut. Redirects are not followed, so that a message never goes
// where no one configured. Private addresses are refused unless they are allowed, for the address that is connected to.
// A host that does not answer holds up no other.
//
// Shape: a multi handle of libcurl drives all requests in wait(), on the thread that delivers: a request that ends and
// the next one that begins need no other thread. It keeps connections alive and shares those of HTTP/2.
#include "sinks/http_request.h"
#include "sinks/http_codes.h"
#include "sinks/http_target.h"
#include "sinks/kinds.h"

#include <algorithm>
#include <strings.h>
#include <unordered_map>

namespace relay {

namespace {

using namespace std::chrono_literals;
using Clock = HttpRequest::Clock;

constexpr std::array methods{"POST", "PUT", "PATCH", "DELETE"};

class HttpSink final : public Sink {
public:
	HttpSink(HttpSettings settings, size_t most_connections);
	~HttpSink() override;
	void start(Answers &to) override { answers = &to; }
	void deliver(std::vector<std::unique_ptr<Delivery>> deliveries) override;
	void wait(int descriptor, std::chrono::milliseconds longest) override;
	void probe(const std::string &endpoint, std::function<void(Answer)> done) override;
	[[nodiscard]] std::string endpoint(const Delivery &delivery) const override;
	[[nodiscard]] Text objection(const Delivery &delivery) const override;

private:
	struct FreeMulti {
		void operator()(CURLM *handle) const { curl_multi_cleanup(handle); }
	};

	void begin(std::unique_ptr<HttpRequest> request);
	void collect();
	void end(const HttpRequest &request, Answer answer);

	const HttpSettings settings;
	Answers *answers = nullptr;
	std::unique_ptr<CURLM, FreeMulti> multi;

	std::unordered_map<CURL *, std::unique_ptr<HttpRequest>> busy;
	std::vector<Answered> answered; // since the last wait()
};

HttpSink::HttpSink(HttpSettings settings, size_t most_connections) : settings(std::move(settings))
{
	static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
	multi.reset(global == CURLE_OK ? curl_multi_init() : nullptr);
	if (!multi)
		throw std::bad_alloc();
	curl_multi_setopt(multi.get(), CURLMOPT_MAXCONNECTS, static_cast<long>(most_connections));
}

HttpSink::~HttpSink()
{
	for (const auto &[handle, request] : busy)
		curl_multi_remove_handle(multi.get(), handle);
}

void
HttpSink::deliver(std::vector<std::unique_ptr<Delivery>> deliveries)
{
	Clock::time_point deadline = Clock::now() + settings.timeout;

	for (auto &delivery : deliveries)
	{
		auto request = std::make_unique<HttpRequest>(settings);
		request->prepare(std::move(delivery), deadline);
		begin(std::move(request));
	}
}

void
HttpSink::probe(const std::string &endpoint, std::function<void(Answer)> done)
{
	if (endpoint.empty()) // the sink as a whole has no address
		return done({.accepted = true});

	auto request = std::make_unique<HttpRequest>(settings);
	request->prepare_probe(endpoint, std::move(done));
	begin(std::move(request));
}

std::string
HttpSink::endpoint(const Delivery &delivery) const
{
	return url_endpoint(delivery.to.topic);
}

Text
HttpSink::objection(const Delivery &delivery) const
{
	if (Text problem = url_problem(delivery.to.topic))
		return problem;
	const std::string &method = delivery.to.method;
	if (!method.empty() && std::ranges::find(methods, method) == methods.end())
		return "the method is none of POST, PUT, PATCH and DELETE";
	auto ours = [&](const std::string &name) {
		bool logs_in = !settings.bearer_token.empty() || !settings.username.empty();
		auto same = [&](const auto &header) { return ::strcasecmp(header.first.c_str(), name.c_str()) == 0; };
		return std::ranges::any_of(settings.headers, same) ||
			   (logs_in && ::strcasecmp(name.c_str(), "authorization") == 0);
	};
	for (const auto &[name, value] : delivery.headers)
	{
		if (ours(name))
			return "the header " + name + " is one of the sink's own";
	}
	return {};
}

// Does not wait if a request was begun since the last time.
void
HttpSink::wait(int descriptor, std::chrono::milliseconds longest)
{
	curl_waitfd woken{.fd = descriptor, .events = CURL_WAIT_POLLIN, .revents = 0};
	int running = 0;

	curl_multi_poll(multi.get(), &woken, 1, static_cast<int>(longest.count()), nullptr);
	curl_multi_perform(multi.get(), &running);
	collect();
	if (!answered.empty())
		answers->answer(std::exchange(answered, {}));
}

void
HttpSink::begin(std::unique_ptr<HttpRequest> request)
{
	CURL *handle = request->handle();
	if (curl_multi_add_handle(multi.get(), handle) != CURLM_OK)
		end(*request, request->answer(CURLE_FAILED_INIT));
	else
		busy.emplace(handle, std::move(request));
}

void
HttpSink::collect()
{
	int left = 0;
	while (CURLMsg *message = curl_multi_info_read(multi.get(), &left))
	{
		CURLcode result = message->data.result;
		auto found = busy.find(message->easy_handle);
		auto request = std::move(found->second);
		busy.erase(found);
		// The headers of the response go with it.
		Answer answer = request->answer(result);
		curl_multi_remove_handle(multi.get(), request->handle());
		end(*request, std::move(answer));
	}
}

void
HttpSink::end(const HttpRequest &request, Answer answer)
{
	if (request.probe_done())
		request.probe_done()(std::move(answer));
	else
		answered.push_back({request.ticket(), std::move(answer)});
}

// ---------------------------------------------------------------- configuration

Headers
read_headers(Section &section)
{
	Headers headers;
	for (const auto &[name, value] : section.free("headers"))
	{
		if (name.empty() || name.find_first_of(" \t\r\n:;") != name.npos)
			section.refuse("headers", "\"" + name + "\" is not the name of a header");
		if (value.empty() || value.find_first_of("\r\n") != value.npos)
			section.refuse("headers", "the value of \"" + name + "\" is empty or has a line break");
		headers.emplace_back(name, value);
	}
	return headers;
}

AddressPolicy
read_addresses(Section &section)
{
	std::vector<Network> allowed;
	bool all = section.flag("allow_private", false);
	for (const std::string &text : section.texts("allow_networks", {}))
	{
		try
		{
			allowed.push_back(parse_network(text));
		}
		catch (const std::invalid_argument &error)
		{
			section.refuse("allow_networks", error.what());
		}
	}
	return {all, std::move(allowed)};
}

WebhookSigner
read_signer(Section &section)
{
	try
	{
		return WebhookSigner(section.secrets("signing_secrets"));
	}
	catch (const std::invalid_argument &error)
	{
		section.refuse("signing_secrets", error.what());
	}
}

void
read_tls(Section &section, HttpSettings &settings)
{
	settings.verify = section.flag("verify", true);
	settings.ca_file = section.text("ca_file", "");
	settings.client_certificate = section.text("client_certificate", "");
	settings.client_key = section.text("client_key", "");
	settings.client_key_password = section.secret("client_key_password").value_or(Secret());
	if (!settings.client_key.empty() && settings.client_certificate.empty())
		section.refuse("client_key", "needs client_certificate");
}

void
read_login(Section &section, HttpSettings &settings)
{
	settings.username = section.text("username", "");
	settings.password = section.secret("password").value_or(Secret());
	settings.bearer_token = section.secret("bearer_token").value_or(Secret());
	settings.proxy = section.secret("proxy").value_or(Secret());
	if (!settings.username.empty() && !settings.bearer_token.empty())
		section.refuse("bearer_token", "stands beside username: only one of them can log in");
}

std::function<std::unique_ptr<Sink>()>
read_http(Section &section, const SinkSettings &common)
{
	HttpSettings settings{.timeout = common.timeout};
	settings.connect_timeout =
		section.duration("connect_timeout", std::min<std::chrono::milliseconds>(5s, common.timeout / 2));
	if (settings.connect_timeout >= common.timeout)
		section.refuse("connect_timeout", "must be shorter than timeout");
	settings.addresses = read_addresses(section);
	settings.signer = read_signer(section);
	settings.headers = read_headers(section);
	settings.reference_header = section.text("reference_header", "X-Request-Id");
	settings.http2 = section.choice("http_version", "2", {"1.1", "2"}) == "2";
	read_tls(section, settings);
	read_login(section, settings);
	return [settings, most = common.max_in_flight] { return std::make_unique<HttpSink>(settings, most); };
}

} // namespace

const SinkKind http_kind{"http",     Binding::http, "",
						 http_codes, read_http,     {.max_in_flight = 256, .max_per_endpoint = 32}};

} // namespace relay
