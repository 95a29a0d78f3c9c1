// See index_form.h.

#include "rows/index_form.h"

#include "rows/expressions.h"

namespace outbox {

namespace {

constexpr char descending[] = " DESC";

Datum
field(HeapTuple tuple, AttrNumber attno)
{
	bool isnull;
	Datum value = SysCacheGetAttr(INDEXRELID, tuple, attno, &isnull);

	return isnull ? static_cast<Datum>(0) : value;
}

void *
nodes(HeapTuple tuple, AttrNumber attno)
{
	Datum trees = field(tuple, attno);

	return trees != 0 ? stringToNode(TextDatumGetCString(trees)) : nullptr;
}

// The tree of a key, a Var for a column.
Node *
index_key(const IndexForm *index, int place)
{
	AttrNumber attno = index->form->indkey.values[place];
	Form_pg_attribute attr;
	int expression = 0;

	if (attno == 0)
	{
		for (int i = 0; i < place; i++)
			expression += index->form->indkey.values[i] == 0;
		return static_cast<Node *>(list_nth(index->expressions, expression));
	}
	attr = TupleDescAttr(RelationGetDescr(index->rel), attno - 1);
	return reinterpret_cast<Node *>(makeVar(1, attno, attr->atttypid, attr->atttypmod, attr->attcollation, 0));
}

// `what` is a column or an expression, which calls a function. Only an expression has to be parsed.
bool
is_over(const IndexForm *index, int place, const char *what)
{
	AttrNumber attno = index->form->indkey.values[place];

	if (strchr(what, '(') == nullptr)
		return attno != InvalidAttrNumber && attno == attnameAttNum(index->rel, what, false);
	return attno == InvalidAttrNumber && ::equal(index_key(index, place), stored_form(index->rel, what));
}

bool
is_own_key(const IndexForm *index, int place, const char *key)
{
	bool descends = pg_str_endswith(key, descending);
	int16 option = descends ? INDOPTION_DESC | INDOPTION_NULLS_FIRST : 0;

	return index->options->values[place] == option &&
		   is_over(index, place, descends ? pnstrdup(key, strlen(key) - strlen(descending)) : key);
}

// GetDefaultOpClass() reads all operator classes of the server, so a class of exactly this type is tried first.
bool
is_default_class(Oid oid, Oid type)
{
	HeapTuple tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(oid));
	bool is_of_type = false;

	if (HeapTupleIsValid(tuple))
	{
		Form_pg_opclass form = reinterpret_cast<Form_pg_opclass>(GETSTRUCT(tuple));

		is_of_type = form->opcmethod == BTREE_AM_OID && form->opcdefault && form->opcintype == type;
		ReleaseSysCache(tuple);
	}
	return is_of_type || oid == GetDefaultOpClass(type, BTREE_AM_OID);
}

bool
compares_as_usual(const IndexForm *index, int place)
{
	Node *key = index_key(index, place);

	return index->collations->values[place] == exprCollation(key) &&
		   is_default_class(index->classes->values[place], exprType(key));
}

bool
is_own_predicate(const IndexForm *index, const OwnIndex &own)
{
	if (own.predicate == nullptr || index->predicate == nullptr)
		return own.predicate == nullptr && index->predicate == nullptr;
	return ::equal(stored_form(index->rel, own.predicate), index->predicate);
}

// What its operators run beside the server's own code, or nullptr.
const char *
users_code_of_keys(const IndexForm *index)
{
	for (int i = 0; i < index->form->indnkeyatts; i++)
	{
		Oid type = exprType(index_key(index, i));

		if (index->classes->values[i] >= FirstUnpinnedObjectId)
			return "an operator class of a user";
		if (!is_plain_type(type))
			return psprintf("the type %s", format_type_be(type));
	}
	return nullptr;
}

} // namespace

IndexForm *
read_index(Relation rel, Oid oid)
{
	HeapTuple tuple = SearchSysCacheCopy1(INDEXRELID, ObjectIdGetDatum(oid));
	IndexForm *index = static_cast<IndexForm *>(palloc(sizeof(IndexForm)));

	if (!HeapTupleIsValid(tuple))
		return nullptr;
	index->rel = rel;
	index->form = reinterpret_cast<Form_pg_index>(GETSTRUCT(tuple));
	index->classes = reinterpret_cast<oidvector *>(DatumGetPointer(field(tuple, Anum_pg_index_indclass)));
	index->collations = reinterpret_cast<oidvector *>(DatumGetPointer(field(tuple, Anum_pg_index_indcollation)));
	index->options = reinterpret_cast<int2vector *>(DatumGetPointer(field(tuple, Anum_pg_index_indoption)));
	index->expressions = static_cast<List *>(nodes(tuple, Anum_pg_index_indexprs));
	index->predicate = static_cast<Node *>(nodes(tuple, Anum_pg_index_indpred));
	return index;
}

int
key_count(const OwnIndex &own)
{
	int n = 0;

	while (n < static_cast<int>(lengthof(own.keys)) && own.keys[n] != nullptr)
		n++;
	return n;
}

bool
is_own_index(const IndexForm *index, const OwnIndex &own, bool is_primary)
{
	Form_pg_index form = index->form;

	if (!form->indisvalid || !form->indisready || !form->indimmediate || form->indisexclusion ||
		form->indnullsnotdistinct || form->indisunique != own.unique || form->indisprimary != is_primary ||
		form->indnatts != key_count(own) || form->indnkeyatts != key_count(own))
		return false;
	for (int i = 0; i < key_count(own); i++)
		if (!is_own_key(index, i, own.keys[i]))
			return false;
	for (int i = 0; i < key_count(own); i++)
		if (!compares_as_usual(index, i))
			return false;
	return is_own_predicate(index, own);
}

const char *
users_code_of_index(const IndexForm *index)
{
	const char *code = users_code_of_keys(index);

	if (code == nullptr && index->expressions != NIL)
		code = users_code(reinterpret_cast<Node *>(index->expressions));
	if (code == nullptr && index->predicate != nullptr)
		code = users_code(index->predicate);
	return code;
}

} // namespace outbox
