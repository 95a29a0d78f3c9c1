// complete, complete_batch, and the first half of complete_and_claim: a worker reports
// its attempts.
//
// Guarantees: those of message/try_report.h. A fault of the arguments as a whole is an ERROR before anything is read.

#include "server/errors.h"
#include "rows/batch.h"
#include "message/try_report.h"
#include "verbs/complete.h"

namespace outbox {

namespace {

Datum
state_or_null(Call *call, const TryReport *report, bool *isnull)
{
	*isnull = report->attempt_no == 0;
	return *isnull ? static_cast<Datum>(0) : state_datum(call, report->recorded);
}

// A fault of one report is returned in its row.
void
read_report(Call *call, const Reports *reports, int i, TryReport *report)
{
	auto text_at = [&](const ArrayArg &array) { return array.is_null(i) ? nullptr : DatumGetTextPP(array.items[i]); };

	if (!reports->ids.is_null(i))
		report->id = to_uuid(reports->ids.items[i]);
	if (reports->ids.is_null(i) || reports->tokens.is_null(i))
	{
		report->bad = ERRCODE_NULL_VALUE_NOT_ALLOWED;
		return;
	}
	report->token = to_uuid(reports->tokens.items[i]);
	report->has_state = !reports->states.is_null(i);
	if (report->has_state)
		report->state = state_of(call, reports->states.items[i]);
	report->details.reference = text_at(reports->references);
	report->details.response_code = text_at(reports->response_codes);
	report->details.error_code = text_at(reports->error_codes);
	report->details.error_message = text_at(reports->error_messages);
	report->details.has_latency = !reports->latencies.is_null(i);
	report->details.latency_ms = report->details.has_latency ? DatumGetInt32(reports->latencies.items[i]) : 0;
	report->has_delay = !reports->delays.is_null(i);
	if (report->has_delay &&
		!usable_delay_us(DatumGetIntervalP(reports->delays.items[i]), call->now, &report->delay_us))
		report->bad = ERRCODE_INVALID_PARAMETER_VALUE;
}

} // namespace

Reports
reports_argument(FunctionCallInfo fcinfo)
{
	Reports reports = {};
	auto same_length = [&](const ArrayArg &array, const char *name) {
		check_same_length(array, reports.ids.count, name, "outbox_ids");
	};

	reports.worker = worker_argument(fcinfo, 0);
	reports.ids = required_array(fcinfo, 1, "outbox_ids");
	check_batch(reports.ids.count, "the number of outbox_ids");
	reports.tokens = required_array(fcinfo, 2, "lease_tokens");
	reports.states = required_array(fcinfo, 3, "states");
	reports.references = optional_array(fcinfo, 4, "refs");
	reports.response_codes = optional_array(fcinfo, 5, "response_codes");
	reports.error_codes = optional_array(fcinfo, 6, "error_codes");
	reports.error_messages = optional_array(fcinfo, 7, "error_messages");
	reports.latencies = optional_array(fcinfo, 8, "latencies_ms");
	reports.delays = optional_array(fcinfo, 9, "retry_delays");
	same_length(reports.tokens, "lease_tokens");
	same_length(reports.states, "states");
	same_length(reports.references, "refs");
	same_length(reports.response_codes, "response_codes");
	same_length(reports.error_codes, "error_codes");
	same_length(reports.error_messages, "error_messages");
	same_length(reports.latencies, "latencies_ms");
	same_length(reports.delays, "retry_delays");
	return reports;
}

void
settle_reports(Call *call, Reports *reports)
{
	int count = reports->ids.count;

	if (count == 0)
		return;
	reports->settled = static_cast<TryReport *>(palloc0(sizeof(TryReport) * static_cast<Size>(count)));
	for (int i = 0; i < count; i++)
		read_report(call, reports, i, &reports->settled[i]);
	settle_tries(call, reports->settled, count, reports->worker);
}

void
put_reports(Call *call, const Reports *reports, FunctionCallInfo fcinfo, PutRow put)
{
	for (int i = 0; i < reports->ids.count; i++)
	{
		const TryReport *report = &reports->settled[i];
		Datum values[5] = {};
		bool nulls[5] = {};

		nulls[0] = reports->ids.is_null(i);
		values[0] = nulls[0] ? 0 : reports->ids.items[i];
		values[1] = Int32GetDatum(report->attempt_no);
		nulls[1] = report->attempt_no == 0;
		values[2] = state_or_null(call, report, &nulls[2]);
		values[3] = TimestampTzGetDatum(report->next_attempt_at);
		nulls[3] = report->error != 0 || !report->rescheduled;
		values[4] = error_datum(report->error, &nulls[4]);
		put(fcinfo, values, nulls);
	}
}

OUTBOX_FUNCTION(outbox_complete)
{
	TryReport report = {};
	text *worker;
	TupleDesc desc;
	Call call;
	Datum values[3];
	bool nulls[3] = {};

	report.id = to_uuid(required_datum(fcinfo, 0, "outbox_id"));
	report.token = to_uuid(required_datum(fcinfo, 1, "lease_token"));
	worker = worker_argument(fcinfo, 2);
	required_datum(fcinfo, 3, "state");
	report.details.reference = optional_text(fcinfo, 4);
	report.details.response_code = optional_text(fcinfo, 5);
	report.details.error_code = optional_text(fcinfo, 6);
	report.details.error_message = optional_text(fcinfo, 7);
	report.details.has_latency = !PG_ARGISNULL(8);
	report.details.latency_ms = report.details.has_latency ? PG_GETARG_INT32(8) : 0;
	if (report.details.has_latency)
		check_at_least(report.details.latency_ms, 0, "latency_ms");
	report.has_delay = !PG_ARGISNULL(9);
	if (report.has_delay)
		report.delay_us = nonnegative_interval_us(PG_GETARG_INTERVAL_P(9), "retry_delay");

	desc = single_row_desc(fcinfo);
	begin_call(&call, "complete()");
	report.state = state_of(&call, PG_GETARG_DATUM(3));
	if (report.state == core::Record::zombie_requeue)
		ereport(ERROR, (errcode(ERRCODE_OUTBOX_INVALID_STATE),
						errmsg("INVALID_STATE: state must be DISPATCHED, FAILED or RETRYABLE, not %s",
							   core::name(report.state)),
						errdetail("A lost lease is recorded by claim and by outbox.repair_expired_leases.")));
	if (report.has_delay && report.state != core::Record::retryable)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("retry_delay must be null with state %s", core::name(report.state)),
						errdetail("%s ends the message.", core::name(report.state)),
						errhint("Report RETRYABLE to have the message tried again.")));
	settle_try(&call, &report, worker);
	values[0] = Int32GetDatum(report.attempt_no);
	values[1] = state_or_null(&call, &report, &nulls[1]);
	values[2] = TimestampTzGetDatum(report.next_attempt_at);
	nulls[2] = !report.rescheduled;
	end_call(&call);
	return single_row(desc, values, nulls);
}

OUTBOX_FUNCTION(outbox_complete_batch)
{
	Reports reports = reports_argument(fcinfo);
	Call call;

	begin_results(fcinfo);
	begin_call(&call, "complete_batch()");
	settle_reports(&call, &reports);
	put_reports(&call, &reports, fcinfo, put_result);
	end_call(&call);
	return static_cast<Datum>(0);
}

} // namespace outbox
