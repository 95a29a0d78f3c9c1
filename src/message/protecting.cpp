// See protecting.h.

#include "message/protecting.h"

#include <algorithm>

#include "privacy/protect.h"
#include "privacy/rule.h"

namespace outbox {

namespace {

struct Owed {
	Message *message;
	bool has_subject;
	SubjectHash subject;
};

// The message that is worked on, for errors.
void
name_message(void *arg)
{
	const Message *message = *static_cast<const Message *const *>(arg);

	if (message != nullptr && message->element > 0)
		errcontext("element %d of messages", message->element);
}

[[noreturn]] void
refuse_bytes(const Queue *queue)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("queue \"%s\" protects fields, and payload_bytes has none", shown(queue->name)),
					errhint("Enqueue a payload. A dead letter from before the queue protected cannot be replayed.")));
}

[[noreturn]] void
refuse_without_subject(const Queue *queue)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("payload has no subject for queue \"%s\"", shown(queue->name)),
					errdetail("It has fields that the queue protects, and the value at the place of the subject is "
							  "missing, or neither a text nor a number.")));
}

Protector
protector_of(Call *call, const Rule &rule, const Message *message)
{
	return {call, nullptr, nullptr, rule.fields, rule.count, message->is_replay, {}};
}

// False: nothing is to be protected. Of a replay it is known only by looking.
bool
owes(Call *call, const Queue *queue, const Rule &rule, Message *message, HashKey *key, Owed *owed)
{
	Protector protector = protector_of(call, rule, message);
	text *subject;

	if (message->is_notice)
		return false;
	if (message->payload == nullptr)
		refuse_bytes(queue);
	subject = subject_in(rule, message->payload);
	*owed = {message, subject != nullptr && VARSIZE_ANY_EXHDR(subject) > 0, {}};
	if ((message->is_replay || !owed->has_subject) && !has_fields(&protector, message->payload))
		return false;
	if (!owed->has_subject)
		refuse_without_subject(queue);
	check_subject(subject);
	if (key->key == nullptr)
		*key = open_hash_key(call, IfNone::make);
	owed->subject = hash_of_subject(*key, subject);
	return true;
}

void
encrypt_fields(Call *call, const Rule &rule, const Owed *items, int count, const Message **current)
{
	SubjectKey key = {};

	for (int i = 0; i < count; i++)
	{
		Protector protector = protector_of(call, rule, items[i].message);

		*current = items[i].message;
		CHECK_FOR_INTERRUPTS();
		// One key for what is about one subject.
		if (i > 0 && memcmp(&items[i - 1].subject, &items[i].subject, sizeof(SubjectHash)) == 0)
			protector.key = key;
		protector.hash = &items[i].subject;
		items[i].message->payload = protected_fields(&protector, items[i].message->payload);
		key = protector.key;
	}
}

void
apply_rule(Call *call, const Queue *queue, Message *const *messages, int count, const Message **current)
{
	Rule rule = parse_rule(queue->protect);
	Owed *items = static_cast<Owed *>(palloc(sizeof(Owed) * static_cast<Size>(count)));
	HashKey key = {};
	int n = 0;

	for (int i = 0; i < count; i++)
	{
		*current = messages[i];
		n += owes(call, queue, rule, messages[i], &key, &items[n]);
	}
	std::sort(items, items + n,
			  [](const Owed &a, const Owed &b) { return memcmp(&a.subject, &b.subject, sizeof(SubjectHash)) < 0; });
	encrypt_fields(call, rule, items, n, current);
	wipe_places();
	pfree(items);
}

// Whose claims reveal. What a worker can enqueue there it could read, wherever it has it from.
void
refuse_ciphertext(Call *call, const Queue *queue, const Message *message)
{
	SidList sids;

	if (message->is_replay || message->is_notice || message->payload == nullptr ||
		!may_have_envelopes(message->payload) || may_reveal(call))
		return;
	sids = sids_in(message->payload);
	for (int i = 0; i < sids.count; i++)
		if (is_known_subject(call, sids.sids[i]))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied to enqueue protected values into queue \"%s\"", shown(queue->name)),
					 errdetail("Its claims reveal them."),
					 errhint("Let the queue protect the fields itself, or enqueue as a member of outbox_privacy.")));
}

struct Link {
	core::Uuid sid;
	core::Uuid message;
};

// A sid that a producer has made up, or that is of another database, leads nowhere.
List *
add_links(List *links, Call *call, const Message *message)
{
	SidList sids = sids_in(message->payload);

	for (int i = 0; i < sids.count; i++)
	{
		Link *link;

		CHECK_FOR_INTERRUPTS();
		if (!is_known_subject(call, sids.sids[i]))
			continue;
		link = static_cast<Link *>(palloc(sizeof(Link)));
		*link = {sids.sids[i], message->id};
		links = lappend(links, link);
	}
	return links;
}

void
write_links(Call *call, const List *links)
{
	const Link **items = static_cast<const Link **>(palloc(sizeof(Link *) * static_cast<Size>(list_length(links))));
	const ListCell *cell;

	foreach (cell, links)
		items[foreach_current_index(cell)] = static_cast<const Link *>(lfirst(cell));
	write_rows(
		items, list_length(links), [&](const Link *) { return open(call, subject_messages_shape, inserts); },
		[](Table *table, TupleTableSlot *row, const Link *link) {
			set(table, row, subject_messages_col::sid, from_uuid(link->sid));
			set(table, row, subject_messages_col::outbox_id, from_uuid(link->message));
		});
}

} // namespace

void
protect_messages(Call *call, const Queue *queue, Message *const *messages, int count)
{
	const Message *current = nullptr;
	ErrorContextCallback context = {error_context_stack, name_message, &current};
	List *links = NIL;

	error_context_stack = &context;
	for (int i = 0; queue->reveals && i < count; i++)
	{
		current = messages[i];
		refuse_ciphertext(call, queue, current);
	}
	if (queue->protect != nullptr)
		apply_rule(call, queue, messages, count, &current);
	for (int i = 0; i < count; i++)
		if (messages[i]->payload != nullptr && may_have_envelopes(messages[i]->payload))
			links = add_links(links, call, messages[i]);
	if (links != NIL)
		write_links(call, links);
	error_context_stack = context.previous;
}

} // namespace outbox
