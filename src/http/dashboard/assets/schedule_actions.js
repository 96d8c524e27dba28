// An action on recurring schedules: confirmation, call, and what is said of it.
import * as api from './api.js';
import { ask } from './confirm.js';
import { el } from './dom.js';
import { plural } from './format.js';
import { jobHref } from './router.js';
import { SCHEDULE_ACTIONS, scheduleVerdict } from './schedule_words.js';

/** The digits of the time in an occurrence's id. */
const DIGITS = 13;

/** The id of the job of a schedule's occurrence at this nominal time, epoch ms. */
export const occurrenceId = (id, at) => `${id}@${String(at).padStart(DIGITS, '0')}`;

/**
 * Asks for confirmation of `action` (`fire`, `pause`, `resume` or `cancel`) on the schedule `id`, then calls the API.
 * Returns `{level, word, sentence, verdict, job}`: `verdict` only of `fire` and `cancel`, `job` the address of a
 * fired occurrence. Null if the user goes back.
 */
export async function askAndActOnSchedule(action, id) {
  const { title, text, confirm, danger, done } = SCHEDULE_ACTIONS[action];
  const fields = [el('p', { class: 'subject' }, el('code', {}, id)), action === 'pause' && reasonField()];
  const act = (form) => api.onSchedule(id, action, action === 'pause' ? { reason: reasonOf(form) } : undefined);
  const answer = await ask({ title, text, confirm, danger, fields: fields.filter(Boolean), act });
  if (answer === null) return null;
  const { verdict } = answer;
  const [level, word, sentence] = verdict === undefined ? done : scheduleVerdict(action, verdict);
  const job = verdict === 'firing' && answer.due_ms !== null ? jobHref(occurrenceId(id, answer.due_ms)) : null;
  return { level, word, sentence, verdict, job };
}

/**
 * Asks for confirmation of a pause or a resume of all schedules with these filters (`q`, `queue`, `target`), then
 * calls the API. Returns `{level, word, sentence}`; null if the user goes back.
 */
export async function askAndActOnMany(action, filters) {
  const which = selected(filters);
  const isPause = action === 'pause';
  const answer = await ask({
    title: `${isPause ? 'Pause' : 'Resume'} ${which.length === 0 ? 'all schedules' : 'all schedules that match'}?`,
    text: isPause
      ? 'On all pages of the list. What falls due meanwhile is neither missed nor caught up. Schedules that are paused already stay as they are.'
      : 'On all pages of the list. Occurrences are made again, from the next times on.',
    confirm: isPause ? 'Pause all' : 'Resume all',
    danger: isPause && which.length === 0,
    fields: [
      which.length > 0 && el('p', { class: 'subject' }, 'Schedules ', which),
      isPause && reasonField(),
    ].filter(Boolean),
    act: (form) => api.onSchedules(action, { ...filters, reason: isPause ? reasonOf(form) : undefined }),
  });
  if (answer === null) return null;
  const { changed } = answer;
  if (changed === 0) return { level: 'off', word: 'Nothing changed', sentence: `No schedule was ${isPause ? 'active' : 'paused'}.` };
  const words = isPause ? ['warn', 'Paused', 'paused'] : ['ok', 'Resumed', 'resumed'];
  return { level: words[0], word: words[1], sentence: `${plural(changed, 'schedule was', 'schedules were')} ${words[2]}.` };
}

/** These filters in words. */
function selected({ q, queue, target }) {
  const code = (text) => el('code', {}, text);
  const parts = [];
  if (q) parts.push(['whose id has ', code(q)]);
  if (queue) parts.push(['of the queue ', code(queue)]);
  if (target) parts.push(['for the target ', code(target)]);
  return parts.flatMap((part, at) => (at === 0 ? part : [' and ', ...part]));
}

function reasonField() {
  const input = el('input', { id: 'reason', name: 'reason', autocomplete: 'off', maxlength: '1000', 'aria-describedby': 'reason-hint' });
  return el(
    'div',
    { class: 'field' },
    el('label', { for: 'reason' }, 'Reason'),
    input,
    el('p', { class: 'hint', id: 'reason-hint' }, 'Optional, for people. It is kept until the resume.'),
  );
}

const reasonOf = (form) => form.get('reason').trim() || undefined;
