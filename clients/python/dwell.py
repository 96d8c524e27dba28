"""Requests, deliveries, webhooks and queues of Dwell: one file, the standard library alone (Python 3.10 or later).

A request to Dwell is a message with `delay-*` headers: `request` builds them. What Dwell publishes has
`delayed-*` headers: `delivery` reads them. `verify` checks the signature of a webhook. `Queue` fetches jobs
over HTTP. Every name and form is that of docs/reference/headers.md and docs/reference/queues.md.
"""

import base64
import hashlib
import hmac
import http.client
import inspect
import json
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

Duration = str | int | timedelta
"""Text (`"1h30m"`, `"PT15M"`), milliseconds, or a timedelta, which is rounded up.

A bare number for `expire` is a time from 10**11 on: give a timedelta, or text with a unit.
"""
Moment = str | int | datetime
"""RFC 3339 text, epoch milliseconds, or a datetime; one without a zone needs `time_zone` beside it."""

# ---- Requests ----

_RECURRING = ("start", "end", "count", "catch_up", "overlap")
_SEEN = ("due_ms", "attempt")
_NAMES = (
    *("action", "id", "for", "until", "time_zone", "schedule", *_RECURRING, "spread"),
    *("target", "exchange", "broker", "queue", "ttr", "confirm", "retry", "late", "max_late"),
    *("expire", "on_conflict", "max_wait", "reply_to", *_SEEN),
)
_OF_ACTION = {"cancel": (), "reschedule": ("for", "until", "time_zone"), "fire": (), "finish": _SEEN, "fail": _SEEN}


def request(**options: str | int | timedelta | datetime | Iterable[Duration] | None) -> dict[str, str]:
    """The headers of a request. Each option is the header of its name: `max_late` is `delay-max-late`.

    Exactly one of `for_` (a Duration), `until` (a Moment) and `schedule` says when, `target` or `queue` where.
    `retry` is a list of waits, an empty one for a single attempt. An option that is None is left out. `action`
    (`cancel`, `reschedule`, `fire`, `finish`, `fail`) acts on the job `id`; a `finish` or `fail` should have
    `due_ms` and `attempt` of its delivery. ValueError: Dwell would reject the request, or accept it only by the
    settings of an ingest. For `missing_delay: immediate` write `for_=0`, for `id_from: key` the key as the `id`;
    leave out of an action what it does not use.
    """
    given = {name.rstrip("_"): value for name, value in options.items() if value is not None}
    for name in given:
        if name not in _NAMES:
            raise ValueError(f"{name} is no option of a request; those are {', '.join(_NAMES)}")
    _check(given)
    headers = {}
    for name, value in given.items():
        header = {"due_ms": "delayed-due", "attempt": "delayed-attempt"}.get(name, "delay-" + name.replace("_", "-"))
        headers[header] = _text(name, value, "time_zone" in given)
    if "id" in given and not 1 <= len(headers["delay-id"].encode()) <= 256:
        raise ValueError("id has 1 to 256 bytes of UTF-8: choose another one")
    return headers


def _check(given: Mapping[str, Any]) -> None:
    """Refuses what cannot stand together."""
    action = given.get("action", "schedule")
    times = [name for name in ("for", "until", "schedule") if name in given]
    if action == "schedule":
        if len(times) != 1:
            has = " and ".join(times) or "none"
            raise ValueError(f"a request has one of for, until and schedule, and this one has {has}")
        stray = [name for name in _RECURRING if name in given and "schedule" not in given]
        stray += [name for name in _SEEN if name in given]
        if "queue" in given:
            stray += [name for name in ("target", "exchange", "broker") if name in given]
        if "schedule" in given and ("max_wait" in given or given.get("on_conflict") == "debounce"):
            raise ValueError("a recurring schedule does not debounce: leave max_wait and on_conflict debounce out")
        if ("max_wait" in given) != (given.get("on_conflict") == "debounce"):
            raise ValueError("on_conflict debounce and max_wait need each other: send both, or neither")
        needs_id = "schedule" in given or "max_wait" in given
    elif action not in _OF_ACTION:
        raise ValueError(f"{action!r} is no action; those are schedule, {', '.join(_OF_ACTION)}")
    else:
        allowed = ("action", "id", "reply_to", *_OF_ACTION[action])
        stray = [name for name in given if name not in allowed]
        if action == "reschedule" and len(times) != 1:
            raise ValueError("a reschedule has one of for and until")
        needs_id = True
    if "time_zone" in given and not stray and not given.keys() & {"until", "expire", "schedule"}:
        raise ValueError("time_zone is for until, expire or a schedule: leave it out")
    if stray:
        beside = action if action != "schedule" else "queue" if "queue" in given else "a request without schedule"
        raise ValueError(f"{', '.join(stray)}: not for {beside}: leave it out")
    if needs_id and "id" not in given:
        raise ValueError("this request needs an id, by which Dwell finds the job")


