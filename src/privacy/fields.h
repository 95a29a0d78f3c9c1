// Which values of a JSON are meant: by names of the top level, or by JSON paths.
//
// Guarantee: what is not understood is refused with 22023; no name is taken for another one.
//
// Shape: a path is $ and then steps: .name, ."any name", [3], [*] (each element of an array). Anything that does not
// begin with $ is a name of the top level, whatever is in it.
#pragma once

#include "server/args.h"
#include "server/json_walk.h"

namespace outbox {

struct FieldStep {
	const char *key; // nullptr: elements
	int size;
	int64 index; // -1: each
};

struct Field {
	FieldStep *steps;
	int count;
};

// argument: its name, for errors.
Field parse_field(const text *written, const char *argument);

// The place is one of those meant; or such a place may lie within it.
bool is_meant(const Field *field, const JsonPlace *place);
bool leads_to(const Field *field, const JsonPlace *place);

// What is at the place, to which the field leads, has not the form that the path goes on with: 22023. null has none,
// and holds nothing. place: nullptr = the root.
void require_way_on(const Field *field, const JsonPlace *place, const JsonbValue *value);

} // namespace outbox
