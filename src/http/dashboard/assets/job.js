// The page of a job: state, details, headers, body, last error, and the possible actions.
import * as api from './api.js';
import { announce } from './announce.js';
import { askAndAct } from './actions.js';
import { bodyOf } from './body.js';
import { moment } from './clock.js';
import { el, fill, status } from './dom.js';
import { bytes, count, duration, plural } from './format.js';
import { headersOf, valueText } from './headers.js';
import { stateOf, targetOf } from './job_table.js';
import { keepAsking } from './pace.js';
import { queueHref, scheduleHref } from './router.js';
import { ACTIONS, REASONS, verdictWords } from './words.js';

const EVERY_MS = 1000;

export function job(parent, { id }, signal) {
  const head = el('header', { class: 'head job-head' });
  const buttons = el('div', { class: 'buttons actions', role: 'group', 'aria-label': 'Actions' });
  const verdict = el('div', { class: 'verdict', hidden: true, tabindex: '-1' });
  const facts = el('div', { class: 'facts' });
  const headers = el('div');
  const body = el('div');
  const aside = el('div', { class: 'aside' }, headers, body);
  const title = el('h1', {}, el('span', { class: 'hidden' }, 'Job '), el('code', {}, id));
  const columns = el('div', { class: 'columns' }, facts, aside);
  fill(parent, el('p', { class: 'crumbs' }, el('a', { href: '#/jobs' }, 'Jobs')), title, head, verdict, buttons, columns);
  fill(facts, el('p', { class: 'loading' }, 'Loading…'));

  let bodyOfSize = null;
  /** The job as shown: undefined before the first answer, null if the job does not exist. */
  let shown;
  let stamp = '';

  const draw = (found) => {
    // The shown state depends on the time, too.
    const now = JSON.stringify([found, stateOf(found)]);
    if (shown && now === stamp) return;
    const before = shown;
    [shown, stamp] = [found, now];
    parent.classList.remove('over');
    fill(head, status(...stateOf(found)), ' ', el('span', { class: 'lead' }, lead(found)));
    drawButtons(buttons, found, perform);
    fill(facts, errorOf(found), detailsOf(found));
    fill(headers, headersOf(found.headers, 'The job has no headers.'));
    if (before && stateOf(before)[1] !== stateOf(found)[1]) announce(`The job is now: ${stateOf(found)[1]}.`);
  };
  const gone = () => {
    if (shown === null) return;
    const was = shown !== undefined;
    shown = null;
    parent.classList.add('over');
    fill(buttons);
    fill(
      head,
      status('off', was ? 'Gone' : 'Not found'),
      ' ',
      el(
        'span',
        { class: 'lead' },
        was
          ? 'The job was published, finished or cancelled after this page was opened. Its last known data is below.'
          : 'There is no job with this id. Published, finished and cancelled jobs are not kept.',
      ),
    );
    if (!was)
      fill(
        facts,
        el('p', { class: 'hint' }, 'Ids must match exactly, including upper and lower case.'),
        el('p', { class: 'hint' }, el('a', { href: scheduleHref(id) }, 'Look for a recurring schedule with this id')),
      );
    if (was && verdict.hidden) announce('The job is gone.');
  };
  const ask = async () => {
    const found = await api.show(id, { signal });
    // The body is requested once: it changes only when the job is replaced.
    if (bodyOfSize !== `${found.created_ms} ${found.size}`) {
      const { body_base64: text } = await api.show(id, { body: true, signal });
      fill(body, bodyOf(text ?? ''));
      bodyOfSize = `${found.created_ms} ${found.size}`;
    }
    draw(found);
  };
  const failed = (problem) => {
    if (problem.status === 404) gone();
    else if (!shown) fill(facts, el('p', { class: 'error' }, `The job cannot be loaded now: ${problem.message}`));
  };
  const perform = async (action) => {
    const answer = await askAndAct(action, id, shown?.queue);
    if (answer === null || signal.aborted) return;
    const [level, word, sentence] = verdictWords(action, answer.verdict);
    verdict.hidden = false;
    fill(
      verdict,
      el(
        'p',
        {},
        status(level, word),
        ' ',
        sentence,
        answer.due_ms !== null && ['reschedule', 'fire'].includes(action) ? [' Due ', moment(answer.due_ms), '.'] : null,
      ),
      el('p', { class: 'code' }, 'Verdict: ', el('code', {}, answer.verdict)),
    );
    announce(`${word}. ${sentence}`);
    await refresh();
    verdict.focus();
  };
  const refresh = keepAsking({ ask, failed, every: () => EVERY_MS, signal });
  return `Job ${id}`;
}

