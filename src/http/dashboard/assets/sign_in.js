// The form that asks for the token of `http.token_file`.
import { el, fill } from './dom.js';

/** Shows the form. Calls `then` with the entered token. `wrong`: the token before was wrong. */
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
      'Enter the token from the file that http.token_file names. It is stored until you close this tab.',
    ),
    // Password managers need a user name.
    el('input', { type: 'text', autocomplete: 'username', value: 'dwell', hidden: true }),
    el('label', { for: 'token' }, 'Token'),
    field,
    error,
    el('button', { type: 'submit', class: 'primary' }, 'Sign in'),
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    // Text copied from a terminal often ends with a line break.
    const token = field.value.trim();
    if (token) then(token);
  });
  fill(parent, form);
  field.focus();
  // A screen reader announces the alert only if its text is set after its insertion.
  if (wrong) setTimeout(() => fill(error, 'The token is wrong. Check it and try again.'));
}
