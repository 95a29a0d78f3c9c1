// See validator.h.

#include "message/validator.h"

#include "message/user_function.h"
#include "server/settings.h"

namespace outbox {

namespace {

constexpr int nargs = 3;

const FunctionKind kind = {"validator", "jsonb, jsonb, text",          "text", "Producers run it",
						   nargs,       {JSONBOID, JSONBOID, TEXTOID}, TEXTOID};

// What the function returns; nullptr = it accepts. A binary payload is passed as NULL, which a STRICT
// function could not refuse.
const char *
ask_validator(FmgrInfo *function, const Message *message)
{
	LOCAL_FCINFO(fcinfo, nargs);
	Datum answer;

	if (function->fn_strict && message->payload == nullptr)
		return "Its validator is STRICT, and so cannot look at a message with payload_bytes.";
	if (function->fn_strict && message->routing_key == nullptr)
		return nullptr;
	InitFunctionCallInfoData(*fcinfo, function, nargs, DEFAULT_COLLATION_OID, nullptr, nullptr);
	fcinfo->args[0] = {PointerGetDatum(message->payload), message->payload == nullptr};
	fcinfo->args[1] = {JsonbPGetDatum(message->headers), false};
	fcinfo->args[2] = {PointerGetDatum(message->routing_key), message->routing_key == nullptr};
	answer = FunctionCallInvoke(fcinfo);
	return fcinfo->isnull ? nullptr : TextDatumGetCString(answer);
}

void
name_element(void *arg)
{
	const Message *message = *static_cast<const Message **>(arg);

	if (message->element > 0)
		errcontext("element %d of messages", message->element);
}

void
ask_about_all(FmgrInfo *function, const Queue *queue, const Message *messages, int count)
{
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext, "outbox validator", ALLOCSET_DEFAULT_SIZES);
	MemoryContext previous = MemoryContextSwitchTo(each);
	const Message *message = messages;
	ErrorContextCallback context = {error_context_stack, name_element, &message};

	error_context_stack = &context;
	for (; message < messages + count; message++)
	{
		const char *problem = message->is_replay ? nullptr : ask_validator(function, message);

		if (problem != nullptr)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("message is not valid for queue \"%s\"", shown(queue->name)), errdetail("%s", problem)));
		MemoryContextReset(each);
		CHECK_FOR_INTERRUPTS();
	}
	error_context_stack = context.previous;
	MemoryContextSwitchTo(previous);
	MemoryContextDelete(each);
}

} // namespace

const text *
check_validator(const text *name)
{
	return check_function(kind, name);
}

void
validate(const Queue *queue, const Message *messages, int count)
{
	UserFunction validator;
	FmgrInfo function;
	int guc_level;
	Oid user;
	int context;

	if (queue->validator == nullptr || count == 0)
		return;
	validator = find_function(kind, queue->validator);
	check_same_owner(kind, queue->validator, validator.owner, queue->validator_owner);
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(validator.owner, context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	guc_level = pin_search_path();
	fmgr_info(validator.function, &function);
	ask_about_all(&function, queue, messages, count);
	AtEOXact_GUC(true, guc_level);
	SetUserIdAndSecContext(user, context);
}

} // namespace outbox
