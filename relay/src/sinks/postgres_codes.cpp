// Every SQLSTATE of PostgreSQL by class, with those that differ from their class, and what has no SQLSTATE.
//
// How the classes are chosen: `message` is what the values of a row bring about, whenever it comes: data that a type or
// a constraint does not take, and class P8, by which a function says so itself. `sink` is a server that takes nothing
// now. What a function's code brings about (class 42, RAISE without a code) is `moment`: it may hold for one row only,
// and the function can be mended. That the function itself is missing is found when the sink connects, and after each
// error of class 42, and is a code of its own.
#include "sinks/postgres_codes.h"

#include <algorithm>
#include <array>
#include <deque>
#include <vector>

namespace relay::postgres {

namespace {

using enum Fault;

struct Class {
	std::string_view prefix;
	Fault fault;
	std::string_view why;
	std::string_view rest; // of each code that PostgreSQL has
	bool of_batch = false;
};

constexpr std::array own{
	Code{"POSTGRES_CONNECTION_FAILED", sink, "no connection: refused, not found, or the login or TLS is refused"},
	Code{"POSTGRES_CONNECTION_LOST", sink, "the connection broke; the batch may be committed"},
	Code{"POSTGRES_TIMEOUT", moment, "the function did not return in time; the batch may be committed"},
	Code{"POSTGRES_FUNCTION_NOT_FOUND", sink, "the database has no function of this name and these arguments"},
	Code{"POSTGRES_FUNCTION_FORBIDDEN", sink, "the role has no right to execute the function"},
	Code{"POSTGRES_ZERO_BYTE", message, "text and jsonb cannot hold a zero byte; a function that takes bytea[] can"},
};

// Before the classes: the first row of a code counts.
constexpr std::array exceptions{
	Code{"SQLSTATE_23503", moment, "refers to a row that may come with a message of another key"},
	Code{"SQLSTATE_25006", sink, "the server is a standby or read-only"},
	Code{"SQLSTATE_53200", moment, "out of memory, of which one batch may need too much"},
	Code{"SQLSTATE_53400", moment, "a limit of the configuration is reached"},
	Code{"SQLSTATE_57000", moment, "an operator intervened"},
	Code{"SQLSTATE_57014", moment, "cancelled, by statement_timeout or an operator"},
};

constexpr std::array classes{
	Class{"00", moment, "not an error", "000"},
	Class{"01", moment, "a warning that was made an error", "000 003 004 006 007 008 00C P01"},
	Class{"02", moment, "a query of the function found nothing", "000 001"},
	Class{"03", moment, "the function's code", "000"},
	Class{"08", sink, "the connection failed", "000 001 003 004 006 007 P01", true},
	Class{"09", moment, "a trigger's code", "000"},
	Class{"0A", moment, "the function uses what the server does not have", "000"},
	Class{"0B", moment, "the function's code", "000"},
	Class{"0F", moment, "the function's code", "000 001"},
	Class{"0L", moment, "a right is missing", "000 P01"},
	Class{"0P", moment, "a role is missing", "000"},
	Class{"0Z", moment, "the function's code", "000 002"},
	Class{"20", moment, "a CASE of the function has no branch for it", "000"},
	Class{"21", moment, "a query of the function found too many rows", "000"},
	Class{
		"22", message, "a value that a type or an operator does not take",
		"000 001 002 003 004 005 007 008 009 00B 00C 00D 00F 00G 00H 00L 00M 00N 00S 00T 010 011 012 013 014 015 016 018 "
		"019 01B 01E 01F 01G 01W 01X 021 022 023 024 025 026 027 02E 02G 02H 030 031 032 033 034 035 036 037 038 039 03A "
		"03B 03C 03D 03E 03F 03G P01 P02 P03 P04 P05 P06 P07"},
	Class{"23", message, "a constraint refuses it", "000 001 502 505 514 P01"},
	Class{"24", moment, "the function's code", "000"},
	Class{"25", moment, "the state of the transaction", "000 001 002 003 004 005 007 008 P01 P02 P03 P04"},
	Class{"26", moment, "a prepared statement is gone", "000"},
	Class{"27", moment, "a trigger changed the same row", "000"},
	Class{"28", sink, "the login is refused", "000 P01", true},
	Class{"2B", moment, "the function's code", "000 P01"},
	Class{"2D", moment, "the function ends the transaction, which it must not", "000"},
	Class{"2F", moment, "the function's code", "000 002 003 004 005"},
	Class{"34", moment, "the function's code", "000"},
	Class{"38", moment, "an external routine's code", "000 001 002 003 004"},
	Class{"39", moment, "an external routine's code", "000 001 004 P01 P02 P03"},
	Class{"3B", moment, "the function's code", "000 001"},
	Class{"3D", sink, "the database does not exist", "000", true},
	Class{"3F", moment, "a schema is missing", "000"},
	Class{"40", moment, "a conflict with another transaction", "000 001 002 003 P01", true},
	Class{
		"42", moment, "the function's code does not fit the database, or a right is missing",
		"000 501 601 602 611 622 701 702 703 704 710 712 723 725 803 804 809 830 846 883 8C9 939 P01 P02 P03 P04 P05 P06 "
		"P07 P08 P09 P10 P11 P12 P13 P14 P15 P16 P17 P18 P19 P20 P21 P22"},
	Class{"44", message, "a view with CHECK OPTION refuses it", "000"},
	Class{"53", sink, "the server has no disk space or no connection left", "000 100 300", true},
	Class{"54", message, "larger than PostgreSQL's limits allow", "000 001 011 023"},
	Class{"55", moment, "something is locked or in use", "000 006 P02 P03 P04", true},
	Class{"57", sink, "the server starts, stops or recovers", "P01 P02 P03 P04 P05", true},
	Class{"58", moment, "the server's disk or files", "000 030 P01 P02", true},
	Class{"72", moment, "a snapshot is too old", "000"},
	Class{"F0", moment, "the server's configuration", "000 001", true},
	Class{
		"HV", moment, "a foreign server that the function uses",
		"000 001 002 004 005 006 007 008 009 00A 00B 00C 00D 00J 00K 00L 00M 00N 00P 00Q 00R 010 014 021 024 090 091"},
	Class{"P0", moment, "the function raised it, without saying that it is for good", "000 001 002 003 004"},
	Class{"P7", moment, "outbox or its companions, called by the function", ""},
	Class{"P8", message, "the function says that this message will never be accepted", "000"},
	Class{"XX", moment, "an internal error of the server", "000 001 002"},
};

const Class *
class_of(std::string_view sqlstate)
{
	auto found = std::find_if(classes.begin(), classes.end(),
							  [&](const Class &one) { return sqlstate.starts_with(one.prefix); });
	return found == classes.end() ? nullptr : &*found;
}

std::string
name(std::string_view sqlstate)
{
	return "SQLSTATE_" + std::string(sqlstate);
}

struct Table {
	std::deque<std::string> names; // stay where they are
	std::vector<Code> codes;

