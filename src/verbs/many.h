// Doing up to so many of the messages of a list, which cancel_many and replay_many have chosen.
//
// Guarantees: those that cannot be done are passed by, and others take their places, so those behind them go on. In all
// a call waits at most a second for locks of others. What it has not come to by then is left untried.
#pragma once

#include "rows/batch.h"
#include "server/args.h"

namespace outbox {

struct Patience {
	bool is_limited;
	TimestampTz began; // the present item
	int64 waited_us;   // in vain

	bool is_over() const { return is_limited && waited_us >= USECS_PER_SEC; }
	void begin_item() { began = GetCurrentTimestamp(); }
	void note(int sqlstate)
	{
		if (sqlstate == ERRCODE_LOCK_NOT_AVAILABLE)
			waited_us += Max(GetCurrentTimestamp() - began, 0);
	}
};

constexpr int untried = -1; // in the place of an SQLSTATE

// Of each that was tried its id, and its SQLSTATE.
inline void
put_tried(FunctionCallInfo fcinfo, const ArrayArg &ids, const int *errors)
{
	for (int i = 0; i < ids.count; i++)
	{
		bool nulls[2] = {ids.is_null(i), false};
		Datum values[2] = {nulls[0] ? 0 : ids.items[i], 0};

		if (errors[i] == untried)
			continue;
		values[1] = error_datum(errors[i], &nulls[1]);
		put_result(fcinfo, values, nulls);
	}
}

// Calls try_some(first, n) for one part after the other, each as large as what is still wanted. is_done(i): it was.
// Returns how many were tried.
template <typename Try, typename Done>
int
try_until_done(int count, int wanted, const Patience *patience, const Try &try_some, const Done &is_done)
{
	int tried = 0;

	while (wanted > 0 && tried < count && !patience->is_over())
	{
		int n = Min(wanted, count - tried);

		try_some(tried, n);
		for (int i = tried; i < tried + n; i++)
			wanted -= is_done(i);
		tried += n;
	}
	return tried;
}

} // namespace outbox
