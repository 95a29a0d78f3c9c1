// Leasing what is due: what claim and complete_and_claim share.
//
// Guarantees: as in claim.cpp.
#pragma once

#include "verbs/candidate.h"

namespace outbox {

// The first argument is the worker. batch_size, lease and queues are consecutive, from `first` on.
Claim claim_arguments(FunctionCallInfo fcinfo, int first, int weights_arg);

// Leases from those of the queues that exist, and puts the results.
void claim_due(Call *call, Claim *claim);

} // namespace outbox
