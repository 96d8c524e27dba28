/**
 * Requests, deliveries, webhooks and queues of Dwell: one file, without dependencies (Node 18 or later).
 *
 * A request to Dwell is a message with `delay-*` headers: `request` builds them. What Dwell publishes has
 * `delayed-*` headers: `delivery` reads them. `verify` checks the signature of a webhook. `Queue` fetches jobs
 * over HTTP. Every name and form is that of docs/reference/headers.md and docs/reference/queues.md.
 */
import { createHmac, timingSafeEqual } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

// ---- Requests ----

const RECURRING = ["start", "end", "count", "catchUp", "overlap"];
const NAMES = [
  ...["action", "id", "for", "until", "timeZone", "schedule", ...RECURRING, "spread"],
  ...["target", "exchange", "broker", "queue", "ttr", "confirm", "retry", "late", "maxLate"],
  ...["expire", "onConflict", "maxWait", "replyTo", "dueMs", "attempt"],
];
/** Numbers of these may have a fraction. "a wait" is one of `retry`, "wait" that of `pop`. */
const ROUNDED = ["for", "until", "start", "end", "spread", "ttr", "maxLate", "expire", "maxWait", "a wait", "wait"];
const OF_ACTION = {
  cancel: [],
  reschedule: ["for", "until", "timeZone"],
  fire: [],
  finish: ["dueMs", "attempt"],
  fail: ["dueMs", "attempt"],
};

/**
 * The headers of a request. Each option is the header of its name: `maxLate` is `delay-max-late`. An option
 * that is null or undefined is left out.
 *
 * Exactly one of `for`, `until` and `schedule` says when, `target` or `queue` where. Durations are text
 * (`"1h30m"`, `"PT15M"`) or milliseconds, which are rounded up. Times are RFC 3339 text, epoch milliseconds or
 * a Date; text without an offset needs `timeZone` beside it. `expire` is a duration or a time: a bare number from
 * 10^11 on is a time, so write a longer duration with its unit (`"1200d"`). `retry` is a list of waits, an empty
 * one for a single attempt. `action` (`cancel`, `reschedule`, `fire`, `finish`, `fail`) acts on the job `id`; a
 * `finish` or `fail` should have `dueMs` and `attempt` of its delivery.
 *
 * What Dwell accepts only by the settings of an ingest is refused too. For `missing_delay: immediate` write
 * `for: 0`, for `id_from: key` the key as the `id`; leave out of an action what it does not use.
 *
 * @param {Record<string, string | number | Date | Array<string | number> | null | undefined>} options
 * @returns {Record<string, string>}
 * @throws {TypeError} Dwell would reject the request
 */
export function request(options) {
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value != null));
  const headers = {};
  for (const name of Object.keys(given)) {
    if (!NAMES.includes(name)) throw new TypeError(`${name} is no option of a request; those are ${NAMES.join(", ")}`);
  }
  check(given);
  for (const [name, value] of Object.entries(given)) {
    const dashed = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    headers[{ dueMs: "delayed-due", attempt: "delayed-attempt" }[name] ?? `delay-${dashed}`] = text(name, value);
  }
  const bytes = Buffer.byteLength(headers["delay-id"] ?? "x");
  if (bytes < 1 || bytes > 256) throw new TypeError("id has 1 to 256 bytes of UTF-8: choose another one");
  return headers;
}

/** Refuses what cannot stand together. */
function check(given) {
  const has = (name) => name in given;
  const action = given.action ?? "schedule";
  const times = ["for", "until", "schedule"].filter(has);
  let stray;
  let needsId = true;
  if (action === "schedule") {
    if (times.length !== 1) {
      const found = times.join(" and ") || "none";
      throw new TypeError(`a request has one of for, until and schedule, and this one has ${found}`);
    }
    stray = [...(has("schedule") ? [] : RECURRING), "dueMs", "attempt"].filter(has);
    if (has("schedule") && (has("maxWait") || given.onConflict === "debounce")) {
      throw new TypeError("a recurring schedule does not debounce: leave maxWait and onConflict debounce out");
    }
    if (has("queue")) stray.push(...["target", "exchange", "broker"].filter(has));
    if (has("maxWait") !== (given.onConflict === "debounce")) {
      throw new TypeError("onConflict debounce and maxWait need each other: send both, or neither");
    }
    needsId = has("schedule") || has("maxWait");
  } else if (!Object.hasOwn(OF_ACTION, action)) {
    throw new TypeError(`${action} is no action; those are schedule, ${Object.keys(OF_ACTION).join(", ")}`);
  } else {
    const allowed = ["action", "id", "replyTo", ...OF_ACTION[action]];
    stray = Object.keys(given).filter((name) => !allowed.includes(name));
    if (action === "reschedule" && times.length !== 1) throw new TypeError("a reschedule has one of for and until");
  }
  if (stray.length > 0) {
    const beside = action !== "schedule" ? action : has("queue") ? "queue" : "a request without schedule";
    throw new TypeError(`${stray.join(", ")}: not for ${beside}: leave it out`);
  }
  if (has("timeZone") && !["until", "expire", "schedule"].some(has)) {
    throw new TypeError("timeZone is for until, expire or a schedule: leave it out");
  }
  if (needsId && !has("id")) throw new TypeError("this request needs an id, by which Dwell finds the job");
}

