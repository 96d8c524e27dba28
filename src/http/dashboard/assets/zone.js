// Times on the clock of a time zone. Only pages of schedules use the browser's `Intl`, which is slow at first.
import { exact } from './format.js';

const FIELDS = {
  weekday: 'short',
  day: 'numeric',
  month: 'short',
  year: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  hourCycle: 'h23',
  timeZoneName: 'shortOffset',
};
const formats = new Map();

/** Mon 30 Nov 2026, 09:00:00 GMT+1: in this zone; as exact time where the browser does not know the zone. */
export function inZone(at, zone) {
  const format = formatOf(zone);
  if (format === null || Number.isNaN(new Date(at).getTime())) return exact(at);
  const part = Object.fromEntries(format.formatToParts(at).map(({ type, value }) => [type, value]));
  return `${part.weekday} ${part.day} ${part.month} ${part.year}, ${part.hour}:${part.minute}:${part.second} ${part.timeZoneName}`;
}

/** The names of the zones that the browser knows. */
export const zones = () => Intl.supportedValuesOf?.('timeZone') ?? [];

/** The name of the browser's zone. */
export const ownZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

function formatOf(zone) {
  if (!formats.has(zone)) {
    try {
      formats.set(zone, new Intl.DateTimeFormat('en-US', { ...FIELDS, timeZone: zone }));
    } catch {
      // The zone is newer than the browser's zone data.
      formats.set(zone, null);
    }
  }
  return formats.get(zone);
}
