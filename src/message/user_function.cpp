// See user_function.h.

#include "message/user_function.h"

#include "server/args.h"

namespace outbox {

namespace {

[[noreturn]] void
raise_bad_form(const FunctionKind &kind, const text *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s must be the schema-qualified name of a function, not \"%s\"", kind.option, shown(name))));
}

// schema.function, as it would be written in SQL.
void
split(const FunctionKind &kind, const text *name, char **schema, char **function)
{
	List *parts;

	if (!SplitIdentifierString(text_to_cstring(name), '.', &parts) || list_length(parts) != 2)
		raise_bad_form(kind, name);
	*schema = static_cast<char *>(linitial(parts));
	*function = static_cast<char *>(lsecond(parts));
}

} // namespace

UserFunction
find_function(const FunctionKind &kind, const text *name)
{
	char *schema;
	char *function;
	Oid schema_oid;
	HeapTuple tuple = nullptr;
	Form_pg_proc proc;
	UserFunction found;

	split(kind, name, &schema, &function);
	schema_oid = get_namespace_oid(schema, true);
	if (OidIsValid(schema_oid))
		tuple = SearchSysCache3(PROCNAMEARGSNSP, CStringGetDatum(function),
								PointerGetDatum(buildoidvector(kind.types, kind.nargs)), ObjectIdGetDatum(schema_oid));
	if (!HeapTupleIsValid(tuple))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION),
						errmsg("%s %s(%s) does not exist", kind.option, shown(name), kind.arguments),
						errhint("Create the function, or name another one with outbox.alter_queue.")));
	proc = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple));
	found = {proc->oid, proc->proowner};
	if (proc->prokind != PROKIND_FUNCTION || proc->prorettype != kind.result_type || proc->proretset)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s %s(%s) must be a function that returns %s", kind.option, shown(name), kind.arguments,
							   kind.result)));
	ReleaseSysCache(tuple);
	return found;
}

const text *
check_function(const FunctionKind &kind, const text *name)
{
	UserFunction found = find_function(kind, name);
	const char *owner = GetUserNameFromId(found.owner, false);

	if (!owns_function(found.function, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of %s %s", kind.option, shown(name)),
				 errdetail("%s with the rights of its owner, role \"%s\".", kind.runs, owner),
				 errhint("Have a member of role \"%s\" set it.", owner)));
	return cstring_to_text(owner);
}

void
check_same_owner(const FunctionKind &kind, const text *name, Oid owner, const text *owner_then)
{
	const char *now = GetUserNameFromId(owner, false);
	const char *then = owner_then == nullptr ? "" : text_to_cstring(owner_then);

	if (strcmp(now, then) != 0)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("%s %s has another owner than when it was set", kind.option, shown(name)),
						errdetail("Its owner is \"%s\", and was \"%s\".", now, then),
						errhint("Have a member of role \"%s\" set it again with outbox.alter_queue.", now)));
}

} // namespace outbox
