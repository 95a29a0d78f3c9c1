#!/usr/bin/python3
"""A consumer that gives each event effect exactly once.

    consumer.py AMQP-URL CONNECTION-STRING

It reads the queue "billing" of RabbitMQ and writes an invoice for each order into a database of its
own. outbox-relay delivers at least once: the same event may arrive again after a crash of the relay, of
the broker or of this program. So the event's id goes into the table "seen" in the transaction that writes
the invoice: if it is there already, the event is a duplicate and has no effect. The message is
acknowledged after the commit. Whatever dies in between, the message comes again, and is a duplicate.

    CREATE TABLE seen (event_id uuid PRIMARY KEY, deliveries int NOT NULL DEFAULT 1);
"""

import json
import signal
import sys
import time

import pika
import psycopg


def invoice(database, event):
    database.execute(
        "INSERT INTO invoices (order_id, customer_id, amount) VALUES (%(order_id)s, %(customer_id)s, %(amount)s)", event)


def first_time(database, event_id):
    deliveries, = database.execute(
        "INSERT INTO seen (event_id) VALUES (%s) ON CONFLICT (event_id) DO UPDATE SET deliveries = seen.deliveries + 1"
        " RETURNING deliveries", [event_id]).fetchone()
    return deliveries == 1


def take(database, channel, method, properties, body):
    with database.transaction():
        if first_time(database, properties.message_id):
            invoice(database, json.loads(body))
    channel.basic_ack(method.delivery_tag)


def consume(url, database):
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.exchange_declare("events", "topic", durable=True)
    channel.queue_declare("billing", durable=True)
    channel.queue_bind("billing", "events", "order.*")
    channel.basic_qos(prefetch_count=100)
    channel.basic_consume("billing", lambda *message: take(database, *message))
    print("consuming", flush=True)
    channel.start_consuming()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    url, connection_string = sys.argv[1:]
    with psycopg.connect(connection_string, autocommit=True) as database:
        while True:
            try:
                consume(url, database)
            except pika.exceptions.AMQPError as error:
                print(f"RabbitMQ is away: {error!r}", flush=True)
                time.sleep(0.5)


main()
