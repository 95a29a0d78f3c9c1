/*
 * Loaded before a server, holds a starting process of the background at the place where a reload is lost: the process
 * is made, and has not yet set its handlers. Until then it ignores SIGHUP, and what is pending is dropped.
 *
 * The process waits for as long as there is a file HOLD_FILE, and leaves a file HOLD_FILE.held while it waits.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int
sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
	static int (*next)(int, const struct sigaction *, struct sigaction *);
	const char *file = getenv("HOLD_FILE");

	if (next == NULL)
		next = dlsym(RTLD_NEXT, "sigaction");
	if (number == SIGHUP && action != NULL && action->sa_handler == SIG_IGN && file != NULL && access(file, F_OK) == 0)
	{
		char held[4096];

		snprintf(held, sizeof(held), "%s.held", file);
		close(open(held, O_CREAT | O_WRONLY, 0600));
		while (access(file, F_OK) == 0)
			usleep(10000);
		unlink(held);
	}
	return next(number, action, old);
}
