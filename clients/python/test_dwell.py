"""dwell.py over the vectors, and its queue against a server that answers as Dwell does."""

import base64
import email.message
import functools
import json
import pathlib
import threading
import unittest
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dwell

VECTORS = json.loads((pathlib.Path(__file__).parent.parent / "vectors/requests.json").read_text(encoding="utf-8"))


def asked(options):
    """The headers of a request with these options; `for` is a word of Python's own."""
    return dwell.request(**{"for_" if name == "for" else name: value for name, value in options.items()})


class Vectors(unittest.TestCase):
    def each(self, kind):
        self.assertTrue(VECTORS[kind])
        for vector in VECTORS[kind]:
            with self.subTest(vector.get("name", vector)):
                yield vector

    def test_options_become_headers(self):
        for vector in self.each("requests"):
            self.assertEqual(asked(vector["options"]), vector["headers"])

    def test_what_dwell_would_reject_is_refused(self):
        for vector in self.each("refused"):
            with self.assertRaises(ValueError):
                asked(vector["options"])

    def test_headers_of_a_delivery_are_read(self):
        for vector in self.each("deliveries"):
            wanted = dwell.Delivery(**vector["fields"])
            self.assertEqual(dwell.delivery(vector["headers"]), wanted)
            # As clients of Kafka give them.
            pairs = [(name, str(value).encode()) for name, value in vector["headers"].items()]
            self.assertEqual(dwell.delivery(pairs), wanted)

    def test_verdicts_are_read(self):
        for vector in self.each("verdicts"):
            self.assertEqual(dwell.verdict(vector["body"].encode()), dwell.Verdict(**vector["fields"]))

    def test_signatures_are_checked(self):
        for vector in self.each("signatures"):
            headers = {
                "Webhook-Id": vector["id"],
                "webhook-timestamp": vector["timestamp"],
                "webhook-signature": vector["signature"],
            }
            given = (vector["secrets"], headers, base64.b64decode(vector["body_base64"]))
            if vector["valid"]:
                dwell.verify(*given, now=vector["now"])
            else:
                self.assertRaises(dwell.SignatureError, dwell.verify, *given, now=vector["now"])


class Values(unittest.TestCase):
    def test_durations_are_rounded_up(self):
        for span, text in [(timedelta(minutes=30), "1800000ms"), (timedelta(microseconds=1), "1ms"), (timedelta(0), "0ms")]:
            self.assertEqual(dwell.request(for_=span)["delay-for"], text)
        with self.assertRaisesRegex(ValueError, "negative"):
            dwell.request(for_=timedelta(seconds=-1))
        # Without its unit this is a time in 1973.
        headers = dwell.request(for_=1, expire=timedelta(days=1200), retry=[timedelta(seconds=1), 5])
        self.assertEqual((headers["delay-expire"], headers["delay-retry"]), ("103680000000ms", "1000ms,5"))

    def test_a_span_is_no_time(self):
        for options in [{"until": timedelta(1)}, {"start": timedelta(1)}, {"end": timedelta(1)}]:
            rest = {} if "until" in options else {"schedule": "@daily", "id": "a"}
            with self.assertRaisesRegex(ValueError, "is a time: give a datetime, or use for_"):
                dwell.request(**options, **rest)

    def test_datetimes_are_written_with_their_offset(self):
        time = datetime(2026, 2, 1, 12, 0, 0, 1, timezone(timedelta(hours=1)))
        self.assertEqual(dwell.request(until=time)["delay-until"], "2026-02-01T11:00:00.001Z")
        local = datetime(2026, 2, 1, 12)
        headers = dwell.request(until=local, time_zone="Europe/Berlin")
        self.assertEqual(headers["delay-until"], "2026-02-01T12:00:00.000")
        with self.assertRaisesRegex(ValueError, "without a zone"):
            dwell.request(until=local)

    def test_wrong_options_are_refused(self):
        for options in [{"fro": "1s"}, {"ttr": True}, {"ttr": 1.5}, {"target": b"x"}, {"retry": 5.0}]:
            with self.assertRaises((ValueError, TypeError), msg=options):
                dwell.request(for_="1s", **options)

    def test_a_changed_header_is_refused(self):
        with self.assertRaisesRegex(ValueError, "delayed-attempt"):
            dwell.delivery({"delayed-attempt": "one"})
        with self.assertRaisesRegex(ValueError, "no verdict"):
            dwell.verdict(b"{}")

    def test_headers_of_a_message_are_read(self):
        message = email.message.Message()
        message["Delayed-Id"] = "order-17"
        message["Delayed-Attempt"] = "2"
        self.assertEqual(dwell.delivery(message), dwell.Delivery(id="order-17", attempt=2))
        self.assertEqual(dwell.delivery(None), dwell.Delivery())

    def test_forged_headers_are_not_trusted(self):
        good = {"webhook-id": "a", "webhook-timestamp": "5", "webhook-signature": "v1,x"}
        for name, value in [
            ("webhook-timestamp", "9" * 400),
            ("webhook-timestamp", "9" * 5000),
            ("webhook-timestamp", "٥"),
            ("webhook-timestamp", "²"),
            ("webhook-id", "\udcff"),
            ("webhook-signature", "\udcff"),
        ]:
            with self.subTest(name=name, value=value[:9]), self.assertRaises(dwell.SignatureError):
                dwell.verify("whsec_c2VjcmV0", {**good, name: value}, b"", now=5)

    def test_an_empty_secret_is_refused(self):
        for secrets in ["", "\n", "whsec_"]:
            with self.assertRaises(ValueError):
                dwell.verify(secrets, {}, b"")


