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

void
refuse_bytes(const Queue *queue)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("queue \"%s\" protects fields, and payload_bytes has none", shown(queue->name)),
					errhint("Enqueue a payload.")));
}

Owed
owed(Call *call, const Queue *queue, const Rule &rule, Message *message)
{
	Owed result = {message, false, {}};
	text *subject;

	if (message->payload == nullptr)
		refuse_bytes(queue);
	subject = subject_in(rule, message->payload);
	result.has_subject = subject != nullptr && VARSIZE_ANY_EXHDR(subject) > 0;
	if (!result.has_subject)
		return result;
	check_subject(subject);
	result.subject = hash_of_subject(call, subject, IfNone::make);
	return result;
}

void
encrypt_fields(Call *call, const Queue *queue, const Rule &rule, Owed *items, int count, const Message **current)
{
	Protector protector = {call, nullptr, nullptr, rule.fields, rule.count, {}};

	for (int i = 0; i < count; i++)
	{
		*current = items[i].message;
		CHECK_FOR_INTERRUPTS();
		if (i == 0 || memcmp(&items[i - 1].subject, &items[i].subject, sizeof(SubjectHash)) != 0)
			protector.key = {};
		protector.hash = items[i].has_subject ? &items[i].subject : nullptr;
		if (protector.hash == nullptr && has_fields(&protector, items[i].message->payload))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("payload has no subject for queue \"%s\"", shown(queue->name)),
					 errdetail("It has fields that the queue protects, and the value at the place of the subject "
							   "is missing, or neither a text nor a number.")));
		if (protector.hash != nullptr)
			items[i].message->payload = protected_fields(&protector, items[i].message->payload);
	}
}

void
apply_rule(Call *call, const Queue *queue, Message *const *messages, int count, const Message **current)
{
	Rule rule = parse_rule(queue->protect);
	Owed *items = static_cast<Owed *>(palloc(sizeof(Owed) * static_cast<Size>(count)));
	int n = 0;

	for (int i = 0; i < count; i++)
	{
		*current = messages[i];
		if (!messages[i]->is_replay && !messages[i]->is_notice)
			items[n++] = owed(call, queue, rule, messages[i]);
	}
	std::sort(items, items + n,
			  [](const Owed &a, const Owed &b) { return memcmp(&a.subject, &b.subject, sizeof(SubjectHash)) < 0; });
	encrypt_fields(call, queue, rule, items, n, current);
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

void
write_link(Table *table, const Link &link)
{
	TupleTableSlot *row = new_row(table);

	set(table, row, subject_messages_col::sid, from_uuid(link.sid));
	set(table, row, subject_messages_col::outbox_id, from_uuid(link.message));
	insert_rows(table, &row, 1);
	ExecDropSingleTupleTableSlot(row);
}

// A sid that a producer has made up, or that is of another database, leads nowhere.
void
link_message(Call *call, const Message *message)
{
	SidList sids = sids_in(message->payload);

	for (int i = 0; i < sids.count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (is_known_subject(call, sids.sids[i]))
			write_link(open(call, subject_messages_shape, inserts), {sids.sids[i], message->id});
	}
}

} // namespace

void
protect_messages(Call *call, const Queue *queue, Message *const *messages, int count)
{
	const Message *current = nullptr;
	ErrorContextCallback context = {error_context_stack, name_message, &current};

	error_context_stack = &context;
	for (int i = 0; queue->reveals && i < count; i++)
	{
		current = messages[i];
		refuse_ciphertext(call, queue, current);
	}
	if (queue->protect != nullptr)
		apply_rule(call, queue, messages, count, &current);
	if (protection_is_used())
		for (int i = 0; i < count; i++)
			if (messages[i]->payload != nullptr && may_have_envelopes(messages[i]->payload))
				link_message(call, messages[i]);
	error_context_stack = context.previous;
}

} // namespace outbox
