// The calls of the HTTP API, and the token that they carry.

const KEY = 'dwell-token';
const BASE = new URL('v1/', document.baseURI);

const asks = new EventTarget();
let token = read();

/** What a call answered that is no success: `status`, and `detail` for people. Status 0: there was no answer at all. */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Calls `then` when the server wants a token that it was not given; its event's `detail` says whether one was sent. */
export function onTokenWanted(then) {
  asks.addEventListener('wanted', then);
}

/** Whether a token is kept. */
export const hasToken = () => token !== null;

/** Keeps a token for as long as the tab lives; null forgets it. */
export function setToken(value) {
  token = value;
  try {
    if (value === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, value);
  } catch {
    // Storage is forbidden: it holds until the page is loaded again.
  }
}

function read() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** The answer that early.js asked for, once, if this is it. */
function early(path, sent) {
  const asked = globalThis.early;
  // It is of now only for who asks first.
  if (path.startsWith('jobs')) globalThis.early = undefined;
  return asked?.path === path && asked.token === sent ? asked.answer : undefined;
}

/** A request under the token. */
export async function request(path, options = {}) {
  const sent = token;
  const headers = { ...options.headers };
  if (sent !== null) headers.authorization = `Bearer ${sent}`;
  let response;
  try {
    response = await (early(path, sent) ?? fetch(new URL(path, BASE), { ...options, headers, cache: 'no-store', credentials: 'omit' }));
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    // A token with characters that no header can hold is refused before it is sent.
    if (sent !== null && !/^[\x20-\x7e]*$/.test(sent)) {
      asks.dispatchEvent(new CustomEvent('wanted', { detail: { wrong: true } }));
      throw new Problem(401, 'This token holds characters that no token can hold.');
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
      `An answer that is no JSON came with status ${response.status}: is something between you and Dwell?`,
    );
  }
  // A verdict comes with its own status and is an answer, not a problem.
  if (!response.ok && json.verdict === undefined)
    throw new Problem(response.status, json.detail ?? json.title ?? `status ${response.status}`);
  return json;
}

function jobPath(id, rest = '') {
  // Browsers take these two out of a path however they are written.
  if (id === '.' || id === '..') throw new Problem(0, `A browser cannot ask for a job of the id ${id}: use \`dwell show\`.`);
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
/** Filters: state, target, from, to, limit, cursor. */
export const list = (filters, signal) => call(`jobs${query(filters)}`, { signal });
export const show = async (id, { body, signal }) => call(jobPath(id, body ? '?body=1' : ''), { signal });

/** An action on a job: its verdict. `time` is of a reschedule: `{for}` or `{until}`. */
export async function act(action, id, time) {
  if (action === 'cancel') return call(jobPath(id), send('DELETE'));
  if (action === 'reschedule') return call(jobPath(id), send('PATCH', time));
  return call(jobPath(id, `/${action}`), send('POST'));
}
