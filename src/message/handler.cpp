// See handler.h.

#include "message/handler.h"

#include "server/settings.h"

namespace outbox {

namespace {

Oid
claimed_type()
{
	Oid oid =
		GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("claimed"), ObjectIdGetDatum(outbox_schema()));

	if (!OidIsValid(oid))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("type outbox.claimed is missing")));
	return oid;
}

FunctionKind
handler_kind()
{
	return {"handler", "outbox.claimed", "void", "It handles messages", 1, {claimed_type()}, VOIDOID};
}

void
act_as(Oid owner, Transaction transaction)
{
	Oid user;
	int context;

	GetUserIdAndSecContext(&user, &context);
	context |= SECURITY_LOCAL_USERID_CHANGE;
	if (transaction == Transaction::of_another)
		context |= SECURITY_RESTRICTED_OPERATION;
	SetUserIdAndSecContext(owner, context);
}

int
pin_for_handler()
{
	int level = pin_search_path();

	set_config_option("lock_timeout", "0", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return level;
}

} // namespace

const text *
check_handler(const text *name)
{
	return check_function(handler_kind(), name);
}

UserFunction
find_handler(const Queue *queue)
{
	FunctionKind kind = handler_kind();
	UserFunction handler = find_function(kind, queue->handler);

	check_same_owner(kind, queue->handler, handler.owner, queue->handler_owner);
	if (!may_execute(handler.function, handler.owner))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("handler %s may not be executed by its owner", shown(queue->handler)),
						errhint("GRANT EXECUTE ON FUNCTION %s TO \"%s\".", shown(queue->handler),
								GetUserNameFromId(handler.owner, false))));
	return handler;
}

TupleDesc
claimed_desc()
{
	return lookup_rowtype_tupdesc_copy(claimed_type(), -1);
}

void
call_handler(const UserFunction &handler, HeapTuple message, TupleDesc desc, Transaction transaction)
{
	LOCAL_FCINFO(fcinfo, 1);
	FmgrInfo function;
	int guc_level;

	act_as(handler.owner, transaction);
	guc_level = transaction == Transaction::ours ? NewGUCNestLevel() : pin_for_handler();
	fmgr_info(handler.function, &function);
	InitFunctionCallInfoData(*fcinfo, &function, 1, InvalidOid, nullptr, nullptr);
	fcinfo->args[0] = {heap_copy_tuple_as_datum(message, desc), false};
	FunctionCallInvoke(fcinfo);
	// Cursors that it would keep beyond the transaction.
	if (transaction == Transaction::ours)
		PortalHashTableDeleteAll();
	AtEOXact_GUC(false, guc_level);
}

} // namespace outbox
