// verify_seals: whether what was sealed has been changed since.
//
// Guarantees: see seals/verifying.h. It only reads, also on a standby.

#include "rows/call.h"
#include "seals/verifying.h"
#include "server/args.h"
#include "server/boundary.h"
#include "server/settings.h"

namespace outbox {

namespace {

constexpr int verify_columns = 3;

void
put_found_seal(void *fcinfo, int64 seal_no, bool ok, const char *problem)
{
	Datum values[verify_columns] = {Int64GetDatum(seal_no), BoolGetDatum(ok),
									problem != nullptr ? CStringGetTextDatum(problem) : static_cast<Datum>(0)};
	bool nulls[verify_columns] = {false, false, problem == nullptr};

	put_result(static_cast<FunctionCallInfo>(fcinfo), values, nulls);
}

} // namespace

OUTBOX_FUNCTION(outbox_verify_seals)
{
	int64 from_no = PG_ARGISNULL(0) ? 1 : PG_GETARG_INT64(0);
	int64 to_no = PG_ARGISNULL(1) ? PG_INT64_MAX : PG_GETARG_INT64(1);
	int level;
	Call call;

	check_at_least(from_no, 1, "from_seal");
	check_at_least(to_no, from_no, "to_seal");
	require_read_committed("verify_seals()");
	begin_results(fcinfo, verify_columns);
	begin_reading(&call);
	level = pin_for_seals();
	verify(from_no, to_no, put_found_seal, fcinfo);
	AtEOXact_GUC(true, level);
	end_reading(&call);
	return static_cast<Datum>(0);
}

} // namespace outbox
