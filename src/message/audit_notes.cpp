// See audit_notes.h.

#include "message/audit_notes.h"

#include "message/audit_event.h"
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

// ---- whether any queue is audited

struct {
	bool follows; // changes
	bool known;
	bool any;
	Oid queues;
} auditing;

// InvalidOid concerns all.
void
queues_changed(Datum, Oid rel)
{
	if (!OidIsValid(rel) || rel == auditing.queues)
		auditing.known = false;
}

bool
look_at_queues(Call *call)
{
	ListCell *cell;

	foreach (cell, all_queues(call))
		if (static_cast<const Queue *>(lfirst(cell))->audited)
			return true;
	return false;
}

// A change that comes meanwhile makes it unknown again.
bool
any_is_audited(Call *call)
{
	bool any;

	if (auditing.known)
		return auditing.any;
	if (!auditing.follows)
		CacheRegisterRelcacheCallback(queues_changed, 0);
	auditing.follows = true;
	auditing.queues = relation_oid(queues_shape.name);
	auditing.known = true;
	any = look_at_queues(call);
	auditing.any = any;
	return any;
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

Jsonb *
detail_of(const Group *group)
{
	JsonObject object = begin_object();

	open_inner(&object, "states");
	for (int i = static_cast<int>(core::Record::dispatched); i < core::records; i++)
		if (group->states[i] > 0)
			put_field(&object, core::name(static_cast<core::Record>(i)), static_cast<int32>(group->states[i]));
	close_inner(&object);
	return end_object(&object);
}

void
write_group(Call *call, const Group *group)
{
	bool is_refusal = group->what == Audited::blocked || group->what == Audited::refused;
	AuditEvent event = {name_of_audited(group->what)};

	event.queue = group->queue;
	event.worker_id = group->worker;
	event.ids = group->ids;
	event.attempt_nos = is_refusal ? nullptr : group->attempt_nos;
	event.count = group->count;
	event.lease_expires_at = group->lease_expires_at;
	if (group->what == Audited::completed || group->what == Audited::repaired)
		event.detail = detail_of(group);
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
	const Queue *found = any_is_audited(call) ? find_queue(call, queue) : nullptr;

	return found != nullptr && found->audited;
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

const char *
name_of_audited(Audited what)
{
	static const char *const names[] = {"LEASE_CLAIMED",          "LEASE_RENEWED",     "LEASE_RELEASED",
										"LEASE_EXPIRED_REPAIRED", "ATTEMPT_COMPLETED", "TERMINAL_BLOCKED",
										"LEASE_LOST_REFUSED"};

	return names[static_cast<int>(what)];
}

void
note_auditing_changed(Call *call)
{
	CacheInvalidateRelcache(open(call, queues_shape, reads)->rel);
}

} // namespace outbox
