// See stop_point.h. A test arms a name, waits until a process reaches it, and releases the process.
// Or it shakes: at each point some processes wait for a random time, which widens even a gap of one
// instruction.

#ifdef OUTBOX_STOP_POINTS

#include "server/stop_point.h"

#include "server/boundary.h"

namespace outbox {

namespace {

constexpr int most_points = 16;
constexpr uint32 cancels = PG_UINT32_MAX;

struct Point {
	char name[NAMEDATALEN];
	pg_atomic_uint32 armed;
	pg_atomic_uint32 action;  // 0 = wait, `cancels`, or the SQLSTATE of an ERROR
	pg_atomic_uint32 only;    // stops the process of that number, 0 = all
	pg_atomic_uint32 reached; // by the process of that number
};

struct Points {
	pg_atomic_uint32 shaken; // microseconds at most, 0 = not
	Point all[most_points];
};

// In a separate tranche, so that the library needs none without stop points.
Points *points;
shmem_request_hook_type previous_request;
shmem_startup_hook_type previous_startup;

void
request_points()
{
	if (previous_request != nullptr)
		previous_request();
	RequestAddinShmemSpace(sizeof(Points));
}

void
start_points()
{
	bool found;

	if (previous_startup != nullptr)
		previous_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	points = static_cast<Points *>(ShmemInitStruct("outbox stop points", sizeof(Points), &found));
	if (!found)
		memset(static_cast<void *>(points), 0, sizeof(Points));
	LWLockRelease(AddinShmemInitLock);
}

Point *
find_point(const char *name)
{
	for (int i = 0; points != nullptr && i < most_points; i++)
		if (strcmp(points->all[i].name, name) == 0)
			return &points->all[i];
	return nullptr;
}

// One in four stays.
void
stay_a_while()
{
	uint32 most = points != nullptr ? pg_atomic_read_u32(&points->shaken) : 0;

	if (most != 0 && pg_prng_uint64_range(&pg_global_prng_state, 0, 3) == 0)
		pg_usleep(static_cast<long>(pg_prng_uint64_range(&pg_global_prng_state, 0, most)));
}

// Asks for the cancel once: it is served by whatever comes next.
void
act(Point *point, uint32 action)
{
	if (action != cancels)
		ereport(ERROR, (errcode(static_cast<int>(action)), errmsg("stop point \"%s\" fails", point->name)));
	pg_atomic_write_u32(&point->armed, 0);
	QueryCancelPending = true;
	InterruptPending = true;
}

void
arm(const char *name, uint32 action, int32 only)
{
	Point *point = find_point(name);

	if (point == nullptr)
		point = find_point("");
	if (point == nullptr)
		elog(ERROR, "no room for stop point %s", name);
	strlcpy(point->name, name, sizeof(point->name));
	pg_atomic_write_u32(&point->action, action);
	pg_atomic_write_u32(&point->only, static_cast<uint32>(only));
	pg_atomic_write_u32(&point->armed, 1);
}

uint32
action_of(const char *what)
{
	if (strcmp(what, "cancel") == 0)
		return cancels;
	return static_cast<uint32>(MAKE_SQLSTATE(what[0], what[1], what[2], what[3], what[4]));
}

} // namespace

void
request_stop_points()
{
	previous_request = shmem_request_hook;
	shmem_request_hook = request_points;
	previous_startup = shmem_startup_hook;
	shmem_startup_hook = start_points;
}

void
stop_point(const char *name)
{
	Point *point = find_point(name);

	uint32 only = point != nullptr ? pg_atomic_read_u32(&point->only) : 0;

	stay_a_while();
	if (point == nullptr || pg_atomic_read_u32(&point->armed) == 0 ||
		(only != 0 && only != static_cast<uint32>(MyProcPid)))
		return;
	if (pg_atomic_read_u32(&point->action) != 0)
	{
		act(point, pg_atomic_read_u32(&point->action));
		return;
	}
	pg_atomic_write_u32(&point->reached, static_cast<uint32>(MyProcPid));
	while (pg_atomic_read_u32(&point->armed) != 0 && PostmasterIsAlive())
	{
		// Where interrupts are served, a stopped process can be ended.
		CHECK_FOR_INTERRUPTS();
		pg_usleep(1000);
	}
	pg_atomic_write_u32(&point->reached, 0);
}

OUTBOX_FUNCTION(outbox_stop_point_arm)
{
	arm(text_to_cstring(PG_GETARG_TEXT_PP(0)), 0, PG_GETARG_INT32(1));
	PG_RETURN_VOID();
}

// Instead of waiting there: 'cancel', or a SQLSTATE.
OUTBOX_FUNCTION(outbox_stop_point_act)
{
	arm(text_to_cstring(PG_GETARG_TEXT_PP(0)), action_of(text_to_cstring(PG_GETARG_TEXT_PP(1))), PG_GETARG_INT32(2));
	PG_RETURN_VOID();
}

OUTBOX_FUNCTION(outbox_stop_point_reached)
{
	Point *point = find_point(text_to_cstring(PG_GETARG_TEXT_PP(0)));

	PG_RETURN_INT32(point == nullptr ? 0 : static_cast<int32>(pg_atomic_read_u32(&point->reached)));
}

OUTBOX_FUNCTION(outbox_stop_point_release)
{
	Point *point = find_point(text_to_cstring(PG_GETARG_TEXT_PP(0)));

	if (point != nullptr)
		pg_atomic_write_u32(&point->armed, 0);
	PG_RETURN_VOID();
}

OUTBOX_FUNCTION(outbox_stop_point_shake)
{
	pg_atomic_write_u32(&points->shaken, static_cast<uint32>(PG_GETARG_INT32(0)));
	PG_RETURN_VOID();
}

} // namespace outbox

#endif
