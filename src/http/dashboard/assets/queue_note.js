// The filter of a list by queue.
import { el } from './dom.js';
import { listHref, queueHref } from './router.js';

/** The filter of the page `name` by queue, and a link that removes it; null without such a filter. */
export function queueNote(name, { queue, ...rest }) {
  if (!queue) return null;
  return el(
    'p',
    { class: 'filter-note' },
    'Only jobs of the queue ',
    el('a', { href: queueHref(queue), class: 'mono' }, queue),
    '. ',
    el('a', { href: listHref(name, { ...rest, cursor: '' }) }, 'Show all'),
  );
}
