// Private networks: the first and the last address of each, their neighbours, and every form of an address in another.
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include "../../../test/unit/seed.h"
#include "sinks/address.h"

namespace {

using namespace relay;

bool
allows(const AddressPolicy &policy, const std::string &text)
{
	sockaddr_storage storage{};
	auto *v4 = reinterpret_cast<sockaddr_in *>(&storage);
	auto *v6 = reinterpret_cast<sockaddr_in6 *>(&storage);
	if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1)
		v4->sin_family = AF_INET;
	else if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1)
		v6->sin6_family = AF_INET6;
	else
		ADD_FAILURE() << text;
	return policy.allows(reinterpret_cast<const sockaddr *>(&storage));
}

bool
is_public(const std::string &text)
{
	return allows(AddressPolicy(), text);
}

// An IPv4 address as IPv6 addresses carry it.
std::vector<std::string>
forms(const std::string &ipv4)
{
	unsigned char b[4];
	EXPECT_EQ(::inet_pton(AF_INET, ipv4.c_str(), b), 1);
	char hex[64];
	std::snprintf(hex, sizeof hex, "2002:%02x%02x:%02x%02x::1", b[0], b[1], b[2], b[3]);
	return {"::ffff:" + ipv4, "64:ff9b::" + ipv4, hex};
}

constexpr const char *private_addresses[] = {
	"0.0.0.0",         "0.0.0.1",       "0.255.255.255",  "10.0.0.0",        "10.255.255.255", "100.64.0.0",
	"100.127.255.255", "127.0.0.0",     "127.0.0.1",      "127.255.255.255", "169.254.0.0",    "169.254.169.254",
	"169.254.255.255", "172.16.0.0",    "172.31.255.255", "192.0.0.0",       "192.0.0.255",    "192.0.2.0",
	"192.0.2.255",     "192.88.99.1",   "192.168.0.0",    "192.168.255.255", "198.18.0.0",     "198.19.255.255",
	"198.51.100.7",    "203.0.113.255", "224.0.0.0",      "239.255.255.255", "240.0.0.0",      "255.255.255.255",
};
constexpr const char *public_addresses[] = {
	"1.0.0.0",         "9.255.255.255",   "11.0.0.0",        "100.63.255.255", "100.128.0.0",
	"126.255.255.255", "128.0.0.0",       "169.253.255.255", "169.255.0.0",    "172.15.255.255",
	"172.32.0.0",      "191.255.255.255", "192.0.1.0",       "192.0.3.0",      "192.88.98.255",
	"192.88.100.0",    "192.167.255.255", "192.169.0.0",     "198.17.255.255", "198.20.0.0",
	"198.51.99.255",   "198.51.101.0",    "203.0.112.255",   "203.0.114.0",    "223.255.255.255",
};

TEST(Address, PrivateIpv4)
{
	for (const char *address : private_addresses)
	{
		EXPECT_FALSE(is_public(address)) << address;
		for (const std::string &form : forms(address))
			EXPECT_FALSE(is_public(form)) << form;
	}
}

TEST(Address, PublicIpv4)
{
	for (const char *address : public_addresses)
	{
		EXPECT_TRUE(is_public(address)) << address;
		for (const std::string &form : forms(address))
			EXPECT_TRUE(is_public(form)) << form;
	}
}

TEST(Address, Ipv6)
{
	for (const char *address : {"::",
								"::1",
								"::2",
								"::7f00:1",
								"::8.8.8.8",
								"::ffff:0:127.0.0.1",
								"64:ff9b:1::1",
								"64:ff9b:1:ffff::8.8.8.8",
								"100::",
								"100::ffff",
								"2001::",
								"2001:0:1::1",
								"2001:1ff::1",
								"2001:db8::",
								"2001:db8:ffff::1",
								"3fff::1",
								"3fff:fff::1",
								"5f00::1",
								"fc00::",
								"fd00::1",
								"fdff:ffff::1",
								"fe80::",
								"fe80::1",
								"febf:ffff::1",
								"fec0::1",
								"feff::1",
								"ff00::",
								"ff02::1",
								"ffff::1"})
		EXPECT_FALSE(is_public(address)) << address;
	for (const char *address :
		 {"64:ff9b::8.8.8.8", "100:0:0:1::1", "2001:200::1", "2001:4860:4860::8888", "2001:db7:ffff::1", "2001:db9::1",
		  "2a00::1", "3ffe:ffff::1", "3fff:1000::1", "5eff::1", "5f01::1", "fbff::1", "fe00::1", "fe7f::1"})
		EXPECT_TRUE(is_public(address)) << address;
}

TEST(Address, OtherFamilies)
{
	sockaddr_un local{};
	local.sun_family = AF_UNIX;
	EXPECT_FALSE(AddressPolicy(true, {}).allows(reinterpret_cast<const sockaddr *>(&local)));
}

TEST(Address, AllowedNetworks)
{
	AddressPolicy policy(false,
						 {parse_network("10.1.0.0/16"), parse_network("127.0.0.1"), parse_network("fd00:1::/32")});

	for (const char *address : {"10.1.0.0", "10.1.255.255", "::ffff:10.1.2.3", "127.0.0.1", "fd00:1::5", "8.8.8.8"})
		EXPECT_TRUE(allows(policy, address)) << address;
	// What a translator makes of it is not the network that was allowed.
	for (const char *address : {"10.0.255.255", "10.2.0.0", "127.0.0.2", "fd00:2::1", "::1", "64:ff9b::10.1.2.3"})
		EXPECT_FALSE(allows(policy, address)) << address;
	EXPECT_TRUE(allows(AddressPolicy(true, {}), "127.0.0.1"));
	EXPECT_TRUE(allows(AddressPolicy(false, {parse_network("0.0.0.0/0")}), "127.0.0.1"));
	EXPECT_FALSE(allows(AddressPolicy(false, {parse_network("0.0.0.0/0")}), "::1"));
	EXPECT_TRUE(allows(AddressPolicy(false, {parse_network("::/0")}), "::1"));
}

TEST(Address, NetworksThatAreNone)
{
	for (const char *text :
		 {"", "/", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/8x", "10.0.0/8", "10.0.0.0/8/8", "0x0a.0.0.0/8",
		  "010.0.0.0/8", "::/129", "::g", "localhost", " 10.0.0.0/8", "10.0.0.0/+8"})
		EXPECT_THROW(parse_network(text), std::invalid_argument) << text;
}

// Against a comparison bit by bit.
TEST(Address, ContainsIsAPrefix)
{
	auto random = outbox::test::generator();
	auto bit = [](const IpAddress &address, int i) { return address[i / 8] >> (7 - i % 8) & 1; };
	for (int round = 0; round < 20'000; round++)
	{
		Network network;
		for (uint8_t &byte : network.address)
			byte = static_cast<uint8_t>(random());
		network.bits = static_cast<int>(random() % 129);
		IpAddress other = network.address;
		if (int flip = static_cast<int>(random() % 129); flip < 128)
			other[flip / 8] ^= 0x80 >> flip % 8;
		bool same = true;
		for (int i = 0; i < network.bits; i++)
			same = same && bit(network.address, i) == bit(other, i);
		ASSERT_EQ(network.contains(other), same);
	}
}

} // namespace
