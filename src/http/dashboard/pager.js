// Pages of a list by cursor: the way to the next, and back to those that were seen.
import { el, fill } from './dom.js';
import { listHref } from './router.js';

/** By the cursor of a page, the cursor of the page before it; of pages that were seen in this tab. */
const before = new Map();

/** Draws the links of a page of `name` with these filters; `next` is the cursor that the answer named. */
export function drawPager(parent, name, filters, next) {
  const { cursor = '', ...rest } = filters;
  if (next) before.set(next, cursor);
  const link = (text, to, rel) => el('a', { class: 'button', href: listHref(name, { ...rest, cursor: to }), rel }, text);
  const known = before.get(cursor);
  fill(
    parent,
    cursor && link('First page', ''),
    cursor && known !== undefined && link('Previous', known, 'prev'),
    next && link('Next page', next, 'next'),
  );
  parent.hidden = !cursor && !next;
}
