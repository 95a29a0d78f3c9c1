// Doing up to so many of a list of messages, which cancel_many and replay_many hand over page by page, in one query.
//
// Guarantees: a message that cannot be done is passed by, and the next one takes its place. As long as nothing is done
// a call looks on to the end of the list, so if any message can be done, one is: a call that is repeated comes to each,
// however many always fail. Nothing that another transaction holds is waited for (Call::wait).
//
// Shape: what was done keeps producers of its keys waiting for the commit. So once something is done, a call ends after
// so many failures; what fails before that keeps no producer waiting. Memory is that of a page: what an item needs that
// failed, some 40 kB, is freed with the call.
#pragma once

#include "rows/batch.h"
#include "server/args.h"

namespace outbox {

constexpr int most_failures = 10000; // after something was done

// Of all pages of a query.
struct Progress {
	MemoryContext context;
	int64 done;
	int failures;         // since something was done
	Bitmapset *passed_by; // keys, by their numbers
};

inline Progress *
progress_of_query(FunctionCallInfo fcinfo)
{
	FmgrInfo *place = fcinfo->flinfo;
	Progress *progress = static_cast<Progress *>(place->fn_extra);

	if (progress == nullptr)
	{
		progress = static_cast<Progress *>(MemoryContextAllocZero(place->fn_mcxt, sizeof(Progress)));
		progress->context = place->fn_mcxt;
		place->fn_extra = progress;
	}
	return progress;
}

inline void
pass_by(Progress *progress, int key)
{
	MemoryContext previous = MemoryContextSwitchTo(progress->context);

	progress->passed_by = bms_add_member(progress->passed_by, key);
	MemoryContextSwitchTo(previous);
}

// Of each that was tried its id, and its SQLSTATE.
inline void
put_tried(FunctionCallInfo fcinfo, const ArrayArg &ids, const int *errors)
{
	for (int i = 0; i < ids.count; i++)
	{
		bool nulls[2] = {ids.is_null(i), false};
		Datum values[2] = {nulls[0] ? 0 : ids.items[i], 0};

		values[1] = error_datum(errors[i], &nulls[1]);
		put_result(fcinfo, values, nulls);
	}
}

// Calls try_some(first, n) for one part after the other, each as large as what is still wanted. is_done(i): it was.
// Returns how many were tried.
template <typename Try, typename Done>
int
try_until_done(int count, int wanted, Progress *progress, const Try &try_some, const Done &is_done)
{
	int tried = 0;

	while (progress->done < wanted && progress->failures < most_failures && tried < count)
	{
		int n = static_cast<int>(Min(wanted - progress->done, count - tried));

		try_some(tried, n);
		for (int i = tried; i < tried + n; i++)
		{
			progress->done += is_done(i);
			progress->failures += progress->done > 0 && !is_done(i);
		}
		tried += n;
	}
	return tried;
}

} // namespace outbox
