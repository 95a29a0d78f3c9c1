// See ed25519.h.
//
// Shape: OpenSSL reads the key from memory that is cleansed, so that no buffer of the C library keeps a copy. Between
// the two nothing of the server is called that could raise an error.

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <unistd.h>

#include "server/ed25519.h"

#include "server/key_file.h"
#include "server/values.h"

namespace outbox {

namespace {

constexpr int largest_key_file = 16 * 1024;

// With the errors that the functions of seals are documented to have.
[[noreturn]] void
cannot_open(const char *path)
{
	int code = errno == EACCES || errno == EPERM ? ERRCODE_INSUFFICIENT_PRIVILEGE
			   : errno == EIO                    ? ERRCODE_IO_ERROR
												 : ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;

	ereport(ERROR, (errcode(code), errmsg("could not open the key file \"%s\": %m", path),
					errhint("outbox.seal_key_file must name a file that the server's user can read. Make one with: "
							"openssl genpkey -algorithm ed25519")));
}

void
check_file(const char *path, const struct stat &status)
{
	if (!S_ISREG(status.st_mode) || status.st_size > largest_key_file)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("\"%s\" is no file of a key", path)));
	if (!is_private(status))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("the key file \"%s\" may be read or written by others", path),
						errhint("It must belong to the server's user with permissions 0600 or less, or to root with "
								"0640 or less.")));
}

int
no_passphrase(char *, int, int, void *)
{
	return -1;
}

using ReadKey = EVP_PKEY *(*)(BIO *bio);

EVP_PKEY *
read_private(BIO *bio)
{
	return PEM_read_bio_PrivateKey(bio, nullptr, no_passphrase, nullptr);
}

EVP_PKEY *
read_public(BIO *bio)
{
	return PEM_read_bio_PUBKEY(bio, nullptr, no_passphrase, nullptr);
}

// What a file holds, and nothing of it is left in other memory.
struct KeyFile {
	EVP_PKEY *keys[most_public_keys]; // the private one first, if there is one
	int count;
};

// False: a key is of another kind, or there are too many.
bool
take_pem_keys(BIO *bio, ReadKey read_key, int most, KeyFile *file)
{
	EVP_PKEY *key;

	while (bio != nullptr && most-- > 0 && (key = read_key(bio)) != nullptr)
	{
		if (file->count == most_public_keys || EVP_PKEY_id(key) != EVP_PKEY_ED25519)
		{
			EVP_PKEY_free(key);
			return false;
		}
		file->keys[file->count++] = key;
	}
	return true;
}

void
free_keys(KeyFile *file)
{
	// It cleanses them.
	for (int i = 0; i < file->count; i++)
		EVP_PKEY_free(file->keys[i]);
	file->count = 0;
}

// False: it does not hold one private key, and public ones.
bool
read_pem(int file, KeyFile *keys)
{
	char pem[largest_key_file];
	ssize_t size = read(file, pem, sizeof(pem));
	BIO *first = size > 0 ? BIO_new_mem_buf(pem, static_cast<int>(size)) : nullptr;
	BIO *second = size > 0 ? BIO_new_mem_buf(pem, static_cast<int>(size)) : nullptr;
	bool good = take_pem_keys(first, read_private, 1, keys) && keys->count == 1 &&
				take_pem_keys(second, read_public, most_public_keys, keys);

	BIO_free(first);
	BIO_free(second);
	OPENSSL_cleanse(pem, sizeof(pem));
	// Where the file ended.
	ERR_clear_error();
	if (!good)
		free_keys(keys);
	return good;
}

KeyFile
open_keys(const char *path)
{
	struct stat status;
	int file = open_key_file(path, &status);
	KeyFile keys = {};
	bool good;

	if (file < 0)
		cannot_open(path);
	check_file(path, status);
	good = read_pem(file, &keys);
	CloseTransientFile(file);
	if (!good)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" holds no Ed25519 private key in PEM, or one with a passphrase, or a public key of "
						"another kind",
						path),
				 errhint("Make one with: openssl genpkey -algorithm ed25519")));
	return keys;
}

bool
take_public(const EVP_PKEY *key, PublicKey *taken)
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
	KeyFile keys = open_keys(file);
	Signature signature = {};
	PublicKey taken = {};
	bool good = take_public(keys.keys[0], &taken) && sign(keys.keys[0], data, size, &signature);

	free_keys(&keys);
	if (!good)
		openssl_failed();
	strlcpy(signature.key_id, taken.key_id, sizeof(signature.key_id));
	return signature;
}

PublicKeys
public_keys_in(const char *file)
{
	KeyFile keys = open_keys(file);
	PublicKeys taken = {};
	bool good = true;

	for (; good && taken.count < keys.count; taken.count++)
		good = take_public(keys.keys[taken.count], &taken.keys[taken.count]);
	free_keys(&keys);
	if (!good)
		openssl_failed();
	return taken;
}

const PublicKey *
find_key(const PublicKeys *keys, const char *key_id)
{
	for (int i = 0; i < keys->count; i++)
		if (strcmp(keys->keys[i].key_id, key_id) == 0)
			return &keys->keys[i];
	return nullptr;
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
