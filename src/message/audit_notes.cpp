// See audit_notes.h.

#include "message/audit_notes.h"

#include <algorithm>

#include "message/queue.h"
#include "rows/probe.h"

namespace outbox {

namespace {

// One audit event to be.
struct Group {
	Group *next;
	Audited what;
	text *queue;
	text *worker; // or nullptr
	core::Uuid *ids;
	int *attempt_nos;
	int count;
	int room;
	TimestampTz lease_expires_at; // the latest
	int states[core::records];
};

// ---- which queues are audited

constexpr uint64 unknown = 0;

struct {
	Oid queues;
	uint64 changes; // of outbox.queues
	uint64 known;   // the changes that the names include
	MemoryContext memory;
	text **names; // sorted
	int count;
} auditing = {InvalidOid, 1, unknown, nullptr, nullptr, 0};

// InvalidOid concerns all.
void
queues_changed(Datum, Oid rel)
{
	if (!OidIsValid(rel) || rel == auditing.queues)
		auditing.changes++;
}

void
follow_queues()
{
	auditing.memory = AllocSetContextCreate(TopMemoryContext, "outbox audited queues", ALLOCSET_SMALL_SIZES);
	CacheRegisterRelcacheCallback(queues_changed, 0);
}

bool
is_less(const text *a, const text *b)
{
	Size size = VARSIZE_ANY_EXHDR(a);

	if (size != VARSIZE_ANY_EXHDR(b))
		return size < VARSIZE_ANY_EXHDR(b);
	return memcmp(VARDATA_ANY(a), VARDATA_ANY(b), size) < 0;
}

void
learn_audited(List *queues)
{
	ListCell *cell;

	auditing.count = 0;
	MemoryContextReset(auditing.memory);
	auditing.names = static_cast<text **>(
		MemoryContextAlloc(auditing.memory, sizeof(text *) * static_cast<Size>(Max(list_length(queues), 1))));
	foreach (cell, queues)
	{
		const Queue *queue = static_cast<const Queue *>(lfirst(cell));

		if (queue->audited)
			auditing.names[auditing.count++] = copied_to(auditing.memory, queue->name);
	}
	std::sort(auditing.names, auditing.names + auditing.count, is_less);
}

// After a change that comes meanwhile, or an ERROR, they are read again.
void
read_audited(Call *call)
{
	uint64 changes = auditing.changes;

	if (auditing.memory == nullptr)
		follow_queues();
	auditing.queues = relation_oid(queues_shape.name);
	auditing.known = unknown;
	learn_audited(all_queues(call));
	auditing.known = changes;
}

bool
any_is_audited(Call *call)
{
	if (auditing.known != auditing.changes)
		read_audited(call);
	return auditing.count > 0;
}

// ---- notes

Group **
groups_of(Call *call)
{
	return reinterpret_cast<Group **>(&call->noted);
}

// Lasts as long as the outermost call.
MemoryContext
lasting_memory(const Call *call)
{
	while (call->outer != nullptr)
		call = call->outer;
	return call->estate->es_query_cxt;
}

text *
copy_in(MemoryContext context, const text *value)
{
	return value == nullptr ? nullptr : copied_to(context, value);
}

bool
is_for(const Group *group, const AuditNote &note)
{
	return group->what == note.what && equal(group->queue, note.queue) &&
		   (group->worker == nullptr || note.worker == nullptr ? group->worker == note.worker
															   : equal(group->worker, note.worker));
}

Group *
group_for(Call *call, const AuditNote &note)
{
	MemoryContext memory = lasting_memory(call);
	Group **place = groups_of(call);

	for (; *place != nullptr; place = &(*place)->next)
		if (is_for(*place, note))
			return *place;
	*place = static_cast<Group *>(MemoryContextAllocZero(memory, sizeof(Group)));
	(*place)->what = note.what;
	(*place)->queue = copy_in(memory, note.queue);
	(*place)->worker = copy_in(memory, note.worker);
	return *place;
}

template <typename Item>
Item *
enlarged(MemoryContext memory, Item *items, int count, int room)
{
	Item *result = static_cast<Item *>(MemoryContextAllocHuge(memory, sizeof(Item) * static_cast<Size>(room)));

	if (count > 0)
		memcpy(result, items, sizeof(Item) * static_cast<Size>(count));
	return result;
}

Group *
put_note(Call *call, const AuditNote &note)
{
	Group *group = group_for(call, note);

	if (group->count == group->room)
	{
		MemoryContext memory = lasting_memory(call);

		group->room = Max(2 * group->room, 4);
		group->ids = enlarged(memory, group->ids, group->count, group->room);
		group->attempt_nos = enlarged(memory, group->attempt_nos, group->count, group->room);
	}
	group->ids[group->count] = note.id;
	group->attempt_nos[group->count++] = note.attempt_no;
	group->lease_expires_at = Max(group->lease_expires_at, note.lease_expires_at);
	group->states[static_cast<int>(note.state)]++;
	return group;
}

// ---- the end of a call

void
write_group(Call *call, const Group *group)
{
	bool is_refusal = group->what == Audited::blocked || group->what == Audited::refused;
	AuditEvent event = {group->what};

	event.queue = group->queue;
	event.worker_id = group->worker;
	event.ids = group->ids;
	event.attempt_nos = is_refusal ? nullptr : group->attempt_nos;
	event.count = group->count;
	event.lease_expires_at = group->lease_expires_at;
	if (group->what == Audited::completed || group->what == Audited::repaired)
		event.states = group->states;
	record_event(call, event);
}

void
write_groups(Call *call)
{
	for (const Group *group = *groups_of(call); group != nullptr; group = group->next)
		write_group(call, group);
}

// The sums of one that was nested.
void
add_group(Call *call, const Group *added)
{
	Group *group = nullptr;

	for (int i = 0; i < added->count; i++)
		group = put_note(call, {added->what, added->queue, added->worker, added->ids[i], added->attempt_nos[i]});
	group->lease_expires_at = Max(group->lease_expires_at, added->lease_expires_at);
	for (int i = 0; i < core::records; i++)
		group->states[i] += added->states[i];
}

void
hand_over(Call *call)
{
	for (const Group *group = *groups_of(call); group != nullptr; group = group->next)
		add_group(call->outer, group);
	call->outer->at_end = call->outer->outer != nullptr ? hand_over : write_groups;
}

} // namespace

bool
is_audited(Call *call, const text *queue)
{
	return any_is_audited(call) && std::binary_search(auditing.names, auditing.names + auditing.count, queue, is_less);
}

void
note_audited(Call *call, const AuditNote &note)
{
	if (!is_audited(call, note.queue))
		return;
	put_note(call, note);
	call->at_end = call->outer != nullptr ? hand_over : write_groups;
}

const text *
audited_queue_of(Call *call, const core::Uuid &id)
{
	Table *leaf = any_is_audited(call) ? find_leaf(call, messages_shape, id, reads) : nullptr;
	Probe *probe = leaf != nullptr ? probe_id(leaf, id) : nullptr;
	text *queue = nullptr;

	if (probe == nullptr)
		return nullptr;
	if (next_settled(probe, ForwardScanDirection))
		queue = copied_text(leaf, probe->slot, messages_col::queue);
	rest_probe(probe);
	return queue != nullptr && is_audited(call, queue) ? queue : nullptr;
}

void
note_auditing_changed(Call *call)
{
	CacheInvalidateRelcache(open(call, queues_shape, reads)->rel);
}

} // namespace outbox
