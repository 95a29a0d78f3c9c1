#!/usr/bin/python3
"""A participant: does the commands of the order service in its own database, and sends the answers.

    participant.py NAME ORDERS PARTICIPANTS             (ORDERS, PARTICIPANTS: connection strings)

A command takes effect and its answer is stored in one transaction of the participants' database. After that commit the answer
is sent at once: it was born leased to this program. Each statement commits by itself, and the program may die between any
two of them. Then its leases expire, and another participant gets the same commands, which the inbox knows, and sends the answers
that are left. An error ends the program in the same way; docs/worker.md shows how to report it instead.
"""

import signal
import sys

import psycopg
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

ME = sys.argv[1]


def connect(dsn):
    return psycopg.connect(dsn, application_name=ME, autocommit=True, row_factory=namedtuple_row)


def claim(database, queues):
    return database.execute("SELECT * FROM outbox.claim(%s, 10, lease => '5 s', queues => %s)", [ME, queues]).fetchall()


def complete(database, messages):
    # A lease that was lost (P7002) is no error here: another participant has the message.
    database.execute("SELECT * FROM outbox.complete_batch(%s, %s::uuid[], %s::uuid[], %s)",
                     [ME, [m.outbox_id for m in messages], [m.lease_token for m in messages], ["DISPATCHED"] * len(messages)])


def take(command):
    return participants.execute("SELECT * FROM participant.take_command(%s, %s, %s, %s, %s)", [
        ME, command.event_id, command.event_type, Jsonb(command.headers), Jsonb(command.payload)]).fetchall()


def send(answers):
    for answer in answers:
        orders.execute("SELECT shop.take_answer(%s, %s)", [answer.event_id, Jsonb(answer.payload)])
    complete(participants, answers)


stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
with connect(sys.argv[2]) as orders, connect(sys.argv[3]) as participants:
    while not stopping:
        commands = claim(orders, ["warehouse", "payments"])
        for command in commands:
            send(take(command))
        complete(orders, commands)
        left = claim(participants, ["answers"])         # by one that died
        send(left)
        if not commands and not left:
            orders.execute("CALL outbox.wait_for_work('1 s', '{warehouse, payments}')")
