// The canonical form: exact bytes, and no two rows with one form.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "canonical.h"
#include "hex.h"
#include "seed.h"

namespace {

using namespace outbox::core;
using namespace std::string_literals;
using outbox::test::to_hex;

Sha256 sha;

Sink
into_string(std::string &bytes)
{
	return {[](void *to, const void *data, size_t size) {
				if (size > 0)
					static_cast<std::string *>(to)->append(static_cast<const char *>(data), size);
			},
			&bytes};
}

// Of two columns, as long as the tests need.
constexpr FormColumn two_columns[] = {{"a", ColumnType::text}, {"b", ColumnType::text}};
constexpr Form two = {"t", nullptr, two_columns, 2};
const std::string begins = "\0\0\0\1t\0\0\0\2"s;

template <typename Put>
std::string
written(const Form &form, Put put)
{
	std::string bytes;
	Encoder row(into_string(bytes), form);

	put(row);
	EXPECT_TRUE(row.finish());
	return bytes;
}

TEST(Canonical, TagNumberOfColumnsThenValues)
{
	EXPECT_EQ(written(two, [](Encoder &row) { row.null(), row.bytes("", 0); }), begins + "\xff\xff\xff\xff\0\0\0\0"s);
	EXPECT_EQ(written(two, [](Encoder &row) { row.bytes("\0x", 2), row.bytes(nullptr, 0); }),
			  begins + "\0\0\0\2\0x\0\0\0\0"s);
}

TEST(Canonical, NumbersAreBigEndian)
{
	EXPECT_EQ(written(two, [](Encoder &row) { row.bigint(0x0102030405060708), row.bigint(INT64_MAX); }),
			  begins + "\0\0\0\10\1\2\3\4\5\6\7\10\0\0\0\10\x7f\xff\xff\xff\xff\xff\xff\xff"s);
}

TEST(Canonical, EveryLengthAroundTheBuffer)
{
	for (size_t size = 480; size <= 1040; size++)
	{
		const std::string value(size, 'v');
		std::string expected = begins + "\0\0"s + static_cast<char>(size >> 8) + static_cast<char>(size & 255) + value;

		EXPECT_EQ(written(two, [&](Encoder &row) { row.bytes(value.data(), size), row.null(); }),
				  expected + "\xff\xff\xff\xff");
	}
}

// Whether a row of two columns is whole after this.
template <typename Put>
bool
whole_after(Put put)
{
	std::string bytes;
	Encoder row(into_string(bytes), two);

	put(row);
	return row.finish();
}

TEST(Canonical, CountsItsColumns)
{
	EXPECT_FALSE(whole_after([](Encoder &row) { row.null(); }));
	EXPECT_TRUE(whole_after([](Encoder &row) { row.null(), row.null(); }));
	EXPECT_FALSE(whole_after([](Encoder &row) { row.null(), row.null(), row.null(); }));
}

TEST(Canonical, Forms)
{
	EXPECT_STREQ(message_form.tag, "outbox message 1");
	EXPECT_EQ(message_form.count, 18);
	EXPECT_STREQ(attempt_form.tag, "outbox attempt 1");
	EXPECT_EQ(attempt_form.count, 14);
	EXPECT_STREQ(event_form.tag, "outbox event 1");
	EXPECT_EQ(event_form.count, 10);
	EXPECT_STREQ(type_name(event_form.columns[6].type), "uuid[]");
	EXPECT_STREQ(type_name(event_form.columns[7].type), "integer[]");
	EXPECT_STREQ(type_name(event_form.columns[9].type), "jsonb");
}

Hash
hash_of(const std::string &bytes)
{
	Hash hash;

	EXPECT_TRUE(sha.start().add(bytes.data(), bytes.size()).stop(&hash));
	return hash;
}

TEST(Canonical, PartsAndSealsAreRowsBehindAPrefix)
{
	const Hash root = hash_of("");
	Hash got;

	const std::string part = written(part_form, [&](Encoder &row) {
		row.bytes("messages", 8), row.bytes("messages_default", 16), row.bigint(12), row.bytes(root.bytes, 32);
	});
	ASSERT_TRUE(part_hash(sha, {"messages", "messages_default", 12, root}, &got));
	EXPECT_EQ(got, hash_of("\0"s + part));

	const auto seal = [&](const Hash *previous, const char *key_id) {
		return written(seal_form, [&](Encoder &row) {
			row.bigint(1), row.bigint(INT64_MIN), row.bigint(5), row.bigint(1), row.bigint(2), row.bigint(3);
			row.bytes(root.bytes, 32);
			previous == nullptr ? row.null() : row.bytes(previous->bytes, 32);
			key_id == nullptr ? row.null() : row.bytes(key_id, 16);
		});
	};
	for (const Hash *previous : {static_cast<const Hash *>(nullptr), &root})
		for (const char *key_id : {static_cast<const char *>(nullptr), "0123456789abcdef"})
		{
			ASSERT_TRUE(seal_hash(sha, {1, INT64_MIN, 5, 1, 2, 3, root, previous, key_id}, &got));
			EXPECT_EQ(got, hash_of("\2"s + seal(previous, key_id)));
		}
}

// Reads a form back: what can be read in one way only is that of one row.
std::vector<std::string>
read_back(const std::string &bytes)
{
	std::vector<std::string> values;
	size_t at = 0;
	const auto length = [&] {
		uint32_t n = 0;
		for (int i = 0; i < 4; i++)
			n = n << 8 | static_cast<unsigned char>(bytes.at(at++));
		return n;
	};
	const auto value = [&] {
		const uint32_t n = length();
		std::string text = n == UINT32_MAX ? "NULL" : "=" + bytes.substr(at, n);
		at += n == UINT32_MAX ? 0 : n;
		values.push_back(text);
	};

	value();
	for (uint32_t columns = length(); columns > 0; columns--)
		value();
	EXPECT_EQ(at, bytes.size());
	return values;
}

TEST(Canonical, RandomRowsReadBack)
{
	auto random = outbox::test::generator();

	for (int round = 0; round < 2000; round++)
	{
		std::vector<std::string> values = {"=outbox message 1"};
		const std::string bytes = written(message_form, [&](Encoder &row) {
			for (int column = 0; column < message_form.count; column++)
			{
				std::string value(random() % 8 == 0 ? random() % 2000 : random() % 5, '\0');
				for (char &byte : value)
					byte = static_cast<char>(random());
				const bool is_null = random() % 4 == 0;
				is_null ? row.null() : row.bytes(value.data(), value.size());
				values.push_back(is_null ? "NULL" : "=" + value);
			}
		});
		Hash streamed;
		ASSERT_EQ(read_back(bytes), values);
		sha.start();
		into(sha).put(into(sha).to, bytes.data(), bytes.size());
		ASSERT_TRUE(sha.stop(&streamed));
		ASSERT_EQ(streamed, hash_of(bytes));
	}
}

TEST(Sha256, Known)
{
	EXPECT_EQ(to_hex(hash_of("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	EXPECT_EQ(to_hex(hash_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, StopsOnce)
{
	Hash hash;
	static Sha256 fresh; // its context is never freed

	EXPECT_FALSE(fresh.stop(&hash));
	EXPECT_TRUE(fresh.start().stop(&hash));
	EXPECT_FALSE(fresh.stop(&hash));
	// An input that was cut short is forgotten.
	fresh.start().add("x", 1);
	EXPECT_TRUE(fresh.start().add("abc", 3).stop(&hash));
	EXPECT_EQ(hash, hash_of("abc"));
}

} // namespace
