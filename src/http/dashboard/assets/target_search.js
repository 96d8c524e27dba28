// The search field for the target of jobs.
import { el } from './dom.js';

/** A form with the current target. Calls `find` with the entered target; empty means all. */
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
  // The clear button of the search field removes the filter.
  target.addEventListener('search', () => form.requestSubmit());
  return form;
}
