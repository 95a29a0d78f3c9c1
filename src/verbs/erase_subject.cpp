// erase_subject, reapply_erasures: destroy the key of a subject. certified_erasure: of export_erasures.
//
// Guarantees: before anything is destroyed, the master key at hand has opened the key of hashes: with another one there
// is an error. A certificate from outside is applied only if this database, or one that it was restored from, wrote it:
// its mac is made with the key of hashes, so no list destroys a key without the master key. The erasure waits for
// transactions that encrypt for the subject, so that the certificate counts what they wrote. It is in effect for every
// session with the commit, in every isolation level.

#include "message/audit_event.h"
#include "privacy/erasure.h"
#include "server/args.h"
#include "server/boundary.h"
#include "server/json.h"

namespace outbox {

namespace {

void
tell_of_erasure(Call *call, const Certificate &certificate)
{
	JsonObject detail = begin_object();
	AuditEvent event = {Audited::erased};

	put_field(&detail, "certificate", shown(certificate.id));
	put_field(&detail, "sid", certificate.has_sid ? cstring_to_text(shown(certificate.sid)) : nullptr);
	put_field(&detail, "messages", static_cast<int32>(Min(certificate.messages, PG_INT32_MAX)));
	event.detail = end_object(&detail);
	record_event(call, event);
}

void
tell_of_reapplied(Call *call, int certificates, int64 destroyed)
{
	JsonObject detail = begin_object();
	AuditEvent event = {Audited::erased};

	put_field(&detail, "reapplied", certificates);
	put_field(&detail, "keys", static_cast<int32>(destroyed));
	event.detail = end_object(&detail);
	record_event(call, event);
}

} // namespace

OUTBOX_FUNCTION(outbox_erase_subject)
{
	const text *subject = required_text(fcinfo, 0, "subject");
	Certificate certificate = {};
	Call call;

	check_subject(subject);
	certificate.reason = required_nonempty_text(fcinfo, 1, "reason");
	certificate.requested_by = required_nonempty_text(fcinfo, 2, "requested_by");
	certificate.erased_by = current_user_name();
	begin_call(&call, "erase_subject()");
	certificate.subject = hash_of_subject(&call, subject, IfNone::make);
	wipe_places();
	erase(&call, &certificate);
	tell_of_erasure(&call, certificate);
	end_call(&call);
	return from_uuid(certificate.id);
}

namespace {

constexpr char format_of_export[] = "outbox erasure 1";

[[noreturn]] void
refuse_certificate(Jsonb *json, const char *detail)
{
	text *id = field_text(json, "certificate");

	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("certificate %s is not one of this database", id != nullptr ? shown(id) : "NULL"),
					errdetail("%s", detail),
					errhint("Pass what outbox.export_erasures has returned in this database, or in the one that it was "
							"restored from.")));
}

// nullptr for null.
char *
optional_field(Jsonb *json, const char *name)
{
	text *value = field_text(json, name);

	return value != nullptr ? text_to_cstring(value) : nullptr;
}

char *
certificate_field(Jsonb *json, const char *name)
{
	char *value = optional_field(json, name);

	if (value == nullptr)
		refuse_certificate(json, psprintf("It has no %s.", name));
	return value;
}

void
check_origin(Jsonb *json, const text *hash_key)
{
	const text *other = field_text(json, "hash_key");
	const text *format = field_text(json, "format");

	if (format == nullptr || !equal(format, cstring_to_text(format_of_export)))
		refuse_certificate(json, psprintf("Its format is not \"%s\".", format_of_export));
	if (other == nullptr || !equal(other, hash_key))
		refuse_certificate(json, psprintf("Its hash_key is %s, and that of the database %s.",
										  other != nullptr ? shown(other) : "missing", shown(hash_key)));
}

SubjectHash
hash_field(Jsonb *json)
{
	Datum hex = CStringGetTextDatum(certificate_field(json, "subject_hash"));
	bytea *bytes = DatumGetByteaPP(DirectFunctionCall2(binary_decode, hex, CStringGetTextDatum("hex")));
	SubjectHash hash;

	if (VARSIZE_ANY_EXHDR(bytes) != sizeof(hash.bytes))
		refuse_certificate(json, "Its subject_hash has not 32 bytes.");
	memcpy(hash.bytes, VARDATA_ANY(bytes), sizeof(hash.bytes));
	return hash;
}

