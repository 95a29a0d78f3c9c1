#include "sinks/http_request.h"
#include "sinks/http_codes.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <new>
#include <optional>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <strings.h>
#include <sys/socket.h>

namespace relay {

namespace {

using namespace std::chrono_literals;

constexpr size_t most_read = 64 * 1024, most_kept = 2048, longest_reference = 256;
constexpr std::chrono::seconds longest_retry_after = 24h;

// The connection may outlive the request for which it was made, so it keeps the place of its alert itself.
using Alert = std::shared_ptr<int>;

void
forget_alert(void *, void *alert, CRYPTO_EX_DATA *, int, long, void *)
{
	delete static_cast<Alert *>(alert);
}

int
alert_index()
{
	static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, forget_alert);
	return index;
}

void
keep_alert(const SSL *ssl, int where, int value)
{
	if ((where & SSL_CB_READ_ALERT) == SSL_CB_READ_ALERT && value >> 8 == SSL3_AL_FATAL)
		**static_cast<Alert *>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), alert_index())) = value & 0xff;
}

// Whether it is about the certificate of the client. By TLS 1.3 it comes when the handshake is over, so that for
// libcurl the connection has broken like any other.
bool
refuses_client(int alert)
{
	return (alert >= SSL_AD_BAD_CERTIFICATE && alert <= SSL_AD_CERTIFICATE_UNKNOWN) || alert == SSL_AD_UNKNOWN_CA ||
		   alert == SSL_AD_ACCESS_DENIED || alert == SSL_AD_CERTIFICATE_REQUIRED;
}

// Seconds, or a date. What libcurl makes of it is six hours at most from version 8.12 on.
std::optional<std::chrono::milliseconds>
retry_after(const std::string &value)
{
	char *end = nullptr;
	long long seconds = strtoll(value.c_str(), &end, 10);
	if (end == value.c_str() || *end != '\0')
		seconds = curl_getdate(value.c_str(), nullptr) - time(nullptr);
	if (seconds <= 0)
		return std::nullopt;
	return std::min(std::chrono::seconds(seconds), longest_retry_after);
}

bool
tls_is_openssl()
{
	const char *name = curl_version_info(CURLVERSION_NOW)->ssl_version;
	return name && std::string_view(name).starts_with("OpenSSL");
}

} // namespace

