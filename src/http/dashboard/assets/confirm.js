// The dialog that asks for confirmation of an action.
import { el, fill } from './dom.js';

/**
 * Opens the dialog. On confirmation calls `act` with the form's data, closes, and returns the result of `act`. If
 * `act` throws, shows the error and stays open. Returns null if the user goes back.
 */
export function ask({ title, text, confirm, danger = false, fields = [], act }) {
  const before = document.activeElement;
  const error = el('p', { class: 'error', role: 'alert' });
  const yes = el('button', { type: 'submit', class: danger ? 'primary danger' : 'primary' }, confirm);
  const back = el('button', { type: 'button', class: 'secondary' }, 'Go back');
  const form = el(
    'form',
    { novalidate: true },
    el('h2', { id: 'dialog-title' }, title),
    text && el('p', { id: 'dialog-text' }, text),
    fields,
    error,
    el('div', { class: 'buttons' }, back, yes),
  );
  const dialog = el(
    'dialog',
    { class: 'ask', 'aria-labelledby': 'dialog-title', 'aria-describedby': text ? 'dialog-text' : null },
    form,
  );
  document.body.append(dialog);
  let answer = null;
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    fill(error);
    yes.disabled = true;
    form.setAttribute('aria-busy', 'true');
    try {
      answer = await act(new FormData(form));
      dialog.close();
    } catch (problem) {
      fill(error, problem.message);
    } finally {
      yes.disabled = false;
      form.removeAttribute('aria-busy');
    }
  });
  back.addEventListener('click', () => dialog.close());
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) dialog.close();
  });
  return new Promise((done) => {
    dialog.addEventListener('close', () => {
      dialog.remove();
      if (before?.isConnected) before.focus();
      done(answer);
    });
    dialog.showModal();
    // A destructive action must not be confirmed by a single key press.
    (form.querySelector('input:not([type=radio])') ?? (danger ? back : yes)).focus();
  });
}
