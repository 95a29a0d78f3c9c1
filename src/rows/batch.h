// The items of a batch, where one of them may fail and the others go on.
//
// Guarantee: what fails is undone alone, and is reported with its SQLSTATE. Items that
// cannot fail alone go straight through, and cost no subtransaction.
#pragma once

#include "rows/call.h"
#include "server/boundary.h"

namespace outbox {

// Runs body(call, first, count) over n items; where one can fail alone, in
// subtransactions, with failed(i, error) for each that failed.
template <typename Body, typename Failed>
void
each_item(Call *call, int n, bool may_fail_alone, const Body &body, const Failed &failed,
		  Confine confine = Confine::row_errors)
{
	if (!may_fail_alone)
	{
		body(call, 0, n);
		return;
	}
	each_confined(
		n,
		[&](int first, int count) {
			Call inner;

			begin_nested_call(&inner, call);
			body(&inner, first, count);
			end_call(&inner);
		},
		failed, confine);
}

// The column "error" of an answer: an SQLSTATE, or NULL for 0.
inline Datum
error_datum(int sqlstate, bool *isnull)
{
	*isnull = sqlstate == 0;
	return *isnull ? static_cast<Datum>(0) : CStringGetTextDatum(unpack_sql_state(sqlstate));
}

} // namespace outbox
