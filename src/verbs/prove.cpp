// prove, export_seals, seal_leaves: what a third party needs.
//
// Guarantees: they only read, also on a standby. See seals/proof.h.

#include "rows/call.h"
#include "seals/proof.h"
#include "seals/sorted.h"
#include "server/args.h"
#include "server/boundary.h"
#include "server/digest.h"
#include "server/settings.h"

namespace outbox {

namespace {

// As the owner, connected to SPI, with the settings of seals.
template <typename Body>
void
reading_seals(const char *function, const Body &body)
{
	int level;
	Call call;

	require_read_committed(function);
	begin_reading(&call);
	level = pin_for_seals();
	SPI_connect();
	body(&call);
	SPI_finish();
	AtEOXact_GUC(true, level);
	end_reading(&call);
}

void
put_leaves(FunctionCallInfo fcinfo, const SealedLeaf *leaf, const Seal *seal)
{
	SortedRow row;
	RowSort sort;

	begin_sort(&sort);
	each_row(leaf, seal->from_at, seal->to_at, [&](const SealedRow *found) { sort_row(&sort, 0, found); });
	sort_rows(&sort);
	while (next_sorted(&sort, &row))
	{
		Datum values[] = {CStringGetTextDatum(core::sealed_forms[leaf->table]->table), CStringGetTextDatum(leaf->name),
						  from_uuid(row.id), Int32GetDatum(row.attempt_no), digest_datum(row.leaf)};
		bool nulls[] = {false, false, false, core::sealed_forms[leaf->table] != &core::attempt_form, false};

		put_result(fcinfo, values, nulls);
	}
	end_sort(&sort);
}

} // namespace

OUTBOX_FUNCTION(outbox_prove)
{
	core::Uuid id = to_uuid(required_datum(fcinfo, 0, "outbox_id"));
	MemoryContext caller = CurrentMemoryContext;
	Jsonb *proof = nullptr;

	reading_seals("prove()", [&](const Call *call) { proof = copied_to(caller, proof_of(call, id)); });
	return JsonbPGetDatum(proof);
}

OUTBOX_FUNCTION(outbox_export_seals)
{
	int64 from_no = PG_ARGISNULL(0) ? 1 : PG_GETARG_INT64(0);
	int64 to_no = PG_ARGISNULL(1) ? PG_INT64_MAX : PG_GETARG_INT64(1);

	check_at_least(from_no, 1, "from_seal");
	check_at_least(to_no, from_no, "to_seal");
	begin_results(fcinfo, 1);
	reading_seals("export_seals()", [&](const Call *) {
		each_seal(from_no, to_no, [&](const Seal *seal) {
			Datum value = JsonbPGetDatum(exported(seal));
			bool isnull = false;

			put_result(fcinfo, &value, &isnull);
		});
	});
	return static_cast<Datum>(0);
}

OUTBOX_FUNCTION(outbox_seal_leaves)
{
	int64 seal_no = DatumGetInt64(required_datum(fcinfo, 0, "seal_no"));

	begin_results(fcinfo, 5);
	reading_seals("seal_leaves()", [&](const Call *) {
		ListCell *cell;
		Seal seal;

		if (!find_seal(seal_no, &seal))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("there is no seal " INT64_FORMAT, seal_no)));
		foreach (cell, sealed_leaves())
			put_leaves(fcinfo, static_cast<const SealedLeaf *>(lfirst(cell)), &seal);
	});
	return static_cast<Datum>(0);
}

} // namespace outbox
