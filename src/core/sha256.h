// SHA-256, by OpenSSL.
//
// Guarantee: it has no destructor, so that a session may keep one though errors jump over destructors; start() forgets
// an input that an error cut short. A failure of OpenSSL is remembered, and stop() reports it.
#pragma once

#include <cstddef>

struct evp_md_ctx_st;

namespace outbox::core {

struct Hash {
	unsigned char bytes[32];

	friend bool operator==(const Hash &, const Hash &) = default;
};

// One input at a time. To be made once for a session or a thread: its context of OpenSSL stays until the process ends.
class Sha256 {
public:
	Sha256 &start() noexcept;
	Sha256 &add(const void *data, size_t size) noexcept;
	// False: OpenSSL could not, and hash is not set.
	[[nodiscard]] bool stop(Hash *hash) noexcept;

private:
	evp_md_ctx_st *context_ = nullptr;
	bool good_ = false;
};

} // namespace outbox::core
