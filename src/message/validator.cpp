// See validator.h. The function and its owner are stored by name (an OID would not survive a dump,
// and pg_upgrade refuses reg* columns) and looked up each time, without a check of the producer's
// rights on the schema: rights are checked when the validator is set.

#include "message/validator.h"

#include "server/settings.h"

namespace outbox {

namespace {

constexpr int nargs = 3;

struct Validator {
	Oid function;
	Oid owner;
};

[[noreturn]] void
raise_bad_form(const text *name)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("validator must be the schema-qualified name of a function, not \"%s\"", shown(name))));
}

// schema.function, as it would be written in SQL.
void
split(const text *name, char **schema, char **function)
{
	List *parts;

	if (!SplitIdentifierString(text_to_cstring(name), '.', &parts) || list_length(parts) != 2)
		raise_bad_form(name);
	*schema = static_cast<char *>(linitial(parts));
	*function = static_cast<char *>(lsecond(parts));
}

Validator
find_validator(const text *name)
{
	static const Oid types[nargs] = {JSONBOID, JSONBOID, TEXTOID};
	char *schema;
	char *function;
	Oid schema_oid;
	HeapTuple tuple = nullptr;
	Form_pg_proc proc;
	Validator found;

	split(name, &schema, &function);
	schema_oid = get_namespace_oid(schema, true);
	if (OidIsValid(schema_oid))
		tuple = SearchSysCache3(PROCNAMEARGSNSP, CStringGetDatum(function),
								PointerGetDatum(buildoidvector(types, nargs)), ObjectIdGetDatum(schema_oid));
	if (!HeapTupleIsValid(tuple))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION),
						errmsg("validator %s(jsonb, jsonb, text) does not exist", shown(name)),
						errhint("Create the function, or name another one with outbox.alter_queue.")));
	proc = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple));
	found = {proc->oid, proc->proowner};
	if (proc->prokind != PROKIND_FUNCTION || proc->prorettype != TEXTOID || proc->proretset)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("validator %s(jsonb, jsonb, text) must be a function that returns text", shown(name))));
	ReleaseSysCache(tuple);
	return found;
}

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

void
check_owner(const Queue *queue, Oid owner)
{
	const char *now = GetUserNameFromId(owner, false);
	const char *then = queue->validator_owner == nullptr ? "" : text_to_cstring(queue->validator_owner);

	if (strcmp(now, then) != 0)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("validator %s has another owner than when it was set", shown(queue->validator)),
						errdetail("Its owner is \"%s\", and was \"%s\".", now, then),
						errhint("Have a member of role \"%s\" set it again with outbox.alter_queue.", now)));
}

} // namespace

const text *
check_validator(const text *name)
{
	Validator validator = find_validator(name);
	const char *owner = GetUserNameFromId(validator.owner, false);

	if (!owns_function(validator.function, GetUserId()))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of validator %s", shown(name)),
						errdetail("Producers run it with the rights of its owner, role \"%s\".", owner),
						errhint("Have a member of role \"%s\" set it.", owner)));
	return cstring_to_text(owner);
}

void
validate(const Queue *queue, const Message *messages, int count)
{
	Validator validator;
	FmgrInfo function;
	int guc_level;
	Oid user;
	int context;

	if (queue->validator == nullptr || count == 0)
		return;
	validator = find_validator(queue->validator);
	check_owner(queue, validator.owner);
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(validator.owner, context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	guc_level = pin_search_path();
	fmgr_info(validator.function, &function);
	ask_about_all(&function, queue, messages, count);
	AtEOXact_GUC(true, guc_level);
	SetUserIdAndSecContext(user, context);
}

} // namespace outbox
