// A list of the times of a schedule, on the clock of its zone and on the reader's.
import { moment } from './clock.js';
import { el } from './dom.js';
import { inZone, ownZone } from './zone.js';

/** The times, epoch ms, in this zone; without a zone, or in the reader's own, only on the reader's clock. */
export function timeList(times, zone) {
  const isOther = zone && zone !== ownZone();
  return el(
    'div',
    { class: 'times-of' },
    el('p', { class: 'hint' }, isOther ? `In ${zone}, then in your time.` : 'In your time.'),
    el(
      'ol',
      { class: 'next-times' },
      times.map((at) => el('li', {}, isOther && el('span', { class: 'zoned' }, inZone(at, zone)), ' ', moment(at))),
    ),
  );
}