HttpRequest::HttpRequest(const HttpSettings &settings) : settings(settings), easy(curl_easy_init())
{
	if (!easy)
		throw std::bad_alloc();
	set(CURLOPT_PRIVATE, this);
	set(CURLOPT_ERRORBUFFER, error.data());
	set(CURLOPT_NOSIGNAL, 1L);
	set(CURLOPT_QUICK_EXIT, 1L); // never waits for a name server
	set(CURLOPT_PROTOCOLS_STR, "http,https");
	set(CURLOPT_FOLLOWLOCATION, 0L);
	set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
	set(CURLOPT_PROXY, settings.proxy.reveal().c_str()); // "": none, whatever the environment says
	set(CURLOPT_NOPROXY, "");
	set(CURLOPT_USERAGENT, "outbox-relay");
	set(CURLOPT_WRITEFUNCTION, &HttpRequest::take_response);
	set(CURLOPT_WRITEDATA, this);
	set(CURLOPT_HEADERFUNCTION, &HttpRequest::take_header);
	set(CURLOPT_HEADERDATA, this);
	set(CURLOPT_OPENSOCKETFUNCTION, &HttpRequest::open_socket);
	set(CURLOPT_OPENSOCKETDATA, this);
	set(CURLOPT_TCP_KEEPALIVE, 1L);
	set(CURLOPT_HTTP_VERSION, static_cast<long>(settings.http2 ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
	set_up_tls();
	set_up_login();
}

void
HttpRequest::set_up_tls()
{
	auto set_text = [this](CURLoption option, const std::string &text) {
		if (!text.empty())
			set(option, text.c_str());
	};
	set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
	set(CURLOPT_SSL_VERIFYPEER, settings.verify ? 1L : 0L);
	set(CURLOPT_SSL_VERIFYHOST, settings.verify ? 2L : 0L);
	set_text(CURLOPT_CAINFO, settings.ca_file);
	set_text(CURLOPT_SSLCERT, settings.client_certificate);
	set_text(CURLOPT_SSLKEY, settings.client_key);
	set_text(CURLOPT_KEYPASSWD, settings.client_key_password.reveal());
	static const bool openssl = tls_is_openssl();
	if (openssl)
	{
		set(CURLOPT_SSL_CTX_FUNCTION, &HttpRequest::listen_to_alerts);
		set(CURLOPT_SSL_CTX_DATA, this);
	}
}

CURLcode
HttpRequest::listen_to_alerts(CURL *, void *context, void *self)
{
	auto *ssl = static_cast<SSL_CTX *>(context);
	auto alert = std::make_unique<Alert>(static_cast<HttpRequest *>(self)->alert);
	if (SSL_CTX_set_ex_data(ssl, alert_index(), alert.get()) != 1)
		return CURLE_OUT_OF_MEMORY;
	(void)alert.release();
	SSL_CTX_set_info_callback(ssl, keep_alert);
	return CURLE_OK;
}

void
HttpRequest::set_up_login()
{
	if (!settings.bearer_token.empty())
	{
		set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
		set(CURLOPT_XOAUTH2_BEARER, settings.bearer_token.reveal().c_str());
	}
	else if (!settings.username.empty())
	{
		set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BASIC));
		set(CURLOPT_USERNAME, settings.username.c_str());
		set(CURLOPT_PASSWORD, settings.password.reveal().c_str());
	}
}

void
HttpRequest::set_times(std::chrono::milliseconds left)
{
	left = std::max(left, 1ms);
	set(CURLOPT_TIMEOUT_MS, static_cast<long>(left.count()));
	set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(std::min(left, settings.connect_timeout).count()));
}

void
HttpRequest::prepare(std::unique_ptr<Delivery> next, Clock::time_point deadline)
{
	delivery = std::move(next);
	set_times(std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()));
	set(CURLOPT_URL, delivery->to.topic.c_str());
	// Rather a stream more than a connection more, where TLS tells at once whether there are streams.
	bool tls = ::strncasecmp(delivery->to.topic.c_str(), "https:", 6) == 0;
	set(CURLOPT_PIPEWAIT, settings.http2 && tls ? 1L : 0L);
	set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(delivery->body.size()));
	set(CURLOPT_POSTFIELDS, delivery->body.c_str());
	set(CURLOPT_CUSTOMREQUEST, delivery->to.method.empty() ? nullptr : delivery->to.method.c_str());
	set_headers();
}

void
HttpRequest::prepare_probe(const std::string &endpoint, std::function<void(Answer)> then)
{
	done = std::move(then);
	set_times(settings.timeout);
	set(CURLOPT_URL, endpoint.c_str());
	set(CURLOPT_CONNECT_ONLY, 1L);
	set(CURLOPT_FRESH_CONNECT, 1L);
}

void
HttpRequest::set_headers()
{
	const std::string &id = delivery->message.event_id;
	int64_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());

	add_header("Expect", ""); // no wait for 100 Continue
	add_header("Content-Type", delivery->content_type);
	add_header("Idempotency-Key", id);
	add_header("webhook-id", id);
	add_header("webhook-timestamp", std::to_string(now));
	if (!settings.signer.empty())
		add_header("webhook-signature", settings.signer.sign(id, now, delivery->body));
	for (const auto &[name, value] : settings.headers)
		add_header(name, value);
	for (const auto &[name, value] : delivery->headers)
		// An empty value: libcurl sends the header for a semicolon, and takes it away for a colon.
		add_header(value.empty() ? name + ";" : name, value);
	set(CURLOPT_HTTPHEADER, headers.get());
}

