// The table of the ready jobs of a queue, with the begin of each body.
import { moment } from './clock.js';
import { el, fill, reconcile } from './dom.js';
import { bytes } from './format.js';
import { jobHref } from './router.js';
import { tableOf } from './table.js';

/** The most letters of a body that are shown. */
const MAX_LETTERS = 160;

const COLUMNS = [
  { head: 'Due', class: 'due', cell: (job) => moment(job.due_ms) },
  {
    head: 'Id',
    class: 'id',
    rowHead: true,
    cell: (job) => el('a', { href: jobHref(job.id), class: 'mono', data: { focus: 'id' } }, job.id),
  },
  { head: 'Attempts', class: 'number', cell: (job) => String(job.attempt) },
  { head: 'Body', class: 'last-error', cell: bodyOf },
];

/** Creates the table. In the result, `show(jobs)` fills it, and `fail(problem)` empties it. */
export function peekTable() {
  const { element, table, body, message, row } = tableOf({ columns: COLUMNS, caption: 'Ready jobs, the oldest first' });
  const show = (jobs, words = 'No job is ready.') => {
    reconcile(body, jobs, { key: (job) => job.id, stamp: (job) => JSON.stringify([job.due_ms, job.attempt, job.body ?? job.body_base64]), make: row });
    table.hidden = jobs.length === 0;
    message.hidden = jobs.length > 0;
    if (jobs.length === 0) fill(message, words);
  };
  const fail = (problem) => show([], problem.message);
  return { element, show, fail };
}

/** The begin of a body; of a body that is not text, its size. */
function bodyOf(job) {
  const { body, body_base64: base64 } = job;
  if (body === undefined) return `${bytes(atob(base64).length)} that are not text`;
  if (body === '') return '–';
  // By code points, so that no letter is cut in half.
  const letters = [...body.slice(0, 2 * MAX_LETTERS)];
  const cut = letters.slice(0, MAX_LETTERS).join('');
  return el('span', { class: 'mono' }, cut.length < body.length ? `${cut}…` : cut);
}
