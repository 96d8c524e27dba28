"""Speaks to NATS JetStream with nats-py: `send` publishes what stdin says, `read` prints what arrives. Lines of JSON, see lines.py."""

import asyncio

import nats
from lines import arguments, requests, show


async def send(url):
    link = await nats.connect(url)
    stream = link.jetstream(publish_async_max_pending=1000)
    for request in requests():
        # nats-py has one value a name; what has more is not for this client.
        headers = {name: str(value) for name, value in request["headers"]} or None
        await stream.publish(request["to"], request["body"] or b"", headers=headers)
    await link.close()


async def read(url, subject, count, seconds):
    link = await nats.connect(url)
    try:
        await asyncio.wait_for(read_all(link, subject, count), seconds)
    finally:
        await link.close()


async def read_all(link, subject, count):
    messages = await link.jetstream().pull_subscribe(subject, durable="client")
    while count > 0:
        try:
            batch = await messages.fetch(min(count, 500), timeout=1)
        except nats.errors.TimeoutError:
            continue
        for message in batch:
            show(message.subject, list((message.headers or {}).items()), message.data)
            await message.ack()
        count -= len(batch)


if __name__ == "__main__":
    command, rest = arguments()
    asyncio.run(send(*rest) if command == "send" else read(*rest))
