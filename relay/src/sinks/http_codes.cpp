// The table of the sink http.
//
// Shape: the errors of libcurl stand in one list, from which the table and the switch are made. The table does
// not depend on the version of libcurl. The switch has no default, so that the compiler names an error of the installed
// curl.h that the list lacks (-Wswitch; an error with WERROR=1).
#include "sinks/http_codes.h"

#include <algorithm>
#include <vector>

namespace relay {

namespace {

using enum Fault;

constexpr Code status_table[] = {
	{"HTTP_1XX", moment, "no response to this request"},
	{"HTTP_3XX", message, "redirects are not followed; treated as 300"},
	{"HTTP_300", message, "redirects are not followed: the configured URL is not the endpoint"},
	{"HTTP_301", message, "moved for good: the URL has to be changed"},
	{"HTTP_302", moment, "moved for now: the same URL is right later"},
	{"HTTP_303", moment, "moved for now, to a page to read"},
	{"HTTP_304", message, "an answer to a condition that the request does not have"},
	{"HTTP_305", message, "the endpoint wants a proxy"},
	{"HTTP_307", moment, "moved for now: the same URL is right later"},
	{"HTTP_308", message, "moved for good: the URL has to be changed"},
	{"HTTP_4XX", message, "treated as 400"},
	{"HTTP_400", message, "the endpoint does not understand the request, and will not understand it again"},
	{"HTTP_401", sink, "the login was refused: every request meets this"},
	{"HTTP_402", moment, "a quota or a bill, which has to be settled"},
	{"HTTP_403", moment, "the message or the permission: it is not lost at once, and holds up no other"},
	{"HTTP_404", message, "nothing is at this URL"},
	{"HTTP_405", message, "the URL does not take this method"},
	{"HTTP_406", message, "the endpoint has no response that this request accepts"},
	{"HTTP_407", sink, "the login to the proxy was refused"},
	{"HTTP_408", moment, "the endpoint waited too long for the request"},
	{"HTTP_409", moment, "another request, often an earlier try of this one, is still being worked on"},
	{"HTTP_410", message, "what was at this URL is gone for good"},
	{"HTTP_411", message, "the endpoint misses a length, which every request has"},
	{"HTTP_412", message, "a condition in the headers does not hold"},
	{"HTTP_413", message, "the body is too large"},
	{"HTTP_414", message, "the URL is too long"},
	{"HTTP_415", message, "the endpoint does not take this content type"},
	{"HTTP_416", message, "the endpoint refuses a range"},
	{"HTTP_417", message, "the endpoint refuses an expectation"},
	{"HTTP_418", message, "the endpoint refuses on principle"},
	{"HTTP_421", moment, "the connection led to the wrong server; another one may not"},
	{"HTTP_422", message, "the endpoint understands the message and does not accept it"},
	{"HTTP_423", moment, "locked for now"},
	{"HTTP_424", moment, "another request failed"},
	{"HTTP_425", moment, "the endpoint does not take early data"},
	{"HTTP_426", sink, "the endpoint wants another protocol from every request"},
	{"HTTP_428", message, "the endpoint wants a condition in the headers"},
	{"HTTP_429", moment, "too many requests; Retry-After is honoured"},
	{"HTTP_431", message, "the headers are too large"},
	{"HTTP_451", message, "refused for legal reasons"},
	{"HTTP_5XX", moment, "treated as 500"},
	{"HTTP_500", moment, "the endpoint failed"},
	{"HTTP_501", moment, "the endpoint does not implement this; a new version of it may"},
	{"HTTP_502", moment, "a gateway got no proper response"},
	{"HTTP_503", moment, "overloaded or in maintenance; Retry-After is honoured"},
	{"HTTP_504", moment, "a gateway got no response in time"},
	{"HTTP_505", moment, "the endpoint does not take this version of HTTP"},
	{"HTTP_506", moment, "the endpoint is misconfigured"},
	{"HTTP_507", moment, "the endpoint has no room"},
	{"HTTP_508", moment, "the endpoint runs in a circle"},
	{"HTTP_510", moment, "the endpoint misses an extension"},
	{"HTTP_511", moment, "the network wants a login"},
	{"HTTP_UNKNOWN", moment, "a status below 100 or above 599"},
	{"ADDRESS_REFUSED", message, "the name resolves only to private addresses, and these are not allowed"},
	{"CONNECT_TIMEOUT", sink, "no connection within connect_timeout: the host does not answer"},
};

// What another protocol than HTTP gives, and what is not used any more.
#define ELSEWHERE "never with HTTP"
#define UNUSED "not used by libcurl any more"
#define CONFIGURED "a wrong setting of this sink, which every request meets"

#define CURL_ERRORS(X) \
	X(UNSUPPORTED_PROTOCOL, moment, "what came is not HTTP; the scheme was judged before") \
	X(FAILED_INIT, moment, "libcurl could not begin") \
	X(URL_MALFORMAT, message, "not a URL") \
	X(NOT_BUILT_IN, sink, "libcurl was built without what a setting of this sink needs") \
	X(COULDNT_RESOLVE_PROXY, sink, "the name of the proxy is not found") \
	X(COULDNT_RESOLVE_HOST, sink, "the name is not found") \
	X(COULDNT_CONNECT, sink, "the connection is refused, or there is no way to the host") \
	X(WEIRD_SERVER_REPLY, moment, "what came is not HTTP") \
	X(REMOTE_ACCESS_DENIED, moment, ELSEWHERE) \
	X(FTP_ACCEPT_FAILED, moment, ELSEWHERE) \
	X(FTP_WEIRD_PASS_REPLY, moment, ELSEWHERE) \
	X(FTP_ACCEPT_TIMEOUT, moment, ELSEWHERE) \
	X(FTP_WEIRD_PASV_REPLY, moment, ELSEWHERE) \
	X(FTP_WEIRD_227_FORMAT, moment, ELSEWHERE) \
	X(FTP_CANT_GET_HOST, moment, ELSEWHERE) \
	X(HTTP2, moment, "the connection ended by an error of HTTP/2") \
	X(FTP_COULDNT_SET_TYPE, moment, ELSEWHERE) \
	X(PARTIAL_FILE, moment, "the response ended before its length") \
	X(FTP_COULDNT_RETR_FILE, moment, ELSEWHERE) \
	X(OBSOLETE20, moment, UNUSED) \
	X(QUOTE_ERROR, moment, ELSEWHERE) \
	X(HTTP_RETURNED_ERROR, moment, "not asked for: a status is a code of its own") \
	X(WRITE_ERROR, moment, "the response could not be kept") \
	X(OBSOLETE24, moment, UNUSED) \
	X(UPLOAD_FAILED, moment, "the endpoint did not take the body") \
	X(READ_ERROR, moment, "the body could not be read") \
	X(OUT_OF_MEMORY, moment, "the relay is out of memory") \
	X(OPERATION_TIMEDOUT, moment, "told apart as TIMEOUT and CONNECT_TIMEOUT") \
	X(OBSOLETE29, moment, UNUSED) \
	X(FTP_PORT_FAILED, moment, ELSEWHERE) \
	X(FTP_COULDNT_USE_REST, moment, ELSEWHERE) \
	X(OBSOLETE32, moment, UNUSED) \
	X(RANGE_ERROR, moment, "not asked for: there are no ranges") \
	X(HTTP_POST_ERROR, moment, "libcurl could not make the request") \
	X(SSL_CONNECT_ERROR, sink, "TLS could not be agreed on") \
	X(BAD_DOWNLOAD_RESUME, moment, ELSEWHERE) \
	X(FILE_COULDNT_READ_FILE, moment, ELSEWHERE) \
	X(LDAP_CANNOT_BIND, moment, ELSEWHERE) \
	X(LDAP_SEARCH_FAILED, moment, ELSEWHERE) \
	X(OBSOLETE40, moment, UNUSED) \
	X(FUNCTION_NOT_FOUND, sink, "libcurl lacks a function") \
	X(ABORTED_BY_CALLBACK, moment, "the relay gave the request up") \
	X(BAD_FUNCTION_ARGUMENT, moment, "libcurl was called wrongly") \
	X(OBSOLETE44, moment, UNUSED) \
	X(INTERFACE_FAILED, sink, "the network interface cannot be used") \
	X(OBSOLETE46, moment, UNUSED) \
	X(TOO_MANY_REDIRECTS, message, "not asked for: redirects are not followed") \
	X(UNKNOWN_OPTION, sink, CONFIGURED) \
	X(SETOPT_OPTION_SYNTAX, sink, CONFIGURED) \
	X(OBSOLETE50, moment, UNUSED) \
	X(OBSOLETE51, moment, UNUSED) \
	X(GOT_NOTHING, moment, "the connection was closed without a response") \
	X(SSL_ENGINE_NOTFOUND, sink, CONFIGURED) \
	X(SSL_ENGINE_SETFAILED, sink, CONFIGURED) \
	X(SEND_ERROR, moment, "the connection broke while the request was sent") \
	X(RECV_ERROR, moment, "the connection broke before the end of the response") \
	X(OBSOLETE57, moment, UNUSED) \
	X(SSL_CERTPROBLEM, sink, "the client certificate cannot be used") \
	X(SSL_CIPHER, sink, "no cipher could be agreed on") \
	X(PEER_FAILED_VERIFICATION, sink, "the certificate of the endpoint is not trusted, or is for another name") \
	X(BAD_CONTENT_ENCODING, moment, "the encoding of the response is wrong") \
	X(OBSOLETE62, moment, UNUSED) \
	X(FILESIZE_EXCEEDED, moment, "not asked for: what is too long is cut") \
	X(USE_SSL_FAILED, sink, "TLS could not be agreed on") \
	X(SEND_FAIL_REWIND, moment, "the connection broke, and the body could not be sent again") \
	X(SSL_ENGINE_INITFAILED, sink, CONFIGURED) \
	X(LOGIN_DENIED, sink, "the login was refused") \
	X(TFTP_NOTFOUND, moment, ELSEWHERE) \
	X(TFTP_PERM, moment, ELSEWHERE) \
	X(REMOTE_DISK_FULL, moment, ELSEWHERE) \
	X(TFTP_ILLEGAL, moment, ELSEWHERE) \
	X(TFTP_UNKNOWNID, moment, ELSEWHERE) \
	X(REMOTE_FILE_EXISTS, moment, ELSEWHERE) \
	X(TFTP_NOSUCHUSER, moment, ELSEWHERE) \
	X(OBSOLETE75, moment, UNUSED) \
	X(OBSOLETE76, moment, UNUSED) \
	X(SSL_CACERT_BADFILE, sink, "the file with the trusted certificates cannot be read") \
	X(REMOTE_FILE_NOT_FOUND, moment, ELSEWHERE) \
	X(SSH, moment, ELSEWHERE) \
	X(SSL_SHUTDOWN_FAILED, moment, "TLS did not end properly") \
	X(AGAIN, moment, "the socket was not ready") \
	X(SSL_CRL_BADFILE, sink, CONFIGURED) \
	X(SSL_ISSUER_ERROR, sink, "the certificate of the endpoint has another issuer") \
	X(FTP_PRET_FAILED, moment, ELSEWHERE) \
	X(RTSP_CSEQ_ERROR, moment, ELSEWHERE) \
	X(RTSP_SESSION_ERROR, moment, ELSEWHERE) \
	X(FTP_BAD_FILE_LIST, moment, ELSEWHERE) \
	X(CHUNK_FAILED, moment, ELSEWHERE) \
	X(NO_CONNECTION_AVAILABLE, moment, "all connections were busy") \
	X(SSL_PINNEDPUBKEYNOTMATCH, sink, "the key of the endpoint is another one") \
	X(SSL_INVALIDCERTSTATUS, sink, "the certificate of the endpoint is revoked or has no status") \
	X(HTTP2_STREAM, moment, "the endpoint ended the stream of HTTP/2") \
	X(RECURSIVE_API_CALL, moment, "libcurl was called wrongly") \
	X(AUTH_ERROR, sink, "the login failed") \
	X(HTTP3, moment, "not asked for: there is no HTTP/3") \
	X(QUIC_CONNECT_ERROR, sink, "not asked for: there is no HTTP/3") \
	X(PROXY, sink, "the proxy refused the connection") \
	X(SSL_CLIENTCERT, sink, "the endpoint wants a client certificate, or does not take the one that it got") \
	X(UNRECOVERABLE_POLL, moment, "the system could not wait for the sockets")

#define CURL_ERRORS_8_6(X) X(TOO_LARGE, message, "a header or the URL is too large for libcurl")
#define CURL_ERRORS_8_8(X) X(ECH_REQUIRED, sink, "the endpoint does not offer encrypted client hello")

constexpr Code curl_table[] = {
#define ROW(name, fault, why) {"CURL_" #name, fault, why},
	CURL_ERRORS(ROW) CURL_ERRORS_8_6(ROW) CURL_ERRORS_8_8(ROW)
#undef ROW
};

} // namespace

std::span<const Code>
http_codes()
{
	static const std::vector<Code> codes = [] {
		std::vector<Code> all(std::begin(status_table), std::end(status_table));
		all.insert(all.end(), std::begin(curl_table), std::end(curl_table));
		return all;
	}();
	return codes;
}

std::string
http_status_code(long status)
{
	if (status < 100 || status > 599)
		return "HTTP_UNKNOWN";
	std::string code = "HTTP_" + std::to_string(status);
	bool registered = std::ranges::any_of(status_table, [&](const Code &known) { return known.code == code; });
	return registered ? code : "HTTP_" + std::to_string(status / 100) + "XX";
}

std::string
curl_error_code(CURLcode error)
{
	switch (error)
	{
#define CASE(name, fault, why) \
	case CURLE_##name: \
		return "CURL_" #name;
		CURL_ERRORS(CASE)
#if LIBCURL_VERSION_NUM >= 0x080600
		CURL_ERRORS_8_6(CASE)
#endif
#if LIBCURL_VERSION_NUM >= 0x080800
		CURL_ERRORS_8_8(CASE)
#endif
#undef CASE
#if LIBCURL_VERSION_NUM >= 0x080e00 && LIBCURL_VERSION_NUM < 0x080f00
		case CURLE_RESERVED115:
		case CURLE_RESERVED116:
		case CURLE_RESERVED117:
		case CURLE_RESERVED118:
		case CURLE_RESERVED119:
		case CURLE_RESERVED120:
		case CURLE_RESERVED121:
		case CURLE_RESERVED122:
		case CURLE_RESERVED123:
		case CURLE_RESERVED124:
		case CURLE_RESERVED125:
		case CURLE_RESERVED126:
#endif
		case CURLE_OK:
		case CURL_LAST:
			break;
	}
	return "CURL_" + std::to_string(static_cast<int>(error));
}

} // namespace relay
