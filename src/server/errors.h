// The SQLSTATEs of the extension's own conditions. Their messages begin with the
// condition's name, so that a client can tell them apart in a log, too.
#pragma once

#include "server/pg.h"

#define ERRCODE_OUTBOX_APPEND_ONLY MAKE_SQLSTATE('P', '0', '0', '0', '1')
#define ERRCODE_OUTBOX_ALREADY_TERMINAL MAKE_SQLSTATE('P', '7', '0', '0', '1')
#define ERRCODE_OUTBOX_LEASE_LOST MAKE_SQLSTATE('P', '7', '0', '0', '2')
#define ERRCODE_OUTBOX_INVALID_STATE MAKE_SQLSTATE('P', '7', '0', '0', '3')
#define ERRCODE_OUTBOX_QUEUE_NOT_FOUND MAKE_SQLSTATE('P', '7', '0', '0', '4')
#define ERRCODE_OUTBOX_NOT_PENDING MAKE_SQLSTATE('P', '7', '0', '0', '5')
#define ERRCODE_SAGA_VERSION_CONFLICT MAKE_SQLSTATE('P', '7', '0', '0', '6')
#define ERRCODE_SAGA_NOT_FOUND MAKE_SQLSTATE('P', '7', '0', '0', '7')
#define ERRCODE_SAGA_INVALID_TRANSITION MAKE_SQLSTATE('P', '7', '0', '0', '8')
// Ends a message that cannot be handled.
#define ERRCODE_SAGA_BAD_HINT MAKE_SQLSTATE('P', '8', '0', '0', '0')
