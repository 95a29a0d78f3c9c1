// See retire.h.

#include "verbs/retire.h"

#include "message/audit_event.h"

namespace outbox {

RetiredPair
retire_and_record(int64 after_ms)
{
	RetiredPair pair = retire_next(after_ms);
	JsonObject detail;
	AuditEvent event = {Audited::partition_retired};
	Call call;

	if (!pair.retired)
		return pair;
	begin_call(&call, "retention");
	detail = begin_object();
	put_field(&detail, "partition", pair.object);
	put_field(&detail, "done", pair.detail);
	if (pair.last_seal != nullptr)
		put_field(&detail, "last_seal", pair.last_seal);
	event.detail = end_object(&detail);
	record_event(&call, event);
	end_call(&call);
	return pair;
}

} // namespace outbox
