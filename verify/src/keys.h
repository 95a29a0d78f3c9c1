// Public keys, and the signatures of seals. By OpenSSL.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "core/sha256.h"

struct evp_pkey_st;

namespace outbox::verify {

// The keys that the auditor trusts, by key_id.
class Keys {
public:
	// Unreadable: no Ed25519 public key in PEM.
	void add(std::string_view pem);
	bool empty() const { return keys_.empty(); }
	bool has(const std::string &key_id) const { return keys_.count(key_id) > 0; }
	// Whether the signature over the hash is that of this key, which is there.
	bool signed_by(const std::string &key_id, const core::Hash &hash, std::string_view signature) const;

private:
	std::map<std::string, std::shared_ptr<evp_pkey_st>> keys_;
};

} // namespace outbox::verify
