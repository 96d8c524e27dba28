// dwell.mjs over the vectors, and its queue against a server that answers as Dwell does.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import test from "node:test";

import { delivery, Problem, Queue, request, SignatureError, Unreachable, verdict, verify } from "./dwell.mjs";

const vectors = JSON.parse(readFileSync(new URL("../vectors/requests.json", import.meta.url), "utf8"));
const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
const named = (fields) => Object.fromEntries(Object.entries(fields).map(([name, value]) => [camel(name), value]));

/** A test of each vector of a kind. */
function each(kind, check) {
  test(kind, async (t) => {
    assert.ok(vectors[kind].length > 0);
    for (const vector of vectors[kind]) await t.test(vector.name ?? vector.body, () => check(vector));
  });
}

each("requests", ({ options, headers }) => assert.deepEqual(request(named(options)), headers));

each("refused", ({ options }) => assert.throws(() => request(named(options)), TypeError));

each("deliveries", ({ headers, fields }) => {
  assert.deepEqual(delivery(headers), named(fields));
  // As clients of Kafka and of NATS give them.
  const entries = Object.entries(headers);
  assert.deepEqual(delivery(entries.map(([name, value]) => [name, Buffer.from(String(value))])), named(fields));
  assert.deepEqual(delivery(new Map(entries.map(([name, value]) => [name, [String(value)]]))), named(fields));
});

each("verdicts", ({ body, fields }) => assert.deepEqual(verdict(Buffer.from(body)), named(fields)));

each("signatures", ({ secrets, id, timestamp, signature, body_base64, now, valid }) => {
  const headers = { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signature };
  const check = () => verify(secrets, headers, Buffer.from(body_base64, "base64"), { now });
  if (valid) check();
  else assert.throws(check, SignatureError);
});

test("numbers and dates are written as Dwell reads them", () => {
  assert.equal(request({ for: 0.25 })["delay-for"], "1");
  assert.equal(request({ until: new Date(1_769_860_800_250) })["delay-until"], "2026-01-31T12:00:00.250Z");
  assert.deepEqual(request({ for: 1, id: undefined, target: null }), { "delay-for": "1" });
});

test("wrong options are refused", () => {
  assert.throws(() => request({ until: new Date("soon") }), { name: "TypeError", message: /invalid Date/ });
  for (const options of [{ id: 1.5 }, { target: 0.5 }, { attempt: 1.5 }, { count: 2.5 }, { dueMs: 0.1 }]) {
    const rest = {};
    if (options.count) Object.assign(rest, { schedule: "@daily", id: "a" });
    else if (options.attempt || options.dueMs) Object.assign(rest, { action: "finish", id: "a" });
    else rest.for = 1;
    assert.throws(() => request({ ...rest, ...options }), /integer/, JSON.stringify(options));
  }
  assert.equal(request({ for: 1, retry: [0.5, 2] })["delay-retry"], "1,2");
  for (const options of [{ fro: 1 }, { ttr: true }, { ttr: NaN }, { ttr: Infinity }, { target: ["a"] }, { id: "" }]) {
    assert.throws(() => request({ for: 1, ...options }), TypeError, JSON.stringify(options));
  }
  assert.throws(() => request({ action: "toString", id: "a" }), TypeError);
});

test("a changed header and an empty secret are refused", () => {
  assert.throws(() => delivery({ "delayed-attempt": "one" }), /delayed-attempt/);
  assert.throws(() => verdict("{}"), /no verdict/);
  for (const secrets of ["", "\n", "whsec_"]) assert.throws(() => verify(secrets, {}, ""), TypeError);
});

