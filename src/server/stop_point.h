// Places at which a test can stop a process while another one runs, or have it fail.
//
// Guarantee: they exist only with make STOP_POINTS=1. A stopped process keeps its locks, also where
// interrupts are held off.
#pragma once

namespace outbox {

#ifdef OUTBOX_STOP_POINTS
// Called while the library is preloaded.
void request_stop_points();
void stop_point(const char *name);
#define OUTBOX_STOP_POINT(name) outbox::stop_point(name)
#else
inline void
request_stop_points()
{
}
#define OUTBOX_STOP_POINT(name) static_cast<void>(0)
#endif

} // namespace outbox
