// Creates elements. Text becomes text nodes and is never parsed as HTML: producers write some of it.

/**
 * Creates an element. `props`: `class`; `on`, an object of listeners; `data`, an object of data attributes;
 * `value`, `checked`, `disabled` and `hidden`, which set the property; every other name sets an attribute. Null,
 * undefined and false are left out.
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

/** Replaces the children of `parent`. */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return parent;
}

/** Sets the text of `element` if it differs, so that selections and screen readers are not disturbed. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Makes the children of `parent` match `items`, in their order. Keeps a child whose key and `stamp` are
 * unchanged, so that focus and selection survive a refresh.
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

/** A segmented control, made of radio buttons for keyboards and screen readers. */
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

/** A status: colour, shape and word. `level`: `ok`, `warn`, `bad`, `off` or `info`. */
export function status(level, word) {
  return el(
    'span',
    { class: 'status', data: { level } },
    el('span', { class: 'shape', 'aria-hidden': 'true' }),
    el('span', { class: 'word' }, word),
  );
}

/** Calls `then` after the next paint; on a hidden page, once the page is visible. */
export function afterPaint(then) {
  requestAnimationFrame(() => setTimeout(then));
}
