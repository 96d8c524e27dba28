// The overall state in one sentence, for on-call people.
import { count, duration, plural } from './format.js';

/** Jobs that are overdue by less than this, ms, are on their way. */
export const LATE_MS = 5000;
/** From this lateness on, ms, the level is `bad`. */
export const VERY_LATE_MS = 60000;

/** How long the oldest overdue job is overdue, ms; 0 if none is. */
export function oldestOverdue(stats) {
  if (!stats || stats.overdue === 0 || stats.next_due_ms === null) return 0;
  return Math.max(0, stats.now_ms - stats.next_due_ms);
}

/** How long the oldest ready job of a queue that is not paused waits for a consumer, ms; 0 if none is ready. */
export function oldestReady(stats) {
  return stats?.oldest_ready_ms ? Math.max(0, stats.now_ms - stats.oldest_ready_ms) : 0;
}

/** A limit that holds jobs back: how many, and since when. */
export function limitWords({ pattern, broker, queue, waiting, since_ms }, now) {
  const jobs = plural(waiting, 'job waits for its turn', 'jobs wait for their turns');
  return `${pattern} of ${broker ?? queue} is limited: ${jobs}, for ${duration(Math.max(0, now - since_ms))}.`;
}

/** A single point becomes the sentence; of several, the sentence has their number. */
function summarized(points) {
  return points.length === 1
    ? { sentence: points[0], points: [] }
    : { sentence: `${points.length} problems`, points };
}

/** The overall state: a level, a sentence, and the points behind it. */
export function overallState({ stats, problem, state }) {
  if (problem)
    return {
      level: 'bad',
      sentence: 'Redis does not answer.',
      points: [`${problem.detail} Until Redis answers, no job is delivered and no request is acknowledged.`],
    };
  if (!stats) return { level: 'off', sentence: state === 'lost' ? 'Dwell does not answer.' : 'Loading…', points: [] };
  const [bad, warn] = [[], []];
  for (const [name, broker] of Object.entries(stats.brokers)) {
    if (broker.stranded)
      bad.push(
        `No instance delivers to broker ${name}: ${plural(broker.scheduled, 'job')} for it wait${broker.scheduled === 1 ? 's' : ''}. Add the broker to the settings again, or move the jobs: dwell requeue --broker ${name} --to NEW.`,
      );
    else if (broker.connected === false)
      bad.push(
        `Broker ${name} is away: ${plural(broker.scheduled, 'job')} for it wait${broker.scheduled === 1 ? 's' : ''}, and no attempt is counted.`,
      );
    else if (broker.paused > 0)
      warn.push(`Broker ${name} has ${plural(broker.paused, 'paused target')}, whose jobs wait.`);
  }
  for (const [name, ingest] of Object.entries(stats.ingests)) {
    if (!ingest.reads) bad.push(`Ingest ${name} does not read ${ingest.topic}: requests wait in the broker.`);
    else if (ingest.paused) warn.push(`Ingest ${name} is paused (${ingest.paused}): requests wait in the broker.`);
  }
  for (const queue of stats.paused_queues) warn.push(`Queue ${queue} is paused: its ready jobs wait.`);
  const oldest = oldestOverdue(stats);
  if (oldest >= LATE_MS)
    (oldest >= VERY_LATE_MS ? bad : warn).push(
      `${plural(stats.overdue, 'job is', 'jobs are')} overdue, the oldest by ${duration(oldest)}.`,
    );
  const unfetched = oldestReady(stats);
  if (unfetched >= LATE_MS)
    (unfetched >= VERY_LATE_MS ? bad : warn).push(
      `${plural(stats.ready, 'ready job waits', 'ready jobs wait')} for a consumer, the oldest for ${duration(unfetched)}.`,
    );
  if (stats.died > 0) warn.push(`${plural(stats.died, 'job')} died within the last hour: see the dead letters.`);
  const awaited = stats.instance ? stats.instance.waiting_for : [];
  if (stats.instance && !stats.instance.ready && bad.length === 0)
    warn.push(`This instance is not ready: it waits for ${awaited.join(', ')}.`);
  else if (awaited.length > 0 && bad.length === 0) warn.push(`This instance waits for ${awaited.join(', ')}.`);
  const points = [...bad, ...warn];
  if (points.length > 0) return { level: bad.length > 0 ? 'bad' : 'warn', ...summarized(points) };
  const limited = stats.limited.map((one) => limitWords(one, stats.now_ms));
  const waiting =
    stats.scheduled === 0
      ? 'No jobs are waiting.'
      : `${count(stats.scheduled)} ${stats.scheduled === 1 ? 'job waits for its' : 'jobs wait for their'} due time.`;
  return { level: 'ok', sentence: 'All is well, and on time.', points: [waiting, ...limited] };
}
