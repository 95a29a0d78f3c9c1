// See retention.h. Why no message is lost: docs/internals.md, "Retention".
//
// Shape: checks without locks come first, so a pair that stays costs a few look-ups and disturbs no
// session. Then the leaf of messages is read once, under SHARE, which blocks inserts and allows
// reading. Then come ACCESS EXCLUSIVE locks for the DDL, and the checks that may have changed are
// repeated. All checks are in SQL, on tables without code of users.

#include "upkeep/retention.h"

#include "upkeep/policy.h"

#include "server/boundary.h"
#include "server/settings.h"
#include "server/spi.h"
#include "rows/call.h"

namespace outbox {

namespace {

struct Leaves {
	Oid messages;
	Oid attempts;
	Oid events;
	bool is_default; // the DEFAULT partitions, which are emptied
	core::Uuid from; // bounds
	core::Uuid below;
	int64 upto_ms;
	const char *messages_name; // qualified and quoted
	const char *attempts_name;
	const char *events_name;
	Policy policy;
};

// ---- finding

const char *
qualified_name(Oid rel)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(rel)), get_rel_name(rel));
}

bool
same_bound(PartitionBoundInfo a, int i, PartitionBoundInfo b, int j)
{
	return a->kind[i][0] == b->kind[j][0] &&
		   (a->kind[i][0] != PARTITION_RANGE_DATUM_VALUE || equal(to_uuid(a->datums[i][0]), to_uuid(b->datums[j][0])));
}

// The leaf of another parent between the bounds i and i + 1 of messages.
Oid
counterpart(PartitionBoundInfo of, int i, PartitionDesc other)
{
	PartitionBoundInfo bounds = other->boundinfo;

	for (int j = 0; bounds != nullptr && j + 1 < bounds->ndatums; j++)
		if (bounds->indexes[j + 1] >= 0 && same_bound(of, i, bounds, j) && same_bound(of, i + 1, bounds, j + 1))
			return other->oids[bounds->indexes[j + 1]];
	return InvalidOid;
}

// What messages, attempts and events are divided into.
struct Partitions {
	PartitionDesc messages;
	PartitionDesc attempts;
	PartitionDesc events;
};

// Not the last one: new ids are kept below its end (draw_ids).
bool
find_between(const Partitions &all, int64 after_ms, int64 until_ms, Leaves *leaves)
{
	PartitionBoundInfo bounds = all.messages->boundinfo;

	for (int i = 0; bounds != nullptr && i + 2 < bounds->ndatums; i++)
	{
		if (bounds->indexes[i + 1] < 0 || bounds->kind[i + 1][0] != PARTITION_RANGE_DATUM_VALUE)
			continue;
		leaves->from = bounds->kind[i][0] == PARTITION_RANGE_DATUM_VALUE ? to_uuid(bounds->datums[i][0]) : core::Uuid{};
		leaves->below = to_uuid(bounds->datums[i + 1][0]);
		leaves->upto_ms = core::id_time_ms(leaves->below);
		if (leaves->upto_ms <= after_ms)
			continue;
		if (leaves->upto_ms > until_ms)
			continue;
		leaves->messages = all.messages->oids[bounds->indexes[i + 1]];
		leaves->attempts = counterpart(bounds, i, all.attempts);
		leaves->events = counterpart(bounds, i, all.events);
		return true;
	}
	return false;
}

Oid
default_of(PartitionDesc partitions)
{
	PartitionBoundInfo bounds = partitions->boundinfo;

	return bounds != nullptr && bounds->default_index >= 0 ? partitions->oids[bounds->default_index] : InvalidOid;
}

// After the dated ones, where these keep new ids out of it.
bool
find_default(const Partitions &all, int64 after_ms, Leaves *leaves)
{
	if (after_ms == PG_INT64_MAX || all.messages->boundinfo == nullptr || all.messages->boundinfo->ndatums == 0)
		return false;
	*leaves = {};
	leaves->is_default = true;
	leaves->messages = default_of(all.messages);
	leaves->attempts = default_of(all.attempts);
	leaves->events = default_of(all.events);
	if (!OidIsValid(leaves->messages) || !OidIsValid(leaves->attempts) || !OidIsValid(leaves->events))
		return false;
	leaves->upto_ms = PG_INT64_MAX;
	memset(leaves->below.bytes, 0xff, sizeof(leaves->below.bytes));
	return true;
}

