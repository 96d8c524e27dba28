// An action on one job: confirmation, call, verdict.
import { act } from './api.js';
import { ask } from './confirm.js';
import { el } from './dom.js';
import { ACTIONS, OF_QUEUES } from './words.js';

/**
 * Asks for confirmation of `action` on the job `id`, then calls the API. `queue`: of a job that consumers fetch.
 * Returns the verdict; null if cancelled.
 */
export function askAndAct(action, id, queue) {
  const { title, text, confirm, danger } = { ...ACTIONS[action], ...(queue ? OF_QUEUES[action] : {}) };
  const subject = el('p', { class: 'subject' }, el('code', {}, id));
  if (action !== 'reschedule') return ask({ title, text, confirm, danger, fields: [subject], act: () => act(action, id) });
  return ask({ title, confirm, fields: [subject, ...timeFields()], act: (form) => act(action, id, timeOf(form)) });
}

function timeFields() {
  const wait = el('input', {
    id: 'wait',
    name: 'wait',
    value: '5m',
    autocomplete: 'off',
    spellcheck: 'false',
    'aria-describedby': 'wait-hint',
  });
  const at = el('input', { id: 'at', name: 'at', type: 'datetime-local', step: '1' });
  const choice = (value, checked, text, field, hint) => {
    const radio = el('input', { type: 'radio', name: 'kind', value, checked });
    field.addEventListener('focus', () => {
      radio.checked = true;
    });
    return el(
      'div',
      { class: 'choice' },
      el('label', { class: 'radio' }, radio, text),
      el('label', { class: 'hidden', for: field.id }, text),
      field,
      hint,
    );
  };
  const hint = el('p', { class: 'hint', id: 'wait-hint' }, 'From now, such as 90s, 1h30m, 2d or PT15M.');
  return [
    el(
      'fieldset',
      { class: 'choices' },
      el('legend', { class: 'hidden' }, 'New time'),
      choice('for', true, 'In', wait, hint),
      choice('until', false, 'At (your time)', at),
    ),
  ];
}

function timeOf(form) {
  if (form.get('kind') === 'for') {
    const wait = form.get('wait').trim();
    if (!wait) throw new Error('Enter a duration, such as 5m.');
    return { for: wait };
  }
  const at = new Date(form.get('at'));
  if (Number.isNaN(at.getTime())) throw new Error('Enter a date and a time.');
  return { until: at.toISOString() };
}
