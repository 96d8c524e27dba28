// What screen readers are told of a change that happens elsewhere than where the reader is.

/** Says `text` once, politely. */
export function announce(text) {
  const region = document.getElementById('announce');
  // The same words twice are told twice only where the region was empty between them.
  region.textContent = '';
  requestAnimationFrame(() => {
    region.textContent = text;
  });
}