def _text(name: str, value: Any, has_zone: bool) -> str:
    """A value as the text of its header."""
    is_span = isinstance(value, timedelta)
    if is_span:
        if name in ("until", "start", "end"):
            raise ValueError(f"{name} is a time: give a datetime, or use for_")
        value = -(value // timedelta(milliseconds=-1))  # rounded up, so that no delay ends early
    elif isinstance(value, datetime):
        return _moment(name, value, has_zone)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        if name != "retry" or isinstance(value, bool):
            raise ValueError(f"{name} is {type(value).__name__}: write text, a number, a timedelta or a datetime")
        return ",".join(_text("a wait of retry", wait, False) for wait in value) or "none"
    if isinstance(value, int) and value < 0:
        raise ValueError(f"{name} is negative: write 0 for now")
    # With the unit, since a long expiry without one would be a time.
    text = f"{value}ms" if is_span else str(value)
    if any(ord(one) < 32 or 127 <= ord(one) < 160 for one in text):
        raise ValueError(f"{name} has a control character: leave it out")
    return text


def _moment(name: str, value: datetime, has_zone: bool) -> str:
    """A datetime as RFC 3339, rounded up to milliseconds: in UTC, or without offset on the clock of `time_zone`."""
    value += timedelta(microseconds=-value.microsecond % 1000)
    if value.tzinfo is not None:
        return value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    if not has_zone:
        raise ValueError(f"{name} is a datetime without a zone: give it a tzinfo, or name its zone by time_zone")
    return value.isoformat(timespec="milliseconds")


# ---- What Dwell publishes ----


@dataclass(frozen=True)
class Delivery:
    """What the `delayed-*` headers say; None where a header is missing."""

    id: str | None = None  # over HTTP percent-encoded beyond ASCII, as it came
    attempt: int | None = None  # from 1
    due_ms: int | None = None  # epoch ms, the same over the retries
    round: int | None = None  # how often the message came back as a new request
    schedule: str | None = None  # of an occurrence: the id of its schedule
    occurrence: int | None = None  # its number, from 1
    next_ms: int | None = None  # the nominal time of the next one, epoch ms
    dead_reason: str | None = None  # of a dead letter
    last_error: str | None = None
    error: str | None = None  # of a rejected request: the code
    error_detail: str | None = None


def delivery(headers: Mapping[str, Any] | Iterable[tuple[str, Any]] | None) -> Delivery:
    """Reads the headers of a delivery, a dead letter or a rejected request: a mapping, or pairs as of Kafka.

    Values are text, bytes or integers. ValueError: a header holds what Dwell does not set.
    """
    # Not by Mapping: email.message.Message, as http.server has it, is none.
    pairs = headers.items() if hasattr(headers, "items") else headers or ()
    found = {}
    for name, value in pairs:
        key = name.lower().removeprefix("delayed-").replace("-", "_")
        key = {"due": "due_ms", "next": "next_ms"}.get(key, key)
        if name.lower().startswith("delayed-") and key in Delivery.__dataclass_fields__:
            text = value.decode() if isinstance(value, bytes) else str(value)
            if "int" in str(Delivery.__dataclass_fields__[key].type):
                if not (text.isascii() and text.isdigit()):
                    raise ValueError(f"{name} is {text!r}, and Dwell sets a number: was the header changed on its way?")
                found[key] = int(text)
            else:
                found[key] = text
    return Delivery(**found)


@dataclass(frozen=True)
class Verdict:
    """The answer to a request, by `reply_to` or over HTTP."""

    id: str
    action: str
    verdict: str  # added, cancelled, not_found, …: docs/reference/http.md
    due_ms: int | None


def verdict(body: str | bytes) -> Verdict:
    """Reads the body of a verdict."""
    try:
        read = json.loads(body)
        return Verdict(read["id"], read["action"], read["verdict"], read.get("due_ms"))
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError('no verdict: its body is JSON with "id", "action" and "verdict"') from error


# ---- Webhooks ----


class SignatureError(Exception):
    """A webhook that is not to be trusted. The text says why."""


def verify(
    secrets: str, headers: Mapping[str, str], body: bytes, *, now: float | None = None, tolerance: float = 300
) -> None:
    """Checks the signature of a webhook (Standard Webhooks), or raises SignatureError.

    `secrets` is the text of Dwell's `secret_file`: one or two secrets, in lines. `body`: the bytes as they
    came. `now` and `tolerance` are in seconds; `now` is by default that of this machine's clock.
    """
    keys = []
    for secret in secrets.split():
        bare = secret.removeprefix("whsec_").rstrip("=")
        keys.append(base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True))
    if not keys or not all(keys):
        raise ValueError("no secret, or an empty one: anybody could sign with it")
    given = {name.lower(): str(value) for name, value in headers.items()}
    id, sent = given.get("webhook-id", ""), given.get("webhook-timestamp", "")
    if not (sent.isascii() and sent.isdigit() and len(sent) <= 15):
        raise SignatureError("webhook-timestamp is missing or no number")
    if abs((time.time() if now is None else now) - int(sent)) > tolerance:
        raise SignatureError(f"webhook-timestamp is more than {tolerance:g} s off: an old request, or a wrong clock")
    signed = f"{id}.{sent}.".encode(errors="replace") + body
    expected = [b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)) for key in keys]
    signatures = given.get("webhook-signature", "").encode(errors="replace").split()
    if not any([hmac.compare_digest(one, other) for one in expected for other in signatures]):
        raise SignatureError("no signature of webhook-signature is by one of the secrets")


