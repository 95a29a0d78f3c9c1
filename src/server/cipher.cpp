// See cipher.h.
//
// Shape: contexts and algorithms are kept for the session, as in digest.cpp. A context is reset after each use, which
// wipes the key in it; nothing between raises an ERROR of the server.

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "server/cipher.h"

namespace outbox {

namespace {

const EVP_CIPHER *
algorithm_of_cipher()
{
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
	static EVP_CIPHER *cipher;

	if (cipher == nullptr)
		cipher = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
	return cipher;
#else
	return EVP_aes_256_gcm();
#endif
}

EVP_CIPHER_CTX *
cipher_context()
{
	static EVP_CIPHER_CTX *context;

	if (context == nullptr)
		context = EVP_CIPHER_CTX_new();
	if (context == nullptr || algorithm_of_cipher() == nullptr)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not make AES-256-GCM ready")));
	return context;
}

bool
encrypts(EVP_CIPHER_CTX *context, const unsigned char *key, Bytes bound_to, Bytes plain, unsigned char *sealed)
{
	unsigned char *text = sealed + nonce_bytes;
	int n = 0;

	return EVP_EncryptInit_ex(context, algorithm_of_cipher(), nullptr, key, sealed) == 1 &&
		   EVP_EncryptUpdate(context, nullptr, &n, bound_to.data, static_cast<int>(bound_to.size)) == 1 &&
		   EVP_EncryptUpdate(context, text, &n, plain.data, static_cast<int>(plain.size)) == 1 &&
		   EVP_EncryptFinal_ex(context, text + plain.size, &n) == 1 &&
		   EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, tag_bytes, text + plain.size) == 1;
}

bool
decrypts(EVP_CIPHER_CTX *context, const unsigned char *key, Bytes bound_to, Bytes sealed, unsigned char *plain)
{
	size_t size = sealed.size - sealed_extra;
	const unsigned char *text = sealed.data + nonce_bytes;
	unsigned char tag[tag_bytes];
	int n = 0;

	memcpy(tag, text + size, tag_bytes);
	return EVP_DecryptInit_ex(context, algorithm_of_cipher(), nullptr, key, sealed.data) == 1 &&
		   EVP_DecryptUpdate(context, nullptr, &n, bound_to.data, static_cast<int>(bound_to.size)) == 1 &&
		   EVP_DecryptUpdate(context, plain, &n, text, static_cast<int>(size)) == 1 &&
		   EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, tag_bytes, tag) == 1 &&
		   EVP_DecryptFinal_ex(context, plain + size, &n) == 1;
}

void
draw(unsigned char *bytes, size_t size)
{
	if (!pg_strong_random(bytes, size))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random bytes")));
}

} // namespace

void
seal(const unsigned char *key, Bytes bound_to, Bytes plain, unsigned char *sealed)
{
	EVP_CIPHER_CTX *context = cipher_context();
	bool done;

	draw(sealed, nonce_bytes);
	done = encrypts(context, key, bound_to, plain, sealed);
	EVP_CIPHER_CTX_reset(context);
	if (!done)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not encrypt")));
}

bool
unseal(const unsigned char *key, Bytes bound_to, Bytes sealed, unsigned char *plain)
{
	EVP_CIPHER_CTX *context = cipher_context();
	bool done = sealed.size >= sealed_extra && decrypts(context, key, bound_to, sealed, plain);

	EVP_CIPHER_CTX_reset(context);
	return done;
}

void
keyed_hash(const unsigned char *key, Bytes data, unsigned char *mac)
{
	unsigned int size = 0;

	if (HMAC(EVP_sha256(), key, key_bytes, data.data, data.size, mac, &size) == nullptr || size != mac_bytes)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not compute a keyed hash")));
}

void
draw_key(unsigned char *key)
{
	draw(key, key_bytes);
}

char *
to_base64(Bytes bytes, int *size)
{
	char *chars = static_cast<char *>(palloc((bytes.size + 2) / 3 * 4 + 1));

	*size = EVP_EncodeBlock(reinterpret_cast<unsigned char *>(chars), bytes.data, static_cast<int>(bytes.size));
	return chars;
}

int
from_base64(const char *chars, int size, unsigned char *bytes)
{
	int padding = 0;
	int n;

	while (padding < Min(size, 2) && chars[size - 1 - padding] == '=')
		padding++;
	if (size % 4 != 0)
		return -1;
	n = EVP_DecodeBlock(bytes, reinterpret_cast<const unsigned char *>(chars), size);
	return n == size / 4 * 3 ? n - padding : -1;
}

void
wipe(void *memory, size_t size)
{
	OPENSSL_cleanse(memory, size);
}

} // namespace outbox
