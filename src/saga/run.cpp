// See run.h.

#include "saga/run.h"

#include "saga/audit.h"
#include "server/args.h"
#include "server/json.h"

namespace outbox {

namespace {

using namespace steps_col;

Table *
steps_table(Call *call)
{
	return open(call, steps_shape, inserts | updates);
}

void
decode_step(Run *run, Step *decoded, core::StepState *state, const Table *table)
{
	const StoredRow *row = &decoded->row;
	text *status_text = text_of(table, row, status);
	bool isnull;
	Datum value;

	decoded->is_stored = true;
	decoded->defined = defined_step(run->definition, DatumGetInt32(value_of(table, row, step_no, &isnull)));
	decoded->command_id = to_uuid(value_of(table, row, command_id, &isnull));
	value = value_of(table, row, compensation_id, &isnull);
	decoded->has_compensation = !isnull;
	if (!isnull)
		decoded->compensation_id = to_uuid(value);
	value = value_of(table, row, result, &isnull);
	decoded->result = isnull ? nullptr : DatumGetJsonbP(value);
	decoded->error = text_of(table, row, error);
	decoded->deadline = DatumGetTimestampTz(value_of(table, row, deadline, &isnull));
	decoded->has_deadline = !isnull;
	decoded->sent_at = DatumGetTimestampTz(value_of(table, row, sent_at, &isnull));
	decoded->compensated_at = DatumGetTimestampTz(value_of(table, row, compensated_at, &isnull));
	decoded->has_compensated_at = !isnull;
	decoded->answered_at = DatumGetTimestampTz(value_of(table, row, answered_at, &isnull));
	state->answered = !isnull;
	state->status = core::step_status({VARDATA_ANY(status_text), VARSIZE_ANY_EXHDR(status_text)});
	state->rounds = DatumGetInt32(value_of(table, row, rounds, &isnull));
	state->stage = decoded->defined->stage;
	state->can_undo = decoded->defined->compensation != nullptr;
}

void
set_or_null(const Table *table, TupleTableSlot *row, int column, bool given, Datum value)
{
	if (given)
		set(table, row, column, value);
	else
		set_null(table, row, column);
}

// What changes.
void
fill_step(const Table *table, TupleTableSlot *row, const Step *one, const core::StepState *state)
{
	set(table, row, status, CStringGetTextDatum(core::label(state->status)));
	set_or_null(table, row, compensation_id, one->has_compensation, in_place(one->compensation_id));
	set(table, row, rounds, Int32GetDatum(state->rounds));
	set_or_null(table, row, result, one->result != nullptr, PointerGetDatum(one->result));
	set_text(table, row, error, one->error);
	set_or_null(table, row, deadline, one->has_deadline, TimestampTzGetDatum(one->deadline));
	set_or_null(table, row, answered_at, state->answered, TimestampTzGetDatum(one->answered_at));
	set_or_null(table, row, compensated_at, one->has_compensated_at, TimestampTzGetDatum(one->compensated_at));
	set_or_null(table, row, gave_up_at, state->status == core::StepStatus::uncompensated,
				TimestampTzGetDatum(one->compensated_at));
}

void
insert_step(Run *run, Table *table, const Step *one, const core::StepState *state)
{
	TupleTableSlot *row = new_row(table);

	set(table, row, saga_id, in_place(run->becomes.id));
	set(table, row, step_no, Int32GetDatum(one->defined->step_no));
	set_text(table, row, step, one->defined->name);
	set(table, row, command_id, in_place(one->command_id));
	set(table, row, sent_at, TimestampTzGetDatum(one->sent_at));
	fill_step(table, row, one, state);
	insert_rows(table, &row, 1);
	ExecDropSingleTupleTableSlot(row);
}

void
write_steps(Run *run)
{
	for (int i = 0; i < run->count; i++)
	{
		Table *table = run->steps[i].changed ? steps_table(run->call) : nullptr;
		Step *one = &run->steps[i];
		TupleTableSlot *row;

		if (!one->changed)
			continue;
		if (!one->is_stored)
		{
			insert_step(run, table, one, &run->states[i]);
			continue;
		}
		row = row_again(table, &one->row);
		fill_step(table, row, one, &run->states[i]);
		update_own_row(table, &one->row.tid, row);
	}
}

Change
change_of(Run *run, const char *event_type, const text *of_step, Jsonb *metadata)
{
	return {event_type, of_step, metadata, trace_id_in(headers_of_run(run)), run->definition->audits_changes};
}

Jsonb *
read_headers(Run *run)
{
	Table *table = open(run->call, runs_shape, reads);
	Probe *probe = probe_id(table, run->becomes.id);
	bool isnull;
	Jsonb *headers;

	if (!next_settled(probe, ForwardScanDirection))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("saga %s has no row in saga.runs", shown(run->becomes.id))));
	headers = DatumGetJsonbPCopy(table->get(probe->slot, runs_col::headers, &isnull));
	rest_probe(probe);
	return headers;
}

} // namespace

