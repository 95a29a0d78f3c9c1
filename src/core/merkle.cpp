// See merkle.h.
//
// Shape: RFC 6962 defines a tree from the top, by the largest power of two below its size. From the left that is: two
// perfect subtrees of the same size become one as soon as both are there, and what is left over in the end is joined
// from the right. Paths are checked as RFC 9162, 2.1.3.2 does.
#include "merkle.h"

namespace outbox::core {

bool
node_hash(Sha256 &sha, const Hash &left, const Hash &right, Hash *node) noexcept
{
	return sha.start()
		.add(&node_prefix, sizeof(node_prefix))
		.add(left.bytes, sizeof(left.bytes))
		.add(right.bytes, sizeof(right.bytes))
		.stop(node);
}

// The last two subtrees become one, and the sibling of the watched leaf's subtree is a step of its path.
void
MerkleTree::join_last() noexcept
{
	Hash &left = stack_[depth_ - 2];
	const Hash &right = stack_[depth_ - 1];

	if (home_ >= depth_ - 2)
	{
		path_[path_length_++] = home_ == depth_ - 1 ? left : right;
		home_ = depth_ - 2;
	}
	good_ = node_hash(sha_, left, right, &left) && good_;
	depth_--;
}

void
MerkleTree::add(const Hash &leaf) noexcept
{
	if (leaves_ == watched_)
		home_ = depth_;
	stack_[depth_++] = leaf;
	for (int64_t pairs = ++leaves_; pairs % 2 == 0; pairs /= 2)
		join_last();
}

bool
MerkleTree::finish(Hash *root) noexcept
{
	if (leaves_ == 0)
		return sha_.start().stop(root);
	while (depth_ > 1)
		join_last();
	*root = stack_[0];
	return good_;
}

int
steps_to_root(int64_t index, int64_t leaves) noexcept
{
	int length = 0;

	// A last node without a sibling passes to the level above as it is.
	for (int64_t last = leaves - 1; last > 0; index /= 2, last /= 2)
		length += index < last || index % 2 == 1;
	return length;
}

bool
root_by_path(Sha256 &sha, const Hash &leaf, int64_t index, int64_t leaves, const Hash *path, int64_t length,
			 Hash *root) noexcept
{
	if (index < 0 || index >= leaves || length != steps_to_root(index, leaves))
		return false;
	*root = leaf;
	for (int64_t last = leaves - 1; last > 0; index /= 2, last /= 2)
	{
		const bool is_right = index % 2 == 1;

		if (!is_right && index == last)
			continue;
		if (!node_hash(sha, is_right ? *path : *root, is_right ? *root : *path, root))
			return false;
		path++;
	}
	return true;
}

} // namespace outbox::core
