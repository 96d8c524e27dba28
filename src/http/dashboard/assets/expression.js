// Common schedule expressions in words. An expression without words here is shown as it is written.

const ALIASES = {
  '@hourly': 'At the start of each hour',
  '@daily': 'Each day at 00:00',
  '@midnight': 'Each day at 00:00',
  '@weekly': 'Each Sunday at 00:00',
  '@monthly': 'On day 1 of each month at 00:00',
  '@yearly': 'Each 1 January at 00:00',
  '@annually': 'Each 1 January at 00:00',
};
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const NUMBER = /^\d{1,2}$/;

/** Each day at 09:00; null for an expression that has no short words. */
export function inWords(expression) {
  const text = expression.trim();
  const alias = ALIASES[text.toLowerCase()];
  if (alias) return alias;
  if (/^@every\s/i.test(text)) return `Every ${text.slice(6).trim()}`;
  const fields = text.split(/\s+/);
  if (fields.length === 6 && /^0{1,2}$/.test(fields[0])) fields.shift();
  if (fields.length !== 5) return null;
  const [minute, hour, day, month, weekday] = fields.map((field) => (field === '?' ? '*' : field));
  if (month !== '*') return null;
  const on = days(day, weekday);
  if (on === null) return null;
  if (NUMBER.test(minute) && NUMBER.test(hour)) return `${on} at ${two(hour)}:${two(minute)}`;
  if (on !== 'Each day' || hour !== '*') return null;
  if (minute === '*') return 'Each minute';
  if (NUMBER.test(minute)) return `Each hour at minute ${Number(minute)}`;
  const step = Number(minute.match(/^\*\/(\d{1,2})$/)?.[1] ?? 0);
  return step > 1 && 60 % step === 0 ? `Every ${step} minutes` : null;
}

function days(day, weekday) {
  if (day === '*' && weekday === '*') return 'Each day';
  if (weekday === '*') return NUMBER.test(day) ? `On day ${Number(day)} of each month` : null;
  if (day !== '*') return null;
  if (/^(mon-fri|1-5)$/i.test(weekday)) return 'Monday to Friday';
  const name = /^[0-7]$/.test(weekday)
    ? DAYS[Number(weekday) % 7]
    : DAYS.find((known) => known.slice(0, 3).toLowerCase() === weekday.toLowerCase());
  return name ? `Each ${name}` : null;
}

const two = (number) => String(Number(number)).padStart(2, '0');
