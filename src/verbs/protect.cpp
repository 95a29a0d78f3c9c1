// protect, reveal: fields of a payload, encrypted under the key of their subject. And what SQL needs of the keys.
//
// Guarantees: as in privacy/protect.h. No function returns a key, or takes one; a key that leaves memory is wrapped.

#include "privacy/lineage.h"
#include "privacy/protect.h"
#include "server/args.h"
#include "server/boundary.h"

namespace outbox {

OUTBOX_FUNCTION(outbox_protect)
{
	Jsonb *payload = DatumGetJsonbP(required_datum(fcinfo, 0, "payload"));
	const text *subject = required_text(fcinfo, 1, "subject");
	ArrayArg names = required_array(fcinfo, 2, "fields");
	Field *fields = static_cast<Field *>(palloc(sizeof(Field) * static_cast<Size>(Max(names.count, 1))));
	Protector protector;
	Call call;

	check_subject(subject);
	check_no_nulls(names, "fields");
	for (int i = 0; i < names.count; i++)
		fields[i] = parse_field(DatumGetTextPP(names.items[i]), "fields");
	begin_call(&call, "protect()");
	protector = {&call, subject, nullptr, fields, names.count, false, {}};
	payload = protected_fields(&protector, payload);
	wipe_places();
	end_call(&call);
	PG_RETURN_JSONB_P(payload);
}

OUTBOX_FUNCTION(outbox_reveal)
{
	Jsonb *payload = DatumGetJsonbP(required_datum(fcinfo, 0, "payload"));
	Call call;

	begin_reading(&call);
	payload = revealed_fields(&call, payload, IfClosed::raise);
	end_reading(&call);
	PG_RETURN_JSONB_P(payload);
}

// reveal_of(payload, sids): those alone, and what does not open stays.
OUTBOX_FUNCTION(outbox_reveal_of)
{
	Jsonb *payload = DatumGetJsonbP(required_datum(fcinfo, 0, "payload"));
	ArrayArg given = required_array(fcinfo, 1, "sids");
	core::Uuid *sids = static_cast<core::Uuid *>(palloc(sizeof(core::Uuid) * static_cast<Size>(Max(given.count, 1))));
	SidList only = {sids, 0};
	Call call;

	for (int i = 0; i < given.count; i++)
		if (!given.is_null(i))
			sids[only.count++] = to_uuid(given.items[i]);
	begin_reading(&call);
	payload = revealed_fields(&call, payload, IfClosed::leave, &only);
	end_reading(&call);
	PG_RETURN_JSONB_P(payload);
}

// subject_hash(subject): as the tables have it.
OUTBOX_FUNCTION(outbox_subject_hash)
{
	const text *subject = required_text(fcinfo, 0, "subject");
	Datum hash;
	Call call;

	check_subject(subject);
	begin_reading(&call);
	hash = hash_datum(hash_of_subject(&call, subject, IfNone::refuse));
	wipe_places();
	end_reading(&call);
	return hash;
}

// rewrapped_key(wrapped, key_id, subject_hash, sid): under the current master key. Without a subject, the key of
// hashes.
OUTBOX_FUNCTION(outbox_rewrapped_key)
{
	Purpose purpose = purpose_of_hash_key();
	unsigned char *key = secret_place(Secret::passing);
	SubjectHash subject = {};
	Datum result;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_NULL();
	if (!PG_ARGISNULL(2) && !PG_ARGISNULL(3))
	{
		const bytea *hash = PG_GETARG_BYTEA_PP(2);

		memcpy(subject.bytes, VARDATA_ANY(hash), Min(sizeof(subject.bytes), VARSIZE_ANY_EXHDR(hash)));
		purpose = purpose_of_subject_key(subject, to_uuid(PG_GETARG_DATUM(3)));
	}
	unwrap_key(PG_GETARG_BYTEA_PP(0), text_to_cstring(PG_GETARG_TEXT_PP(1)), purpose, key);
	result = PointerGetDatum(wrapped_key(key, purpose));
	wipe_places();
	return result;
}

// master_key_id(): of the current one.
OUTBOX_FUNCTION(outbox_master_key_id)
{
	PG_RETURN_TEXT_P(cstring_to_text(current_master_key()->id));
}

// master_key_problem(): why there is none; NULL if there is one.
OUTBOX_FUNCTION(outbox_master_key_problem)
{
	const char *problem = problem_of_master_key();

	if (problem == nullptr)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(problem));
}

OUTBOX_FUNCTION(outbox_lineage)
{
	text *lineage = lineage_of_database();

	if (lineage == nullptr)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(lineage);
}

} // namespace outbox
