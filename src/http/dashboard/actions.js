// One action on one job, from the question to the verdict.
import { act } from './api.js';
import { ask } from './confirm.js';
import { el } from './dom.js';
import { ACTIONS } from './words.js';

/** Asks about `action` on the job `id` and carries it out: the verdict, or null where the reader went back. */
export function askAndAct(action, id) {
  const { title, text, confirm, danger } = ACTIONS[action];
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
  const hint = el('p', { class: 'hint', id: 'wait-hint' }, 'As 90s, 1h30m, 2d or PT15M, from now.');
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
    if (!wait) throw new Error('Say how long, as 5m.');
    return { for: wait };
  }
  const at = new Date(form.get('at'));
  if (Number.isNaN(at.getTime())) throw new Error('Say a date and a time.');
  return { until: at.toISOString() };
}
