"""What the clients share: a message is a line of JSON, with `to`, `headers` (pairs), `body_base64` (null: none), `key_base64`, `properties`.

    CLIENT.py send URL                      publishes each line of stdin, and ends once all are confirmed
    CLIENT.py read URL FROM COUNT SECONDS   prints COUNT messages, and fails where they do not arrive in time
"""

import base64
import json
import sys


def arguments():
    command, *rest = sys.argv[1:]
    if command == "send":
        (url,) = rest
        return command, [url]
    if command == "read":
        url, source, count, seconds = rest
        return command, [url, source, int(count), float(seconds)]
    sys.exit(__doc__)


def requests():
    for line in sys.stdin:
        message = json.loads(line)
        yield {
            "to": message["to"],
            "headers": message.get("headers", []),
            "body": decoded(message.get("body_base64")),
            "key": decoded(message.get("key_base64")),
            "properties": message.get("properties", {}),
        }


def decoded(text):
    return None if text is None else base64.b64decode(text)


def as_bytes(value):
    return value if value is None or isinstance(value, bytes) else str(value).encode()


def encoded(data):
    return None if data is None else base64.b64encode(data).decode()


def show(source, headers, body, key=None, properties=None):
    pairs = [[name, value.decode(errors="replace") if isinstance(value, bytes) else value] for name, value in headers]
    line = {"from": source, "headers": pairs, "body_base64": encoded(body), "key_base64": encoded(key), "properties": properties or {}}
    print(json.dumps(line, default=str), flush=True)
