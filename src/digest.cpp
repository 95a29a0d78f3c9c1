// See digest.h.

#include "digest.h"

#include "args.h"
#include "boundary.h"

namespace outbox {

Digest
digest_of(core::KeyKind kind, const core::Part *parts, int count)
{
	size_t size = core::frame_size(parts, count);
	unsigned char *frame = static_cast<unsigned char *>(palloc(size));
	pg_cryptohash_ctx *context = pg_cryptohash_create(PG_SHA256);
	Digest digest;

	core::write_frame(kind, parts, count, frame);
	if (context == nullptr || pg_cryptohash_init(context) < 0 || pg_cryptohash_update(context, frame, size) < 0 ||
		pg_cryptohash_final(context, digest.bytes, sizeof(digest.bytes)) < 0)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not compute the digest of a key")));
	pg_cryptohash_free(context);
	pfree(frame);
	return digest;
}

Datum
digest_datum(const Digest &digest)
{
	bytea *copy = static_cast<bytea *>(palloc(VARHDRSZ + sizeof(digest.bytes)));

	SET_VARSIZE(copy, VARHDRSZ + sizeof(digest.bytes));
	memcpy(VARDATA(copy), digest.bytes, sizeof(digest.bytes));
	return PointerGetDatum(copy);
}

}	// namespace outbox

using namespace outbox;

// Stands in the index pending_key_sequence.
OUTBOX_FUNCTION(outbox_key_digest)
{
	core::Part parts[] = {part_of(PG_GETARG_TEXT_PP(0)), part_of(PG_GETARG_TEXT_PP(1))};

	return digest_datum(digest_of(core::KeyKind::partition, parts, 2));
}
