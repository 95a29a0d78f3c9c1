// complete_and_claim: a worker reports a batch and takes the next, in one statement.
//
// Guarantees: it is complete_batch and then claim, by the same code, in one transaction. A wrong
// argument of either half is an ERROR before anything is written. Once the reports are settled, the
// claim does not fail, and the reports with it, because of a single row or because another session
// changes or drops a queue.
//
// Shape: there is one Call, because opening the tables twice would cost what is to be saved. The
// claim is a new command in it: it sees the changes of the reports, reads the clock again, and reads
// the queues again, because the reports may have waited.

#include "server/boundary.h"
#include "verbs/claim.h"
#include "verbs/complete.h"
#include "message/queue.h"

namespace outbox {

namespace {

enum { kind, outbox_id, attempt_no, recorded, next_attempt_at, error, first_of_message };
constexpr int columns = first_of_message + claim_columns - 1;

void
put_row(FunctionCallInfo fcinfo, const char *which, const Datum *from, const bool *from_nulls, int count, int rest)
{
	Datum values[columns] = {};
	bool nulls[columns];

	memset(nulls, true, sizeof(nulls));
	values[kind] = CStringGetTextDatum(which);
	nulls[kind] = false;
	for (int i = 0; i < count; i++)
	{
		// Both halves begin with the message; then follow the columns of each.
		int column = i == 0 ? static_cast<int>(outbox_id) : rest + i - 1;

		values[column] = from[i];
		nulls[column] = from_nulls[i];
	}
	put_result(fcinfo, values, nulls);
}

void
put_completed_half(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	put_row(fcinfo, "completed", values, nulls, error - outbox_id + 1, attempt_no);
}

void
put_claimed_half(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	put_row(fcinfo, "claimed", values, nulls, claim_columns, first_of_message);
}

} // namespace

OUTBOX_FUNCTION(outbox_complete_and_claim)
{
	Reports reports = reports_argument(fcinfo);
	Claim claim = claim_arguments(fcinfo, 10, 13);
	Call call;

	claim.put = put_claimed_half;
	begin_results(fcinfo);
	begin_call(&call, "complete_and_claim()");
	queues_to_claim(&call, claim.queues);
	settle_reports(&call, &reports);
	put_reports(&call, &reports, fcinfo, put_completed_half);
	begin_next_command(&call);
	claim_due(&call, &claim);
	end_call(&call);
	return static_cast<Datum>(0);
}

} // namespace outbox
