// The library: what happens when it is loaded. The background workers, their wake-ups and
// the counters need shared_preload_libraries. Everything else also works in a session that
// loads the library itself.

#include "process/process.h"
#include "server/boundary.h"
#include "process/utility_hook.h"
#include "server/settings.h"
#include "commit/shared.h"
#include "server/stop_point.h"
#include "commit/transaction.h"

extern "C" {
PG_MODULE_MAGIC;

void _PG_init(void);
void
_PG_init(void)
{
	outbox::define_settings();
	outbox::follow_transactions();
	if (!process_shared_preload_libraries_in_progress)
		return;
	outbox::request_shared_memory();
	outbox::request_stop_points();
	outbox::register_launcher();
	outbox::follow_commands();
}
}
