"""Ships each order exactly once, with SQLAlchemy: the shipment and the report of its message are
one transaction. A worker that dies, or whose lease is lost, has shipped nothing."""

import os
import signal
import socket
import threading

from sqlalchemy import Row, text
from sqlalchemy.exc import DBAPIError

from models import Session, Shipment

ME = f"{socket.gethostname()}:{os.getpid()}"
CLAIM = text("SELECT outbox_id, lease_token, payload FROM outbox.claim(:me, 10, '30 s')")
COMPLETE = text("SELECT outbox.complete(:outbox_id, :lease_token, :me, 'DISPATCHED')")
# Unlike complete(), complete_batch() does not raise P7002, but returns it.
RETRY = text(
    "SELECT outbox.complete_batch(:me, ARRAY[CAST(:outbox_id AS uuid)],"
    " ARRAY[CAST(:lease_token AS uuid)], '{RETRYABLE}', error_codes => ARRAY[:code])"
)
stopping = threading.Event()


def handle(message: Row) -> None:
    lease = {"outbox_id": message.outbox_id, "lease_token": message.lease_token, "me": ME}
    try:
        with Session.begin() as session:
            session.add(Shipment(order_id=message.payload["id"]))
            session.flush()
            session.execute(COMPLETE, lease)
    except Exception as error:
        code = getattr(getattr(error, "orig", None), "sqlstate", None) or type(error).__name__
        if code != "P7002":  # P7002: another worker has the message, and ships the order
            with Session.begin() as session:  # the other transaction is rolled back
                session.execute(RETRY, {**lease, "code": code})


def work() -> None:
    pause = 0.1
    while not stopping.is_set():
        with Session.begin() as session:  # commits the claim before anything is shipped
            batch = session.execute(CLAIM, {"me": ME}).all()
        for message in batch:
            handle(message)
        pause = 0.1 if batch else min(2 * pause, 1)
        if not batch:
            stopping.wait(pause)


for number in signal.SIGINT, signal.SIGTERM:
    signal.signal(number, lambda *_: stopping.set())
while not stopping.is_set():
    try:
        work()
    except DBAPIError as error:  # a lost connection: the pool makes another one
        print("trying again:", error, flush=True)
        stopping.wait(1)
