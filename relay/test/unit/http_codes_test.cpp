// The table of the sink http: complete, without doubles, and with the classes that the design asks for.
#include <gtest/gtest.h>

#include <cctype>
#include <set>

#include "core/taxonomy.h"
#include "sinks/http_codes.h"

namespace {

using namespace relay;

Fault
fault_of_status(long status)
{
	return Taxonomy(http_codes()).of(http_status_code(status));
}

TEST(HttpCodes, EachStandsOnceWithItsWhy)
{
	std::set<std::string_view> seen;
	for (const Code &code : http_codes())
	{
		EXPECT_TRUE(seen.insert(code.code).second) << code.code;
		EXPECT_FALSE(code.why.empty()) << code.code;
	}
}

// By the header that this was built with: CURL_LAST follows the last error.
TEST(HttpCodes, EveryErrorOfTheInstalledCurl)
{
	Taxonomy taxonomy(http_codes());
	for (int error = 1; error < CURL_LAST; error++)
	{
		std::string code = curl_error_code(static_cast<CURLcode>(error));
		EXPECT_TRUE(taxonomy.known(code)) << error << " " << code;
	}
	EXPECT_FALSE(taxonomy.known(curl_error_code(CURL_LAST)));
}

TEST(HttpCodes, EveryStatusIsInTheTable)
{
	Taxonomy taxonomy(http_codes());
	for (long status = -1; status < 1100; status++)
	{
		if (status < 200 || status > 299)
		{
			EXPECT_TRUE(taxonomy.known(http_status_code(status))) << status;
		}
	}
	EXPECT_EQ(http_status_code(404), "HTTP_404");
	EXPECT_EQ(http_status_code(499), "HTTP_4XX");
	EXPECT_EQ(http_status_code(520), "HTTP_5XX");
	EXPECT_EQ(http_status_code(399), "HTTP_3XX");
	EXPECT_EQ(http_status_code(101), "HTTP_1XX");
	EXPECT_EQ(http_status_code(0), "HTTP_UNKNOWN");
	EXPECT_EQ(http_status_code(600), "HTTP_UNKNOWN");
}

TEST(HttpCodes, ClassesOfStatuses)
{
	for (long status : {400, 404, 405, 406, 410, 411, 412, 413, 414, 415, 416, 417, 418, 422, 428, 431, 451, 499, 444})
		EXPECT_EQ(fault_of_status(status), Fault::message) << status;
	for (long status : {402, 403, 408, 409, 421, 423, 424, 425, 429})
		EXPECT_EQ(fault_of_status(status), Fault::moment) << status;
	for (long status : {401, 407, 426})
		EXPECT_EQ(fault_of_status(status), Fault::sink) << status;
	for (long status = 500; status <= 599; status++)
		EXPECT_EQ(fault_of_status(status), Fault::moment) << status;
	for (long status : {300, 301, 304, 305, 306, 308, 399})
		EXPECT_EQ(fault_of_status(status), Fault::message) << status;
	for (long status : {302, 303, 307, 100, 101, 0, 999})
		EXPECT_EQ(fault_of_status(status), Fault::moment) << status;
}

TEST(HttpCodes, ClassesOfErrors)
{
	Taxonomy taxonomy(http_codes());
	for (CURLcode error : {CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY, CURLE_COULDNT_CONNECT,
						   CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CERTPROBLEM,
						   CURLE_SSL_CACERT_BADFILE, CURLE_SSL_CLIENTCERT, CURLE_LOGIN_DENIED, CURLE_PROXY})
		EXPECT_EQ(taxonomy.of(curl_error_code(error)), Fault::sink) << error;
	for (CURLcode error :
		 {CURLE_GOT_NOTHING, CURLE_PARTIAL_FILE, CURLE_HTTP2, CURLE_HTTP2_STREAM, CURLE_SEND_ERROR, CURLE_RECV_ERROR,
		  CURLE_WEIRD_SERVER_REPLY, CURLE_OPERATION_TIMEDOUT, CURLE_UNSUPPORTED_PROTOCOL})
		EXPECT_EQ(taxonomy.of(curl_error_code(error)), Fault::moment) << error;
	EXPECT_EQ(taxonomy.of("ADDRESS_REFUSED"), Fault::message);
	EXPECT_EQ(taxonomy.of("CONNECT_TIMEOUT"), Fault::sink);
}

} // namespace
