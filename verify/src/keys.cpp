// See keys.h.
#include "keys.h"

#include <openssl/evp.h>
#include <openssl/pem.h>

#include "findings.h"
#include "hashing.h"
#include "texts.h"

namespace outbox::verify {

namespace {

std::string
key_id_of(const EVP_PKEY *key)
{
	unsigned char raw[32];
	size_t size = sizeof(raw);

	if (EVP_PKEY_get_raw_public_key(key, raw, &size) != 1 || size != sizeof(raw))
		throw Unreadable("the key has no 32 bytes");
	return to_hex(hash_bytes({reinterpret_cast<const char *>(raw), size})).substr(0, 16);
}

// An encrypted file has no passphrase here.
int
no_passphrase(char *, int, int, void *)
{
	return 0;
}

} // namespace

void
Keys::add(std::string_view pem)
{
	const std::unique_ptr<BIO, decltype(&BIO_free)> in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
													   BIO_free);
	EVP_PKEY *key = in ? PEM_read_bio_PUBKEY(in.get(), nullptr, no_passphrase, nullptr) : nullptr;

	if (key == nullptr)
		throw Unreadable("the key is not a public key in PEM");
	const std::shared_ptr<EVP_PKEY> owned(key, EVP_PKEY_free);
	if (EVP_PKEY_get_base_id(key) != EVP_PKEY_ED25519)
		throw Unreadable("the key is not an Ed25519 key");
	keys_[key_id_of(key)] = owned;
}

bool
Keys::signed_by(const std::string &key_id, const core::Hash &hash, std::string_view signature) const
{
	const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);

	return context && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, keys_.at(key_id).get()) == 1 &&
		   EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char *>(signature.data()), signature.size(),
							hash.bytes, sizeof(hash.bytes)) == 1;
}

} // namespace outbox::verify
