// See protect.h.

#include "privacy/protect.h"

#include <algorithm>

#include "server/json.h"

namespace outbox {

bool
may_reveal(const Call *call)
{
	return has_privs_of_role(call->caller, get_role_oid("outbox_privacy", false));
}

namespace {

const SubjectKey &
key_of(Protector *protector)
{
	if (protector->key.key == nullptr)
		protector->key =
			key_to_protect(protector->call, protector->hash != nullptr
												? *protector->hash
												: hash_of_subject(protector->call, protector->subject, IfNone::make));
	return protector->key;
}

bool
is_protected(const SubjectKey &key, const JsonPlace *place, JsonbValue *value)
{
	Envelope envelope;

	return read_envelope(value, &envelope) && envelope.is_whole && equal(envelope.sid, key.sid) &&
		   opened(key, place, envelope) != nullptr;
}

// Under a key that this database has made.
bool
has_known_key(Call *call, const JsonbValue *value)
{
	Envelope envelope;

	return read_envelope(value, &envelope) && envelope.is_whole && is_known_subject(call, envelope.sid);
}

// replace: it is to be protected.
JsonVisit
meaning_of(const Protector *protector, const JsonPlace *place, const JsonbValue *value)
{
	bool enters = false;

	for (int i = 0; i < protector->count; i++)
		if (is_meant(&protector->fields[i], place))
			return protector->is_replay && has_known_key(protector->call, value) ? JsonVisit::keep : JsonVisit::replace;
	for (int i = 0; i < protector->count; i++)
	{
		if (!leads_to(&protector->fields[i], place))
			continue;
		// The whole was protected by hand.
		if (has_known_key(protector->call, value))
			return JsonVisit::keep;
		require_way_on(&protector->fields[i], place, value);
		enters = true;
	}
	return enters ? JsonVisit::enter : JsonVisit::keep;
}

void
require_way_into(const Protector *protector, Jsonb *payload)
{
	JsonbValue root;

	JsonbToJsonbValue(payload, &root);
	if (JB_ROOT_IS_SCALAR(payload))
		root = *getIthJsonbValueFromContainer(&payload->root, 0);
	for (int i = 0; i < protector->count; i++)
		require_way_on(&protector->fields[i], nullptr, &root);
}

JsonVisit
visit_to_protect(void *context, const JsonPlace *place, JsonbValue *value, JsonbValue *instead)
{
	Protector *protector = static_cast<Protector *>(context);
	JsonVisit visit = meaning_of(protector, place, value);

	if (visit != JsonVisit::replace)
		return visit;
	if (is_protected(key_of(protector), place, value))
		return JsonVisit::keep;
	JsonbToJsonbValue(enclosed(key_of(protector), place, value), instead);
	return JsonVisit::replace;
}

} // namespace

Jsonb *
protected_fields(Protector *protector, Jsonb *payload)
{
	require_way_into(protector, payload);
	return rewritten(payload, visit_to_protect, protector);
}

namespace {

struct FieldSearch {
	const Protector *protector;
	bool found;
};

JsonVisit
visit_to_search(void *context, const JsonPlace *place, JsonbValue *value, JsonbValue *)
{
	FieldSearch *search = static_cast<FieldSearch *>(context);
	JsonVisit visit = meaning_of(search->protector, place, value);

	search->found |= visit == JsonVisit::replace;
	return visit == JsonVisit::enter ? JsonVisit::enter : JsonVisit::keep;
}

} // namespace

bool
has_fields(const Protector *protector, Jsonb *payload)
{
	FieldSearch search = {protector, false};

	require_way_into(protector, payload);
	rewritten(payload, visit_to_search, &search);
	return search.found;
}

namespace {

struct Revealer {
	Call *call;
	IfClosed if_closed;
	const SidList *only;
	SubjectKey key; // the last one that was used
	bool has_key;
	TimestampTz erased_at;
};

bool
has_sid(const SidList *list, const core::Uuid &sid)
{
	for (int i = 0; i < list->count; i++)
		if (equal(list->sids[i], sid))
			return true;
	return false;
}

// In *instead. False: it cannot be revealed.
bool
reveal_value(Revealer *revealer, const JsonPlace *place, const Envelope &envelope, JsonbValue *instead)
{
	Jsonb *plain;

	if (!envelope.is_whole)
		return false;
	if (!revealer->has_key || !equal(revealer->key.sid, envelope.sid))
		revealer->key = key_to_reveal(revealer->call, envelope.sid, &revealer->erased_at);
	revealer->has_key = true;
	if (revealer->key.key == nullptr && revealer->erased_at == DT_NOEND)
		return false;
	if (revealer->key.key != nullptr)
		plain = opened(revealer->key, place, envelope);
	else
		plain = erased_mark(revealer->erased_at);
	if (plain != nullptr)
		JsonbToJsonbValue(plain, instead);
	return plain != nullptr;
}

[[noreturn]] void
refuse_envelope(const JsonPlace *place)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("AUTHENTICATION_FAILED: the protected value at %s cannot be revealed", shown_place(place)),
					errdetail("It was changed or moved, was protected in another database, or has characters that the "
							  "encoding of this one lacks.")));
}

