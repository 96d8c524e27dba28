// Elements from code. Text becomes text nodes and is never parsed: the page holds what producers wrote.

/**
 * Makes an element. `props`: `class`; `on`, an object of listeners; `data`, an object of data attributes; functions of the DOM such as
 * `value` and `checked` by their property; everything else as an attribute, left out where it is null or false.
 */
export function el(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'class') element.className = value;
    else if (name === 'on') for (const [event, then] of Object.entries(value)) element.addEventListener(event, then);
    else if (name === 'data') Object.assign(element.dataset, value);
    else if (name === 'value' || name === 'checked' || name === 'disabled' || name === 'hidden') element[name] = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Replaces what `parent` holds. */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return parent;
}

/** Sets the text of `element` where it differs, so that selections and screen readers are left in peace. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Makes the children of `parent` those of `items`, in their order. A child is kept as long as its key and its `stamp` stay the same, so that
 * focus and selection survive a refresh.
 */
export function reconcile(parent, items, { key, stamp, make }) {
  const kept = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const wanted = items.map((item) => {
    const known = kept.get(key(item));
    if (known && known.dataset.stamp === stamp(item)) return known;
    const made = make(item);
    made.dataset.key = key(item);
    made.dataset.stamp = stamp(item);
    const focused = known?.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    if (focused) queueMicrotask(() => made.querySelector(`[data-focus="${focused}"]`)?.focus());
    return made;
  });
  const staying = new Set(wanted);
  for (const child of [...parent.children]) if (!staying.has(child)) child.remove();
  wanted.forEach((child, at) => {
    if (parent.children[at] !== child) parent.insertBefore(child, parent.children[at] ?? null);
  });
}

/** A group of choices of which one holds, as radio buttons: arrow keys and screen readers know those. */
export function segmented({ legend, name, options, value, change }) {
  return el(
    'fieldset',
    { class: 'segmented' },
    el('legend', { class: 'hidden' }, legend),
    options.map(([word, text]) =>
      el(
        'label',
        {},
        el('input', { type: 'radio', name, value: word, checked: word === value, on: { change: () => change(word) } }),
        el('span', {}, text),
      ),
    ),
  );
}

/** A status by colour, by shape and in a word. `level`: `ok`, `warn`, `bad`, `off` or `info`. */
export function status(level, word) {
  return el(
    'span',
    { class: 'status', data: { level } },
    el('span', { class: 'shape', 'aria-hidden': 'true' }),
    el('span', { class: 'word' }, word),
  );
}

/** Calls `then` when what was changed until now is painted; in a page that nobody sees, when somebody does. */
export function afterPaint(then) {
  requestAnimationFrame(() => setTimeout(then));
}
