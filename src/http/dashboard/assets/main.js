// Starts the dashboard: navigation, the bar at the top, sign-in, and the state of the connection.
import { announce } from './announce.js';
import { hasToken, onTokenWanted, setToken } from './api.js';
import { startClock } from './clock.js';
import { dead } from './dead.js';
import { afterPaint, el, fill, setText } from './dom.js';
import { absolute, count, duration } from './format.js';
import { job } from './job.js';
import { jobs } from './jobs.js';
import { connect, disconnect, live, onNews } from './live.js';
import { overview } from './overview.js';
import { queue } from './queue.js';
import { queues } from './queues.js';
import { go, jobHref, route } from './router.js';
import { schedule } from './schedule.js';
import { schedule_form } from './schedule_form.js';
import { schedules } from './schedules.js';
import { signIn } from './sign_in.js';
import { startTheme } from './theme.js';

const PAGES = { overview, jobs, job, schedules, schedule, schedule_form, queues, queue, dead, nowhere };
/** The link at the top of the pages that have none of their own. */
const ABOVE = { job: 'jobs', schedule: 'schedules', schedule_form: 'schedules', queue: 'queues' };
const at = (id) => document.getElementById(id);
const main = at('main');

let shown = null;
let asking = false;
let paused = false;

/** Shows the page that the address names. A signal ends the parts of the page before. */
function show({ first = false } = {}) {
  if (asking) return;
  shown?.abort();
  shown = new AbortController();
  const { page, ...where } = route();
  for (const link of document.querySelectorAll('[data-page]')) {
    const current = link.dataset.page === (ABOVE[page] ?? page);
    if (current) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  fill(main);
  main.className = `page-${page}`;
  const title = PAGES[page](main, where, shown.signal);
  document.title = `${title} · Dwell`;
  if (first) return;
  // As after a page load: keyboard and screen reader start at the heading.
  scrollTo(0, 0);
  const heading = main.querySelector('h1');
  heading?.setAttribute('tabindex', '-1');
  heading?.focus({ preventScroll: true });
}

function nowhere(parent) {
  fill(parent, el('h1', {}, 'There is no such page'), el('p', {}, el('a', { href: '#/' }, 'To the overview')));
  return 'No such page';
}

function askForToken(event) {
  const { wrong } = event.detail;
  setToken(null);
  disconnect('refused');
  at('sign-out').hidden = true;
  if (asking && !wrong) return;
  asking = true;
  shown?.abort();
  main.className = 'page-sign-in';
  document.title = 'Sign in · Dwell';
  signIn(main, { wrong }, (token) => {
    setToken(token);
    asking = false;
    connect();
    show();
  });
}

/** Shows the state of the connection: a word in the bar, and a banner if the connection is lost. */
function showConnection() {
  const button = at('live');
  const words = {
    connecting: ['off', 'Connecting'],
    live: ['ok', 'Live'],
    lost: ['bad', 'Lost'],
    paused: ['off', 'Paused'],
    refused: ['off', 'Signed out'],
  };
  const [level, word] = words[live.state];
  if (button.dataset.level !== level || button.dataset.word !== word) {
    Object.assign(button.dataset, { level, word });
    fill(button, el('span', { class: 'shape', 'aria-hidden': 'true' }), word);
    button.setAttribute('aria-label', paused ? 'Updates are paused. Resume' : `Updates: ${word}. Pause`);
  }
  button.hidden = live.state === 'refused';
  document.body.classList.toggle('stale', live.state === 'lost' || live.state === 'paused');
  const lost = at('lost');
  if (live.state !== 'lost') {
    if (lost.textContent !== '') {
      fill(lost);
      if (live.state === 'live') announce('Connected again.');
    }
    return;
  }
  if (lost.textContent === '') {
    const since = live.stats ? ` The page shows the state of ${absolute(live.stats.now_ms, Date.now())}.` : '';
    const again = el('span', { class: 'again', 'aria-hidden': 'true' });
    const now = el('button', { type: 'button', class: 'link', on: { click: connect } }, 'Retry now');
    fill(lost, el('p', {}, el('strong', {}, 'Connection lost, retrying.'), since, ' ', again, ' ', now));
  }
  const left = Math.max(0, (live.retryAt ?? 0) - Date.now());
  setText(lost.querySelector('.again'), left > 0 ? `Next try in ${duration(Math.ceil(left / 1000) * 1000)}.` : '');
}

function showBar() {
  showConnection();
  const { stats } = live;
  if (!stats) return;
  const deadCount = at('dead-count');
  deadCount.hidden = stats.dead === 0;
  setText(deadCount, count(stats.dead));
  const { instance } = stats;
  if (instance) setText(at('foot'), `Dwell ${instance.version} · namespace ${instance.namespace} · instance ${instance.name}`);
}

addEventListener('hashchange', () => show());
onNews(showBar);
// Counts down the seconds to the next try.
setInterval(showConnection, 1000);
onTokenWanted(askForToken);
startTheme(at('theme'));
startClock();

at('live').addEventListener('click', () => {
  paused = !paused;
  if (paused) disconnect('paused');
  else connect();
  announce(paused ? 'Updates are paused.' : 'Updates have resumed.');
});
at('sign-out').addEventListener('click', () => askForToken({ detail: { wrong: false } }));
onNews(() => {
  at('sign-out').hidden = !hasToken();
});
at('find').addEventListener('submit', (event) => {
  event.preventDefault();
  const field = at('find-id');
  if (field.value === '') return field.focus();
  go(jobHref(field.value));
  field.value = '';
});
addEventListener('keydown', (event) => {
  const typing = event.target.closest?.('input, textarea, select, dialog');
  if (event.key !== '/' || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  at('find-id').focus();
});
document.querySelector('.skip').addEventListener('click', (event) => {
  // The part of the address after `#` names the page.
  event.preventDefault();
  main.focus();
});
// A hidden page closes its stream, because the server limits their number.
document.addEventListener('visibilitychange', () => {
  if (paused || asking) return;
  if (document.hidden) disconnect('connecting');
  else connect();
});

showConnection();
show({ first: true });
// The stream opens after the first paint, so that it does not delay the page.
afterPaint(() => {
  if (!paused && !asking) connect();
});
