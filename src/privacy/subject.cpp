// See subject.h.

#include "privacy/subject.h"

#include "privacy/lineage.h"
#include "rows/key_lock.h"
#include "server/args.h"
#include "server/encoding.h"
#include "server/random.h"

namespace outbox {

namespace {

constexpr int longest_subject = 1024;
// Locks that one transaction holds at most, however many subjects it encrypts for.
constexpr uint32 lock_buckets = 1024;

// A look-up in one of the small tables, in the newest committed state. See Guarantees in probe.h.
struct Search {
	Wait wait;
	Table *table;
	Probe probe;
	ScanKeyData key;
};

void
begin_search(Search *look, Call *call, const Shape &shape, int access, int index, RegProcedure procedure, Datum value)
{
	look->wait = call->wait;
	look->table = open(call, shape, access);
	begin_probe(&look->probe, look->table, own_index(look->table, index), 1);
	key_equals(&look->key, own_index(look->table, index), 1, procedure, value);
}

void
end_search(Search *look)
{
	end_probe(&look->probe);
}

// A committed row, or one of this transaction; in look->probe.slot. That another transaction changes it does not
// matter.
bool
finds(Search *look)
{
	bool found;

	start_probe(&look->probe, &look->key, 1);
	found = next_settled(&look->probe, ForwardScanDirection);
	if (!found)
		found = find_in_latest_snapshot(look->table, look->probe.scan->indexRelation, &look->key, 1, look->probe.slot);
	return found;
}

Datum
column(Search *look, int number)
{
	bool isnull;

	return look->table->get(look->probe.slot, number, &isnull);
}

// The same, or the key is locked, and a row may be inserted.
bool
finds_or_locks(Search *look, const unsigned char *key, int size, KeyLock *held)
{
	for (;;)
	{
		if (finds(look))
			return true;
		rest_probe(&look->probe);
		if (!look_up_latched(&look->probe, &look->key, 1, ForwardScanDirection, held, key, size, look->wait))
		{
			if (!finds(look))
				return false;
			unlock_key(held);
			return true;
		}
		rest_probe(&look->probe);
		unlock_key(held);
	}
}

void
insert_row(Table *table, TupleTableSlot *row)
{
	insert_rows(table, &row, 1);
	ExecDropSingleTupleTableSlot(row);
}

// ---- the key of hashes

constexpr unsigned char hash_key_name[] = "hash key";

void
make_hash_key(Call *call, Table *table, unsigned char *key)
{
	using namespace subject_hash_key_col;
	TupleTableSlot *row = new_row(table);

	draw_key(key);
	set(table, row, one, BoolGetDatum(true));
	set_text(table, row, key_id, cstring_to_text(current_master_key()->id));
	set(table, row, wrapped, PointerGetDatum(wrapped_key(key, purpose_of_hash_key())));
	set_text(table, row, subject_hash_key_col::lineage, lineage_of_database());
	set(table, row, created_at, TimestampTzGetDatum(call->now));
	insert_row(table, row);
}

void
take_hash_key(Search *look, unsigned char *key)
{
	const text *id = DatumGetTextPP(column(look, subject_hash_key_col::key_id));
	const bytea *wrapped = DatumGetByteaPP(column(look, subject_hash_key_col::wrapped));

	unwrap_key(wrapped, text_to_cstring(id), purpose_of_hash_key(), key);
}

// Opens it, which shows that the master key is the right one.
const unsigned char *
hash_key(Call *call, IfNone if_none)
{
	unsigned char *key = secret_place(Secret::hash_key);
	KeyLock held;
	Search look;

	// Before anything is locked: a command may take its time.
	current_master_key();
	begin_search(&look, call, subject_hash_key_shape, if_none == IfNone::make ? inserts : reads, primary_key, F_BOOLEQ,
				 BoolGetDatum(true));
	if (finds(&look))
		take_hash_key(&look, key);
	else if (if_none == IfNone::refuse)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("nothing was protected in this database yet"), errhint("See outbox.protect.")));
	else if (finds_or_locks(&look, hash_key_name, sizeof(hash_key_name), &held))
		take_hash_key(&look, key);
	else
	{
		make_hash_key(call, look.table, key);
		unlock_key(&held);
	}
	end_search(&look);
	return key;
}

void
add(Purpose *purpose, const void *bytes, size_t size)
{
	Assert(purpose->size + size <= sizeof(purpose->bytes));
	memcpy(purpose->bytes + purpose->size, bytes, size);
	purpose->size += size;
}

