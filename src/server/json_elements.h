// The elements of a JSON array of objects, which a function takes as a batch.
//
// Guarantees: anything but an array of objects is 22023, and so are more elements than outbox.max_batch.
// From begin_elements() to end_elements() the CONTEXT of an error names the element, and the field that
// is being read.
#pragma once

#include "core/ids.h"
#include "server/pg.h"

namespace outbox {

struct JsonElements {
	const char *array; // the argument's name
	const char *name;  // of the field that is being read; nullptr = none
	int number;        // of the element, from 1

	// Inner.
	JsonbIterator *rest;
	JsonbIterator *fields;
	char short_name[NAMEDATALEN];
	ErrorContextCallback context;
};

// How many there are. `elements` must stay in its place.
int begin_elements(JsonElements *elements, Jsonb *array, const char *name);
bool next_element(JsonElements *elements);
// The next field of the element.
bool next_field(JsonElements *elements, JsonbValue *value);
void end_elements(JsonElements *elements);

// The value of a field. One of another type is 22023.
text *text_of(const char *name, const JsonbValue *value);
char *string_of(const char *name, const JsonbValue *value);
int int_of(const char *name, const JsonbValue *value);
core::Uuid uuid_in_field(const char *name, const JsonbValue *value);

} // namespace outbox
