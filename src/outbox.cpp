// The library: what happens when it is loaded. Everything but the background workers,
// their wake-ups and the counters works in a session that loads it by itself; those need
// shared_preload_libraries.

#include "background.h"
#include "boundary.h"
#include "database_commands.h"
#include "settings.h"
#include "shared.h"
#include "stop_point.h"
#include "transaction.h"

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
