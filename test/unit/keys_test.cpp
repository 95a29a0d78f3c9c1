// Key frames: exact bytes, exact size, and no two keys with one frame.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "key_frames.h"
#include "seed.h"

namespace {

using namespace outbox::core;
using namespace std::string_literals;

struct Key {
	KeyKind kind;
	std::vector<std::string> parts;

	bool operator==(const Key &) const = default;
};

constexpr KeyKind kinds[] = {KeyKind::idempotency, KeyKind::event, KeyKind::partition};

static_assert(noexcept(frame_size(nullptr, 0)));

// Exactly frame_size bytes, so that the address sanitizer sees one too many;
// written over two fillings, so that one too few shows as well.
std::string
frame(const Key &key)
{
	std::vector<Part> parts;
	for (const std::string &part : key.parts)
		parts.push_back({part.data(), part.size()});

	const int count = static_cast<int>(parts.size());
	const size_t size = frame_size(parts.data(), count);
	std::vector<unsigned char> zeros(size, 0x00), ones(size, 0xff);
	zeros.shrink_to_fit();
	ones.shrink_to_fit();
	write_frame(key.kind, parts.data(), count, zeros.data());
	write_frame(key.kind, parts.data(), count, ones.data());
	EXPECT_EQ(zeros, ones);
	return {zeros.begin(), zeros.end()};
}

TEST(Keys, FrameIsKindThenLengthAndBytes)
{
	EXPECT_EQ(frame({KeyKind::partition, {"ab", ""}}), "p\0\0\0\0\0\0\0\2ab\0\0\0\0\0\0\0\0"s);
	EXPECT_EQ(frame({KeyKind::idempotency, {}}), "i"s);
	EXPECT_EQ(frame({KeyKind::event, {"\0\xff"s}}), "e\0\0\0\0\0\0\0\2\0\xff"s);
}

TEST(Keys, LengthIsBigEndian)
{
	const std::string got = frame({KeyKind::partition, {std::string(0x010203, 'x')}});

	EXPECT_EQ(got.substr(0, 9), "p\0\0\0\0\0\1\2\3"s);
	EXPECT_EQ(got.size(), 9u + 0x010203u);
}

TEST(Keys, SizeIsKnownBefore)
{
	const Part parts[] = {{"ab", 2}, {nullptr, 0}, {"cde", 3}};

	EXPECT_EQ(frame_size(nullptr, 0), 1u);
	EXPECT_EQ(frame_size(parts, 1), 1u + 8 + 2);
	EXPECT_EQ(frame_size(parts, 3), 1u + 3 * 8 + 5);
}

TEST(Keys, EmptyPartNeedsNoData)
{
	const Part none[] = {{nullptr, 0}};
	unsigned char got[9];

	write_frame(KeyKind::event, none, 1, got);
	EXPECT_EQ(std::string(got, got + 9), frame({KeyKind::event, {""}}));
}

TEST(Keys, KindsAndShapesDiffer)
{
	const Key keys[] = {
		{KeyKind::idempotency, {}},
		{KeyKind::idempotency, {""}},
		{KeyKind::idempotency, {"", ""}},
		{KeyKind::idempotency, {"q", "a", "k"}},
		{KeyKind::event, {"q", "a", "k"}},
		{KeyKind::partition, {"q", "a", "k"}},
		{KeyKind::idempotency, {"q", "", "ak"}},
		{KeyKind::idempotency, {"q", "ak", ""}},
		{KeyKind::idempotency, {"qa", "", "k"}},
		{KeyKind::idempotency, {"q", "ak"}},
		{KeyKind::idempotency, {"qak"}},
		{KeyKind::idempotency, {"q", "a", "k", ""}},
		{KeyKind::idempotency, {"q", "a\0"s, "k"}},
		{KeyKind::idempotency, {"q", "a", "\0k"s}},
		// The frame of two parts, given as the bytes of one.
		{KeyKind::idempotency, {"q\0\0\0\0\0\0\0\1a"s}},
		{KeyKind::idempotency, {"q", "a"}},
	};

	for (const Key &a : keys)
		for (const Key &b : keys)
			EXPECT_EQ(frame(a) == frame(b), &a == &b);
}

// Few letters, among them the bytes that lengths and kinds are made of.
std::string
random_text(std::mt19937_64 &random)
{
	static const std::string letters = "\0\1\2ip"s;
	std::string text(random() % 4, '\0');

	for (char &letter : text)
		letter = letters[random() % letters.size()];
	return text;
}

Key
random_key(std::mt19937_64 &random)
{
	Key key{kinds[random() % 3], {}};

	for (size_t n = random() % 4; n > 0; n--)
		key.parts.push_back(random_text(random));
	return key;
}

// Moves one byte over a boundary: the pair that careless framing confuses.
Key
neighbour(Key key)
{
	for (size_t i = 0; i + 1 < key.parts.size(); i++)
	{
		if (key.parts[i].empty())
			continue;
		key.parts[i + 1].insert(0, 1, key.parts[i].back());
		key.parts[i].pop_back();
		return key;
	}
	return key;
}

TEST(Keys, FramesAreInjective)
{
	auto random = outbox::test::generator();
	int equal = 0, neighbours = 0;

	for (int i = 0; i < 200'000; i++)
	{
		const Key a = random_key(random), b = random_key(random), c = neighbour(a);

		ASSERT_EQ(frame(a) == frame(b), a == b);
		ASSERT_EQ(frame(a) == frame(c), a == c);
		equal += a == b;
		neighbours += a != c;
	}
	// Or the draw has tried nothing.
	EXPECT_GT(equal, 100);
	EXPECT_GT(neighbours, 10'000);
}

} // namespace
