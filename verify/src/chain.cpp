// See chain.h.
//
// Shape: of the seals one is kept, so that a chain may be of any length.
#include "chain.h"

#include <string>

#include "findings.h"
#include "texts.h"

namespace outbox::verify {

namespace {

struct Walk {
	std::optional<Seal> first;
	std::optional<Seal> last;
	int64_t covered = 0; // the last seal that is an anchor: it stands for all before it
	int64_t rows[core::sealed_tables] = {};
	int64_t signatures = 0;
};

void
go_on(Walk *walk, const Seal &seal, Anchors &anchors)
{
	if (walk->last)
		require_link(*walk->last, seal);
	else
		walk->first = seal;
	if (anchors.holds(seal))
		walk->covered = seal.seal_no;
	walk->signatures += !seal.key_id.empty();
	for (const Part &part : seal.parts)
		for (int i = 0; i < core::sealed_tables; i++)
			require(part.table != core::sealed_forms[i]->table ||
						!__builtin_add_overflow(walk->rows[i], part.rows, &walk->rows[i]),
					"the seals have too many rows");
	walk->last = seal;
}

void
show(const Walk &walk, std::ostream &out)
{
	out << "Seals " << walk.first->seal_no << " to " << walk.last->seal_no << ": recorded from "
		<< time_text(walk.first->from) << " to before " << time_text(walk.last->to) << ", without a gap";
	for (int i = 0; i < core::sealed_tables; i++)
		out << (i == 0 ? ": " : ", ") << walk.rows[i] << " rows of " << core::sealed_forms[i]->table;
	out << ".\nThe hash of the last one is " << to_hex(walk.last->hash) << ".\n";
	out << "Each names the hash of the one before, and agrees with its own parts, counts and hash. " << walk.signatures
		<< " of them are signed.\n";
}

bool
tell_what_is_covered(const Walk &walk, const Anchors &anchors, std::ostream &out)
{
	if (anchors.empty())
	{
		out << "NOT PROVEN: that this is the chain that was made then. It only agrees with itself, as a forged one would: "
			   "compare a hash that was printed, or give --hash or --key.\n";
		return true;
	}
	if (walk.covered > 0)
		out << "PROVEN: seals " << walk.first->seal_no << " to " << walk.covered
			<< " are what the given hash or key stands for.\n";
	if (walk.covered < walk.last->seal_no)
		out << "NOT PROVEN: seals " << (walk.covered > 0 ? walk.covered + 1 : walk.first->seal_no) << " to "
			<< walk.last->seal_no << ": nothing that was given stands for them.\n";
	return walk.covered == walk.last->seal_no;
}

} // namespace

void
each_seal(std::istream &in, const std::function<void(const Seal &)> &take)
{
	std::string line;

	for (int64_t number = 1; std::getline(in, line); number++)
	{
		if (line.find_first_not_of(" \t\r") == std::string::npos)
			continue;
		const std::string where = "line " + std::to_string(number) + ": ";
		try
		{
			take(read_seal(parse(line)));
		}
		catch (const Refused &refused)
		{
			throw Refused(where + refused.what());
		}
		catch (const Unreadable &unreadable)
		{
			throw Unreadable(where + unreadable.what());
		}
	}
	if (in.bad())
		throw Unreadable("the seals could not be read");
}

bool
check_chain(std::istream &in, const std::optional<core::Hash> &first_previous, Anchors &anchors, std::ostream &out)
{
	Walk walk;

	each_seal(in, [&](const Seal &seal) {
		require(walk.first || !first_previous || seal.previous == first_previous,
				name_of(seal) + " does not follow the seal whose hash was given as the one before");
		go_on(&walk, seal, anchors);
	});
	require(walk.first.has_value(), "there are no seals");
	anchors.require_all_met();
	show(walk, out);
	if (walk.first->seal_no > 1 && !first_previous)
		out << "NOT CHECKED: what was before seal " << walk.first->seal_no << ".\n";
	return tell_what_is_covered(walk, anchors, out);
}

} // namespace outbox::verify
