// The next times of a schedule while it is typed.
import * as api from './api.js';
import { now } from './clock.js';
import { el, fill, setText } from './dom.js';
import { relative } from './format.js';
import { inWords } from './expression.js';
import { timeList } from './time_list.js';
import { inZone, ownZone } from './zone.js';

/** The number of next times. */
const NEXT = 10;
/** The pause after the last key before the times are asked for. */
const PAUSE_MS = 250;

/**
 * Creates the preview. `read` returns the fields of the times: `schedule`, `time_zone`, `start`, `end`, `count`. In
 * the result, `ask()` shows their times after a pause. `wrong` is called with whether the times were refused.
 */
export function schedulePreview({ read, wrong }, signal) {
  // The sentence alone is live: ten times after each key would drown a listener.
  const said = el('p', { id: 'preview-said', role: 'status', 'aria-live': 'polite' });
  const list = el('div');
  let [timer, running, asked] = [null, null, null];

  const show = (wanted, next) => {
    const zone = wanted.time_zone ?? (/^@every\b/i.test(wanted.schedule) ? null : 'UTC');
    said.classList.remove('error');
    wrong(false);
    if (next.length === 0) {
      setText(said, 'There is no further time.');
      fill(list);
      return;
    }
    const words = inWords(wanted.schedule);
    setText(said, `${words === null ? '' : `${words}. `}Next ${relative(next[0], now())}: ${inZone(next[0], zone ?? ownZone())}.`);
    fill(list, timeList(next, zone));
  };
  const fail = (problem) => {
    said.classList.add('error');
    wrong(problem.status === 400);
    // The times of what was typed before are not those of what is refused.
    if (problem.status === 400) fill(list);
    setText(said, problem.message);
  };
  const send = async () => {
    const wanted = read();
    running?.abort();
    running = null;
    if (wanted.schedule === undefined) {
      asked = null;
      said.classList.remove('error');
      wrong(false);
      setText(said, 'The next times appear here while you type.');
      fill(list);
      return;
    }
    const call = new AbortController();
    running = call;
    try {
      const { next } = await api.preview({ ...wanted, next: NEXT }, AbortSignal.any([signal, call.signal]));
      if (!call.signal.aborted) show(wanted, next);
    } catch (problem) {
      if (signal.aborted || call.signal.aborted) return;
      // The same again is asked once the server answers.
      if (problem.status !== 400) asked = null;
      fail(problem);
    }
  };
  const ask = () => {
    const wanted = JSON.stringify(read());
    if (wanted === asked) return;
    asked = wanted;
    clearTimeout(timer);
    timer = setTimeout(send, PAUSE_MS);
  };
  signal.addEventListener('abort', () => clearTimeout(timer));
  const element = el(
    'section',
    { class: 'preview', 'aria-labelledby': 'preview-title' },
    el('h3', { id: 'preview-title' }, 'Next ten times'),
    said,
    list,
  );
  setText(said, 'The next times appear here while you type.');
  return { element, ask };
}
