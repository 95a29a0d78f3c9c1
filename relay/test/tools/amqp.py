#!/usr/bin/python3
"""Calls methods of a channel of pika, one after the other, and prints an answer each.

Standard input: {"url": ..., "calls": [[METHOD, {ARGUMENT: VALUE}], ...]}. Beside pika's own there are

    publish   waits for the confirmation
    get_all   prints each message that is ready in a queue; "keep" puts them back in the end
"""

import datetime
import json
import sys

import pika


def plain(value):
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=datetime.timezone.utc).timestamp()
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def show(value):
    print(json.dumps(plain(value)), flush=True)


def publish(channel, exchange, routing_key, body, properties):
    channel.confirm_delivery()
    channel.basic_publish(exchange, routing_key, body.encode(), pika.BasicProperties(**{"delivery_mode": 2, **properties}), mandatory=True)
    show({"published": True})


def get_all(channel, queue, keep):
    tag = None
    while True:
        method, properties, body = channel.basic_get(queue)
        if method is None:
            break
        tag = method.delivery_tag
        show({
            "body": body, "hex": body.hex(), "exchange": method.exchange, "routing_key": method.routing_key, "redelivered": method.redelivered,
            "properties": {name: value for name, value in vars(properties).items() if value is not None},
        })
    if tag is not None and not keep:
        channel.basic_ack(tag, multiple=True)


def main():
    request = json.load(sys.stdin)
    connection = pika.BlockingConnection(pika.URLParameters(request["url"]))
    channel = connection.channel()
    for name, arguments in request["calls"]:
        if name == "publish":
            publish(channel, **arguments)
        elif name == "get_all":
            get_all(channel, **arguments)
        else:
            show(vars(getattr(channel, name)(**arguments).method))
    connection.close()


main()
