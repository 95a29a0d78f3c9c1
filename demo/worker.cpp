// One worker of the demo: claims from one database, delivers into another.
//
//	worker NAME SOURCE TARGET BATCH LEASE		(SOURCE, TARGET: libpq connection strings)
//
// It does what any worker has to do, in this order: claim (committed before
// anything is sent), deliver, complete. Each is one statement, so each commits
// at once. When it dies between any two of them nothing is lost: the lease
// expires, another worker delivers again, and the receiver keeps one copy because
// event_id is its primary key.
//
// The server makes and reads the arrays; the worker only carries their text from
// one connection to the other.
//
// SIGTERM ends it after the batch at hand; it then prints what it did.

#include <libpq-fe.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <poll.h>

namespace {

volatile sig_atomic_t stopping = 0;

void
stop(int)
{
	stopping = 1;
}

[[noreturn]] void
die(const char *what, const char *why)
{
	fprintf(stderr, "worker: %s: %s\n", what, why);
	exit(1);
}

using Connection = std::unique_ptr<PGconn, decltype(&PQfinish)>;
using Result = std::unique_ptr<PGresult, decltype(&PQclear)>;

Connection
connect(const char *conninfo)
{
	Connection connection(PQconnectdb(conninfo), PQfinish);
	if (PQstatus(connection.get()) != CONNECTION_OK)
		die("connection", PQerrorMessage(connection.get()));
	return connection;
}

// One statement, one transaction. The caller looks at the status.
Result
run(const Connection &connection, const char *sql, std::initializer_list<const char *> values = {})
{
	return Result(PQexecParams(connection.get(), sql, static_cast<int>(values.size()), nullptr, values.begin(), nullptr,
							   nullptr, 0),
				  PQclear);
}

Result
must(const char *what, Result result)
{
	const ExecStatusType status = PQresultStatus(result.get());
	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		die(what, PQresultErrorMessage(result.get()));
	return result;
}

const char *
field(const Result &result, int column)
{
	return PQgetvalue(result.get(), 0, column);
}

// A batch is one row of arrays, in the order of the claim, which is that of each key in
// the ordered queue. An aggregate over no rows is one row as well: count 0, arrays NULL.
const char claim_sql[] = R"(
	SELECT count(*), array_agg(outbox_id), array_agg(lease_token),
		array_agg(event_id), array_agg(event_type), array_agg(payload)
	FROM outbox.claim($1, $2::int, $3::interval, '{default,accounts}', queue_weights => '{1,1}'))";
enum { batch_size, ids, tokens, event_ids, event_types, payloads };

const char deliver_sql[] = R"(
	INSERT INTO delivered (event_id, event_type, payload)
	SELECT * FROM unnest($1::uuid[], $2::text[], $3::jsonb[])
	ON CONFLICT (event_id) DO NOTHING)";

// The whole batch had one outcome, so each optional array is that one value,
// repeated. NULL (a nullptr here) stands for "no error".
const char complete_sql[] = R"(
	SELECT count(*) FILTER (WHERE error IS NOT NULL)
	FROM outbox.complete_batch($1, $2::uuid[], $3::uuid[],
		array_fill($5::outbox.attempt_state, ARRAY[$4::int]),
		error_codes => array_fill($6::text, ARRAY[$4::int]),
		error_messages => array_fill($7::text, ARRAY[$4::int])))";

bool
notified(const Connection &source)
{
	bool any = false;

	if (PQconsumeInput(source.get()) == 0)
		die("source", PQerrorMessage(source.get()));
	while (PGnotify *notification = PQnotifies(source.get()))
	{
		PQfreemem(notification);
		any = true;
	}
	return any;
}

// Until a notification, a signal, or the look that is due now and then all the same:
// it finds out that the connection is dead, which a listener does not hear. A moment
// more gathers a batch: one message at a time costs three commits a message.
// True when it was a notification.
bool
wait_for_work(const Connection &source)
{
	constexpr int look_interval_ms = 5000, gather_ms = 25;
	pollfd socket = {PQsocket(source.get()), POLLIN, 0};
	bool woken = notified(source);

	if (!stopping && !woken && poll(&socket, 1, look_interval_ms) > 0)
		woken = notified(source);
	if (!stopping)
		poll(nullptr, 0, gather_ms);
	return woken;
}

} // namespace

int
main(int argc, char **argv)
{
	if (argc != 6)
		die("usage", "worker NAME SOURCE TARGET BATCH LEASE");
	const char *const name = argv[1], *const batch = argv[4], *const lease = argv[5];

	signal(SIGTERM, stop);

	const Connection source = connect(argv[2]), target = connect(argv[3]);
	long claimed = 0, new_to_receiver = 0, delivered = 0, retried = 0, lost = 0, woken = 0;

	must("listen", run(source, "LISTEN outbox_pending"));
	while (!stopping)
	{
		const Result work = must("claim", run(source, claim_sql, {name, batch, lease}));
		const long count = atol(field(work, batch_size));
		if (count == 0)
		{
			woken += wait_for_work(source);
			continue;
		}
		claimed += count;

		const Result sent =
			run(target, deliver_sql, {field(work, event_ids), field(work, event_types), field(work, payloads)});
		const bool ok = PQresultStatus(sent.get()) == PGRES_COMMAND_OK;
		if (ok)
		{
			delivered += count;
			new_to_receiver += atol(PQcmdTuples(sent.get()));
		}
		else
		{
			retried += count;
			if (PQstatus(target.get()) != CONNECTION_OK)
				PQreset(target.get());
		}

		const Result done = must("complete_batch", run(source, complete_sql,
													   {name, field(work, ids), field(work, tokens),
														field(work, batch_size), ok ? "DISPATCHED" : "RETRYABLE",
														ok ? nullptr : PQresultErrorField(sent.get(), PG_DIAG_SQLSTATE),
														ok ? nullptr : PQresultErrorMessage(sent.get())}));
		// A lost lease (P7002) is no fault: whoever took it over delivers again.
		lost += atol(field(done, 0));
	}
	printf("%s: claimed %ld, delivered %ld of which the receiver had %ld already, to be retried %ld, leases lost %ld; "
		   "woken %ld times by a notification\n",
		   name, claimed, delivered, delivered - new_to_receiver, retried, lost, woken);
	return 0;
}
