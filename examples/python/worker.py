"""Delivers each message at least once. SIGTERM finishes the batch at hand and leaves no lease;
the messages of a worker that dies, or loses its connection or leases, go to another worker."""

import os
import select
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import psycopg
from deliver import deliver
from psycopg.rows import namedtuple_row

ME = f"{socket.gethostname()}:{os.getpid()}"
stopping: list[bool] = []
signalled, on_signal = socket.socketpair()  # a signal ends each wait


def connect() -> psycopg.Connection:
    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, prepare_threshold=None,
                           row_factory=namedtuple_row)


def work(db: psycopg.Connection, threads: ThreadPoolExecutor) -> None:
    woken: list[psycopg.Notify] = []
    pause = 0.1
    db.add_notify_handler(woken.append)
    # Before the first claim; not through a pool in transaction mode, which has no LISTEN.
    if "POOLED" not in os.environ:
        db.execute("LISTEN outbox_pending")
    while not stopping:
        woken.clear()
        batch = db.execute("SELECT * FROM outbox.claim(%s, 20, '30 s')", [ME]).fetchall()
        if not batch:
            if not woken:
                select.select([db, signalled], [], [], pause)
            pause = min(2 * pause, 1)
            continue
        pause = 0.1
        # Side by side, each with a time limit: together they end well within the lease.
        outcomes = list(threads.map(lambda m: deliver(m.event_id, m.payload), batch))
        for row in db.execute(
            "SELECT * FROM outbox.complete_batch(%s, %s, %s, %s::text[], error_codes => %s::text[])",
            [ME, [m.outbox_id for m in batch], [m.lease_token for m in batch],
             [o.state for o in outcomes], [o.error_code for o in outcomes]],
        ):
            if row.error:  # P7002: the lease was lost, and another worker has the message
                print("not recorded:", row.outbox_id, row.error, flush=True)


signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
on_signal.setblocking(False)
signal.set_wakeup_fd(on_signal.fileno())
while not stopping:
    try:
        with ThreadPoolExecutor(20) as threads, connect() as db:
            work(db, threads)
    except psycopg.Error as error:  # a lost connection: connect, LISTEN and claim again
        print("trying again:", error, flush=True)
        select.select([signalled], [], [], 1)
