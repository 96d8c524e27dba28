// Requeues many dead letters, a few calls at a time, and shows progress and results.
import * as api from './api.js';
import { announce } from './announce.js';
import { el, fill, setText, status } from './dom.js';
import { count, plural } from './format.js';
import { jobHref } from './router.js';
import { verdictWords } from './words.js';

/** Concurrent calls. */
const AT_ONCE = 4;
const PAGE = 200;
/** The most results that are listed; further ones are counted only. */
const MAX_LINES = 500;

/** The ids of all dead letters, or of those for a target or of a queue, read page by page. */
export async function* everyDead({ target, queue }, signal) {
  let cursor;
  do {
    const page = await api.list({ state: 'dead', target, queue, cursor, limit: PAGE }, signal);
    yield* page.jobs.map((job) => job.id);
    cursor = page.next;
  } while (cursor);
}

/**
 * Requeues these ids and shows the progress in `parent`. `total`: their number, null if unknown. Ends after the
 * last id, on Stop, or when the server fails.
 */
export async function requeueAll(parent, { total, ids }, signal) {
  const stop = new AbortController();
  signal.addEventListener('abort', () => stop.abort());
  const bar = el('progress', { max: total, 'aria-label': 'Requeued so far' });
  const line = el('p', { class: 'line' });
  const leave = el('p', { class: 'hint' }, 'Keep this page open: leaving it stops the requeue.');
  const lines = el('ul', { class: 'verdicts' });
  const halt = el('button', { type: 'button', class: 'secondary', on: { click: () => stop.abort() } }, 'Stop');
  const list = el('details', {}, el('summary', {}, 'Results'), lines);
  const heading = el('h2', { tabindex: '-1' }, 'Requeuing…');
  fill(
    parent,
    el(
      'section',
      { class: 'card', 'aria-label': 'Requeue' },
      el('div', { class: 'card-head' }, heading, halt),
      bar,
      line,
      leave,
      list,
    ),
  );

  const tally = new Map();
  let done = 0;
  const take = (id, level, word, sentence) => {
    done += 1;
    tally.set(word, (tally.get(word) ?? 0) + 1);
    if (total !== null) bar.value = done;
    setText(line, `${total === null ? count(done) : `${count(done)} of ${count(total)}`}: ${summary(tally)}`);
    // Failures are always listed.
    if (lines.children.length >= MAX_LINES && level === 'ok') return;
    const item = el(
      'li',
      {},
      el('a', { href: jobHref(id), class: 'mono' }, id),
      ' ',
      status(level, word),
      ' ',
      el('span', { class: 'hint' }, sentence),
    );
    if (level === 'ok') lines.append(item);
    else lines.prepend(item);
    if (lines.children.length > MAX_LINES) lines.lastElementChild.remove();
  };
  const source = ids[Symbol.asyncIterator]?.() ?? ids[Symbol.iterator]();
  let failed = null;
  const worker = async () => {
    for (;;) {
      if (stop.signal.aborted || failed) return;
      const next = await source.next();
      if (next.done) return;
      const id = next.value;
      try {
        const { verdict } = await api.act('requeue', id);
        take(id, ...verdictWords('requeue', verdict));
      } catch (problem) {
        take(id, 'bad', 'Not done', problem.message);
        // Without an answer or without access, all further calls would fail too.
        if (problem.status === 0 || problem.status === 401 || problem.status >= 500) failed = problem;
      }
    }
  };
  try {
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
  } catch (problem) {
    failed = problem;
  }
  if (signal.aborted) return;
  halt.remove();
  leave.remove();
  bar.hidden = true;
  const end = failed ? `Stopped: ${failed.message}` : stop.signal.aborted ? 'Stopped.' : 'Done.';
  setText(heading, end);
  setText(line, done === 0 ? 'Nothing was requeued.' : `${plural(done, 'dead letter')}: ${summary(tally)}.`);
  list.open = done <= 20 || !(tally.size === 1 && tally.has('Requeued'));
  announce(`${end} ${line.textContent}`);
  heading.focus();
}

const summary = (tally) => [...tally].map(([word, number]) => `${count(number)} ${word.toLowerCase()}`).join(', ');
