// See fields.h.

#include "privacy/fields.h"

namespace outbox {

namespace {

constexpr int most_steps = 64;

// What is still to be read of a path.
struct Path {
	const char *at;
	const text *written;
	const char *argument;
};

[[noreturn]] void
refuse_path(const Path *path, const char *why)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid path in %s: \"%s\"", path->argument, shown(path->written)), errdetail("%s", why),
			 errhint("Write the name of a top-level field, or a path such as $.customer.email or $.lines[*].name.")));
}

bool
ends_name(char c)
{
	return c == '\0' || c == '.' || c == '[' || c == ']' || c == '"' || c == '*' || c == '$' || c == ' ';
}

// With \" and \\ for a quote and a backslash.
FieldStep
quoted_step(Path *path)
{
	StringInfoData name;

	initStringInfo(&name);
	for (path->at++; *path->at != '"'; path->at++)
	{
		if (*path->at == '\\')
			path->at++;
		if (*path->at == '\0')
			refuse_path(path, "A quoted name has no end.");
		appendStringInfoChar(&name, *path->at);
	}
	path->at++;
	return {name.data, name.len, -1};
}

FieldStep
name_step(Path *path)
{
	const char *begin = path->at;

	if (*path->at == '"')
		return quoted_step(path);
	while (!ends_name(*path->at))
		path->at++;
	if (path->at == begin)
		refuse_path(path, "A dot is followed by a name.");
	return {begin, static_cast<int>(path->at - begin), -1};
}

FieldStep
element_step(Path *path)
{
	FieldStep step = {nullptr, 0, -1};
	char *end;

	if (path->at[0] == '*' && path->at[1] == ']')
	{
		path->at += 2;
		return step;
	}
	if (*path->at < '0' || *path->at > '9')
		refuse_path(path, "In brackets stands the number of an element, or * for each.");
	step.index = strtol(path->at, &end, 10);
	if (*end != ']' || step.index > PG_INT32_MAX)
		refuse_path(path, "In brackets stands the number of an element, or * for each.");
	path->at = end + 1;
	return step;
}

FieldStep
next_step(Path *path)
{
	char kind = *path->at++;

	if (kind == '.')
		return name_step(path);
	if (kind == '[')
		return element_step(path);
	refuse_path(path, "A step begins with a dot or a bracket.");
}

} // namespace

Field
parse_field(const text *written, const char *argument)
{
	const char *chars = text_to_cstring(written);
	Path path = {chars + 1, written, argument};
	Field field = {static_cast<FieldStep *>(palloc(sizeof(FieldStep) * most_steps)), 0};

	if (chars[0] == '\0')
		refuse_path(&path, "It is empty.");
	if (chars[0] != '$')
	{
		field.steps[field.count++] = {chars, static_cast<int>(strlen(chars)), -1};
		return field;
	}
	while (*path.at != '\0')
	{
		if (field.count == most_steps)
			refuse_path(&path, "It has too many steps.");
		field.steps[field.count++] = next_step(&path);
	}
	if (field.count == 0)
		refuse_path(&path, "It means the whole, not a field of it.");
	return field;
}

namespace {

bool
takes_step(const FieldStep *step, const JsonPlace *place)
{
	if (step->key == nullptr)
		return place->key == nullptr && (step->index < 0 || step->index == place->index);
	return place->key != nullptr && place->size == step->size &&
		   memcmp(place->key, step->key, static_cast<size_t>(step->size)) == 0;
}

// Its first steps lead to the place.
bool
begins_with(const Field *field, const JsonPlace *place)
{
	for (; place != nullptr; place = place->up)
		if (!takes_step(&field->steps[place->depth - 1], place))
			return false;
	return true;
}

} // namespace

bool
is_meant(const Field *field, const JsonPlace *place)
{
	return field->count == place->depth && begins_with(field, place);
}

bool
leads_to(const Field *field, const JsonPlace *place)
{
	return field->count > place->depth && begins_with(field, place);
}

namespace {

bool
is_container(const JsonbValue *value, bool of_object)
{
	return value->type == jbvBinary &&
		   (of_object ? JsonContainerIsObject(value->val.binary.data) : JsonContainerIsArray(value->val.binary.data));
}

const char *
kind_of(const JsonbValue *value)
{
	if (value->type == jbvBinary)
		return is_container(value, true) ? "an object" : "an array";
	return value->type == jbvString ? "a text" : value->type == jbvNumeric ? "a number" : "a boolean";
}

} // namespace

void
require_way_on(const Field *field, const JsonPlace *place, const JsonbValue *value)
{
	bool needs_object = field->steps[place != nullptr ? place->depth : 0].key != nullptr;

	if (value->type == jbvNull || is_container(value, needs_object))
		return;
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("payload has %s at %s, through which the path of a protected field leads", kind_of(value),
						   place != nullptr ? shown_place(place) : "$"),
					errdetail("The path needs %s there, so a field might be stored in plain text.",
							  needs_object ? "an object" : "an array"),
					errhint("Send a payload of the form that the paths describe, or protect the whole of the value.")));
}

} // namespace outbox
