// The page of scheduled, ready or reserved jobs, filtered by target, queue and due time.
import * as api from './api.js';
import { el, fill, setText } from './dom.js';
import { absolute, count } from './format.js';
import { jobTable } from './job_table.js';
import { live, onNews } from './live.js';
import { keepAsking } from './pace.js';
import { drawPager } from './pager.js';
import { queueNote } from './queue_note.js';
import { go, listHref } from './router.js';
import { targetSearch } from './target_search.js';

const LIMIT = 50;
const EVERY_MS = 2000;
const CAPTIONS = {
  scheduled: 'Scheduled jobs, by due time',
  ready: 'Ready jobs of queues, by due time',
  reserved: 'Reserved jobs',
};

export function jobs(parent, { filters }, signal) {
  const state = CAPTIONS[filters.state] ? filters.state : 'scheduled';
  const table = jobTable({
    caption: CAPTIONS[state],
    empty: emptyWords(state, filters),
  });
  const pager = el('nav', { class: 'pager', 'aria-label': 'Pages of the list', hidden: true });
  fill(
    parent,
    el('header', { class: 'head' }, el('h1', {}, 'Jobs')),
    el('div', { class: 'toolbar' }, states(state, filters, signal), search(state, filters)),
    windowNote(filters),
    queueNote('jobs', filters),
    el('div', { class: 'card flush' }, table.element),
    pager,
  );

  keepAsking({
    ask: async () => {
      const { target, queue, from, to, cursor } = filters;
      const page = await api.list({ state, target, queue, from, to, cursor, limit: LIMIT }, signal);
      table.show(page.jobs);
      drawPager(pager, 'jobs', filters, page.next);
    },
    failed: table.fail,
    every: () => EVERY_MS,
    signal,
  });
  return 'Jobs';
}

function emptyWords(state, { target, queue, from, to, cursor }) {
  if (cursor) return 'This page is now empty.';
  if (queue && !target && !from && !to) return `The queue has no ${state} jobs now.`;
  if (target || from || to) return 'No job matches. A target must match exactly, as in delay-target.';
  if (state === 'ready') return 'No job of a queue is ready now.';
  return state === 'reserved'
    ? 'No attempt is in flight now, and no consumer has a job.'
    : 'No jobs are scheduled. New requests appear here.';
}

/** A link for each state, with its number of jobs. */
function states(current, { target, queue }, signal) {
  const link = (state, href, text) => {
    const number = el('span', { class: 'count' });
    return [number, el('a', { href, 'aria-current': state === current ? 'page' : null }, text, ' ', number)];
  };
  const [scheduled, scheduledLink] = link('scheduled', listHref('jobs', { target, queue }), 'Scheduled');
  const [ready, readyLink] = link('ready', listHref('jobs', { state: 'ready', target, queue }), 'Ready');
  const [reserved, reservedLink] = link('reserved', listHref('jobs', { state: 'reserved', target, queue }), 'Reserved');
  const [dead, deadLink] = link('dead', listHref('dead', { target, queue }), 'Dead');
  readyLink.hidden = current !== 'ready' && !queue;
  const draw = () => {
    if (!live.stats) return;
    // Only queues have ready jobs.
    if (live.stats.ready > 0) readyLink.hidden = false;
    setText(scheduled, count(live.stats.scheduled));
    setText(ready, count(live.stats.ready));
    setText(reserved, count(live.stats.reserved));
    setText(dead, count(live.stats.dead));
  };
  onNews(draw, signal);
  draw();
  return el('nav', { class: 'tabs', 'aria-label': 'States' }, scheduledLink, readyLink, reservedLink, deadLink);
}

function search(state, { target, queue, from, to }) {
  const kept = { state: state === 'scheduled' ? '' : state, queue, from, to };
  return targetSearch(target, (wanted) => go(listHref('jobs', { ...kept, target: wanted })));
}

/** The filter by due time and a link that removes it; null without such a filter. */
function windowNote({ from, to, ...rest }) {
  if (!from && !to) return null;
  const at = (ms) => absolute(Number(ms), Date.now());
  const span = from && to ? `from ${at(from)} until ${at(to)}` : from ? `from ${at(from)} on` : `until ${at(to)}`;
  return el(
    'p',
    { class: 'filter-note' },
    `Only jobs due ${span}. `,
    el('a', { href: listHref('jobs', { ...rest, cursor: '' }) }, 'Show all'),
  );
}
