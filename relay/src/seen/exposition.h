// Texts in Prometheus' format, put together.
//
// Guarantees: each metric is there once, with its first help and type, and the samples of all texts, so that a scraper
// accepts the whole whatever names the texts share. A sample that is given a label keeps its own.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace relay {

class Exposition {
public:
	// Each sample gets the label, such as `database="main"`, unless that is empty.
	void add(std::string_view text, std::string_view label = {});
	[[nodiscard]] std::string text() const; // by name

private:
	struct Metric {
		std::string head, samples;
	};
	std::map<std::string, Metric, std::less<>> metrics;
};

// NAME="VALUE", escaped.
std::string label_of(std::string_view name, std::string_view value);

} // namespace relay
