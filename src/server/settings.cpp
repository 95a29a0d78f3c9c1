// See settings.h.

#include "server/settings.h"

namespace outbox {

namespace {

constexpr int64 hour_us = USECS_PER_HOUR;
constexpr int64 most_us = 3653 * USECS_PER_DAY; // ten years

char *partition_interval;
char *idempotency_window;
bool async_claim;
int seal_interval_s;
char *key_file_of_seals;
bool hold = false;
bool worker = true;
int max_delay_s;
char *databases;
int discovery_interval_s = 300;
int poll_interval_ms = 5000;
int notify_gather_ms = 5;
int handler_processes = 2;
int most_queues = 1024;
int most_counted = 500;
int largest_batch = 10000;
char *key_file;
char *key_command;
uint64 key_generation = 1;

// As the type's input function does, but false instead of an ERROR.
bool
parse_interval(const char *value, Interval *interval)
{
	char buffer[256];
	char *fields[MAXDATEFIELDS];
	int types[MAXDATEFIELDS];
	int count;
	int kind;
	struct pg_itm_in parsed = {};

	return ParseDateTime(value, buffer, sizeof(buffer), fields, types, MAXDATEFIELDS, &count) == 0 &&
		   DecodeInterval(fields, types, count, INTERVAL_FULL_RANGE, &kind, &parsed) == 0 && kind == DTK_DELTA &&
		   itmin2interval(&parsed, interval) == 0;
}

// Microseconds of an interval of fixed length from one hour to ten years, or 0.
int64
fixed_us(const char *value)
{
	Interval interval;

	if (!parse_interval(value, &interval) || interval.month != 0 || interval.day > most_us / USECS_PER_DAY ||
		interval.day < -most_us / USECS_PER_DAY || interval.time < -most_us || interval.time > most_us)
		return 0;

	int64 us = interval.day * USECS_PER_DAY + interval.time;

	return us >= hour_us && us <= most_us ? us : 0;
}

bool
check_interval(char **value, void **, GucSource)
{
	if (fixed_us(*value) != 0)
		return true;
	GUC_check_errdetail("It must be an interval between 1 hour and 3653 days.");
	GUC_check_errhint("Months and years have no fixed length: give days.");
	return false;
}

bool
check_interval_or_empty(char **value, void **extra, GucSource source)
{
	return (*value)[0] == '\0' || check_interval(value, extra, source);
}

bool
check_databases(char **value, void **, GucSource)
{
	// Splitting writes into the string, and the list is not needed. The postmaster has memory
	// contexts when it reads this parameter.
	char *copy = pstrdup(*value);
	List *names;
	bool valid = SplitIdentifierString(copy, ',', &names);

	if (!valid)
		GUC_check_errdetail("List syntax is invalid.");
	list_free(names);
	pfree(copy);
	return valid;
}

// Parameters of a preloaded library only.
void
define_preload_settings()
{
	DefineCustomIntVariable("outbox.max_queues",
							"Number of queues, of all databases, that have a place in shared memory.",
							"Those beyond are served more slowly and are not counted.", &most_queues, 1024, 16, 65536,
							PGC_POSTMASTER, 0, nullptr, nullptr, nullptr);
}

void
define_worker_settings()
{
	DefineCustomBoolVariable("outbox.worker", "Whether background workers run.", nullptr, &worker, true, PGC_SIGHUP, 0,
							 nullptr, nullptr, nullptr);
	DefineCustomStringVariable("outbox.databases",
							   "Databases that get a background worker; empty means all that have the extension.",
							   nullptr, &databases, "", PGC_SIGHUP, GUC_LIST_INPUT, check_databases, nullptr, nullptr);
	DefineCustomIntVariable("outbox.discovery_interval",
							"How often the launcher looks for databases that have the extension.",
							"CREATE EXTENSION, ALTER EXTENSION and DROP EXTENSION are noticed at once.",
							&discovery_interval_s, 300, 1, 86400, PGC_SIGHUP, GUC_UNIT_S, nullptr, nullptr, nullptr);
	DefineCustomIntVariable("outbox.poll_interval", "How long a background worker sleeps at most.",
							"Finds what no commit announces: prepared transactions, rows written by hand.",
							&poll_interval_ms, 5000, 100, 3600000, PGC_SIGHUP, GUC_UNIT_MS, nullptr, nullptr, nullptr);
	DefineCustomIntVariable(
		"outbox.handler_workers",
		"Number of background processes that run handlers of queues in a database at the same time.",
		"They run while there is something to handle. 0 leaves it to outbox.maintain().", &handler_processes, 2, 0,
		most_handler_workers, PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
	DefineCustomIntVariable("outbox.seal_interval",
							"How often what was recorded is sealed; 0 means only when outbox.seal() is called.",
							"New partitions then have an index on the time of their rows.", &seal_interval_s, 0, 0,
							86400, PGC_SIGHUP, GUC_UNIT_S, nullptr, nullptr, nullptr);
	DefineCustomStringVariable(
		"outbox.seal_key_file", "File with the Ed25519 private key, in PEM, that signs seals; empty means unsigned.",
		nullptr, &key_file_of_seals, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, nullptr, nullptr, nullptr);
	DefineCustomIntVariable("outbox.notify_gather", "Time between two notifications of one queue.",
							"The first one is sent at once.", &notify_gather_ms, 5, 0, 1000, PGC_SIGHUP, GUC_UNIT_MS,
							nullptr, nullptr, nullptr);
}

void
count_assignment(const char *, void *)
{
	key_generation++;
}

// For superusers to read, as ssl_passphrase_command is: a command may hold what opens the keys.
void
define_privacy_settings()
{
	DefineCustomStringVariable("outbox.master_key_file", "File with the master keys of protected fields.",
							   "One key a line, 64 hexadecimal digits or base64; the first is the current one.",
							   &key_file, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, nullptr, count_assignment, nullptr);
	DefineCustomStringVariable("outbox.master_key_command",
							   "Shell command that prints the master keys of protected fields.",
							   "Instead of outbox.master_key_file. A reload of the configuration lets it run again.",
							   &key_command, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, nullptr, count_assignment, nullptr);
}

// PG_INT64_MAX for the empty string.
int64
ms_or_ever(const char *value)
{
	return value[0] == '\0' ? PG_INT64_MAX : fixed_us(value) / 1000;
}

} // namespace

void
define_settings()
{
	define_worker_settings();
	define_privacy_settings();
	if (process_shared_preload_libraries_in_progress)
		define_preload_settings();
	DefineCustomStringVariable("outbox.partition_interval",
							   "Length of the partitions of messages and attempts that outbox.maintain() makes.",
							   nullptr, &partition_interval, "1 week", PGC_SUSET, 0, check_interval, nullptr, nullptr);
	DefineCustomStringVariable("outbox.idempotency_window",
							   "How long idempotency keys and event ids are remembered; empty means for ever.", nullptr,
							   &idempotency_window, "", PGC_SUSET, 0, check_interval_or_empty, nullptr, nullptr);
	DefineCustomIntVariable("outbox.count_limit",
							"Entries of a queue that outbox.status reads for each of its questions.",
							"Beyond them numbers are kept or estimated.", &most_counted, 500, 1, INT_MAX, PGC_USERSET,
							0, nullptr, nullptr, nullptr);
	DefineCustomBoolVariable("outbox.async_claim",
							 "Whether a transaction that did nothing but claim commits asynchronously.",
							 "A crash of the server may then forget leases that were just given out.", &async_claim,
							 false, PGC_USERSET, 0, nullptr, nullptr, nullptr);
	DefineCustomIntVariable(
		"outbox.max_delay", "The longest lease or delay that is accepted, and the latest deliver_at from now.",
		"A longer one is a mistake of units more often than a wish.", &max_delay_s,
		static_cast<int>(most_us / USECS_PER_SEC), 1, PG_INT32_MAX, PGC_SUSET, GUC_UNIT_S, nullptr, nullptr, nullptr);
	DefineCustomBoolVariable("outbox.hold", "Whether every queue is held, as if it were paused.",
							 "Set it for a copy of a database that must not deliver what the original delivers.", &hold,
							 false, PGC_SUSET, 0, nullptr, nullptr, nullptr);
	// Only superusers: it protects the server from mistakes of callers.
	DefineCustomIntVariable("outbox.max_batch", "Greatest number of messages that one call of a function takes.",
							"As batch_size, or as an array.", &largest_batch, 10000, 1, PG_INT32_MAX, PGC_SUSET, 0,
							nullptr, nullptr, nullptr);
	MarkGUCPrefixReserved("outbox");
}

int64
partition_interval_ms()
{
	return fixed_us(partition_interval) / 1000;
}

bool
leases_commit_asynchronously()
{
	return async_claim;
}

bool
everything_is_held()
{
	return hold;
}

int64
max_delay_us()
{
	return max_delay_s * USECS_PER_SEC;
}

bool
workers_wanted()
{
	return worker;
}

bool
is_wanted_database(const char *name)
{
	char *copy = pstrdup(databases);
	List *names = NIL;
	ListCell *cell;
	bool wanted;

	wanted = SplitIdentifierString(copy, ',', &names) && names == NIL;
	foreach (cell, names)
		wanted |= strcmp(static_cast<const char *>(lfirst(cell)), name) == 0;
	list_free(names);
	pfree(copy);
	return wanted;
}

int64
discovery_interval_us()
{
	return discovery_interval_s * USECS_PER_SEC;
}

int64
poll_interval_us()
{
	return poll_interval_ms * static_cast<int64>(1000);
}

int64
notify_gather_us()
{
	return notify_gather_ms * static_cast<int64>(1000);
}

int64
seal_interval_us()
{
	return seal_interval_s * USECS_PER_SEC;
}

const char *
seal_key_file()
{
	return key_file_of_seals;
}

int
handler_workers()
{
	return handler_processes;
}

int
max_batch()
{
	return largest_batch;
}

int
max_queues()
{
	return most_queues;
}

int64
count_limit()
{
	return most_counted;
}

int64
idempotency_window_ms()
{
	return ms_or_ever(idempotency_window);
}

const char *
master_key_file()
{
	return key_file;
}

const char *
master_key_command()
{
	return key_command;
}

uint64
master_key_generation()
{
	return key_generation;
}

int
pin_search_path()
{
	int level = NewGUCNestLevel();

	set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
					  false);
	return level;
}

} // namespace outbox
