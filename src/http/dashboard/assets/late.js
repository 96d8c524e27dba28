// The lateness section: the oldest overdue job, the number of overdue jobs, and recent lateness.
import { moment } from './clock.js';
import { el, fill, setText, status } from './dom.js';
import { count, duration } from './format.js';
import { live, onNews } from './live.js';
import { LATE_MS, VERY_LATE_MS, oldestOverdue } from './overall.js';

export function late(signal) {
  const tile = (label, note) => {
    const parts = { value: el('dd', { class: 'value' }, '–'), note: el('dd', { class: 'note' }, note ?? '') };
    return { ...parts, element: el('div', { class: 'tile' }, el('dt', {}, label), parts.value, parts.note) };
  };
  const oldest = tile('Oldest overdue');
  const half = tile('Lateness p50');
  const most = tile('Lateness p99');
  const next = tile('Next due');
  const draw = () => {
    const { stats } = live;
    if (!stats) return;
    const waited = oldestOverdue(stats);
    const level = waited >= VERY_LATE_MS ? 'bad' : waited >= LATE_MS ? 'warn' : 'ok';
    setText(oldest.value, waited === 0 ? 'None' : duration(waited));
    const word = level === 'ok' ? 'On time' : `${count(stats.overdue)} overdue`;
    if (oldest.note.textContent !== word || oldest.element.dataset.level !== level) fill(oldest.note, status(level, word));
    oldest.element.dataset.level = level;
    const { lateness } = stats;
    setText(half.value, lateness ? duration(lateness.p50_ms) : '–');
    setText(half.note, lateness ? 'The median of the last minute' : 'No attempt in the last minute');
    setText(most.value, lateness ? duration(lateness.p99_ms) : '–');
    setText(
      most.note,
      lateness
        ? `Maximum ${duration(lateness.max_ms)}, of ${count(lateness.count)} in the last minute`
        : 'No attempt in the last minute',
    );
    drawNext(next, stats);
  };
  onNews(draw, signal);
  draw();
  const tiles = el('dl', { class: 'tiles' }, oldest.element, half.element, most.element, next.element);
  return el(
    'section',
    { class: 'card', 'aria-labelledby': 'late-title' },
    el('h2', { id: 'late-title' }, 'Is anything late?'),
    tiles,
  );
}

/** Draws the next due time, only when it changes: `startClock` keeps the relative time current. */
function drawNext(next, { next_due_ms: due, scheduled }) {
  const key = String(due);
  if (next.element.dataset.due === key) return;
  next.element.dataset.due = key;
  if (due === null) {
    fill(next.value, 'None');
    fill(next.note, scheduled === 0 ? 'No jobs are scheduled' : '');
    return;
  }
  const time = moment(due);
  fill(next.value, time);
  fill(next.note);
}