/** A server with these answers in turn (status, body, headers), its queue, and what was called. */
async function served(t, answers) {
  const calls = [];
  const server = createServer(async (incoming, response) => {
    let body = "";
    for await (const part of incoming) body += part;
    calls.push([incoming.url, incoming.headers.authorization, JSON.parse(body)]);
    const [status, answer, headers = {}] = answers.shift();
    response.writeHead(status, headers).end(JSON.stringify(answer));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => (server.closeAllConnections(), server.close()));
  const url = `http://127.0.0.1:${server.address().port}/`;
  return { calls, server, queue: new Queue("emails,low", { url, token: "t" }) };
}

const JOB = { id: "a", queue: "emails", lease: "L1", attempt: 1, due_ms: 5, deadline_ms: 9 };
JOB.headers = { "delayed-occurrence": 7 };

test("pop and acknowledgements", async (t) => {
  const touched = { results: [{ id: "a", action: "x", verdict: "touched", deadline_ms: 12 }] };
  const finished = { id: "a", action: "finish", verdict: "finished", due_ms: null };
  const { calls, queue } = await served(t, [
    [200, { jobs: [{ ...JOB, body: "ü" }, { ...JOB, id: "b", body_base64: "AP8=" }] }],
    [200, { results: [finished, { id: "b", action: "finish", verdict: "stale" }] }],
    [200, touched],
    [200, touched],
    [200, touched],
  ]);
  const [one, other] = await queue.pop({ max: 2, wait: 30_000, ttr: "1m" });
  assert.deepEqual([one.id, one.body.toString(), [...other.body], one.dueMs], ["a", "ü", [0, 255], 5]);
  assert.equal(delivery(one.headers).occurrence, 7);
  assert.deepEqual((await queue.finish(one, other)).map((result) => result.verdict), ["finished", "stale"]);
  assert.equal((await queue.fail(one, { error: "no", for: 5 })).deadlineMs, 12);
  assert.equal((await queue.release(one)).dueMs, null);
  assert.equal((await queue.touch(one, { ttr: "2m" })).verdict, "touched");
  const word = { id: "a", lease: "L1" };
  assert.deepEqual(calls, [
    ["/v1/queues/emails,low/pop", "Bearer t", { max: 2, wait: "30000", ttr: "1m" }],
    ["/v1/leases", "Bearer t", { finish: [word, { id: "b", lease: "L1" }] }],
    ["/v1/leases", "Bearer t", { fail: [{ ...word, error: "no", for: "5" }] }],
    ["/v1/leases", "Bearer t", { release: [word] }],
    ["/v1/leases", "Bearer t", { touch: [{ ...word, ttr: "2m" }] }],
  ]);
});

test("a problem says what Dwell says", async (t) => {
  const { queue, server } = await served(t, [[404, { code: "unknown_queue", detail: "declare it" }]]);
  await assert.rejects(queue.pop(), (error) => {
    assert.ok(error instanceof Problem);
    assert.deepEqual([error.status, error.code], [404, "unknown_queue"]);
    return /404 unknown_queue: declare it/.test(error.message);
  });
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await assert.rejects(queue.pop(), Unreachable);
  assert.throws(() => new Queue("emails", { url: "ftp://127.0.0.1" }), /no URL of Dwell/);
});

test("what is not Dwell's is a problem", async (t) => {
  const bodies = [{}, null, [], { ok: true }, "no", { jobs: null }, { results: null }];
  const { queue } = await served(t, bodies.flatMap((body) => [[200, body], [200, body]]));
  const isProblem = (error) => error instanceof Problem && error.status === 200 && /not Dwell's/.test(error.message);
  for (const body of bodies) {
    await assert.rejects(queue.pop(), isProblem, JSON.stringify(body));
    await assert.rejects(queue.finish({ id: "a", lease: "L1" }), isProblem, JSON.stringify(body));
  }
});

test("the loop repeats what a proxy answers", async (t) => {
  const stop = new AbortController();
  const { calls, queue } = await served(t, [
    ...[null, "Bad Gateway", []].map((body) => [502, body, { "retry-after": "0" }]),
    [200, { jobs: [{ ...JOB, body: "" }] }],
    [200, { results: [{ id: "a", action: "finish", verdict: "finished" }] }],
  ]);
  await queue.work(() => stop.abort(), { signal: stop.signal });
  assert.equal(calls.length, 5);
});

test("mistakes of the caller end the loop", async () => {
  for (const options of [{ token: "a\nb" }, { url: "http://user:word@127.0.0.1:7464" }]) {
    await assert.rejects(new Queue("emails", options).work(() => {}), TypeError, JSON.stringify(options));
  }
});

test("the loop finishes, fails and waits for Dwell", async (t) => {
  const done = [200, { results: [{ id: "a", action: "finish", verdict: "finished" }] }];
  const { calls, queue } = await served(t, [
    [200, { jobs: [{ ...JOB, body: "" }] }],
    [503, { code: "redis", detail: "away" }, { "retry-after": "0" }],
    done,
    [200, { jobs: [] }],
    [200, { jobs: [{ ...JOB, id: "b", body: "" }] }],
    done,
    [200, { jobs: [{ ...JOB, id: "c", body: "" }] }],
    done,
  ]);
  const stop = new AbortController();
  const seen = [];
  await queue.work(
    async (job) => {
      seen.push(job.id);
      if (job.id === "b") throw new Error("no stamp");
      if (job.id === "c") stop.abort();
    },
    { signal: stop.signal },
  );
  assert.deepEqual(seen, ["a", "b", "c"]);
  const acknowledged = calls.filter(([path]) => path === "/v1/leases").map(([, , body]) => body);
  assert.deepEqual(acknowledged.flatMap(Object.keys), ["finish", "finish", "fail", "finish"]);
  assert.equal(acknowledged[2].fail[0].error, "Error: no stamp");
});

test("the loop ends with what is refused for good", async (t) => {
  const { queue } = await served(t, [[403, { code: "forbidden", detail: "the token may not" }]]);
  await assert.rejects(queue.work(() => {}), Problem);
});

test("a stop ends a pop that waits", async (t) => {
  const stop = new AbortController();
  const server = createServer(() => stop.abort());
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => (server.closeAllConnections(), server.close()));
  const queue = new Queue("emails", { url: `http://127.0.0.1:${server.address().port}` });
  await queue.work(() => assert.fail("no job"), { signal: stop.signal });
  await assert.rejects(queue.pop({ signal: stop.signal }), Unreachable);
});
