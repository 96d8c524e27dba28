// The first page: health, lateness, horizon and the next jobs, in the order in which on-call people need them.
import * as api from './api.js';
import { el, fill, setText } from './dom.js';
import { count, rate } from './format.js';
import { health } from './health.js';
import { horizon } from './horizon.js';
import { late } from './late.js';
import { live, onNews } from './live.js';
import { jobTable } from './job_table.js';
import { overallState } from './overall.js';
import { keepAsking } from './pace.js';

/** How many of the next jobs are shown. */
const NEXT = 8;
/** The least interval between two requests for the list. */
const EVERY_MS = 3000;

export function overview(parent, _, signal) {
  const heading = el('h1', {}, 'Overview');
  const overall = el('div', { class: 'overall' });
  const [figures, drawFigures] = counts();
  fill(
    parent,
    el('header', { class: 'head' }, heading, overall),
    health(signal),
    late(signal),
    horizon(signal),
    el(
      'section',
      { class: 'card', 'aria-labelledby': 'jobs-title' },
      el('h2', { id: 'jobs-title' }, 'Jobs'),
      figures,
      nextJobs(signal),
    ),
  );
  const draw = () => {
    drawOverall(overall, live);
    drawFigures(live.stats);
  };
  onNews(draw, signal);
  draw();
  return 'Overview';
}

function drawOverall(parent, now) {
  const { level, sentence, points } = overallState(now);
  const text = [sentence, ...points].join(' ');
  if (parent.dataset.text === text && parent.dataset.level === level) return;
  Object.assign(parent.dataset, { text, level });
  fill(
    parent,
    el('p', { class: 'sentence' }, el('span', { class: 'shape', 'aria-hidden': 'true' }), el('strong', {}, sentence)),
    points.length > 0 &&
      el(
        'ul',
        {},
        points.map((point) => el('li', {}, point)),
      ),
  );
}

/** The number of jobs in each state, and the rates. */
function counts() {
  const number = (href) => {
    const value = el('span', { class: 'value' }, '–');
    return [
      value,
      (label, note) =>
        el('li', {}, el(href ? 'a' : 'span', { class: 'figure', href }, value, ' ', el('span', { class: 'label' }, label)), note),
    ];
  };
  const [scheduled, scheduledItem] = number('#/jobs');
  const [ready, readyItem] = number('#/jobs?state=ready');
  const [reserved, reservedItem] = number('#/jobs?state=reserved');
  const [dead, deadItem] = number('#/dead');
  const [coming, comingItem] = number();
  const [leaving, leavingItem] = number();
  const ofQueues = readyItem('ready');
  const list = el(
    'ul',
    { class: 'figures' },
    scheduledItem('scheduled'),
    ofQueues,
    reservedItem('reserved'),
    deadItem('dead'),
    comingItem('requests in'),
    leavingItem('confirmed out'),
  );
  const draw = (stats) => {
    if (!stats) return;
    setText(scheduled, count(stats.scheduled));
    // Only queues have ready jobs.
    ofQueues.hidden = stats.ready === 0;
    setText(ready, count(stats.ready));
    setText(reserved, count(stats.reserved));
    setText(dead, count(stats.dead));
    setText(coming, rate(stats.rates.scheduled ?? 0));
    setText(leaving, rate(stats.rates.confirmed ?? 0));
  };
  return [list, draw];
}

function nextJobs(signal) {
  const table = jobTable({ caption: 'Next to fall due', empty: 'No jobs are scheduled. New requests appear here.' });
  const more = el('p', { class: 'more' }, el('a', { href: '#/jobs' }, 'All scheduled jobs'));
  const ask = async () => table.show((await api.list({ limit: NEXT }, signal)).jobs);
  keepAsking({ ask, failed: table.fail, every: () => EVERY_MS, signal });
  return el('div', { class: 'next' }, el('h3', {}, 'Next to fall due'), table.element, more);
}