	Table() : codes(own.begin(), own.end())
	{
		codes.insert(codes.end(), exceptions.begin(), exceptions.end());
		for (const Class &one : classes)
		{
			for (size_t at = 0; at < one.rest.size(); at += 4)
				add(one, one.rest.substr(at, 3));
			add(one, "XXX");
		}
	}
	void add(const Class &of, std::string_view rest)
	{
		codes.push_back({names.emplace_back(name(std::string(of.prefix) + std::string(rest))), of.fault, of.why});
	}
	[[nodiscard]] bool has(const std::string &code) const
	{
		return std::any_of(codes.begin(), codes.end(), [&](const Code &one) { return one.code == code; });
	}
};

const Table &
table()
{
	static const Table made;
	return made;
}

} // namespace

std::span<const Code>
codes()
{
	return table().codes;
}

std::string
code_of(std::string_view sqlstate)
{
	std::string exact = name(sqlstate);
	if (table().has(exact) || !class_of(sqlstate))
		return exact;
	return name(std::string(sqlstate.substr(0, 2)) + "XXX");
}

bool
concerns_the_batch(std::string_view sqlstate)
{
	const Class *found = class_of(sqlstate);
	return sqlstate == "25006" || (found && found->of_batch && sqlstate != "53200");
}

} // namespace relay::postgres
