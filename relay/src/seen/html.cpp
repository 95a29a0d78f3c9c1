// Pieces of HTML, and lines as SVG.
//
// Guarantees: a line has its numbers beside it as text. The SVG holds the lines only and may be stretched; its words
// are HTML, so that they keep their size and wrap.
#include "seen/html.h"
#include "core/secret.h"

#include <algorithm>
#include <cmath>

#include <spdlog/fmt/chrono.h>
#include <spdlog/fmt/fmt.h>

namespace relay::html {

namespace {

// The least of 1, 2, 5, 10, 20 ... that is not below the value.
double
round_up(double value)
{
	double power = 1;

	while (power * 10 <= value)
	{
		power *= 10;
	}
	for (const double step : {1., 2., 5.})
	{
		if (value <= power * step)
		{
			return power * step;
		}
	}
	return power * 10;
}

double
greatest(const Rates &rates)
{
	double result = 0;

	for (const auto &value : rates)
	{
		result = std::max(result, value.value_or(0));
	}
	return result;
}

std::string
path(const Rates &rates, double top, std::string_view name)
{
	std::string points;
	bool drawing = false;

	for (size_t i = 0; i < rates.size(); i++)
	{
		if (rates[i])
		{
			points += fmt::format("{}{} {:.1f}", drawing ? "L" : "M", i, 100 - *rates[i] * 100 / top);
		}
		drawing = rates[i].has_value();
	}
	return points.empty() ? "" : fmt::format(R"(<path class="{}" d="{}"/>)", name, points);
}

std::string
legend(std::string_view css, std::string_view name, const Rates &rates)
{
	return fmt::format(R"(<li class="{}"><span>{}</span> <b>{}</b>/s now, at most <b>{}</b>/s</li>)", css, name,
					   rate(newest(rates)), rate(greatest(rates)));
}

} // namespace

std::string
text(std::string_view value)
{
	std::string result;

	for (const char c : redact(value))
	{
		switch (c)
		{
			case '&':
				result += "&amp;";
				break;
			case '<':
				result += "&lt;";
				break;
			case '>':
				result += "&gt;";
				break;
			case '"':
				result += "&quot;";
				break;
			case '\'':
				result += "&#39;";
				break;
			default:
				result += c;
		}
	}
	return result;
}

std::string
count(uint64_t value)
{
	auto result = std::to_string(value);

	for (size_t i = result.size(); i > 3; i -= 3)
	{
		result.insert(i - 3, ",");
	}
	return result;
}

std::string
rate(double a_second)
{
	return a_second > 0 && a_second < 9.95 ? fmt::format("{:.1f}", std::max(a_second, .1))
										   : count(static_cast<uint64_t>(std::llround(a_second)));
}

std::string
age(double seconds)
{
	const auto whole = [](double value) { return count(static_cast<uint64_t>(std::max(value, 0.))); };

	if (seconds < 120)
	{
		return whole(seconds) + " s";
	}
	if (seconds < 7200)
	{
		return whole(seconds / 60) + " min";
	}
	return seconds < 172800 ? whole(seconds / 3600) + " h" : whole(seconds / 86400) + " days";
}

std::string
utc(std::chrono::system_clock::time_point at)
{
	return fmt::format("{:%F %T} UTC", fmt::gmtime(std::chrono::system_clock::to_time_t(at)));
}

std::string
ago(std::chrono::system_clock::time_point at, std::chrono::system_clock::time_point now)
{
	const auto seconds = std::chrono::duration<double>(now - at).count();
	const auto words = seconds < 0 ? "in " + age(-seconds) : age(seconds) + " ago";

	return fmt::format(R"(<time datetime="{:%FT%TZ}" title="{}">{}</time>)",
					   fmt::gmtime(std::chrono::system_clock::to_time_t(at)), utc(at), words);
}

std::string
lasting(double seconds)
{
	return fmt::format(R"(<span title="{:.1f} s">{}</span>)", seconds, age(seconds));
}

std::string
state(std::string_view word, std::string_view kind)
{
	return fmt::format(R"(<span class="state {}">{}</span>)", kind, word);
}

double
newest(const Rates &rates)
{
	return rates.empty() ? 0 : rates.back().value_or(0);
}

std::string
chart(std::string_view title, std::string_view first_name, const Rates &first, std::string_view second_name,
	  const Rates &second)
{
	const double top = round_up(std::max(greatest(first), greatest(second)));

	return fmt::format(R"(<figure class="chart"><figcaption>{0}</figcaption><p class="top">{1}/s</p>)"
					   R"(<svg viewBox="0 0 {2} 100" preserveAspectRatio="none" aria-hidden="true">)"
					   R"(<path class="grid" d="M0 0H{2}M0 50H{2}M0 100H{2}"/>{3}{4}</svg>)"
					   R"(<p class="time"><span>15 min ago</span><span>now</span></p><ul>{5}{6}</ul></figure>)",
					   text(title), count(static_cast<uint64_t>(top)), History::length - 1, path(first, top, "first"),
					   path(second, top, "second"), legend("first", first_name, first),
					   second_name.empty() ? "" : legend("second", second_name, second));
}

} // namespace relay::html
