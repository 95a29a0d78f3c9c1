"""Places an order for each item that is named, with SQLAlchemy. The message is stored by the
order's own transaction: together with the order or not at all."""

import json
import sys

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session as OrmSession

from models import Order, Session

ENQUEUE = text(
    "SELECT outbox.enqueue('order.placed', CAST(:payload AS jsonb),"
    " aggregate_type => 'order', aggregate_id => :order_id)"
)


def place_order(session: OrmSession, item: str) -> int:
    order = Order(item=item)
    session.add(order)
    session.flush()  # the database gives the order its id
    payload = json.dumps({"id": order.id, "item": order.item})
    session.execute(ENQUEUE, {"payload": payload, "order_id": str(order.id)})
    return order.id


def main(items: list[str]) -> int:
    failed = False
    for item in items:
        try:
            with Session.begin() as session:
                order_id = place_order(session, item)
            print("order", order_id)
        except IntegrityError as error:
            print(f"no order of {item}: {error.orig}", file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
