// Arguments that functions of sagas share.
#pragma once

#include "server/pg.h"

namespace outbox {

// 22004 or 22023 if it is no JSON object.
Jsonb *object_argument(FunctionCallInfo fcinfo, int arg, const char *name);

} // namespace outbox