/** A value as the text of its header. */
function text(name, value) {
  if (name === "retry" && Array.isArray(value)) return value.map((wait) => text("a wait", wait)).join(",") || "none";
  if (value instanceof Date) {
    if (Number.isNaN(value.getTime())) throw new TypeError(`${name} is an invalid Date: was its text read?`);
    return value.toISOString();
  }
  if (typeof value === "number") {
    if (!(value >= 0) || !Number.isSafeInteger(Math.ceil(value))) {
      throw new TypeError(`${name} is ${value}: write a number of milliseconds that is not negative`);
    }
    if (!Number.isInteger(value) && !ROUNDED.includes(name)) {
      throw new TypeError(`${name} is ${value}: write text or an integer`);
    }
    return String(Math.ceil(value));
  }
  if (typeof value !== "string") throw new TypeError(`${name} is ${typeof value}: write text, a number or a Date`);
  if (/\p{Cc}/u.test(value)) throw new TypeError(`${name} has a control character: leave it out`);
  return value;
}

// ---- What Dwell publishes ----

const FIELDS = {
  "delayed-id": ["id", String], // over HTTP percent-encoded beyond ASCII, as it came
  "delayed-attempt": ["attempt", Number], // from 1
  "delayed-due": ["dueMs", Number], // epoch ms, the same over the retries
  "delayed-round": ["round", Number], // how often the message came back as a new request
  "delayed-schedule": ["schedule", String], // of an occurrence: the id of its schedule
  "delayed-occurrence": ["occurrence", Number], // its number, from 1
  "delayed-next": ["nextMs", Number], // the nominal time of the next one, epoch ms
  "delayed-dead-reason": ["deadReason", String], // of a dead letter
  "delayed-last-error": ["lastError", String],
  "delayed-error": ["error", String], // of a rejected request: the code
  "delayed-error-detail": ["errorDetail", String],
};

/**
 * What the `delayed-*` headers of a delivery, a dead letter or a rejected request say: `id`, `attempt`, `dueMs`
 * and so on, each only if its header is there. `headers`: an object, or pairs; values are text, bytes or numbers.
 *
 * @throws {TypeError} a header holds what Dwell does not set
 */
export function delivery(headers) {
  const found = {};
  const isIterable = typeof headers?.[Symbol.iterator] === "function";
  for (const [name, value] of isIterable ? headers : Object.entries(headers ?? {})) {
    const field = Object.hasOwn(FIELDS, name.toLowerCase()) ? FIELDS[name.toLowerCase()] : undefined;
    if (!field) continue;
    const first = Array.isArray(value) ? value[0] : value;
    const read = first instanceof Uint8Array ? Buffer.from(first).toString() : String(first);
    if (field[1] === Number && !/^\d{1,15}$/.test(read)) {
      throw new TypeError(`${name} is ${JSON.stringify(read)}, and Dwell sets a number: was the header changed?`);
    }
    found[field[0]] = field[1](read);
  }
  return found;
}

/** Reads the body of a verdict, the answer to a request by `replyTo`: `id`, `action`, `verdict`, `dueMs` or null. */
export function verdict(body) {
  let read;
  try {
    read = JSON.parse(typeof body === "string" ? body : Buffer.from(body).toString());
  } catch {
    // As below.
  }
  if (!["id", "action", "verdict"].every((name) => typeof read?.[name] === "string")) {
    throw new TypeError('no verdict: its body is JSON with "id", "action" and "verdict"');
  }
  return { id: read.id, action: read.action, verdict: read.verdict, dueMs: read.due_ms ?? null };
}