JOB = {"id": "a", "queue": "emails", "lease": "L1", "attempt": 1, "due_ms": 5, "deadline_ms": 9}
JOB["headers"] = {"delayed-occurrence": 7}


class Calls(unittest.TestCase):
    """`answers`: status, headers and body of each answer in turn. `calls`: path, token and body of each call."""

    def setUp(self):
        self.answers, self.calls = [], []
        test = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                test.calls.append((self.path, self.headers["authorization"], body))
                status, headers, answer = test.answers.pop(0)
                text = json.dumps(answer).encode()
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        self.queue = dwell.Queue("emails,low", f"http://127.0.0.1:{server.server_port}/", token="t")

    def answer(self, body, status=200, **headers):
        self.answers.append((status, {name.replace("_", "-"): value for name, value in headers.items()}, body))

    def test_pop_and_words(self):
        self.answer({"jobs": [{**JOB, "body": "ü"}, {**JOB, "id": "b", "body_base64": "AP8="}]})
        one, other = self.queue.pop(2, wait=timedelta(seconds=30), ttr="1m")
        self.assertEqual((one.id, one.body, other.body, one.attempt), ("a", "ü".encode(), b"\x00\xff", 1))
        self.assertEqual(dwell.delivery(one.headers).occurrence, 7)
        done = {"id": "a", "action": "finish", "verdict": "finished", "due_ms": None}
        self.answer({"results": [done, {"id": "b", "action": "finish", "verdict": "stale"}]})
        self.assertEqual([result.verdict for result in self.queue.finish(one, other)], ["finished", "stale"])
        for call in (
            lambda: self.queue.fail(one, error="no", for_=5),
            lambda: self.queue.release(one),
            lambda: self.queue.touch(one, ttr="2m"),
        ):
            self.answer({"results": [{"id": "a", "action": "x", "verdict": "touched", "deadline_ms": 12}]})
            self.assertEqual(call().deadline_ms, 12)
        word = {"id": "a", "lease": "L1"}
        self.assertEqual(
            self.calls,
            [
                ("/v1/queues/emails,low/pop", "Bearer t", {"max": 2, "wait": "30000ms", "ttr": "1m"}),
                ("/v1/leases", "Bearer t", {"finish": [word, {"id": "b", "lease": "L1"}]}),
                ("/v1/leases", "Bearer t", {"fail": [{**word, "error": "no", "for": "5"}]}),
                ("/v1/leases", "Bearer t", {"release": [word]}),
                ("/v1/leases", "Bearer t", {"touch": [{**word, "ttr": "2m"}]}),
            ],
        )

    def test_a_problem_says_what_dwell_says(self):
        self.answer({"status": 404, "code": "unknown_queue", "detail": "declare it"}, 404)
        with self.assertRaisesRegex(dwell.Problem, "404 unknown_queue: declare it") as raised:
            self.queue.pop()
        self.assertEqual((raised.exception.status, raised.exception.code), (404, "unknown_queue"))

    def test_what_is_not_dwells_is_a_problem(self):
        job = dwell.Job("a", "emails", "L1", 1, 5, 9, b"", {})
        for body in [{}, None, [], {"ok": True}, "no", {"jobs": None}, {"results": None}]:
            for call in (self.queue.pop, lambda: self.queue.finish(job)):
                self.answer(body)
                with self.subTest(body=body), self.assertRaisesRegex(dwell.Problem, "200: .*not Dwell's") as raised:
                    call()
                self.assertEqual(raised.exception.status, 200)

    def test_the_loop_repeats_what_a_proxy_answers(self):
        stop = threading.Event()
        for body in [None, "Bad Gateway", []]:
            self.answer(body, 502, retry_after="0")
        self.answer({"jobs": [{**JOB, "body": ""}]})
        self.answer({"results": [{"id": "a", "action": "finish", "verdict": "finished"}]})
        self.queue.work(lambda job: stop.set(), stop=stop)
        self.assertEqual(len(self.calls), 5)

    def test_an_async_handler_is_refused(self):
        async def handler(*_):
            pass

        for refused in (handler, functools.partial(handler, 1)):
            with self.assertRaisesRegex(TypeError, "async"):
                self.queue.work(refused)
        self.assertEqual(self.calls, [])
        self.answer({"jobs": [{**JOB, "body": ""}]})
        with self.assertRaisesRegex(TypeError, "async"):
            self.queue.work(lambda job: handler(job))
        self.assertEqual(len(self.calls), 1)

    def test_mistakes_of_the_caller_end_the_loop(self):
        for options in [{"token": "a\nb"}, {"url": "http://127.0.0.1:7464/a b"}]:
            with self.assertRaises((ValueError, dwell.http.client.InvalidURL), msg=options):
                dwell.Queue("emails", **options).work(lambda job: None)

    def test_the_loop_finishes_fails_and_waits_for_dwell(self):
        done = {"results": [{"id": "a", "action": "finish", "verdict": "finished"}]}
        stop, seen = threading.Event(), []

        def handler(job):
            seen.append(job.id)
            if job.id == "b":
                raise KeyError("no stamp")
            if job.id == "c":
                stop.set()

        self.answer({"jobs": [{**JOB, "body": ""}]})
        self.answer({"code": "redis", "detail": "away"}, 503, retry_after="0")
        self.answer(done)
        self.answer({"jobs": []})
        self.answer({"jobs": [{**JOB, "id": "b", "body": ""}]})
        self.answer(done)
        self.answer({"jobs": [{**JOB, "id": "c", "body": ""}]})
        self.answer(done)
        self.queue.work(handler, stop=stop)
        self.assertEqual(seen, ["a", "b", "c"])
        words = [body for path, _, body in self.calls if path == "/v1/leases"]
        self.assertEqual([next(iter(word)) for word in words], ["finish", "finish", "fail", "finish"])
        self.assertEqual(words[2]["fail"][0]["error"], "KeyError: 'no stamp'")

    def test_the_loop_ends_with_what_is_refused_for_good(self):
        self.answer({"code": "forbidden", "detail": "the token may not"}, 403)
        with self.assertRaises(dwell.Problem):
            self.queue.work(lambda job: None)


if __name__ == "__main__":
    unittest.main()
