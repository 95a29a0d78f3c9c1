// libcurl's multi interface alone: POST on 64 connections, which stay open.
//
//	http URL COUNT
#include "bare.h"

#include <curl/curl.h>

namespace {

constexpr int connections = 64;

size_t
swallow(char *, size_t size, size_t count, void *)
{
	return size * count;
}

CURL *
request(const char *url, curl_slist *list)
{
	CURL *easy = curl_easy_init();

	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, list);
	curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body.data());
	curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, swallow);
	return easy;
}

void
check(CURL *easy, CURLcode result)
{
	long status = 0;

	if (result != CURLE_OK)
		die("a request", curl_easy_strerror(result));
	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	if (status / 100 != 2)
		die("the status", std::to_string(status).c_str());
}

} // namespace

int
main(int, char **arguments)
{
	const long count = atol(arguments[2]);
	CURLM *multi = curl_multi_init();
	curl_slist *list = curl_slist_append(nullptr, "Content-Type: application/json");
	long sent = 0, done = 0;

	list = curl_slist_append(list, "Expect:");
	for (const char *name : {"Idempotency-Key: ", "webhook-id: "})
		list = curl_slist_append(list, (std::string(name) + event_id).c_str());
	list = curl_slist_append(list, "webhook-timestamp: 1767323045");
	for (const auto &[name, value] : headers)
		list = curl_slist_append(list, (std::string(name) + ": " + value).c_str());
	curl_multi_setopt(multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, static_cast<long>(connections));
	const Measured measured(count);
	for (; sent < connections && sent < count; sent++)
		curl_multi_add_handle(multi, request(arguments[1], list));
	while (done < count)
	{
		int running, left;

		curl_multi_perform(multi, &running);
		while (const CURLMsg *message = curl_multi_info_read(multi, &left))
		{
			CURL *easy = message->easy_handle;

			check(easy, message->data.result);
			done++;
			curl_multi_remove_handle(multi, easy);
			if (sent < count)
			{
				sent++;
				curl_multi_add_handle(multi, easy);
			}
			else
				curl_easy_cleanup(easy);
		}
		curl_multi_poll(multi, nullptr, 0, 100, nullptr);
	}
}
