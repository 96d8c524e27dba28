// The page of recurring schedules: next and last times, what was missed, and pause, resume and fire.
import * as api from './api.js';
import { announce } from './announce.js';
import { now } from './clock.js';
import { el, fill, status } from './dom.js';
import { keepAsking } from './pace.js';
import { drawPager } from './pager.js';
import { go, listHref, queueHref } from './router.js';
import { askAndActOnMany, askAndActOnSchedule } from './schedule_actions.js';
import { scheduleTable } from './schedule_table.js';

const LIMIT = 50;
const EVERY_MS = 2000;
const DAY_MS = 24 * 60 * 60 * 1000;
/** The values of the filter `show`, each with its word. */
const SHOWN = [
  ['', 'All'],
  ['active', 'Active'],
  ['paused', 'Paused'],
  ['missed', 'Missed within a day'],
];

export function schedules(parent, { filters }, signal) {
  const { show = '', q, queue, target, cursor } = filters;
  const verdict = el('div', { class: 'verdict', hidden: true, tabindex: '-1' });
  const table = scheduleTable({ empty: emptyWords(filters), perform: (action, id) => perform(action, id) });
  const pager = el('nav', { class: 'pager', 'aria-label': 'Pages of the list', hidden: true });
  fill(
    parent,
    el(
      'header',
      { class: 'head head-row' },
      el('h1', {}, 'Schedules'),
      el('a', { class: 'button', href: '#/new-schedule' }, 'New schedule'),
    ),
    el('div', { class: 'toolbar' }, tabs(filters), search(filters)),
    note(filters),
    verdict,
    el('div', { class: 'card flush' }, table.element),
    pager,
    bulk(filters, (action) => performOnMany(action)),
  );

  const refresh = keepAsking({
    ask: async () => {
      const wanted = { q, queue, target, cursor, limit: LIMIT };
      if (show === 'active') wanted.paused = 'false';
      if (show === 'paused') wanted.paused = 'true';
      if (show === 'missed') wanted.missed_since = now() - DAY_MS;
      const page = await api.schedules(wanted, signal);
      table.show(page.schedules);
      drawPager(pager, 'schedules', filters, page.next);
    },
    failed: table.fail,
    every: () => EVERY_MS,
    signal,
  });
  const tell = async (id, { level, word, sentence, job }) => {
    verdict.hidden = false;
    const subject = id === null ? null : [el('code', {}, id), ': '];
    const made = job ? [' ', el('a', { href: job }, 'To its job'), '.'] : null;
    fill(verdict, el('p', {}, status(level, word), ' ', subject, sentence, made));
    announce(`${word}. ${sentence}`);
    await refresh();
    verdict.focus();
  };
  const perform = async (action, id) => {
    const said = await askAndActOnSchedule(action, id);
    if (signal.aborted) return;
    if (said === null) table.focus(id, action);
    else await tell(id, said);
  };
  const performOnMany = async (action) => {
    const said = await askAndActOnMany(action, { q, queue, target });
    if (said !== null && !signal.aborted) await tell(null, said);
  };
  return 'Schedules';
}

function emptyWords({ show, q, queue, target, cursor }) {
  if (cursor) return 'This page is now empty.';
  if (q || queue || target) return 'No schedule matches.';
  if (show === 'paused') return 'No schedule is paused.';
  if (show === 'missed') return 'No schedule missed an occurrence within a day.';
  if (show === 'active') return 'No schedule is active.';
  return 'There are no recurring schedules. New schedules appear here.';
}

function tabs({ show = '', q, queue, target }) {
  const tab = ([value, word]) =>
    el('a', { href: listHref('schedules', { show: value, q, queue, target }), 'aria-current': value === show ? 'page' : null }, word);
  return el('nav', { class: 'tabs', 'aria-label': 'Which schedules' }, SHOWN.map(tab));
}

function search({ show, q, queue, target }) {
  const part = el('input', {
    id: 'part',
    name: 'q',
    type: 'search',
    value: q ?? '',
    placeholder: 'report',
    autocomplete: 'off',
    autocapitalize: 'off',
    spellcheck: 'false',
  });
  const form = el(
    'form',
    { class: 'search', role: 'search', 'aria-label': 'By id' },
    el('label', { for: 'part' }, 'Part of the id'),
    part,
    el('button', { type: 'submit', class: 'secondary' }, 'Search'),
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    go(listHref('schedules', { show, q: part.value, queue, target }));
  });
  // The clear button of the search field removes the filter.
  part.addEventListener('search', () => form.requestSubmit());
  return form;
}

/** The filter by queue or target, and a link that removes it; null without such a filter. */
function note({ queue, target, ...rest }) {
  if (!queue && !target) return null;
  return el(
    'p',
    { class: 'filter-note' },
    'Only schedules ',
    ...(queue ? ['of the queue ', el('a', { href: queueHref(queue), class: 'mono' }, queue)] : []),
    ...(queue && target ? [' and '] : []),
    ...(target ? ['for the target ', el('code', {}, target)] : []),
    '. ',
    el('a', { href: listHref('schedules', { ...rest, cursor: '' }) }, 'Show all'),
  );
}

/** Pause and resume of all schedules that match; null where the list has a filter that these calls do not have. */
function bulk({ show, q, queue, target }, perform) {
  if (show === 'missed') return null;
  const which = q || queue || target ? 'all that match' : 'all';
  const button = (action, word) =>
    el('button', { type: 'button', class: 'secondary', on: { click: () => perform(action) } }, `${word} ${which}`);
  return el(
    'div',
    { class: 'buttons', role: 'group', 'aria-label': 'All schedules of the search' },
    show !== 'paused' && button('pause', 'Pause'),
    show !== 'active' && button('resume', 'Resume'),
  );
}
