// See layout.h.

#include "rows/layout.h"

#include "rows/expressions.h"
#include "rows/index_form.h"
#include "server/installed_version.h"
#include "server/settings.h"

namespace outbox {

namespace {

struct Survey {
	const Shape &shape;
	Relation rel;
	TupleDesc desc;
	Layout *layout;
	bool is_incomplete; // a column of ours is missing or of another type
	List *problems;
};

Problem *
problem(int sqlstate, const char *what, const char *detail, const char *hint)
{
	Problem *made = static_cast<Problem *>(palloc(sizeof(Problem)));

	*made = {sqlstate, what, detail, hint};
	return made;
}

void
add_problem(List **problems, int sqlstate, const char *what, const char *detail, const char *hint)
{
	*problems = lappend(*problems, problem(sqlstate, what, detail, hint));
}

void
add_unsupported(List **problems, const char *what)
{
	add_problem(problems, ERRCODE_FEATURE_NOT_SUPPORTED, psprintf("has %s", what),
				"The outbox works on its tables directly and would ignore it.",
				"Remove it, or use a table of your own.");
}

void
add_users_code(Survey *survey, const char *where, const char *code)
{
	add_problem(
		&survey->problems, ERRCODE_FEATURE_NOT_SUPPORTED, psprintf("has %s, which uses %s", where, code),
		"The outbox works on its tables directly, as their owner, and runs no code of users there.",
		"Use immutable functions and operators that come with the server and are written in C, a validator of the "
		"queue, or a table of your own.");
}

// ---- triggers and the like

// The trigger events (as tgtype bits) that an access would have to fire.
bool
would_fire(int16 tgtype, int access)
{
	return ((access & inserts) != 0 && TRIGGER_FOR_INSERT(tgtype)) ||
		   ((access & updates) != 0 && TRIGGER_FOR_UPDATE(tgtype)) ||
		   ((access & deletes) != 0 && TRIGGER_FOR_DELETE(tgtype));
}

// InvalidOid: the shape has no trigger.
Oid
own_trigger_function(const Shape &shape, Oid schema)
{
	oidvector *no_arguments = buildoidvector(nullptr, 0);

	if (shape.own_triggers[0] == nullptr)
		return InvalidOid;
	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(shape.own_triggers[0]),
						   PointerGetDatum(no_arguments), ObjectIdGetDatum(schema));
}

bool
is_own_trigger(const Shape &shape, const Trigger *trigger, Oid function)
{
	if (OidIsValid(function) && trigger->tgfoid == function)
		for (const char *name : shape.own_triggers)
			if (name != nullptr && strcmp(trigger->tgname, name) == 0)
				return true;
	return false;
}

void
survey_triggers(const Shape &shape, Relation rel, int access, List **problems)
{
	// Looked up first: a look-up in the catalogs may replace the trigger list.
	Oid function = rel->trigdesc != nullptr ? own_trigger_function(shape, RelationGetNamespace(rel)) : InvalidOid;
	const TriggerDesc *triggers = rel->trigdesc;

	for (int i = 0; triggers != nullptr && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (trigger->tgenabled != TRIGGER_DISABLED && would_fire(trigger->tgtype, access) &&
			!is_own_trigger(shape, trigger, function))
			add_unsupported(problems, psprintf("the trigger %s", trigger->tgname));
	}
}

// ---- columns

// Columns stand where the install script put them, unless one was dropped or a dump wrote them in
// another order. They are searched by name, beginning there.
AttrNumber
find_column(TupleDesc desc, const char *name, int expected)
{
	for (int n = 0; n < desc->natts; n++)
	{
		int i = (expected + n) % desc->natts;
		Form_pg_attribute attr = TupleDescAttr(desc, i);

		if (!attr->attisdropped && strcmp(NameStr(attr->attname), name) == 0)
			return static_cast<AttrNumber>(i + 1);
	}
	return InvalidAttrNumber;
}

Oid
wanted_type(const Survey *survey, const Column &column)
{
	return OidIsValid(column.type) ? column.type : attempt_state_type(RelationGetNamespace(survey->rel));
}

void
map_column(Survey *survey, int i)
{
	const Column &column = survey->shape.columns[i];
	AttrNumber attno = find_column(survey->desc, column.name, i);
	Form_pg_attribute attr;

	survey->layout->attno[i] = attno;
	if (attno == InvalidAttrNumber && static_cast<int>(column.since) > installed_version())
		return;
	if (attno == InvalidAttrNumber)
	{
		survey->is_incomplete = true;
		add_problem(&survey->problems, ERRCODE_UNDEFINED_COLUMN, psprintf("has no column %s", column.name), nullptr,
					nullptr);
		return;
	}
	attr = TupleDescAttr(survey->desc, attno - 1);
	if (attr->atttypid != wanted_type(survey, column))
	{
		survey->is_incomplete = true;
		add_problem(&survey->problems, ERRCODE_DATATYPE_MISMATCH,
					psprintf("has a column %s of type %s instead of %s", column.name, format_type_be(attr->atttypid),
							 format_type_be(wanted_type(survey, column))),
					nullptr, nullptr);
	}
	if (attr->attnotnull && column.null == Column::nullable)
		survey->layout->extended = true;
}

bool
is_own_column(const Survey *survey, int attno)
{
	for (int i = 0; survey->shape.columns[i].name != nullptr; i++)
		if (survey->layout->attno[i] == attno)
			return true;
	return false;
}

// What the executor would compute for a new row.
void
survey_users_column(Survey *survey, int attno)
{
	Form_pg_attribute attr = TupleDescAttr(survey->desc, attno - 1);
	Node *expression = build_column_default(survey->rel, attno);
	const char *code = expression != nullptr ? users_code(expression) : nullptr;

	survey->layout->extended = true;
	if (get_typtype(attr->atttypid) == TYPTYPE_DOMAIN && DomainHasConstraints(attr->atttypid))
		code = psprintf("the domain %s", format_type_be(attr->atttypid));
	if (code != nullptr)
		add_users_code(survey, psprintf("the column %s", NameStr(attr->attname)), code);
}

void
survey_columns(Survey *survey)
{
	for (int i = 0; survey->shape.columns[i].name != nullptr; i++)
		map_column(survey, i);
	for (int i = 1; i <= survey->desc->natts; i++)
		if (!TupleDescAttr(survey->desc, i - 1)->attisdropped && !is_own_column(survey, i))
			survey_users_column(survey, i);
}

// ---- CHECKs

bool
is_own_check(const Survey *survey, const OwnCheck &own, const char *name, Node *condition)
{
	if (own.condition == nullptr)
		return strcmp(name, psprintf("%s_%s", RelationGetRelationName(survey->rel), own.name)) == 0;
	return ::equal(stored_form(survey->rel, own.condition), condition);
}

// Its place in the shape, or -1. The check of the same name is tried first, since each comparison parses a condition.
int
own_check(const Survey *survey, const char *name, Node *condition)
{
	const OwnCheck *checks = survey->shape.checks;

	for (int i = 0; checks[i].name != nullptr; i++)
		if (strcmp(checks[i].name, name) == 0 && is_own_check(survey, checks[i], name, condition))
			return i;
	for (int i = 0; checks[i].name != nullptr; i++)
		if (strcmp(checks[i].name, name) != 0 && is_own_check(survey, checks[i], name, condition))
			return i;
	return -1;
}

const char *
definition(const OwnCheck &own)
{
	return own.condition != nullptr ? psprintf(" CHECK (%s)", own.condition) : "";
}

void
survey_checks(Survey *survey)
{
	const TupleConstr *constr = survey->desc->constr;
	uint32 found = 0;

	for (int i = 0; constr != nullptr && i < constr->num_check; i++)
	{
		const ConstrCheck *check = &constr->check[i];
		Node *condition = static_cast<Node *>(stringToNode(check->ccbin));
		int own = own_check(survey, check->ccname, condition);
		const char *code = own < 0 ? users_code(condition) : nullptr;

		if (own >= 0)
			found |= check->ccvalid ? uint32{1} << own : 0;
		else
			survey->layout->extended = true;
		if (code != nullptr)
			add_users_code(survey, psprintf("the CHECK constraint %s", check->ccname), code);
	}
	for (int i = 0; survey->shape.checks[i].name != nullptr; i++)
		if ((found & uint32{1} << i) == 0)
			add_problem(&survey->problems, 0,
						psprintf("has no valid constraint %s%s", survey->shape.checks[i].name,
								 definition(survey->shape.checks[i])),
						nullptr, nullptr);
}

// ---- indexes

// What it accepted at the insertion it accepts at each update.
bool
is_over_unchanging_columns(const Survey *survey, const IndexForm *index)
{
	Bitmapset *attnos = nullptr;

	for (int i = 0; i < index->form->indnatts; i++)
		if (index->form->indkey.values[i] != 0)
			attnos = bms_add_member(attnos, index->form->indkey.values[i] - FirstLowInvalidHeapAttributeNumber);
	pull_varattnos(reinterpret_cast<Node *>(index->expressions), 1, &attnos);
	pull_varattnos(index->predicate, 1, &attnos);
	for (int i = 0; survey->shape.columns[i].name != nullptr; i++)
		if (survey->shape.columns[i].unchanging)
			attnos = bms_del_member(attnos, survey->layout->attno[i] - FirstLowInvalidHeapAttributeNumber);
	return bms_is_empty(attnos);
}

void
survey_users_index(Survey *survey, const IndexForm *index)
{
	const char *name = get_rel_name(index->form->indexrelid);
	const char *code = users_code_of_index(index);

	if (index->form->indisexclusion)
		add_unsupported(&survey->problems, psprintf("the exclusion constraint %s", name));
	else if (index->form->indisunique && !index->form->indimmediate)
		add_unsupported(&survey->problems, psprintf("the deferrable constraint %s", name));
	if (code != nullptr)
		add_users_code(survey, psprintf("the index %s", name), code);
	if (index->form->indisunique || !is_over_unchanging_columns(survey, index))
		survey->layout->fallible = true;
}

void
survey_index(Survey *survey, Oid oid)
{
	const IndexForm *index = read_index(survey->rel, oid);
	Layout *layout = survey->layout;

	if (index == nullptr)
		return;
	layout->indexes[layout->nindexes++] = oid;
	for (int i = 0; survey->shape.indexes[i].name != nullptr; i++)
		if (is_own_index(index, survey->shape.indexes[i], i == primary_key))
		{
			layout->own[i] = layout->nindexes - 1;
			return;
		}
	survey_users_index(survey, index);
}

const char *
definition(const OwnIndex &own)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < key_count(own); i++)
		appendStringInfo(&text, "%s%s", i > 0 ? ", " : "", own.keys[i]);
	return own.predicate != nullptr ? psprintf("(%s) WHERE %s", text.data, own.predicate) : psprintf("(%s)", text.data);
}