LOCKTAG
lock_tag_of_subject(const SubjectHash &subject)
{
	uint32 bucket = (static_cast<uint32>(subject.bytes[0]) << 8 | subject.bytes[1]) % lock_buckets;
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, relation_oid(erasures_shape.name), bucket, 0);
	return tag;
}

} // namespace

Purpose
purpose_of_hash_key()
{
	Purpose purpose = {};

	add(&purpose, "outbox hash key 1", 17);
	return purpose;
}

Purpose
purpose_of_subject_key(const SubjectHash &subject, const core::Uuid &sid)
{
	Purpose purpose = {};

	add(&purpose, "subject key 1", 13);
	add(&purpose, sid.bytes, sizeof(sid.bytes));
	add(&purpose, subject.bytes, sizeof(subject.bytes));
	return purpose;
}

void
check_subject(const text *subject)
{
	check_nonempty(subject, "subject");
	if (VARSIZE_ANY_EXHDR(subject) > longest_subject)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("subject must not be longer than %d bytes", longest_subject)));
}

namespace {

// purpose: none begins with another one.
void
hash_text(const unsigned char *key, const char *purpose, const text *value, unsigned char *mac)
{
	Utf8 utf8 = to_utf8(VARDATA_ANY(value), static_cast<int>(VARSIZE_ANY_EXHDR(value)));
	StringInfoData framed;

	initStringInfo(&framed);
	appendStringInfoString(&framed, purpose);
	appendBinaryStringInfo(&framed, utf8.bytes, utf8.size);
	keyed_hash(key, {reinterpret_cast<unsigned char *>(framed.data), static_cast<size_t>(framed.len)}, mac);
}

} // namespace

SubjectHash
hash_of_subject(Call *call, const text *subject, IfNone if_none)
{
	return hash_of_subject(open_hash_key(call, if_none), subject);
}

HashKey
open_hash_key(Call *call, IfNone if_none)
{
	return {hash_key(call, if_none)};
}

SubjectHash
hash_of_subject(const HashKey &key, const text *subject)
{
	SubjectHash hash;

	hash_text(key.key, "outbox subject 1", subject, hash.bytes);
	return hash;
}

void
mac_of_erasure(Call *call, const text *certificate, unsigned char *mac)
{
	hash_text(hash_key(call, IfNone::refuse), "outbox erasure mac 1", certificate, mac);
}

text *
name_of_hash_key(Call *call)
{
	static const unsigned char purpose[] = "outbox hash key id";
	unsigned char mac[mac_bytes];

	keyed_hash(hash_key(call, IfNone::refuse), {purpose, sizeof(purpose) - 1}, mac);
	return cstring_to_text(hex_of(mac, key_id_size / 2));
}

Datum
hash_datum(const SubjectHash &subject)
{
	return bytea_datum(subject.bytes, sizeof(subject.bytes));
}

// ---- keys of subjects

namespace {

// No lock is waited for later, while the key is locked.
Table *
open_subjects(Call *call, Search *look)
{
	rest_probe(&look->probe);
	return open(call, subjects_shape, inserts);
}

SubjectKey
make_subject_key(Call *call, Table *keys, Table *subjects, const SubjectHash &subject)
{
	TupleTableSlot *row = new_row(keys);
	unsigned char *key = secret_place(Secret::subject_key);
	SubjectKey made = {random_token(), key};

	draw_key(key);
	set(keys, row, subject_keys_col::subject_hash, hash_datum(subject));
	set(keys, row, subject_keys_col::sid, from_uuid(made.sid));
	set_text(keys, row, subject_keys_col::key_id, cstring_to_text(current_master_key()->id));
	set(keys, row, subject_keys_col::wrapped,
		PointerGetDatum(wrapped_key(key, purpose_of_subject_key(subject, made.sid))));
	set(keys, row, subject_keys_col::created_at, TimestampTzGetDatum(call->now));
	insert_row(keys, row);
	row = new_row(subjects);
	set(subjects, row, subjects_col::sid, from_uuid(made.sid));
	set(subjects, row, subjects_col::subject_hash, hash_datum(subject));
	set(subjects, row, subjects_col::created_at, TimestampTzGetDatum(call->now));
	insert_row(subjects, row);
	return made;
}

SubjectKey
take_subject_key(Search *look)
{
	const bytea *hash = DatumGetByteaPP(column(look, subject_keys_col::subject_hash));
	const text *id = DatumGetTextPP(column(look, subject_keys_col::key_id));
	unsigned char *key = secret_place(Secret::subject_key);
	SubjectKey taken = {to_uuid(column(look, subject_keys_col::sid)), key};
	SubjectHash subject = {};

	memcpy(subject.bytes, VARDATA_ANY(hash), Min(sizeof(subject.bytes), VARSIZE_ANY_EXHDR(hash)));
	unwrap_key(DatumGetByteaPP(column(look, subject_keys_col::wrapped)), text_to_cstring(id),
			   purpose_of_subject_key(subject, taken.sid), key);
	return taken;
}

} // namespace

