// How long a retry waits.
//
// Guarantee: least(cap, base * 2^(attempt_no - 1)) for every attempt_no, without
// overflow; with jitter a pure function of (id, attempt_no), never above that.
#pragma once

#include <cstdint>

#include "ids.h"

namespace outbox::core {

int64_t backoff_us(int64_t base_us, int64_t cap_us, int attempt_no) noexcept;

// jitter in [0, 1]: the share of the delay that may be taken off.
int64_t jittered_backoff_us(int64_t base_us, int64_t cap_us, int attempt_no, double jitter, const Uuid &id) noexcept;

} // namespace outbox::core