// The first pair that ends after one time and not after another; the last one is that of DEFAULT.
bool
find_leaves(int64 after_ms, int64 until_ms, Leaves *leaves)
{
	if (until_ms == PG_INT64_MIN)
		return false;

	Relation messages = open_parent("messages");
	Relation attempts = open_parent("attempts");
	Relation events = open_parent("events");
	Partitions all = {RelationGetPartitionDesc(messages, true), RelationGetPartitionDesc(attempts, true),
					  RelationGetPartitionDesc(events, true)};
	bool found = find_between(all, after_ms, until_ms, leaves) || find_default(all, after_ms, leaves);

	relation_close(events, AccessShareLock);
	relation_close(attempts, AccessShareLock);
	relation_close(messages, AccessShareLock);
	return found;
}

// ---- what keeps a pair

[[noreturn]] void
keep(const char *why)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("%s", why)));
}

void
keep_if(const char *message, const char *why)
{
	if (message != nullptr)
		keep(psprintf("message %s %s", message, why));
}

const char *
younger_than(const char *column, int64 ms)
{
	return ms == PG_INT64_MAX ? "true"
							  : psprintf("%s > clock_timestamp() - " INT64_FORMAT " * interval '1 ms'", column, ms);
}

void
keep_if_odd(const Leaves *leaves)
{
	if (!OidIsValid(leaves->attempts))
		keep("no partition of outbox.attempts has the same bounds");
	if (!OidIsValid(leaves->events))
		keep("no partition of outbox.events has the same bounds");
	for (Oid leaf : {leaves->messages, leaves->attempts, leaves->events})
		if (get_rel_relkind(leaf) != RELKIND_RELATION)
			keep(psprintf("%s is not an ordinary table", qualified_name(leaf)));
}

void
keep_if_pending(const Leaves *leaves)
{
	const char *id =
		leaves->is_default
			? ask("SELECT p.outbox_id FROM %s m JOIN outbox.pending p USING (outbox_id) LIMIT 1", leaves->messages_name)
			: ask("SELECT outbox_id FROM outbox.pending WHERE outbox_id >= '%s' AND outbox_id < '%s' "
				  "ORDER BY outbox_id LIMIT 1",
				  shown(leaves->from), shown(leaves->below));

	keep_if(id, "is pending");
}

void
keep_if_dead(const Leaves *leaves)
{
	keep_if(
		ask("SELECT a.outbox_id FROM %s a WHERE a.state = 'FAILED' AND %s AND NOT EXISTS "
			"(SELECT FROM outbox.replays r WHERE r.outbox_id = a.outbox_id) AND NOT EXISTS (SELECT FROM outbox.dead d "
			"WHERE d.outbox_id = a.outbox_id AND d.acknowledged_at IS NOT NULL) LIMIT 1",
			leaves->attempts_name, younger_than("a.created_at", leaves->policy.dead_letters_ms)),
		"is a dead letter that was neither replayed nor acknowledged");
}

// Rows are added at or near the end of a table: the last pages show for most leaves that they are too
// young.
constexpr BlockNumber last_blocks = 8;

BlockNumber
first_of_last_blocks(Oid leaf)
{
	Relation rel = table_open(leaf, AccessShareLock);
	BlockNumber size = RelationGetNumberOfBlocks(rel);

	table_close(rel, NoLock);
	return size > last_blocks ? size - last_blocks : 0;
}

void
keep_if_young(const Leaves *leaves, BlockNumber from)
{
	keep_if(ask("SELECT outbox_id FROM %s WHERE ctid >= '(%u,0)' AND state IN ('DISPATCHED', 'FAILED') AND %s LIMIT 1",
				leaves->attempts_name, from, younger_than("created_at", leaves->policy.keep_ms)),
			"has ended too recently");
}