// ---- Webhooks ----

/** A webhook that is not to be trusted. The message says why. */
export class SignatureError extends Error {}

/**
 * Checks the signature of a webhook (Standard Webhooks), or throws SignatureError.
 *
 * @param {string} secrets the text of Dwell's `secret_file`: one or two secrets, in lines
 * @param {Record<string, string>} headers with names in lower case, as Node has them
 * @param {Uint8Array | string} body the bytes as they came
 * @param {{ now?: number, tolerance?: number }} [clock] in seconds; `now` is by default that of this machine's clock
 */
export function verify(secrets, headers, body, { now = Date.now() / 1000, tolerance = 300 } = {}) {
  const keys = secrets.split(/\s+/).filter(Boolean);
  const decoded = keys.map((secret) => Buffer.from(secret.replace(/^whsec_/, ""), "base64"));
  if (!decoded.length || decoded.some((key) => !key.length)) {
    throw new TypeError("no secret, or an empty one: anybody could sign with it");
  }
  const { "webhook-id": id = "", "webhook-timestamp": sent = "", "webhook-signature": signatures = "" } = headers;
  if (!/^\d+$/.test(sent)) throw new SignatureError("webhook-timestamp is missing or no number");
  if (!(Math.abs(now - Number(sent)) <= tolerance)) {
    throw new SignatureError(`webhook-timestamp is more than ${tolerance} s off: an old request, or a wrong clock`);
  }
  const given = signatures.split(/\s+/).map((one) => Buffer.from(one));
  const isSigned = decoded.some((key) => {
    const digest = createHmac("sha256", key).update(`${id}.${sent}.`).update(body).digest("base64");
    const expected = Buffer.from(`v1,${digest}`);
    return given.some((one) => one.length === expected.length && timingSafeEqual(one, expected));
  });
  if (!isSigned) throw new SignatureError("no signature of webhook-signature is by one of the secrets");
}

// ---- Queues ----

/** Dwell refused a call. `status` is that of HTTP, `code` the word for it, if any; `retryAfter` in seconds. */
export class Problem extends Error {
  constructor(status, code, detail, retryAfter) {
    super(`Dwell answered ${status}${code ? ` ${code}` : ""}: ${detail}`);
    Object.assign(this, { status, code, detail, retryAfter });
  }
}

/** Dwell did not answer. `cause` says why. */
export class Unreachable extends Error {}

/**
 * Fetches jobs of a queue, or of several (`"high,low"`), over HTTP. Durations are text (`"30s"`) or milliseconds.
 * Calls throw Problem where Dwell refuses, Unreachable where it does not answer, and TypeError for a mistake in them.
 *
 * A job has `id`, `queue`, `lease`, `attempt` (counts hand-outs, from 1), `dueMs`, `deadlineMs` (until then it is
 * this consumer's), `headers` as JSON holds them, and `body`, a Buffer. An acknowledgement answers `id`, `action`,
 * `verdict`, `dueMs`, `deadlineMs`. Its verdict is `finished`, `failed`, `dead`, `released` or `touched`; or nothing
 * changed: `stale`, `fired`, `not_found`.
 */
export class Queue {
  #url;
  #token;

  constructor(queue, { url = "http://127.0.0.1:7464", token } = {}) {
    this.queue = queue;
    if (!/^https?:$/.test(new URL(url).protocol)) throw new TypeError(`${url} is no URL of Dwell: write http://…`);
    this.#url = new URL(url).href.replace(/\/$/, "");
    this.#token = token;
  }

  /** Due jobs, at most `max`. `wait` (to 60s) holds the call until one is due; after it the list is empty. */
  async pop({ max = 1, wait, ttr, signal } = {}) {
    const path = `/v1/queues/${this.queue.split(",").map(encodeURIComponent).join(",")}/pop`;
    const jobs = await this.#call(path, { max, ...words({ wait, ttr }) }, "jobs", signal);
    return jobs.map((job) => ({
      id: job.id,
      queue: job.queue,
      lease: job.lease,
      attempt: job.attempt,
      dueMs: job.due_ms,
      deadlineMs: job.deadline_ms,
      headers: job.headers,
      body: job.body == null ? Buffer.from(job.body_base64, "base64") : Buffer.from(job.body),
    }));
  }

