// The codes of the sink postgres: SQLSTATE_ + the SQLSTATE, and POSTGRES_... where there is none.
#pragma once

#include "core/taxonomy.h"

#include <span>
#include <string>
#include <string_view>

namespace relay::postgres {

std::span<const Code> codes();

// SQLSTATE_22P02; SQLSTATE_22XXX for one of a known class that the table does not have.
std::string code_of(std::string_view sqlstate);

// What another batch would meet as well: the batch is not divided to find the row whose fault it is.
bool concerns_the_batch(std::string_view sqlstate);

} // namespace relay::postgres
