// Standard Webhooks: the vectors of the specification's reference libraries, and secrets that are not allowed.
#include <gtest/gtest.h>

#include <stdexcept>

#include "sinks/signature.h"

namespace {

using namespace relay;

WebhookSigner
signer(const std::vector<std::string> &secrets)
{
	std::vector<Secret> values;
	for (const std::string &secret : secrets)
		values.emplace_back(secret);
	return WebhookSigner(values);
}

// The vector of TestSymmetricWebhookSign in libraries/go/webhook_symmetric_test.go, and of test_sign_function in
// libraries/python/tests/test_webhooks.py, of https://github.com/standard-webhooks/standard-webhooks.
constexpr auto secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
constexpr auto id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
constexpr int64_t timestamp = 1614265330;
constexpr auto body = R"({"test": 2432232314})";
constexpr auto signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

TEST(Signature, VectorOfTheSpecification)
{
	EXPECT_EQ(signer({secret}).sign(id, timestamp, body), signature);
	EXPECT_EQ(signer({std::string(secret).substr(6)}).sign(id, timestamp, body), signature);
}

TEST(Signature, EachSecretSigns)
{
	const std::string other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
	const std::string theirs = signer({other}).sign(id, timestamp, body);

	EXPECT_NE(theirs, signature);
	EXPECT_EQ(signer({other, secret}).sign(id, timestamp, body), theirs + " " + signature);
	EXPECT_TRUE(signer({}).empty());
	EXPECT_EQ(signer({}).sign(id, timestamp, body), "");
}

TEST(Signature, EveryPartIsSigned)
{
	const WebhookSigner one = signer({secret});

	EXPECT_NE(one.sign("msg_other", timestamp, body), signature);
	EXPECT_NE(one.sign(id, timestamp + 1, body), signature);
	EXPECT_NE(one.sign(id, timestamp, std::string(body) + "\n"), signature);
	EXPECT_NE(one.sign(id, timestamp, std::string(body) + '\0'), signature);
}

TEST(Signature, SecretsThatAreNotAllowed)
{
	auto base64_of = [](size_t bytes) { // a multiple of 3
		return "whsec_" + std::string(bytes / 3 * 4, 'A');
	};

	EXPECT_NO_THROW(signer({base64_of(24)}));
	EXPECT_NO_THROW(signer({base64_of(63)}));
	EXPECT_NO_THROW(signer({base64_of(63) + "AA=="})); // 64
	EXPECT_THROW(signer({base64_of(63) + "AAA="}), std::invalid_argument);
	EXPECT_THROW(signer({base64_of(21)}), std::invalid_argument);
	EXPECT_THROW(signer({base64_of(66)}), std::invalid_argument);
	for (const char *wrong : {"whsec_", "", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS",
							  "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa==Sw==", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS-",
							  " whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
							  "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw===="})
		EXPECT_THROW(signer({wrong}), std::invalid_argument) << wrong;
}

TEST(Signature, AnErrorDoesNotRepeatTheSecret)
{
	try
	{
		signer({"whsec_c2hvcnRzZWNyZXQ="});
		FAIL();
	}
	catch (const std::invalid_argument &error)
	{
		EXPECT_EQ(std::string(error.what()).find("c2hvcnRz"), std::string::npos);
	}
}

} // namespace
