// The text that holds the master keys: a file, or what a command prints.
//
// Guarantees: the text is read into memory of the caller, and nowhere else; neither errors nor the log contain it. A
// file that others may read is refused, as the server refuses such a key of its own (ssl_key_file). A command that does
// not end in time is killed, with what it has started.
#pragma once

#include <sys/stat.h>

#include "server/pg.h"

namespace outbox {

constexpr size_t longest_key_text = 4096;

// What tells that a file was changed or replaced.
struct FileStamp {
	dev_t device;
	ino_t inode;
	off_t size;
	int64 modified_ns;
	int64 changed_ns;
};

// False if there is none.
bool stamp_of(const char *path, FileStamp *stamp);

// The number of bytes, or -1 with *problem set, in palloc'ed memory.
ssize_t read_key_file(const char *path, char *text, const char **problem);
ssize_t read_key_command(const char *command, char *text, const char **problem);

} // namespace outbox
