// The page of queues: the jobs of each by state, its oldest ready job, who waits, and whether it is paused.
import * as api from './api.js';
import { moment } from './clock.js';
import { el, fill, reconcile, setText, status } from './dom.js';
import { count, plural } from './format.js';
import { keepAsking } from './pace.js';
import { listHref, queueHref } from './router.js';
import { tableOf } from './table.js';

const EVERY_MS = 2000;

const number = (name, head) => ({ head, class: 'number', cell: (queue) => numberOf(queue, name) });
const COLUMNS = [
  {
    head: 'Queue',
    class: 'id',
    rowHead: true,
    cell: ({ queue }) => el('a', { href: queueHref(queue), class: 'mono', data: { focus: 'queue' } }, queue),
  },
  { head: 'State', class: 'state', cell: (queue) => status(...stateOf(queue)) },
  number('scheduled', 'Scheduled'),
  number('ready', 'Ready'),
  { head: 'Oldest ready', class: 'due', cell: ({ oldest_ready_ms: at }) => (at === null ? '–' : moment(at)) },
  number('reserved', 'Reserved'),
  number('dead', 'Dead'),
  { head: 'Waiting', class: 'number', cell: (queue) => count(queue.waiting) },
];

/** The level and the word for a queue. */
export function stateOf({ paused, ready, waiting }) {
  if (paused) return ['warn', 'Paused'];
  if (waiting > 0) return ['ok', 'Consumers wait'];
  return ready > 0 ? ['info', 'Has ready jobs'] : ['off', 'Nothing ready'];
}

/** The address of the jobs of a queue in a state. */
export function jobsHref(queue, state) {
  if (state === 'dead') return listHref('dead', { queue });
  return listHref('jobs', { state: state === 'scheduled' ? '' : state, queue });
}

function numberOf(queue, state) {
  return queue[state] === 0 ? '0' : el('a', { href: jobsHref(queue.queue, state), data: { focus: state } }, count(queue[state]));
}

export function queues(parent, _, signal) {
  const said = el('p', { class: 'reasons' });
  const { element, table, body, message, row } = tableOf({ columns: COLUMNS, caption: 'Queues, by name', kind: 'jobs queues' });
  fill(
    parent,
    el('header', { class: 'head' }, el('h1', {}, 'Queues'), said),
    el('div', { class: 'card flush' }, element),
    el('p', { class: 'hint' }, 'Waiting: consumers whose pop waits at the instance that answers this page.'),
  );

  const show = (found) => {
    reconcile(body, found, { key: ({ queue }) => queue, stamp: (queue) => JSON.stringify(queue), make: row });
    table.hidden = found.length === 0;
    message.hidden = found.length > 0;
    message.classList.remove('error');
    if (found.length === 0)
      fill(message, 'There are no queues. Declare one in the settings, as ', el('code', {}, '[queues.emails]'), '.');
    setText(said, sentence(found));
  };
  keepAsking({
    ask: async () => show((await api.queues(signal)).queues),
    failed: (problem) => {
      if (!table.hidden) return;
      message.classList.add('error');
      fill(message, `The queues cannot be loaded now: ${problem.message}`);
    },
    every: () => EVERY_MS,
    signal,
  });
  return 'Queues';
}

function sentence(found) {
  if (found.length === 0) return '';
  const ready = found.reduce((sum, queue) => sum + queue.ready, 0);
  const paused = found.filter((queue) => queue.paused).length;
  const points = [plural(found.length, 'queue'), ready === 0 ? 'nothing ready' : plural(ready, 'ready job')];
  if (paused > 0) points.push(`${count(paused)} paused`);
  return `${points.join(', ')}.`;
}
