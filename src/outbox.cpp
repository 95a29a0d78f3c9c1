// The library: what happens when a session loads it. Nothing here needs
// shared_preload_libraries.

#include "boundary.h"
#include "settings.h"
#include "wakeup.h"

extern "C" {
PG_MODULE_MAGIC;

void _PG_init(void);
void
_PG_init(void)
{
	outbox::define_settings();
	outbox::register_wakeups();
}
}