# ---- Queues ----


class Problem(Exception):
    """Dwell refused a call. `status` is that of HTTP, `code` the word for it, if any."""

    def __init__(self, status: int, code: str | None, detail: str, retry_after: float | None = None):
        super().__init__(f"Dwell answered {status}{f' {code}' if code else ''}: {detail}")
        self.status, self.code, self.detail, self.retry_after = status, code, detail, retry_after


@dataclass(frozen=True)
class Job:
    """A job that this consumer has until `deadline_ms`, by its lease."""

    id: str
    queue: str
    lease: str
    attempt: int  # counts hand-outs, from 1
    due_ms: int
    deadline_ms: int
    body: bytes = field(repr=False)
    headers: Mapping[str, Any] = field(repr=False)  # as JSON holds them; `delivery` reads those of a schedule


@dataclass(frozen=True)
class Result:
    """The answer to an acknowledgement.

    `verdict`: `finished`, `failed`, `dead`, `released` or `touched`; or nothing changed: `stale`, `fired`, `not_found`.
    """

    id: str
    action: str
    verdict: str
    due_ms: int | None = None
    deadline_ms: int | None = None


class Queue:
    """Fetches jobs of a queue, or of several (`"high,low"`), over HTTP. Threads may share it.

    Durations are text (`"30s"`) or milliseconds, or a timedelta. Calls raise Problem where Dwell refuses,
    and OSError or http.client.HTTPException where it does not answer.
    """

    def __init__(self, queue: str, url: str = "http://127.0.0.1:7464", *, token: str | None = None):
        self.queue, self._token, self._url = queue, token, urllib.parse.urlsplit(url)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ValueError(f"{url!r} is no URL of Dwell: write http://127.0.0.1:7464")

    def pop(self, max: int = 1, *, wait: Duration | None = None, ttr: Duration | None = None) -> list[Job]:
        """Due jobs, at most `max`. `wait` (to 60s) holds the call until one is due; after it the list is empty."""
        path = f"/v1/queues/{urllib.parse.quote(self.queue, safe=',')}/pop"
        return [_job(job) for job in self._call(path, {"max": max, **_words(wait=wait, ttr=ttr)}, "jobs")]

    def finish(self, *jobs: Job) -> list[Result]:
        """These jobs are done, at most 1000."""
        return self._leases("finish", jobs)

    def fail(self, job: Job, *, error: str | None = None, for_: Duration | None = None) -> Result:
        """This attempt failed: the next wait of the retry array begins, or `for_` instead; at its end the job dies."""
        return self._leases("fail", [job], error=error, for_=for_)[0]

    def release(self, job: Job, *, for_: Duration | None = None) -> Result:
        """Gives the job back, for others or after `for_`; its retries are not used up."""
        return self._leases("release", [job], for_=for_)[0]

    def touch(self, job: Job, *, ttr: Duration | None = None) -> Result:
        """Prolongs the lease: to `ttr` from now, by default as long as it was given."""
        return self._leases("touch", [job], ttr=ttr)[0]

    def work(
        self,
        handler: Callable[[Job], Any],
        *,
        wait: Duration = "30s",
        ttr: Duration | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """Fetches one job after the other until `stop` is set, and calls `handler` with each.

        The job is finished when `handler` returns, and failed, with the text of the exception, when it
        raises. While Dwell is away the loop waits and tries again; what Dwell refuses for good is raised.
        A job may come twice: make the handler repeatable. For more jobs at a time run more threads. TypeError:
        the handler is `async`, and its job would be finished undone.
        """
        undone = "the handler of work is async, and nothing awaits it: give asyncio.run(…) in a plain function"
        if inspect.iscoroutinefunction(handler):
            raise TypeError(undone)
        stop = stop or threading.Event()
        while not stop.is_set():
            for job in self._until_answered(lambda: self.pop(wait=wait, ttr=ttr), stop) or []:
                try:
                    answer = handler(job)
                except Exception as error:
                    text = f"{type(error).__name__}: {error}"[:1000].encode(errors="replace").decode()
                    self._until_answered(lambda job=job, text=text: self.fail(job, error=text), stop)
                else:
                    if inspect.iscoroutine(answer):
                        answer.close()
                        raise TypeError(undone)
                    self._until_answered(lambda job=job: self.finish(job), stop)

    def _until_answered(self, call: Callable[[], Any], stop: threading.Event) -> Any:
        """Repeats a call while Dwell is away; None once `stop` is set. Acknowledgements may be sent again."""
        while True:
            try:
                return call()
            except http.client.InvalidURL:
                raise
            except (OSError, http.client.HTTPException):
                pause = 1.0
            except Problem as problem:
                if problem.status not in (408, 429) and problem.status < 500:
                    raise
                pause = 1.0 if problem.retry_after is None else problem.retry_after
            if stop.wait(pause):
                return None

    def _leases(self, action: str, jobs: Iterable[Job], **more: Any) -> list[Result]:
        words = [{"id": job.id, "lease": job.lease, **_words(**more)} for job in jobs]
        results = self._call("/v1/leases", {action: words}, "results")
        return [Result(**{name: one.get(name) for name in Result.__dataclass_fields__}) for one in results]

    def _call(self, path: str, body: Mapping[str, Any], wanted: str) -> list[Any]:
        """The list `wanted` of the answer."""
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        # Longer than the longest wait, and than Dwell takes for an answer.
        connection = kind(self._url.hostname, self._url.port, timeout=95)
        headers = {"content-type": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        try:
            connection.request("POST", self._url.path.rstrip("/") + path, json.dumps(body).encode(), headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {}
        answer = answer if isinstance(answer, dict) else {}
        if response.status == 200 and isinstance(answer.get(wanted), list):
            return answer[wanted]
        after = response.headers.get("retry-after", "")
        detail = answer.get("detail") or "the answer is not Dwell's: is the URL right?"
        raise Problem(response.status, answer.get("code"), detail, float(after) if after.isdecimal() else None)


def _words(**options: Any) -> dict[str, str]:
    """Options of a call, without those that are None. Numbers are text too: milliseconds."""
    given = {name.rstrip("_"): value for name, value in options.items() if value is not None}
    return {name: value if name == "error" else _text(name, value, False) for name, value in given.items()}


def _job(read: Mapping[str, Any]) -> Job:
    text = read.get("body")
    body = base64.b64decode(read["body_base64"]) if text is None else text.encode()
    rest = {name: read[name] for name in ("id", "queue", "lease", "attempt", "due_ms", "deadline_ms", "headers")}
    return Job(body=body, **rest)