  /** These jobs are done, at most 1000. Answers a list. */
  finish(...jobs) {
    return this.#leases("finish", jobs, {});
  }

  /** This attempt failed: the next wait of the retry array begins, or `for` instead; at its end the job is dead. */
  async fail(job, options = {}) {
    return (await this.#leases("fail", [job], { error: options.error, for: options.for }))[0];
  }

  /** Gives the job back, for others or after `for`; its retries are not used up. */
  async release(job, options = {}) {
    return (await this.#leases("release", [job], { for: options.for }))[0];
  }

  /** Prolongs the lease: to `ttr` from now, by default as long as it was given. */
  async touch(job, { ttr } = {}) {
    return (await this.#leases("touch", [job], { ttr }))[0];
  }

  /**
   * Fetches one job after the other until `signal` aborts, and awaits `handler` with each.
   *
   * The job is finished when `handler` resolves, and failed, with the text of the error, when it throws. While
   * Dwell is away the loop waits and tries again; what Dwell refuses for good is thrown. A job may come twice: make
   * the handler repeatable. For more jobs at a time call it several times.
   */
  async work(handler, { wait = "30s", ttr, signal } = {}) {
    while (!signal?.aborted) {
      for (const job of (await this.#untilAnswered(() => this.pop({ wait, ttr, signal }), signal)) ?? []) {
        let settle = () => this.finish(job);
        try {
          await handler(job);
        } catch (error) {
          settle = () => this.fail(job, { error: Buffer.from(String(error).slice(0, 1000)).toString() });
        }
        await this.#untilAnswered(settle, signal);
      }
    }
  }

  /** Repeats a call while Dwell is away; undefined once `signal` aborts. Acknowledgements may be sent again. */
  async #untilAnswered(call, signal) {
    for (;;) {
      let pause = 1;
      try {
        return await call();
      } catch (error) {
        const isRefused = error instanceof Problem && ![408, 429].includes(error.status) && error.status < 500;
        if (isRefused || !(error instanceof Problem || error instanceof Unreachable)) throw error;
        pause = error.retryAfter ?? pause;
      }
      await sleep(pause * 1000, undefined, { signal }).catch(() => {});
      if (signal?.aborted) return undefined;
    }
  }

  async #leases(action, jobs, options) {
    const asked = jobs.map(({ id, lease }) => ({ id, lease, ...words(options) }));
    const results = await this.#call("/v1/leases", { [action]: asked }, "results");
    return results.map(({ id, action, verdict, due_ms, deadline_ms }) => {
      return { id, action, verdict, dueMs: due_ms ?? null, deadlineMs: deadline_ms ?? null };
    });
  }

  /** The list `wanted` of the answer. */
  async #call(path, body, wanted, signal) {
    const headers = { "content-type": "application/json" };
    if (this.#token) headers.authorization = `Bearer ${this.#token}`;
    // Throws for a URL with credentials or a token with a line end: no later call would do better.
    const asked = new Request(this.#url + path, { method: "POST", headers, body: JSON.stringify(body) });
    // Longer than the longest wait, and than Dwell takes for an answer.
    const stop = new AbortController();
    const abort = () => stop.abort();
    const timer = setTimeout(abort, 95_000);
    signal?.addEventListener("abort", abort);
    if (signal?.aborted) abort();
    let response;
    let answer;
    try {
      response = await fetch(asked, { signal: stop.signal });
      answer = await response.text();
    } catch (cause) {
      throw new Unreachable(`${this.#url} does not answer`, { cause });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
    let read = {};
    try {
      read = JSON.parse(answer);
    } catch {
      // As an answer without fields.
    }
    if (response.status === 200 && Array.isArray(read?.[wanted])) return read[wanted];
    const after = response.headers.get("retry-after") ?? "";
    const detail = read?.detail ?? "the answer is not Dwell's: is the URL right?";
    throw new Problem(response.status, read?.code, detail, /^\d+$/.test(after) ? Number(after) : undefined);
  }
}

/** Options of a call, without those that are missing. Numbers are text too: milliseconds. */
function words(options) {
  const given = Object.entries(options).filter(([, value]) => value != null);
  return Object.fromEntries(given.map(([name, value]) => [name, name === "error" ? String(value) : text(name, value)]));
}
