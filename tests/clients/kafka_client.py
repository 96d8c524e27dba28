"""Speaks to Kafka with confluent-kafka: `send` publishes what stdin says, `read` prints what arrives. Lines of JSON, see lines.py."""

import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer
from lines import arguments, as_bytes, requests, show


def send(bootstrap):
    failed = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})

    def delivered(error, _message):
        if error is not None:
            failed.append(error)

    for request in requests():
        headers = [(name, as_bytes(value)) for name, value in request["headers"]]
        while True:
            try:
                producer.produce(request["to"], value=request["body"], key=request["key"], headers=headers, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(30) or failed:
        sys.exit(f"not sent: {failed[:3]}")


def read(bootstrap, topic, count, seconds):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"client-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    end = time.monotonic() + seconds
    while count > 0:
        if time.monotonic() > end:
            sys.exit(f"{count} messages did not arrive")
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            # A topic that is not there yet.
            if not message.error().retriable() and message.error().name() != "UNKNOWN_TOPIC_OR_PART":
                raise KafkaException(message.error())
            continue
        show(message.topic(), message.headers() or [], message.value(), message.key())
        count -= 1
    consumer.close()


if __name__ == "__main__":
    command, rest = arguments()
    (send if command == "send" else read)(*rest)
