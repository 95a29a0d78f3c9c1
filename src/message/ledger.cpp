// See ledger.h.

#include "message/ledger.h"

#include "server/args.h"
#include "server/errors.h"
#include "rows/id_walk.h"
#include "rows/probe.h"

namespace outbox {

const char cancelled_code[] = "CANCELLED";
const char broken_code[] = "LEASE_BROKEN";
const char expired_code[] = "LEASE_EXPIRED";
const char exhausted_code[] = "RETRIES_EXHAUSTED";
const char released_code[] = "RELEASES_EXHAUSTED";

namespace {

Oid
state_oid(Call *call, core::Record state)
{
	Oid *oid = &call->states[static_cast<int>(state)];

	if (!OidIsValid(*oid))
		*oid = GetSysCacheOid2(ENUMTYPOIDNAME, Anum_pg_enum_oid, ObjectIdGetDatum(attempt_state_type(outbox_schema())),
							   CStringGetDatum(core::name(state)));
	return *oid;
}

bool
has_terminal(Table *leaf, const core::Uuid &id)
{
	Relation index = own_index(leaf, attempts_index::one_terminal_per_outbox);
	Probe probe;
	bool found;

	begin_probe(&probe, leaf, index, 1);
	start_id_probe(&probe, id);
	found = next_settled(&probe, ForwardScanDirection);
	end_probe(&probe);
	return found;
}

int
attempt_no_in(const Table *leaf, TupleTableSlot *slot)
{
	bool isnull;

	return DatumGetInt32(leaf->get(slot, attempts_col::attempt_no, &isnull));
}

} // namespace

Datum
state_datum(Call *call, core::Record state)
{
	return ObjectIdGetDatum(state_oid(call, state));
}

core::Record
state_of(Call *call, Datum datum)
{
	for (int i = static_cast<int>(core::Record::dispatched); i < core::records; i++)
		if (state_oid(call, static_cast<core::Record>(i)) == DatumGetObjectId(datum))
			return static_cast<core::Record>(i);
	elog(ERROR, "unknown attempt_state %u", DatumGetObjectId(datum));
}

Tried
tried(Call *call, const core::Uuid &id)
{
	Table *leaf = leaf_of(call, attempts_shape, id, inserts);
	Tried result = {};
	Probe *probe = probe_id(leaf, id);

	if (next_settled(probe, BackwardScanDirection))
	{
		result.attempts = attempt_no_in(leaf, probe->slot);
		result.terminal = has_terminal(leaf, id);
	}
	rest_probe(probe);
	return result;
}

void
tried_all(Table *leaf, const core::Uuid *ids, int count, Tried *result, bool *known)
{
	IdWalk walk;

	begin_id_walk(&walk, leaf, ids[0], ids[count - 1], count);
	for (int i = 0; i < count; i++)
	{
		WalkedTo step = walk_to(&walk, ids[i]);

		for (result[i] = {}; step == WalkedTo::found; step = walk_to(&walk, ids[i]))
			result[i].attempts = attempt_no_in(leaf, walk.probe.slot);
		known[i] = step == WalkedTo::absent;
	}
	end_id_walk(&walk);
	for (int i = 0; i < count; i++)
		if (known[i] && result[i].attempts > 0)
			result[i].terminal = has_terminal(leaf, ids[i]);
}

int
next_attempt_no(const Tried &before, const core::Uuid &id, int *sqlstate)
{
	if (before.attempts < PG_INT32_MAX)
		return before.attempts + 1;
	if (sqlstate == nullptr)
		ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
						errmsg("message %s has no attempt_no left after %d", shown(id), before.attempts)));
	*sqlstate = ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE;
	return 0;
}

namespace {

// The latest attempt for which is_meant(leaf, slot, state) is true.
template <typename Meant>
Recorded
find_attempt(Call *call, const core::Uuid &id, const Meant &is_meant)
{
	using namespace attempts_col;
	Table *leaf = leaf_of(call, attempts_shape, id, inserts);
	Recorded recorded = {};
	Probe *probe;

	// Look-ups in the catalogs come before a page is pinned.
	for (int i = static_cast<int>(core::Record::dispatched); i < core::records; i++)
		state_datum(call, static_cast<core::Record>(i));
	probe = probe_id(leaf, id);
	while (recorded.attempt_no == 0 && next_settled(probe, BackwardScanDirection))
	{
		bool isnull;
		core::Record found = state_of(call, leaf->get(probe->slot, state, &isnull));
		Datum code;

		if (!is_meant(leaf, probe->slot, found))
			continue;
		recorded.attempt_no = attempt_no_in(leaf, probe->slot);
		recorded.state = found;
		code = leaf->get(probe->slot, error_code, &isnull);
		if (isnull)
			continue;
		recorded.cancelled = strcmp(TextDatumGetCString(code), cancelled_code) == 0;
		recorded.broken = strcmp(TextDatumGetCString(code), broken_code) == 0;
		recorded.released = strcmp(TextDatumGetCString(code), released_code) == 0;
	}
	rest_probe(probe);
	return recorded;
}

} // namespace

Recorded
recorded_under(Call *call, const core::Uuid &id, const core::Uuid &token)
{
	return find_attempt(call, id, [&](const Table *leaf, TupleTableSlot *slot, core::Record) {
		bool isnull;
		Datum value = leaf->get(slot, attempts_col::lease_token, &isnull);

		return !isnull && equal(to_uuid(value), token);
	});
}

const char *
last_error_recorded(Call *call, const core::Uuid &id)
{
	Table *leaf = leaf_of(call, attempts_shape, id, inserts);
	Probe *probe = probe_id(leaf, id);
	const char *parts[] = {nullptr, nullptr};
	auto read_part = [&](int column) -> const char * {
		bool isnull;
		Datum value = leaf->get(probe->slot, column, &isnull);

		return isnull ? nullptr : TextDatumGetCString(value);
	};

	if (next_settled(probe, BackwardScanDirection))
	{
		parts[0] = read_part(attempts_col::error_code);
		parts[1] = read_part(attempts_col::error_message);
	}
	rest_probe(probe);
	if (parts[0] == nullptr || parts[1] == nullptr)
		return parts[0] != nullptr ? parts[0] : (parts[1] != nullptr ? parts[1] : "");
	return psprintf("%s: %s", parts[0], parts[1]);
}

Recorded
recorded_end(Call *call, const core::Uuid &id)
{
	return find_attempt(call, id,
						[](const Table *, TupleTableSlot *, core::Record state) { return is_terminal(state); });
}

} // namespace outbox