JsonVisit
visit_to_reveal(void *context, const JsonPlace *place, JsonbValue *value, JsonbValue *instead)
{
	Revealer *revealer = static_cast<Revealer *>(context);
	Envelope envelope;

	if (!read_envelope(value, &envelope))
		return JsonVisit::enter;
	if (revealer->only != nullptr && !(envelope.is_whole && has_sid(revealer->only, envelope.sid)))
		return JsonVisit::keep;
	if (!reveal_value(revealer, place, envelope, instead))
	{
		if (revealer->if_closed == IfClosed::raise)
			refuse_envelope(place);
		return JsonVisit::keep;
	}
	// A number or a text alone is in an array of one.
	if (JsonContainerIsScalar(instead->val.binary.data))
		*instead = *getIthJsonbValueFromContainer(instead->val.binary.data, 0);
	return JsonVisit::replace;
}

} // namespace

Jsonb *
revealed_fields(Call *call, Jsonb *payload, IfClosed if_closed, const SidList *only)
{
	Revealer revealer = {call, if_closed, only, {}, false, 0};

	if (!may_have_envelopes(payload))
		return payload;
	payload = rewritten(payload, visit_to_reveal, &revealer);
	wipe_places();
	return payload;
}

namespace {

struct Sids {
	core::Uuid *sids;
	int count;
	int room;
};

JsonVisit
visit_sids(void *context, const JsonPlace *, JsonbValue *value, JsonbValue *)
{
	Sids *found = static_cast<Sids *>(context);
	Envelope envelope;

	if (!read_envelope(value, &envelope))
		return JsonVisit::enter;
	if (!envelope.is_whole)
		return JsonVisit::keep;
	if (found->count == found->room)
	{
		found->room *= 2;
		found->sids =
			static_cast<core::Uuid *>(repalloc(found->sids, sizeof(core::Uuid) * static_cast<Size>(found->room)));
	}
	found->sids[found->count++] = envelope.sid;
	return JsonVisit::keep;
}

} // namespace

SidList
sids_in(Jsonb *payload)
{
	constexpr int room = 4;
	core::Uuid *end;
	Sids found = {static_cast<core::Uuid *>(palloc(sizeof(core::Uuid) * room)), 0, room};

	if (!may_have_envelopes(payload))
		return {found.sids, 0};
	rewritten(payload, visit_sids, &found);
	std::sort(found.sids, found.sids + found.count,
			  [](const core::Uuid &a, const core::Uuid &b) { return compare(a, b) < 0; });
	end = std::unique(found.sids, found.sids + found.count,
					  [](const core::Uuid &a, const core::Uuid &b) { return equal(a, b); });
	return {found.sids, static_cast<int>(end - found.sids)};
}

} // namespace outbox
