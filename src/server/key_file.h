// Files that hold keys.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include "server/pg.h"

namespace outbox {

// For CloseTransientFile(), which an ERROR calls, too. -1: errno says why. If it is a pipe, no writer is waited for.
inline int
open_key_file(const char *path, struct stat *status)
{
	int file = OpenTransientFile(path, O_RDONLY | O_NONBLOCK | PG_BINARY);

	if (file >= 0 && fstat(file, status) != 0)
	{
		int code = errno;

		CloseTransientFile(file);
		errno = code;
		return -1;
	}
	return file;
}

// As the server asks of ssl_key_file: it belongs to the server's user or to root, others have no access, and only the
// group of root's may read.
inline bool
is_private(const struct stat &file)
{
	if (file.st_uid == 0 && geteuid() != 0)
		return (file.st_mode & (S_IWGRP | S_IXGRP | S_IRWXO)) == 0;
	return (file.st_uid == geteuid() || file.st_uid == 0) && (file.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

} // namespace outbox
