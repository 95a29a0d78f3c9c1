// See hashing.h.
#include "hashing.h"

#include "findings.h"

namespace outbox::verify {

namespace {

void
must(bool done)
{
	if (!done)
		throw Unreadable("OpenSSL could not compute SHA-256");
}

} // namespace

core::Sha256 &
sha()
{
	thread_local core::Sha256 sha256;

	return sha256;
}

core::Hash
hash_bytes(std::string_view bytes)
{
	core::Hash hash;

	must(sha().start().add(bytes.data(), bytes.size()).stop(&hash));
	return hash;
}

core::Hash
tree_root(const std::vector<core::Hash> &leaves)
{
	core::MerkleTree tree(sha());
	core::Hash root;

	for (const core::Hash &leaf : leaves)
		tree.add(leaf);
	must(tree.finish(&root));
	return root;
}

core::Hash
part_leaf(const core::SealedPart &part)
{
	core::Hash leaf;

	must(core::part_hash(sha(), part, &leaf));
	return leaf;
}

} // namespace outbox::verify
