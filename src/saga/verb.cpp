// See verb.h.

#include "saga/verb.h"

#include "server/args.h"
#include "server/json.h"

namespace outbox {

Jsonb *
object_argument(FunctionCallInfo fcinfo, int arg, const char *name)
{
	Jsonb *value = DatumGetJsonbP(required_datum(fcinfo, arg, name));

	if (!is_json_object(value))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s must be a JSON object, not %s", name, json_type_of(value))));
	return value;
}

} // namespace outbox
