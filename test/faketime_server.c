/*
 * Loaded before libfaketime, makes it bearable for a server.
 *
 * A process that runs within its own select() or epoll_wait() gets the true time from it: a postmaster
 * of 15 starts background workers so, and the signal handlers of all who wait for a lock or a
 * client decide so whether a timer is due. So they get the C library's and the kernel's.
 *
 * It reads a file at each look at the clock, with memory from malloc(). A server's handler of
 * timers looks at the clock: where it has interrupted malloc(), or such a look, it would damage
 * the heap. So neither is interrupted.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

struct timespec;
struct timeval;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void __libc_free(void *old);
int __select(int n, void *r, void *w, void *e, struct timeval *t);

static int (*next_clock_gettime)(int clock, struct timespec *t);
static int (*next_gettimeofday)(struct timeval *t, void *zone);
static long (*next_time)(long *t);

/* Before main(), while nobody has set a timer. */
__attribute__((constructor)) static void
find_next(void)
{
	next_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
	next_gettimeofday = dlsym(RTLD_NEXT, "gettimeofday");
	next_time = dlsym(RTLD_NEXT, "time");
}

static sigset_t
hold_signals(void)
{
	sigset_t all, before;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	return before;
}

static void
let_signals(sigset_t before)
{
	sigprocmask(SIG_SETMASK, &before, NULL);
}

int
clock_gettime(int clock, struct timespec *t)
{
	if (next_clock_gettime == NULL)
		return syscall(SYS_clock_gettime, clock, t);

	sigset_t before = hold_signals();
	int result = next_clock_gettime(clock, t);

	let_signals(before);
	return result;
}

int
gettimeofday(struct timeval *t, void *zone)
{
	if (next_gettimeofday == NULL)
		return syscall(SYS_gettimeofday, t, zone);

	sigset_t before = hold_signals();
	int result = next_gettimeofday(t, zone);

	let_signals(before);
	return result;
}

long
time(long *t)
{
	if (next_time == NULL)
		return syscall(SYS_time, t);

	sigset_t before = hold_signals();
	long result = next_time(t);

	let_signals(before);
	return result;
}

void *
malloc(size_t size)
{
	sigset_t before = hold_signals();
	void *result = __libc_malloc(size);

	let_signals(before);
	return result;
}

void *
calloc(size_t n, size_t size)
{
	sigset_t before = hold_signals();
	void *result = __libc_calloc(n, size);

	let_signals(before);
	return result;
}

void *
realloc(void *old, size_t size)
{
	sigset_t before = hold_signals();
	void *result = __libc_realloc(old, size);

	let_signals(before);
	return result;
}

void
free(void *old)
{
	sigset_t before = hold_signals();

	__libc_free(old);
	let_signals(before);
}

int
select(int n, void *r, void *w, void *e, struct timeval *t)
{
	return __select(n, r, w, e, t);
}

int
epoll_wait(int fd, void *events, int most, int ms)
{
	return syscall(SYS_epoll_pwait, fd, events, most, ms, NULL, 8);
}
