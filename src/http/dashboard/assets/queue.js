// The page of a queue: its counts, its ready jobs with their bodies, pause and resume, and purge.
import * as api from './api.js';
import { announce } from './announce.js';
import { moment } from './clock.js';
import { ask } from './confirm.js';
import { el, fill, setText, status } from './dom.js';
import { count, plural } from './format.js';
import { keepAsking } from './pace.js';
import { peekTable } from './peek.js';
import { jobsHref, stateOf } from './queues.js';
import { listHref } from './router.js';

const EVERY_MS = 2000;
const STATES = [
  ['scheduled', 'scheduled'],
  ['ready', 'ready'],
  ['reserved', 'reserved'],
  ['dead', 'dead'],
];
/** The states whose jobs a purge removes: nobody holds them. */
const PURGED = [
  ['scheduled', 'Scheduled: due later, or waiting for a retry'],
  ['ready', 'Ready: due, and not fetched'],
  ['dead', 'Dead: failed for good'],
];

export function queue(parent, { id: name }, signal) {
  const head = el('header', { class: 'head job-head' });
  const verdict = el('div', { class: 'verdict', hidden: true, tabindex: '-1' });
  const pause = el('button', { type: 'button', class: 'secondary', hidden: true });
  const purge = el('button', { type: 'button', class: 'secondary danger', hidden: true }, 'Purge');
  const buttons = el('div', { class: 'buttons actions', role: 'group', 'aria-label': 'Actions' }, pause, purge);
  const [figures, drawFigures] = counts(name);
  const ready = peekTable();
  const schedules = el('p', { class: 'hint' }, el('a', { href: listHref('schedules', { queue: name }) }, 'Schedules of this queue'));
  const facts = el('section', { class: 'card', 'aria-labelledby': 'counts-title' }, el('h2', { id: 'counts-title' }, 'Jobs'), figures, schedules);
  const peek = el('section', { class: 'card flush', 'aria-labelledby': 'peek-title' }, ready.element);
  fill(
    parent,
    el('p', { class: 'crumbs' }, el('a', { href: '#/queues' }, 'Queues')),
    el('h1', {}, el('span', { class: 'hidden' }, 'Queue '), el('code', {}, name)),
    head,
    verdict,
    buttons,
    facts,
    el('h2', { id: 'peek-title' }, 'Next to be handed out'),
    peek,
  );

  let shown = null;
  let stamp = '';
  const draw = (found) => {
    const now = JSON.stringify([found.paused, found.waiting, found.oldest_ready_ms, stateOf(found)]);
    if (now !== stamp) fill(head, status(...stateOf(found)), ' ', el('span', { class: 'lead' }, lead(found)));
    [shown, stamp] = [found, now];
    pause.hidden = false;
    purge.hidden = false;
    facts.hidden = false;
    setText(pause, found.paused ? 'Resume' : 'Pause');
    pause.className = found.paused ? 'primary' : 'secondary';
    drawFigures(found);
  };
  const gone = (problem) => {
    [shown, stamp] = [null, ''];
    fill(head, status('off', 'Unknown'), ' ', el('span', { class: 'lead' }, problem.message));
    pause.hidden = true;
    purge.hidden = true;
    facts.hidden = true;
    ready.fail(problem);
  };
  const refresh = keepAsking({
    ask: async () => {
      const [found, peeked] = await Promise.all([api.queue(name, signal), api.peek(name, signal)]);
      draw(found);
      ready.show(peeked.jobs);
    },
    failed: (problem) => {
      if (problem.status === 404) return gone(problem);
      // Outdated counts are better than none.
      if (shown) return;
      fill(head, el('span', { class: 'error' }, 'The queue cannot be loaded now.'));
      ready.fail(problem);
    },
    every: () => EVERY_MS,
    signal,
  });
  const tell = async (level, word, sentence) => {
    verdict.hidden = false;
    fill(verdict, el('p', {}, status(level, word), ' ', sentence));
    announce(`${word}. ${sentence}`);
    await refresh();
    verdict.focus();
  };

  pause.addEventListener('click', async () => {
    const answer = await askToPause(name, shown.paused);
    if (answer === null || signal.aborted) return;
    await tell(
      ...(answer.paused
        ? ['warn', 'Paused', 'Consumers get no jobs until the queue is resumed.']
        : ['ok', 'Resumed', 'Ready jobs are handed out again.']),
    );
  });
  purge.addEventListener('click', async () => {
    const answer = await askToPurge(name, shown);
    if (answer === null || signal.aborted) return;
    await tell('ok', 'Purged', answer.removed === 0 ? 'There was no such job.' : `${plural(answer.removed, 'job')} removed.`);
  });
  return `Queue ${name}`;
}

function lead({ paused, oldest_ready_ms: oldest, waiting }) {
  const who = waiting === 0 ? 'no consumer waits' : `${plural(waiting, 'consumer waits', 'consumers wait')}`;
  const jobs = oldest === null ? ['Nothing is ready'] : ['The oldest ready job was due ', moment(oldest)];
  return [...jobs, `; ${who} at this instance${paused ? '. Nothing is handed out.' : '.'}`];
}

/** The number of jobs in each state, each a link to the list. */
function counts(name) {
  const values = new Map(STATES.map(([state]) => [state, el('span', { class: 'value' }, '–')]));
  const list = el(
    'ul',
    { class: 'figures' },
    STATES.map(([state, label]) =>
      el('li', {}, el('a', { class: 'figure', href: jobsHref(name, state) }, values.get(state), ' ', el('span', { class: 'label' }, label))),
    ),
  );
  return [list, (found) => values.forEach((value, state) => setText(value, count(found[state])))];
}

const subject = (name) => el('p', { class: 'subject' }, el('code', {}, name));

function askToPause(name, isPaused) {
  const [action, title, text] = isPaused
    ? ['resume', 'Resume this queue?', 'Consumers get jobs again, at every instance.']
    : ['pause', 'Pause this queue?', 'Consumers get no jobs, at any instance. Leases go on, and new jobs are taken.'];
  return ask({ title, text, confirm: isPaused ? 'Resume' : 'Pause', fields: [subject(name)], act: () => api.onQueue(name, action) });
}

function askToPurge(name, shown) {
  const choice = ([state, label], at) => {
    const words = `${label} (${count(shown[state])})`;
    return el('label', { class: 'radio' }, el('input', { type: 'radio', name: 'state', value: state, checked: at === 0 }), words);
  };
  const choices = el('fieldset', { class: 'choices' }, el('legend', { class: 'hidden' }, 'Which jobs'), PURGED.map(choice));
  return ask({
    title: 'Remove jobs of this queue?',
    text: 'All jobs in the chosen state are removed, and cannot be restored. Jobs that a consumer holds stay.',
    confirm: 'Remove jobs',
    danger: true,
    fields: [subject(name), choices],
    act: (form) => api.onQueue(name, 'purge', { state: form.get('state') }),
  });
}