void
begin_run(Run *run, Call *call, const core::Uuid *saga_id)
{
	*run = {};
	run->call = call;
	run->was = lock_instance(call, saga_id, &run->row);
	run->becomes = run->was;
	run->refusal = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
}

namespace {

// With room for all steps.
void
know_definition(Run *run)
{
	Size room;

	run->definition = definition_of(run->call, run->becomes.saga_type, run->becomes.definition_version);
	room = static_cast<Size>(Max(run->definition->count, 1));
	run->steps = static_cast<Step *>(palloc0(sizeof(Step) * room));
	run->states = static_cast<core::StepState *>(palloc0(sizeof(core::StepState) * room));
}

} // namespace

void
begin_new_run(Run *run, Call *call, const Instance *saga)
{
	*run = {};
	run->call = call;
	run->becomes = *saga;
	know_definition(run);
}

void
read_steps(Run *run)
{
	Table *table;
	Probe *probe;

	if (run->was.definition_version == 0)
		ereport(ERROR, (errcode(run->refusal), errmsg("saga %s is not run by the orchestrator", shown(run->was.id)),
						errhint("Use saga.save.")));
	know_definition(run);
	table = steps_table(run->call);
	// The lock of the saga keeps others from them: of each there is one version.
	probe = probe_id(table, run->was.id);
	prune_late(probe);
	while (run->count < run->definition->count && next_settled(probe, ForwardScanDirection))
		run->steps[run->count++].row = copy_row(table, probe->slot);
	rest_probe(probe);
	for (int i = 0; i < run->count; i++)
		decode_step(run, &run->steps[i], &run->states[i], table);
}

int
place_of_step(const Run *run, const text *name)
{
	for (int i = 0; name != nullptr && i < run->count; i++)
		if (equal(run->steps[i].defined->name, name))
			return i;
	ereport(ERROR, (errcode(run->refusal), errmsg("saga %s has not begun a step \"%s\"", shown(run->was.id),
												  name != nullptr ? text_to_cstring(name) : "<NULL>")));
}

int
add_step(Run *run, const DefinedStep *defined)
{
	run->steps[run->count].defined = defined;
	run->states[run->count] = {core::StepStatus::absent, false, 0, defined->stage, defined->compensation != nullptr};
	return run->count++;
}

void
put_step_status(Run *run, int place, core::StepStatus to)
{
	core::StepState *state = &run->states[place];

	if (state->status != to && !core::may_follow(state->status, to))
		raise_invalid_transition(
			psprintf("step \"%s\" of saga %s", text_to_cstring(run->steps[place].defined->name), shown(run->was.id)),
			core::label(state->status), core::label(to));
	state->status = to;
	run->steps[place].changed = true;
}

Jsonb *
headers_of_run(Run *run)
{
	if (run->headers == nullptr)
		run->headers = read_headers(run);
	return run->headers;
}

text *
saga_owner(Call *call)
{
	const Table *table = open(call, instances_shape, inserts | updates);

	return cstring_to_text(GetUserNameFromId(table->rel->rd_rel->relowner, false));
}

void
write_run(Run *run, const char *event_type, const text *of_step, Jsonb *metadata)
{
	Change change = change_of(run, event_type, of_step, metadata);

	write_steps(run);
	put_instance(run->call, &run->row, run->was, &run->becomes, change);
}

void
write_new_run(Run *run)
{
	Change change = change_of(run, "created", run->becomes.current_step, nullptr);

	write_steps(run);
	make_instance(run->call, &run->becomes, change);
}

} // namespace outbox
