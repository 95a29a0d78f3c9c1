#include "seen/exposition.h"

namespace relay {

namespace {

// Up to the separator, which is taken off as well.
std::string_view
cut(std::string_view &text, char separator)
{
	const auto end = text.find(separator);
	const auto first = text.substr(0, end);

	text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
	return first;
}

// Of "# HELP NAME ..." and "# TYPE NAME ...": the name; else nothing.
std::string_view
named(std::string_view line)
{
	if (!line.starts_with("# HELP ") && !line.starts_with("# TYPE "))
		return {};
	line.remove_prefix(7);
	return cut(line, ' ');
}

std::string
labelled(std::string_view sample, std::string_view label)
{
	const auto end = sample.find_first_of("{ ");
	std::string result(sample.substr(0, end));

	if (label.empty() || end == std::string_view::npos)
		return std::string(sample);
	result.append("{").append(label);
	if (sample[end] == '{')
		return result.append(",").append(sample.substr(end + 1));
	return result.append("}").append(sample.substr(end));
}

} // namespace

void
Exposition::add(std::string_view text, std::string_view label)
{
	Metric *metric = nullptr;
	bool known = false;

	while (!text.empty())
	{
		const auto line = cut(text, '\n');
		const auto name = named(line);

		if (!name.empty())
		{
			const auto [place, is_new] = metrics.try_emplace(std::string(name));
			known = metric == &place->second ? known : !is_new;
			metric = &place->second;
		}
		if (metric && !name.empty() && !known)
			metric->head.append(line).append("\n");
		else if (metric && name.empty() && !line.empty())
			metric->samples.append(labelled(line, label)).append("\n");
	}
}

std::string
Exposition::text() const
{
	std::string result;

	for (const auto &[name, metric] : metrics)
		result.append(metric.head).append(metric.samples);
	return result;
}

std::string
label_of(std::string_view name, std::string_view value)
{
	std::string result(name);

	result += "=\"";
	for (const char c : value)
		result += c == '\n' ? "\\n" : c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
	return result + "\"";
}

} // namespace relay