function lead(found) {
  if (found.state === 'dead') return (REASONS[found.dead_reason] ?? [])[1] ?? 'The job is kept until its retention ends.';
  if (found.state === 'ready') return ['Ready to be fetched; due ', moment(found.due_ms)];
  if (found.queue && found.state === 'reserved') return ['A consumer has the job. Its lease ends ', moment(found.deadline_ms ?? found.due_ms), '.'];
  if (found.awaiting_finish)
    return ['Published, waiting for the consumer to finish or fail it. Time-out ', moment(found.deadline_ms ?? found.due_ms), '.'];
  if (found.state === 'reserved')
    return ['An attempt is in flight', found.deadline_ms === null ? '.' : ['. Time-out ', moment(found.deadline_ms), '.']].flat(2);
  return [found.attempt > 0 ? `Next attempt, number ${count(found.attempt + 1)}, ` : 'Due ', moment(found.due_ms)];
}

/** The actions that are possible in the state of this job. */
function possible(found) {
  if (found.state === 'dead') return ['requeue', 'finish', 'cancel'];
  if (found.awaiting_finish) return ['finish', 'fail', 'cancel'];
  if (found.state === 'reserved') return ['cancel'];
  if (found.state === 'ready') return ['reschedule', ...(found.attempt > 0 ? ['finish'] : []), 'cancel'];
  return ['fire', 'reschedule', ...(found.attempt > 0 ? ['finish'] : []), 'cancel'];
}

function drawButtons(parent, found, perform) {
  const wanted = possible(found);
  if (parent.dataset.wanted === wanted.join() && parent.children.length > 0) return;
  parent.dataset.wanted = wanted.join();
  const held = document.activeElement?.dataset?.action;
  fill(
    parent,
    wanted.map((action, at) =>
      el(
        'button',
        {
          type: 'button',
          class: ACTIONS[action].danger ? 'secondary danger' : at === 0 ? 'primary' : 'secondary',
          data: { action },
          on: { click: () => perform(action) },
        },
        ACTIONS[action].button,
      ),
    ),
  );
  if (held) (parent.querySelector(`[data-action="${held}"]`) ?? parent.firstElementChild).focus();
}

function errorOf(found) {
  if (!found.last_error) return null;
  return el(
    'section',
    { class: 'card trouble', 'aria-labelledby': 'error-title' },
    el('h2', { id: 'error-title' }, 'Last error'),
    el('p', { class: 'mono' }, found.last_error),
  );
}

function detailsOf(found) {
  const fact = (name, ...value) => el('div', {}, el('dt', {}, name), el('dd', {}, ...value));
  const code = (text) => el('code', {}, text);
  const schedule = scheduleOf(found);
  const due = { dead: 'Was due', reserved: 'Was due', ready: 'Due', scheduled: found.attempt > 0 ? 'Next attempt' : 'Due' }[found.state];
  return el(
    'section',
    { class: 'card', 'aria-labelledby': 'facts-title' },
    el('h2', { id: 'facts-title' }, 'Details'),
    el(
      'dl',
      { class: 'pairs' },
      fact(due, moment(found.due_ms)),
      found.queue
        ? fact('Queue', el('a', { href: queueHref(found.queue) }, code(found.queue)))
        : fact('Target', code(targetOf(found))),
      ...(found.queue ? [] : [fact('Broker', code(found.broker))]),
      schedule !== null && fact('Schedule', el('a', { href: scheduleHref(schedule) }, code(schedule)), `, number ${found.headers['delayed-occurrence']}`),
      found.key !== null && fact('Key', code(valueText(found.key))),
      fact('Attempts', found.attempt === 0 ? 'None' : plural(found.attempt, 'attempt started', 'attempts started')),
      fact(
        'Retries',
        found.retry.length === 0
          ? 'None: a single attempt'
          : el(
              'span',
              { class: 'waits' },
              found.retry.map((wait) => el('code', {}, wait)),
            ),
      ),
      fact('Confirmed by', found.confirm === 'consumer' || found.queue ? 'The consumer' : 'The broker'),
      fact(found.queue ? 'Lease' : 'Time to run', duration(found.ttr_ms)),
      found.deadline_ms !== null && fact('Time-out', moment(found.deadline_ms)),
      found.died_ms !== undefined && fact('Died', moment(found.died_ms)),
      found.dead_reason && fact('Reason', status('bad', (REASONS[found.dead_reason] ?? [found.dead_reason])[0])),
      fact('Accepted', moment(found.created_ms)),
      fact('Size', bytes(found.size)),
    ),
  );
}

/** The id of the schedule whose occurrence the job is; null for other jobs. */
function scheduleOf({ id, headers }) {
  const schedule = headers['delayed-schedule'];
  return typeof schedule === 'string' && id.startsWith(`${schedule}@`) ? schedule : null;
}
