// The page of a recurring schedule: state, details, next times, headers, body, and the possible actions.
import * as api from './api.js';
import { announce } from './announce.js';
import { bodyOf } from './body.js';
import { moment } from './clock.js';
import { el, fill, setText, status } from './dom.js';
import { bytes, duration, plural } from './format.js';
import { headersOf, valueText } from './headers.js';
import { keepAsking } from './pace.js';
import { jobHref, scheduleHref } from './router.js';
import { askAndActOnSchedule, occurrenceId } from './schedule_actions.js';
import { receiverOf, stateOf } from './schedule_table.js';
import { CATCH_UP, LATE, OVERLAP, SCHEDULE_ACTIONS } from './schedule_words.js';
import { inWords } from './expression.js';
import { timeList } from './time_list.js';

const EVERY_MS = 1000;
/** The number of next times. */
const NEXT = 10;

export function schedule(parent, { id }, signal) {
  const head = el('header', { class: 'head job-head' });
  const verdict = el('div', { class: 'verdict', hidden: true, tabindex: '-1' });
  const button = (action) =>
    el(
      'button',
      { type: 'button', class: SCHEDULE_ACTIONS[action].danger ? 'secondary danger' : 'secondary', on: { click: () => perform(action) } },
      SCHEDULE_ACTIONS[action].button,
    );
  const pause = el('button', { type: 'button', class: 'secondary', on: { click: () => perform(shown?.paused ? 'resume' : 'pause') } });
  const edit = el('a', { class: 'button', href: `${scheduleHref(id)}/edit` }, 'Edit');
  const buttons = el(
    'div',
    { class: 'buttons actions', role: 'group', 'aria-label': 'Actions', hidden: true },
    button('fire'),
    pause,
    edit,
    button('cancel'),
  );
  const facts = el('div', { class: 'facts' }, el('p', { class: 'loading' }, 'Loading…'));
  const times = el('div');
  const headers = el('div');
  const body = el('div');
  const columns = el('div', { class: 'columns' }, facts, el('div', { class: 'aside' }, times, headers, body));
  const title = el('h1', {}, el('span', { class: 'hidden' }, 'Schedule '), el('code', {}, id));
  fill(parent, el('p', { class: 'crumbs' }, el('a', { href: '#/schedules' }, 'Schedules')), title, head, verdict, buttons, columns);

  let bodyOfVersion = null;
  /** The schedule as shown: undefined before the first answer, null if it does not exist. */
  let shown;
  let stamp = '';

  const draw = (found) => {
    const now = JSON.stringify(found);
    if (shown && now === stamp) return;
    const before = shown;
    [shown, stamp] = [found, now];
    parent.classList.remove('over');
    buttons.hidden = false;
    setText(pause, SCHEDULE_ACTIONS[found.paused ? 'resume' : 'pause'].button);
    fill(head, status(...stateOf(found)), ' ', el('span', { class: 'lead' }, lead(found)));
    fill(facts, detailsOf(found));
    fill(times, timesOf(found));
    fill(headers, headersOf(found.headers, 'The jobs have no headers of their own.'));
    if (before && stateOf(before)[1] !== stateOf(found)[1]) announce(`The schedule is now: ${stateOf(found)[1]}.`);
  };
  const gone = (problem) => {
    if (shown === null) return;
    const was = shown !== undefined;
    shown = null;
    parent.classList.add('over');
    buttons.hidden = true;
    const words = was
      ? 'The schedule was ended, or had its last time, after this page was opened. Its last known data is below.'
      : problem.message;
    fill(head, status('off', was ? 'Ended' : 'Not found'), ' ', el('span', { class: 'lead' }, words));
    if (!was)
      fill(
        facts,
        el('p', { class: 'hint' }, 'Ids must match exactly, including upper and lower case.'),
        el('p', { class: 'hint' }, el('a', { href: jobHref(id) }, 'Look for a job with this id')),
      );
    if (was && verdict.hidden) announce('The schedule has ended.');
  };
  const ask = async () => {
    const found = await api.schedule(id, { next: NEXT, signal });
    // The body is requested once: it changes only when the schedule is stored again.
    const version = `${found.created_ms} ${found.size}`;
    if (bodyOfVersion !== version) {
      const { body_base64: text } = await api.schedule(id, { next: 0, body: true, signal });
      fill(body, bodyOf(text ?? '', 'use GET /v1/schedules/ID?body=1.'));
      bodyOfVersion = version;
    }
    draw(found);
  };
  const failed = (problem) => {
    if (problem.status === 404) gone(problem);
    else if (!shown) fill(facts, el('p', { class: 'error' }, `The schedule cannot be loaded now: ${problem.message}`));
  };
  const perform = async (action) => {
    const said = await askAndActOnSchedule(action, id);
    if (said === null || signal.aborted) return;
    verdict.hidden = false;
    fill(
      verdict,
      el('p', {}, status(said.level, said.word), ' ', said.sentence, said.job && [' ', el('a', { href: said.job }, 'To its job'), '.']),
      said.verdict && el('p', { class: 'code' }, 'Verdict: ', el('code', {}, said.verdict)),
    );
    announce(`${said.word}. ${said.sentence}`);
    await refresh();
    verdict.focus();
  };
  const refresh = keepAsking({ ask, failed, every: () => EVERY_MS, signal });
  return `Schedule ${id}`;
}

