// Strong random bytes, in small pieces.
//
// Guarantee: every byte comes from the server's strong source and is handed out once.
//
// Shape: a few bytes cost as much as a thousand, and a batch needs some for each message, so they
// are drawn ahead. A backend is one process from fork to exit, so no two of them share bytes.
#pragma once

#include "core/ids.h"
#include "server/pg.h"

namespace outbox {

uint64 random_bits();
// A fresh lease token.
core::Uuid random_token();

} // namespace outbox
