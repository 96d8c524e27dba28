// Asks for the token of `http.token_file`.
import { el, fill } from './dom.js';

/** Shows the form; `then` gets what was entered. `wrong`: what was sent before is not the token. */
export function signIn(parent, { wrong }, then) {
  const field = el('input', {
    id: 'token',
    name: 'token',
    type: 'password',
    required: true,
    autocomplete: 'current-password',
    spellcheck: 'false',
    'aria-describedby': 'token-hint token-error',
    'aria-invalid': wrong ? 'true' : null,
  });
  const error = el('p', { id: 'token-error', class: 'error', role: 'alert' });
  const form = el(
    'form',
    { class: 'card sign-in' },
    el('h1', {}, 'Sign in'),
    el(
      'p',
      { id: 'token-hint', class: 'hint' },
      'This Dwell asks for a token: what stands in its http.token_file. It is kept until you close this tab.',
    ),
    // For password managers, which keep a token under a name.
    el('input', { type: 'text', autocomplete: 'username', value: 'dwell', hidden: true }),
    el('label', { for: 'token' }, 'Token'),
    field,
    error,
    el('button', { type: 'submit', class: 'primary' }, 'Sign in'),
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    // Copied from a terminal, it often brings its line's end along.
    const token = field.value.trim();
    if (token) then(token);
  });
  fill(parent, form);
  field.focus();
  // After the alert is in the page, so that it is told.
  if (wrong) setTimeout(() => fill(error, 'This is not the token. Check it and try again.'));
}