void
HttpRequest::add_header(const std::string &name, const std::string &value)
{
	std::string line = name.ends_with(';') ? name : name + ": " + value;
	curl_slist *list = curl_slist_append(headers.get(), line.c_str());
	if (list == nullptr)
		throw std::bad_alloc();
	(void)headers.release();
	headers.reset(list);
}

size_t
HttpRequest::take_response(const char *data, size_t size, size_t count, void *self)
{
	auto *request = static_cast<HttpRequest *>(self);
	size_t length = size * count;
	size_t kept = std::min(length, most_kept - std::min(most_kept, request->response.size()));
	request->response.append(data, kept);
	return request->counted(length);
}

// Also of each trailer: libcurl keeps them all.
size_t
HttpRequest::take_header(const char *, size_t size, size_t count, void *self)
{
	return static_cast<HttpRequest *>(self)->counted(size * count);
}

// 0 if it is too much.
size_t
HttpRequest::counted(size_t length)
{
	response_size += length;
	cut = response_size > most_read;
	return cut ? 0 : length;
}

curl_socket_t
HttpRequest::open_socket(void *self, curlsocktype, curl_sockaddr *address)
{
	auto *request = static_cast<HttpRequest *>(self);
	const HttpSettings &settings = request->settings;
	// A proxy is the operator's choice, and resolves the names itself.
	if (settings.proxy.empty() && !settings.addresses.allows(&address->addr))
	{
		request->refused++;
		return CURL_SOCKET_BAD;
	}
	request->allowed++;
	int fd = ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
	// Without it a connection with many streams that leads nowhere would go unnoticed.
	unsigned unacknowledged = static_cast<unsigned>(settings.timeout.count());
	if (fd >= 0)
		(void)::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged, sizeof unacknowledged);
	return fd;
}

long
HttpRequest::info(CURLINFO what) const
{
	long value = 0;
	curl_easy_getinfo(easy.get(), what, &value);
	return value;
}

std::string
HttpRequest::response_header(const char *name) const
{
	curl_header *header = nullptr;
	if (curl_easy_header(easy.get(), name, 0, CURLH_HEADER, -1, &header) != CURLHE_OK)
		return {};
	return std::string(header->value).substr(0, longest_reference);
}

Answer
HttpRequest::answer(CURLcode result) const
{
	if (result == CURLE_OK && done)
		return {.accepted = true};
	if (result == CURLE_OK || (result == CURLE_WRITE_ERROR && cut))
		return responded();
	return failed(result);
}

Answer
HttpRequest::failed(CURLcode result) const
{
	std::string text = error.front() != '\0' ? error.data() : curl_easy_strerror(result);
	if (result == CURLE_COULDNT_CONNECT && refused > 0 && allowed == 0)
		return {.code = "ADDRESS_REFUSED", .text = "a private address: " + text};
	if (result == CURLE_OPERATION_TIMEDOUT)
	{
		curl_off_t sent_after = 0;
		curl_easy_getinfo(easy.get(), CURLINFO_PRETRANSFER_TIME_T, &sent_after);
		return {.code = sent_after == 0 ? "CONNECT_TIMEOUT" : "TIMEOUT", .text = text};
	}
	return {.code = curl_error_code(refuses_client(*alert) ? CURLE_SSL_CLIENTCERT : result), .text = text};
}

Answer
HttpRequest::responded() const
{
	long status = info(CURLINFO_RESPONSE_CODE);
	Answer answer{.response_code = std::to_string(status)};
	answer.accepted = status >= 200 && status <= 299;
	if (answer.accepted)
	{
		answer.reference = response_header(settings.reference_header.c_str());
		return answer;
	}
	answer.code = http_status_code(status);
	std::string location = status >= 300 && status <= 399 ? response_header("Location") : "";
	answer.text = location.empty() ? response : "Location: " + location;
	answer.retry_after = retry_after(response_header("Retry-After"));
	return answer;
}

} // namespace relay
