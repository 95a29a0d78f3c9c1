// Making and reading jsonb.
#pragma once

#include "core/ids.h"
#include "server/pg.h"

namespace outbox {

// An object that is being made. What is put into it must stay in memory until its end. Of two fields with one key the
// later one counts.
struct JsonObject {
	JsonbParseState *state;
};
JsonObject begin_object();
Jsonb *end_object(JsonObject *object);
Jsonb *empty_object();
// An object as the value of a field, until it is closed.
void open_inner(JsonObject *object, const char *key);
void close_inner(JsonObject *object);

void put_field(JsonObject *object, const text *key, Jsonb *value);
void put_field(JsonObject *object, const char *key, Jsonb *value);
void put_field(JsonObject *object, const char *key, const text *value); // nullptr: JSON null
void put_field(JsonObject *object, const char *key, const char *value); // must not be nullptr
void put_field(JsonObject *object, const char *key, int32 value);
void put_field(JsonObject *object, const char *key, bool value);
// All of another object, in their order; where one of `fields` has its key, that stands in its place, else behind.
struct JsonField {
	const char *key;
	JsonbValue value;
	bool was_put;
};
JsonField json_field(const char *key, const text *value); // nullptr: JSON null
JsonField json_field(const char *key, const char *value);
JsonField json_field(const char *key, int32 value);
void put_fields_of(JsonObject *object, Jsonb *other, JsonField *fields, int count);

// As the operators ->> and ?; of what is no object, nothing.
text *field_text(Jsonb *object, const char *key);
bool has_field(Jsonb *object, const char *key);
inline bool
is_json_object(const Jsonb *value)
{
	return JB_ROOT_IS_OBJECT(value);
}
// object, array, string, number, boolean or null.
const char *json_type_of(Jsonb *value);

// The operator ||.
Jsonb *merged(Jsonb *object, Jsonb *with);
// The fields of `becomes` whose values differ, and with null those that are gone.
Jsonb *changed_fields(Jsonb *was, Jsonb *becomes);

} // namespace outbox
