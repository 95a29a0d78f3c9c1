// See json_walk.h.

#include "server/json_walk.h"

#include <cstring>

#include "server/encoding.h"

namespace outbox {

namespace {

struct Rewriting {
	JsonVisitor visitor;
	void *context;
	JsonbParseState *state;
	JsonbValue *result;
};

void copy_inner(Rewriting *rewriting, JsonbContainer *container, const JsonPlace *up);

void
copy_value(Rewriting *rewriting, JsonbIteratorToken token, JsonbValue *value, const JsonPlace *place)
{
	JsonbValue instead = {};
	JsonVisit visit = rewriting->visitor(rewriting->context, place, value, &instead);

	if (visit == JsonVisit::enter && value->type == jbvBinary)
		copy_inner(rewriting, value->val.binary.data, place);
	else
		pushJsonbValue(&rewriting->state, token, visit == JsonVisit::replace ? &instead : value);
}

void
copy_inner(Rewriting *rewriting, JsonbContainer *container, const JsonPlace *up)
{
	JsonbIterator *iterator = JsonbIteratorInit(container);
	JsonPlace place = {up, up != nullptr ? up->depth + 1 : 1, nullptr, 0, -1};
	JsonbIteratorToken token;
	JsonbValue value;

	check_stack_depth();
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
		{
			place.key = value.val.string.val;
			place.size = value.val.string.len;
			pushJsonbValue(&rewriting->state, token, &value);
		}
		else if (token == WJB_VALUE || token == WJB_ELEM)
		{
			place.index += token == WJB_ELEM;
			copy_value(rewriting, token, &value, &place);
		}
		else
			rewriting->result = pushJsonbValue(&rewriting->state, token, nullptr);
	}
}

} // namespace

Jsonb *
rewritten(Jsonb *json, JsonVisitor visitor, void *context)
{
	Rewriting rewriting = {visitor, context, nullptr, nullptr};

	if (JB_ROOT_IS_SCALAR(json))
		return json;
	copy_inner(&rewriting, &json->root, nullptr);
	return JsonbValueToJsonb(rewriting.result);
}

void
put_place(StringInfo bytes, const JsonPlace *place)
{
	uint32 number;
	Utf8 key;

	if (place->up != nullptr)
		put_place(bytes, place->up);
	if (place->key == nullptr)
	{
		number = pg_hton32(static_cast<uint32>(place->index));
		appendStringInfoChar(bytes, 'i');
		appendBinaryStringInfo(bytes, reinterpret_cast<char *>(&number), sizeof(number));
		return;
	}
	key = to_utf8(place->key, place->size);
	number = pg_hton32(static_cast<uint32>(key.size));
	appendStringInfoChar(bytes, 'k');
	appendBinaryStringInfo(bytes, reinterpret_cast<char *>(&number), sizeof(number));
	appendBinaryStringInfo(bytes, key.bytes, key.size);
}

const char *
shown_place(const JsonPlace *place)
{
	const char *above = place->up != nullptr ? shown_place(place->up) : "$";

	if (place->key == nullptr)
		return psprintf("%s[" INT64_FORMAT "]", above, place->index);
	return psprintf("%s.%.*s", above, place->size, place->key);
}

bool
may_contain(const Jsonb *json, const char *bytes, size_t size)
{
	return memmem(json, VARSIZE(json), bytes, size) != nullptr;
}

} // namespace outbox
