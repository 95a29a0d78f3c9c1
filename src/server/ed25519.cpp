// See ed25519.h.
//
// Shape: OpenSSL reads the key from memory that is cleansed, so that no buffer of the C library keeps a copy. Between
// the two nothing of the server is called that could raise an error.

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <unistd.h>

#include "server/ed25519.h"

#include "server/key_file.h"
#include "server/values.h"

namespace outbox {

namespace {

constexpr int largest_key_file = 16 * 1024;

void
check_file(const char *path, int file)
{
	struct stat status;
	bool is_regular;
	bool is_safe;

	if (file < 0 || fstat(file, &status) != 0)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not open the key file \"%s\": %m", path)));
	is_regular = S_ISREG(status.st_mode) && status.st_size <= largest_key_file;
	is_safe = is_private(status);
	if (is_regular && is_safe)
		return;
	close(file);
	if (!is_regular)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("\"%s\" is no file of a key", path)));
	ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					errmsg("the key file \"%s\" may be read or written by others", path),
					errhint("It must belong to the server's user with permissions 0600 or less, or to root with 0640 "
							"or less.")));
}

int
no_passphrase(char *, int, int, void *)
{
	return -1;
}

// nullptr: it holds no private key of this kind.
EVP_PKEY *
read_pem(int file)
{
	char pem[largest_key_file];
	ssize_t size = read(file, pem, sizeof(pem));
	BIO *bio = size > 0 ? BIO_new_mem_buf(pem, static_cast<int>(size)) : nullptr;
	EVP_PKEY *key = bio != nullptr ? PEM_read_bio_PrivateKey(bio, nullptr, no_passphrase, nullptr) : nullptr;

	BIO_free(bio);
	OPENSSL_cleanse(pem, sizeof(pem));
	if (key != nullptr && EVP_PKEY_id(key) == EVP_PKEY_ED25519)
		return key;
	EVP_PKEY_free(key);
	return nullptr;
}

EVP_PKEY *
open_key(const char *path)
{
	int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	EVP_PKEY *key;

	check_file(path, file);
	key = read_pem(file);
	close(file);
	if (key == nullptr)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("\"%s\" holds no Ed25519 private key in PEM, or one with a passphrase", path),
						errhint("Make one with: openssl genpkey -algorithm ed25519")));
	return key;
}

bool
take_public(EVP_PKEY *key, PublicKey *taken)
{
	size_t size = sizeof(taken->bytes);
	unsigned char digest[EVP_MAX_MD_SIZE];

	if (EVP_PKEY_get_raw_public_key(key, taken->bytes, &size) != 1 || size != sizeof(taken->bytes) ||
		EVP_Digest(taken->bytes, size, digest, nullptr, EVP_sha256(), nullptr) != 1)
		return false;
	to_hex(digest, sizeof(taken->key_id) / 2, taken->key_id);
	return true;
}

bool
sign(EVP_PKEY *key, const unsigned char *data, int size, Signature *signature)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	size_t length = sizeof(signature->bytes);
	bool good = context != nullptr && EVP_DigestSignInit(context, nullptr, nullptr, nullptr, key) == 1 &&
				EVP_DigestSign(context, signature->bytes, &length, data, static_cast<size_t>(size)) == 1 &&
				length == sizeof(signature->bytes);

	EVP_MD_CTX_free(context);
	return good;
}

[[noreturn]] void
openssl_failed()
{
	ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("OpenSSL could not sign with the key of the seals")));
}

} // namespace

Signature
signed_by(const char *file, const unsigned char *data, int size)
{
	EVP_PKEY *key = open_key(file);
	Signature signature = {};
	PublicKey taken = {};
	bool good = take_public(key, &taken) && sign(key, data, size, &signature);

	// It cleanses the key.
	EVP_PKEY_free(key);
	if (!good)
		openssl_failed();
	strlcpy(signature.key_id, taken.key_id, sizeof(signature.key_id));
	return signature;
}

PublicKey
public_key_in(const char *file)
{
	EVP_PKEY *key = open_key(file);
	PublicKey taken = {};
	bool good = take_public(key, &taken);

	EVP_PKEY_free(key);
	if (!good)
		openssl_failed();
	return taken;
}

bool
is_signature_of(const PublicKey *key, const Signature *signature, const unsigned char *data, int size)
{
	EVP_PKEY *verifier = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, key->bytes, sizeof(key->bytes));
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	bool good =
		verifier != nullptr && context != nullptr &&
		EVP_DigestVerifyInit(context, nullptr, nullptr, nullptr, verifier) == 1 &&
		EVP_DigestVerify(context, signature->bytes, sizeof(signature->bytes), data, static_cast<size_t>(size)) == 1;

	EVP_MD_CTX_free(context);
	EVP_PKEY_free(verifier);
	return good;
}

} // namespace outbox
