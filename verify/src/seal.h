// One seal, as proofs and exports have it.
//
// Guarantee: a Seal that read_seal() gives agrees with itself: its hash is that of its fields, its root that of its
// parts, its counts are theirs, its times are those that it shows. Whether it is a seal of the past, Trust tells.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "json.h"
#include "keys.h"

namespace outbox::verify {

struct Part {
	std::string table;
	std::string partition;
	int64_t rows;
	core::Hash root;
};

struct Seal {
	int64_t seal_no;
	int64_t from;
	int64_t to;
	std::vector<Part> parts;
	core::Hash root;
	std::optional<core::Hash> previous;
	core::Hash hash;
	std::string key_id; // empty: not signed
	std::string signature;
};

// Refused, if it does not agree with itself.
Seal read_seal(const Json &json);

// Refused, if `next` does not follow `seal` in a chain.
void require_link(const Seal &seal, const Seal &next);

// As "seal 7".
std::string name_of(const Seal &seal);

// What the auditor brings along: printed hashes and public keys.
class Anchors {
public:
	Keys keys;

	void add_hash(const core::Hash &hash) { hashes_.insert(to_key(hash)); }
	bool empty() const { return hashes_.empty() && keys.empty(); }

	// Whether the seal is one of them itself: its hash was given, or a given key signed it. Refused: a signature that
	// is wrong, or, where keys are given, is of none of them.
	bool holds(const Seal &seal);
	// Refused, if a hash was given that was not met.
	void require_all_met() const;

private:
	static std::string to_key(const core::Hash &hash);

	std::set<std::string> hashes_;
	std::set<std::string> met_;
};

// Seals by number, and which of them the anchors stand for: an anchored one, and all to which the links lead from
// there.
class Trust {
public:
	// Refused: another seal of that number is there.
	void add(const Seal &seal);
	// Refused: two that are neighbours are not linked.
	void judge(Anchors &anchors);

	const Seal *find(int64_t seal_no) const;
	bool has(int64_t seal_no) const { return trusted_.count(seal_no) > 0; }

private:
	std::map<int64_t, Seal> seals_;
	std::set<int64_t> trusted_;
};

} // namespace outbox::verify
