// Merkle trees as in RFC 6962, 2.1: over any number of leaves, with audit paths.
//
// Guarantees:
// - A root stands for its leaves and their order: two lists of the same length have the same root only if SHA-256
//   has a collision. The length is kept beside the root, and a path is checked against it.
// - A tree takes a fixed amount of memory, whatever the number of its leaves, which are added one by one.
#pragma once

#include <cstdint>

#include "sha256.h"

namespace outbox::core {

// What precedes the bytes of a leaf and those of an inner node (canonical.h has the third prefix).
constexpr unsigned char leaf_prefix = 0x00;
constexpr unsigned char node_prefix = 0x01;

// The longest audit path: a tree has less than 2^63 leaves.
constexpr int longest_path = 63;

class MerkleTree {
public:
	// The audit path is kept of the leaf with this index, from 0; -1: of none.
	explicit MerkleTree(Sha256 &sha, int64_t watched = -1) noexcept : sha_(sha), watched_(watched) {}

	// A leaf's hash (leaf_prefix).
	void add(const Hash &leaf) noexcept;
	// The root of what was added. False: OpenSSL failed meanwhile. Ends the path; nothing is to be added afterwards.
	[[nodiscard]] bool finish(Hash *root) noexcept;

	int64_t leaves() const noexcept { return leaves_; }
	// After finish(), from the leaf's sibling upwards.
	const Hash *path() const noexcept { return path_; }
	int path_length() const noexcept { return path_length_; }

private:
	void join_last() noexcept;

	Sha256 &sha_;
	int64_t watched_;
	int64_t leaves_ = 0;
	bool good_ = true;
	// Perfect subtrees from the left, each smaller than the one before; after add() at most 63.
	Hash stack_[longest_path + 1];
	int depth_ = 0;
	// The subtree that has the watched leaf; -1: it has not come.
	int home_ = -1;
	Hash path_[longest_path];
	int path_length_ = 0;
};

// The number of hashes in the audit path of a leaf. 0 <= index < leaves.
int steps_to_root(int64_t index, int64_t leaves) noexcept;

// The root to which a leaf's audit path leads. False: index is not below leaves, or the path has not the length
// that it must have there, or OpenSSL failed.
[[nodiscard]] bool root_by_path(Sha256 &sha, const Hash &leaf, int64_t index, int64_t leaves, const Hash *path,
								int64_t length, Hash *root) noexcept;

// Of an inner node.
[[nodiscard]] bool node_hash(Sha256 &sha, const Hash &left, const Hash &right, Hash *node) noexcept;

} // namespace outbox::core
