// The links to the pages of a list: the next one by its cursor, and back to visited ones.
import { el, fill } from './dom.js';
import { listHref } from './router.js';

/** The cursor of the page before, by the cursor of a page; for the pages visited in this tab. */
const before = new Map();

/** Draws the links on the page `name` with these filters. `next`: the cursor of the next page, if any. */
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
