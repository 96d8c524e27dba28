// Times on the page, by Redis's clock. They are updated once a second.
import { el, setText } from './dom.js';
import { absolute, exact, relative } from './format.js';

let ahead = 0;

/** Sets the clock: the server's time, epoch ms. */
export function setClock(serverNow) {
  ahead = serverNow - Date.now();
}

/** The current time by the server's clock, epoch ms. */
export function now() {
  return Date.now() + ahead;
}

/** A time, relative and absolute, with a tooltip in UTC. */
export function moment(at) {
  return el(
    'time',
    { class: 'moment', datetime: exact(at), title: exact(at), data: { at } },
    el('span', { class: 'rel' }, relative(at, now())),
    ' ',
    el('span', { class: 'abs' }, absolute(at, now())),
  );
}

/** Keeps every time on the page current. */
export function startClock() {
  setInterval(() => {
    for (const time of document.querySelectorAll('time[data-at]')) {
      const at = Number(time.dataset.at);
      setText(time.querySelector('.rel'), relative(at, now()));
      setText(time.querySelector('.abs'), absolute(at, now()));
    }
  }, 1000);
}
