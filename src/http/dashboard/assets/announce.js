// Announces changes to screen readers.

/** Announces `text` once, at the next pause of the screen reader. */
export function announce(text) {
  const region = document.getElementById('announce');
  // A screen reader repeats the same text only if the region was empty in between.
  region.textContent = '';
  requestAnimationFrame(() => {
    region.textContent = text;
  });
}
