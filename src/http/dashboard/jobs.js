// The page of scheduled or reserved jobs, filtered by target and due time.
import * as api from './api.js';
import { el, fill, setText } from './dom.js';
import { absolute, count } from './format.js';
import { jobTable } from './job_table.js';
import { live, onNews } from './live.js';
import { keepAsking } from './pace.js';
import { drawPager } from './pager.js';
import { go, listHref } from './router.js';
import { targetSearch } from './target_search.js';

const LIMIT = 50;
const EVERY_MS = 2000;

export function jobs(parent, { filters }, signal) {
  const state = filters.state === 'reserved' ? 'reserved' : 'scheduled';
  const table = jobTable({
    caption: state === 'reserved' ? 'Reserved jobs' : 'Scheduled jobs, by due time',
    empty: emptyWords(state, filters),
  });
  const pager = el('nav', { class: 'pager', 'aria-label': 'Pages of the list', hidden: true });
  fill(
    parent,
    el('header', { class: 'head' }, el('h1', {}, 'Jobs')),
    el('div', { class: 'toolbar' }, states(state, filters, signal), search(state, filters)),
    windowNote(filters),
    el('div', { class: 'card flush' }, table.element),
    pager,
  );

  keepAsking({
    ask: async () => {
      const { target, from, to, cursor } = filters;
      const page = await api.list({ state, target, from, to, cursor, limit: LIMIT }, signal);
      table.show(page.jobs);
      drawPager(pager, 'jobs', filters, page.next);
    },
    failed: table.fail,
    every: () => EVERY_MS,
    signal,
  });
  return 'Jobs';
}

function emptyWords(state, { target, from, to, cursor }) {
  if (cursor) return 'This page is now empty.';
  if (target || from || to) return 'No job matches. A target must match exactly, as in delay-target.';
  return state === 'reserved'
    ? 'No attempt is in flight now.'
    : 'No jobs are scheduled. New requests appear here.';
}

/** A link for each state, with its number of jobs. */
function states(current, { target }, signal) {
  const link = (state, href, text) => {
    const number = el('span', { class: 'count' });
    return [number, el('a', { href, 'aria-current': state === current ? 'page' : null }, text, ' ', number)];
  };
  const [scheduled, scheduledLink] = link('scheduled', listHref('jobs', { target }), 'Scheduled');
  const [reserved, reservedLink] = link('reserved', listHref('jobs', { state: 'reserved', target }), 'Reserved');
  const [dead, deadLink] = link('dead', listHref('dead', { target }), 'Dead');
  const draw = () => {
    if (!live.stats) return;
    setText(scheduled, count(live.stats.scheduled));
    setText(reserved, count(live.stats.reserved));
    setText(dead, count(live.stats.dead));
  };
  onNews(draw, signal);
  draw();
  return el('nav', { class: 'tabs', 'aria-label': 'States' }, scheduledLink, reservedLink, deadLink);
}

function search(state, { target, from, to }) {
  return targetSearch(target, (wanted) => go(listHref('jobs', { state: state === 'reserved' ? state : '', target: wanted, from, to })));
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
