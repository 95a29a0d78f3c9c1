// See definition.h.

#include "saga/definition.h"

#include "saga/instance.h"
#include "server/args.h"

namespace outbox {

namespace {

constexpr int most_remembered = 64;

Definition *remembered;
int remembered_count;
// Of the two tables that what is remembered was read from.
Oid read_from[2];

struct Use {
	MemoryContextCallback callback;
	Definition *definition;
};

void
free_if_unused(Definition *definition)
{
	if (definition->outdated && definition->users == 0)
		MemoryContextDelete(definition->context);
}

void
forget_definitions()
{
	Definition *next;

	for (Definition *one = remembered; one != nullptr; one = next)
	{
		next = one->next;
		one->outdated = true;
		free_if_unused(one);
	}
	remembered = nullptr;
	remembered_count = 0;
}

void
definitions_changed(Datum, Oid rel)
{
	if (!OidIsValid(rel) || rel == read_from[0] || rel == read_from[1])
		forget_definitions();
}

// Two relations of other OIDs are a new installation.
void
read_from_tables(Oid definitions, Oid steps)
{
	static bool registered;

	if (!registered)
		CacheRegisterRelcacheCallback(definitions_changed, 0);
	registered = true;
	if (read_from[0] != definitions || read_from[1] != steps)
		forget_definitions();
	read_from[0] = definitions;
	read_from[1] = steps;
}

void
end_use_of_definition(void *definition)
{
	Definition *used = static_cast<Definition *>(definition);

	used->users--;
	free_if_unused(used);
}

const Definition *
use_in(Call *call, Definition *definition)
{
	Use *use = static_cast<Use *>(MemoryContextAlloc(call->estate->es_query_cxt, sizeof(Use)));

	use->callback.func = end_use_of_definition;
	use->callback.arg = definition;
	definition->users++;
	MemoryContextRegisterResetCallback(call->estate->es_query_cxt, &use->callback);
	return definition;
}

// ---- reading

int
number_in(const Table *table, TupleTableSlot *slot, int column)
{
	bool isnull;
	Datum value = table->get(slot, column, &isnull);

	return isnull ? 0 : DatumGetInt32(value);
}

DefinedStep
read_defined_step(const Table *table, TupleTableSlot *slot)
{
	using namespace definition_steps_col;
	DefinedStep step = {};
	bool isnull;
	Datum interval = table->get(slot, timeout, &isnull);

	if (!isnull)
	{
		step.timeout = static_cast<Interval *>(palloc(sizeof(Interval)));
		*step.timeout = *DatumGetIntervalP(interval);
	}
	step.step_no = number_in(table, slot, step_no);
	step.stage = number_in(table, slot, stage);
	step.name = copied_text(table, slot, name);
	step.command = copied_text(table, slot, command);
	step.queue = copied_text(table, slot, queue);
	step.compensation = copied_text(table, slot, compensation);
	step.is_replied = strcmp(text_to_cstring(copied_text(table, slot, answer)), "reply") == 0;
	step.max_attempts = number_in(table, slot, max_attempts);
	step.parallel_group = copied_text(table, slot, parallel_group);
	return step;
}

void
start_at_version(Probe *probe, const text *saga_type, int version)
{
	Relation index = probe->scan->indexRelation;
	ScanKeyData keys[2];

	key_equals(&keys[0], index, 1, F_TEXTEQ, PointerGetDatum(saga_type));
	key_equals(&keys[1], index, 2, F_INT4EQ, Int32GetDatum(version));
	start_probe(probe, keys, 2);
}

bool
is_own(TupleTableSlot *slot)
{
	return TransactionIdIsCurrentTransactionId(inserter_of(slot));
}

// The steps, while the table has more of them.
void
read_defined_steps(Call *call, Definition *definition)
{
	Table *table = open(call, definition_steps_shape, reads);
	List *steps = NIL;
	ListCell *cell;
	Probe probe;

	begin_probe(&probe, table, primary_index(table), 2);
	start_at_version(&probe, definition->saga_type, definition->version);
	while (next_settled(&probe, ForwardScanDirection))
	{
		DefinedStep *step = static_cast<DefinedStep *>(palloc(sizeof(DefinedStep)));

		*step = read_defined_step(table, probe.slot);
		steps = lappend(steps, step);
	}
	end_probe(&probe);
	definition->steps =
		static_cast<DefinedStep *>(palloc(sizeof(DefinedStep) * static_cast<Size>(Max(list_length(steps), 1))));
	foreach (cell, steps)
	{
		const DefinedStep *step = static_cast<DefinedStep *>(lfirst(cell));

		definition->steps[definition->count++] = *step;
		definition->stages = Max(definition->stages, step->stage);
	}
}

// own: this transaction has defined it. False if there is none.
bool
read_version(Call *call, Definition *definition, bool *own)
{
	Table *table = open(call, definitions_shape, reads);
	Probe probe;
	bool found;

	begin_probe(&probe, table, primary_index(table), 2);
	start_at_version(&probe, definition->saga_type, definition->version);
	found = next_settled(&probe, ForwardScanDirection);
	if (found)
	{
		*own = is_own(probe.slot);
		definition->audits_changes =
			strcmp(text_to_cstring(copied_text(table, probe.slot, definitions_col::audit)), "diff") == 0;
	}
	end_probe(&probe);
	return found;
}

Definition *
read_definition(Call *call, const text *saga_type, int version, bool *own)
{
	MemoryContext context =
		AllocSetContextCreate(call->estate->es_query_cxt, "outbox saga definition", ALLOCSET_SMALL_SIZES);
	MemoryContext outer = MemoryContextSwitchTo(context);
	Definition *definition = static_cast<Definition *>(palloc0(sizeof(Definition)));

	definition->context = context;
	definition->version = version;
	definition->saga_type = DatumGetTextPCopy(PointerGetDatum(saga_type));
	if (!read_version(call, definition, own))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("version %d of saga type \"%s\" is missing", version, shown(saga_type))));
	read_defined_steps(call, definition);
	MemoryContextSwitchTo(outer);
	return definition;
}

