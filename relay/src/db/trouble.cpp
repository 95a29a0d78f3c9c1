// See trouble.h.
#include "db/trouble.h"

#include "core/secret.h"

#include <algorithm>
#include <span>

namespace relay {

namespace {

struct Remedy {
	std::string_view sqlstate, what;
};

constexpr std::string_view invalid_password = "28P01", read_only = "25006";

constexpr Remedy read_only_remedy{
	read_only,
	"the server is a standby or read-only: promote it, name the primary in dsn (host=db1,db2 takes the one that "
	"accepts writes), or turn default_transaction_read_only off"};

constexpr Remedy of_connections[] = {
	{invalid_password, "the role does not exist, or its password is another one: check user and password of dsn"},
	{"28000",
	 "the role does not exist or may not log in, or pg_hba.conf does not let it in from here: check user of dsn, "
	 "the role's LOGIN, and pg_hba.conf"},
	{"3D000", "there is no such database: check dbname of dsn"},
	{"53300",
	 "no connection is left, and the relay takes two a source: raise max_connections, or the CONNECTION LIMIT of "
	 "the role or the database, or end other sessions"},
	{"42501",
	 "the role may not connect to this database (GRANT CONNECT ON DATABASE to it), or may not set what dsn has in options"},
	{"55000", "the database takes no connections: ALTER DATABASE with ALLOW_CONNECTIONS true"},
	{"57P03", "the server is starting, stopping or recovering: the relay goes on when that is over"},
	read_only_remedy,
};

constexpr Remedy of_statements[] = {
	{"42501", "the role needs outbox_executor: GRANT outbox_executor TO it"},
	{"3F000", "the database does not have the extension: CREATE EXTENSION outbox"},
	{"42883", "the extension in the database is of another version than the relay: ALTER EXTENSION outbox UPDATE"},
	read_only_remedy,
};

std::string_view
find(std::span<const Remedy> remedies, std::string_view sqlstate)
{
	const auto found =
		std::find_if(remedies.begin(), remedies.end(), [&](const Remedy &one) { return one.sqlstate == sqlstate; });
	return found == remedies.end() ? "" : found->what;
}

bool
is_sqlstate(std::string_view text)
{
	return text.size() == 5 && std::all_of(text.begin(), text.end(),
										   [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z'); });
}

// "SEVERITY:  SQLSTATE: message" becomes "SEVERITY:  message".
std::string
take_sqlstates(std::string_view line, std::string &last)
{
	constexpr std::string_view before = ":  ", after = ": ";
	constexpr size_t length = 5;
	const size_t place = line.find(before);

	if (place == line.npos)
		return std::string(line);
	const std::string_view code = line.substr(place + before.size(), length);
	const std::string_view rest = line.substr(std::min(line.size(), place + before.size() + code.size()));
	if (!is_sqlstate(code) || !rest.starts_with(after))
		return std::string(line);
	last = code;
	return std::string(line.substr(0, place + before.size())).append(rest.substr(after.size()));
}

} // namespace

bool
Trouble::refused() const
{
	// The server ends, starts, or has lost the connection.
	return !code.empty() && !code.starts_with("57P") && !code.starts_with("08");
}

std::string
Trouble::said() const
{
	return refused() ? "it refuses the relay (" + code + "): " + text : text;
}

// Joins the lines by "; ".
Trouble
connection_trouble(std::string_view verbose)
{
	Trouble trouble;

	while (!verbose.empty())
	{
		const std::string_view line = verbose.substr(0, verbose.find('\n'));
		const size_t begin = std::min(line.find_first_not_of(" \t"), line.size());

		verbose.remove_prefix(std::min(verbose.size(), line.size() + 1));
		if (begin == line.size() || line.starts_with("LOCATION:  ")) // in the server's source
			continue;
		trouble.text += (trouble.text.empty() ? "" : "; ") + take_sqlstates(line.substr(begin), trouble.code);
	}
	trouble.text = with_remedy(redact(trouble.text), connection_remedy(trouble.code));
	return trouble;
}

Trouble
read_only_trouble(std::string text)
{
	return {std::string(read_only), with_remedy(std::move(text), connection_remedy(read_only))};
}

Trouble
password_trouble(std::string text)
{
	return {std::string(invalid_password),
			with_remedy(std::move(text), "the server asks for a password, and there is none: set password in dsn")};
}

std::string_view
connection_remedy(std::string_view sqlstate)
{
	return find(of_connections, sqlstate);
}

std::string_view
statement_remedy(std::string_view sqlstate)
{
	return find(of_statements, sqlstate);
}

std::string
with_remedy(std::string text, std::string_view remedy)
{
	return remedy.empty() ? text : text.append("; ").append(remedy);
}

} // namespace relay
