// Commands that concern the background workers: on extensions and on databases.
//
// Guarantees: the launcher is told of them at the end of their transaction. DROP, RENAME
// and SET TABLESPACE of a database, and copying one, are not held up by its worker: it is
// asked to leave, and kept away by the lock that the command itself takes; after the
// command, or when it fails, the worker comes back.
#pragma once

namespace outbox {

// Called while the library is preloaded.
void follow_commands();

} // namespace outbox
