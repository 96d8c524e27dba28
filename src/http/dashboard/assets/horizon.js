// The horizon section: how many jobs fall due in each step ahead, as a bar chart and as an accessible table.
import * as api from './api.js';
import { announce } from './announce.js';
import { drawBars } from './bars.js';
import { el, fill, segmented, setText } from './dom.js';
import { count, duration, minutes, plural, seconds, weekday } from './format.js';
import { limitWords } from './overall.js';
import { keepAsking } from './pace.js';
import { go, listHref } from './router.js';

const KEY = 'dwell-ahead';
const SECOND = 1000;
const [MINUTE, HOUR] = [60 * SECOND, 3600 * SECOND];

/** The spans: their length and step, the refresh interval (all in ms), and the format of times. */
const SPANS = {
  minute: {
    word: 'Minute',
    step: 2 * SECOND,
    to: MINUTE,
    every: 2 * SECOND,
    write: seconds,
  },
  hour: { word: 'Hour', step: MINUTE, to: HOUR, every: 5 * SECOND, write: minutes },
  day: { word: 'Day', step: HOUR / 2, to: 24 * HOUR, every: 20 * SECOND, write: minutes },
  week: {
    word: 'Week',
    step: 6 * HOUR,
    to: 168 * HOUR,
    every: MINUTE,
    write: weekday,
  },
};

export function horizon(signal) {
  let span = remembered();
  /** The user has chosen a span: the next answer is announced. */
  let chosen = false;
  const summary = el('p', { class: 'summary' }, 'Counting…');
  const limits = el('ul', { class: 'limits' });
  const canvas = el('canvas', { role: 'img', 'aria-label': 'Counting' });
  const rows = el('tbody');
  const table = el(
    'table',
    { class: 'plain' },
    el('caption', { class: 'hidden' }, 'Jobs that fall due, by step'),
    el(
      'thead',
      {},
      el(
        'tr',
        {},
        el('th', { scope: 'col' }, 'From'),
        el('th', { scope: 'col' }, 'Until'),
        el('th', { scope: 'col', class: 'number' }, 'Jobs'),
      ),
    ),
    rows,
  );
  const details = el('details', { class: 'as-table' }, el('summary', {}, 'As a table'), table);
  const bars = drawBars(canvas, (step) => go(stepHref(step)), signal);

  const ask = async () => {
    const wanted = span;
    const { step, to } = SPANS[wanted];
    const { steps, limited } = await api.horizon(`${step}`, `${to}`, signal);
    if (wanted !== span || steps.length === 0) return;
    draw(steps);
    drawLimits(limited, steps[0].from_ms);
  };
  /** What waits for its turn is due, or falls due, and comes later than the bars say. */
  const drawLimits = (limited, now) => {
    const words = limited.map((one) => limitWords(one, now));
    if (limits.dataset.text === words.join(' ')) return;
    limits.dataset.text = words.join(' ');
    fill(
      limits,
      words.map((text) => el('li', {}, text)),
    );
  };
  const draw = (counted) => {
    const { step, write, word } = SPANS[span];
    const steps = counted.map(({ from_ms, count }) => ({ from: from_ms, until: from_ms + step, count }));
    const total = steps.reduce((sum, step) => sum + step.count, 0);
    const peak = steps.reduce((most, step) => (step.count > most.count ? step : most), steps[0]);
    const words =
      total === 0
        ? `Nothing falls due within the next ${word.toLowerCase()}.`
        : `${plural(total, 'job falls', 'jobs fall')} due within the next ${word.toLowerCase()}; most at ${write(peak.from)}: ${count(peak.count)} in ${duration(step)}.`;
    setText(summary, words);
    canvas.setAttribute('aria-label', `Bar chart. ${words} The table below has the same data.`);
    bars(steps, write);
    // The rows change with time. They are not replaced while one of them has the focus.
    if (!rows.contains(document.activeElement)) fill(rows, rowsOf(steps, write));
    if (chosen) announce(words);
    chosen = false;
  };
  const choice = segmented({
    legend: 'How far ahead',
    name: 'ahead',
    value: span,
    options: Object.entries(SPANS).map(([key, { word }]) => [key, word]),
    change: (word) => {
      span = word;
      remember(word);
      chosen = true;
      refresh();
    },
  });
  const failed = (problem) => setText(summary, `The jobs cannot be counted now: ${problem.message}`);
  const refresh = keepAsking({ ask, failed, every: () => SPANS[span].every, signal });
  return el(
    'section',
    { class: 'card', 'aria-labelledby': 'coming-title' },
    el('div', { class: 'card-head' }, el('h2', { id: 'coming-title' }, 'What is coming?'), choice),
    summary,
    limits,
    el('div', { class: 'chart' }, canvas),
    details,
  );
}

function rowsOf(steps, write) {
  const some = steps.filter((step) => step.count > 0);
  if (some.length === 0) return [el('tr', {}, el('td', { colspan: 3 }, 'Nothing falls due.'))];
  return some.map((step) => row(step, write));
}

const stepHref = ({ from, until }) => listHref('jobs', { from: String(from), to: String(until) });

function row(step, write) {
  const number = el(
    'td',
    { class: 'number' },
    el(
      'a',
      { href: stepHref(step), 'aria-label': `${plural(step.count, 'job')} from ${write(step.from)}` },
      count(step.count),
    ),
  );
  return el('tr', {}, el('td', {}, write(step.from)), el('td', {}, write(step.until)), number);
}

function remembered() {
  try {
    const word = localStorage.getItem(KEY);
    return Object.hasOwn(SPANS, word) ? word : 'hour';
  } catch {
    return 'hour';
  }
}

function remember(word) {
  try {
    localStorage.setItem(KEY, word);
  } catch {
    // Storage is forbidden: the next visit starts with the hour.
  }
}
