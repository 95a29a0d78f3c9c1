// See wakeup.h. Queues are noted with the nesting level that enqueued; the NOTIFY is
// issued in PRE_COMMIT, which runs before the server sends what is pending.

#include "wakeup.h"

namespace outbox {

namespace {

struct Noted {
	Noted *next;
	int level;
	char queue[NAMEDATALEN];
};

Noted *noted;	// in TopTransactionContext

void
forget_from(int level)
{
	Noted **link = &noted;

	while (*link != nullptr)
		if ((*link)->level >= level)
			*link = (*link)->next;
		else
			link = &(*link)->next;
}

// What a committed subtransaction noted is its parent's now.
void
hand_up(int level)
{
	for (Noted *note = noted; note != nullptr; note = note->next)
		if (note->level >= level)
			note->level = level - 1;
}

// The server drops equal notifications of one transaction.
void
notify()
{
	for (Noted *note = noted; note != nullptr; note = note->next)
		Async_Notify("outbox_pending", note->queue);
}

void
at_transaction_event(XactEvent event, void *)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			notify();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			noted = nullptr;
			break;
		case XACT_EVENT_PRE_PREPARE:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;
	}
}

void
at_subtransaction_event(SubXactEvent event, SubTransactionId, SubTransactionId, void *)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		forget_from(GetCurrentTransactionNestLevel());
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
		hand_up(GetCurrentTransactionNestLevel());
}

}	// namespace

void
note_wakeup(const text *queue)
{
	int level = GetCurrentTransactionNestLevel();
	const char *name = text_to_cstring(queue);
	Noted *note;

	for (note = noted; note != nullptr; note = note->next)
		if (note->level <= level && strcmp(note->queue, name) == 0)
			return;
	note = static_cast<Noted *>(MemoryContextAlloc(TopTransactionContext, sizeof(Noted)));
	note->next = noted;
	note->level = level;
	strlcpy(note->queue, name, sizeof(note->queue));
	noted = note;
}

void
register_wakeups()
{
	RegisterXactCallback(at_transaction_event, nullptr);
	RegisterSubXactCallback(at_subtransaction_event, nullptr);
}

}	// namespace outbox
