// Batches of reports, for complete_batch and complete_and_claim.
//
// Guarantees: as in complete.cpp. A fault of the arguments as a whole is an ERROR before anything is
// read. A fault of one report is returned in its row.
#pragma once

#include "server/args.h"
#include "rows/call.h"

namespace outbox {

struct TryReport;

struct Reports {
	text *worker;
	ArrayArg ids;
	ArrayArg tokens;
	ArrayArg states;
	ArrayArg references;
	ArrayArg response_codes;
	ArrayArg error_codes;
	ArrayArg error_messages;
	ArrayArg latencies;
	ArrayArg delays;
	TryReport *settled; // in the order of the input
};

// The first ten arguments of the function, which are those of complete_batch.
Reports reports_argument(FunctionCallInfo fcinfo);

void settle_reports(Call *call, Reports *reports);

// One row for each, as complete_batch answers.
void put_reports(Call *call, const Reports *reports, FunctionCallInfo fcinfo, PutRow put);

} // namespace outbox
