// See rule.h.

#include "privacy/rule.h"

#include "server/json.h"

namespace outbox {

namespace {

[[noreturn]] void
refuse_rule(const char *why)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid value for protect"), errdetail("%s", why),
					errhint("Write {\"subject\": \"$.customer_id\", \"fields\": [\"$.email\", \"$.phone\"]}.")));
}

const text *
chars_of(const JsonbValue *value)
{
	return cstring_to_text_with_len(value->val.string.val, value->val.string.len);
}

Field
subject_field(JsonbContainer *rule)
{
	JsonbValue value;
	Field field;

	if (getKeyJsonValueFromContainer(rule, "subject", 7, &value) == nullptr || value.type != jbvString)
		refuse_rule("It has no text \"subject\".");
	field = parse_field(chars_of(&value), "protect");
	for (int i = 0; i < field.count; i++)
		if (field.steps[i].key == nullptr && field.steps[i].index < 0)
			refuse_rule("The subject is one value, so its path has no [*].");
	return field;
}

} // namespace

Rule
parse_rule(Jsonb *json)
{
	JsonbContainer *object = &json->root;
	JsonbValue value;
	Rule rule = {};

	if (!JB_ROOT_IS_OBJECT(json) || JB_ROOT_COUNT(json) != 2)
		refuse_rule("It is not an object of \"subject\" and \"fields\".");
	rule.subject = subject_field(object);
	if (getKeyJsonValueFromContainer(object, "fields", 6, &value) == nullptr || value.type != jbvBinary ||
		!JsonContainerIsArray(value.val.binary.data))
		refuse_rule("It has no array \"fields\".");
	rule.count = static_cast<int>(JsonContainerSize(value.val.binary.data));
	if (rule.count == 0)
		refuse_rule("It has no fields. An empty object protects nothing.");
	rule.fields = static_cast<Field *>(palloc(sizeof(Field) * static_cast<Size>(rule.count)));
	for (int i = 0; i < rule.count; i++)
	{
		JsonbValue *field = getIthJsonbValueFromContainer(value.val.binary.data, static_cast<uint32>(i));

		if (field->type != jbvString)
			refuse_rule("An element of \"fields\" is not a text.");
		rule.fields[i] = parse_field(chars_of(field), "protect");
	}
	return rule;
}

namespace {

// nullptr: there is none.
JsonbValue *
value_at_step(JsonbContainer *container, const FieldStep *step)
{
	if (step->key != nullptr)
		return JsonContainerIsObject(container)
				   ? getKeyJsonValueFromContainer(container, step->key, step->size, nullptr)
				   : nullptr;
	return JsonContainerIsArray(container) ? getIthJsonbValueFromContainer(container, static_cast<uint32>(step->index))
										   : nullptr;
}

} // namespace

text *
subject_in(const Rule &rule, Jsonb *payload)
{
	JsonbContainer *container = &payload->root;
	JsonbValue *value = nullptr;

	if (JB_ROOT_IS_SCALAR(payload))
		return nullptr;
	for (int i = 0; i < rule.subject.count; i++)
	{
		if (i > 0 && (value == nullptr || value->type != jbvBinary))
			return nullptr;
		container = i > 0 ? value->val.binary.data : container;
		value = value_at_step(container, &rule.subject.steps[i]);
	}
	if (value == nullptr || (value->type != jbvString && value->type != jbvNumeric))
		return nullptr;
	if (value->type == jbvString)
		return cstring_to_text_with_len(value->val.string.val, value->val.string.len);
	// 5 and 5.0 are one subject.
	return cstring_to_text(DatumGetCString(DirectFunctionCall1(
		numeric_out, DirectFunctionCall1(numeric_trim_scale, NumericGetDatum(value->val.numeric)))));
}

} // namespace outbox
