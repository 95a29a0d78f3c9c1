// Files that hold keys.
#pragma once

#include <sys/stat.h>

#include "server/pg.h"

namespace outbox {

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
