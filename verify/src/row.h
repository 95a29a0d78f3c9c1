// One row of a proof: its columns, its leaf and the way from there to the root of a seal.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "json.h"
#include "seal.h"

namespace outbox::verify {

struct Row {
	const core::Form *form;
	std::string partition;
	std::vector<std::optional<std::string>> values; // their bytes, in the order of the form
	std::optional<int64_t> seal_no;                 // none: not sealed yet
	int64_t index = 0;                              // in its part, from 0
	int64_t rows = 0;                               // of its part

	// The bytes of a column that cannot be NULL; or Refused.
	const std::string &value(std::string_view column) const;
	std::string text(size_t column) const; // "NULL" where it is
	bool is_of(const core::Form &other) const { return form == &other; }
};

// Refused, if the columns are not exactly those of the form, or their bytes no values of their types.
Row read_row(const Json &json);

// Refused, if the row is not in this seal where the proof says, or its time is not in the window.
void require_sealed(const Json &json, const Row &row, const Seal &seal);

} // namespace outbox::verify
