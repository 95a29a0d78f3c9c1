// See json.h.

#include "server/json.h"

namespace outbox {

namespace {

JsonbValue
string_value(const char *chars, int size)
{
	JsonbValue value = {};

	value.type = jbvString;
	value.val.string.val = const_cast<char *>(chars);
	value.val.string.len = size;
	return value;
}

void
put_key(JsonObject *object, const char *key, int size)
{
	JsonbValue value = string_value(key, size);

	pushJsonbValue(&object->state, WJB_KEY, &value);
}

void
put_value(JsonObject *object, const char *key, JsonbValue *value)
{
	put_key(object, key, static_cast<int>(strlen(key)));
	pushJsonbValue(&object->state, WJB_VALUE, value);
}

bool
find_field(Jsonb *object, const char *key, int size, JsonbValue *value)
{
	return JB_ROOT_IS_OBJECT(object) && getKeyJsonValueFromContainer(&object->root, key, size, value) != nullptr;
}

// Calls act(key, value) for each field.
template <typename Act>
void
each_field(Jsonb *object, const Act &act)
{
	JsonbIterator *iterator = JsonbIteratorInit(&object->root);
	JsonbIteratorToken token;
	JsonbValue key = {};
	JsonbValue value;

	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			key = value;
		else if (token == WJB_VALUE)
			act(&key, &value);
	}
}

bool
are_same(JsonbValue *a, JsonbValue *b)
{
	return compareJsonbContainers(&JsonbValueToJsonb(a)->root, &JsonbValueToJsonb(b)->root) == 0;
}

} // namespace

JsonObject
begin_object()
{
	JsonObject object = {nullptr};

	pushJsonbValue(&object.state, WJB_BEGIN_OBJECT, nullptr);
	return object;
}

Jsonb *
end_object(JsonObject *object)
{
	return JsonbValueToJsonb(pushJsonbValue(&object->state, WJB_END_OBJECT, nullptr));
}

Jsonb *
empty_object()
{
	JsonObject object = begin_object();

	return end_object(&object);
}

void
open_inner(JsonObject *object, const char *key)
{
	put_key(object, key, static_cast<int>(strlen(key)));
	pushJsonbValue(&object->state, WJB_BEGIN_OBJECT, nullptr);
}

void
close_inner(JsonObject *object)
{
	pushJsonbValue(&object->state, WJB_END_OBJECT, nullptr);
}

void
put_field(JsonObject *object, const text *key, Jsonb *value)
{
	JsonbValue binary;

	JsonbToJsonbValue(value, &binary);
	put_key(object, VARDATA_ANY(key), static_cast<int>(VARSIZE_ANY_EXHDR(key)));
	pushJsonbValue(&object->state, WJB_VALUE, &binary);
}

void
put_field(JsonObject *object, const char *key, Jsonb *value)
{
	JsonbValue binary;

	JsonbToJsonbValue(value, &binary);
	put_value(object, key, &binary);
}

void
put_field(JsonObject *object, const char *key, const text *value)
{
	JsonField field = json_field(key, value);

	put_value(object, key, &field.value);
}

void
put_field(JsonObject *object, const char *key, const char *value)
{
	JsonField field = json_field(key, value);

	put_value(object, key, &field.value);
}

void
put_field(JsonObject *object, const char *key, int32 value)
{
	JsonField field = json_field(key, value);

	put_value(object, key, &field.value);
}

void
put_field(JsonObject *object, const char *key, bool value)
{
	JsonbValue boolean = {};

	boolean.type = jbvBool;
	boolean.val.boolean = value;
	put_value(object, key, &boolean);
}

JsonField
json_field(const char *key, const text *value)
{
	JsonField field = {key, {}, false};

	field.value.type = jbvNull;
	if (value != nullptr)
		field.value = string_value(VARDATA_ANY(value), static_cast<int>(VARSIZE_ANY_EXHDR(value)));
	return field;
}

JsonField
json_field(const char *key, const char *value)
{
	return {key, string_value(value, static_cast<int>(strlen(value))), false};
}

JsonField
json_field(const char *key, int32 value)
{
	JsonField field = {key, {}, false};

	field.value.type = jbvNumeric;
	field.value.val.numeric = int64_to_numeric(value);
	return field;
}

namespace {

// nullptr: none has this key.
JsonField *
field_of_key(JsonField *fields, int count, const JsonbValue *key)
{
	for (int i = 0; i < count; i++)
		if (strncmp(fields[i].key, key->val.string.val, static_cast<size_t>(key->val.string.len)) == 0 &&
			fields[i].key[key->val.string.len] == '\0')
			return &fields[i];
	return nullptr;
}

} // namespace

void
put_fields_of(JsonObject *object, Jsonb *other, JsonField *fields, int count)
{
	each_field(other, [&](JsonbValue *key, JsonbValue *value) {
		JsonField *instead = field_of_key(fields, count, key);

		pushJsonbValue(&object->state, WJB_KEY, key);
		pushJsonbValue(&object->state, WJB_VALUE, instead != nullptr ? &instead->value : value);
		if (instead != nullptr)
			instead->was_put = true;
	});
	for (int i = 0; i < count; i++)
		if (!fields[i].was_put)
			put_value(object, fields[i].key, &fields[i].value);
}

text *
field_text(Jsonb *object, const char *key)
{
	JsonbValue value;

	if (!find_field(object, key, static_cast<int>(strlen(key)), &value) || value.type == jbvNull)
		return nullptr;
	if (value.type == jbvString)
		return cstring_to_text_with_len(value.val.string.val, value.val.string.len);
	return cstring_to_text(JsonbToCString(nullptr, &JsonbValueToJsonb(&value)->root, -1));
}

bool
has_field(Jsonb *object, const char *key)
{
	JsonbValue value;

	return find_field(object, key, static_cast<int>(strlen(key)), &value);
}

const char *
json_type_of(Jsonb *value)
{
	return TextDatumGetCString(DirectFunctionCall1(jsonb_typeof, JsonbPGetDatum(value)));
}

Jsonb *
merged(Jsonb *object, Jsonb *with)
{
	if (JB_ROOT_COUNT(with) == 0)
		return object;
	return DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(object), JsonbPGetDatum(with)));
}

Jsonb *
changed_fields(Jsonb *was, Jsonb *becomes)
{
	JsonObject changes = begin_object();
	JsonbValue null = {};
	JsonbValue other;

	null.type = jbvNull;
	each_field(becomes, [&](JsonbValue *key, JsonbValue *value) {
		if (find_field(was, key->val.string.val, key->val.string.len, &other) && are_same(&other, value))
			return;
		pushJsonbValue(&changes.state, WJB_KEY, key);
		pushJsonbValue(&changes.state, WJB_VALUE, value);
	});
	each_field(was, [&](JsonbValue *key, JsonbValue *) {
		if (find_field(becomes, key->val.string.val, key->val.string.len, &other))
			return;
		pushJsonbValue(&changes.state, WJB_KEY, key);
		pushJsonbValue(&changes.state, WJB_VALUE, &null);
	});
	return end_object(&changes);
}

} // namespace outbox
