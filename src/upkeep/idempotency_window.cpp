// See idempotency_window.h.

#include "upkeep/idempotency_window.h"

#include "server/random.h"
#include "server/settings.h"
#include "server/spi.h"
#include "rows/call.h"

namespace outbox {

namespace {

constexpr int numbers_at_a_time = 100000;

BlockNumber
size_of_keys()
{
	Relation rel = table_open(relation_oid("idempotency_keys"), AccessShareLock);
	BlockNumber size = RelationGetNumberOfBlocks(rel);

	table_close(rel, AccessShareLock);
	return size;
}

void
begin(KeyWalk *walk)
{
	BlockNumber size = size_of_keys();

	walk->begun = true;
	walk->left = size;
	walk->at = size > 0 ? static_cast<BlockNumber>(random_bits() % size) : 0;
}

uint64
forget_between(int64 from, int64 to, const char *oldest)
{
	return run("DELETE FROM outbox.idempotency_keys WHERE ctid = ANY (ARRAY("
			   "SELECT ctid FROM outbox.idempotency_keys WHERE ctid >= '(" INT64_FORMAT
			   ",0)' AND ctid < '(" INT64_FORMAT ",0)' "
			   "AND outbox_id < '%s' FOR UPDATE SKIP LOCKED))",
			   from, to, oldest);
}

// Numbers that no key refers to any more.
void
forget_numbers(const char *oldest)
{
	run("DELETE FROM outbox.retired_numbers WHERE outbox_id = ANY (ARRAY("
		"SELECT outbox_id FROM outbox.retired_numbers WHERE outbox_id < '%s' ORDER BY outbox_id LIMIT %d FOR UPDATE SKIP LOCKED))",
		oldest, numbers_at_a_time);
}

void
forget_slice(KeyWalk *walk, const char *oldest)
{
	int64 size = size_of_keys();
	int64 from = walk->at < size ? walk->at : 0;
	int64 to = Min(Min(from + blocks_at_a_time, from + walk->left), Max(size, from + 1));
	uint64 forgotten = forget_between(from, to, oldest);

	forget_numbers(oldest);
	walk->forgotten += forgotten;
	walk->in_vain += forgotten == 0 ? to - from : 0;
	walk->left -= to - from;
	walk->at = static_cast<BlockNumber>(to);
}

} // namespace

bool
forget_keys(KeyWalk *walk, int64 most_in_vain)
{
	int64 window = idempotency_window_ms();

	if (window == PG_INT64_MAX)
		return false;
	if (!walk->begun)
		begin(walk);
	if (walk->left <= 0 || walk->in_vain >= most_in_vain)
		return false;
	SPI_connect();
	forget_slice(walk, shown(core::first_id_at(unix_ms(GetCurrentTimestamp()) - window)));
	SPI_finish();
	return true;
}

} // namespace outbox
