// See seal.h.
#include "seal.h"

#include "findings.h"
#include "hashing.h"
#include "texts.h"

namespace outbox::verify {

namespace {

int
table_rank(const std::string &table)
{
	for (int i = 0; i < core::sealed_tables; i++)
		if (table == core::sealed_forms[i]->table)
			return i;
	throw Refused("there is no table \"" + printable(table) + "\" in a seal");
}

Part
read_part(const Json &json)
{
	require_keys(json, "a part", {"table", "partition", "rows", "root"});
	Part part = {text_of(json, "table"), text_of(json, "partition"), number_of(json, "rows"), hash_of(json, "root")};
	require(part.rows > 0, "a part has no rows");
	return part;
}

bool
ascend(const Part &a, const Part &b)
{
	const int difference = table_rank(a.table) - table_rank(b.table);

	return difference < 0 || (difference == 0 && a.partition < b.partition);
}

std::vector<Part>
read_parts(const Json &json)
{
	std::vector<Part> parts;

	for (const Json &part : array_of(json, "parts"))
	{
		parts.push_back(read_part(part));
		table_rank(parts.back().table);
		require(parts.size() == 1 || ascend(parts[parts.size() - 2], parts.back()), "the parts are not in order");
	}
	return parts;
}

int64_t
rows_of(const std::vector<Part> &parts, const std::string &table)
{
	int64_t sum = 0;

	for (const Part &part : parts)
		require(part.table != table || !__builtin_add_overflow(sum, part.rows, &sum), "the parts have too many rows");
	return sum;
}

core::Hash
root_of(const std::vector<Part> &parts)
{
	std::vector<core::Hash> leaves;

	for (const Part &part : parts)
		leaves.push_back(part_leaf({part.table, part.partition, part.rows, part.root}));
	return tree_root(leaves);
}

void
read_signature(const Json &json, Seal *seal)
{
	const bool is_signed = !json.at("signature").is_null();

	require(is_signed == !json.at("key_id").is_null(), "it has a signature without a key_id, or the reverse");
	if (!is_signed)
		return;
	const auto signature = from_hex(text_of(json, "signature"));
	seal->key_id = text_of(json, "key_id");
	require(signature && signature->size() == 64, "its signature is not 128 lower-case hexadecimal digits");
	require(seal->key_id.size() == 16 && from_hex(seal->key_id), "its key_id is not 16 lower-case hexadecimal digits");
	seal->signature = *signature;
}

void
require_window(const Json &json, const Seal &seal)
{
	const bool is_first = seal.seal_no == 1;

	require(seal.seal_no >= 1, "seals are numbered from 1");
	require(seal.from < seal.to, "its window ends before it begins");
	require(time_text(seal.from) == text_of(json, "from_at") && time_text(seal.to) == text_of(json, "to_at"),
			"from_at or to_at is not the time of from_us or to_us");
	require(is_first == !seal.previous, "the first seal, and no other, has no previous hash");
	require(is_first == (seal.from == INT64_MIN), "the first window, and no other, begins at -infinity");
}

void
require_sums(const Json &json, const Seal &seal)
{
	core::SealedWindow window = {seal.seal_no,
								 seal.from,
								 seal.to,
								 number_of(json, "messages"),
								 number_of(json, "attempts"),
								 number_of(json, "events"),
								 seal.root,
								 seal.previous ? &*seal.previous : nullptr,
								 seal.key_id.empty() ? nullptr : seal.key_id.c_str()};
	core::Hash hash;

	for (const core::Form *form : core::sealed_forms)
		require(rows_of(seal.parts, form->table) == number_of(json, form->table),
				std::string("its parts do not have its number of ") + form->table);
	require(root_of(seal.parts) == seal.root, "its root is not that of its parts");
	require(core::seal_hash(sha(), window, &hash) && hash == seal.hash, "its hash is not that of its fields");
}

Seal
read_fields(const Json &json)
{
	return {number_of(json, "seal_no"),
			number_of(json, "from_us"),
			number_of(json, "to_us"),
			read_parts(json),
			hash_of(json, "root"),
			maybe_hash_of(json, "previous"),
			hash_of(json, "hash"),
			{},
			{}};
}

} // namespace

Seal
read_seal(const Json &json)
{
	require_keys(json, "a seal",
				 {"seal_no", "from_at", "to_at", "from_us", "to_us", "messages", "attempts", "events", "root",
				  "previous", "hash", "signature", "key_id", "parts"});
	const std::string name = "seal " + std::to_string(number_of(json, "seal_no"));
	try
	{
		Seal seal = read_fields(json);
		read_signature(json, &seal);
		require_window(json, seal);
		require_sums(json, seal);
		return seal;
	}
	catch (const Refused &refused)
	{
		throw Refused(name + ": " + refused.what());
	}
}

void
require_link(const Seal &seal, const Seal &next)
{
	const std::string names = name_of(next) + " does not follow " + name_of(seal);

	require(next.seal_no == seal.seal_no + 1, names + ": a seal is missing or out of order");
	require(next.previous == seal.hash, names + ": it names another previous hash");
	require(next.from == seal.to, names + ": its window does not begin where the other one ends");
}

std::string
name_of(const Seal &seal)
{
	return "seal " + std::to_string(seal.seal_no);
}

std::string
Anchors::to_key(const core::Hash &hash)
{
	return to_hex(hash);
}

bool
Anchors::holds(const Seal &seal)
{
	const bool is_known = hashes_.count(to_key(seal.hash)) > 0;

	if (is_known)
		met_.insert(to_key(seal.hash));
	if (seal.key_id.empty() || keys.empty())
		return is_known;
	require(keys.has(seal.key_id), name_of(seal) + " is signed by the key " + seal.key_id + ", which was not given");
	require(keys.signed_by(seal.key_id, seal.hash, seal.signature), name_of(seal) + ": the signature is wrong");
	return true;
}

void
Anchors::require_all_met() const
{
	for (const std::string &hash : hashes_)
		require(met_.count(hash) > 0, "no seal in the file has the hash " + hash);
}

void
Trust::add(const Seal &seal)
{
	const auto [found, is_new] = seals_.emplace(seal.seal_no, seal);

	require(is_new || found->second.hash == seal.hash,
			"there are two different seals with the number " + std::to_string(seal.seal_no));
}

void
Trust::judge(Anchors &anchors)
{
	const Seal *next = nullptr;

	for (auto at = seals_.rbegin(); at != seals_.rend(); ++at)
	{
		const Seal &seal = at->second;
		const bool is_linked = next != nullptr && next->seal_no == seal.seal_no + 1;

		if (is_linked)
			require_link(seal, *next);
		if (anchors.holds(seal) || (is_linked && has(next->seal_no)))
			trusted_.insert(seal.seal_no);
		next = &seal;
	}
	anchors.require_all_met();
}

const Seal *
Trust::find(int64_t seal_no) const
{
	const auto found = seals_.find(seal_no);

	return found == seals_.end() ? nullptr : &found->second;
}

} // namespace outbox::verify
