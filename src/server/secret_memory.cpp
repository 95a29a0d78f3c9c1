// See secret_memory.h.
//
// Shape: pages of their own, since the system protects whole pages. What it refuses (mlock beyond RLIMIT_MEMLOCK, say)
// is done without.

#include <sys/mman.h>

#include "server/cipher.h"
#include "server/secret_memory.h"

namespace outbox {

namespace {

struct Pages {
	void *memory;
	size_t size;
};

void
wipe_pages(int, Datum pages)
{
	Pages *those = reinterpret_cast<Pages *>(DatumGetPointer(pages));

	wipe(those->memory, those->size);
}

} // namespace

void *
secret_memory(size_t size)
{
	void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	Pages *pages;

	if (memory == MAP_FAILED)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	(void)mlock(memory, size);
#ifdef MADV_DONTDUMP
	(void)madvise(memory, size, MADV_DONTDUMP);
#endif
#ifdef MADV_WIPEONFORK
	(void)madvise(memory, size, MADV_WIPEONFORK);
#endif
	pages = static_cast<Pages *>(MemoryContextAlloc(TopMemoryContext, sizeof(Pages)));
	*pages = {memory, size};
	on_proc_exit(wipe_pages, PointerGetDatum(pages));
	return memory;
}

} // namespace outbox
