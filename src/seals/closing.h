// Closing a window of time, and sealing it.
//
// Guarantees:
// - A window that is closed is final: of each record with an earlier time the transaction had ended before its rows
//   were read, and no later record gets such a time, whatever clocks, rollbacks, crashes, prepared transactions and
//   promotions do. An open transaction that has written delays the end of the window, and nothing else.
// - Each window begins where the one before ended. Two sealers never close one window, or number two seals alike: a
//   lock lets one in after the other.
#pragma once

#include "seals/seal.h"

namespace outbox {

struct Call;

// Closes what can be closed now, in a READ COMMITTED transaction; false: nothing. The seal is an event, and a message
// of the queue outbox_seals, if there is one. Of its parts the JSON is left.
bool seal_now(Call *call, Seal *seal);

} // namespace outbox
