// See queue_settings.h.

#include "verbs/queue_settings.h"

#include "message/handler.h"
#include "message/queue.h"
#include "message/validator.h"
#include "server/args.h"
#include "verbs/queue_privacy.h"

namespace outbox {

namespace {

// Where NULL means none, this keeps the setting.
constexpr int keep = -1;

constexpr int settings[] = {queues_col::lease,           queues_col::backoff_base,    queues_col::backoff_cap,
							queues_col::backoff_jitter,  queues_col::repair_delay,    queues_col::ordering,
							queues_col::on_dead_head,    queues_col::paused,          queues_col::payload_kind,
							queues_col::handler_timeout, queues_col::reveal_on_claim, queues_col::audit_events};

// The arguments stand as the table's columns do, but for those that are no argument.
constexpr int
argument_of(int column)
{
	return column - (column > queues_col::created_at) - (column > queues_col::validator_owner) -
		   (column > queues_col::handler_owner);
}

void
check_choice(Datum value, const char *name, std::initializer_list<const char *> choices)
{
	const char *chosen = TextDatumGetCString(value);
	StringInfoData list;

	for (const char *choice : choices)
		if (strcmp(chosen, choice) == 0)
			return;
	initStringInfo(&list);
	for (const char *choice : choices)
		appendStringInfo(&list, "%s\"%s\"", list.len == 0 ? "" : ", ", choice);
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("invalid value for %s: \"%s\"", name, shown(DatumGetTextPP(value))),
					errhint("Available values: %s.", list.data)));
}

void
check_setting(int column, Datum value)
{
	using namespace queues_col;
	const char *name = queues_shape.columns[column].name;

	switch (column)
	{
		case lease:
		case handler_timeout:
			positive_interval_us(DatumGetIntervalP(value), name);
			break;
		case backoff_base:
		case backoff_cap:
		case repair_delay:
			nonnegative_interval_us(DatumGetIntervalP(value), name);
			break;
		case backoff_jitter:
			if (!(DatumGetFloat4(value) >= 0 && DatumGetFloat4(value) <= 1))
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must be between 0 and 1, not %g", name,
																		  static_cast<double>(DatumGetFloat4(value)))));
			break;
		case ordering:
			check_choice(value, name, {"none", "numbered", "fifo"});
			break;
		case on_dead_head:
			check_choice(value, name, {"continue", "block"});
			break;
		case payload_kind:
			check_choice(value, name, {"object", "any"});
			break;
		default:
			break;
	}
}

// NULL means none. False: the setting stays, or is none.
bool
is_given(FunctionCallInfo fcinfo, int column, Table *table, TupleTableSlot *row, bool keeps)
{
	bool none = PG_ARGISNULL(argument_of(column));

	if (none)
		set_null(table, row, column);
	return !none && !keeps;
}

// A ceiling of at least `least`. NULL means none.
void
put_ceiling(FunctionCallInfo fcinfo, int column, int least, Table *table, TupleTableSlot *row, bool keep_absent)
{
	int argument = argument_of(column);

	if (!is_given(fcinfo, column, table, row, keep_absent && PG_GETARG_INT32(argument) == keep))
		return;
	check_at_least(PG_GETARG_INT32(argument), least, queues_shape.columns[column].name);
	set(table, row, column, PG_GETARG_DATUM(argument));
}

void
put_rate(FunctionCallInfo fcinfo, Table *table, TupleTableSlot *row, bool keep_absent)
{
	double rate = PG_GETARG_FLOAT8(argument_of(queues_col::rate_limit));

	if (!is_given(fcinfo, queues_col::rate_limit, table, row, keep_absent && rate == keep))
		return;
	if (!(rate > 0) || std::isinf(rate))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("rate_limit must be greater than zero and finite, not %g", rate)));
	set(table, row, queues_col::rate_limit, Float8GetDatum(rate));
}

// NULL keeps it, the empty string removes it.
void
put_fair_by(FunctionCallInfo fcinfo, Table *table, TupleTableSlot *row, bool keep_absent)
{
	const text *by = optional_text(fcinfo, argument_of(queues_col::fair_by));
	bool none = by == nullptr || VARSIZE_ANY_EXHDR(by) == 0;

	if (by == nullptr && keep_absent)
		return;
	if (!none)
		check_choice(PointerGetDatum(by), "fair_by", {"partition_key"});
	set_text(table, row, queues_col::fair_by, none ? nullptr : by);
}

// NULL keeps it, 0 removes it.
void
put_aging(FunctionCallInfo fcinfo, Table *table, TupleTableSlot *row, bool keep_absent)
{
	int argument = argument_of(queues_col::priority_aging);

	if (PG_ARGISNULL(argument) && keep_absent)
		return;
	if (PG_ARGISNULL(argument) || nonnegative_interval_us(PG_GETARG_INTERVAL_P(argument), "priority_aging") == 0)
		set_null(table, row, queues_col::priority_aging);
	else
		set(table, row, queues_col::priority_aging, PG_GETARG_DATUM(argument));
}

