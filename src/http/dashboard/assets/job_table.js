// A table of jobs. Refreshes keep focus and selection.
import { moment, now } from './clock.js';
import { afterPaint, el, fill, reconcile, status } from './dom.js';
import { bytes } from './format.js';
import { LATE_MS } from './overall.js';
import { jobHref } from './router.js';
import { tableOf } from './table.js';
import { reasonWord } from './words.js';

const DUE = { head: 'Due', class: 'due', cell: (job) => moment(job.due_ms) };
const ID = {
  head: 'Id',
  class: 'id',
  rowHead: true,
  cell: (job) => el('a', { href: jobHref(job.id), class: 'mono', data: { focus: 'id' } }, job.id),
};
const TARGET = { head: 'Target', class: 'target', cell: (job) => el('span', { class: 'mono' }, targetOf(job)) };
const BROKER = { head: 'Broker', class: 'broker', cell: (job) => job.broker ?? '' };
const ATTEMPTS = { head: 'Attempts', class: 'number', cell: (job) => String(job.attempt) };
const SIZE = { head: 'Size', class: 'number', cell: (job) => bytes(job.size) };
const STATE = { head: 'State', class: 'state', cell: (job) => status(...stateOf(job)) };
const REASON = { head: 'Reason', class: 'reason', cell: (job) => status('bad', reasonWord(job.dead_reason)) };
const DIED = { head: 'Died', class: 'due', cell: (job) => (job.died_ms === undefined ? '–' : moment(job.died_ms)) };
const ERROR = { head: 'Last error', class: 'last-error', cell: (job) => job.last_error ?? '–' };

/** The least height of a row, px. */
const ROW = 40;

/** The target of a job: its queue; or on AMQP the exchange, if any, and the routing key. */
export const targetOf = (job) => job.queue ?? (job.exchange ? `${job.exchange}/${job.target}` : job.target);

/** The level and the word for a job's state. */
export function stateOf(job) {
  if (job.state === 'dead') return ['bad', 'Dead'];
  if (job.state === 'ready') return ['info', 'Ready'];
  if (job.state === 'reserved') return job.awaiting_finish ? ['info', 'Waits for its consumer'] : ['info', 'In flight'];
  if (now() - job.due_ms >= LATE_MS) return ['warn', 'Overdue'];
  return job.attempt > 0 ? ['warn', 'Waits for a retry'] : ['off', 'Scheduled'];
}

/**
 * Creates a table. `dead`: shows reasons instead of states. `select`: called when the selection changes. In the
 * result, `show(jobs)` fills the table, and `fail(problem)` shows why the jobs could not be loaded.
 */
export function jobTable({ caption, empty, dead = false, select = null }) {
  const picked = new Set();
  const tick = (job) => {
    const box = el('input', {
      type: 'checkbox',
      'aria-label': `Select ${job.id}`,
      checked: picked.has(job.id),
      data: { focus: 'tick' },
    });
    box.addEventListener('change', () => {
      if (box.checked) picked.add(job.id);
      else picked.delete(job.id);
      select();
    });
    return box;
  };
  const selection = { head: el('span', { class: 'hidden' }, 'Selected'), class: 'tick', bare: true, cell: tick };
  const columns = dead
    ? [ID, TARGET, REASON, ERROR, ATTEMPTS, DIED, { ...DUE, head: 'Was due' }]
    : [DUE, ID, TARGET, BROKER, STATE, ATTEMPTS, SIZE];
  const { element, table, body, message, row } = tableOf({
    columns: select ? [selection, ...columns] : columns,
    caption,
    kind: dead ? 'jobs dead' : 'jobs',
  });
  let shown = [];
  const show = (jobs) => {
    const first = shown.length === 0;
    shown = jobs;
    draw(first ? jobs.slice(0, Math.ceil(innerHeight / ROW)) : jobs);
    // Rows below the edge of the window are added after the first paint.
    if (body.children.length < jobs.length) afterPaint(() => shown === jobs && draw(jobs));
    table.hidden = jobs.length === 0;
    message.hidden = jobs.length > 0;
    message.classList.remove('error');
    if (jobs.length === 0) fill(message, empty);
    const here = new Set(jobs.map((job) => job.id));
    for (const id of picked) if (!here.has(id)) picked.delete(id);
    select?.();
  };
  const draw = (jobs) =>
    reconcile(body, jobs, {
      key: (job) => job.id,
      stamp: (job) =>
        JSON.stringify([
          job.due_ms,
          stateOf(job),
          job.attempt,
          job.last_error,
          job.dead_reason,
          job.died_ms,
          job.broker,
          job.target,
          job.queue,
          job.size,
        ]),
      make: row,
    });
  const fail = (problem) => {
    // Outdated rows are better than none.
    if (shown.length > 0) return;
    message.hidden = false;
    message.classList.add('error');
    fill(message, `The jobs cannot be loaded now: ${problem.message}`);
  };
  const pick = (ids) => {
    picked.clear();
    for (const id of ids) picked.add(id);
    for (const box of body.querySelectorAll('input[type=checkbox]')) box.checked = picked.has(box.closest('tr').dataset.key);
    select?.();
  };
  return { element, show, fail, picked, pick, jobs: () => shown };
}
