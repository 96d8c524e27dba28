// The form of a recurring schedule, new or stored. Shows its next times while it is typed.
import * as api from './api.js';
import { announce } from './announce.js';
import { el, fill } from './dom.js';
import { choice, line, lines, radios } from './fields.js';
import { live } from './live.js';
import { schedulePreview } from './preview.js';
import { go, scheduleHref } from './router.js';
import { isExact, shownOf, timesOf, wantedOf } from './schedule_fields.js';
import { CATCH_UP, LATE, OVERLAP } from './schedule_words.js';
import { zones } from './zone.js';

export function schedule_form(parent, { id }, signal) {
  const isNew = id === undefined;
  const title = isNew ? el('h1', {}, 'New schedule') : el('h1', {}, 'Edit schedule ', el('code', {}, id));
  const place = el('div', { class: 'form-of' }, el('p', { class: 'loading' }, 'Loading…'));
  const above = isNew ? el('a', { href: '#/schedules' }, 'Schedules') : el('a', { href: scheduleHref(id) }, 'Schedule');
  fill(parent, el('p', { class: 'crumbs' }, above), title, place);
  if (isNew) fill(place, formOf(null, signal));
  else load(place, id, signal);
  return isNew ? 'New schedule' : `Edit schedule ${id}`;
}

async function load(place, id, signal) {
  const refuse = (words) => fill(place, el('p', { class: 'error', role: 'alert' }, words));
  try {
    const found = await api.schedule(id, { next: 0, body: true, signal });
    if (signal.aborted) return;
    if (isExact([found.headers, found.key])) fill(place, formOf(found, signal));
    else refuse('A header of this schedule has a number that a browser would round: store the schedule by `dwell schedule`.');
  } catch (problem) {
    if (!signal.aborted) refuse(`The schedule cannot be loaded now: ${problem.message}`);
  }
}

/** The form, filled with what is stored; `found` is null for a new schedule. */
function formOf(found, signal) {
  const shown = shownOf(found);
  // Without a broker there are only queues.
  const hasBrokers = live.stats === null || Object.keys(live.stats.brokers).length > 0;
  const receiver = found === null && !hasBrokers ? 'queue' : shown.receiver;
  const error = el('p', { class: 'error', role: 'alert' });
  const store = el('button', { type: 'submit', class: 'primary' }, 'Store');
  const back = el('a', { class: 'button', href: found === null ? '#/schedules' : scheduleHref(found.id) }, 'Go back');
  const preview = schedulePreview(
    {
      read: () => timesOf(form),
      wrong: (is) => {
        const input = form.elements.schedule;
        if (is) input.setAttribute('aria-invalid', 'true');
        else input.removeAttribute('aria-invalid');
      },
    },
    signal,
  );
  const form = el(
    'form',
    { class: 'schedule-form', novalidate: true },
    when(found, shown, preview.element),
    what(shown, receiver),
    more(found, shown),
    error,
    el('div', { class: 'buttons' }, store, back),
  );
  form.addEventListener('input', preview.ask);
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    fill(error);
    store.disabled = true;
    form.setAttribute('aria-busy', 'true');
    try {
      const id = found === null ? form.elements.id.value : found.id;
      if (id === '') throw new Error('Enter an id.');
      await api.putSchedule(id, wantedOf(form, found, shown));
      if (signal.aborted) return;
      announce('The schedule is stored.');
      go(scheduleHref(id));
    } catch (problem) {
      fill(error, problem.message);
    } finally {
      store.disabled = false;
      form.removeAttribute('aria-busy');
    }
  });
  if (found !== null) preview.ask();
  return form;
}

const card = (name, title, ...children) =>
  el('section', { class: 'card', 'aria-labelledby': `${name}-title` }, el('h2', { id: `${name}-title` }, title), ...children);

