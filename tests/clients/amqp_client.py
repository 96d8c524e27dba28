"""Speaks to RabbitMQ with pika: `send` publishes what stdin says, `read` prints what arrives. Lines of JSON, see lines.py."""

import sys
import time

import pika
from lines import arguments, requests, show


def open_channel(url):
    link = pika.BlockingConnection(pika.URLParameters(url))
    return link, link.channel()


def send(url):
    link, channel = open_channel(url)
    channel.confirm_delivery()
    for request in requests():
        exchange, _, key = request["to"].rpartition("/")
        properties = pika.BasicProperties(headers=dict(request["headers"]) or None, **request["properties"])
        # With confirms on, pika raises where the message is returned or refused.
        channel.basic_publish(exchange, key, request["body"] or b"", properties, mandatory=True)
    link.close()


def read(url, queue, count, seconds):
    link, channel = open_channel(url)
    end = time.monotonic() + seconds
    for method, properties, body in channel.consume(queue, inactivity_timeout=1.0):
        if method is None:
            if time.monotonic() > end:
                sys.exit(f"{count} messages did not arrive")
            continue
        set_ones = {name: value for name, value in vars(properties).items() if value is not None and name != "headers"}
        show(f"{method.exchange}/{method.routing_key}", (properties.headers or {}).items(), body, None, set_ones)
        channel.basic_ack(method.delivery_tag)
        count -= 1
        if count == 0:
            break
    channel.cancel()
    link.close()


if __name__ == "__main__":
    command, rest = arguments()
    (send if command == "send" else read)(*rest)
