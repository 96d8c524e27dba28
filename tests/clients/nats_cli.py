"""What the pages of docs/ ask of the command line tool `nats`: `stream add`, `stream get --last-for`, `pub -J`. NATS_URL names the server."""

import argparse
import asyncio
import os

import nats


def arguments():
    parser = argparse.ArgumentParser(prog="nats")
    commands = parser.add_subparsers(dest="command", required=True)
    stream = commands.add_parser("stream").add_subparsers(dest="what", required=True)
    add = stream.add_parser("add")
    add.add_argument("name")
    add.add_argument("--subjects", required=True)
    add.add_argument("--defaults", action="store_true", required=True)
    get = stream.add_parser("get")
    get.add_argument("name")
    get.add_argument("--last-for", required=True)
    pub = commands.add_parser("pub")
    pub.add_argument("subject")
    pub.add_argument("body")
    pub.add_argument("-J", action="store_true", required=True)
    pub.add_argument("-H", action="append", default=[], dest="headers")
    return parser.parse_args()


async def main(given):
    link = await nats.connect(os.environ["NATS_URL"])
    jetstream = link.jetstream()
    if given.command == "pub":
        headers = dict(header.split(":", 1) for header in given.headers)
        print(await jetstream.publish(given.subject, given.body.encode(), headers=headers or None))
    elif given.what == "add":
        print(await jetstream.add_stream(name=given.name, subjects=given.subjects.split(",")))
    else:
        message = await jetstream.get_last_msg(given.name, given.last_for)
        print(message.headers, message.data.decode())
    await link.close()


asyncio.run(main(arguments()))
