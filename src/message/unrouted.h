// Messages that no partition holds, because the DEFAULT partition was detached by hand.
//
// Guarantee: a call skips such messages, and warns once.
#pragma once

#include "core/ids.h"
#include "server/pg.h"
#include "server/values.h"

namespace outbox {

struct Unrouted {
	int count;
	core::Uuid first;
};

inline void
note_unrouted(Unrouted *unrouted, const core::Uuid &id)
{
	if (unrouted->count++ == 0)
		unrouted->first = id;
}

// what: leased, repaired.
inline void
report_unrouted(const Unrouted *unrouted, const char *what)
{
	if (unrouted->count > 0)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("messages that no partition holds were not %s: %d", what, unrouted->count),
				 errdetail("The first of them is message %s.", shown(unrouted->first)),
				 errhint("A DEFAULT partition of outbox.messages or outbox.attempts is missing: attach one.")));
}

} // namespace outbox
