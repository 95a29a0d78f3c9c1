/*
 * Loaded before libfaketime, which gives the true time to whoever runs within its own
 * select() or epoll_wait(): a postmaster of 15 starts background workers so, and the signal
 * handlers of all who wait for a lock or a client decide so whether a timer is due. So they
 * get the C library's and the kernel's.
 */
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

struct timeval;
int __select(int n, void *r, void *w, void *e, struct timeval *t);

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
