"""Verifies webhooks with the library of Standard Webhooks. A line of stdin is a request, as JSON: `headers`, `body` (base64), `secret`; its line of stdout
is `ok`, or `bad: ` and why."""

import base64
import json
import sys

from standardwebhooks.webhooks import Webhook


def verdict(request):
    try:
        Webhook(request["secret"]).verify(base64.b64decode(request["body"]), request["headers"], json_parse=False)
    except Exception as error:
        return f"bad: {type(error).__name__}: {error}"
    return "ok"


for line in sys.stdin:
    print(verdict(json.loads(line)), flush=True)
