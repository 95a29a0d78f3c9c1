// See json_elements.h.

#include "server/json_elements.h"

#include "server/args.h"
#include "server/values.h"

namespace outbox {

namespace {

void
name_place(void *arg)
{
	const JsonElements *elements = static_cast<const JsonElements *>(arg);

	if (elements->name != nullptr)
		errcontext("%s of element %d of %s", shown(cstring_to_text(elements->name)), elements->number, elements->array);
	else
		errcontext("element %d of %s", elements->number, elements->array);
}

[[noreturn]] void
not_an_array(const JsonElements *elements)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must be a JSON array of objects", elements->array)));
}

[[noreturn]] void
wrong_type(const char *name, const char *wanted)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must be %s", name, wanted)));
}

// Names are short, and there are some in each element.
void
set_name(JsonElements *elements, const JsonbValue *key)
{
	Size length = static_cast<Size>(key->val.string.len);

	if (length >= sizeof(elements->short_name))
	{
		elements->name = pnstrdup(key->val.string.val, length);
		return;
	}
	memcpy(elements->short_name, key->val.string.val, length);
	elements->short_name[length] = '\0';
	elements->name = elements->short_name;
}

} // namespace

int
begin_elements(JsonElements *elements, Jsonb *array, const char *name)
{
	memset(elements, 0, sizeof(*elements));
	elements->array = name;
	if (!JB_ROOT_IS_ARRAY(array) || JB_ROOT_IS_SCALAR(array))
		not_an_array(elements);
	check_batch(static_cast<int>(JB_ROOT_COUNT(array)), psprintf("the number of %s", name));
	elements->rest = JsonbIteratorInit(&array->root);
	elements->context = {error_context_stack, name_place, elements};
	error_context_stack = &elements->context;
	return static_cast<int>(JB_ROOT_COUNT(array));
}

bool
next_element(JsonElements *elements)
{
	JsonbIteratorToken token;
	JsonbValue value;

	while ((token = JsonbIteratorNext(&elements->rest, &value, true)) != WJB_DONE)
	{
		if (token != WJB_ELEM)
			continue;
		elements->number++;
		if (value.type != jbvBinary || !JsonContainerIsObject(value.val.binary.data))
			not_an_array(elements);
		elements->fields = JsonbIteratorInit(value.val.binary.data);
		CHECK_FOR_INTERRUPTS();
		return true;
	}
	return false;
}

bool
next_field(JsonElements *elements, JsonbValue *value)
{
	JsonbIteratorToken token;

	while ((token = JsonbIteratorNext(&elements->fields, value, true)) != WJB_DONE)
		if (token == WJB_KEY)
			set_name(elements, value);
		else if (token == WJB_VALUE)
			return true;
	elements->name = nullptr;
	return false;
}

void
end_elements(JsonElements *elements)
{
	error_context_stack = elements->context.previous;
}

text *
text_of(const char *name, const JsonbValue *value)
{
	if (value->type != jbvString)
		wrong_type(name, "a JSON string");
	return cstring_to_text_with_len(value->val.string.val, value->val.string.len);
}

char *
string_of(const char *name, const JsonbValue *value)
{
	return text_to_cstring(text_of(name, value));
}

int
int_of(const char *name, const JsonbValue *value)
{
	const char *digits;
	char *end;
	long number;

	if (value->type != jbvNumeric)
		wrong_type(name, "a JSON number");
	digits = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value->val.numeric)));
	errno = 0;
	number = strtol(digits, &end, 10);
	if (*end != '\0' || errno != 0 || number < PG_INT32_MIN || number > PG_INT32_MAX)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s must be an integer, not %s", name, shown(cstring_to_text(digits)))));
	return static_cast<int>(number);
}

core::Uuid
uuid_in_field(const char *name, const JsonbValue *value)
{
	return to_uuid(DirectFunctionCall1(uuid_in, CStringGetDatum(string_of(name, value))));
}

} // namespace outbox
