// Formats numbers, sizes, durations and times for people, in English. Without the browser's `Intl`: its
// first use takes at least 15 ms, a tenth of the time until a list is shown.

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const WEEKDAYS = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY_MS = 24 * HOUR;

/** 12,345, 3.4; at most one decimal */
export function count(number) {
  const [whole, tenth] = String(Math.round(number * 10) / 10).split('.');
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ',');
  return tenth ? `${grouped}.${tenth}` : grouped;
}

/** 3.4/s */
export const rate = (number) => `${count(number)}/s`;

/** 1 job, 2 jobs */
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** 812 B, 1.4 KiB */
export function bytes(size) {
  if (size < 1024) return `${size} B`;
  const [unit, by] = size < 1024 * 1024 ? ['KiB', 1024] : ['MiB', 1024 * 1024];
  return `${count(size / by)} ${unit}`;
}

/** A duration of ms in its two largest units: 850 ms, 12 s, 4 min 10 s, 2 d 4 h */
export function duration(ms) {
  const span = Math.abs(ms);
  if (span < SECOND) return `${Math.round(span)} ms`;
  if (span < 10 * SECOND) return `${count(Math.floor(span / 100) / 10)} s`;
  for (const [unit, by, smaller, smallerBy] of [
    ['d', DAY_MS, 'h', HOUR],
    ['h', HOUR, 'min', MINUTE],
    ['min', MINUTE, 's', SECOND],
  ]) {
    if (span >= by) {
      const rest = Math.floor((span % by) / smallerBy);
      const large = `${count(Math.floor(span / by))} ${unit}`;
      return rest && span < 10 * by ? `${large} ${rest} ${smaller}` : large;
    }
  }
  return `${Math.floor(span / SECOND)} s`;
}

/** in 4 min, 4 min ago, now */
export function relative(at, now) {
  const ahead = at - now;
  if (Math.abs(ahead) < SECOND) return 'now';
  // Whole seconds, because tenths would flicker.
  const span = duration(Math.floor(Math.abs(ahead) / SECOND) * SECOND);
  return ahead > 0 ? `in ${span}` : `${span} ago`;
}

/** 14:05, in the time zone of the browser */
export function minutes(at) {
  const then = new Date(at);
  return `${two(then.getHours())}:${two(then.getMinutes())}`;
}

/** 14:05:09 */
export const seconds = (at) => `${minutes(at)}:${two(new Date(at).getSeconds())}`;

/** Mon 14:05 */
export const weekday = (at) => `${WEEKDAYS[new Date(at).getDay()]} ${minutes(at)}`;

/** 14:05:09 today; else 21 Nov, 14:05:09, with the year if it is another one */
export function absolute(at, now) {
  const [then, today] = [new Date(at), new Date(now)];
  if (Number.isNaN(then.getTime())) return `${at} ms`;
  if (then.toDateString() === today.toDateString()) return seconds(then);
  const year = then.getFullYear() === today.getFullYear() ? '' : ` ${then.getFullYear()}`;
  return `${then.getDate()} ${MONTHS[then.getMonth()]}${year}, ${seconds(then)}`;
}

/** 2026-11-21T14:05:09.123Z */
export function exact(at) {
  const then = new Date(at);
  return Number.isNaN(then.getTime()) ? `${at} ms` : then.toISOString();
}

const two = (number) => String(number).padStart(2, '0');