function when(found, shown, preview) {
  const isNew = found === null;
  return card(
    'when',
    'When',
    isNew && line({ name: 'id', label: 'Id', hint: 'At most 240 bytes. A schedule with this id must not exist.' }),
    line({
      name: 'schedule',
      label: 'Times',
      hint: 'Five or six cron fields as 0 9 * * MON-FRI, or @every 30m, @hourly, @daily, @weekly, @monthly, @yearly.',
      value: shown.schedule,
      props: { class: 'mono', required: true, 'aria-describedby': 'hint-schedule preview-said' },
    }),
    line({
      name: 'time_zone',
      label: 'Time zone',
      hint: 'Such as Europe/Berlin; UTC if empty. Not with @every, which counts elapsed time.',
      value: shown.time_zone,
      choices: zones(),
    }),
    preview,
    el(
      'div',
      { class: 'fields' },
      line({ name: 'start', label: 'Start', hint: 'As 2027-01-31T12:00:00 in the time zone above, or with Z or an offset.', value: shown.start }),
      line({ name: 'end', label: 'End', hint: 'Like the start. Both are included.', value: shown.end }),
      line({ name: 'count', label: 'Most occurrences', hint: 'No bound if empty.', value: shown.count, props: { inputmode: 'numeric' } }),
      choice({ name: 'catch_up', label: 'When occurrences were missed', value: shown.catch_up, options: Object.entries(CATCH_UP) }),
      choice({ name: 'overlap', label: 'While an occurrence is alive', value: shown.overlap, options: Object.entries(OVERLAP) }),
    ),
    isNew
      ? el('label', { class: 'radio' }, el('input', { type: 'checkbox', name: 'paused' }), 'Begin paused')
      : el(
          'p',
          { class: 'hint' },
          'Other times, another time zone or start count from now. A paused schedule stays paused. One of the settings is as they say again after the next start.',
        ),
  );
}

function what(shown, receiver) {
  const target = el(
    'div',
    { class: 'fields' },
    line({ name: 'target', label: 'Target', hint: 'Kafka topic, NATS subject, AMQP routing key.', value: shown.target }),
    line({
      name: 'broker',
      label: 'Broker',
      hint: 'May be empty if there is only one.',
      value: shown.broker,
      choices: Object.keys(live.stats?.brokers ?? {}),
    }),
    line({ name: 'exchange', label: 'Exchange', hint: 'Of AMQP only.', value: shown.exchange }),
  );
  const queue = el('div', { class: 'fields' }, line({ name: 'queue', label: 'Queue', value: shown.queue }));
  const change = (to) => {
    target.hidden = to !== 'target';
    queue.hidden = to !== 'queue';
  };
  change(receiver);
  const options = [
    ['target', 'To a broker'],
    ['queue', 'To a queue of Dwell'],
  ];
  return card(
    'what',
    'What',
    radios({ name: 'receiver', legend: 'Where the jobs go', value: receiver, options, change }),
    target,
    queue,
    lines({ name: 'body', label: 'Body', hint: shown.isBinary ? 'The stored body is not text. It stays while this is empty.' : null, value: shown.body, rows: 5 }),
    lines({ name: 'headers', label: 'Headers', hint: 'A JSON object, as {"tenant": "acme"}.', value: shown.headers, rows: 3 }),
  );
}

function more(found, shown) {
  const confirms = [
    ['', 'As in the settings'],
    ['broker', 'The broker'],
    ['consumer', 'The consumer'],
  ];
  const lates = [['', 'As in the settings'], ...Object.entries(LATE)];
  return el(
    'details',
    { class: 'card', open: found !== null },
    el('summary', {}, 'More'),
    el(
      'div',
      { class: 'fields more' },
      line({ name: 'spread', label: 'Spread', hint: 'Each due time is later by less than this, such as 10m.', value: shown.spread }),
      choice({ name: 'late', label: 'If a job is too late', value: shown.late, options: lates }),
      line({ name: 'max_late', label: 'Too late after', hint: 'Such as 1h.', value: shown.max_late }),
      line({
        name: 'retry',
        label: 'Retries',
        hint: 'The waits between attempts as 1m, 10m; none for a single attempt. As in the settings if empty.',
        value: shown.retry,
      }),
      line({ name: 'ttr', label: 'Time to run', hint: 'How long an attempt may take, such as 30s.', value: shown.ttr }),
      choice({ name: 'confirm', label: 'Confirmed by', hint: 'Jobs of a queue: always the consumer.', value: shown.confirm, options: confirms }),
      line({ name: 'key', label: 'Key', hint: 'Of Kafka.', value: shown.key }),
    ),
  );
}