// Those of a dated partition are as old as its bounds say.
void
keep_if_events_are_young(const Leaves *leaves)
{
	const char *event = leaves->is_default ? ask("SELECT event_id FROM %s WHERE %s LIMIT 1", leaves->events_name,
												 younger_than("at", leaves->policy.keep_ms))
										   : nullptr;

	if (event != nullptr)
		keep(psprintf("audit event %s is too recent", event));
}

void
keep_if_unended(const Leaves *leaves)
{
	keep_if(ask("SELECT m.outbox_id FROM %s m WHERE NOT EXISTS (SELECT FROM %s a WHERE a.outbox_id = m.outbox_id "
				"AND a.state IN ('DISPATCHED', 'FAILED')) LIMIT 1",
				leaves->messages_name, leaves->attempts_name),
			"has not ended, though it is not pending");
}

const char *
unsealed(const char *id, const char *leaf, const char *time)
{
	return ask("SELECT %s FROM %s WHERE %s >= (SELECT to_at FROM outbox.seals ORDER BY seal_no DESC LIMIT 1) LIMIT 1",
			   id, leaf, time);
}

// A seal proves nothing of rows that went before it.
void
keep_if_unsealed(const Leaves *leaves)
{
	const char *event;

	if (ask("SELECT 1 FROM outbox.seals LIMIT 1") == nullptr)
		return;
	keep_if(unsealed("outbox_id", leaves->messages_name, "created_at"), "is not sealed yet");
	keep_if(unsealed("outbox_id", leaves->attempts_name, "created_at"), "has an attempt that is not sealed yet");
	event = unsealed("event_id", leaves->events_name, "at");
	if (event != nullptr)
		keep(psprintf("audit event %s is not sealed yet", event));
}

// ---- locks

// In the order of hot code, after the parents, which only readers and DDL lock.
void
lock_all(const Leaves *leaves)
{
	Oid messages = relation_oid("messages");
	Oid attempts = relation_oid("attempts");
	Oid events = relation_oid("events");

	// DEFAULT stays attached: it needs no lock on the parents.
	if (!leaves->is_default)
		for (Oid rel : {messages, attempts, events})
			LockRelationOid(rel, AccessExclusiveLock);
	for (Oid rel : {leaves->messages, get_default_partition_oid(messages), leaves->attempts,
					get_default_partition_oid(attempts), leaves->events, get_default_partition_oid(events)})
		if (OidIsValid(rel))
			LockRelationOid(rel, AccessExclusiveLock);
}

// Avoids reading a leaf that cannot be locked.
void
require_unused(const Leaves *leaves)
{
	for (Oid rel : {leaves->messages, leaves->attempts, leaves->events})
	{
		if (!ConditionalLockRelationOid(rel, AccessExclusiveLock))
			ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg("%s is in use", qualified_name(rel))));
		UnlockRelationOid(rel, AccessExclusiveLock);
	}
}

void
require_unchanged(const Leaves *leaves, int64 after_ms, int64 until_ms)
{
	Leaves now = {};

	if (!find_leaves(after_ms, until_ms, &now) || now.messages != leaves->messages ||
		now.attempts != leaves->attempts || now.events != leaves->events)
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg("the partitions were changed concurrently")));
}

// ---- retiring

// Keys outlive their messages: a repeated enqueue still returns the number.
void
carry_numbers(const Leaves *leaves)
{
	int64 window = idempotency_window_ms();
	core::Uuid from = core::first_id_at(window == PG_INT64_MAX ? 0 : unix_ms(GetCurrentTimestamp()) - window);

	if (compare(leaves->below, from) <= 0 || ask("SELECT 1 FROM outbox.key_numbers LIMIT 1") == nullptr)
		return;
	run("INSERT INTO outbox.retired_numbers SELECT outbox_id, sequence_id FROM %s "
		"WHERE sequence_id IS NOT NULL AND replay_of IS NULL AND (idempotency_key IS NOT NULL OR event_id <> outbox_id) "
		"AND outbox_id >= '%s' ON CONFLICT DO NOTHING",
		leaves->messages_name, shown(from));
}

