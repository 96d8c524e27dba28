// The health section: Redis, the brokers with their paused targets, the ingests, and recent errors.
import { moment } from './clock.js';
import { el, reconcile, status } from './dom.js';
import { plural } from './format.js';
import { live, onNews } from './live.js';

const KINDS = { nats: 'NATS', kafka: 'Kafka', amqp: 'RabbitMQ', http: 'HTTP' };
const PAUSES = {
  redis: 'Redis is away',
  redis_full: 'Redis is full',
  rejected: 'its `rejected` destination does not take messages',
  backpressure: 'requests arrive faster than they can be stored',
};

export function health(signal) {
  const list = el('ul', { class: 'parts' });
  const draw = () => {
    const parts = partsOf(live);
    list.hidden = parts.length === 0;
    reconcile(list, parts, {
      key: (part) => part.key,
      stamp: (part) => JSON.stringify(part.level === 'bad' ? { ...part, error: part.error?.message } : part),
      make,
    });
  };
  onNews(draw, signal);
  draw();
  return el(
    'section',
    { class: 'card', 'aria-labelledby': 'health-title' },
    el('h2', { id: 'health-title' }, 'Is it healthy?'),
    list,
  );
}

function make(part) {
  const error = part.error;
  return el(
    'li',
    { data: { level: part.level } },
    el(
      'span',
      { class: 'what' },
      el('span', { class: 'kind' }, part.kind),
      ' ',
      part.name && el('span', { class: 'name' }, part.name),
    ),
    status(part.level, part.word),
    el('span', { class: 'detail' }, part.detail),
    error && part.level === 'bad' && el('p', { class: 'met' }, error.message),
    error &&
      part.level !== 'bad' &&
      el('details', { class: 'met' }, el('summary', {}, 'Last error ', moment(error.at_ms)), el('p', {}, error.message)),
  );
}

function partsOf({ stats, problem }) {
  if (!stats && !problem) return [];
  const redis = problem
    ? { key: 'redis', kind: 'Redis', level: 'bad', word: 'Away', detail: problem.detail }
    : { key: 'redis', kind: 'Redis', level: 'ok', word: 'Answers', detail: '' };
  const brokers = Object.entries(stats?.brokers ?? {}).map(([name, broker]) => ofBroker(name, broker));
  const ingests = Object.entries(stats?.ingests ?? {}).map(([name, ingest]) => ofIngest(name, ingest));
  return [redis, ...brokers, ...ingests];
}

function ofBroker(name, broker) {
  const part = { key: `broker ${name}`, kind: KINDS[broker.kind] ?? 'Broker', name, error: broker.last_error };
  const waiting = broker.scheduled === 0 ? 'No jobs for it' : `${plural(broker.scheduled, 'job')} for it`;
  if (broker.stranded)
    return { ...part, level: 'bad', word: 'Stranded', detail: `${waiting}; no instance delivers to it` };
  if (broker.connected === null)
    return { ...part, level: 'off', word: 'Not used', detail: `${waiting}; this instance does not publish to it` };
  if (!broker.connected) return { ...part, level: 'bad', word: 'Away', detail: `Paused: ${waiting}, and no attempt is counted` };
  if (broker.paused > 0)
    return {
      ...part,
      level: 'warn',
      word: 'Paused',
      detail: `${plural(broker.paused, 'target is', 'targets are')} paused · ${waiting}`,
    };
  return { ...part, level: 'ok', word: 'Connected', detail: waiting };
}

function ofIngest(name, ingest) {
  const part = { key: `ingest ${name}`, kind: 'Ingest', name, error: ingest.last_error };
  const from = `${ingest.topic} on ${ingest.broker}`;
  if (!ingest.reads) return { ...part, level: 'bad', word: 'Not reading', detail: from };
  if (ingest.paused)
    return { ...part, level: 'warn', word: 'Paused', detail: `${from} · ${PAUSES[ingest.paused] ?? ingest.paused}` };
  return { ...part, level: 'ok', word: 'Reading', detail: from };
}
