// One request of the sink http, on an easy handle of its own.
//
// Guarantees: the response, with its headers, is read up to 64 kB and kept up to 2 kB;
// what comes after is not read, and the connection is closed. A socket is only made for an address that the policy
// allows. No setting comes from the environment or from ~/.netrc.
//
// Shape: a handle is not used again. It costs 2 microseconds, and libcurl before 8.1.2 keeps a pointer into the headers
// of the response before, which a server reaches by a folded line (https://github.com/curl/curl/issues/11101).
// Connections belong to the multi handle and are used again.
#pragma once

#include "core/answer.h"
#include "core/delivery.h"
#include "sinks/address.h"
#include "sinks/signature.h"

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <curl/curl.h>

namespace relay {

struct HttpSettings {
	std::chrono::milliseconds timeout{}, connect_timeout{};
	AddressPolicy addresses;
	WebhookSigner signer{{}};
	Headers headers; // of every request
	std::string reference_header;
	bool http2 = true, verify = true;
	std::string ca_file, client_certificate, client_key; // empty: none, or the system's
	Secret client_key_password;
	std::string username;
	Secret password, bearer_token, proxy;
};

class HttpRequest {
public:
	using Clock = std::chrono::steady_clock;

	explicit HttpRequest(const HttpSettings &settings); // which outlive it
	HttpRequest(const HttpRequest &) = delete;
	HttpRequest &operator=(const HttpRequest &) = delete;

	// Makes the handle ready for a multi handle. `deadline` is in the future.
	void prepare(std::unique_ptr<Delivery> delivery, Clock::time_point deadline);
	// Connects to scheme://host:port and sends nothing.
	void prepare_probe(const std::string &endpoint, std::function<void(Answer)> done);

	[[nodiscard]] CURL *handle() const { return easy.get(); }
	[[nodiscard]] uint64_t ticket() const { return delivery->ticket; }
	[[nodiscard]] const std::function<void(Answer)> &probe_done() const { return done; } // empty: not a probe

	// What the end of the transfer means.
	[[nodiscard]] Answer answer(CURLcode result) const;

private:
	static size_t take_response(const char *data, size_t size, size_t count, void *self);
	static size_t take_header(const char *data, size_t size, size_t count, void *self);
	static CURLcode listen_to_alerts(CURL *handle, void *context, void *self);
	static curl_socket_t open_socket(void *self, curlsocktype purpose, curl_sockaddr *address);

	template <class Value>
	void set(CURLoption option, Value value)
	{
		curl_easy_setopt(easy.get(), option, value);
	}
	size_t counted(size_t length);
	void set_up_tls();
	void set_up_login();
	void set_times(std::chrono::milliseconds left);
	void set_headers();
	void add_header(const std::string &name, const std::string &value);
	[[nodiscard]] long info(CURLINFO what) const;
	[[nodiscard]] std::string response_header(const char *name) const;
	[[nodiscard]] Answer failed(CURLcode result) const;
	[[nodiscard]] Answer responded() const;

	struct FreeEasy {
		void operator()(CURL *handle) const { curl_easy_cleanup(handle); }
	};
	struct FreeList {
		void operator()(curl_slist *list) const { curl_slist_free_all(list); }
	};
	const HttpSettings &settings;
	std::unique_ptr<CURL, FreeEasy> easy;
	std::unique_ptr<curl_slist, FreeList> headers;
	std::unique_ptr<Delivery> delivery;
	std::function<void(Answer)> done;
	std::array<char, CURL_ERROR_SIZE> error{};
	std::string response;
	size_t response_size = 0;
	bool cut = false;
	int allowed = 0, refused = 0; // addresses
	// The fatal one of TLS that the endpoint sent on the connection which was made for this request, or 0.
	std::shared_ptr<int> alert = std::make_shared<int>(0);
};

} // namespace relay
