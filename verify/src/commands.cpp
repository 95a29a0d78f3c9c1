// See commands.h.
#include "commands.h"

#include <iterator>

#include "chain.h"
#include "compare.h"
#include "findings.h"
#include "proof.h"

namespace outbox::verify {

namespace {

// The digits of a printed hash may be upper-case.
core::Hash
given_hash(std::string digits)
{
	for (char &digit : digits)
		digit = digit >= 'A' && digit <= 'F' ? static_cast<char>(digit - 'A' + 'a') : digit;
	try
	{
		return read_hash(digits, "the given value");
	}
	catch (const Refused &refused)
	{
		throw Unreadable(refused.what());
	}
}

Anchors
anchors_of(const Options &options)
{
	Anchors anchors;

	for (const std::string &hash : options.hashes)
		anchors.add_hash(given_hash(hash));
	for (const std::string &pem : options.keys)
		anchors.keys.add(pem);
	return anchors;
}

template <typename Check>
int
status_of(Check check, std::ostream &out)
{
	try
	{
		return check() ? 0 : 1;
	}
	catch (const Refused &refused)
	{
		out << "REFUSED: " << refused.what() << ".\n";
		return 1;
	}
	catch (const Unreadable &unreadable)
	{
		out << "NOT CHECKED: " << unreadable.what() << ".\n";
		return 2;
	}
	catch (const std::exception &error)
	{
		out << "NOT CHECKED: " << error.what() << ".\n";
		return 2;
	}
}

} // namespace

int
proof_command(std::istream &in, const Options &options, std::ostream &out)
{
	return status_of(
		[&] {
			Anchors anchors = anchors_of(options);
			Trust trust;

			if (anchors.empty())
				throw Unreadable("give --hash or --key: without them a proof only agrees with itself");
			if (options.chain != nullptr)
				each_seal(*options.chain, [&](const Seal &seal) { trust.add(seal); });
			const std::string text{std::istreambuf_iterator<char>(in), {}};
			return check_proof(parse(text), std::move(trust), anchors, out);
		},
		out);
}

int
chain_command(std::istream &in, const Options &options, std::ostream &out)
{
	return status_of(
		[&] {
			Anchors anchors = anchors_of(options);
			std::optional<core::Hash> first_previous;

			if (!options.first_previous.empty())
				first_previous = given_hash(options.first_previous);
			return check_chain(in, first_previous, anchors, out);
		},
		out);
}

int
compare_command(std::istream &a, std::istream &b, std::ostream &out)
{
	return status_of([&] { return compare_leaves(a, b, out); }, out);
}

} // namespace outbox::verify
