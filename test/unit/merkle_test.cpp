// Merkle trees: the roots and paths of RFC 6962's reference implementation, and both against the RFC's definition.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hex.h"
#include "merkle.h"
#include "seed.h"

namespace {

using namespace outbox::core;
using outbox::test::from_hex;
using outbox::test::to_hex;
using Hashes = std::vector<Hash>;

Sha256 sha;

Hash
leaf_of(const std::string &bytes)
{
	Hash leaf;

	EXPECT_TRUE(sha.start().add(&leaf_prefix, 1).add(bytes.data(), bytes.size()).stop(&leaf));
	return leaf;
}

// The inputs of certificate-transparency's merkle_tree_test, and its roots of the first 0, 1, 2 ... of them.
const std::vector<std::string> inputs = {
	"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"};
const std::vector<std::string> roots = {
	"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
	"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
	"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
	"aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
	"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
	"4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
	"76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
	"ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
	"5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
};

Hashes
first_inputs(size_t count)
{
	Hashes leaves;

	for (size_t i = 0; i < count; i++)
		leaves.push_back(leaf_of(from_hex(inputs[i])));
	return leaves;
}

Hash
root_of(const Hashes &leaves)
{
	MerkleTree tree(sha);
	Hash root;

	for (const Hash &leaf : leaves)
		tree.add(leaf);
	EXPECT_TRUE(tree.finish(&root));
	EXPECT_EQ(tree.leaves(), static_cast<int64_t>(leaves.size()));
	return root;
}

Hashes
path_of(const Hashes &leaves, int64_t index)
{
	MerkleTree tree(sha, index);
	Hash root;

	for (const Hash &leaf : leaves)
		tree.add(leaf);
	EXPECT_TRUE(tree.finish(&root));
	EXPECT_EQ(root, root_of(leaves));
	return {tree.path(), tree.path() + tree.path_length()};
}

bool
leads(const Hash &leaf, int64_t index, int64_t leaves, const Hashes &path, const Hash &root)
{
	Hash got;

	return root_by_path(sha, leaf, index, leaves, path.data(), static_cast<int64_t>(path.size()), &got) && got == root;
}

// The definitions of 2.1 and 2.1.1, as they stand there.
size_t
split(size_t size)
{
	size_t k = 1;

	while (k * 2 < size)
		k *= 2;
	return k;
}

Hash
defined_root(const Hash *leaves, size_t size)
{
	if (size == 1)
		return *leaves;
	const size_t k = split(size);
	Hash node;
	EXPECT_TRUE(node_hash(sha, defined_root(leaves, k), defined_root(leaves + k, size - k), &node));
	return node;
}

Hashes
defined_path(const Hash *leaves, size_t size, size_t index)
{
	if (size == 1)
		return {};
	const size_t k = split(size);
	Hashes path = index < k ? defined_path(leaves, k, index) : defined_path(leaves + k, size - k, index - k);
	path.push_back(index < k ? defined_root(leaves + k, size - k) : defined_root(leaves, k));
	return path;
}

TEST(Merkle, RootsOfTheReferenceImplementation)
{
	for (size_t size = 0; size < roots.size(); size++)
		EXPECT_EQ(to_hex(root_of(first_inputs(size))), roots[size]) << size;
}

TEST(Merkle, PathsOfTheReferenceImplementation)
{
	const Hashes leaves = first_inputs(8);
	const auto hexes = [](const Hashes &path) {
		std::vector<std::string> texts;
		for (const Hash &hash : path)
			texts.push_back(to_hex(hash));
		return texts;
	};
	using Texts = std::vector<std::string>;

	EXPECT_EQ(hexes(path_of(leaves, 0)), (Texts{"96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
												"5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
												"6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"}));
	EXPECT_EQ(hexes(path_of(leaves, 5)), (Texts{"bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
												"ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
												"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"}));
	EXPECT_EQ(hexes(path_of(first_inputs(3), 2)),
			  (Texts{"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"}));
}

TEST(Merkle, AsDefinedForEachSizeAndLeaf)
{
	Hashes leaves;

	for (size_t size = 1; size <= 70; size++)
	{
		leaves.push_back(leaf_of(std::to_string(size)));
		const Hash root = root_of(leaves);
		ASSERT_EQ(root, defined_root(leaves.data(), size)) << size;
		for (size_t i = 0; i < size; i++)
		{
			const Hashes path = path_of(leaves, static_cast<int64_t>(i));
			ASSERT_EQ(path, defined_path(leaves.data(), size, i)) << i << " of " << size;
			ASSERT_TRUE(leads(leaves[i], static_cast<int64_t>(i), static_cast<int64_t>(size), path, root));
		}
	}
}

TEST(Merkle, LeafThatDoesNotComeHasNoPath)
{
	EXPECT_TRUE(path_of(first_inputs(5), 5).empty());
	EXPECT_TRUE(path_of({}, 0).empty());
}

TEST(Merkle, NothingElseLeadsToTheRoot)
{
	for (size_t size = 1; size <= 8; size++)
	{
		const Hashes leaves = first_inputs(size);
		const int64_t count = static_cast<int64_t>(size);
		const Hash root = root_of(leaves);

		for (int64_t i = 0; i < count; i++)
		{
			const Hashes path = path_of(leaves, i);

			for (int64_t other = -1; other <= count; other++)
				EXPECT_EQ(leads(leaves[static_cast<size_t>(i)], other, count, path, root), other == i);
			for (int64_t other = 0; other < count; other++)
				EXPECT_EQ(leads(leaves[static_cast<size_t>(other)], i, count, path, root), other == i);
			for (size_t step = 0; step < path.size(); step++)
			{
				Hashes wrong = path;
				wrong[step].bytes[step] ^= 1;
				EXPECT_FALSE(leads(leaves[static_cast<size_t>(i)], i, count, wrong, root));
				wrong = path;
				wrong.erase(wrong.begin() + static_cast<std::ptrdiff_t>(step));
				EXPECT_FALSE(leads(leaves[static_cast<size_t>(i)], i, count, wrong, root));
			}
			Hashes longer = path;
			longer.push_back(root);
			EXPECT_FALSE(leads(leaves[static_cast<size_t>(i)], i, count, longer, root));
		}
	}
}

TEST(Merkle, ExtremeIndexes)
{
	Hash leaf = leaf_of(""), root;
	const Hashes path(64, leaf);

	EXPECT_EQ(steps_to_root(0, INT64_MAX), longest_path);
	EXPECT_EQ(steps_to_root(0, 0), 0);
	EXPECT_TRUE(root_by_path(sha, leaf, 0, INT64_MAX, path.data(), longest_path, &root));
	EXPECT_FALSE(root_by_path(sha, leaf, INT64_MAX, INT64_MAX, path.data(), longest_path, &root));
	EXPECT_FALSE(root_by_path(sha, leaf, 0, INT64_MIN, path.data(), 0, &root));
	EXPECT_FALSE(root_by_path(sha, leaf, INT64_MIN, INT64_MAX, path.data(), 0, &root));
	EXPECT_FALSE(root_by_path(sha, leaf, 0, 2, path.data(), -1, &root));
}

} // namespace
