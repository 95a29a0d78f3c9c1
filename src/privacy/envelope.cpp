// See envelope.h.

#include "privacy/envelope.h"

#include "server/encoding.h"
#include "server/json.h"

namespace outbox {

namespace {

constexpr int version = 1;
constexpr int uuid_size = 36;

// What a value is bound to.
StringInfoData
binding_of(const core::Uuid &sid, const JsonPlace *place)
{
	StringInfoData bytes;

	initStringInfo(&bytes);
	appendStringInfoString(&bytes, "outbox value 1");
	appendBinaryStringInfo(&bytes, reinterpret_cast<const char *>(sid.bytes), sizeof(sid.bytes));
	put_place(&bytes, place);
	return bytes;
}

Bytes
view_of(const StringInfoData &text)
{
	return {reinterpret_cast<const unsigned char *>(text.data), static_cast<size_t>(text.len)};
}

bool
find_value(JsonbContainer *object, const char *key, JsonbValue *value)
{
	return getKeyJsonValueFromContainer(object, key, static_cast<int>(strlen(key)), value) != nullptr;
}

bool
has_version(JsonbContainer *object)
{
	JsonbValue value;

	return find_value(object, "v", &value) && value.type == jbvNumeric &&
		   DatumGetBool(DirectFunctionCall2(numeric_eq, NumericGetDatum(value.val.numeric),
											NumericGetDatum(int64_to_numeric(version))));
}

// As uuid_out() prints it, and no other form: one sid is one text.
bool
parse_uuid(const char *chars, core::Uuid *id)
{
	unsigned digit;
	int n = 0;

	for (int i = 0; i < uuid_size; i++)
	{
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (dash != (chars[i] == '-'))
			return false;
		if (dash)
			continue;
		if (chars[i] >= '0' && chars[i] <= '9')
			digit = static_cast<unsigned>(chars[i] - '0');
		else if (chars[i] >= 'a' && chars[i] <= 'f')
			digit = static_cast<unsigned>(chars[i] - 'a' + 10);
		else
			return false;
		id->bytes[n / 2] = static_cast<unsigned char>(n % 2 == 0 ? digit << 4 : id->bytes[n / 2] | digit);
		n++;
	}
	return true;
}

bool
read_sid(JsonbContainer *object, core::Uuid *sid)
{
	JsonbValue value;

	return find_value(object, "sid", &value) && value.type == jbvString && value.val.string.len == uuid_size &&
		   parse_uuid(value.val.string.val, sid);
}

// Behind what is there already. The number of bytes, or -1.
int
read_bytes(JsonbContainer *object, const char *key, StringInfo bytes)
{
	JsonbValue value;
	int size;

	if (!find_value(object, key, &value) || value.type != jbvString)
		return -1;
	enlargeStringInfo(bytes, value.val.string.len + 3);
	size = from_base64(value.val.string.val, value.val.string.len,
					   reinterpret_cast<unsigned char *>(bytes->data + bytes->len));
	bytes->len += Max(size, 0);
	return size;
}

void
put_bytes(JsonObject *object, const char *key, Bytes bytes)
{
	int size;
	char *chars = to_base64(bytes, &size);

	put_field(object, key, cstring_to_text_with_len(chars, size));
}

} // namespace

bool
read_envelope(const JsonbValue *value, Envelope *envelope)
{
	StringInfoData sealed;
	JsonbValue inner;

	if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data) ||
		JsonContainerSize(value->val.binary.data) != 1 || !find_value(value->val.binary.data, envelope_key, &inner))
		return false;
	initStringInfo(&sealed);
	envelope->is_whole = inner.type == jbvBinary && JsonContainerIsObject(inner.val.binary.data) &&
						 has_version(inner.val.binary.data) && read_sid(inner.val.binary.data, &envelope->sid) &&
						 read_bytes(inner.val.binary.data, "n", &sealed) == nonce_bytes &&
						 read_bytes(inner.val.binary.data, "c", &sealed) >= static_cast<int>(tag_bytes);
	envelope->sealed = view_of(sealed);
	return true;
}

Jsonb *
enclosed(const SubjectKey &key, const JsonPlace *place, JsonbValue *value)
{
	Jsonb *json = JsonbValueToJsonb(value);
	char *text = JsonbToCString(nullptr, &json->root, VARSIZE(json));
	Utf8 utf8 = to_utf8(text, static_cast<int>(strlen(text)));
	size_t size = static_cast<size_t>(utf8.size);
	unsigned char *sealed = static_cast<unsigned char *>(palloc(size + sealed_extra));
	StringInfoData binding = binding_of(key.sid, place);
	JsonObject object = begin_object();

	seal(key.key, view_of(binding), {reinterpret_cast<const unsigned char *>(utf8.bytes), size}, sealed);
	open_inner(&object, envelope_key);
	put_field(&object, "v", version);
	put_field(&object, "sid", shown(key.sid));
	put_bytes(&object, "n", {sealed, nonce_bytes});
	put_bytes(&object, "c", {sealed + nonce_bytes, size + tag_bytes});
	close_inner(&object);
	return end_object(&object);
}

Jsonb *
opened(const SubjectKey &key, const JsonPlace *place, const Envelope &envelope)
{
	StringInfoData binding = binding_of(key.sid, place);
	char *text;
	size_t size;

	if (!envelope.is_whole)
		return nullptr;
	size = envelope.sealed.size - sealed_extra;
	text = static_cast<char *>(palloc(size + 1));
	if (!unseal(key.key, view_of(binding), envelope.sealed, reinterpret_cast<unsigned char *>(text)))
		return nullptr;
	text = from_utf8(text, static_cast<int>(size));
	if (text == nullptr)
		return nullptr;
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
}

Jsonb *
erased_mark(TimestampTz at)
{
	static const int utc = 0;
	char buffer[MAXDATELEN + 1];
	JsonObject object = begin_object();

	put_field(&object, "$erased", true);
	put_field(&object, "at", JsonEncodeDateTime(buffer, TimestampTzGetDatum(at), TIMESTAMPTZOID, &utc));
	return end_object(&object);
}

} // namespace outbox
