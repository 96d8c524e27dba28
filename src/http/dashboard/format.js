// Numbers, sizes, durations and times as people read them.

const NUMBER = new Intl.NumberFormat();
const RATE = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const TIME = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const DAY = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });
const YEAR = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', year: 'numeric' });

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY_MS = 24 * HOUR;

/** 12 345 */
export const count = (number) => NUMBER.format(number);

/** 3.4/s */
export const rate = (number) => `${RATE.format(number)}/s`;

/** 1 job, 2 jobs */
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** 812 B, 1.4 KiB */
export function bytes(size) {
  if (size < 1024) return `${size} B`;
  const [unit, by] = size < 1024 * 1024 ? ['KiB', 1024] : ['MiB', 1024 * 1024];
  return `${RATE.format(size / by)} ${unit}`;
}

/** A span of ms in its two largest units: 850 ms, 12 s, 4 min 10 s, 2 d 4 h */
export function duration(ms) {
  const span = Math.abs(ms);
  if (span < SECOND) return `${Math.round(span)} ms`;
  if (span < 10 * SECOND) return `${RATE.format(Math.floor(span / 100) / 10)} s`;
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
  // Whole seconds: tenths would flicker.
  const span = duration(Math.floor(Math.abs(ahead) / SECOND) * SECOND);
  return ahead > 0 ? `in ${span}` : `${span} ago`;
}

/** 14:05:09 today; else with its day, and its year where that is another */
export function absolute(at, now) {
  const [then, today] = [new Date(at), new Date(now)];
  if (Number.isNaN(then.getTime())) return `${at} ms`;
  if (then.toDateString() === today.toDateString()) return TIME.format(then);
  return `${(then.getFullYear() === today.getFullYear() ? DAY : YEAR).format(then)}, ${TIME.format(then)}`;
}

/** 2026-11-21T14:05:09.123Z */
export function exact(at) {
  const then = new Date(at);
  return Number.isNaN(then.getTime()) ? `${at} ms` : then.toISOString();
}