// DETACH removes the clones of the parent's triggers.
void
archive(const Policy *policy, const char *parent, const char *leaf)
{
	run("ALTER TABLE outbox.%s DETACH PARTITION %s", parent, leaf);
	add_guards(leaf);
	run("ALTER TABLE %s SET SCHEMA %s", leaf, quote_identifier(policy->archive_schema));
}

// The DEFAULT partitions belong to the extension and are dumped by their names, so their rows are
// copied to the archive.
void
copy_default(const Policy *policy, const char *parent, const char *leaf)
{
	const char *copy = psprintf("%s.%s_p%s", quote_identifier(policy->archive_schema), parent,
								ask("SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD_HH24MI')"));

	run("CREATE TABLE %s (LIKE %s INCLUDING ALL)", copy, leaf);
	run("COMMENT ON TABLE %s IS 'What was in outbox.%s_default.'", copy, parent);
	run("INSERT INTO %s SELECT * FROM %s", copy, leaf);
	add_guards(copy);
}

void
empty(const char *leaf)
{
	run("ALTER TABLE %s DISABLE TRIGGER append_only_truncate", leaf);
	run("TRUNCATE %s", leaf);
	run("ALTER TABLE %s ENABLE ALWAYS TRIGGER append_only_truncate", leaf);
}

// Before the strong locks.
void
copy_to_archive(const Leaves *leaves)
{
	if (!leaves->is_default || leaves->policy.archive_schema == nullptr)
		return;
	copy_default(&leaves->policy, "messages", leaves->messages_name);
	copy_default(&leaves->policy, "attempts", leaves->attempts_name);
	copy_default(&leaves->policy, "events", leaves->events_name);
}

// The list of subjects of these messages.
void
forget_subjects(const Leaves *leaves)
{
	if (ask("SELECT 1 FROM outbox.subject_messages LIMIT 1") != nullptr)
		run("DELETE FROM outbox.subject_messages s USING %s m WHERE m.outbox_id = s.outbox_id", leaves->messages_name);
}

// The events that tell of pairs that went before go, too. Without them the rows of those would be missing to the seals.
const char *
retirements_told(const Leaves *leaves)
{
	return ask(
		"SELECT jsonb_agg(DISTINCT (detail - 'application_name' - 'client_addr') || '{\"repeated\": true}') FROM %s "
		"WHERE event = 'PARTITION_RETIRED' AND detail ? 'last_seal'",
		leaves->events_name);
}

// Once the leaves are gone: without a partition of today the new events are in DEFAULT.
void
repeat_retirements(const char *told)
{
	if (told != nullptr)
		run("SELECT outbox.record_event('PARTITION_RETIRED', detail => detail) FROM jsonb_array_elements(%s) detail",
			quote_literal_cstr(told));
}

void
remove_leaves(const Leaves *leaves)
{
	const char *told = retirements_told(leaves);

	run("DELETE FROM outbox.dead d USING %s a WHERE a.outbox_id = d.outbox_id AND a.state = 'FAILED'",
		leaves->attempts_name);
	forget_subjects(leaves);
	if (leaves->is_default)
	{
		empty(leaves->messages_name);
		empty(leaves->attempts_name);
		empty(leaves->events_name);
	}
	else if (leaves->policy.archive_schema == nullptr)
	{
		run("DROP TABLE %s", leaves->messages_name);
		run("DROP TABLE %s", leaves->attempts_name);
		run("DROP TABLE %s", leaves->events_name);
	}
	else
	{
		archive(&leaves->policy, "messages", leaves->messages_name);
		archive(&leaves->policy, "attempts", leaves->attempts_name);
		archive(&leaves->policy, "events", leaves->events_name);
	}
	repeat_retirements(told);
}

void
retire(Leaves *leaves, int64 after_ms, int64 until_ms)
{
	keep_if_odd(leaves);
	require_sound(messages_shape, leaves->messages);
	require_sound(attempts_shape, leaves->attempts);
	require_sound(audit_events_shape, leaves->events);
	keep_if_pending(leaves);
	keep_if_dead(leaves);
	keep_if_young(leaves, first_of_last_blocks(leaves->attempts));
	require_unused(leaves);
	LockRelationOid(leaves->messages, ShareLock);
	// New events of any message may come to DEFAULT.
	if (leaves->is_default)
		LockRelationOid(leaves->events, ShareLock);
	require_unchanged(leaves, after_ms, until_ms);
	keep_if_unended(leaves);
	keep_if_young(leaves, 0);
	keep_if_events_are_young(leaves);
	keep_if_unsealed(leaves);
	carry_numbers(leaves);
	copy_to_archive(leaves);
	lock_all(leaves);
	require_unchanged(leaves, after_ms, until_ms);
	keep_if_pending(leaves);
	keep_if_dead(leaves);
	remove_leaves(leaves);
}

