// Which addresses may be connected to: none of a private network, unless it is allowed.
//
// Guarantees: an address is judged in the form in which the kernel gets it, after the name was resolved, so that
// neither a spelling (0x7f.1, [::ffff:7f00:1]) nor a name that resolves to something else the second time gets around
// it. An IPv6 address that carries an IPv4 address (mapped, NAT64, 6to4 ...) is judged by both. A family that is
// neither is refused.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include <sys/socket.h>

namespace relay {

// IPv4 stands as ::ffff:a.b.c.d.
using IpAddress = std::array<uint8_t, 16>;

struct Network {
	IpAddress address{};
	int bits = 0; // of 128
	[[nodiscard]] bool contains(const IpAddress &other) const;
};

// "10.0.0.0/8", "fd00::/8"; an address alone is a network of one. Throws std::invalid_argument.
Network parse_network(std::string_view text);

class AddressPolicy {
public:
	AddressPolicy() = default; // public addresses only
	AddressPolicy(bool allow_private, std::vector<Network> allowed)
		: allow_private(allow_private), allowed(std::move(allowed))
	{
	}

	[[nodiscard]] bool allows(const sockaddr *address) const;

private:
	bool allow_private = false;
	std::vector<Network> allowed;
};

} // namespace relay
