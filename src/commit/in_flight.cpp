// See in_flight.h.

#include "commit/in_flight.h"

#include "commit/spinlock.h"

namespace outbox {

void
init_in_flight(InFlight *in_flight)
{
	SpinLockInit(&in_flight->lock);
	in_flight->last_generation = 0;
	reset_in_flight(in_flight);
}

void
reset_in_flight(InFlight *in_flight)
{
	under(&in_flight->lock, [=] {
		in_flight->generation = 0;
		in_flight->ended = 0;
		in_flight->count = 0;
		in_flight->reserving = 0;
		in_flight->refused = false;
	});
}

void
forget_in_flight(InFlight *in_flight)
{
	under(&in_flight->lock, [=] { in_flight->generation = 0; });
}

} // namespace outbox