const char *
what_was_done(bool is_default, const Policy *policy)
{
	const char *what = is_default ? "emptied" : "dropped";

	if (policy->archive_schema != nullptr)
		what = psprintf("%s to schema %s", is_default ? "emptied, after its rows were copied" : "moved",
						quote_identifier(policy->archive_schema));
	return psprintf("%s, with its counterparts of attempts and events", what);
}

bool
is_empty(const Leaves *leaves)
{
	return ask("SELECT 1 FROM %s LIMIT 1", leaves->messages_name) == nullptr &&
		   ask("SELECT 1 FROM %s LIMIT 1", leaves->attempts_name) == nullptr &&
		   ask("SELECT 1 FROM %s LIMIT 1", leaves->events_name) == nullptr;
}

// Sets the fields of pair one by one: an ERROR leaves by longjmp.
void
try_next(int64 after_ms, RetiredPair *pair, const Policy *policy, MemoryContext context)
{
	int64 until_ms = policy->keep_ms == PG_INT64_MAX ? PG_INT64_MIN : unix_ms(GetCurrentTimestamp()) - policy->keep_ms;
	Leaves leaves = {};

	if (!find_leaves(after_ms, until_ms, &leaves))
		return;
	leaves.policy = *policy;
	leaves.messages_name = qualified_name(leaves.messages);
	leaves.attempts_name = OidIsValid(leaves.attempts) ? qualified_name(leaves.attempts) : nullptr;
	leaves.events_name = OidIsValid(leaves.events) ? qualified_name(leaves.events) : nullptr;
	pair->upto_ms = leaves.upto_ms;
	pair->is_default = leaves.is_default;
	pair->object = MemoryContextStrdup(context, get_rel_name(leaves.messages));
	for (const Shape *shape : {&pending_shape, &replays_shape, &dead_shape, &key_numbers_shape, &retired_numbers_shape})
		require_sound(*shape, relation_oid(shape->name));
	SPI_connect();
	pair->retired = !leaves.is_default || !is_empty(&leaves);
	if (pair->retired)
	{
		const char *last_seal;

		retire(&leaves, after_ms, until_ms);
		last_seal = ask("SELECT seal_no FROM outbox.seals ORDER BY seal_no DESC LIMIT 1");
		pair->last_seal = last_seal != nullptr ? MemoryContextStrdup(context, last_seal) : nullptr;
	}
	SPI_finish();
}

} // namespace

RetiredPair
retire_next(int64 after_ms)
{
	// In memory: a longjmp would bring back registers.
	RetiredPair *pair = static_cast<RetiredPair *>(palloc(sizeof(RetiredPair)));
	Policy *policy = static_cast<Policy *>(palloc(sizeof(Policy)));
	MemoryContext context = CurrentMemoryContext;
	ErrorData *error;

	*pair = {nullptr, "outbox.messages", nullptr, false, false, false, PG_INT64_MAX, nullptr};
	error = in_subtransaction([&] {
		*policy = retention_policy();
		try_next(after_ms, pair, policy, context);
	});
	if (error != nullptr)
	{
		pair->action = error->sqlerrcode == ERRCODE_OBJECT_IN_USE ? "partition kept" : "partition not retired";
		pair->detail = error->detail != nullptr ? psprintf("%s: %s", error->message, error->detail) : error->message;
		pair->retired = false;
		pair->failed = error->sqlerrcode != ERRCODE_OBJECT_IN_USE && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE;
	}
	else if (pair->retired)
	{
		pair->action = "partition retired";
		pair->detail = what_was_done(pair->is_default, policy);
	}
	return *pair;
}

} // namespace outbox
