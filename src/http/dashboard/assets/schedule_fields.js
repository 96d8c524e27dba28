// The fields of a schedule's form: as the form shows what is stored, and as the API takes what was entered.

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
];

/** What the fields of a new schedule hold. */
const NEW = {
  schedule: '',
  time_zone: '',
  start: '',
  end: '',
  count: '',
  catch_up: 'one',
  overlap: 'allow',
  receiver: 'target',
  target: '',
  broker: '',
  exchange: '',
  queue: '',
  body: '',
  isBinary: false,
  headers: '',
  spread: '',
  late: '',
  max_late: '',
  expire: '',
  retry: '',
  ttr: '',
  confirm: '',
  key: '',
};

/** What the fields hold at first. `found`: the stored schedule with its body; null for a new one. */
export function shownOf(found) {
  if (found === null) return NEW;
  const body = textOf(found.body_base64 ?? '');
  const { count, retry, key, headers } = found;
  return {
    schedule: found.schedule,
    time_zone: found.time_zone ?? '',
    start: found.start ?? '',
    end: found.end ?? '',
    count: count === null ? '' : String(count),
    catch_up: found.catch_up,
    overlap: found.overlap,
    receiver: found.queue === null ? 'target' : 'queue',
    target: found.target ?? '',
    broker: found.broker ?? '',
    exchange: found.exchange ?? '',
    queue: found.queue ?? '',
    // A field turns each line break into one character.
    body: (body ?? '').replace(/\r\n?/g, '\n'),
    isBinary: body === null,
    headers: Object.keys(headers).length === 0 ? '' : JSON.stringify(headers, null, 2),
    spread: spanOf(found.spread_ms),
    late: found.late ?? '',
    max_late: spanOf(found.max_late_ms),
    expire: spanOf(found.expire_ms),
    // Those of the settings stay so.
    retry: found.retry_is_default ? '' : retry.length === 0 ? 'none' : retry.join(', '),
    ttr: spanOf(found.ttr_ms),
    confirm: found.confirm,
    // A field for one line drops line breaks.
    key: key === null ? '' : typeof key === 'string' ? key.replace(/[\r\n]/g, '') : JSON.stringify(key),
  };
}

/** The fields that decide the times; those without a value are undefined. */
export function timesOf(form) {
  const text = reader(form);
  return { schedule: text('schedule'), time_zone: text('time_zone'), start: text('start'), end: text('end'), count: text('count') };
}

/**
 * The request of the entered fields. Fields as they were shown keep what is stored, which a field, and JSON, may be
 * unable to hold. Throws an error for people.
 */
export function wantedOf(form, found, shown) {
  const text = reader(form);
  const isAsShown = (name) => found !== null && form.elements[name].value === shown[name];
  const wanted = { ...timesOf(form), catch_up: text('catch_up'), overlap: text('overlap') };
  if (wanted.schedule === undefined) throw new Error('Enter the times, such as 0 9 * * MON-FRI.');
  if (form.elements.receiver.value === 'queue') {
    wanted.queue = text('queue');
    if (wanted.queue === undefined) throw new Error('Enter a queue.');
  } else {
    Object.assign(wanted, { target: text('target'), broker: text('broker'), exchange: text('exchange'), confirm: text('confirm') });
    // Without an exchange the one of the ingest applies, and the stored one may be the default exchange.
    if (isAsShown('exchange') && found.exchange !== null) wanted.exchange = found.exchange;
    if (wanted.target === undefined && !wanted.exchange) throw new Error('Enter a target.');
  }
  const same = ['body', 'headers', 'key'].filter(isAsShown);
  if (same.length > 0 && isForSame(wanted, found)) wanted.keep = same;
  const { keep = [] } = wanted;
  if (!keep.includes('body'))
    Object.assign(wanted, isAsShown('body') ? { body_base64: found.body_base64 } : { body: form.elements.body.value });
  if (!keep.includes('headers')) wanted.headers = isAsShown('headers') ? found.headers : headersOf(text('headers'));
  if (!keep.includes('key')) wanted.key = isAsShown('key') ? (found.key ?? undefined) : text('key');
  Object.assign(wanted, {
    retry: retryOf(text('retry')),
    ttr: text('ttr'),
    spread: text('spread'),
    late: text('late'),
    max_late: text('max_late'),
    expire: text('expire'),
  });
  // A new schedule must not replace another one unseen.
  if (found === null) Object.assign(wanted, { on_conflict: 'reject', paused: form.elements.paused.checked || undefined });
  return wanted;
}

/** Whether the jobs go where those of the stored schedule go. */
function isForSame({ queue, target = '', broker, exchange = '' }, found) {
  if (queue !== undefined) return queue === found.queue;
  return broker === found.broker && target === found.target && exchange === found.exchange;
}

/** Whether a browser holds each number of this JSON as it is. */
export function isExact(value) {
  if (typeof value === 'number') return Number.isSafeInteger(value) || !Number.isInteger(value);
  return typeof value !== 'object' || value === null || Object.values(value).every(isExact);
}

const reader = (form) => (name) => form.elements[name].value.trim() || undefined;

function headersOf(text) {
  if (text === undefined) return undefined;
  let headers;
  try {
    headers = JSON.parse(text);
  } catch (error) {
    throw new Error(`The headers are not JSON: ${error.message}`);
  }
  if (typeof headers !== 'object' || headers === null || Array.isArray(headers))
    throw new Error('The headers are not a JSON object: enter names and values as {"tenant": "acme"}.');
  return headers;
}

/** A duration of ms as the API takes it: 90s, 10m, 1500 (ms); nothing for null. */
function spanOf(ms) {
  if (ms === null) return '';
  const [unit, by] = UNITS.find(([, length]) => ms > 0 && ms % length === 0) ?? ['', 1];
  return `${ms / by}${unit}`;
}

function retryOf(text) {
  if (text === undefined) return undefined;
  return text === 'none' ? [] : text.split(',').map((wait) => wait.trim());
}

function textOf(base64) {
  try {
    const all = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(all);
    return text.includes('\0') ? null : text;
  } catch {
    return null;
  }
}