SubjectKey
key_to_protect(Call *call, const SubjectHash &subject)
{
	LOCKTAG tag = lock_tag_of_subject(subject);
	Table *subjects = nullptr;
	SubjectKey result;
	KeyLock held;
	Search look;

	expect_no_pins();
	if (LockAcquire(&tag, AccessShareLock, false, call->wait == Wait::never) == LOCKACQUIRE_NOT_AVAIL)
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg("another transaction erases a subject")));
	begin_search(&look, call, subject_keys_shape, inserts, primary_key, F_BYTEAEQ, hash_datum(subject));
	if (!finds(&look))
		subjects = open_subjects(call, &look);
	if (subjects == nullptr || finds_or_locks(&look, subject.bytes, sizeof(subject.bytes), &held))
		result = take_subject_key(&look);
	else
	{
		result = make_subject_key(call, look.table, subjects, subject);
		unlock_key(&held);
	}
	end_search(&look);
	return result;
}

namespace {

// DT_NOEND: never.
TimestampTz
erasure_of(Call *call, const core::Uuid &sid)
{
	TimestampTz at = DT_NOEND;
	Search look;

	begin_search(&look, call, erasures_shape, reads, erasures_index::sid, F_UUID_EQ, in_place(sid));
	if (finds(&look))
		at = DatumGetTimestampTz(column(&look, erasures_col::erased_at));
	end_search(&look);
	return at;
}

} // namespace

SubjectKey
key_to_reveal(Call *call, const core::Uuid &sid, TimestampTz *erased_at)
{
	SubjectKey result = {sid, nullptr};
	Search look;

	begin_search(&look, call, subject_keys_shape, reads, subject_keys_index::sid, F_UUID_EQ, in_place(sid));
	if (finds(&look))
		result = take_subject_key(&look);
	end_search(&look);
	*erased_at = result.key == nullptr ? erasure_of(call, sid) : DT_NOEND;
	return result;
}

bool
is_known_subject(Call *call, const core::Uuid &sid)
{
	Search look;
	bool known;

	begin_search(&look, call, subjects_shape, reads, primary_key, F_UUID_EQ, in_place(sid));
	known = finds(&look);
	end_search(&look);
	return known;
}

// ---- erasing

void
lock_against_use(const SubjectHash &subject)
{
	LOCKTAG tag = lock_tag_of_subject(subject);

	expect_no_pins();
	LockAcquire(&tag, AccessExclusiveLock, false, false);
}

bool
destroy_key(Call *call, const SubjectHash &subject, const core::Uuid *only, core::Uuid *sid)
{
	ItemPointerData place;
	bool found;
	Search look;

	begin_search(&look, call, subject_keys_shape, deletes, primary_key, F_BYTEAEQ, hash_datum(subject));
	do
	{
		CHECK_FOR_INTERRUPTS();
		found = finds(&look);
		if (found)
		{
			*sid = to_uuid(column(&look, subject_keys_col::sid));
			place = look.probe.slot->tts_tid;
		}
		rest_probe(&look.probe);
		found = found && (only == nullptr || equal(*only, *sid));
	} while (found && delete_row(look.table, &place, Wait::for_row) != Changed::done);
	end_search(&look);
	return found;
}

void
note_lineage(Call *call)
{
	Changed changed = Changed::outdated;
	Search look;

	begin_search(&look, call, subject_hash_key_shape, updates, primary_key, F_BOOLEQ, BoolGetDatum(true));
	while (changed != Changed::done && finds(&look))
	{
		TupleTableSlot *row = new_row(look.table);
		ItemPointerData place = look.probe.slot->tts_tid;

		CHECK_FOR_INTERRUPTS();
		ExecCopySlot(row, look.probe.slot);
		set_text(look.table, row, subject_hash_key_col::lineage, lineage_of_database());
		rest_probe(&look.probe);
		changed = update_row(look.table, &place, row, Wait::for_row);
		ExecDropSingleTupleTableSlot(row);
	}
	end_search(&look);
}

} // namespace outbox
