// See sha256.h.
//
// Shape: the algorithm is looked up once for the process, because that takes more than the digest of a short input.
#include "sha256.h"

#include <openssl/evp.h>

namespace outbox::core {

namespace {

const EVP_MD *
algorithm() noexcept
{
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
	static EVP_MD *const sha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);

	return sha256;
#else
	return EVP_sha256();
#endif
}

} // namespace

Sha256 &
Sha256::start() noexcept
{
	if (context_ == nullptr)
		context_ = EVP_MD_CTX_new();
	good_ = context_ != nullptr && algorithm() != nullptr && EVP_DigestInit_ex(context_, algorithm(), nullptr) == 1;
	return *this;
}

Sha256 &
Sha256::add(const void *data, size_t size) noexcept
{
	if (good_ && size > 0)
		good_ = EVP_DigestUpdate(context_, data, size) == 1;
	return *this;
}

bool
Sha256::stop(Hash *hash) noexcept
{
	const bool good = good_ && EVP_DigestFinal_ex(context_, hash->bytes, nullptr) == 1;

	good_ = false;
	return good;
}

} // namespace outbox::core
