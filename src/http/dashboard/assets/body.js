// Shows a body as text, JSON or hexadecimal bytes.
import { el, fill, segmented } from './dom.js';
import { bytes } from './format.js';

/** The most bytes shown: a page with a megabyte of text is slow. */
const MAX_BYTES = 64 * 1024;
const WIDTH = 16;

/** The section for a body, given in base64. `whole`: how to get a body that is too large to be shown. */
export function bodyOf(base64, whole = 'run: dwell show ID --body -o json') {
  const all = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const views = {};
  const text = asText(all);
  const json = text !== null && asJson(text);
  if (json) views.json = ['JSON', () => json.slice(0, MAX_BYTES)];
  const letters = text ?? new TextDecoder().decode(all);
  const asLetters = ['Text', () => letters.slice(0, MAX_BYTES)];
  if (text !== null) views.text = asLetters;
  views.hex = ['Hex', () => asHex(all.subarray(0, MAX_BYTES / 8))];
  // For a body that is not text, the hexadecimal view comes first.
  views.text ??= asLetters;
  const [first] = Object.keys(views);
  const shown = el('pre', { class: 'body', tabindex: '0', role: 'region', 'aria-label': 'The body' });
  const note = el('p', { class: 'hint' });
  const draw = (view) => {
    const [, make] = views[view];
    fill(shown, make());
    shown.dataset.view = view;
    const limit = view === 'hex' ? MAX_BYTES / 8 : MAX_BYTES;
    fill(note, all.length > limit ? `The first ${bytes(limit)} of ${bytes(all.length)}. For the whole body, ${whole}` : '');
  };
  const head = el('div', { class: 'card-head' }, el('h2', { id: 'body-title' }, 'Body'));
  const card = el('section', { class: 'card', 'aria-labelledby': 'body-title' }, head);
  if (all.length === 0) {
    card.append(el('p', { class: 'empty' }, 'The body is empty.'));
    return card;
  }
  const options = Object.entries(views).map(([view, [word]]) => [view, word]);
  head.append(segmented({ legend: 'Show the body as', name: 'body-view', options, value: first, change: draw }));
  draw(first);
  card.append(shown, note);
  return card;
}

function asText(all) {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(all);
    // Control characters show that the bytes are not text, although they are valid UTF-8.
    return /[\x00-\x08\x0b\x0c\x0e-\x1f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

/** The text as indented JSON; null if it is not an object or a list. Large numbers are rounded, so the text view remains. */
function asJson(text) {
  if (!/^\s*[[{]/.test(text)) return null;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

function asHex(all) {
  const lines = [];
  for (let at = 0; at < all.length; at += WIDTH) {
    const line = [...all.subarray(at, at + WIDTH)];
    const hex = line.map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
    const letters = line.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : '.')).join('');
    lines.push(`${at.toString(16).padStart(4, '0')}  ${hex.padEnd(WIDTH * 3 - 1)}  ${letters}`);
  }
  return lines.join('\n');
}
