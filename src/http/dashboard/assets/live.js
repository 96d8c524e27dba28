// The stream of counts. Reads server-sent events with fetch, because an EventSource cannot send the token.
// Reconnects when the stream ends.
import { request } from './api.js';
import { setClock } from './clock.js';

/** Without an event for this time the stream counts as lost; the server sends one a second. */
const SILENCE_MS = 8000;
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 15000;

const news = new EventTarget();
/**
 * The current data. `state`: `connecting`, `live`, `lost`, `paused` or `refused`. `stats`: the last counts.
 * `problem`: why there are no counts now. `retryAt`: the next try, epoch ms by the browser's clock.
 */
export const live = { state: 'connecting', stats: null, problem: null, retryAt: null };

let running = null;

/** Calls `then` at every change of `live`, until `signal` is aborted. */
export function onNews(then, signal) {
  news.addEventListener('news', then, { signal });
}

/** Opens the stream; closes an open one first. */
export function connect() {
  running?.abort();
  running = new AbortController();
  follow(running.signal);
}

/** Closes the stream and sets this state. */
export function disconnect(state) {
  running?.abort();
  running = null;
  tell({ state, retryAt: null });
}

function tell(change) {
  Object.assign(live, change);
  news.dispatchEvent(new Event('news'));
}

async function follow(signal) {
  let wait = FIRST_WAIT_MS;
  if (live.state !== 'lost') tell({ state: 'connecting' });
  while (!signal.aborted) {
    try {
      await listen(signal, () => {
        wait = FIRST_WAIT_MS;
      });
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) return tell({ state: 'refused' });
    }
    if (signal.aborted) return;
    tell({ state: 'lost', retryAt: Date.now() + wait });
    await pause(wait, signal);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

async function listen(signal, received) {
  const silence = new AbortController();
  const both = AbortSignal.any([signal, silence.signal]);
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const response = await request('events', { signal: both });
    if (!response.ok) throw Object.assign(new Error('refused'), { status: response.status });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      text += value;
      const events = text.split('\n\n');
      text = events.pop();
      for (const event of events) if (take(event)) received();
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Handles one event: a name, and data on one line. Returns whether the event has both. */
function take(event) {
  const lines = event.split('\n');
  const field = (name) =>
    lines
      .find((line) => line.startsWith(`${name}:`))
      ?.slice(name.length + 1)
      .trim();
  const [name, data] = [field('event'), field('data')];
  if (name === undefined || data === undefined) return false;
  const json = JSON.parse(data);
  if (name === 'stats') {
    setClock(json.now_ms);
    tell({ state: 'live', stats: json, problem: null, retryAt: null });
  } else if (name === 'problem') {
    tell({ state: 'live', problem: json, retryAt: null });
  }
  return true;
}

function pause(ms, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      done();
    });
  });
}
