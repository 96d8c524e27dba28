// The theme: the system's, light or dark. The choice is stored in this browser.
import { announce } from './announce.js';

const KEY = 'dwell-theme';
const NEXT = { system: 'light', light: 'dark', dark: 'system' };
const WORDS = { system: 'Auto', light: 'Light', dark: 'Dark' };

const changes = new EventTarget();

/** Calls `then` at every change of colours, until `signal` is aborted. */
export function onThemeChange(then, signal) {
  changes.addEventListener('change', then, { signal });
}

/** Connects the button that changes the theme. */
export function startTheme(button) {
  const show = () => {
    const theme = chosen();
    button.textContent = WORDS[theme];
    button.dataset.theme = theme;
    button.setAttribute('aria-label', `Theme: ${WORDS[theme]}. Change to ${WORDS[NEXT[theme]]}`);
  };
  button.addEventListener('click', () => {
    choose(NEXT[chosen()]);
    show();
    announce(`Theme: ${WORDS[chosen()]}`);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => changes.dispatchEvent(new Event('change')));
  show();
}

function chosen() {
  return document.documentElement.dataset.theme ?? 'system';
}

function choose(theme) {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === 'system') localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // Storage is forbidden: the choice lasts until the page is closed.
  }
  changes.dispatchEvent(new Event('change'));
}