void
add_missing_index(Survey *survey, int which)
{
	const OwnIndex &own = survey->shape.indexes[which];
	const char *schema = get_namespace_name(RelationGetNamespace(survey->rel));
	const char *table = RelationGetRelationName(survey->rel);
	const char *name = psprintf("%s_%s", table, own.name);
	const char *make = which == primary_key ? psprintf("ALTER TABLE %s.%s ADD CONSTRAINT %s PRIMARY KEY %s;", schema,
													   table, name, definition(own))
											: psprintf("CREATE %sINDEX %s ON %s.%s %s;", own.unique ? "UNIQUE " : "",
													   name, schema, table, definition(own));

	// First in the list: what was made in its place may be a problem, too.
	survey->problems = lcons(problem(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
									 psprintf("has no valid %s %s %s", which == primary_key ? "primary key" : "index",
											  name, definition(own)),
									 "It was dropped, is being built, or another was made in its place.",
									 psprintf("Drop what stands in its place, and use: %s", make)),
							 survey->problems);
}

void
survey_indexes(Survey *survey, List *oids)
{
	ListCell *cell;

	for (int &place : survey->layout->own)
		place = -1;
	foreach (cell, oids)
		survey_index(survey, lfirst_oid(cell));
	for (int i = 0; survey->shape.indexes[i].name != nullptr; i++)
		if (survey->layout->own[i] < 0)
			add_missing_index(survey, i);
}

} // namespace