void
remember_definition(Definition *definition)
{
	if (remembered_count >= most_remembered)
		forget_definitions();
	MemoryContextSetParent(definition->context, CacheMemoryContext);
	definition->next = remembered;
	remembered = definition;
	remembered_count++;
}

} // namespace

const Definition *
definition_of(Call *call, const text *saga_type, int version)
{
	Definition *definition;
	bool own = false;

	for (definition = remembered; definition != nullptr; definition = definition->next)
		if (definition->version == version && equal(definition->saga_type, saga_type))
			return use_in(call, definition);
	definition = read_definition(call, saga_type, version, &own);
	// It lives as long as the call, or becomes the session's.
	if (own)
		return definition;
	read_from_tables(RelationGetRelid(open(call, definitions_shape, reads)->rel),
					 RelationGetRelid(open(call, definition_steps_shape, reads)->rel));
	remember_definition(definition);
	return use_in(call, definition);
}

int
newest_version(Call *call, const text *saga_type)
{
	Table *table = open(call, definitions_shape, reads);
	int version = 0;
	ScanKeyData key;
	Probe probe;

	begin_probe(&probe, table, primary_index(table), 1);
	key_equals(&key, primary_index(table), 1, F_TEXTEQ, PointerGetDatum(saga_type));
	start_probe(&probe, &key, 1);
	while (version == 0 && next_settled(&probe, BackwardScanDirection))
		if (!is_newer_than_snapshot(probe.slot))
			version = number_in(table, probe.slot, definitions_col::version);
	end_probe(&probe);
	return version;
}

const DefinedStep *
defined_step(const Definition *definition, int step_no)
{
	for (int i = 0; i < definition->count; i++)
		if (definition->steps[i].step_no == step_no)
			return &definition->steps[i];
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("step %d of version %d of saga type \"%s\" is missing", step_no, definition->version,
						   shown(definition->saga_type))));
}

} // namespace outbox