core::Uuid
uuid_of(const char *chars)
{
	return to_uuid(DirectFunctionCall1(uuid_in, CStringGetDatum(chars)));
}

int64
int8_of(const char *digits)
{
	return DatumGetInt64(DirectFunctionCall1(int8in, CStringGetDatum(digits)));
}

Certificate
certificate_of(Jsonb *json)
{
	const char *sid = optional_field(json, "sid");
	const char *seal = optional_field(json, "seal_no");
	Certificate certificate = {};

	certificate.id = uuid_of(certificate_field(json, "certificate"));
	certificate.subject = hash_field(json);
	certificate.has_sid = sid != nullptr;
	if (sid != nullptr)
		certificate.sid = uuid_of(sid);
	certificate.reason = cstring_to_text(certificate_field(json, "reason"));
	certificate.requested_by = cstring_to_text(certificate_field(json, "requested_by"));
	certificate.erased_by = cstring_to_text(certificate_field(json, "erased_by"));
	certificate.at =
		DatumGetTimestampTz(DirectFunctionCall3(timestamptz_in, CStringGetDatum(certificate_field(json, "erased_at")),
												ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	certificate.messages = int8_of(certificate_field(json, "messages"));
	certificate.has_seal = seal != nullptr;
	certificate.seal_no = seal != nullptr ? int8_of(seal) : 0;
	return certificate;
}

constexpr char mac_key[] = "mac";

// Of all of it but the mac itself, as text, which jsonb always writes alike. In hex.
const char *
mac_of(Call *call, Jsonb *certificate)
{
	unsigned char mac[mac_bytes];
	Jsonb *rest =
		DatumGetJsonbP(DirectFunctionCall2(jsonb_delete, JsonbPGetDatum(certificate), CStringGetTextDatum(mac_key)));
	const char *chars = JsonbToCString(nullptr, &rest->root, static_cast<int>(VARSIZE(rest)));

	mac_of_erasure(call, cstring_to_text(chars), mac);
	return hex_of(mac, sizeof(mac));
}

void
check_mac(Call *call, Jsonb *json)
{
	const text *mac = field_text(json, mac_key);

	if (mac == nullptr || strcmp(text_to_cstring(mac), mac_of(call, json)) != 0)
		refuse_certificate(json, "Its mac is not that of its contents: it was changed, or made up.");
}

Jsonb *
with_field(Jsonb *certificate, JsonField field)
{
	JsonObject object = begin_object();

	put_fields_of(&object, certificate, &field, 1);
	return end_object(&object);
}

} // namespace

// certified_erasure(certificate): with the id of the key of hashes, and its mac.
OUTBOX_FUNCTION(outbox_certified_erasure)
{
	Jsonb *certificate = DatumGetJsonbP(required_datum(fcinfo, 0, "certificate"));
	Call call;

	if (!is_json_object(certificate))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("certificate must be a JSON object")));
	begin_reading(&call);
	certificate = with_field(certificate, json_field("hash_key", name_of_hash_key(&call)));
	certificate = with_field(certificate, json_field(mac_key, mac_of(&call, certificate)));
	wipe_places();
	end_reading(&call);
	PG_RETURN_JSONB_P(certificate);
}

OUTBOX_FUNCTION(outbox_reapply_erasures)
{
	ArrayArg given = required_array(fcinfo, 0, "certificates");
	int64 destroyed = 0;
	const text *hash_key;
	Call call;

	check_no_nulls(given, "certificates");
	begin_call(&call, "reapply_erasures()");
	hash_key = name_of_hash_key(&call);
	for (int i = 0; i < given.count; i++)
	{
		Certificate certificate;

		CHECK_FOR_INTERRUPTS();
		check_origin(DatumGetJsonbP(given.items[i]), hash_key);
		check_mac(&call, DatumGetJsonbP(given.items[i]));
		certificate = certificate_of(DatumGetJsonbP(given.items[i]));
		destroyed += reapply(&call, &certificate);
	}
	wipe_places();
	note_lineage(&call);
	tell_of_reapplied(&call, given.count, destroyed);
	end_call(&call);
	PG_RETURN_INT64(destroyed);
}

} // namespace outbox