// The order of keys and that of rising priorities are different orders.
void
refuse_two_orders(Table *table, TupleTableSlot *row)
{
	bool isnull;
	auto given = [&](int column) {
		table->get(row, column, &isnull);
		return !isnull;
	};

	if (!given(queues_col::priority_aging))
		return;
	for (int column : {queues_col::fair_by, queues_col::max_in_flight_per_key})
		if (given(column))
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("a queue cannot have both priority_aging and %s", queues_shape.columns[column].name),
							errhint("Remove one of them. Without priority_aging priorities are strict.")));
}

// NULL keeps it, the empty string removes it.
void
put_function(FunctionCallInfo fcinfo, int column, int owner_column, const text *owner, Table *table,
			 TupleTableSlot *row, bool keep_absent)
{
	const text *name = optional_text(fcinfo, argument_of(column));

	if (name == nullptr && keep_absent)
		return;
	set_text(table, row, column, owner != nullptr ? name : nullptr);
	set_text(table, row, owner_column, owner);
}

[[noreturn]] void
refuse_dead_letter_queue(const char *problem, const text *queue, const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg(problem, shown(queue)), errdetail("%s", detail),
					errhint("Dead letters are told over one step: the queue that they are told to has no "
							"dead_letter_queue itself.")));
}

// Queue `from` names `to`, which cannot be dropped until the end of the transaction. Sessions that name one wait for
// each other, so that no two of them make a chain.
void
check_dead_letter_queue(Call *call, const text *from, const text *to)
{
	ListCell *cell;

	refuse_queue_of_seals(to);
	if (equal(from, to))
		refuse_dead_letter_queue("queue \"%s\" must not be its own dead_letter_queue", from,
								 "Notices that die would be told again and again.");
	hold_queue(call, to);
	lock_dead_letter_queues();
	foreach (cell, all_queues(call))
	{
		const Queue *other = static_cast<const Queue *>(lfirst(cell));

		if (other->dead_letter_queue == nullptr)
			continue;
		if (equal(other->name, to))
			refuse_dead_letter_queue("queue \"%s\" cannot be a dead_letter_queue", to,
									 psprintf("Its own is queue \"%s\".", shown(other->dead_letter_queue)));
		if (equal(other->dead_letter_queue, from))
			refuse_dead_letter_queue("queue \"%s\" cannot have a dead_letter_queue", from,
									 psprintf("It is that of queue \"%s\".", shown(other->name)));
	}
}

// NULL keeps it, the empty string removes it.
void
put_dead_letter_queue(FunctionCallInfo fcinfo, Call *call, Table *table, TupleTableSlot *row, bool keep_absent)
{
	const text *name = optional_text(fcinfo, argument_of(queues_col::dead_letter_queue));
	bool none = name == nullptr || VARSIZE_ANY_EXHDR(name) == 0;
	bool isnull;

	if (name == nullptr && keep_absent)
		return;
	if (!none)
		check_dead_letter_queue(call, DatumGetTextPP(table->get(row, queues_col::queue, &isnull)), name);
	set_text(table, row, queues_col::dead_letter_queue, none ? nullptr : name);
}

} // namespace

FunctionOwners
owners_of_functions(FunctionCallInfo fcinfo)
{
	auto owner = [&](int column, const text *(*check)(const text *)) -> const text * {
		const text *name = optional_text(fcinfo, argument_of(column));

		return name != nullptr && VARSIZE_ANY_EXHDR(name) > 0 ? check(name) : nullptr;
	};

	return {owner(queues_col::validator, check_validator), owner(queues_col::handler, check_handler)};
}

void
put_settings(FunctionCallInfo fcinfo, Call *call, const FunctionOwners &owners, Table *table, TupleTableSlot *row,
			 bool keep_absent)
{
	put_ceiling(fcinfo, queues_col::max_attempts, 1, table, row, keep_absent);
	put_ceiling(fcinfo, queues_col::max_releases, 0, table, row, keep_absent);
	for (int column : settings)
	{
		int argument = argument_of(column);

		if (keep_absent && PG_ARGISNULL(argument))
			continue;
		check_setting(column, required_datum(fcinfo, argument, queues_shape.columns[column].name));
		set(table, row, column, PG_GETARG_DATUM(argument));
	}
	put_function(fcinfo, queues_col::validator, queues_col::validator_owner, owners.validator, table, row, keep_absent);
	put_function(fcinfo, queues_col::handler, queues_col::handler_owner, owners.handler, table, row, keep_absent);
	for (int column : {queues_col::max_in_flight, queues_col::rate_burst, queues_col::max_in_flight_per_key})
		put_ceiling(fcinfo, column, 1, table, row, keep_absent);
	put_rate(fcinfo, table, row, keep_absent);
	put_fair_by(fcinfo, table, row, keep_absent);
	put_aging(fcinfo, table, row, keep_absent);
	refuse_two_orders(table, row);
	put_dead_letter_queue(fcinfo, call, table, row, keep_absent);
	put_privacy(fcinfo, argument_of, call, table, row, keep_absent);
}

} // namespace outbox
