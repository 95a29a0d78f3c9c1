// The codes of the sink http: the status of a response, and the errors of libcurl.
#pragma once

#include "core/taxonomy.h"

#include <span>
#include <string>

#include <curl/curl.h>

namespace relay {

// In the order of docs/relay.md.
std::span<const Code> http_codes();

// HTTP_404. A status that is not registered has the code of its class, HTTP_4XX: RFC 9110, section 15, wants it to be
// treated so. Not for 2xx.
std::string http_status_code(long status);

// CURL_COULDNT_CONNECT. An error that only a newer libcurl has is CURL_ and its number, which no table knows.
std::string curl_error_code(CURLcode error);

} // namespace relay
