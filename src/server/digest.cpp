// See digest.h.
//
// Shape: the server's own pg_cryptohash looks the algorithm up for each digest, which takes more than the digest
// itself: 7,300 instructions instead of 3,400. Its contexts cannot be kept, because they belong to a transaction.

#include "server/digest.h"

#include "server/args.h"
#include "server/boundary.h"
#include "server/values.h"

namespace outbox {

Digest
digest_of(core::KeyKind kind, const core::Part *parts, int count)
{
	size_t size = core::frame_size(parts, count);
	unsigned char *frame = static_cast<unsigned char *>(palloc(size));
	static core::Sha256 sha;
	Digest digest;

	core::write_frame(kind, parts, count, frame);
	if (!sha.start().add(frame, size).stop(&digest))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not compute the digest of a key")));
	pfree(frame);
	return digest;
}

Datum
digest_datum(const Digest &digest)
{
	return bytea_datum(digest.bytes, sizeof(digest.bytes));
}

// Used by the index pending_key_sequence.
OUTBOX_FUNCTION(outbox_key_digest)
{
	core::Part parts[] = {part_of(PG_GETARG_TEXT_PP(0)), part_of(PG_GETARG_TEXT_PP(1))};

	return digest_datum(digest_of(core::KeyKind::partition, parts, 2));
}

} // namespace outbox
