// See notice.h.

#include "message/notice.h"

#include "message/enqueueing.h"
#include "server/json.h"

namespace outbox {

namespace {

constexpr char notice_type[] = "outbox.dead_letter";

// The message that died, as far as it is still there.
struct Deceased {
	text *event_id;
	text *event_type;
	text *aggregate_type;
	text *aggregate_id;
	Jsonb *headers;
};

Deceased
read_deceased(Call *call, const core::Uuid &id)
{
	using namespace messages_col;
	Table *leaf = find_leaf(call, messages_shape, id, reads);
	Probe *probe = leaf != nullptr ? probe_id(leaf, id) : nullptr;
	Deceased deceased = {};
	bool isnull;

	if (probe == nullptr)
		return deceased;
	if (next_settled(probe, ForwardScanDirection))
	{
		deceased.event_id = cstring_to_text(shown(to_uuid(leaf->get(probe->slot, event_id, &isnull))));
		deceased.event_type = copied_text(leaf, probe->slot, event_type);
		deceased.aggregate_type = copied_text(leaf, probe->slot, aggregate_type);
		deceased.aggregate_id = copied_text(leaf, probe->slot, aggregate_id);
		deceased.headers = DatumGetJsonbPCopy(leaf->get(probe->slot, headers, &isnull));
	}
	rest_probe(probe);
	return deceased;
}

Jsonb *
payload_of(const Attempt *attempt, const Deceased &deceased)
{
	JsonObject payload = begin_object();

	put_field(&payload, "outbox_id", shown(attempt->outbox_id));
	put_field(&payload, "queue", attempt->queue);
	put_field(&payload, "event_id", deceased.event_id);
	put_field(&payload, "event_type", deceased.event_type);
	put_field(&payload, "aggregate_type", deceased.aggregate_type);
	put_field(&payload, "aggregate_id", deceased.aggregate_id);
	put_field(&payload, "attempts", attempt->attempt_no);
	put_field(&payload, "error_code", cut_for_ledger(attempt->details.error_code));
	put_field(&payload, "error_message", cut_for_ledger(attempt->details.error_message));
	return end_object(&payload);
}

Message
notice_of(Call *call, const Attempt *attempt)
{
	Deceased deceased = read_deceased(call, attempt->outbox_id);
	Message notice = {};

	notice.is_notice = true;
	notice.event_type = cstring_to_text(notice_type);
	notice.idempotency_key = cstring_to_text(shown(attempt->outbox_id));
	notice.payload = payload_of(attempt, deceased);
	notice.headers = deceased.headers != nullptr ? deceased.headers : empty_object();
	draw_ids(&notice, 1);
	return notice;
}

} // namespace

void
tell_dead(Call *call, const Attempt *attempt)
{
	const Queue *of = find_queue(call, attempt->queue);
	const Queue *queue;
	Message notice;

	if (of == nullptr || of->dead_letter_queue == nullptr)
		return;
	queue = hold_queue_if_there(call, of->dead_letter_queue, attempt->wait);
	if (queue == nullptr)
	{
		ereport(WARNING, (errcode(ERRCODE_OUTBOX_QUEUE_NOT_FOUND),
						  errmsg("dead letter %s is not told: queue \"%s\" does not exist", shown(attempt->outbox_id),
								 shown(of->dead_letter_queue)),
						  errhint("Create it with outbox.create_queue.")));
		return;
	}
	notice = notice_of(call, attempt);
	write_notice(call, queue, &notice);
}

bool
may_fail_to_tell(Call *call)
{
	Message notice = {};
	const Table *leaf;

	draw_ids(&notice, 1);
	leaf = find_leaf(call, messages_shape, notice.id, inserts);
	return leaf == nullptr || has_foreign_parts(leaf) ||
		   has_foreign_parts(open(call, idempotency_keys_shape, inserts | deletes));
}

} // namespace outbox