function lead({ paused, reason, next }) {
  if (paused) return reason ? ['Reason: ', el('span', { class: 'reason' }, reason)] : 'No occurrence is made until the schedule is resumed.';
  return next.length === 0 ? 'There is no further time.' : ['Next ', moment(next[0])];
}

function timesOf(found) {
  const list = found.next.length === 0 ? el('p', { class: 'empty' }, 'There is no further time.') : timeList(found.next, found.time_zone);
  return el(
    'section',
    { class: 'card', 'aria-labelledby': 'times-title' },
    el('h2', { id: 'times-title' }, 'Next times'),
    found.paused && el('p', { class: 'hint' }, 'Nothing is made at these times while the schedule is paused.'),
    list,
  );
}

function detailsOf(found) {
  const fact = (name, ...value) => el('div', {}, el('dt', {}, name), el('dd', {}, ...value));
  const code = (text) => el('code', {}, text);
  const { id, time_zone: zone, last_ms: last, last_missed_ms: lastMissed } = found;
  const words = inWords(found.schedule);
  return el(
    'section',
    { class: 'card', 'aria-labelledby': 'facts-title' },
    el('h2', { id: 'facts-title' }, 'Details'),
    el(
      'dl',
      { class: 'pairs' },
      fact('Times', code(found.schedule), words && el('div', { class: 'hint' }, words)),
      fact('Time zone', zone ?? 'None: elapsed time'),
      found.start !== null && fact('Start', moment(Date.parse(found.start))),
      found.end !== null && fact('End', moment(Date.parse(found.end))),
      found.count !== null && fact('At most', plural(found.count, 'occurrence')),
      found.queue === null ? fact('Target', receiverOf(found)) : fact('Queue', receiverOf(found)),
      found.queue === null && fact('Broker', code(found.broker)),
      found.key !== null && fact('Key', code(valueText(found.key))),
      fact('Made', found.occurrence === 0 ? 'None' : plural(found.occurrence, 'occurrence')),
      last !== null && fact('Last', el('a', { href: jobHref(occurrenceId(id, last)) }, moment(last))),
      fact('Missed', found.missed === 0 ? 'None' : status('warn', plural(found.missed, 'occurrence'))),
      lastMissed !== null && fact('Last missed', moment(lastMissed)),
      fact('When missed', CATCH_UP[found.catch_up] ?? found.catch_up),
      fact('While one is alive', OVERLAP[found.overlap] ?? found.overlap),
      found.spread_ms !== null && fact('Spread', 'Less than ', duration(found.spread_ms), ' later'),
      found.late !== null && fact('If a job is too late', LATE[found.late] ?? found.late),
      found.max_late_ms !== null && fact('Too late after', duration(found.max_late_ms)),
      fact(
        'Retries',
        found.retry.length === 0
          ? 'None: a single attempt'
          : el(
              'span',
              { class: 'waits' },
              found.retry.map((wait) => code(wait)),
            ),
        found.retry_is_default && el('div', { class: 'hint' }, 'As in the settings'),
      ),
      fact('Confirmed by', found.confirm === 'consumer' || found.queue !== null ? 'The consumer' : 'The broker'),
      fact(found.queue === null ? 'Time to run' : 'Lease', duration(found.ttr_ms)),
      fact('Stored', moment(found.created_ms)),
      fact('Size', bytes(found.size)),
    ),
  );
}
