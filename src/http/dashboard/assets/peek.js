// The table of the ready jobs of a queue, with the begin of each body.
import { moment } from './clock.js';
import { el, fill, reconcile } from './dom.js';
import { bytes } from './format.js';
import { jobHref } from './router.js';

/** The most letters of a body that are shown. */
const MOST = 160;

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
  const body = el('tbody', { role: 'rowgroup' });
  const table = el(
    'table',
    { class: 'jobs', role: 'table', hidden: true },
    el('caption', { class: 'hidden' }, 'Ready jobs, the oldest first'),
    el(
      'thead',
      { role: 'rowgroup' },
      el(
        'tr',
        { role: 'row' },
        COLUMNS.map((column) => el('th', { role: 'columnheader', scope: 'col', class: column.class }, column.head)),
      ),
    ),
    body,
  );
  const message = el('p', { class: 'empty' }, 'Loading…');
  const show = (jobs, words = 'No job is ready.') => {
    reconcile(body, jobs, { key: (job) => job.id, stamp: (job) => JSON.stringify([job.due_ms, job.attempt, job.body ?? job.body_base64]), make });
    table.hidden = jobs.length === 0;
    message.hidden = jobs.length > 0;
    if (jobs.length === 0) fill(message, words);
  };
  const fail = (problem) => show([], problem.message);
  return { element: el('div', { class: 'table' }, table, message), show, fail };
}

function make(job) {
  const cell = (column) =>
    el(
      column.rowHead ? 'th' : 'td',
      {
        role: column.rowHead ? 'rowheader' : 'cell',
        scope: column.rowHead ? 'row' : null,
        class: column.class,
        data: { head: column.head },
      },
      column.cell(job),
    );
  return el('tr', { role: 'row' }, COLUMNS.map(cell));
}

/** The begin of a body; of a body that is not text, its size. */
function bodyOf(job) {
  const { body, body_base64: base64 } = job;
  if (body === undefined) return `${bytes(atob(base64).length)} that are not text`;
  if (body === '') return '–';
  // By code points, so that no letter is cut in half.
  const letters = [...body.slice(0, 2 * MOST)];
  const cut = letters.slice(0, MOST).join('');
  return el('span', { class: 'mono' }, cut.length < body.length ? `${cut}…` : cut);
}
