// The headers of a job, and values that are text or JSON.
import { el } from './dom.js';

/** The section for these headers. `empty`: the text where there are none. */
export function headersOf(headers, empty) {
  const rows = Object.entries(headers).map(([name, value]) =>
    el('div', {}, el('dt', {}, el('code', {}, name)), el('dd', {}, el('code', {}, valueText(value)))),
  );
  const list = rows.length === 0 ? el('p', { class: 'empty' }, empty) : el('dl', { class: 'pairs wide' }, rows);
  return el('section', { class: 'card', 'aria-labelledby': 'headers-title' }, el('h2', { id: 'headers-title' }, 'Headers'), list);
}

/** A value as text; what is not text, as JSON. */
export function valueText(value) {
  return typeof value === 'string' ? value : JSON.stringify(value);
}
