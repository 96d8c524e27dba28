// The calls of the HTTP API, and their bearer token.

const KEY = 'dwell-token';
const BASE = new URL('v1/', document.baseURI);

const asks = new EventTarget();
let token = read();

/** A failed call: the HTTP status (0 without an answer), and the reason as message. */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Calls `then` with an event when the server asks for a token; `detail.wrong`: the call had a wrong one. */
export function onTokenWanted(then) {
  asks.addEventListener('wanted', then);
}

/** Whether a token is stored. */
export const hasToken = () => token !== null;

/** Stores a token until the tab is closed; null removes it. */
export function setToken(value) {
  token = value;
  try {
    if (value === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, value);
  } catch {
    // Storage is forbidden: the token lasts until the page is reloaded.
  }
}

function read() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** The answer to the request of early.js, if path and token are the same. */
function early(path, sent) {
  const asked = globalThis.early;
  // Only the first caller may use it: later the answer is outdated.
  if (path.startsWith('jobs')) globalThis.early = undefined;
  return asked?.path === path && asked.token === sent ? asked.answer : undefined;
}

/** Sends a request with the token. */
export async function request(path, options = {}) {
  const sent = token;
  const headers = { ...options.headers };
  if (sent !== null) headers.authorization = `Bearer ${sent}`;
  let response;
  try {
    response = await (early(path, sent) ?? fetch(new URL(path, BASE), { ...options, headers, cache: 'no-store', credentials: 'omit' }));
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    // The browser refuses a token with characters that no header allows, before it sends anything.
    if (sent !== null && !/^[\x20-\x7e]*$/.test(sent)) {
      asks.dispatchEvent(new CustomEvent('wanted', { detail: { wrong: true } }));
      throw new Problem(401, 'The token contains characters that are not allowed.');
    }
    throw new Problem(0, 'Dwell does not answer.');
  }
  if (response.status === 401 && sent === token)
    asks.dispatchEvent(new CustomEvent('wanted', { detail: { wrong: sent !== null } }));
  return response;
}

async function call(path, options) {
  const response = await request(path, options);
  const text = await response.text();
  let json;
  try {
    json = JSON.parse(text);
  } catch {
    throw new Problem(
      response.status,
      `The answer with status ${response.status} is not JSON. Check the proxies between this browser and Dwell.`,
    );
  }
  // A verdict is not a problem, whatever its status.
  if (!response.ok && json.verdict === undefined)
    throw new Problem(response.status, json.detail ?? json.title ?? `status ${response.status}`);
  return json;
}

function jobPath(id, rest = '') {
  // Browsers remove these two path segments, also in escaped form.
  if (id === '.' || id === '..') throw new Problem(0, `A browser cannot request a job with the id ${id}: use \`dwell show\`.`);
  return `jobs/${encodeURIComponent(id)}${rest}`;
}

function query(values) {
  const set = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== '');
  return set.length ? `?${new URLSearchParams(set)}` : '';
}

const send = (method, body) => ({
  method,
  ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
});

export const stats = (signal) => call('stats', { signal });
export const horizon = (step, to, signal) => call(`horizon${query({ step, to })}`, { signal });
/** Filters: state, target, queue, from, to, limit, cursor. */
export const list = (filters, signal) => call(`jobs${query(filters)}`, { signal });
export const show = async (id, { body, signal }) => call(jobPath(id, body ? '?body=1' : ''), { signal });

function queuePath(name, rest = '') {
  if (name === '.' || name === '..') throw new Problem(0, `A browser cannot request a queue with the name ${name}: use curl.`);
  return `queues/${encodeURIComponent(name)}${rest}`;
}

export const queues = (signal) => call('queues', { signal });
export const queue = async (name, signal) => call(queuePath(name), { signal });
export const peek = async (name, signal) => call(queuePath(name, '/peek'), { signal });
/** Pauses, resumes or purges a queue. Returns the counts, or what was removed. */
export const onQueue = async (name, action, body) => call(queuePath(name, `/${action}`), send('POST', body));

function schedulePath(id, rest = '') {
  if (id === '.' || id === '..') throw new Problem(0, `A browser cannot request a schedule with the id ${id}: use \`dwell schedule\`.`);
  // These words name calls of their own, unless a letter is escaped.
  const isCall = ['pause', 'resume', 'preview'].includes(id);
  const first = isCall ? `%${id.charCodeAt(0).toString(16)}` : '';
  return `schedules/${first}${encodeURIComponent(id.slice(isCall ? 1 : 0))}${rest}`;
}

/** Filters: q, paused, queue, target, missed_since, limit, cursor. */
export const schedules = (filters, signal) => call(`schedules${query(filters)}`, { signal });
/** A schedule with its next times: `next` of them; with its body if `body` is set. */
export const schedule = async (id, { next, body, signal }) => call(schedulePath(id, query({ next, body: body ? 1 : '' })), { signal });
/** Stores a schedule. */
export const putSchedule = async (id, wanted) => call(schedulePath(id), send('PUT', wanted));
/** Pauses or resumes a schedule: returns it. Fires or ends a schedule (`cancel`): returns the verdict. */
export const onSchedule = async (id, action, body) =>
  action === 'cancel' ? call(schedulePath(id), send('DELETE')) : call(schedulePath(id, `/${action}`), send('POST', body));
/** Pauses or resumes all schedules of these filters: q, queue, target. Returns their number. */
export const onSchedules = (action, filters) => call(`schedules/${action}`, send('POST', filters));
/** The next times of a schedule that is not stored. */
export const preview = (wanted, signal) => call('schedules/preview', { ...send('POST', wanted), signal });

/** Performs an action on a job. Returns the verdict. `time`: the new time of a reschedule, `{for}` or `{until}`. */
export async function act(action, id, time) {
  if (action === 'cancel') return call(jobPath(id), send('DELETE'));
  if (action === 'reschedule') return call(jobPath(id), send('PATCH', time));
  return call(jobPath(id, `/${action}`), send('POST'));
}
