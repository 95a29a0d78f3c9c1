// See erasure.h.

#include "privacy/erasure.h"

#include "server/random.h"
#include "server/spi.h"

namespace outbox {

namespace {

int64
count_messages(Call *call, const core::Uuid &sid)
{
	Table *table = open(call, subject_messages_shape, reads);
	ScanKeyData key;
	int64 count = 0;
	Probe probe;

	key_equals(&key, primary_index(table), 1, F_UUID_EQ, in_place(sid));
	begin_probe(&probe, table, primary_index(table), 1);
	start_probe(&probe, &key, 1);
	for (; next_settled(&probe, ForwardScanDirection); count++)
		CHECK_FOR_INTERRUPTS();
	end_probe(&probe);
	return count;
}

// The last seal, where there are seals.
void
put_seal(Certificate *certificate)
{
	char *last;

	if (!OidIsValid(get_relname_relid("seals", outbox_schema())))
		return;
	SPI_connect();
	last = ask("SELECT seal_no FROM outbox.seals ORDER BY seal_no DESC LIMIT 1");
	certificate->has_seal = last != nullptr;
	certificate->seal_no = last != nullptr ? strtoll(last, nullptr, 10) : 0;
	SPI_finish();
}

void
write_certificate(Call *call, const Certificate *certificate)
{
	using namespace erasures_col;
	Table *table = open(call, erasures_shape, inserts);
	TupleTableSlot *row = new_row(table);

	set(table, row, erasures_col::certificate, from_uuid(certificate->id));
	set(table, row, subject_hash, hash_datum(certificate->subject));
	if (certificate->has_sid)
		set(table, row, sid, from_uuid(certificate->sid));
	set_text(table, row, reason, certificate->reason);
	set_text(table, row, requested_by, certificate->requested_by);
	set_text(table, row, erased_by, certificate->erased_by);
	set(table, row, erased_at, TimestampTzGetDatum(certificate->at));
	set(table, row, messages, Int64GetDatum(certificate->messages));
	if (certificate->has_seal)
		set(table, row, seal_no, Int64GetDatum(certificate->seal_no));
	insert_rows(table, &row, 1);
	ExecDropSingleTupleTableSlot(row);
}

bool
has_certificate(Call *call, const core::Uuid &id)
{
	Table *table = open(call, erasures_shape, reads);
	Probe *probe = probe_id(table, id);
	bool found = next_settled(probe, ForwardScanDirection);

	rest_probe(probe);
	return found;
}

} // namespace

void
erase(Call *call, Certificate *certificate)
{
	lock_against_use(certificate->subject);
	certificate->has_sid = destroy_key(call, certificate->subject, nullptr, &certificate->sid);
	if (certificate->has_sid)
		certificate->messages = count_messages(call, certificate->sid);
	put_seal(certificate);
	certificate->id = random_token();
	// Not before the wait: what was encrypted until then is erased.
	certificate->at = Max(GetCurrentTimestamp(), call->now);
	write_certificate(call, certificate);
}

bool
reapply(Call *call, const Certificate *certificate)
{
	core::Uuid sid;
	bool destroyed;

	lock_against_use(certificate->subject);
	destroyed = certificate->has_sid && destroy_key(call, certificate->subject, &certificate->sid, &sid);
	if (!has_certificate(call, certificate->id))
		write_certificate(call, certificate);
	return destroyed;
}

} // namespace outbox
