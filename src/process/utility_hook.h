// Commands that concern the background workers: on extensions and on databases.
//
// Guarantees: the launcher is notified of them at the end of their transaction. The worker of a
// database does not delay DROP, RENAME, SET TABLESPACE or a copy of it: it is
// asked to leave, and the lock that the command itself takes keeps it away. After the
// command, or when the command fails, the worker comes back.
#pragma once

namespace outbox {

// Called while the library is preloaded.
void follow_commands();

} // namespace outbox
