// Fields of a form: each with its label and a hint.
import { el } from './dom.js';

const AS_WRITTEN = { autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false' };

/** A field for one line. `choices`: values that are suggested. `props`: further attributes of the input. */
export function line({ name, label, hint, value = '', choices, props = {} }) {
  const list = choices ? `${name}-choices` : null;
  const input = el('input', { id: `field-${name}`, name, value, list, ...AS_WRITTEN, ...described(name, hint), ...props });
  const options = choices && el('datalist', { id: list }, choices.map((choice) => el('option', { value: choice })));
  return field(name, label, hint, [input, options]);
}

/** A field for several lines. */
export function lines({ name, label, hint, value = '', rows }) {
  return field(name, label, hint, el('textarea', { id: `field-${name}`, class: 'mono', name, value, rows, ...AS_WRITTEN, ...described(name, hint) }));
}

/** A choice of one. `options`: pairs of a value and its words. */
export function choice({ name, label, hint, value, options }) {
  const select = el(
    'select',
    { id: `field-${name}`, name, ...described(name, hint) },
    options.map(([word, text]) => el('option', { value: word }, text)),
  );
  select.value = value;
  return field(name, label, hint, select);
}

/** Radio buttons for a choice of one. */
export function radios({ name, legend, value, options, change }) {
  return el(
    'fieldset',
    { class: 'choices in-row' },
    el('legend', { class: 'hidden' }, legend),
    options.map(([word, text]) =>
      el(
        'label',
        { class: 'radio' },
        el('input', { type: 'radio', name, value: word, checked: word === value, on: { change: () => change(word) } }),
        text,
      ),
    ),
  );
}

const described = (name, hint) => ({ 'aria-describedby': hint ? `hint-${name}` : null });

function field(name, label, hint, input) {
  return el(
    'div',
    { class: 'field' },
    el('label', { for: `field-${name}` }, label),
    ...[input].flat(),
    hint && el('p', { class: 'hint', id: `hint-${name}` }, hint),
  );
}
