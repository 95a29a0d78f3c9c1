// See in_flight.h.

#include "commit/in_flight.h"

namespace outbox {

void
init_in_flight(InFlight *in_flight)
{
	SpinLockInit(&in_flight->lock);
	pg_atomic_init_u32(&in_flight->watched, 0);
	in_flight->last_generation = 0;
	reset_in_flight(in_flight);
}

void
reset_in_flight(InFlight *in_flight)
{
	change(in_flight, [=] {
		in_flight->generation = 0;
		in_flight->counting = false;
		in_flight->ended = 0;
		in_flight->count = 0;
		in_flight->reserving = 0;
		in_flight->refused = false;
	});
}

void
forget_in_flight(InFlight *in_flight)
{
	// A claim that counts may have seen what is no longer true.
	change(in_flight, [=] {
		in_flight->generation = 0;
		in_flight->ended++;
	});
}

} // namespace outbox
