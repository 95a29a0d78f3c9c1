// See master_key.h.

#include "privacy/master_key.h"

#include "privacy/key_source.h"
#include "server/secret_memory.h"
#include "server/settings.h"
#include "server/values.h"

namespace outbox {

namespace {

constexpr int most_keys = 16;
constexpr int secret_places = 3;
constexpr int hex_digits = 2 * key_bytes;
constexpr int base64_digits = (key_bytes + 2) / 3 * 4;

struct Secrets {
	MasterKey keys[most_keys];
	unsigned char places[secret_places][key_bytes];
	unsigned char decoded[base64_digits];
	char text[longest_key_text];
};
Secrets *secrets;
int key_count;

// Where the keys came from.
uint64 read_generation;
FileStamp read_stamp;

Secrets *
own_secrets()
{
	if (secrets == nullptr)
		secrets = static_cast<Secrets *>(secret_memory(sizeof(Secrets)));
	return secrets;
}

void
forget_master_keys()
{
	// Not the places: a call may be at work with what lies there.
	key_count = 0;
	if (secrets != nullptr)
		wipe(secrets->keys, sizeof(secrets->keys));
}

int
digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool
parse_hex(const char *digits, unsigned char *key)
{
	for (size_t i = 0; i < key_bytes; i++)
	{
		int high = digit_of(digits[2 * i]);
		int low = digit_of(digits[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		key[i] = static_cast<unsigned char>(high << 4 | low);
	}
	return true;
}

bool
parse_key(const char *digits, size_t size, unsigned char *key)
{
	if (size == hex_digits)
		return parse_hex(digits, key);
	if (size != base64_digits || from_base64(digits, base64_digits, secrets->decoded) != key_bytes)
		return false;
	memcpy(key, secrets->decoded, key_bytes);
	return true;
}

// A hash of the key that tells nothing of it.
void
name_key(MasterKey *key)
{
	static const unsigned char purpose[] = "outbox master key id";
	unsigned char mac[mac_bytes];

	keyed_hash(key->key, {purpose, sizeof(purpose) - 1}, mac);
	to_hex(mac, key_id_size / 2, key->id);
}

bool
is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

// A line without its blanks; empty ones and comments hold no key.
const char *
take_line(const char *line, size_t size)
{
	while (size > 0 && is_blank(line[size - 1]))
		size--;
	while (size > 0 && is_blank(*line))
	{
		line++;
		size--;
	}
	if (size == 0 || *line == '#')
		return nullptr;
	if (key_count == most_keys)
		return psprintf("more than %d master keys", most_keys);
	if (!parse_key(line, size, secrets->keys[key_count].key))
		return "is neither 64 hexadecimal digits nor the base64 of 32 bytes";
	name_key(&secrets->keys[key_count++]);
	return nullptr;
}

const char *
take_lines(size_t size)
{
	const char *end = secrets->text + size;
	int number = 1;

	if (size == longest_key_text)
		return psprintf("the master keys are longer than %zu bytes", longest_key_text - 1);
	for (const char *line = secrets->text; line < end; number++)
	{
		const char *next = static_cast<const char *>(memchr(line, '\n', static_cast<size_t>(end - line)));
		const char *stop = next != nullptr ? next : end;
		const char *problem = take_line(line, static_cast<size_t>(stop - line));

		if (problem != nullptr)
			return psprintf("line %d of the master keys: %s", number, problem);
		line = stop + 1;
	}
	return key_count == 0 ? "the source of the master keys has no key in it" : nullptr;
}

// Reads the keys again. nullptr: there are some.
const char *
read_keys()
{
	const char *problem = nullptr;
	const char *file = master_key_file();
	ssize_t size;

	forget_master_keys();
	own_secrets();
	if (file[0] != '\0')
		size = read_key_file(file, secrets->text, &problem);
	else
		size = read_key_command(master_key_command(), secrets->text, &problem);
	if (size >= 0)
		problem = take_lines(static_cast<size_t>(size));
	wipe(secrets->text, sizeof(secrets->text));
	wipe(secrets->decoded, sizeof(secrets->decoded));
	if (problem != nullptr)
		forget_master_keys();
	return problem;
}

bool
is_same(const FileStamp &a, const FileStamp &b)
{
	return a.device == b.device && a.inode == b.inode && a.size == b.size && a.modified_ns == b.modified_ns &&
		   a.changed_ns == b.changed_ns;
}

} // namespace

const char *
problem_of_master_key()
{
	uint64 generation = master_key_generation();
	FileStamp stamp = {};
	const char *problem;

	if (master_key_file()[0] == '\0' && master_key_command()[0] == '\0')
	{
		forget_master_keys();
		return "neither outbox.master_key_file nor outbox.master_key_command is set";
	}
	if (master_key_file()[0] != '\0' && master_key_command()[0] != '\0')
	{
		forget_master_keys();
		return "both outbox.master_key_file and outbox.master_key_command are set";
	}
	// Before it is read: what changes meanwhile is read again the next time.
	if (master_key_file()[0] != '\0' && !stamp_of(master_key_file(), &stamp))
		key_count = 0;
	if (key_count > 0 && generation == read_generation && is_same(stamp, read_stamp))
		return nullptr;
	problem = read_keys();
	read_generation = generation;
	read_stamp = stamp;
	return problem;
}

namespace {

void
need_master_key()
{
	const char *problem = problem_of_master_key();

	if (problem != nullptr)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("there is no master key"),
						errdetail_internal("Cause: %s.", problem),
						errhint("Set outbox.master_key_file or outbox.master_key_command in postgresql.conf, and "
								"reload it.")));
}

} // namespace

const MasterKey *
current_master_key()
{
	need_master_key();
	return &secrets->keys[0];
}

const MasterKey *
master_key_of(const char *id)
{
	need_master_key();
	for (int i = 0; i < key_count; i++)
		if (strcmp(secrets->keys[i].id, id) == 0)
			return &secrets->keys[i];
	return nullptr;
}

bytea *
wrapped_key(const unsigned char *key, Bytes bound_to)
{
	bytea *wrapped = static_cast<bytea *>(palloc(VARHDRSZ + wrapped_bytes));

	SET_VARSIZE(wrapped, VARHDRSZ + wrapped_bytes);
	seal(current_master_key()->key, bound_to, {key, key_bytes}, reinterpret_cast<unsigned char *>(VARDATA(wrapped)));
	return wrapped;
}

void
unwrap_key(const bytea *wrapped, const char *id, Bytes bound_to, unsigned char *key)
{
	const MasterKey *master = master_key_of(id);
	Bytes sealed = {reinterpret_cast<const unsigned char *>(VARDATA_ANY(wrapped)), VARSIZE_ANY_EXHDR(wrapped)};

	if (master == nullptr)
		ereport(
			ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("AUTHENTICATION_FAILED: the master key is another one"),
			 errdetail("Needed is the master key with id %s. The current one has id %s.", id, current_master_key()->id),
			 errhint("Add the former master key to the source of the master keys, on a line of its own.")));
	if (sealed.size != wrapped_bytes || !unseal(master->key, bound_to, sealed, key))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("AUTHENTICATION_FAILED: a wrapped key was changed"),
				 errdetail("The master key with id %s does not open it.", id)));
}

void
wipe_places()
{
	if (secrets != nullptr)
		wipe(secrets->places, sizeof(secrets->places));
}

unsigned char *
secret_place(Secret which)
{
	return own_secrets()->places[static_cast<int>(which)];
}

} // namespace outbox
