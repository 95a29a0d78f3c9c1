"""Delivers each message at least once. SIGTERM finishes the batch at hand and leaves no lease;
the messages of a worker that dies, or loses its connection or leases, go to another worker."""

import os
import select
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import psycopg
from psycopg.rows import namedtuple_row

from deliver import deliver

ME = f"{socket.gethostname()}:{os.getpid()}"
URL = os.environ["DATABASE_URL"]
CLAIM = "SELECT * FROM outbox.claim(%s, 20, '30 s')"
COMPLETE = """SELECT * FROM outbox.complete_batch(%s, %s, %s, %s::text[],
    error_codes => %s::text[]) WHERE error IS NOT NULL"""
stopping: list[bool] = []
signalled, on_signal = socket.socketpair()  # a signal ends each wait


def work(db: psycopg.Connection, threads: ThreadPoolExecutor) -> None:
    woken: list[psycopg.Notify] = []
    pause = 0.1
    db.row_factory = namedtuple_row
    db.prepare_threshold = None  # PgBouncer before 1.21 has none in transaction mode
    db.add_notify_handler(woken.append)
    # Before the first claim; not through a pool in transaction mode, which has no LISTEN.
    if "POOLED" not in os.environ:
        db.execute("LISTEN outbox_pending")
    while not stopping:
        woken.clear()
        batch = db.execute(CLAIM, [ME]).fetchall()
        if not batch:
            select.select([db.fileno(), signalled.fileno()], [], [], 0 if woken else pause)
            pause = min(2 * pause, 1)
            continue
        pause = 0.1
        # Side by side, each with a time limit: together they end well within the lease.
        outcomes = threads.map(lambda m: deliver(m.event_id, m.payload), batch)
        states, codes = map(list, zip(*outcomes, strict=True))
        ids, tokens = [m.outbox_id for m in batch], [m.lease_token for m in batch]
        for row in db.execute(COMPLETE, [ME, ids, tokens, states, codes]):
            # P7002: the lease was lost, and another worker has the message.
            print("not recorded:", row.outbox_id, row.error, flush=True)


for number in signal.SIGINT, signal.SIGTERM:
    signal.signal(number, lambda *_: stopping.append(True))
on_signal.setblocking(False)
signal.set_wakeup_fd(on_signal.fileno())
while not stopping:
    try:
        with ThreadPoolExecutor(20) as threads, psycopg.connect(URL, autocommit=True) as db:
            work(db, threads)
    except psycopg.Error as error:  # a lost connection: connect, LISTEN and claim again
        print("trying again:", error, flush=True)
        select.select([signalled], [], [], 1)
