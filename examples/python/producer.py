"""Places an order for each item that is named. An order and its message are stored together or not
at all, and an order that fails leaves a connection that is ready for the next one."""

import os
import sys

import psycopg
from psycopg.types.json import Jsonb

INSERT = "INSERT INTO orders (item) VALUES (%s) RETURNING id"
ENQUEUE = """SELECT outbox.enqueue('order.placed', %s,
    aggregate_type => 'order', aggregate_id => %s)"""


def place_order(db: psycopg.Connection, item: str) -> int:
    with db.transaction():
        [(order_id,)] = db.execute(INSERT, [item])
        db.execute(ENQUEUE, [Jsonb({"id": order_id, "item": item}), str(order_id)])
    return order_id


def main(items: list[str]) -> int:
    failed = False
    # PgBouncer before 1.21 has no prepared statements in transaction mode.
    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as db:
        for item in items:
            try:
                print("order", place_order(db, item))
            except psycopg.IntegrityError as error:
                print(f"no order of {item}: {error}", file=sys.stderr)
                failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
