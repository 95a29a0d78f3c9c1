// See expressions.h.

#include "rows/expressions.h"

namespace outbox {

namespace {

// Not immutable, but they read only the clock, random numbers or a sequence.
bool
is_usual_default(Oid function)
{
	switch (function)
	{
		case F_NOW:
		case F_TRANSACTION_TIMESTAMP:
		case F_STATEMENT_TIMESTAMP:
		case F_CLOCK_TIMESTAMP:
		case F_GEN_RANDOM_UUID:
		case F_NEXTVAL:
			return true;
		default:
			return false;
	}
}

// Functions on types that depend on the time zone only.
bool
takes_times_only(Form_pg_proc proc)
{
	for (int i = 0; i < proc->pronargs; i++)
	{
		char category;
		bool preferred;

		get_type_category_preferred(proc->proargtypes.values[i], &category, &preferred);
		if (category != TYPCATEGORY_DATETIME && category != TYPCATEGORY_TIMESPAN)
			return false;
	}
	return true;
}

// Stable and volatile functions of the server may run SQL, or look names up.
bool
is_servers_function(Form_pg_proc proc)
{
	return proc->oid < FirstUnpinnedObjectId && proc->prolang == INTERNALlanguageId &&
		   (proc->provolatile == PROVOLATILE_IMMUTABLE || is_usual_default(proc->oid) ||
			(proc->provolatile == PROVOLATILE_STABLE && takes_times_only(proc)));
}

// The only function of ours in an index: REINDEX CONCURRENTLY makes a copy of the index.
bool
is_own_function(Form_pg_proc proc)
{
	return proc->prolang == ClanguageId && proc->provolatile == PROVOLATILE_IMMUTABLE &&
		   strcmp(NameStr(proc->proname), "key_digest") == 0 && proc->pronamespace == get_namespace_oid("outbox", true);
}

bool
may_run(Oid function)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc proc;
	bool may;

	if (!HeapTupleIsValid(tuple))
		return false;
	proc = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple));
	may = is_servers_function(proc) || is_own_function(proc);
	ReleaseSysCache(tuple);
	return may;
}

bool
notes_users_function(Oid function, void *found)
{
	if (may_run(function))
		return false;
	*static_cast<const char **>(found) = psprintf("the function %s", format_procedure(function));
	return true;
}

bool
finds_users_code(Node *node, void *found)
{
	if (node == nullptr)
		return false;
	if (IsA(node, List))
		return walk_expression(node, finds_users_code, found);
	// A conversion by way of text runs functions of the two types.
	if (!IsA(node, CoerceViaIO) && check_functions_in_node(node, notes_users_function, found))
		return true;
	if (!is_plain_type(exprType(node)))
	{
		*static_cast<const char **>(found) = psprintf("the type %s", format_type_be(exprType(node)));
		return true;
	}
	return walk_expression(node, finds_users_code, found);
}

// A function of our schema, without a check of rights. InvalidOid if it does not exist.
Oid
own_function(const FuncCall *call, List *args)
{
	Oid types[FUNC_MAX_ARGS];
	Oid schema = get_namespace_oid(strVal(linitial(call->funcname)), true);
	int n = 0;
	ListCell *cell;

	foreach (cell, args)
		types[n++] = exprType(static_cast<Node *>(lfirst(cell)));
	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(strVal(lsecond(call->funcname))),
						   PointerGetDatum(buildoidvector(types, n)), ObjectIdGetDatum(schema));
}

Node *
transform(ParseState *state, Node *raw)
{
	const FuncCall *call = IsA(raw, FuncCall) ? castNode(FuncCall, raw) : nullptr;
	List *args = NIL;
	ListCell *cell;
	Oid function;

	// As a CHECK, which may contain more than the other parts of a table.
	if (call == nullptr || list_length(call->funcname) != 2)
		return transformExpr(state, raw, EXPR_KIND_CHECK_CONSTRAINT);
	foreach (cell, call->args)
		args = lappend(args, transformExpr(state, static_cast<Node *>(lfirst(cell)), EXPR_KIND_CHECK_CONSTRAINT));
	function = own_function(call, args);
	// It is gone: no index has this form.
	if (!OidIsValid(function))
		return reinterpret_cast<Node *>(makeNullConst(TEXTOID, -1, InvalidOid));
	return reinterpret_cast<Node *>(
		makeFuncExpr(function, get_func_rettype(function), args, InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL));
}

} // namespace

Node *
stored_form(Relation rel, const char *sql)
{
	ParseState *state = make_parsestate(nullptr);
	const RawStmt *statement = linitial_node(RawStmt, raw_parser(sql, RAW_PARSE_PLPGSQL_EXPR));
	const SelectStmt *select = castNode(SelectStmt, statement->stmt);
	const ResTarget *target = linitial_node(ResTarget, select->targetList);
	Node *expression;

	state->p_sourcetext = sql;
	addNSItemToQuery(state, addRangeTableEntryForRelation(state, rel, AccessShareLock, nullptr, false, true), false,
					 true, true);
	expression = transform(state, target->val);
	assign_expr_collations(state, expression);
	free_parsestate(state);
	return expression;
}

const char *
users_code(Node *expression)
{
	const char *found = nullptr;

	if (!IsA(expression, Const))
		finds_users_code(expression, &found);
	return found;
}

bool
is_plain_type(Oid type)
{
	Oid element = get_element_type(type);

	if (OidIsValid(element))
		type = element;
	return type < FirstUnpinnedObjectId || get_typtype(type) == TYPTYPE_ENUM;
}

} // namespace outbox
