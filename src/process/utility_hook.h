// Commands that concern the background workers: on extensions and on databases.
//
// Guarantees: they notify the launcher at the end of their transaction. The worker of a database does
// not delay DROP, RENAME, SET TABLESPACE or a copy of it: it is asked to leave, and the lock of the
// command keeps it away. It comes back after the command, or after its failure.
#pragma once

namespace outbox {

// Called while the library is preloaded.
void follow_commands();

} // namespace outbox
