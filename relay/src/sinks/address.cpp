#include "sinks/address.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>

#include <arpa/inet.h>
#include <netinet/in.h>

namespace relay {

namespace {

constexpr int mapped_bits = 96; // ::ffff:0:0/96

// The registries of special addresses of IANA (RFC 6890 and its successors) without what is globally reachable.
const std::vector<Network> &
private_networks()
{
	static const std::vector<Network> networks = [] {
		std::vector<Network> result;
		for (std::string_view text : {
				 "0.0.0.0/8",       // this network; Linux connects 0.0.0.0 to itself
				 "10.0.0.0/8",      // private
				 "100.64.0.0/10",   // shared by carriers
				 "127.0.0.0/8",     // loopback
				 "169.254.0.0/16",  // link-local: metadata services of clouds
				 "172.16.0.0/12",   // private
				 "192.0.0.0/24",    // protocol assignments
				 "192.0.2.0/24",    // documentation
				 "192.88.99.0/24",  // 6to4 relays
				 "192.168.0.0/16",  // private
				 "198.18.0.0/15",   // benchmarks
				 "198.51.100.0/24", // documentation
				 "203.0.113.0/24",  // documentation
				 "224.0.0.0/4",     // multicast
				 "240.0.0.0/4",     // reserved, and broadcast
				 "::/96",           // unspecified, loopback, IPv4-compatible
				 "::ffff:0:0:0/96", // IPv4-translated
				 "64:ff9b:1::/48",  // local NAT64
				 "100::/64",        // discard
				 "2001::/23",       // protocol assignments, Teredo
				 "2001:db8::/32",   // documentation
				 "3fff::/20",       // documentation
				 "5f00::/16",       // segment routing
				 "fc00::/7",        // unique local
				 "fe80::/10",       // link-local
				 "fec0::/10",       // site-local
				 "ff00::/8",        // multicast
			 })
			result.push_back(parse_network(text));
		return result;
	}();
	return networks;
}

IpAddress
mapped(const void *ipv4)
{
	IpAddress address{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	std::memcpy(&address[12], ipv4, 4);
	return address;
}

bool
any_contains(const std::vector<Network> &networks, const IpAddress &address)
{
	return std::ranges::any_of(networks, [&](const Network &network) { return network.contains(address); });
}

// The IPv4 address that a translator takes out of an IPv6 address.
std::optional<IpAddress>
carried(const IpAddress &address)
{
	static const Network nat64 = parse_network("64:ff9b::/96"), six_to_four = parse_network("2002::/16");
	if (nat64.contains(address))
		return mapped(&address[12]);
	if (six_to_four.contains(address))
		return mapped(&address[2]);
	return {};
}

} // namespace

bool
Network::contains(const IpAddress &other) const
{
	int whole = bits / 8, rest = bits % 8;
	return std::equal(address.begin(), address.begin() + whole, other.begin()) &&
		   (rest == 0 || (address[whole] ^ other[whole]) >> (8 - rest) == 0);
}

Network
parse_network(std::string_view text)
{
	std::string host(text.substr(0, text.find('/')));
	Network network;
	std::array<uint8_t, 4> ipv4{};
	bool is_ipv4 = ::inet_pton(AF_INET, host.c_str(), ipv4.data()) == 1;
	if (is_ipv4)
		network.address = mapped(ipv4.data());
	else if (::inet_pton(AF_INET6, host.c_str(), network.address.data()) != 1)
		throw std::invalid_argument("\"" + std::string(text) + "\" is not an address or a network");
	int bits = is_ipv4 ? 32 : 128;
	if (host.size() < text.size())
	{
		std::string_view number = text.substr(host.size() + 1);
		int most = bits;
		auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bits);
		if (error != std::errc() || end != number.data() + number.size() || bits < 0 || bits > most)
			throw std::invalid_argument("\"" + std::string(text) + "\" has no length of a prefix after the slash");
	}
	network.bits = bits + (is_ipv4 ? mapped_bits : 0);
	return network;
}

bool
AddressPolicy::allows(const sockaddr *address) const
{
	IpAddress ip;
	if (address->sa_family == AF_INET)
		ip = mapped(&reinterpret_cast<const sockaddr_in *>(address)->sin_addr);
	else if (address->sa_family == AF_INET6)
		std::memcpy(ip.data(), &reinterpret_cast<const sockaddr_in6 *>(address)->sin6_addr, ip.size());
	else
		return false;
	if (allow_private || any_contains(allowed, ip))
		return true;
	std::optional<IpAddress> inner = carried(ip);
	return !any_contains(private_networks(), ip) && (!inner || !any_contains(private_networks(), *inner));
}

} // namespace relay
