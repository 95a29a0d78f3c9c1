#include "db/conninfo.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>

#include <libpq-fe.h>

namespace relay {

namespace {

using Options = std::unique_ptr<PQconninfoOption, void (*)(PQconninfoOption *)>;

Options
parse(const std::string &dsn, std::string *problem)
{
	char *text = nullptr;
	Options options(PQconninfoParse(dsn.c_str(), &text), PQconninfoFree);
	if (text && problem)
		*problem = text;
	PQfreemem(text);
	return options;
}

std::string_view
value_of(const Options &options, std::string_view keyword)
{
	for (const PQconninfoOption *one = options.get(); one && one->keyword; one++)
		if (one->keyword == keyword && one->val)
			return one->val;
	return {};
}

bool
is_set(const Options &options, std::string_view keyword, const char *variable)
{
	return !value_of(options, keyword).empty() || getenv(variable);
}

bool
is_local(std::string_view host)
{
	return host.empty() || host[0] == '/' || host[0] == '@' || host == "localhost" || host == "::1" ||
		   host.starts_with("127.");
}

// Of several hosts each.
bool
all_local(std::string_view hosts)
{
	for (size_t begin = 0; begin <= hosts.size();)
	{
		size_t end = std::min(hosts.find(',', begin), hosts.size());
		if (!is_local(hosts.substr(begin, end - begin)))
			return false;
		begin = end + 1;
	}
	return true;
}

std::string_view
hosts_of(const Options &options)
{
	std::string_view addresses = value_of(options, "hostaddr"), hosts = value_of(options, "host");
	const char *variable = getenv("PGHOST");
	return !addresses.empty() ? addresses : !hosts.empty() || !variable ? hosts : variable;
}

std::string
trimmed(std::string text)
{
	text.erase(text.find_last_not_of(" \n") + 1);
	return text;
}

} // namespace

std::vector<std::pair<const char *, std::string>>
connection_defaults(const Secret &dsn)
{
	std::vector<std::pair<const char *, std::string>> values = {{"keepalives_idle", "10"},
																{"keepalives_interval", "5"},
																{"keepalives_count", "3"},
																{"tcp_user_timeout", "25000"}};
	Options options = parse(dsn.reveal(), nullptr);
	bool chosen = is_set(options, "sslmode", "PGSSLMODE") || is_set(options, "service", "PGSERVICE");
	if (!chosen && !all_local(hosts_of(options)))
	{
		values.emplace_back("sslmode", "verify-full");
		if (!is_set(options, "sslrootcert", "PGSSLROOTCERT"))
			// Older than 16, libpq does not know the system's authorities by name.
			values.emplace_back("sslrootcert",
								PQlibVersion() >= 160000 ? "system" : "/etc/ssl/certs/ca-certificates.crt");
	}
	return values;
}

std::optional<std::string>
problem_of(const Secret &dsn)
{
	std::string problem = "cannot be parsed";
	Options options = parse(dsn.reveal(), &problem);
	if (!options)
		return trimmed(std::move(problem));
	for (const char *keyword : {"password", "sslpassword"})
		Secret(std::string(value_of(options, keyword)));
	return {};
}

} // namespace relay
