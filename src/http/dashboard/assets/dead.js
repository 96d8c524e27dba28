// The page of dead letters: their reasons, and requeue for selected ones or all.
import * as api from './api.js';
import { ask } from './confirm.js';
import { el, fill, setText } from './dom.js';
import { count, plural } from './format.js';
import { jobTable } from './job_table.js';
import { live } from './live.js';
import { keepAsking } from './pace.js';
import { drawPager } from './pager.js';
import { queueNote } from './queue_note.js';
import { everyDead, requeueAll } from './requeue.js';
import { go, listHref } from './router.js';
import { targetSearch } from './target_search.js';
import { reasonWord } from './words.js';

const LIMIT = 50;
const EVERY_MS = 2000;

export function dead(parent, { filters }, signal) {
  let busyRequeuing = false;
  const some = el('button', { type: 'button', class: 'primary', disabled: true }, 'Requeue selected');
  const { target, queue } = filters;
  const all = el('button', { type: 'button', class: 'secondary' }, `Requeue all${queue ? ' of this queue' : target ? ' for this target' : ''}`);
  const everyBox = el('input', { type: 'checkbox', id: 'every' });
  const every = el('span', { class: 'tick-all' }, everyBox, el('label', { for: 'every' }, 'Select this page'));
  const table = jobTable({
    caption: 'Dead letters',
    empty: queue
      ? 'The queue has no dead jobs.'
      : target
        ? 'No dead letters for this target.'
        : 'There are no dead letters. A job that has failed for good appears here with its reason.',
    dead: true,
    select: () => drawPicked(),
  });
  const drawPicked = () => {
    const [picked, here] = [table.picked.size, table.jobs().length];
    some.disabled = picked === 0 || busyRequeuing;
    all.disabled = busyRequeuing;
    some.textContent = picked === 0 ? 'Requeue selected' : `Requeue ${plural(picked, 'job')}`;
    everyBox.checked = picked > 0 && picked === here;
    everyBox.indeterminate = picked > 0 && picked < here;
    toolbar.hidden = here === 0 && !target && !queue;
  };
  const search = targetSearch(target, (wanted) => go(listHref('dead', { target: wanted, queue })));
  const toolbar = el('div', { class: 'toolbar' }, el('div', { class: 'buttons' }, every, some, all), search);
  const reasons = el('p', { class: 'reasons' });
  const progress = el('div', { class: 'progress-of' });
  const pager = el('nav', { class: 'pager', 'aria-label': 'Pages of the list', hidden: true });
  fill(
    parent,
    el('header', { class: 'head' }, el('h1', {}, 'Dead letters'), reasons),
    queueNote('dead', filters),
    toolbar,
    progress,
    el('div', { class: 'card flush' }, table.element),
    pager,
  );

  everyBox.addEventListener('change', () => table.pick(everyBox.checked ? table.jobs().map((job) => job.id) : []));
  const requeue = async (title, ids) => {
    const yes = await ask({
      title,
      text: 'Each job becomes due now. Its attempts count from 1 again.',
      confirm: 'Requeue',
      act: async () => true,
    });
    if (!yes) return;
    busyRequeuing = true;
    drawPicked();
    try {
      await requeueAll(progress, ids(), signal);
    } finally {
      busyRequeuing = false;
      table.pick([]);
      await refresh();
    }
  };
  some.addEventListener('click', () => {
    const picked = [...table.picked];
    requeue(`Requeue ${plural(picked.length, 'dead letter')}?`, () => ({ total: picked.length, ids: picked }));
  });
  all.addEventListener('click', () => {
    const known = target || queue ? null : (live.stats?.dead ?? null);
    const title = target || queue
      ? `Requeue every dead letter ${queue ? `of the queue ${queue}` : `for ${target}`}?`
      : known === null
        ? 'Requeue every dead letter?'
        : `Requeue ${known === 1 ? 'the one dead letter' : `all ${count(known)} dead letters`}?`;
    requeue(title, () => ({ total: known, ids: everyDead({ target, queue }, signal) }));
  });

  const refresh = keepAsking({
    ask: async () => {
      const page = await api.list({ state: 'dead', target, queue, cursor: filters.cursor, limit: LIMIT }, signal);
      table.show(page.jobs);
      drawReasons(reasons, page);
      drawPager(pager, 'dead', filters, page.next);
    },
    failed: table.fail,
    every: () => EVERY_MS,
    signal,
  });
  return 'Dead letters';
}

function drawReasons(parent, { jobs, next }) {
  const by = new Map();
  for (const { dead_reason: reason } of jobs) by.set(reason, (by.get(reason) ?? 0) + 1);
  const words = [...by]
    .sort((a, b) => b[1] - a[1])
    .map(([reason, number]) => `${count(number)} ${reasonWord(reason).toLowerCase()}`);
  setText(parent, words.length === 0 ? '' : `${next ? 'On this page: ' : ''}${words.join(', ')}.`);
}
