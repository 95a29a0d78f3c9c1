// See proof.h.
#include "proof.h"

#include <algorithm>

#include "findings.h"
#include "row.h"
#include "texts.h"

namespace outbox::verify {

namespace {

bool
is_terminal(const Row &row)
{
	const std::string &state = row.value("state");

	return state == "DISPATCHED" || state == "FAILED";
}

int64_t
attempt_no(const Row &row)
{
	return read_number(row.value("attempt_no"));
}

// As "attempt 2".
std::string
name_of(const Row &row)
{
	if (row.is_of(core::message_form))
		return "the message";
	return row.is_of(core::attempt_form) ? "attempt " + std::to_string(attempt_no(row))
										 : "event " + uuid_text(row.value("event_id"));
}

// What the rows of a proof are together.
struct Proof {
	std::string outbox_id; // its bytes
	std::vector<Row> rows;
	int64_t attempts = 0;
	const Row *terminal = nullptr;
};

// Of an array of uuids, whose form was checked: whether this one is among them.
bool
names(const std::string &array, const std::string &id)
{
	for (size_t at = 4 + 8 * static_cast<size_t>(read_number(std::string_view(array).substr(0, 4))); at < array.size();)
	{
		const int64_t size = read_number(std::string_view(array).substr(at, 4));

		if (size >= 0 && array.compare(at + 4, static_cast<size_t>(size), id) == 0)
			return true;
		at += 4 + static_cast<size_t>(std::max<int64_t>(size, 0));
	}
	return false;
}

void
require_of_message(const Row &row, const std::string &outbox_id)
{
	if (row.is_of(core::event_form))
		require(names(row.value("outbox_ids"), outbox_id), name_of(row) + " does not name the message");
	else
		require(row.value("outbox_id") == outbox_id,
				"a row is of another message: " + uuid_text(row.value("outbox_id")));
}

// The message, then its attempts from 1 without a gap, then events in the order of their ids.
void
require_order(Proof *proof)
{
	for (size_t i = 1; i < proof->rows.size(); i++)
	{
		const Row &row = proof->rows[i];
		const Row &before = proof->rows[i - 1];

		require(!row.is_of(core::message_form), "there is more than one message");
		if (row.is_of(core::event_form))
		{
			require(!before.is_of(core::event_form) || before.value("event_id") < row.value("event_id"),
					"the events are not in order");
			continue;
		}
		require(!before.is_of(core::event_form), "an attempt comes after an event");
		proof->attempts++;
		require(attempt_no(row) == proof->attempts,
				"attempt " + std::to_string(proof->attempts) + " is missing: the rows go on with " + name_of(row));
		require(proof->terminal == nullptr, name_of(row) + " comes after the one that ended the message");
		if (is_terminal(row))
			proof->terminal = &row;
	}
}

Proof
read_proof(const Json &json)
{
	Proof proof;

	require_keys(json, "the proof", {"format", "outbox_id", "rows", "seals"});
	require(text_of(json, "format") == "outbox proof 1", "the format is not \"outbox proof 1\"");
	for (const Json &row : array_of(json, "rows"))
		proof.rows.push_back(read_row(row));
	require(!proof.rows.empty() && proof.rows[0].is_of(core::message_form), "the first row is not the message");
	proof.outbox_id = proof.rows[0].value("outbox_id");
	require(uuid_text(proof.outbox_id) == text_of(json, "outbox_id"),
			"the message is not the one that outbox_id names");
	for (const Row &row : proof.rows)
		require_of_message(row, proof.outbox_id);
	return proof;
}

void
add_seals(const Json &json, Trust *trust)
{
	int64_t before = 0;

	for (const Json &one : array_of(json, "seals"))
	{
		const Seal seal = read_seal(one);
		require(seal.seal_no > before, "the seals are not in order");
		before = seal.seal_no;
		trust->add(seal);
	}
}

void
show(const Row &row, const Trust &trust, std::ostream &out)
{
	std::string title = name_of(row);
	title[0] = static_cast<char>(toupper(title[0]));

	out << title;
	if (!row.seal_no)
		out << ", not sealed yet:\n";
	else
	{
		const Seal &seal = *trust.find(*row.seal_no);
		out << ", row " << row.index + 1 << " of " << row.rows << " in " << row.form->table << ", partition \""
			<< printable(row.partition) << "\", sealed in " << name_of(seal) << " (recorded from "
			<< time_text(seal.from) << " to before " << time_text(seal.to) << ")"
			<< (trust.has(seal.seal_no) ? "" : ", WHICH IS NOT PROVEN") << ":\n";
	}
	for (size_t i = 0; i < row.values.size(); i++)
		out << "    " << row.form->columns[i].name << " = " << row.text(i) << "\n";
}

bool
is_proven(const Row &row, const Trust &trust)
{
	return row.seal_no && trust.has(*row.seal_no);
}

// What an auditor might believe to have been told, and was not. True: each row is proven.
bool
tell_what_is_open(const Proof &proof, const Trust &trust, std::ostream &out)
{
	bool all = true;

	for (const Row &row : proof.rows)
	{
		if (is_proven(row, trust))
			continue;
		all = false;
		out << "NOT PROVEN: " << name_of(row)
			<< (row.seal_no ? ": nothing that was given stands for seal " + std::to_string(*row.seal_no) +
								  ". Give the hash of that seal, or a later one and by --chain the seals up to it.\n"
							: " is not sealed yet. Ask for the proof again after the next seal.\n");
	}
	if (proof.terminal == nullptr)
		out << "NOT PROVEN: how the message ended. No attempt that ended it is here: it may be pending still, or later "
			   "attempts were left out.\n";
	return all;
}

void
tell_what_is_proven(const Proof &proof, const Trust &trust, std::ostream &out)
{
	for (const Row &row : proof.rows)
		if (is_proven(row, trust))
			out << "PROVEN: " << name_of(row) << " was recorded as shown when seal " << *row.seal_no
				<< " was made, and is unchanged.\n";
	if (proof.terminal != nullptr && is_proven(*proof.terminal, trust))
		out << "PROVEN: the message ended as " << printable(proof.terminal->value("state")) << " with attempt "
			<< proof.attempts << ". All its attempts are here.\n";
}

} // namespace

bool
check_proof(const Json &json, Trust trust, Anchors &anchors, std::ostream &out)
{
	Proof proof = read_proof(json);

	require_order(&proof);
	add_seals(json, &trust);
	for (size_t i = 0; i < proof.rows.size(); i++)
	{
		const Row &row = proof.rows[i];
		const Seal *seal = row.seal_no ? trust.find(*row.seal_no) : nullptr;

		require(!row.seal_no || seal != nullptr, name_of(row) + ": its seal is not in the proof");
		if (seal != nullptr)
			require_sealed(json["rows"][i], row, *seal);
	}
	trust.judge(anchors);
	for (const Row &row : proof.rows)
		show(row, trust, out);
	tell_what_is_proven(proof, trust, out);
	return tell_what_is_open(proof, trust, out);
}

} // namespace outbox::verify
