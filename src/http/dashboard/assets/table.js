// A table whose rows refresh, of jobs, queues or schedules: its element, and its rows.
import { el } from './dom.js';

/**
 * Creates a table without rows, which is hidden, and the message below it. A column has a `head`, a `class`, and
 * `cell`, which makes the content of an item's cell. `rowHead`: the cell names its row. `bare`: the cell tells its
 * column by itself. In the result, `row(item)` makes a row, and `element` has all.
 */
export function tableOf({ columns, caption, kind = 'jobs' }) {
  const body = el('tbody', { role: 'rowgroup' });
  const table = el(
    'table',
    // The roles are explicit: on a narrow page the rows are cards, and CSS then removes the implicit roles.
    { class: kind, role: 'table', hidden: true },
    el('caption', { class: 'hidden' }, caption),
    el(
      'thead',
      { role: 'rowgroup' },
      el(
        'tr',
        { role: 'row' },
        columns.map((column) => el('th', { role: 'columnheader', scope: 'col', class: column.class }, column.head)),
      ),
    ),
    body,
  );
  const message = el('p', { class: 'empty' }, 'Loading…');
  const row = (item) => el('tr', { role: 'row' }, columns.map((column) => cell(column, item)));
  return { element: el('div', { class: 'table' }, table, message), table, body, message, row };
}

function cell(column, item) {
  return el(
    column.rowHead ? 'th' : 'td',
    {
      role: column.rowHead ? 'rowheader' : 'cell',
      scope: column.rowHead ? 'row' : null,
      class: column.class,
      data: column.bare ? null : { head: column.head },
    },
    column.cell(item),
  );
}
