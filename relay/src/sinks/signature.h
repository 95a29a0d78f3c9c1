// Signatures of webhooks as Standard Webhooks 1.0.0 defines them (symmetric, v1).
//
// Guarantees: a secret that the specification does not allow is refused when it is read. Each secret gives a signature,
// so that a receiver that knows either the old or the new one accepts the message while secrets are changed.
#pragma once

#include "core/secret.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace relay {

class WebhookSigner {
public:
	// "whsec_" and base64, or base64 alone, of 24 to 64 bytes; throws std::invalid_argument, which does not repeat it.
	explicit WebhookSigner(const std::vector<Secret> &secrets);

	[[nodiscard]] bool empty() const { return keys.empty(); }
	// The value of webhook-signature: "v1,SIGNATURE" for each secret, separated by spaces.
	[[nodiscard]] std::string sign(std::string_view id, int64_t timestamp, std::string_view body) const;

private:
	std::vector<std::string> keys;
};

} // namespace relay
