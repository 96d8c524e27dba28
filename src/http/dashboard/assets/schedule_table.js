// A table of recurring schedules. Refreshes keep the focus.
import { moment } from './clock.js';
import { el, fill, reconcile, status } from './dom.js';
import { count } from './format.js';
import { inWords } from './expression.js';
import { targetOf } from './job_table.js';
import { jobHref, queueHref, scheduleHref } from './router.js';
import { occurrenceId } from './schedule_actions.js';
import { SCHEDULE_ACTIONS } from './schedule_words.js';
import { tableOf } from './table.js';

const COLUMNS = [
  {
    head: 'Id',
    class: 'id',
    rowHead: true,
    cell: ({ id }) => el('a', { href: scheduleHref(id), class: 'mono', data: { focus: 'id' } }, id),
  },
  { head: 'Times', class: 'times', cell: timesOf },
  { head: 'Target', class: 'target', cell: receiverOf },
  { head: 'Next', class: 'due next-time', cell: nextOf },
  { head: 'Last', class: 'due last-time', cell: lastOf },
  { head: 'Missed', class: 'missed', cell: missedOf },
];

/** The level and the word for a schedule. */
export function stateOf({ paused, next }) {
  if (paused) return ['warn', 'Paused'];
  return next.length === 0 ? ['off', 'No further time'] : ['ok', 'Active'];
}

/** A schedule's queue or target, each as its page links to it. */
export function receiverOf(schedule) {
  const { queue } = schedule;
  if (queue === null) return el('span', { class: 'mono' }, targetOf(schedule));
  return el('a', { href: queueHref(queue), class: 'mono', data: { focus: 'queue' } }, queue);
}

/**
 * Creates the table. `perform`: called with an action and an id. In the result, `show(schedules)` fills the table,
 * `fail(problem)` shows why the schedules could not be loaded, and `focus(id, action)` moves the focus to a button.
 */
export function scheduleTable({ empty, perform }) {
  const actions = ({ id, paused }) => el('div', { class: 'buttons' }, [paused ? 'resume' : 'pause', 'fire'].map((action) => button(action, id)));
  const columns = [...COLUMNS, { head: 'Actions', class: 'row-actions', bare: true, cell: actions }];
  const { element, table, body, message, row } = tableOf({ columns, caption: 'Recurring schedules, by id', kind: 'jobs schedules' });
  const button = (action, id) =>
    el(
      'button',
      {
        type: 'button',
        class: 'secondary small',
        // The place of the button, so that the focus stays when a pause becomes a resume.
        data: { focus: placeOf(action) },
        'aria-label': `${SCHEDULE_ACTIONS[action].button} ${id}`,
        on: { click: () => perform(action, id) },
      },
      SCHEDULE_ACTIONS[action].button,
    );
  const show = (found) => {
    reconcile(body, found, { key: ({ id }) => id, stamp: stampOf, make: row });
    table.hidden = found.length === 0;
    message.hidden = found.length > 0;
    message.classList.remove('error');
    if (found.length === 0) fill(message, empty);
  };
  const fail = (problem) => {
    // Outdated rows are better than none.
    if (!table.hidden) return;
    message.hidden = false;
    message.classList.add('error');
    fill(message, `The schedules cannot be loaded now: ${problem.message}`);
  };
  const focus = (id, action) => {
    const found = [...body.children].find((child) => child.dataset.key === id);
    found?.querySelector(`[data-focus="${placeOf(action)}"]`)?.focus();
  };
  return { element, show, fail, focus };
}

const placeOf = (action) => (action === 'fire' ? 'fire' : 'pause');

/** All that the row shows of a schedule. */
function stampOf(schedule) {
  const { schedule: expression, time_zone: zone, next, paused, reason, last_ms: last, missed, last_missed_ms: lastMissed } = schedule;
  return JSON.stringify([expression, zone, next[0], paused, reason, last, missed, lastMissed, schedule.queue, schedule.exchange, schedule.target]);
}

function timesOf({ schedule, time_zone: zone }) {
  const words = inWords(schedule);
  return [el('code', {}, schedule), zone && [' ', el('span', { class: 'zone' }, zone)], words && el('div', { class: 'words' }, words)].flat();
}

function nextOf({ next, paused, reason }) {
  if (paused) return [status('warn', 'Paused'), reason && el('div', { class: 'reason' }, reason)];
  return next.length === 0 ? '–' : moment(next[0]);
}

function lastOf({ id, last_ms: last }) {
  return last === null ? '–' : el('a', { href: jobHref(occurrenceId(id, last)), data: { focus: 'last' } }, moment(last));
}

function missedOf({ missed, last_missed_ms: last }) {
  if (missed === 0) return '0';
  return [status('warn', count(missed)), last !== null && el('div', { class: 'newest' }, moment(last))];
}
