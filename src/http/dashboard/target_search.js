// The search of a list by its target.
import { el } from './dom.js';

/** A form with the target that is searched for now; `find` is told the one that is asked for, empty for all. */
export function targetSearch(current, find) {
  const target = el('input', {
    id: 'target',
    name: 'target',
    type: 'search',
    value: current ?? '',
    placeholder: 'orders.close',
    autocomplete: 'off',
    autocapitalize: 'off',
    spellcheck: 'false',
  });
  const form = el(
    'form',
    { class: 'search', role: 'search', 'aria-label': 'By target' },
    el('label', { for: 'target' }, 'Target'),
    target,
    el('button', { type: 'submit', class: 'secondary' }, 'Search'),
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    find(target.value.trim());
  });
  // The cross that empties a search field asks for everything again.
  target.addEventListener('search', () => form.requestSubmit());
  return form;
}