List *
survey(const Shape &shape, Relation rel, Layout *layout)
{
	List *oids = RelationGetIndexList(rel);
	Survey survey = {shape, rel, RelationGetDescr(rel), layout, false, NIL};
	int guc_level;

	memset(layout, 0, sizeof(*layout));
	layout->indexes = static_cast<Oid *>(palloc(sizeof(Oid) * static_cast<Size>(Max(list_length(oids), 1))));
	if (rel->rd_rel->relkind != RELKIND_RELATION)
	{
		add_problem(&survey.problems, ERRCODE_FEATURE_NOT_SUPPORTED, "is not an ordinary table", nullptr,
					"Partitions of messages and attempts must be ordinary tables.");
		return survey.problems;
	}
	guc_level = pin_search_path();
	survey_columns(&survey);
	// Checks and indexes on such a column cannot be compared.
	if (!survey.is_incomplete)
	{
		survey_checks(&survey);
		survey_indexes(&survey, oids);
	}
	AtEOXact_GUC(true, guc_level);
	layout->fallible = layout->fallible || layout->extended;
	return survey.problems;
}

List *
survey_access(const Shape &shape, Relation rel, int access)
{
	List *problems = NIL;

	survey_triggers(shape, rel, access, &problems);
	if (rel->rd_rules != nullptr)
		add_unsupported(&problems, "a rule");
	if (rel->rd_rel->relrowsecurity)
		add_unsupported(&problems, "row level security");
	return problems;
}

bool
raise_first(const List *problems, Relation rel, bool writing)
{
	bool others = false;
	ListCell *cell;

	foreach (cell, problems)
	{
		const Problem *problem = static_cast<const Problem *>(lfirst(cell));

		if (problem->sqlstate == 0)
			continue;
		others = true;
		if (writing || problem->sqlstate != ERRCODE_FEATURE_NOT_SUPPORTED)
			ereport(ERROR, (errcode(problem->sqlstate),
							errmsg("table %s.%s %s", get_namespace_name(RelationGetNamespace(rel)),
								   RelationGetRelationName(rel), problem->what),
							problem->detail != nullptr ? errdetail("%s", problem->detail) : 0,
							problem->hint != nullptr ? errhint("%s", problem->hint) : 0));
	}
	return others;
}

void
require_sound(const Shape &shape, Oid oid)
{
	Relation rel = table_open(oid, AccessShareLock);
	Layout layout;

	raise_first(survey(shape, rel, &layout), rel, true);
	table_close(rel, NoLock);
}

Oid
attempt_state_type(Oid schema)
{
	return GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("attempt_state"), ObjectIdGetDatum(schema));
}

} // namespace outbox
